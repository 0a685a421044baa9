//! The sealing keys of an installation: which values each has sealed, which nodes have it, and replacing one by another while
//! the service runs.
//!
//! The secrets file of each node has the keys; the database has their check values ([`checks`]), the values that they have
//! sealed, and what each running node has ([`nodes`]). Commands change the file ([`changes`]), and running servers follow it
//! ([`reload`], [`retired`]). A new key is added everywhere first, then made primary, and then the values that others have sealed
//! are rewrapped ([`rewrap`]). An old key is removed when nothing uses it any more ([`status`]). Deliberately left out: the files
//! themselves, which are in `base`.

pub mod changes;
pub mod checks;
pub mod nodes;
pub mod reload;
pub mod retired;
pub mod rewrap;
pub mod status;
pub mod unopened;
mod walk;

use crate::base::Result;
use crate::base::seal::sealed_key_id;
use crate::store::Db;

crate::statements! {
    COUNT_ID_TOKENS = "SELECT substr(id_token, 1, 5), COUNT(*) FROM sessions WHERE id_token IS NOT NULL GROUP BY 1";
    COUNT_STORED_ANSWERS = "SELECT substr(body, 1, 5), COUNT(*) FROM idempotency_records GROUP BY 1";
}

/// A column with sealed values, as its feature declares it in `FEATURE.sealed_columns`.
#[derive(Clone, Copy, Debug)]
pub struct SealedColumnStatements {
    /// The name that is bound into the values; see [`SealedColumn`](crate::base::seal::SealedColumn).
    pub name: &'static str,
    /// Counts the values of all tenants by their first five bytes, without those that were erased:
    /// `SELECT substr(secret, 1, 5), COUNT(*) FROM … GROUP BY 1`.
    pub count: &'static str,
    /// None if the values expire within days: then they stay as they are.
    pub rewrap: Option<RewrapStatements>,
}

/// How the values of a column are rewrapped.
#[derive(Clone, Copy, Debug)]
pub struct RewrapStatements {
    /// Selects tenant, record, version and value after those in `$1`, `$2` and `$3`, in their order, at most `$4` rows of all
    /// tenants.
    pub walk: &'static str,
    /// Sets the value `$5` for tenant `$1`, record `$2` and version `$3`, if it still is `$4`. It changes nothing else, neither
    /// the version of the record nor a time.
    pub replace: &'static str,
}

/// The kernel's own columns. Sessions end within a month at the most, and stored answers within a day.
const KERNEL_COLUMNS: &[SealedColumnStatements] = &[
    SealedColumnStatements { name: "sessions.id_token", count: COUNT_ID_TOKENS, rewrap: None },
    SealedColumnStatements { name: "idempotency_records", count: COUNT_STORED_ANSWERS, rewrap: None },
];

/// How many values of a column a key has sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    pub column: &'static str,
    /// None if the values are malformed: no key opens them.
    pub key_id: Option<u32>,
    pub values: i64,
    /// Whether the values are rewrapped, or expire.
    pub is_rewrapped: bool,
}

/// Counts the sealed values of the kernel and of the features. It reads all of them, so only commands and failures do this;
/// see [`count_durable_values`].
pub async fn count_sealed_values(system: &Db, columns: &[SealedColumnStatements]) -> Result<Vec<KeyUsage>> {
    let mut usage = count_columns(system, KERNEL_COLUMNS).await?;
    usage.extend(count_columns(system, columns).await?);
    Ok(usage)
}

/// Counts the sealed values that do not expire: thousands, one or two for each endpoint, workflow and provider.
pub async fn count_durable_values(system: &Db, columns: &[SealedColumnStatements]) -> Result<Vec<KeyUsage>> {
    let durable: Vec<SealedColumnStatements> =
        columns.iter().filter(|column| column.rewrap.is_some()).copied().collect();
    count_columns(system, &durable).await
}

async fn count_columns(system: &Db, columns: &[SealedColumnStatements]) -> Result<Vec<KeyUsage>> {
    let mut usage = Vec::new();
    for column in columns {
        let counts: Vec<(Vec<u8>, i64)> = system.list(column.count, crate::args![]).await?;
        usage.extend(counts.iter().map(|(start, values)| KeyUsage {
            column: column.name,
            key_id: sealed_key_id(start),
            values: *values,
            is_rewrapped: column.rewrap.is_some(),
        }));
    }
    Ok(usage)
}

/// The uses of one key in words: `webhook_secrets 2, webhooks 1`. Empty if there are none.
pub fn describe_usage(usage: &[KeyUsage], key_id: u32) -> String {
    let used = usage.iter().filter(|used| used.key_id == Some(key_id));
    used.map(|used| format!("{} {}", used.column, used.values)).collect::<Vec<_>>().join(", ")
}
