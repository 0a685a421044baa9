//! What it costs a request that it is metered. Nothing switches the meter off, so its own code is timed alone: as the request
//! layer calls it, with as many keys and routes as a tenant has, by one thread and by several at once, against the processor
//! time of a whole cheap request of a server that is busy.
//!
//! What is metered is written once a second and added up, whatever the number of requests. That is told beside it, as a share of
//! a core: the limit is of the request.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use figures::cells::{ERRORS, KEY, LATENCY_US, REQUESTS, ROUTE, THROTTLED};
use figures::{Dimension, Figures};
use kernel::base::{ApiKeyId, Env, TenantId};
use kernel::http::UsageMeter;
use kernel::store::{Db, Purpose, Store, StoreOptions};
use tenant_control::features::fold::store::fold_batch;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::members::Members;
use crate::chance::{Chance, Skewed};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{limit, median};
use crate::server::{Server, cpu_seconds, make_key};
use crate::tickets::client::{Connection, create_all, get, post};
use crate::workload::CALLERS;

/// Of the processor time of a request.
const LIMIT_PERCENT: f64 = 3.0;
const THREADS: usize = 8;
const TENANTS: usize = 8;
/// What is metered in turn.
const REQUESTS_PREPARED: usize = 4_096;
const TICKETS: usize = 100;
/// Seconds whose figures are written and added up, each with so many requests.
const SECONDS: usize = 10;
const REQUESTS_OF_SECOND: usize = 5_000;

pub fn run() -> Outcome {
    let (rounds, requests) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_REQUESTS", 40_000)?);
    let calls = setting("BENCH_CALLS", 2_000_000)?;
    println!(
        "analytics-metering: GET /api/psa/tickets?limit=1 over {CALLERS} connections, {requests} a round; the meter alone, {calls} \
         calls by 1 thread and by {THREADS}; {rounds} rounds"
    );
    let (data, other, runtime) = (folder()?, folder()?, runtime()?);
    let server = Server::start(data.path())?;
    let key = make_key(&server, data.path())?;
    let ticket = post(&key, r#"{"subject":"The printer does not answer"}"#);
    runtime.block_on(create_all(server.address, CALLERS, 0, TICKETS, move |_| ticket.clone()))?;
    // A store of its own, for what is metered here.
    Server::start(other.path())?.stop()?;
    let sides = Sides {
        server: &server,
        request: Arc::new(get(&key, "limit=1")),
        runtime: &runtime,
        metered: MeteredRequest::make_all(),
    };
    let mut measured = Measured::default();
    // The first round warms up.
    for round in 0..=rounds {
        let request_us = sides.measure_requests(requests)?;
        let one_us = sides.measure_meter(1, calls)?;
        let several_us = sides.measure_meter(THREADS, calls)?;
        if round > 0 {
            measured.add(request_us, one_us, several_us);
        }
    }
    measured.print();
    let (second_ms, facts) = runtime.block_on(measure_writing(other.path(), &sides.metered))?;
    println!(
        "beside it, {facts} facts of a second of {TENANTS} tenants ({REQUESTS_OF_SECOND} requests), written and added up: \
         {second_ms:.1} ms of processor time, {:.1} % of a core",
        second_ms / 10.0
    );
    server.stop()
}

/// In microseconds of processor time, of each round.
#[derive(Default)]
struct Measured {
    request_us: Vec<f64>,
    one_percent: Vec<f64>,
    several_percent: Vec<f64>,
    one_us: Vec<f64>,
    several_us: Vec<f64>,
}

impl Measured {
    fn add(&mut self, request_us: f64, one_us: f64, several_us: f64) {
        println!(
            "  request {request_us:.1} us, metering {one_us:.3} us by one thread, {several_us:.3} us by {THREADS} at once"
        );
        self.request_us.push(request_us);
        self.one_us.push(one_us);
        self.several_us.push(several_us);
        self.one_percent.push(100.0 * one_us / request_us);
        self.several_percent.push(100.0 * several_us / request_us);
    }

    fn print(self) {
        println!(
            "processor time per request {:.1} us, of its metering {:.3} us by one thread and {:.3} us by {THREADS}",
            median(self.request_us),
            median(self.one_us),
            median(self.several_us)
        );
        limit("metering by one thread", self.one_percent, "% of a request", LIMIT_PERCENT);
        limit("metering by several threads at once", self.several_percent, "% of a request", LIMIT_PERCENT);
    }
}

struct Sides<'a> {
    server: &'a Server,
    request: Arc<String>,
    runtime: &'a Runtime,
    metered: Vec<MeteredRequest>,
}

impl Sides<'_> {
    /// The processor time of the server for each request, in microseconds.
    fn measure_requests(&self, requests: usize) -> Outcome<f64> {
        let before = cpu_seconds(self.server.id())?;
        self.runtime.block_on(ask_all(self.server.address, requests, &self.request))?;
        micros_each(cpu_seconds(self.server.id())? - before, requests)
    }

    /// The processor time of this process for each call, in microseconds. All call one meter, as in a server.
    fn measure_meter(&self, threads: usize, calls: usize) -> Outcome<f64> {
        let (env, meter, of_thread) = (Env::default(), UsageMeter::default(), calls / threads);
        let before = cpu_seconds(std::process::id())?;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (env, meter, metered) = (&env, &meter, &self.metered);
                scope.spawn(move || {
                    for n in 0..of_thread {
                        metered[(n + thread * 509) % metered.len()].record(meter, env);
                    }
                });
            }
        });
        micros_each(cpu_seconds(std::process::id())? - before, of_thread * threads)
    }
}

