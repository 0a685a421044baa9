//! Lanes: queues of work, each leased to one node at a time.
//!
//! A lane is all work that one node must do in one order with one state in memory: an endpoint's deliveries, a tenant's
//! workflows. A node that leases a due lane works on it until nothing is due or its lease is lost. Every lease increments
//! the lane's fencing token. A node writes for a lane in a transaction that calls [`LeasedLane::extend_lease`], which fails
//! for an old token. Safety depends on the token and not on the clock: a node that slept through its lease can send a
//! request twice, but cannot overwrite what its successor has saved.
//!
//! Leases are taken and judged by the database's clock, so that nodes whose clocks differ do not take each other's lanes.
//! Due times come from the clock of the node that sets them, which does not affect safety.
//!
//! Publishing an event does not lock a lane. It inserts a row into `lane_wakes`, from which [`apply_wakes`] makes the lane
//! due after the commit. A leased lane is skipped there: [`LeasedLane::extend_lease`] deletes its wakes, because the node
//! that holds the lease reads what is due, in a later statement, before it releases the lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ServerNode;
use crate::base::{Result, SECOND_MS, TenantId, Timestamp};
use crate::store::{Db, FromRow, PendingRows, Purpose, Row, Store, Tx, Value, WriteFn};

crate::statements! {
    INSERT = "INSERT INTO lanes (kind, tenant_id, key, token) VALUES ($2, $1, $3, 0)";
    ENSURE = "INSERT INTO lanes (kind, tenant_id, key, token) VALUES ($2, $1, $3, 0)
        ON CONFLICT (kind, tenant_id, key) DO NOTHING";
    REMOVE = "DELETE FROM lanes WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    WAKE = "UPDATE lanes SET due_at = CASE WHEN due_at IS NULL OR due_at > $4 THEN $4 ELSE due_at END, not_before = NULL
        WHERE kind = $2 AND tenant_id = $1 AND key = $3";
    /// Interleaves tenants: the first lane of each, then the second of each, so that a tenant with many lanes does not
    /// delay one with few.
    LIST_DUE = crate::sql![
        "SELECT due.tenant_id, due.key, due.slow FROM (SELECT l.tenant_id, l.key, l.slow, l.due_at,
            ROW_NUMBER() OVER (PARTITION BY l.tenant_id, l.slow ORDER BY l.due_at, l.key) AS place FROM lanes l
            WHERE l.kind = $1 AND l.due_at <= $2 AND (l.leased_until IS NULL OR l.leased_until <= ",
        crate::database_time!("$3"),
        ")) due ORDER BY due.place, due.due_at, due.tenant_id, due.key LIMIT $4"
    ];
    /// The lanes with wakes that are not leased. A loose index scan over tenants, whatever the number of wakes of each.
    LIST_WOKEN = crate::sql![
        "WITH RECURSIVE woken(tenant_id) AS (
            SELECT MIN(first.tenant_id) FROM lane_wakes first WHERE first.kind = $1
            UNION ALL SELECT (SELECT MIN(w.tenant_id) FROM lane_wakes w WHERE w.kind = $1 AND w.tenant_id > woken.tenant_id)
            FROM woken WHERE woken.tenant_id IS NOT NULL)
        SELECT l.tenant_id, l.key FROM woken JOIN lanes l ON l.kind = $1 AND l.tenant_id = woken.tenant_id
        WHERE (l.leased_until IS NULL OR l.leased_until <= ",
        crate::database_time!("$2"),
        ") AND EXISTS (SELECT 1 FROM lane_wakes w WHERE w.kind = $1 AND w.tenant_id = l.tenant_id AND w.key = l.key)
        ORDER BY l.tenant_id, l.key LIMIT $3"
    ];
    /// Without a limit, because a lane has few wakes: one for each event since they were last applied. Every node applies
    /// them each `POLL_MS`, also while outgoing traffic is held. The node that has leased the lane deletes them at its
    /// heartbeats, and if it has died, they wait until its lease expires.
    DELETE_WAKES = "DELETE FROM lane_wakes WHERE kind = $1 AND tenant_id = $2 AND key = $3";
    DELETE_LEASED_WAKES = "DELETE FROM lane_wakes WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND EXISTS
        (SELECT 1 FROM lanes l WHERE l.kind = $2 AND l.tenant_id = $1 AND l.key = $3 AND l.token = $4)";
    EXTEND_LEASE = crate::sql![
        "UPDATE lanes SET leased_until = ",
        crate::database_time!("$5"),
        " + CAST($6 AS BIGINT) WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4"
    ];
    FIND_TOKEN = "SELECT token FROM lanes WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    RELEASE = "UPDATE lanes SET leased_until = NULL, node = NULL, due_at = $5, not_before = $6, slow = $7
        WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    CLEAR_LEASES = "UPDATE lanes SET leased_until = NULL, node = NULL WHERE leased_until IS NOT NULL";
    NEXT_DUE = "SELECT MIN(moment) FROM (SELECT MIN(due_at) AS moment FROM lanes WHERE kind = $1
        UNION ALL SELECT CAST($2 AS BIGINT) WHERE EXISTS (SELECT 1 FROM lane_wakes WHERE kind = $1)) moments";
    LONGEST_DUE = crate::sql![
        "SELECT MIN(due_at) FROM lanes WHERE kind = $1 AND (leased_until IS NULL OR leased_until <= ",
        crate::database_time!("$2"),
        ")"
    ];
    /// Examines only the first 200 wakes: usually there are few, and with many it does not matter which one is the oldest.
    LONGEST_WAKE = "SELECT MIN(e.at) FROM (SELECT w.tenant_id, w.sequence FROM lane_wakes w WHERE w.kind = $1
            ORDER BY w.kind, w.tenant_id, w.key, w.sequence LIMIT 200) woken
        JOIN events e ON e.tenant_id = woken.tenant_id AND e.sequence = woken.sequence";
    CLAMP_FUTURE = crate::sql![
        "UPDATE lanes SET due_at = CASE WHEN due_at > $5 THEN $4 ELSE due_at END,
            not_before = CASE WHEN not_before > $5 THEN NULL ELSE not_before END,
            leased_until = CASE WHEN leased_until > ",
        crate::database_time!("$6"),
        " + CAST($7 AS BIGINT) THEN ",
        crate::database_time!("$6"),
        " + CAST($7 AS BIGINT) ELSE leased_until END WHERE kind = $2 AND tenant_id = $1 AND key = $3"
    ];
}

