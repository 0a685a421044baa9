//! Lanes: what is leased to one node at a time.
//!
//! A lane is everything that must be done by one node, in one order, with one memory: an endpoint's deliveries, a
//! tenant's workflows. It is due from a moment on, and a node that leases it works on it until nothing is due or its
//! lease is lost. Every lease raises the lane's token; what a node writes for a lane it writes in a transaction that
//! [`Lane::hold`]s it, which fails for an old token. So the token, not the clock, is the safety: a node that slept
//! through its lease can send a request twice, but cannot overwrite what its successor has saved.
//!
//! Leases are taken and judged by the database's clock, so that nodes whose clocks differ do not take each other's lanes.
//! When a lane is due is told by the clock of the node that says so, which matters to nobody's safety.
//!
//! Whoever publishes does not lock a lane. It inserts a row of its own into `lane_wakes`, which [`apply_wakes`] turns into a
//! due lane once it is committed. A lane that is leased is left alone: [`Lane::hold`] removes its wakes, because whoever
//! holds a lane looks up what is due, in a later statement, before they give it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Node;
use crate::base::{Result, SECOND_MS, TenantId, Timestamp};
use crate::store::{Ahead, Db, FromRow, Purpose, Row, Store, Tx, Value};

crate::statements! {
    MAKE = "INSERT INTO lanes (kind, tenant_id, key, token) VALUES ($2, $1, $3, 0)";
    ENSURE = "INSERT INTO lanes (kind, tenant_id, key, token) VALUES ($2, $1, $3, 0)
        ON CONFLICT (kind, tenant_id, key) DO NOTHING";
    REMOVE = "DELETE FROM lanes WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    WAKE = "UPDATE lanes SET due_at = CASE WHEN due_at IS NULL OR due_at > $4 THEN $4 ELSE due_at END, not_before = NULL
        WHERE kind = $2 AND tenant_id = $1 AND key = $3";
    /// One lane of each tenant comes first, then the second of each: a tenant with many does not stand before one with few.
    LIST_DUE = crate::sql![
        "SELECT due.tenant_id, due.key, due.slow FROM (SELECT l.tenant_id, l.key, l.slow, l.due_at,
            ROW_NUMBER() OVER (PARTITION BY l.tenant_id, l.slow ORDER BY l.due_at, l.key) AS place FROM lanes l
            WHERE l.kind = $1 AND l.due_at <= $2 AND (l.leased_until IS NULL OR l.leased_until <= ",
        crate::database_time!("$3"),
        ")) due ORDER BY due.place, due.due_at, due.tenant_id, due.key LIMIT $4"
    ];
    /// The lanes with wakes that nobody works on. From tenant to tenant by leaps, however many wakes each of them has.
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
    FORGET_WAKES = "DELETE FROM lane_wakes WHERE kind = $1 AND tenant_id = $2 AND key = $3";
    FORGET_HELD_WAKES = "DELETE FROM lane_wakes WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND EXISTS
        (SELECT 1 FROM lanes l WHERE l.kind = $2 AND l.tenant_id = $1 AND l.key = $3 AND l.token = $4)";
    HOLD = crate::sql![
        "UPDATE lanes SET leased_until = ",
        crate::database_time!("$5"),
        " + CAST($6 AS BIGINT) WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4"
    ];
    FIND_TOKEN = "SELECT token FROM lanes WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    RELEASE = "UPDATE lanes SET leased_until = NULL, node = NULL, due_at = $5, not_before = $6, slow = $7
        WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    FORGET_LEASES = "UPDATE lanes SET leased_until = NULL, node = NULL WHERE leased_until IS NOT NULL";
    NEXT_DUE = "SELECT MIN(moment) FROM (SELECT MIN(due_at) AS moment FROM lanes WHERE kind = $1
        UNION ALL SELECT CAST($2 AS BIGINT) WHERE EXISTS (SELECT 1 FROM lane_wakes WHERE kind = $1)) moments";
    LONGEST_DUE = crate::sql![
        "SELECT MIN(due_at) FROM lanes WHERE kind = $1 AND (leased_until IS NULL OR leased_until <= ",
        crate::database_time!("$2"),
        ")"
    ];
    /// Of the first wakes alone: they are few where anybody looks at them, and which of many is the oldest matters little.
    LONGEST_WAKE = "SELECT MIN(e.at) FROM (SELECT w.tenant_id, w.sequence FROM lane_wakes w WHERE w.kind = $1
            ORDER BY w.kind, w.tenant_id, w.key, w.sequence LIMIT 200) woken
        JOIN events e ON e.tenant_id = woken.tenant_id AND e.sequence = woken.sequence";
    BRING_BACK = crate::sql![
        "UPDATE lanes SET due_at = CASE WHEN due_at > $5 THEN $4 ELSE due_at END,
            not_before = CASE WHEN not_before > $5 THEN NULL ELSE not_before END,
            leased_until = CASE WHEN leased_until > ",
        crate::database_time!("$6"),
        " + CAST($7 AS BIGINT) THEN ",
        crate::database_time!("$6"),
        " + CAST($7 AS BIGINT) ELSE leased_until END WHERE kind = $2 AND tenant_id = $1 AND key = $3"
    ];
}

