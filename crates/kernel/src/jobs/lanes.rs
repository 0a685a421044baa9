//! Lanes: what is leased to one node at a time.
//!
//! A lane is everything that must be done by one node, in one order, with one memory: an endpoint's deliveries, a
//! tenant's workflows. It is due from a moment on, and a node that leases it works on it until nothing is due or its
//! lease is lost. Every lease raises the lane's token; what a node writes for a lane it writes in a transaction that
//! [`Lane::hold`]s it, which fails for an old token. So the token, not the clock, is the safety: a node that slept
//! through its lease can send a request twice, but cannot overwrite what its successor has noted.

use super::Node;
use crate::base::{Result, SECOND_MS, TenantId, Timestamp};
use crate::store::{Db, Purpose, Store, Tx};

crate::statements! {
    MAKE = "INSERT INTO lanes (kind, tenant_id, key, token) VALUES ($2, $1, $3, 0)";
    ENSURE = "INSERT INTO lanes (kind, tenant_id, key, token) VALUES ($2, $1, $3, 0)
        ON CONFLICT (kind, tenant_id, key) DO NOTHING";
    REMOVE = "DELETE FROM lanes WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    WAKE = "UPDATE lanes SET due_at = CASE WHEN due_at IS NULL OR due_at > $4 THEN $4 ELSE due_at END, not_before = NULL
        WHERE kind = $2 AND tenant_id = $1 AND key = $3";
    FIND_DUE = "SELECT tenant_id FROM lanes
        WHERE kind = $1 AND due_at <= $2 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY due_at LIMIT 1";
    HOLD = "UPDATE lanes SET leased_until = $5 WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    RELEASE = "UPDATE lanes SET leased_until = NULL, node = NULL, due_at = $5, not_before = $6
        WHERE kind = $2 AND tenant_id = $1 AND key = $3 AND token = $4";
    FORGET_LEASES = "UPDATE lanes SET leased_until = NULL, node = NULL WHERE leased_until IS NOT NULL";
    NEXT_DUE = "SELECT MIN(due_at) FROM lanes WHERE kind = $1";
    LONGEST_DUE = "SELECT MIN(due_at) FROM lanes WHERE kind = $1 AND (leased_until IS NULL OR leased_until <= $2)";
    BRING_BACK = "UPDATE lanes SET due_at = CASE WHEN due_at > $5 THEN $4 ELSE due_at END,
            not_before = CASE WHEN not_before > $5 THEN NULL ELSE not_before END,
            leased_until = CASE WHEN leased_until > $6 THEN $6 ELSE leased_until END
        WHERE kind = $2 AND tenant_id = $1 AND key = $3";
}

/// Finds lanes that are due and locks them; what to do about rows that others have locked stands between this and
/// [`LEASE_FOUND`]. Materialized, so that it is done once: inside an `IN` PostgreSQL may do it again for each row of a
/// table that it thinks small, and each time find others.
const FIND_TO_LEASE: &str = "WITH due AS MATERIALIZED (SELECT tenant_id, key FROM lanes
    WHERE kind = $1 AND due_at <= $2 AND (leased_until IS NULL OR leased_until <= $2)
    ORDER BY due_at, tenant_id, key LIMIT $5";
const LEASE_FOUND: &str = ") UPDATE lanes SET token = token + 1, node = $3, leased_until = $4
    FROM due WHERE lanes.kind = $1 AND lanes.tenant_id = due.tenant_id AND lanes.key = due.key
    RETURNING lanes.tenant_id, lanes.key, lanes.token";

/// How long a lease lasts without a sign of life.
pub const LEASE_MS: i64 = 20 * SECOND_MS;
/// How often a node that works on a lane shows that it lives.
pub const HEARTBEAT_MS: i64 = 5 * SECOND_MS;
/// How long a lane is looked for by nodes that were not told of it.
pub const POLL_MS: i64 = 500;

/// A lane that this node has leased.
#[derive(Clone)]
pub struct Lane {
    pub tenant_id: TenantId,
    pub key: String,
    kind: &'static str,
    token: i64,
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
    tx.exec(BRING_BACK, crate::args![kind, key, now, latest, now.plus(LEASE_MS)]).await.map(drop)
}

/// Leases up to `max` lanes that are due, the oldest first, so that every lane gets its turn. Those that another node
/// works on are passed over, and so are those whose row is locked by a write under way: they come the next time.
pub async fn lease_due(node: &Node, kind: &'static str, max: usize) -> Result<Vec<Lane>> {
    let now = node.world.now();
    let (name, until, max) = (node.node.clone(), now.plus(LEASE_MS), max as i64);
    let db = node.store.system(Purpose::Jobs);
    if db.find::<TenantId>(FIND_DUE, crate::args![kind, now]).await?.is_none() {
        return Ok(Vec::new());
    }
    let leased: Vec<(TenantId, String, i64)> = db
        .write(async move |tx| {
            let sql = format!("{FIND_TO_LEASE}{}{LEASE_FOUND}", tx.skip_locked());
            tx.list(&sql, crate::args![kind, now, name, until, max]).await
        })
        .await?;
    let lane = |(tenant_id, key, token)| Lane { tenant_id, key, kind, token, db: tenant_db(&node.store, tenant_id) };
    Ok(leased.into_iter().map(lane).collect())
}

/// Ends all leases, for a node that knows to be the only one.
pub(super) async fn forget_leases(store: &Store) -> Result<()> {
    store.system(Purpose::Jobs).write(async |tx| tx.exec(FORGET_LEASES, crate::args![]).await).await.map(drop)
}

/// When the next lane of a kind is due, or was.
pub async fn next_due(store: &Store, kind: &'static str) -> Result<Option<Timestamp>> {
    store.system(Purpose::Jobs).one(NEXT_DUE, crate::args![kind]).await
}

/// Since when the first lane that nobody works on is due, if it is.
pub async fn longest_due(store: &Store, kind: &'static str, now: Timestamp) -> Result<Option<Timestamp>> {
    let due: Option<Timestamp> = store.system(Purpose::Jobs).one(LONGEST_DUE, crate::args![kind, now]).await?;
    Ok(due.filter(|due| *due <= now))
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

    /// Locks the lane for this transaction and shows that the node lives; false when another node has it by now.
    pub async fn hold(&self, tx: &mut Tx) -> Result<bool> {
        let until = tx.world().now().plus(LEASE_MS);
        Ok(tx.exec(HOLD, crate::args![self.kind, self.key, self.token, until]).await? == 1)
    }

    /// Gives the lane back, due again at `due_at` or when something wakes it. New work alone does not wake it before
    /// `not_before`.
    pub async fn release(&self, tx: &mut Tx, due_at: Option<Timestamp>, not_before: Option<Timestamp>) -> Result<bool> {
        Ok(tx.exec(RELEASE, crate::args![self.kind, self.key, self.token, due_at, not_before]).await? == 1)
    }

    /// Ends the lane for good.
    pub async fn remove(&self, tx: &mut Tx) -> Result<()> {
        tx.exec(REMOVE, crate::args![self.kind, self.key, self.token]).await.map(drop)
    }
}
