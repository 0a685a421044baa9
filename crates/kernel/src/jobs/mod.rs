//! The work that the service does on its own: saving last uses, exchanging rate counts, deleting expired rows, keeping the
//! sealing keys; and the lanes by which nodes share work that only one of them may do, with their dispatcher.

pub mod dispatch;
mod keyring;
pub mod lanes;
mod node;
pub mod steps;
mod supervisor;
pub mod tenants;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::audit;
use crate::base::{DAY_MS, MINUTE_MS, Result, Timestamp};
use crate::http::{App, HttpSettings};
use crate::store::{CLOCK_SKEW_MAX_MS, DatabaseEngine, Purpose};

pub use keyring::{announce_keys, forget_keys, keep_keyring};
pub use node::ServerNode;
pub use supervisor::supervise_task;

crate::statements! {
    CLEAN_SESSIONS = "DELETE FROM sessions WHERE token_hash IN
        (SELECT token_hash FROM sessions WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
    CLEAN_IDLE_SESSIONS = "DELETE FROM sessions WHERE token_hash IN
        (SELECT token_hash FROM sessions WHERE last_seen_at < $1 ORDER BY last_seen_at LIMIT $2)";
    CLEAN_LINKS = "DELETE FROM signin_links WHERE token_hash IN
        (SELECT token_hash FROM signin_links WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
    CLEAN_IDEMPOTENCY = "DELETE FROM idempotency_records WHERE (tenant_id, actor_id, route, idempotency_key) IN
        (SELECT tenant_id, actor_id, route, idempotency_key FROM idempotency_records WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
    /// In the order in which events are read, so that a reader can tell whether it has missed some.
    CLEAN_EVENTS = "DELETE FROM events WHERE (tenant_id, sequence) IN
        (SELECT tenant_id, sequence FROM events WHERE at < $1 ORDER BY at, tenant_id, sequence LIMIT $2)";
    CLEAN_RATES = "DELETE FROM rate_usage WHERE (window_start, bucket, node) IN
        (SELECT window_start, bucket, node FROM rate_usage WHERE window_start < $1 ORDER BY window_start LIMIT $2)";
}

/// A last use is saved at most 60 s late; this leaves room for a slow database.
const SAVE_USES_EVERY: Duration = Duration::from_secs(10);
const LOAD_CREDENTIALS_EVERY: Duration = Duration::from_secs(15);
const EXCHANGE_EVERY: Duration = Duration::from_secs(1);
const CLEAN_EVERY: Duration = Duration::from_mins(1);
const COMPARE_CLOCKS_EVERY: Duration = Duration::from_mins(5);
/// Rows that one transaction deletes, so that it does not delay the writes queued behind it.
const CLEAN_ROWS: i64 = 500;
/// Transactions per statement and round; the rest waits for the next round.
const CLEAN_STEPS_MAX: usize = 200;
/// An expired session is kept for a day, so that its owner gets "expired" and not "unknown".
const ENDED_SESSION_MS: i64 = DAY_MS;

/// Called before any work. The embedded store has one node, so an existing lease is left over from a process that died.
pub async fn clear_stale_leases(app: &App) -> Result<()> {
    match app.store.engine() {
        DatabaseEngine::Sqlite => lanes::clear_leases(&app.store).await,
        DatabaseEngine::Postgres => Ok(()),
    }
}

/// A rule for deleting old rows.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Deletes rows older than `$1`, at most `$2` of them, of all tenants.
    pub sql: &'static str,
    /// The time before which rows are deleted, by the settings and the current time.
    pub before: fn(&HttpSettings, Timestamp) -> Timestamp,
}

/// The retention of the kernel's own tables.
const KERNEL_RETENTION: &[Retention] = &[
    Retention { sql: CLEAN_SESSIONS, before: |_, now| now.plus_ms(-ENDED_SESSION_MS) },
    Retention {
        sql: CLEAN_IDLE_SESSIONS,
        before: |settings, now| now.plus_ms(-ENDED_SESSION_MS - settings.session_idle_ms),
    },
    Retention { sql: CLEAN_LINKS, before: |_, now| now },
    Retention { sql: CLEAN_IDEMPOTENCY, before: |_, now| now },
    Retention { sql: CLEAN_EVENTS, before: |settings, now| now.plus_ms(-settings.event_retention_ms) },
    Retention { sql: CLEAN_RATES, before: |_, now| now.plus_ms(-2 * MINUTE_MS) },
];

/// Runs until it is dropped.
pub fn run(node: ServerNode, retention: &'static [Retention]) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let load = |node: ServerNode| async move { node.credentials.load_known(&node.store).await };
        let compare = |node: ServerNode| async move { compare_clocks(&node).await.map(drop) };
        tokio::join!(
            run_every(&node, SAVE_USES_EVERY, "noting last use", |node| async move { save_last_uses(&node).await }),
            run_every(&node, LOAD_CREDENTIALS_EVERY, "loading credentials", load),
            run_every(&node, EXCHANGE_EVERY, "exchanging rate counts", |node| async move {
                exchange_rate_counts(&node).await
            }),
            run_every(&node, COMPARE_CLOCKS_EVERY, "comparing clocks", compare),
            run_every(&node, CLEAN_EVERY, "deleting expired rows", move |node| async move {
                delete_expired(&node, retention).await
            }),
        );
    })
}