/// Finds a lane that is still due and locks it, or passes it over if somebody else has: what says so stands between this
/// and [`LEASE_FOUND`]. Materialized, so that it is done once.
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

/// The same for a lane that has wakes.
const FIND_TO_WAKE: &str =
    "WITH woken AS MATERIALIZED (SELECT tenant_id, key FROM lanes WHERE kind = $1 AND tenant_id = $2 AND key = $3";
/// While the lane is paused, new work alone makes it due when the pause ends.
const WAKE_FOUND: &str = ") UPDATE lanes SET due_at = CASE
        WHEN not_before > $4 AND (due_at IS NULL OR due_at > not_before) THEN not_before
        WHEN not_before > $4 THEN due_at
        WHEN due_at IS NULL OR due_at > $4 THEN $4
        ELSE due_at END
    FROM woken WHERE lanes.kind = $1 AND lanes.tenant_id = woken.tenant_id AND lanes.key = woken.key
    RETURNING lanes.key";

/// Lanes that one transaction wakes.
const WAKES_MAX: usize = 200;

/// How long a lease lasts without a sign of life.
pub const LEASE_MS: i64 = 20 * SECOND_MS;
/// How often a node that works on a lane shows that it lives.
pub const HEARTBEAT_MS: i64 = 5 * SECOND_MS;
/// How long a lane is looked for by nodes that were not told of it.
pub const POLL_MS: i64 = 500;

/// A lane that is due and that nobody works on.
#[derive(Clone, Debug)]
pub struct DueLane {
    pub tenant_id: TenantId,
    pub key: String,
    /// Whether it last did nothing but wait for others' servers.
    pub slow: bool,
}

impl FromRow for DueLane {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(DueLane { tenant_id: row.get(0)?, key: row.get(1)?, slow: row.get(2)? })
    }
}

/// A lane that this node has leased.
#[derive(Clone)]
pub struct Lane {
    pub tenant_id: TenantId,
    pub key: String,
    kind: &'static str,
    token: i64,
    /// Shared with whoever runs the lane, and saved when it is given back.
    slow: Arc<AtomicBool>,
    db: Db,
}

/// A new lane, with nothing due.
pub async fn make(tx: &mut Tx, kind: &'static str, key: &str) -> Result<()> {
    tx.exec(MAKE, crate::args![kind, key]).await.map(drop)
}

/// The same, unless there is one already.
pub async fn ensure(tx: &mut Tx, kind: &'static str, key: &str) -> Result<()> {
    tx.exec(ENSURE, crate::args![kind, key]).await.map(drop)
}

/// Makes a lane due now. By this node's clock, as everything about lanes: the tenant's clock may be ahead of it.
pub async fn wake(tx: &mut Tx, kind: &'static str, key: &str) -> Result<()> {
    tx.announce();
    let now = tx.world().now();
    tx.exec(WAKE, crate::args![kind, key, now]).await.map(drop)
}

