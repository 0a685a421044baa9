//! SQL of the worker. Every write is in a transaction that holds the lane's lease.

use kernel::args;
use kernel::base::seal::SealedValue;
use kernel::base::{Error, Result, StringEnum, Timestamp};
use kernel::store::{Db, FromRow, Row, Tx};

use super::job::{CloudJobId, UNKNOWN_MAX_MS};
use crate::providers::ProviderId;
use crate::providers::store::{StoredProvider, find_in_tx};
use crate::vms::provision::store::OperationSpec;
use crate::vms::{OperationId, OperationStatus, VmId};

kernel::columns! {
    struct DueColumns in "vm_operations" {
        id, vm_id, region, status, spec, user_data, attempt, accepted_at, first_sent_at, submitted_at, account_id,
        credentials_version, error_code, error_detail,
    }
}

kernel::statements! {
    VERIFY_AT = "SELECT verify_at FROM cloud_providers WHERE tenant_id = $1 AND id = $2 AND enabled AND deleted_at IS NULL";
    SYNC_AT = "SELECT sync_at FROM cloud_regions WHERE tenant_id = $1 AND provider_id = $2 AND region = $3";
    DUE = kernel::sql![
        DueColumns::SELECT,
        " AND provider_id = $2 AND region = $3 AND next_at <= $4 ORDER BY next_at, id LIMIT $5"
    ];
    /// With `$4`, only of orders that the cloud may have, and not before nobody could know more of them for so long.
    NEXT_OPERATION = "SELECT MIN(CASE WHEN COALESCE(submitted_at, accepted_at) + $4 > next_at
            THEN COALESCE(submitted_at, accepted_at) + $4 ELSE next_at END)
        FROM vm_operations WHERE tenant_id = $1 AND provider_id = $2 AND region = $3 AND next_at IS NOT NULL
        AND (status <> 'accepted' OR CAST($4 AS BIGINT) IS NULL)";
    /// Orders that the cloud may have, and of which nobody could know more since this moment.
    LONG_UNKNOWN = kernel::sql![
        DueColumns::SELECT,
        " AND provider_id = $2 AND region = $3 AND next_at <= $4 AND status <> 'accepted'
        AND COALESCE(submitted_at, accepted_at) <= $5 ORDER BY next_at, id LIMIT $6"
    ];
    /// A sync that was asked for meanwhile stays due.
    SAVE_SYNC = "UPDATE cloud_regions SET last_sync_at = $5, last_sync_error = $6, account_id = $7, failures = 0,
            sync_at = CASE WHEN sync_at = $8 THEN $4 ELSE sync_at END
        WHERE tenant_id = $1 AND provider_id = $2 AND region = $3";
    REGION_STATE = "SELECT failures, sync_at FROM cloud_regions
        WHERE tenant_id = $1 AND provider_id = $2 AND region = $3";
    FAIL_SYNC = "UPDATE cloud_regions SET last_sync_error = $5, failures = failures + 1,
            sync_at = CASE WHEN sync_at = $6 THEN $4 ELSE sync_at END
        WHERE tenant_id = $1 AND provider_id = $2 AND region = $3";
    SKIP_SYNC = "UPDATE cloud_regions SET sync_at = NULL
        WHERE tenant_id = $1 AND provider_id = $2 AND region = $3 AND sync_at = $4";
    DEFER_SYNC = "UPDATE cloud_regions SET sync_at = $4, last_sync_error = $5
        WHERE tenant_id = $1 AND provider_id = $2 AND region = $3 AND sync_at <= $6";
    DEFER_VERIFICATION = "UPDATE cloud_providers SET verify_at = $3 WHERE tenant_id = $1 AND id = $2 AND verify_at <= $4";
    DEFER_OPERATION = "UPDATE vm_operations SET next_at = $3 WHERE tenant_id = $1 AND id = $2 AND next_at <= $4";
    /// The regions of a provider that still has the credentials of a job.
    CONFIRM = "SELECT regions FROM cloud_providers
        WHERE tenant_id = $1 AND id = $2 AND credentials_version = $3 AND enabled AND deleted_at IS NULL";
    /// The attempt is that which was read: what another transaction has decided meanwhile stays. An error of before says
    /// nothing of this request.
    SUBMIT = "UPDATE vm_operations SET status = 'submitting', attempt = attempt + 1, next_at = $4, account_id = $5,
            credentials_version = $7, error_code = NULL, error_detail = NULL,
            first_sent_at = CASE WHEN first_sent_at IS NULL THEN $6 ELSE first_sent_at END,
            submitted_at = CASE WHEN submitted_at IS NULL THEN $6 ELSE submitted_at END
        WHERE tenant_id = $1 AND id = $2 AND attempt = $3 AND ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM vms v
            WHERE v.tenant_id = $1 AND v.operation_id = $2 AND v.external_id IS NOT NULL)";
    MOVE = "UPDATE vm_operations SET status = $4, attempt = attempt + 1, next_at = $5, error_code = $6, error_detail = $7,
            submitted_at = CASE WHEN $4 = 'accepted' THEN NULL ELSE submitted_at END
        WHERE tenant_id = $1 AND id = $2 AND attempt = $3 AND ended_at IS NULL";
    END = "UPDATE vm_operations SET status = $4, attempt = attempt + 1, next_at = NULL, error_code = $5, error_detail = $6,
            ended_at = $7, user_data = CASE WHEN $4 = 'needs_attention' THEN user_data ELSE NULL END
        WHERE tenant_id = $1 AND id = $2 AND attempt = $3 AND ended_at IS NULL";
}

