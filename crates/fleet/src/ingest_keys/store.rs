//! SQL of ingest keys. Operators create and revoke them at the command line.

use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::base::{Code, Error, RecordId, Result, Secrets, TenantId};
use kernel::store::references::{self, RecordReference};
use kernel::store::{Db, FromRow, Row, Tx};
use people::organizations::{ORGANIZATIONS, Organization, OrganizationId};

use super::{IngestKey, IngestKeyId, IngestKeySecret, LIVE_KEYS_MAX, NewIngestKey, revoked_error};

kernel::columns! {
    /// The public columns of a key.
    struct IngestKeyColumns {
        id = "k.id", organization_id = "k.organization_id", organization = "o.slug", last_four = "k.last_four",
        created_by_type = "k.created_by_type", created_by_id = "k.created_by_id", created_by_name = "k.created_by_name",
        created_at = "k.created_at", revoked_at = "k.revoked_at",
    }
}

const SHOWN: &str = kernel::sql![
    "SELECT ",
    IngestKeyColumns::LIST,
    " FROM ingest_keys k LEFT JOIN organizations o ON o.tenant_id = k.tenant_id AND o.id = k.organization_id
        WHERE k.tenant_id = $1"
];

kernel::statements! {
    OF_ORGANIZATION = "SELECT id FROM ingest_keys WHERE tenant_id = $1 AND organization_id = $2 AND revoked_at IS NULL LIMIT 1";
    LIST = kernel::sql![SHOWN, " AND k.id > $2 ORDER BY k.id LIMIT $3"];
    GET = kernel::sql![SHOWN, " AND k.id = $2"];
    COUNT_LIVE = "SELECT COUNT(*) FROM ingest_keys WHERE tenant_id = $1 AND revoked_at IS NULL";
    INSERT = "INSERT INTO ingest_keys (tenant_id, id, organization_id, secret_hash, last_four, created_by_type,
            created_by_id, created_by_name, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    /// Also clears the hash of the secret, so that no secret can match.
    REVOKE = "UPDATE ingest_keys SET revoked_at = $3, secret_hash = $4
        WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL";
    IS_LIVE = "SELECT id FROM ingest_keys WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL";
    /// Over all tenants: the read finds out the tenant of the key.
    FIND_LIVE = "SELECT tenant_id, organization_id, secret_hash FROM ingest_keys WHERE id = $1 AND revoked_at IS NULL";
}

impl FromRow for IngestKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: IngestKeyColumns<usize> = IngestKeyColumns::AT;
        Ok(kernel::read_record!(row, IngestKeyColumns => IngestKey {
            id, organization_id, organization, last_four, created_at, revoked_at;
            created_by: row.get_actor([AT.created_by_type, AT.created_by_id, AT.created_by_name])?,
        }))
    }
}

/// A live key with its tenant and the hash of its secret.
pub(super) struct LiveIngestKey {
    pub tenant_id: TenantId,
    pub organization_id: Option<OrganizationId>,
    pub secret_hash: Vec<u8>,
}

impl FromRow for LiveIngestKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(LiveIngestKey { tenant_id: row.get(0)?, organization_id: row.get(1)?, secret_hash: row.get(2)? })
    }
}

pub(super) async fn find_live_key(all: &Db, id: IngestKeyId) -> Result<Option<LiveIngestKey>> {
    all.find(FIND_LIVE, args![id]).await
}

/// Checks the key again in the transaction that saves a report, after the tick of the tenant's clock: a body may take long
/// to arrive, and a key that was revoked meanwhile must not change anything.
pub async fn confirm_ingest_key(tx: &mut Tx, id: IngestKeyId) -> Result<()> {
    let live: Option<IngestKeyId> = tx.find(IS_LIVE, args![id]).await?;
    live.map(drop).ok_or_else(revoked_error)
}

/// Creates a key for all devices of a tenant, or for those of one organization.
pub async fn create_ingest_key(
    db: &Db,
    organization: Option<&Organization>,
    secrets: &Secrets,
) -> Result<NewIngestKey> {
    let (organization_id, secrets) = (organization.map(|one| one.id), secrets.clone());
    db.write(async move |tx| {
        let at = tx.tick().await?.at;
        check_key_limit(tx).await?;
        if let Some(id) = organization_id {
            let (pointer, id) = ("/organization".to_owned(), id.to_string());
            let named = RecordReference { pointer, prefix: OrganizationId::PREFIX, id };
            references::check_references(tx, &[ORGANIZATIONS], &[named]).await?;
        }
        let (id, secret) = (IngestKeyId::new(tx.env()), IngestKeySecret::generate(&tx.env().random));
        let (hash, by) = (secret.hash(id, &secrets), tx.actor().who.clone());
        let row = args![id, organization_id, hash.as_slice(), secret.last_four(), by.kind.as_str(), by.id, by.name, at];
        tx.exec(INSERT, row).await?;
        audit::record_entry(tx, NewAuditEntry::new("ingest_key.create", "ingest_key", id)).await?;
        let record = tx.get_one(GET, args![id]).await?;
        Ok(NewIngestKey { record, secret })
    })
    .await
}

/// The tenant's clock is locked, so no concurrent write can exceed the limit.
async fn check_key_limit(tx: &mut Tx) -> Result<()> {
    let live: i64 = tx.get_one(COUNT_LIVE, args![]).await?;
    if live < LIVE_KEYS_MAX {
        return Ok(());
    }
    let detail = format!("A tenant has at most {LIVE_KEYS_MAX} ingest keys. Revoke one that is no longer needed.");
    Err(Error::new(Code::LimitReached, detail))
}

/// Matches no hash.
const NO_HASH: &[u8] = &[];

/// Revokes a key and returns it. A key that was already revoked stays unchanged; an unknown key is not found.
pub async fn revoke_ingest_key(db: &Db, id: IngestKeyId) -> Result<IngestKey> {
    db.write(async move |tx| {
        let at = tx.tick().await?.at;
        if tx.exec(REVOKE, args![id, at, NO_HASH]).await? == 1 {
            audit::record_entry(tx, NewAuditEntry::new("ingest_key.revoke", "ingest_key", id)).await?;
        }
        tx.get_one(GET, args![id]).await
    })
    .await
}

/// Rows of one query while the command line lists all keys.
const LIST_ROWS: i64 = 500;

/// All keys, also revoked ones, oldest first.
pub async fn list_ingest_keys(db: &Db) -> Result<Vec<IngestKey>> {
    let mut all: Vec<IngestKey> = Vec::new();
    loop {
        let after = all.last().map(|key| key.id.to_string()).unwrap_or_default();
        let rows: Vec<IngestKey> = db.list(LIST, args![after, LIST_ROWS]).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
}