/// Finds and locks a lane that is still due. The dialect's `SKIP LOCKED` is inserted between this and [`LEASE_FOUND`].
/// Materialized, so that it runs once.
const FIND_TO_LEASE: &str = concat!(
    "WITH due AS MATERIALIZED (SELECT tenant_id, key FROM lanes WHERE kind = $1 AND tenant_id = $2 AND key = $3
    AND due_at <= $4 AND (leased_until IS NULL OR leased_until <= ",
    crate::database_time!("$5"),
    ")"
);
const LEASE_FOUND: &str = concat!(
    ") UPDATE lanes SET token = token + 1, node = $6, leased_until = ",
    crate::database_time!("$5"),
    " + CAST($7 AS BIGINT) FROM due WHERE lanes.kind = $1 AND lanes.tenant_id = due.tenant_id AND lanes.key = due.key
    RETURNING lanes.token"
);

/// Finds and locks a lane that has wakes, with `SKIP LOCKED` between this and [`WAKE_FOUND`].
const FIND_TO_WAKE: &str =
    "WITH woken AS MATERIALIZED (SELECT tenant_id, key FROM lanes WHERE kind = $1 AND tenant_id = $2 AND key = $3";
/// A lane that is paused until `not_before` becomes due at that time.
const WAKE_FOUND: &str = ") UPDATE lanes SET due_at = CASE
        WHEN not_before > $4 AND (due_at IS NULL OR due_at > not_before) THEN not_before
        WHEN not_before > $4 THEN due_at
        WHEN due_at IS NULL OR due_at > $4 THEN $4
        ELSE due_at END
    FROM woken WHERE lanes.kind = $1 AND lanes.tenant_id = woken.tenant_id AND lanes.key = woken.key
    RETURNING lanes.key";

/// Lanes woken in one transaction.
const WAKES_MAX: usize = 200;

/// How long a lease lasts without a heartbeat.
pub const LEASE_MS: i64 = 20 * SECOND_MS;
/// How often a node extends the lease of a lane that it works on.
pub const HEARTBEAT_MS: i64 = 5 * SECOND_MS;
/// How often a node polls for lanes that another node has made due.
pub const POLL_MS: i64 = 500;

/// A lane that is due and not leased.
#[derive(Clone, Debug)]
pub struct DueLane {
    pub tenant_id: TenantId,
    pub key: String,
    /// Whether the lane only waited for other servers when it was last released.
    pub slow: bool,
}

impl FromRow for DueLane {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(DueLane { tenant_id: row.get(0)?, key: row.get(1)?, slow: row.get(2)? })
    }
}