/// An order that something is to be done for.
pub struct DueOperation {
    pub id: OperationId,
    pub vm_id: VmId,
    pub region: String,
    pub status: OperationStatus,
    pub spec: OperationSpec,
    pub user_data: Option<SealedValue>,
    pub attempt: i64,
    /// Since when it waits to be sent.
    pub accepted_at: Timestamp,
    /// When it was sent first since then.
    pub first_sent_at: Option<Timestamp>,
    /// Since when it is not known whether the cloud has it.
    pub submitted_at: Option<Timestamp>,
    /// The account that it is for, once it is known.
    pub account_id: Option<String>,
    /// The version of the credentials that it was sent with, or is for.
    pub credentials_version: Option<i64>,
    pub error_code: Option<String>,
    pub error_detail: Option<String>,
}

impl DueOperation {
    /// Since when it is not known what became of it; never of one that the cloud does not have.
    pub fn unknown_since(&self) -> Option<Timestamp> {
        (self.status != OperationStatus::Accepted).then(|| self.submitted_at.unwrap_or(self.accepted_at))
    }
}

impl FromRow for DueOperation {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: DueColumns<usize> = DueColumns::AT;
        Ok(kernel::read_record!(row, DueColumns => DueOperation {
            id, vm_id, region, user_data, attempt, accepted_at, first_sent_at, submitted_at, account_id,
            credentials_version, error_code, error_detail;
            status: OperationStatus::from_stored(&row.get::<String>(AT.status)?)?,
            spec: serde_json::from_str(&row.get::<String>(AT.spec)?).map_err(Error::internal)?,
        }))
    }
}

pub async fn find_verify_at(db: &Db, provider: ProviderId) -> Result<Option<Timestamp>> {
    Ok(db.find::<Option<Timestamp>>(VERIFY_AT, args![provider]).await?.flatten())
}

pub async fn find_sync_at(db: &Db, provider: ProviderId, region: &str) -> Result<Option<Timestamp>> {
    Ok(db.find::<Option<Timestamp>>(SYNC_AT, args![provider, region]).await?.flatten())
}

/// When an order of the region is to be worked on next.
pub async fn find_next_operation(db: &Db, stored: &StoredProvider, region: &str) -> Result<Option<Timestamp>> {
    db.get_one(NEXT_OPERATION, args![stored.record.id, region, unknown_wait_ms(stored)]).await
}

/// While a provider cannot be worked with, there is something to do for an order only when nobody could look for its machine for
/// so long. None if it can be.
fn unknown_wait_ms(stored: &StoredProvider) -> Option<i64> {
    (!stored.can_make_machines()).then_some(UNKNOWN_MAX_MS)
}

/// When there is something to do on a lane, as the provider is now.
pub async fn find_next_due(tx: &mut Tx, provider: ProviderId, region: Option<&str>) -> Result<Option<Timestamp>> {
    let Some(stored) = find_in_tx(tx, provider).await? else { return Ok(None) };
    let Some(region) = region else { return Ok(stored.verify_at.filter(|_| stored.record.enabled)) };
    let wait_ms = unknown_wait_ms(&stored);
    let operation: Option<Timestamp> = tx.get_one(NEXT_OPERATION, args![provider, region, wait_ms]).await?;
    let sync_at = tx.find::<Option<Timestamp>>(SYNC_AT, args![provider, region]).await?.flatten();
    Ok([sync_at.filter(|_| stored.record.enabled), operation].into_iter().flatten().min())
}

