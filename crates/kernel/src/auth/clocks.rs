//! Tenants' clocks as the operator sees them: which ran ahead, and setting one back.
//!
//! A node whose machine had a wrong time can have moved them (on the embedded store, which knows no other time). From then
//! on nothing of the tenant could be written until that time comes; see [`crate::store::Tx::tick`].

use serde::Serialize;

use super::sessions::SIGNIN_LINK_MS;
use crate::audit::{self, Changes, Entry};
use crate::base::{Result, Timestamp};
use crate::store::{CLOCK_AHEAD_MAX_MS, Db, Tx};

crate::statements! {
    LIST_CLOCKS = "SELECT tenants.slug, clock.last_at FROM tenants JOIN tenant_clocks clock ON clock.tenant_id = tenants.id
        WHERE tenants.slug > $1 ORDER BY tenants.slug LIMIT $2";
    GET_CLOCK = "SELECT last_at FROM tenant_clocks WHERE tenant_id = $1";
    SET_CLOCK_BACK = "UPDATE tenant_clocks SET last_at = $2 WHERE tenant_id = $1 AND last_at > $2";
    /// Sessions that began in the future would live until then.
    DELETE_FUTURE_SESSIONS = "DELETE FROM sessions WHERE tenant_id = $1 AND last_seen_at > $2";
    DELETE_FUTURE_LINKS = "DELETE FROM signin_links WHERE tenant_id = $1 AND expires_at > $2";
    /// A later use is only noted when it is later.
    SET_USES_BACK = "UPDATE api_key_uses SET last_used_at = $2 WHERE tenant_id = $1 AND last_used_at > $2";
}

/// Where a tenant's clock stands.
#[derive(Clone, Debug, Serialize)]
pub struct TenantClock {
    /// The tenant's slug.
    pub tenant: String,
    pub last_at: Timestamp,
    /// How far it is ahead of the time of day; 0 where it is not.
    pub ahead_ms: i64,
}

impl TenantClock {
    /// Whether it is so far ahead that nothing can be written.
    pub fn is_stuck(&self) -> bool {
        self.ahead_ms > CLOCK_AHEAD_MAX_MS
    }
}

/// Rows of one step.
const LIST_ROWS: i64 = 500;

/// Every tenant's, by slug.
pub async fn list_clocks(db: &Db) -> Result<Vec<TenantClock>> {
    let now = db.world().now();
    let mut all: Vec<TenantClock> = Vec::new();
    loop {
        let after = all.last().map(|clock| clock.tenant.clone()).unwrap_or_default();
        let rows: Vec<(String, Timestamp)> = db.list(LIST_CLOCKS, crate::args![after, LIST_ROWS]).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows.into_iter().map(|(tenant, last_at)| {
            let ahead_ms = (last_at.as_millis() - now.as_millis()).max(0);
            TenantClock { tenant, last_at, ahead_ms }
        }));
    }
}

/// Sets the clock of the transaction's tenant back to now, and the credentials that were noted in the future with it, if
/// it is so far ahead that nothing can be written. Tells where it stood and what is now, by the database's own time where
/// it has one. Whoever calls this brings back the records of the features, too.
pub async fn repair_clock(tx: &mut Tx) -> Result<(Option<Timestamp>, Timestamp)> {
    let stood: Timestamp = tx.one(GET_CLOCK, crate::args![]).await?;
    let now = tx.database_now();
    if stood <= now.plus(CLOCK_AHEAD_MAX_MS) {
        return Ok((None, now));
    }
    tx.exec(SET_CLOCK_BACK, crate::args![now]).await?;
    tx.tick().await?;
    tx.exec(DELETE_FUTURE_SESSIONS, crate::args![now]).await?;
    tx.exec(DELETE_FUTURE_LINKS, crate::args![now.plus(SIGNIN_LINK_MS)]).await?;
    tx.exec(SET_USES_BACK, crate::args![now]).await?;
    let mut changes = Changes::default();
    changes.add("last_at", stood.to_string(), now.to_string());
    let tenant = tx.tenant_id().map(|id| id.to_string()).unwrap_or_default();
    audit::record(tx, Entry::new("clock.repair", "tenant", tenant).changes(changes)).await?;
    Ok((Some(stood), now))
}