/// A lane that this node has leased.
#[derive(Clone)]
pub struct LeasedLane {
    pub tenant_id: TenantId,
    pub key: String,
    kind: &'static str,
    token: i64,
    /// Shared with the run of the lane, and saved at its release.
    slow: Arc<AtomicBool>,
    db: Db,
}

/// Inserts a lane with nothing due.
pub async fn create_lane(tx: &mut Tx, kind: &'static str, key: &str) -> Result<()> {
    tx.exec(INSERT, crate::args![kind, key]).await.map(drop)
}

/// Inserts a lane unless it exists.
pub async fn ensure_lane(tx: &mut Tx, kind: &'static str, key: &str) -> Result<()> {
    tx.exec(ENSURE, crate::args![kind, key]).await.map(drop)
}

/// Makes a lane due now by this node's clock, like all due times, because the tenant's clock may be ahead.
pub async fn wake_lane(tx: &mut Tx, kind: &'static str, key: &str) -> Result<()> {
    tx.notify_after_commit();
    let now = tx.env().now();
    tx.exec(WAKE, crate::args![kind, key, now]).await.map(drop)
}

/// Clamps the times of a lane: a due time after `latest` becomes `now`, and no lease is longer than a new one. The lane
/// stays locked for this transaction, even if nothing changed.
pub async fn clamp_future_timestamps(
    tx: &mut Tx,
    kind: &'static str,
    key: &str,
    now: Timestamp,
    latest: Timestamp,
) -> Result<()> {
    tx.exec(CLAMP_FUTURE, crate::args![kind, key, now, latest, tx.clock_override(), LEASE_MS]).await.map(drop)
}

/// Makes lanes with wakes due. A locked lane is skipped: the transaction that locks it deletes its wakes, or the next call
/// applies them.
pub async fn apply_wakes(node: &ServerNode, kind: &'static str) -> Result<()> {
    let db = node.store.system(Purpose::Jobs);
    loop {
        let woken: Vec<(TenantId, String)> =
            db.list(LIST_WOKEN, crate::args![kind, db.clock_override(), WAKES_MAX as i64]).await?;
        let is_last = woken.len() < WAKES_MAX;
        let applied =
            if woken.is_empty() { 0 } else { db.write(async move |tx| wake_lanes(tx, kind, woken).await).await? };
        if is_last || applied == 0 {
            return Ok(());
        }
    }
}