/// Takes a lane out of the future: what waits for later than `latest` is due now, and no lease is longer than one made now.
/// The lane stays locked for this transaction, whether or not there was anything to do.
pub async fn bring_back(tx: &mut Tx, kind: &'static str, key: &str, now: Timestamp, latest: Timestamp) -> Result<()> {
    tx.exec(BRING_BACK, crate::args![kind, key, now, latest, tx.given_time(), LEASE_MS]).await.map(drop)
}

/// Makes lanes due that were published to. A lane that is locked is passed over: whoever holds it removes its wakes, or it
/// is woken the next time.
pub async fn apply_wakes(node: &Node, kind: &'static str) -> Result<()> {
    let db = node.store.system(Purpose::Jobs);
    loop {
        let woken: Vec<(TenantId, String)> =
            db.list(LIST_WOKEN, crate::args![kind, db.given_time(), WAKES_MAX as i64]).await?;
        let is_last = woken.len() < WAKES_MAX;
        let applied =
            if woken.is_empty() { 0 } else { db.write(async move |tx| wake_all(tx, kind, woken).await).await? };
        if is_last || applied == 0 {
            return Ok(());
        }
    }
}

async fn wake_all(tx: &mut Tx, kind: &'static str, woken: Vec<(TenantId, String)>) -> Result<usize> {
    let sql = format!("{FIND_TO_WAKE}{}{WAKE_FOUND}", tx.skip_locked());
    let now = tx.world().now();
    let mut asked = Vec::with_capacity(woken.len());
    for (tenant, key) in woken {
        let values = vec![kind.into(), tenant.into(), key.as_str().into(), now.into()];
        asked.push((tenant, key, tx.ask::<String>(sql.clone(), values).await?));
    }
    // Only now, while the lane is locked and due: whatever was published before is seen by whoever leases it.
    let mut applied = Vec::with_capacity(asked.len());
    for (tenant, key, woken) in asked {
        if !tx.answer(woken).await?.is_empty() {
            applied.push(vec![kind.into(), tenant.into(), key.into()]);
        }
    }
    let count = applied.len();
    tx.later_each(FORGET_WAKES, applied).await?;
    Ok(count)
}

/// Lanes that are due and that nobody works on: of every tenant the longest waiting, then the next of each.
pub async fn list_due(node: &Node, kind: &'static str, max: usize) -> Result<Vec<DueLane>> {
    let db = node.store.system(Purpose::Jobs);
    db.list(LIST_DUE, crate::args![kind, node.world.now(), db.given_time(), max as i64]).await
}

/// Leases these lanes; in their order, none for one that another node has leased, or whose row is locked by a write under
/// way. Such a one comes the next time.
pub async fn lease(node: &Node, kind: &'static str, lanes: Vec<DueLane>) -> Result<Vec<Option<Lane>>> {
    let (now, name) = (node.world.now(), node.node.clone());
    let wanted = lanes.clone();
    let tokens: Vec<Option<i64>> = node
        .store
        .system(Purpose::Jobs)
        .write(async move |tx| {
            let sql = format!("{FIND_TO_LEASE}{}{LEASE_FOUND}", tx.skip_locked());
            let given = tx.given_time();
            let mut asked = Vec::with_capacity(wanted.len());
            for DueLane { tenant_id, key, .. } in wanted {
                let lane: [Value; 4] = [kind.into(), tenant_id.into(), key.into(), now.into()];
                let lease: [Value; 3] = [given.into(), name.clone().into(), LEASE_MS.into()];
                asked.push(tx.ask::<i64>(sql.clone(), lane.into_iter().chain(lease).collect()).await?);
            }
            let mut tokens = Vec::with_capacity(asked.len());
            for token in asked {
                tokens.push(tx.answer(token).await?.pop());
            }
            Ok(tokens)
        })
        .await?;
    let leased = |(DueLane { tenant_id, key, slow }, token): (DueLane, Option<i64>)| {
        let (slow, db) = (Arc::new(AtomicBool::new(slow)), tenant_db(&node.store, tenant_id));
        token.map(|token| Lane { tenant_id, key, kind, token, slow, db })
    };
    Ok(lanes.into_iter().zip(tokens).map(leased).collect())
}

