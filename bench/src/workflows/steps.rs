//! Steps per second of a tenant that has many runs queued, against the store's bare transactions with the same writes, on a
//! copy of the same file.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Actor, Env};
use kernel::store::{Store, StoreOptions};
use rusqlite::{Connection, params};
use serde_json::json;
use tenant_control::features::workflows::WorkflowSettings;
use tenant_control::features::workflows::runs::StoredRun;

use super::bare::{self, STEPS, Texts};
use super::{PATH, call, queue, save, three_steps};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, median};
use crate::server::{Server, cpu_seconds, make_tenant, post};
use crate::webhooks::database;
use crate::workload::drive_by;

const AIM: f64 = 0.4;
/// Longer than any round that is worth measuring.
const ROUND_MAX: Duration = Duration::from_mins(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub fn run() -> Outcome {
    let (rounds, runs) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_RUNS", 3_000)?);
    let under_way = WorkflowSettings::default().steps_under_way;
    println!(
        "workflows-steps: {runs} queued runs of {} steps in one tenant, {under_way} steps under way at once; the store's \
         transactions with the same writes by {under_way} callers",
        STEPS.len()
    );
    let (data, copies, runtime) = (folder()?, folder()?, runtime()?);
    let file = database(data.path());
    let server = Server::start(data.path())?;
    let (tenant, key) = make_tenant(&server, data.path(), &[], "bench")?;
    let workflow = save(&server, &key, &three_steps())?;
    post(server.address, PATH, &key, &call(&workflow, &json!({"host": "host-000000"})))?;
    wait_for_all(&file)?;
    server.stop()?;
    let texts = Arc::new(Texts::read(&file)?);
    let steps = f64::from(u32::try_from(runs * STEPS.len())?);
    let mut comparison = Comparison::new("steps/s", "server", "store");
    let (mut our_cpu, mut their_cpu) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let queued = runtime.block_on(queue::fill(StoreOptions::sqlite(&file), &tenant, &workflow, runs))?;
        let copy = copies.path().join(format!("bare-{round}.db"));
        std::fs::copy(&file, &copy)?;
        let since = queued.first().ok_or("nothing was queued")?.run.created_at.as_millis();
        let (theirs, cpu) = runtime.block_on(in_the_store(&copy, &tenant, queued, &texts, under_way))?;
        their_cpu.push(cpu / steps * 1e6);
        let server = Server::start(data.path())?;
        wait_for_all(&file)?;
        our_cpu.push(cpu_seconds(server.id())? / steps * 1e6);
        server.stop()?;
        comparison.add(steps / seconds_of(&file, since, runs)?, theirs);
    }
    comparison.finish(AIM);
    // Other work on the machine changes this far less than the speed. The server's start is in it.
    println!("processor time per step: server {:.1} us, store {:.1} us", median(our_cpu), median(their_cpu));
    Ok(())
}

/// Steps per second, and the processor time in all.
async fn in_the_store(
    copy: &Path,
    tenant: &str,
    queued: Vec<StoredRun>,
    texts: &Arc<Texts>,
    callers: usize,
) -> Outcome<(f64, f64)> {
    let store = Store::open(StoreOptions::sqlite(copy), Env::default()).await?;
    let db = store.tenant_for_test(tenant.parse()?, Actor::for_system());
    let (count, queued, texts) = (queued.len(), Arc::new(queued), texts.clone());
    let before = cpu_seconds(std::process::id())?;
    let runs = drive_by(callers, 0, count, move |n| {
        let (db, queued, texts) = (db.clone(), queued.clone(), texts.clone());
        async move { Ok(bare::run(&db, &texts, &queued[n]).await?) }
    });
    let runs = runs.await?;
    let cpu = cpu_seconds(std::process::id())? - before;
    store.close().await;
    Ok((runs * f64::from(u32::try_from(STEPS.len())?), cpu))
}

/// Waits until no run is open. Asked of the file, which costs the server nothing.
fn wait_for_all(file: &Path) -> Outcome {
    let (file, waiting) = (Connection::open(file)?, Instant::now());
    let mut open = file.prepare("SELECT 1 FROM workflow_runs WHERE ended_at IS NULL LIMIT 1")?;
    while open.exists([])? {
        if waiting.elapsed() > ROUND_MAX {
            return Err("the runs did not come to their end".into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// From when the first of these runs began until the last has ended; all of them must have gone well.
fn seconds_of(file: &Path, since: i64, runs: usize) -> Outcome<f64> {
    let asked = "SELECT COUNT(*), MIN(started_at), MAX(ended_at) FROM workflow_runs
        WHERE created_at >= ?1 AND status = 'succeeded'";
    let times =
        Connection::open(file)?.query_row(asked, params![since], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let (count, first, last): (i64, i64, i64) = times?;
    if usize::try_from(count)? != runs {
        return Err(format!("only {count} of {runs} runs went well").into());
    }
    Ok(Duration::from_millis(u64::try_from(last - first)?).as_secs_f64())
}