/// The orders of a region that something is to be done for, as the provider is.
pub async fn list_due_operations(
    db: &Db,
    stored: &StoredProvider,
    region: &str,
    now: Timestamp,
    max: usize,
) -> Result<Vec<DueOperation>> {
    let (id, max) = (stored.record.id, max as i64);
    if stored.can_make_machines() {
        return db.list(DUE, args![id, region, now, max]).await;
    }
    db.list(LONG_UNKNOWN, args![id, region, now, now.plus_ms(-UNKNOWN_MAX_MS), max]).await
}

/// What a job works with.
#[derive(Clone, Debug)]
pub struct WorkBasis {
    pub provider: ProviderId,
    /// All that the job reads.
    pub regions: Vec<String>,
    pub credentials_version: i64,
}

impl WorkBasis {
    /// Whether it is still so: not if the provider was changed, disabled or deleted meanwhile. The tenant's clock is locked,
    /// so the answer stays true until the commit.
    pub async fn confirm(&self, tx: &mut Tx) -> Result<bool> {
        let listed: Option<String> = tx.find(CONFIRM, args![self.provider, self.credentials_version]).await?;
        self.is_covered_by(listed)
    }

    /// Like [`WorkBasis::confirm`], outside any transaction: it may not be so any more in the next moment.
    pub async fn is_current(&self, db: &Db) -> Result<bool> {
        self.is_covered_by(db.find(CONFIRM, args![self.provider, self.credentials_version]).await?)
    }

    fn is_covered_by(&self, listed: Option<String>) -> Result<bool> {
        let Some(listed) = listed else { return Ok(false) };
        let listed: Vec<String> = serde_json::from_str(&listed).map_err(Error::internal)?;
        Ok(self.regions.iter().all(|region| listed.contains(region)))
    }
}

/// Saves before the cloud is asked that it is. False if the operation or its provider has moved on meanwhile.
pub async fn begin_submission(
    tx: &mut Tx,
    (id, attempt): (OperationId, i64),
    (basis, account): (&WorkBasis, Option<String>),
    (now, look_at): (Timestamp, Timestamp),
) -> Result<bool> {
    if !basis.confirm(tx).await? {
        return Ok(false);
    }
    Ok(tx.exec(SUBMIT, args![id, attempt, look_at, account, now, basis.credentials_version]).await? == 1)
}

/// A job that failed for a reason of our own is repeated later, not at once.
pub async fn defer_job(
    tx: &mut Tx,
    provider: ProviderId,
    (job, region): (CloudJobId, &str),
    (now, at): (Timestamp, Timestamp),
) -> Result<()> {
    const DETAIL: &str = "The service failed to work on this region; its log says why.";
    match job {
        CloudJobId::Verify => tx.exec(DEFER_VERIFICATION, args![provider, at, now]).await,
        CloudJobId::Sync => tx.exec(DEFER_SYNC, args![provider, region, at, DETAIL, now]).await,
        CloudJobId::Operation(id) => tx.exec(DEFER_OPERATION, args![id, at, now]).await,
    }
    .map(drop)
}

/// Moves an open operation on. False if it has moved on meanwhile.
pub async fn move_operation(
    tx: &mut Tx,
    (id, attempt): (OperationId, i64),
    status: OperationStatus,
    next_at: Timestamp,
    error: Option<(&str, &str)>,
) -> Result<bool> {
    let (code, detail) = error.unzip();
    Ok(tx.exec(MOVE, args![id, attempt, status.as_str(), next_at, code, detail]).await? == 1)
}

/// Ends an operation. False if it has moved on meanwhile.
pub async fn end_operation(
    tx: &mut Tx,
    (id, attempt): (OperationId, i64),
    status: OperationStatus,
    error: Option<(&str, &str)>,
) -> Result<bool> {
    let (code, detail) = error.unzip();
    let at = tx.tick().await?.at;
    Ok(tx.exec(END, args![id, attempt, status.as_str(), code, detail, at]).await? == 1)
}