/// Repeats a round of work as a supervised task until it is dropped. A round that fails is logged, and the next one tries again.
pub async fn run_every<F>(
    node: &ServerNode,
    period: Duration,
    what: &'static str,
    round: impl Fn(ServerNode) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let round: WorkRound = Arc::new(move |node| Box::pin(round(node)));
    supervise_task(what, node.stopping.subscribe(), || repeat_rounds(node.clone(), period, what, round.clone())).await;
}

/// One round of any work.
type WorkRound = Arc<dyn Fn(ServerNode) -> BoxFuture<'static, Result<()>> + Send + Sync>;

async fn repeat_rounds(node: ServerNode, period: Duration, what: &str, round: WorkRound) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = round(node.clone()).await {
            tracing::warn!(%error, "{what} failed; will retry");
        }
    }
}

/// Saves when credentials were last used. Also called once before the process ends.
pub async fn save_last_uses(app: &App) -> Result<()> {
    app.credentials.flush_uses(&app.store.system(Purpose::Housekeeping)).await
}

/// Shares one rate limit among all nodes. The embedded store has one node only.
pub async fn exchange_rate_counts(app: &App) -> Result<()> {
    match app.store.engine() {
        DatabaseEngine::Sqlite => Ok(()),
        DatabaseEngine::Postgres => app.limiter.exchange_usage(&app.store.system(Purpose::RateLimits)).await,
    }
}

/// Returns how far this node's clock is ahead of the database's, and warns if it differs too much. The embedded store has no
/// clock of its own.
pub async fn compare_clocks(app: &App) -> Result<i64> {
    let ahead_ms = app.store.system(Purpose::Housekeeping).clock_ahead_ms().await?;
    let in_range = ahead_ms.clamp(i32::MIN.into(), i32::MAX.into());
    metrics::gauge!("clock_ahead_seconds").set(f64::from(i32::try_from(in_range).unwrap_or_default()) / 1_000.0);
    if ahead_ms.abs() > CLOCK_SKEW_MAX_MS {
        tracing::warn!(ahead_ms, "this node's clock differs from the database's; synchronize it, for example by NTP");
    }
    Ok(ahead_ms)
}

/// Deletes expired rows of the kernel and of the features, a few hundred at a time.
pub async fn delete_expired(app: &App, retention: &'static [Retention]) -> Result<()> {
    let now = app.env.now();
    let settings = &app.settings;
    let db = app.store.system(Purpose::Housekeeping);
    let mut failed = Ok(());
    for Retention { sql, before } in KERNEL_RETENTION.iter().chain(retention) {
        let before = before(settings, now);
        for _ in 0..CLEAN_STEPS_MAX {
            let deleted = db.write(async move |tx| tx.exec(sql, crate::args![before, CLEAN_ROWS]).await).await;
            match deleted {
                Ok(deleted) if deleted == CLEAN_ROWS.unsigned_abs() => {}
                Ok(_) => break,
                // A failed statement does not stop the others.
                Err(error) => {
                    failed = failed.and(Err(error));
                    break;
                }
            }
        }
    }
    let before = now.plus_ms(-settings.audit_retention_ms);
    let next = |after| audit::find_tenant_after(&db, after, before);
    let entries = |tenant| audit::delete_old_entries(&db, tenant, before, CLEAN_ROWS);
    failed.and(tenants::for_each_tenant("cleaning the audit trail", next, entries).await)
}
