//! The transaction that both engines and their rivals run: the tenant's clock, then a record, its event and its audit
//! entry. The tables are the benchmark's own, so that no change of the product's schema changes what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kernel::args;
use kernel::base::{Actor, Result, TenantId};
use kernel::store::{Db, Purpose, Store};
use tokio::task::JoinSet;

use crate::harness::Outcome;

/// Who writes at once.
pub const CALLERS: usize = 64;

/// What both engines take: one statement each, in this order.
pub const TABLES: [&str; 3] = [
    "CREATE TABLE bench_records (
         tenant_id TEXT NOT NULL, id TEXT NOT NULL, number BIGINT NOT NULL, subject TEXT NOT NULL,
         state TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))",
    "CREATE TABLE bench_events (
         tenant_id TEXT NOT NULL, sequence BIGINT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
         at BIGINT NOT NULL, PRIMARY KEY (tenant_id, sequence))",
    "CREATE TABLE bench_audit (
         tenant_id TEXT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL, action TEXT NOT NULL,
         target_id TEXT NOT NULL, PRIMARY KEY (tenant_id, id))",
];

/// The store's own statement of that name, which it does not hand out.
pub const TICK: &str = "UPDATE tenant_clocks SET last_at = CASE WHEN last_at > $2 THEN last_at ELSE $2 END, \
     sequence = sequence + 1 WHERE tenant_id = $1 RETURNING last_at, sequence";
pub const RECORD: &str = "INSERT INTO bench_records (tenant_id, id, number, subject, state, created_at) \
     VALUES ($1, $2, $3, $4, 'open', $5)";
pub const EVENT: &str = "INSERT INTO bench_events (tenant_id, sequence, kind, body, at) \
     VALUES ($1, $2, 'record.created', $3, $4)";
pub const AUDIT: &str = "INSERT INTO bench_audit (tenant_id, id, at, action, target_id) \
     VALUES ($1, $2, $3, 'record.create', $4)";

pub const SUBJECT: &str = "The printer on the second floor does not answer";
pub const BODY: &str = r#"{"type":"record.created","subject":"The printer on the second floor does not answer","state":"open","priority":"normal"}"#;

/// An id as long as those that pgbench can make: 19 digits. Spread like random ones, and never twice in a run.
pub fn id(n: usize) -> String {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    format!("{:019}", (n as u64).wrapping_mul(SPREAD) >> 1)
}

pub async fn make_tables(store: &Store) -> Result<()> {
    let make = async |tx: &mut kernel::store::Tx| {
        for table in TABLES {
            tx.exec(table, args![]).await?;
        }
        Ok(())
    };
    store.system(Purpose::Startup).write(make).await
}

/// Tenants with their clocks started, and a handle to each.
pub async fn make_tenants(store: &Store, count: usize) -> Result<Vec<Db>> {
    let now = store.env().now();
    let ids: Vec<TenantId> = (0..count).map(|_| TenantId::new(store.env())).collect();
    let made = ids.clone();
    let make = async move |tx: &mut kernel::store::Tx| {
        for id in made {
            let tenant = "INSERT INTO tenants (id, slug, name, version, created_at, updated_at)
                 VALUES ($1, $1, $1, 1, $2, $2)";
            tx.exec(tenant, args![id, now]).await?;
            let clock = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence) VALUES ($1, $2, 0)";
            tx.exec(clock, args![id, now]).await?;
        }
        Ok(())
    };
    store.system(Purpose::Startup).write(make).await?;
    Ok(ids.into_iter().map(|id| store.tenant_for_test(id, Actor::for_system())).collect())
}

/// The transaction through the store, as a feature would write it.
pub async fn write(db: &Db, n: usize) -> Result<()> {
    let (record, entry) = (id(2 * n), id(2 * n + 1));
    db.write(async move |tx| {
        let tick = tx.tick().await?;
        tx.exec(RECORD, args![record, n as i64, SUBJECT, tick.at]).await?;
        tx.exec(EVENT, args![tick.sequence, BODY, tick.at]).await?;
        tx.exec(AUDIT, args![entry, tick.at, record]).await?;
        Ok(())
    })
    .await
}

/// Runs `count` jobs, numbered from `first`, with [`CALLERS`] at once; how many per second.
pub async fn drive<F>(first: usize, count: usize, job: impl Fn(usize) -> F + Clone + Send + 'static) -> Outcome<f64>
where
    F: Future<Output = Outcome> + Send,
{
    drive_by(CALLERS, first, count, job).await
}

/// The same, with so many at once.
pub async fn drive_by<F>(
    callers: usize,
    first: usize,
    count: usize,
    job: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Outcome<f64>
where
    F: Future<Output = Outcome> + Send,
{
    let next = Arc::new(AtomicUsize::new(first));
    let started = Instant::now();
    let mut calling: JoinSet<Outcome> = JoinSet::new();
    for _ in 0..callers {
        let (next, job) = (next.clone(), job.clone());
        calling.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= first + count {
                    return Ok(());
                }
                job(n).await?;
            }
        });
    }
    for ended in calling.join_all().await {
        ended?;
    }
    Ok(f64::from(u32::try_from(count)?) / started.elapsed().as_secs_f64())
}