async fn wake_lanes(tx: &mut Tx, kind: &'static str, woken: Vec<(TenantId, String)>) -> Result<usize> {
    let sql = format!("{FIND_TO_WAKE}{}{WAKE_FOUND}", tx.skip_locked());
    let now = tx.env().now();
    let mut pending = Vec::with_capacity(woken.len());
    for (tenant, key) in woken {
        let values = vec![kind.into(), tenant.into(), key.as_str().into(), now.into()];
        pending.push((tenant, key, tx.defer_query::<String>(sql.clone(), values).await?));
    }
    // The wakes are deleted while the lane is locked and due, so the next holder of the lease sees all that was published.
    let mut applied = Vec::with_capacity(pending.len());
    for (tenant, key, rows) in pending {
        if !tx.await_rows(rows).await?.is_empty() {
            applied.push(vec![kind.into(), tenant.into(), key.into()]);
        }
    }
    let count = applied.len();
    tx.defer_exec_each(DELETE_WAKES, applied).await?;
    Ok(count)
}

/// Lists due lanes that are not leased: the longest waiting of every tenant, then the next of each.
pub async fn list_due_lanes(node: &ServerNode, kind: &'static str, max: usize) -> Result<Vec<DueLane>> {
    let db = node.store.system(Purpose::Jobs);
    db.list(LIST_DUE, crate::args![kind, node.env.now(), db.clock_override(), max as i64]).await
}

/// Leases these lanes and returns them in the same order, with `None` for a lane that another node has leased or whose row
/// is locked by a transaction.
pub async fn lease_lanes(
    node: &ServerNode,
    kind: &'static str,
    lanes: Vec<DueLane>,
) -> Result<Vec<Option<LeasedLane>>> {
    let (now, name) = (node.env.now(), node.node.clone());
    let due_lanes = lanes.clone();
    let tokens: Vec<Option<i64>> = node
        .store
        .system(Purpose::Jobs)
        .write(async move |tx| {
            let sql = format!("{FIND_TO_LEASE}{}{LEASE_FOUND}", tx.skip_locked());
            let given = tx.clock_override();
            let mut pending = Vec::with_capacity(due_lanes.len());
            for DueLane { tenant_id, key, .. } in due_lanes {
                let lane: [Value; 4] = [kind.into(), tenant_id.into(), key.into(), now.into()];
                let lease: [Value; 3] = [given.into(), name.clone().into(), LEASE_MS.into()];
                pending.push(tx.defer_query::<i64>(sql.clone(), lane.into_iter().chain(lease).collect()).await?);
            }
            let mut tokens = Vec::with_capacity(pending.len());
            for rows in pending {
                tokens.push(tx.await_rows(rows).await?.pop());
            }
            Ok(tokens)
        })
        .await?;
    let leased = |(DueLane { tenant_id, key, slow }, token): (DueLane, Option<i64>)| {
        let (slow, db) = (Arc::new(AtomicBool::new(slow)), tenant_db(&node.store, tenant_id));
        token.map(|token| LeasedLane { tenant_id, key, kind, token, slow, db })
    };
    Ok(lanes.into_iter().zip(tokens).map(leased).collect())
}

/// Leases up to `max` lanes that are due.
pub async fn lease_due_lanes(node: &ServerNode, kind: &'static str, max: usize) -> Result<Vec<LeasedLane>> {
    apply_wakes(node, kind).await?;
    let due = list_due_lanes(node, kind, max).await?;
    if due.is_empty() {
        return Ok(Vec::new());
    }
    Ok(lease_lanes(node, kind, due).await?.into_iter().flatten().collect())
}

/// Ends all leases, for a node that is the only one.
pub(super) async fn clear_leases(store: &Store) -> Result<()> {
    store.system(Purpose::Jobs).write(async |tx| tx.exec(CLEAR_LEASES, crate::args![]).await).await.map(drop)
}

/// When the next lane of a kind is or was due. A lane with wakes is due now.
pub async fn find_next_due(store: &Store, kind: &'static str) -> Result<Option<Timestamp>> {
    let db = store.system(Purpose::Jobs);
    db.get_one(NEXT_DUE, crate::args![kind, db.env().now()]).await
}

