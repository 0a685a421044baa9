//! Whether one tenant's queue holds up another: how long a run of a tenant takes to its first step's end beside a tenant with
//! thousands of runs queued. Its second step asks a receiver here, which it can only when the first is on disk.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernel::store::{PostgresOptions, StoreOptions};
use serde_json::{Value, json};

use super::{PATH, call, queue, save, three_steps};
use crate::cluster::Cluster;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{limit, percentile};
use crate::server::{get, make_tenant};
use crate::tickets::client::{Connection, post_to};
use crate::webhooks::sink::{self, Manner};
use crate::webhooks::{database, start};

const LIMIT_MS: f64 = 2_000.0;
/// Between two calls of the steady tenant.
const PAUSE: Duration = Duration::from_millis(50);
/// How long after the last call the last receipt is waited for.
const LATE_MAX: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Receipts by the number of the call.
type Receipts = Arc<Mutex<Vec<(usize, Instant)>>>;

pub fn run() -> Outcome {
    let (rounds, runs) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_RUNS", 10_000)?);
    let time = Duration::from_secs(setting("BENCH_SECONDS", 10)? as u64);
    println!(
        "workflows-fairness: a tenant starts a run every {} ms beside one that has {runs} runs queued, {} s at most",
        PAUSE.as_millis(),
        time.as_secs()
    );
    compare("embedded store", rounds, || {
        let data = folder()?;
        measure(data.path(), &[], StoreOptions::sqlite(database(data.path())), runs, time)
    })?;
    compare("PostgreSQL", rounds, || {
        let (cluster, data) = (Cluster::start()?, folder()?);
        let url = cluster.url();
        let store = ["--database-url", url.as_str()];
        measure(data.path(), &store, StoreOptions::postgres(PostgresOptions::new(&url)), runs, time)
    })
}

fn compare(name: &str, rounds: usize, measure: impl Fn() -> Outcome<Vec<f64>>) -> Outcome {
    let (mut tails, mut most) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let waits = measure()?;
        let (half, tail, last) =
            (percentile(waits.clone(), 500), percentile(waits.clone(), 990), percentile(waits.clone(), 1_000));
        println!("  {name}, {} runs: p50 {half:.1} ms, p99 {tail:.1} ms, most {last:.1} ms", waits.len());
        tails.push(tail);
        most.push(last);
    }
    limit(&format!("{name}, from the answer to the first step's end, p99"), tails, "ms", LIMIT_MS);
    limit(&format!("{name}, the same, most"), most, "ms", LIMIT_MS);
    Ok(())
}

/// One round on a store of its own: what each run of the steady tenant has waited, in milliseconds.
fn measure(data: &Path, store: &[&str], options: StoreOptions, runs: usize, time: Duration) -> Outcome<Vec<f64>> {
    let (runtime, receipts) = (runtime()?, Receipts::default());
    let noted = receipts.clone();
    let receiver = runtime.block_on(sink::open(move |request| {
        let number = request.body.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(usize::MAX);
        noted.lock().unwrap_or_else(PoisonError::into_inner).push((number, Instant::now()));
        Manner::Good
    }))?;
    let server = start(data, store)?;
    let (busy, busy_key) = make_tenant(&server, data, store, "busy")?;
    let (_, key) = make_tenant(&server, data, store, "steady")?;
    let long = save(&server, &busy_key, &three_steps())?;
    let short = save(&server, &key, &two_steps(receiver))?;
    server.stop()?;
    runtime.block_on(queue::fill(options, &busy, &long, runs))?;
    let server = start(data, store)?;
    let steady = Steady { address: server.address, key, workflow: short };
    let asked = std::thread::spawn(move || steady.ask(time, &busy_key));
    let asked = asked.join().map_err(|_| "the steady client panicked")??;
    wait_for(&receipts, asked.len())?;
    server.stop()?;
    let receipts = receipts.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = |(number, at): &(usize, Instant)| {
        let answered = asked.get(*number)?;
        Some(at.saturating_duration_since(*answered).as_secs_f64() * 1e3)
    };
    Ok(receipts.iter().filter_map(waited).collect())
}

fn two_steps(receiver: SocketAddr) -> Value {
    let send = json!({"method": "POST", "url": format!("http://{receiver}/run"), "body": {"n": "${{ input.n }}"}});
    json!({"action": "create", "name": "Tell", "on": {"manual": {}}, "steps": [
        {"id": "emit", "uses": "event.emit", "with": {"name": "run.began", "data": {"n": "${{ input.n }}"}}},
        {"id": "send", "uses": "http.request", "needs": ["emit"], "with": send},
    ]})
}

fn wait_for(receipts: &Receipts, count: usize) -> Outcome {
    let waiting = Instant::now();
    loop {
        let received = receipts.lock().unwrap_or_else(PoisonError::into_inner).len();
        if received >= count {
            return Ok(());
        }
        if waiting.elapsed() > LATE_MAX {
            return Err(format!("only {received} of {count} requests came").into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The tenant that starts a run now and then.
struct Steady {
    address: SocketAddr,
    key: String,
    workflow: String,
}

impl Steady {
    /// Calls for so long, or until the other's queue is empty. When each call was answered.
    fn ask(&self, time: Duration, busy_key: &str) -> Outcome<Vec<Instant>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connection = Connection::open(self.address).await?;
            let (started, mut answered) = (Instant::now(), Vec::new());
            while started.elapsed() < time {
                let body = call(&self.workflow, &json!({"n": answered.len()}));
                let answer = connection.ask(&post_to(PATH, &self.key, &body)).await?;
                if answer.status != 202 {
                    return Err(format!("the steady tenant got {}: {}", answer.status, answer.body).into());
                }
                answered.push(Instant::now());
                if answered.len() % LOOKED_AFTER == 0 && !has_queue(self.address, busy_key)? {
                    println!("  the queue was empty after {:.1} s", started.elapsed().as_secs_f64());
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(answered)
        })
    }
}

/// Calls between two looks at the other's queue.
const LOOKED_AFTER: usize = 10;

fn has_queue(address: SocketAddr, key: &str) -> Outcome<bool> {
    let path = format!("{PATH}?view=runs&status=pending&limit=1");
    let page: Value = serde_json::from_str(&get(address, &path, &format!("Authorization: Bearer {key}\r\n"))?.body)?;
    Ok(page["data"].as_array().ok_or("no page of runs")?.len() == 1)
}
