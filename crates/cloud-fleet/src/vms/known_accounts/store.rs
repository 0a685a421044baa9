//! Whether the machines known here are in the account of the provider's credentials. To credentials of another account all of
//! them would seem to be gone, and what is ordered would be made elsewhere: somebody has mixed up credentials.

use clouds::names_account;
use kernel::args;
use kernel::base::{RecordId, Result};
use kernel::store::{Db, Tx};

use super::super::VmId;
use crate::providers::{ProviderId, REGIONS_MAX};

kernel::statements! {
    /// The other accounts that regions with machines were last synced from. What these very credentials have made proves
    /// nothing of the machines before it.
    OTHER_ACCOUNTS = "SELECT r.account_id FROM cloud_regions r WHERE r.tenant_id = $1 AND r.provider_id = $2
        AND r.account_id <> $3 AND EXISTS (SELECT 1 FROM vms v WHERE v.tenant_id = $1 AND v.provider_id = $2
            AND v.region = r.region AND v.deleted_at IS NULL AND v.terminated_at IS NULL AND v.external_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM vm_operations o WHERE o.tenant_id = $1 AND o.id = v.operation_id
                AND o.account_id = $3))
        ORDER BY r.region LIMIT $4";
    /// The machines of a region that were not made by these credentials, in the order of their ids.
    KNOWN_BEFORE = "SELECT v.id, v.external_id FROM vms v WHERE v.tenant_id = $1 AND v.provider_id = $2 AND v.region = $3
        AND v.deleted_at IS NULL AND v.terminated_at IS NULL AND v.external_id IS NOT NULL AND v.id > $4
        AND NOT EXISTS (SELECT 1 FROM vm_operations o WHERE o.tenant_id = $1 AND o.id = v.operation_id AND o.account_id = $5)
        ORDER BY v.id LIMIT $6";
}

/// Machines that are read at once.
const KNOWN_ROWS: i64 = 500;

/// The credentials are not those that the machines known here were last read with.
pub enum AccountMismatch {
    /// The machines are in this account, and the credentials are of another.
    Named(String),
    /// The cloud does not name its accounts, so the credentials may be of the same one: one of the machines has to show it.
    Unproven,
}

pub async fn find_mismatch(db: &Db, provider: ProviderId, account: &str) -> Result<Option<AccountMismatch>> {
    let others: Vec<String> = db.list(OTHER_ACCOUNTS, args![provider, account, REGIONS_MAX as i64]).await?;
    Ok(judge_others(others, account))
}

/// Like [`find_mismatch`], in a transaction.
pub async fn find_mismatch_in_tx(tx: &mut Tx, provider: ProviderId, account: &str) -> Result<Option<AccountMismatch>> {
    let others: Vec<String> = tx.list(OTHER_ACCOUNTS, args![provider, account, REGIONS_MAX as i64]).await?;
    Ok(judge_others(others, account))
}

/// For people, with what to do.
pub fn explain_mismatch(account: &str, other: &str) -> String {
    format!(
        "The credentials of the provider belong to the account {account}, and the machines known here to {other}. Replace the \
         credentials with PUT, or create another provider for that account."
    )
}

fn judge_others(others: Vec<String>, account: &str) -> Option<AccountMismatch> {
    if others.is_empty() {
        return None;
    }
    let named = others.into_iter().find(|other| names_account(other) && names_account(account));
    Some(named.map_or(AccountMismatch::Unproven, AccountMismatch::Named))
}

/// The ids, in the cloud, of the machines that were known before these credentials.
pub async fn list_known_before(
    db: &Db,
    provider: ProviderId,
    regions: &[String],
    account: &str,
) -> Result<Vec<String>> {
    let mut known = Vec::new();
    for region in regions {
        let mut after = VmId::NONE.to_string();
        loop {
            let rows: Vec<(VmId, String)> =
                db.list(KNOWN_BEFORE, args![provider, region, after, account, KNOWN_ROWS]).await?;
            let Some((last, _)) = rows.last() else { break };
            after = last.to_string();
            known.extend(rows.into_iter().map(|(_, external_id)| external_id));
        }
    }
    Ok(known)
}
