//! Whether one tenant holds up another: how long a steady tenant waits for its tickets beside one that makes tickets over
//! 16, 64 and 512 connections, against how long beside nobody. On both databases, with the rate limits lifted.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{median, percentile};
use crate::server::{Server, make_tenant};
use crate::tickets::client::{self, Connection};
use crate::tickets::data::Makings;
use crate::tickets::new::New;

/// How many times as long the steady tenant may wait beside 512 connections.
const AIM: f64 = 6.0;
const BESIDE: [usize; 4] = [0, 16, 64, 512];
/// Between two requests of the steady tenant.
const PAUSE: Duration = Duration::from_millis(10);
/// The busy connections are open and their requests queued by then.
const WARM: Duration = Duration::from_millis(500);

/// What one part of a round has shown, in milliseconds.
struct Figures {
    p50: f64,
    p99: f64,
    /// What the busy tenant made and was refused meanwhile.
    made: usize,
    refused: usize,
}

pub fn run() -> Outcome {
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_SECONDS", 6)?);
    println!(
        "fairness: a steady tenant asks one thing at a time, {} ms apart, {seconds} s beside each load; {rounds} rounds",
        PAUSE.as_millis()
    );
    let data = folder()?;
    let server = Server::start(data.path())?;
    compare("embedded store", &server, data.path(), &[], rounds, seconds)?;
    server.stop()?;
    let (cluster, data) = (Cluster::start()?, folder()?);
    let url = cluster.url();
    let store = ["--database-url", url.as_str()];
    let server = Server::start_with(data.path(), &store)?;
    compare("PostgreSQL", &server, data.path(), &store, rounds, seconds)?;
    server.stop()
}

fn compare(name: &str, server: &Server, data: &Path, store: &[&str], rounds: usize, seconds: usize) -> Outcome {
    let (_, steady) = make_tenant(server, data, store, "steady")?;
    let (_, busy) = make_tenant(server, data, store, "busy")?;
    let mut found: Vec<Vec<Figures>> = Vec::new();
    for _ in 0..rounds {
        let round = BESIDE.iter().map(|beside| measure(server.address, &steady, &busy, *beside, seconds));
        found.push(round.collect::<Outcome<_>>()?);
    }
    for (at, beside) in BESIDE.iter().enumerate() {
        let of = |pick: &dyn Fn(&[Figures]) -> f64| median(found.iter().map(|round| pick(round)).collect());
        let ratio = of(&|round| round[at].p99 / round[0].p99);
        let verdict = match *beside {
            512 if ratio <= AIM => format!(", aim at most {AIM} (met)"),
            512 => format!(", aim at most {AIM} (MISSED)"),
            _ => String::new(),
        };
        println!(
            "  {name}, beside {beside:>3} connections: p50 {:.1} ms, p99 {:.1} ms, {:.1} and {ratio:.1} times as beside \
             nobody{verdict}; the busy tenant made {:.0}/s and was refused {:.0}/s",
            of(&|round| round[at].p50),
            of(&|round| round[at].p99),
            of(&|round| round[at].p50 / round[0].p50),
            of(&|round| per_second(round[at].made, seconds)),
            of(&|round| per_second(round[at].refused, seconds)),
        );
    }
    Ok(())
}

fn per_second(count: usize, seconds: usize) -> f64 {
    let small = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    small(count) / small(seconds)
}

fn measure(address: SocketAddr, steady: &str, busy: &str, beside: usize, seconds: usize) -> Outcome<Figures> {
    let runtime = runtime()?;
    let (stop, made, refused) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
    let makings = Arc::new(Makings::new());
    let mut load: JoinSet<Outcome> = JoinSet::new();
    for n in 0..beside {
        let request = client::post(busy, &New::nth(2 * n + 1, &makings, &[]).body());
        let (stop, made, refused) = (stop.clone(), Arc::clone(&made), Arc::clone(&refused));
        load.spawn_on(keep_busy(address, request, stop, made, refused), runtime.handle());
    }
    std::thread::sleep(WARM);
    let before: (usize, usize) =
        (AtomicUsize::load(&made, Ordering::Relaxed), AtomicUsize::load(&refused, Ordering::Relaxed));
    // On a thread of its own, so that it does not wait for the load's own client.
    let request = client::post(steady, &New::nth(1, &makings, &[]).body());
    let until = Duration::from_secs(u64::try_from(seconds)?);
    let asked = std::thread::spawn(move || ask_steadily(address, &request, until));
    let waits = asked.join().map_err(|_| "the steady client panicked")??;
    let after = (made.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    stop.store(true, Ordering::Relaxed);
    for ended in runtime.block_on(load.join_all()) {
        ended?;
    }
    let (made, refused) = (after.0 - before.0, after.1 - before.1);
    Ok(Figures { p50: percentile(waits.clone(), 500), p99: percentile(waits, 990), made, refused })
}

async fn keep_busy(
    address: SocketAddr,
    request: String,
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
) -> Outcome {
    let mut connection = Connection::open(address).await?;
    while !stop.load(Ordering::Relaxed) {
        match connection.ask(&request).await?.status {
            201 => made.fetch_add(1, Ordering::Relaxed),
            // Its own fault, and what keeps others served.
            429 | 503 => refused.fetch_add(1, Ordering::Relaxed),
            status => return Err(format!("the busy tenant got {status}").into()),
        };
    }
    Ok(())
}

fn ask_steadily(address: SocketAddr, request: &str, time: Duration) -> Outcome<Vec<f64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = Connection::open(address).await?;
        let (started, mut waits) = (Instant::now(), Vec::new());
        while started.elapsed() < time {
            let asked = Instant::now();
            let answer = connection.ask(request).await?;
            waits.push(asked.elapsed().as_secs_f64() * 1e3);
            if answer.status != 201 {
                return Err(format!("the steady tenant got {}: {}", answer.status, answer.body).into());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(waits)
    })
}