fn micros_each(seconds: f64, count: usize) -> Outcome<f64> {
    Ok(seconds * 1e6 / f64::from(u32::try_from(count)?))
}

async fn ask_all(address: SocketAddr, count: usize, request: &Arc<String>) -> Outcome {
    let (next, mut callers) = (Arc::new(AtomicUsize::new(0)), JoinSet::<Outcome>::new());
    for _ in 0..CALLERS {
        let (next, request) = (next.clone(), request.clone());
        callers.spawn(async move {
            let mut connection = Connection::open(address).await?;
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let answer = connection.ask(&request).await?;
                if answer.status != 200 {
                    return Err(format!("{}: {}", answer.status, answer.body).into());
                }
            }
            Ok(())
        });
    }
    for ended in callers.join_all().await {
        ended?;
    }
    Ok(())
}

/// A request as the request layer knows it when it has been answered.
struct MeteredRequest {
    tenant: TenantId,
    key: ApiKeyId,
    method: &'static str,
    path: String,
    status: u16,
    latency_us: i64,
}

impl MeteredRequest {
    /// Some keys and routes are used far more often than others.
    fn make_all() -> Vec<Self> {
        let (env, mut chance) = (Env::default(), Chance::new(1));
        let now = env.now();
        let tenants: Vec<(TenantId, Members)> =
            (0..TENANTS).map(|_| (TenantId::new(&env), Members::make(now.as_millis()))).collect();
        let made = (0..REQUESTS_PREPARED).map(|n| {
            let (tenant, members) = &tenants[n % TENANTS];
            let keys = Skewed::new(members.keys.len(), 1.0);
            let routes = Skewed::new(members.routes.len(), 1.0);
            let route = members.routes[routes.draw(&mut chance)].as_str();
            let (method, path) = route.split_once(' ').unwrap_or(("GET", route));
            let methods = ["GET", "POST", "PATCH", "DELETE"];
            MeteredRequest {
                tenant: *tenant,
                key: members.keys[keys.draw(&mut chance)],
                method: methods.into_iter().find(|known| *known == method).unwrap_or("GET"),
                path: path.to_owned(),
                status: if chance.below(50) == 0 { 404 } else { 200 },
                latency_us: chance.wait_ms(4_000),
            }
        });
        made.collect()
    }

    /// As `UsageMeter::record_request` does it, with what its caller does for it: line by line the same.
    fn record(&self, meter: &UsageMeter, env: &Env) {
        let key = self.key.to_string();
        let mut one = Figures::default();
        one.add_count(REQUESTS, 1);
        one.add_count(THROTTLED, i64::from(self.status == 429));
        one.add_count(ERRORS, i64::from(self.status >= 400 && self.status != 429));
        one.add_sample(LATENCY_US, self.latency_us);
        let route = format!("{} {}", self.method, self.path);
        meter.add_usage(self.tenant, env.now(), |usage| {
            usage.group_mut(Dimension::NONE, "").add_figures(&one);
            usage.group_mut(KEY, &key).add_figures(&one);
            usage.group_mut(ROUTE, &route).add_figures(&one);
        });
    }
}

/// The processor time of what the jobs do with a second's figures, in milliseconds, and how many facts those are. The first
/// second makes the rows that the others are added to, and is not counted.
async fn measure_writing(folder: &Path, metered: &[MeteredRequest]) -> Outcome<(f64, usize)> {
    let store = Store::open(StoreOptions::sqlite(folder.join("tenant-control.db")), Env::default()).await?;
    let (system, meter) = (store.system(Purpose::Jobs), UsageMeter::default());
    let (mut seconds, mut facts, mut next) = (0.0, 0, 0);
    for second in 0..=SECONDS {
        for _ in 0..REQUESTS_OF_SECOND {
            metered[next % metered.len()].record(&meter, store.env());
            next += 1;
        }
        let (before, started) = (cpu_seconds(std::process::id())?, Instant::now());
        meter.write_usage(&system).await?;
        facts = fold_all(&system).await?;
        if second > 0 {
            seconds += cpu_seconds(std::process::id())? - before;
            println!("  a second's figures: {:.1} ms until they are added up", started.elapsed().as_secs_f64() * 1e3);
        }
    }
    store.close().await;
    Ok((seconds * 1e3 / f64::from(u32::try_from(SECONDS)?), facts))
}

/// Adds up all that is queued; how many facts that were.
async fn fold_all(system: &Db) -> Outcome<usize> {
    let mut facts = 0;
    loop {
        match fold_batch(system).await? {
            0 => return Ok(facts),
            folded => facts += folded,
        }
    }
}