/// Since when the longest waiting lane that is not leased is due, if one is. A lane with wakes is due since their first
/// event.
pub async fn find_longest_due(store: &Store, kind: &'static str, now: Timestamp) -> Result<Option<Timestamp>> {
    let db = store.system(Purpose::Jobs);
    let due: Option<Timestamp> = db.get_one(LONGEST_DUE, crate::args![kind, db.clock_override()]).await?;
    let woken: Option<Timestamp> = db.get_one(LONGEST_WAKE, crate::args![kind]).await?;
    Ok(due.into_iter().chain(woken).min().filter(|since| *since <= now))
}

/// A tenant's handle for work that the service does by itself.
pub fn tenant_db(store: &Store, tenant: TenantId) -> Db {
    store.tenant_job(tenant)
}

impl LeasedLane {
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The tenant's handle.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The shared flag whether the lane only waits for other servers.
    pub(super) fn slow_flag(&self) -> Arc<AtomicBool> {
        self.slow.clone()
    }

    /// Writes in a transaction that holds the lease: see [`LeasedLane::extend_lease`]. `None` when another node has leased the
    /// lane; then nothing is written.
    pub async fn write_if_held<R: Send + 'static>(
        &self,
        write: impl for<'t> WriteFn<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
    ) -> Result<Option<R>> {
        let lane = self.clone();
        self.db
            .write(async move |tx| if lane.extend_lease(tx).await? { write(tx).await.map(Some) } else { Ok(None) })
            .await
    }

    /// Like [`LeasedLane::write_if_held`], after a tick: the tenant's clock is locked before the lane, as in every
    /// transaction.
    pub async fn tick_and_write_if_held<R: Send + 'static>(
        &self,
        write: impl for<'t> WriteFn<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
    ) -> Result<Option<R>> {
        let lane = self.clone();
        self.db
            .write(async move |tx| {
                tx.tick().await?;
                if lane.extend_lease(tx).await? { write(tx).await.map(Some) } else { Ok(None) }
            })
            .await
    }

    /// Locks the lane for this transaction and extends the lease. Returns false when another node has leased the lane.
    ///
    /// Deletes the wakes of the lane, so the caller must read what is due, after this, before it releases the lane.
    pub async fn extend_lease(&self, tx: &mut Tx) -> Result<bool> {
        let extension = self.defer_lease_extension(tx).await?;
        extension.is_held(tx).await
    }

    /// Like [`LeasedLane::extend_lease`], with the result in [`LeaseExtension::is_held`], so that further queries share the
    /// round trip.
    pub async fn defer_lease_extension(&self, tx: &mut Tx) -> Result<LeaseExtension> {
        let lane = || -> Vec<Value> { vec![self.kind.into(), self.key.as_str().into(), self.token.into()] };
        let lease: [Value; 2] = [tx.clock_override().into(), LEASE_MS.into()];
        tx.defer_exec(EXTEND_LEASE, lane().into_iter().chain(lease).collect()).await?;
        tx.defer_exec(DELETE_LEASED_WAKES, lane()).await?;
        Ok(LeaseExtension(tx.defer_query(FIND_TOKEN, lane()).await?))
    }

    /// Releases the lane, which is due again at `due_at` or when it is woken. New work does not wake it before `not_before`.
    pub async fn release_lease(
        &self,
        tx: &mut Tx,
        due_at: Option<Timestamp>,
        not_before: Option<Timestamp>,
    ) -> Result<bool> {
        let slow = self.slow.load(Ordering::Relaxed);
        Ok(tx.exec(RELEASE, crate::args![self.kind, self.key, self.token, due_at, not_before, slow]).await? == 1)
    }

    /// Deletes the lane.
    pub async fn delete_lane(&self, tx: &mut Tx) -> Result<()> {
        tx.exec(REMOVE, crate::args![self.kind, self.key, self.token]).await.map(drop)
    }
}

/// A lease extension that was sent and not awaited yet.
pub struct LeaseExtension(PendingRows<i64>);

impl LeaseExtension {
    /// Returns false when another node has leased the lane.
    pub async fn is_held(self, tx: &mut Tx) -> Result<bool> {
        Ok(!tx.await_rows(self.0).await?.is_empty())
    }
}
