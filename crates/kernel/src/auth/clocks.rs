//! Tenants' clocks for the operator: which are ahead of the time, and how to reset one.
//!
//! A node with a wrong system time can move them ahead (on the embedded store, which has no other time). Then nothing of the
//! tenant can be written until that time comes; see [`crate::store::Tx::tick`].
//!
//! Resetting the clock is the last step of a repair. Until then the clock shows that the repair is not finished, and
//! prevents other writes while future timestamps are clamped in batches. The command decides which records, and to what
//! time.

use serde::Serialize;

use super::signin_links::SIGNIN_LINK_MS;
use crate::audit::{self, AuditChanges, NewAuditEntry};
use crate::base::{Result, Timestamp};
use crate::store::{CLOCK_AHEAD_MAX_MS, Db};

crate::statements! {
    LIST_CLOCKS = "SELECT tenants.slug, clock.last_at FROM tenants JOIN tenant_clocks clock ON clock.tenant_id = tenants.id
        WHERE tenants.slug > $1 ORDER BY tenants.slug LIMIT $2";
    GET_CLOCK = "SELECT last_at FROM tenant_clocks WHERE tenant_id = $1";
    SET_CLOCK_BACK = "UPDATE tenant_clocks SET last_at = $2 WHERE tenant_id = $1 AND last_at > $2";
    /// A session that started in the future would live until then.
    DELETE_FUTURE_SESSIONS = "DELETE FROM sessions WHERE tenant_id = $1 AND token_hash IN
        (SELECT s.token_hash FROM sessions s WHERE s.tenant_id = $1 AND s.last_seen_at > $2
            ORDER BY s.last_seen_at LIMIT $3)";
    DELETE_FUTURE_LINKS = "DELETE FROM signin_links WHERE tenant_id = $1 AND token_hash IN
        (SELECT l.token_hash FROM signin_links l WHERE l.tenant_id = $1 AND l.expires_at > $2
            ORDER BY l.expires_at LIMIT $3)";
    /// A use is saved only if it is later than the stored one, so a future one must be clamped.
    SET_USES_BACK = "UPDATE api_key_uses SET last_used_at = $2 WHERE tenant_id = $1 AND key_id IN
        (SELECT u.key_id FROM api_key_uses u WHERE u.tenant_id = $1 AND u.last_used_at > $2 ORDER BY u.key_id LIMIT $3)";
}

/// The state of a tenant's clock.
#[derive(Clone, Debug, Serialize)]
pub struct TenantClock {
    /// The tenant's slug.
    pub tenant: String,
    pub last_at: Timestamp,
    /// How far the clock is ahead of the time of day; 0 if it is not.
    pub ahead_ms: i64,
}

impl TenantClock {
    /// Whether the clock is so far ahead that nothing can be written.
    pub fn is_stuck(&self) -> bool {
        self.ahead_ms > CLOCK_AHEAD_MAX_MS
    }
}

/// Rows per statement.
const LIST_ROWS: i64 = 500;

/// The clocks of all tenants by slug, compared with the database's own time where it has one.
pub async fn list_clocks(db: &Db) -> Result<Vec<TenantClock>> {
    let now = db.database_now().await?;
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

/// The tenant's clock and the current time (the database's own where it has one). `None` unless the clock is so far ahead
/// that nothing can be written.
pub async fn find_stuck_clock(db: &Db) -> Result<Option<(Timestamp, Timestamp)>> {
    let clock_at: Timestamp = db.get_one(GET_CLOCK, crate::args![]).await?;
    let now = db.database_now().await?;
    Ok(is_stuck(clock_at, now).then_some((clock_at, now)))
}

fn is_stuck(clock_at: Timestamp, now: Timestamp) -> bool {
    clock_at > now.plus_ms(CLOCK_AHEAD_MAX_MS)
}

/// Deletes sessions and sign-in links with future timestamps, and clamps the last uses of keys to `now`.
pub async fn clamp_future_credentials(db: &Db, now: Timestamp) -> Result<()> {
    // A node's own time may be slightly ahead of the database's.
    db.exec_in_batches(DELETE_FUTURE_SESSIONS, vec![now.plus_ms(CLOCK_AHEAD_MAX_MS).into()]).await?;
    db.exec_in_batches(DELETE_FUTURE_LINKS, vec![now.plus_ms(SIGNIN_LINK_MS).into()]).await?;
    db.exec_in_batches(SET_USES_BACK, vec![now.into()]).await?;
    Ok(())
}

/// Resets the tenant's clock to the current time and returns it. Called after all records are clamped: from here on the
/// tenant can write.
pub async fn reset_clock(db: &Db) -> Result<Timestamp> {
    db.write(async |tx| {
        let clock_at: Timestamp = tx.get_one(GET_CLOCK, crate::args![]).await?;
        let now = tx.database_now();
        // Another repair may have finished first.
        if !is_stuck(clock_at, now) {
            return Ok(now);
        }
        tx.exec(SET_CLOCK_BACK, crate::args![now]).await?;
        tx.tick().await?;
        let mut changes = AuditChanges::default();
        changes.add_if_changed("last_at", clock_at.to_string(), now.to_string());
        let tenant = tx.tenant_id().map(|id| id.to_string()).unwrap_or_default();
        audit::record_entry(tx, NewAuditEntry::new("clock.repair", "tenant", tenant).with_changes(changes)).await?;
        Ok(now)
    })
    .await
}
