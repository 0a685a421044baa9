//! The embedded store against bare rusqlite with group commit: what the tenant's handle, the savepoints, the binding by number
//! and the boxed jobs cost.

use std::sync::Arc;

use kernel::base::Env;
use kernel::store::{Store, StoreOptions};
use tenant_control::migrations::MIGRATIONS;

use crate::bare_sqlite::{BareWriter, Savepoints};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::Comparison;
use crate::workload::{CALLERS, drive, make_tables, make_tenants, write};

const AIM: f64 = 0.8;
const TENANTS: usize = 64;

pub fn run() -> Outcome {
    let (rounds, writes) = (setting("BENCH_ROUNDS", 9)?, setting("BENCH_WRITES", 40_000)?);
    println!("store-sqlite: {CALLERS} callers, {writes} transactions of a tick and three inserts, synchronous=FULL");
    let runtime = runtime()?;
    let mut bare = Comparison::new("writes/s", "store", "bare");
    let mut guarded = Comparison::new("writes/s", "store", "bare with a savepoint per job");
    for _ in 0..rounds {
        // Each on a new file, in turn.
        let plain = runtime.block_on(measure_bare(writes, Savepoints::No))?;
        let ours = runtime.block_on(measure_store(writes))?;
        let with_savepoints = runtime.block_on(measure_bare(writes, Savepoints::Yes))?;
        bare.add(ours, plain);
        guarded.add(ours, with_savepoints);
    }
    bare.finish(AIM);
    guarded.finish(AIM);
    Ok(())
}

async fn measure_store(writes: usize) -> Outcome<f64> {
    let folder = folder()?;
    let store = Store::open(StoreOptions::sqlite(folder.path().join("store.db")), Env::default()).await?;
    store.migrate(MIGRATIONS).await?;
    make_tables(&store).await?;
    let tenants = Arc::new(make_tenants(&store, TENANTS).await?);
    let speed = drive(0, writes, move |n| {
        let tenants = tenants.clone();
        async move { Ok(write(&tenants[n % TENANTS], n).await?) }
    })
    .await?;
    store.close().await;
    Ok(speed)
}

async fn measure_bare(writes: usize, savepoints: Savepoints) -> Outcome<f64> {
    let folder = folder()?;
    let path = folder.path().join("bare.db");
    // The same schema, made by the store itself.
    let store = Store::open(StoreOptions::sqlite(&path), Env::default()).await?;
    store.migrate(MIGRATIONS).await?;
    make_tables(&store).await?;
    let tenants = make_tenants(&store, TENANTS).await?;
    store.close().await;
    let tenants: Arc<Vec<String>> =
        Arc::new(tenants.iter().filter_map(kernel::store::Db::tenant_id).map(|id| id.to_string()).collect());
    let writer = Arc::new(BareWriter::start(&path, savepoints)?);
    let handle = writer.clone();
    let speed = drive(0, writes, move |n| {
        let (writer, tenants) = (handle.clone(), tenants.clone());
        async move { writer.write(tenants[n % TENANTS].clone(), n).await }
    })
    .await?;
    Ok(speed)
}
