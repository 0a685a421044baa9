//! SQL of organizations, which the operator makes at the command line.

use kernel::args;
use kernel::audit::{self, Entry};
use kernel::base::{Error, Label, OnDuplicate, Result, check_slug};
use kernel::store::{Db, FromRow, Row};

use super::{Organization, OrganizationId};

kernel::statements! {
    INSERT = "INSERT INTO organizations (tenant_id, id, slug, name, version, created_at, updated_at)
        VALUES ($1, $2, $3, $4, 1, $5, $5)";
    LIST = "SELECT id, slug, name, version, created_at, updated_at FROM organizations
        WHERE tenant_id = $1 AND slug > $2 ORDER BY slug LIMIT $3";
    FIND_BY_SLUG = "SELECT id, slug, name, version, created_at, updated_at FROM organizations
        WHERE tenant_id = $1 AND slug = $2";
}

impl FromRow for Organization {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Organization {
            id: row.get(0)?,
            slug: row.get(1)?,
            name: row.get(2)?,
            version: row.get(3)?,
            created_at: row.get(4)?,
            updated_at: row.get(5)?,
        })
    }
}

/// Rows of one step when the command line lists everything.
const LIST_ROWS: i64 = 500;

pub async fn create(db: &Db, name: &str, slug: &str) -> Result<Organization> {
    let name = Label::parse(name).map_err(|detail| Error::invalid("/name", "invalid_name", detail))?.into_string();
    check_slug(slug)?;
    let slug = slug.to_owned();
    let taken = format!("An organization with the slug {slug:?} exists already in this tenant.");
    db.write(async move |tx| {
        let at = tx.tick().await?.at;
        let id = OrganizationId::new(tx.world());
        tx.exec(INSERT, args![id, slug, name, at]).await?;
        tx.changed("organization", id).await?;
        audit::record(tx, Entry::new("organization.create", "organization", id)).await?;
        Ok(Organization { id, slug, name, version: 1, created_at: at, updated_at: at })
    })
    .await
    .on_duplicate(|| Error::conflict(taken))
}

pub async fn find_by_slug(db: &Db, slug: &str) -> Result<Option<Organization>> {
    db.find(FIND_BY_SLUG, args![slug]).await
}

pub async fn list(db: &Db) -> Result<Vec<Organization>> {
    let mut all: Vec<Organization> = Vec::new();
    loop {
        let after = all.last().map(|organization| organization.slug.clone()).unwrap_or_default();
        let rows: Vec<Organization> = db.list(LIST, args![after, LIST_ROWS]).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
}