/// Leases up to `max` lanes that are due.
pub async fn lease_due(node: &Node, kind: &'static str, max: usize) -> Result<Vec<Lane>> {
    apply_wakes(node, kind).await?;
    let due = list_due(node, kind, max).await?;
    if due.is_empty() {
        return Ok(Vec::new());
    }
    Ok(lease(node, kind, due).await?.into_iter().flatten().collect())
}

/// Ends all leases, for a node that knows to be the only one.
pub(super) async fn forget_leases(store: &Store) -> Result<()> {
    store.system(Purpose::Jobs).write(async |tx| tx.exec(FORGET_LEASES, crate::args![]).await).await.map(drop)
}

/// When the next lane of a kind is due, or was. One that was published to is due now.
pub async fn next_due(store: &Store, kind: &'static str) -> Result<Option<Timestamp>> {
    let db = store.system(Purpose::Jobs);
    db.one(NEXT_DUE, crate::args![kind, db.world().now()]).await
}

/// Since when the first lane that nobody works on is due, if it is; one that was woken and not looked at, since its event.
pub async fn longest_due(store: &Store, kind: &'static str, now: Timestamp) -> Result<Option<Timestamp>> {
    let db = store.system(Purpose::Jobs);
    let due: Option<Timestamp> = db.one(LONGEST_DUE, crate::args![kind, db.given_time()]).await?;
    let woken: Option<Timestamp> = db.one(LONGEST_WAKE, crate::args![kind]).await?;
    Ok(due.into_iter().chain(woken).min().filter(|since| *since <= now))
}

/// A tenant's records, for what the service does by itself.
pub fn tenant_db(store: &Store, tenant: TenantId) -> Db {
    store.tenant_job(tenant)
}

impl Lane {
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The tenant's records.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// What says whether the lane only waits for others' servers.
    pub(super) fn slow_mark(&self) -> Arc<AtomicBool> {
        self.slow.clone()
    }

    /// Locks the lane for this transaction and shows that the node lives; false when another node has it by now.
    ///
    /// Removes the wakes of the lane, so whoever holds it must look up what is due, behind this, before they release it.
    pub async fn hold(&self, tx: &mut Tx) -> Result<bool> {
        let holding = self.ask_hold(tx).await?;
        holding.is_held(tx).await
    }

    /// The same, told by [`Holding::is_held`]: what is asked behind it costs no round trip of its own.
    pub async fn ask_hold(&self, tx: &mut Tx) -> Result<Holding> {
        let lane = || -> Vec<Value> { vec![self.kind.into(), self.key.as_str().into(), self.token.into()] };
        let lease: [Value; 2] = [tx.given_time().into(), LEASE_MS.into()];
        tx.later(HOLD, lane().into_iter().chain(lease).collect()).await?;
        tx.later(FORGET_HELD_WAKES, lane()).await?;
        Ok(Holding(tx.ask(FIND_TOKEN, lane()).await?))
    }

    /// Gives the lane back, due again at `due_at` or when something wakes it. New work alone does not wake it before
    /// `not_before`.
    pub async fn release(&self, tx: &mut Tx, due_at: Option<Timestamp>, not_before: Option<Timestamp>) -> Result<bool> {
        let slow = self.slow.load(Ordering::Relaxed);
        Ok(tx.exec(RELEASE, crate::args![self.kind, self.key, self.token, due_at, not_before, slow]).await? == 1)
    }

    /// Ends the lane for good.
    pub async fn remove(&self, tx: &mut Tx) -> Result<()> {
        tx.exec(REMOVE, crate::args![self.kind, self.key, self.token]).await.map(drop)
    }
}

/// A lane that is about to be held.
pub struct Holding(Ahead<i64>);

impl Holding {
    /// False when another node has the lane by now.
    pub async fn is_held(self, tx: &mut Tx) -> Result<bool> {
        Ok(!tx.answer(self.0).await?.is_empty())
    }
}
