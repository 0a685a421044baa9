//! Tenants, which the operator creates at the command line.

use super::principal::Tenant;
use crate::audit::{self, NewAuditEntry};
use crate::base::{Actor, Error, Label, OnDuplicate, Result, TenantId, check_slug};
use crate::store::{Db, FromRow, Purpose, Row, Store, Tx};

crate::statements! {
    INSERT_TENANT = "INSERT INTO tenants (id, slug, name, version, created_at, updated_at) VALUES ($1, $2, $3, 1, $4, $4)";
    INSERT_CLOCK = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence) VALUES ($1, $2, 0)";
    FIND_TENANT = "SELECT id, slug, name FROM tenants WHERE slug = $1";
    LIST_TENANTS = "SELECT id, slug, name FROM tenants WHERE slug > $1 ORDER BY slug LIMIT $2";
    COUNT_TENANTS = "SELECT COUNT(*) FROM (SELECT id FROM tenants LIMIT 1) AS any_tenant";
}

impl FromRow for Tenant {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Tenant { id: row.get(0)?, slug: row.get(1)?, name: row.get(2)? })
    }
}

/// Rows per statement when the command line lists everything.
const LIST_ROWS: i64 = 500;

pub async fn create_tenant(store: &Store, name: &str, slug: &str) -> Result<Tenant> {
    let name = Label::parse(name).map_err(|detail| Error::invalid("/name", "invalid_name", detail))?.into_string();
    check_slug(slug)?;
    let tenant = Tenant { id: TenantId::new(store.env()), slug: slug.to_owned(), name };
    let created = tenant.clone();
    store
        .tenant(tenant.id, Actor::for_operator(&store.env().operator))
        .write(async move |tx| insert_tenant(tx, &tenant).await)
        .await
        .on_duplicate(|| Error::conflict(format!("A tenant with the slug {slug:?} exists already.")))?;
    Ok(created)
}

/// Inserts a tenant in a transaction of its own handle, to which the caller can add more records.
pub async fn insert_tenant(tx: &mut Tx, tenant: &Tenant) -> Result<()> {
    let now = tx.env().now();
    tx.exec(INSERT_TENANT, crate::args![tenant.slug, tenant.name, now]).await?;
    tx.exec(INSERT_CLOCK, crate::args![now]).await?;
    audit::record_entry(tx, NewAuditEntry::new("tenant.create", "tenant", tenant.id)).await
}

/// The operator's handle to a tenant, for the command line only.
pub fn open_as_operator(store: &Store, tenant: &Tenant) -> Db {
    store.tenant(tenant.id, Actor::for_operator(&store.env().operator))
}

/// On an empty store, returns the default tenant, which is not inserted yet, and the service's handle to it. `None` when
/// there is a tenant already. If several nodes do this at once, the unique slug lets only one of them insert it.
pub async fn plan_first_tenant(store: &Store) -> Result<Option<(Tenant, Db)>> {
    let tenants: i64 = store.system(Purpose::Startup).get_one(COUNT_TENANTS, crate::args![]).await?;
    if tenants > 0 {
        return Ok(None);
    }
    let tenant = Tenant { id: TenantId::new(store.env()), slug: "default".to_owned(), name: "Default".to_owned() };
    let db = store.tenant(tenant.id, Actor::for_system());
    Ok(Some((tenant, db)))
}

pub async fn find_tenant(db: &Db, slug: &str) -> Result<Option<Tenant>> {
    db.find(FIND_TENANT, crate::args![slug]).await
}

pub async fn list_tenants(db: &Db) -> Result<Vec<Tenant>> {
    let mut all: Vec<Tenant> = Vec::new();
    loop {
        let after = all.last().map(|tenant| tenant.slug.clone()).unwrap_or_default();
        let rows: Vec<Tenant> = db.list(LIST_TENANTS, crate::args![after, LIST_ROWS]).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
}
