//! Full inventories over HTTP, as agents send them: of machines that are new, of known ones that have changed a little, and
//! of such that have not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use super::agent::{BODY_BYTES, IngestKey, Run, request};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::median;
use crate::server::{Server, admin, cpu_seconds, make_tenant};
use crate::tickets::client::Connection;

const CONNECTIONS: usize = 16;
/// Inventories per second.
const RATE_AIM: f64 = 200.0;
/// How much cheaper an unchanged one is.
const CHEAPER_AIM: f64 = 5.0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    New,
    Changed,
    Same,
    Later,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::New, "new machines"),
    (Kind::Changed, "known, free space and two packages changed"),
    (Kind::Same, "the same bytes again"),
    (Kind::Later, "only the agent's own times changed"),
];

pub fn run() -> Outcome {
    let (rounds, machines) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_WRITES", 1_000)?);
    let tenants = setting("BENCH_TENANTS", 4)?;
    println!(
        "inventory-ingest: inventories of {BODY_BYTES} bytes, compressed, over {CONNECTIONS} connections of {tenants} tenants, \
         {machines} of each kind a round"
    );
    let folder = folder()?;
    let server = Server::start(folder.path())?;
    let mut keys = Vec::new();
    for n in 0..tenants {
        let slug = format!("bench-{n}");
        make_tenant(&server, folder.path(), &[], &slug)?;
        keys.push(IngestKey::read(&admin(folder.path(), &["ingest-key", "create", "--tenant", &slug])?)?);
    }
    let runtime = runtime()?;
    let mut figures: Vec<Vec<Figure>> = KINDS.iter().map(|_| Vec::new()).collect();
    // The first round warms up.
    for round in 0..=rounds {
        for ((kind, name), figures) in KINDS.iter().zip(&mut figures) {
            let requests = requests(&keys, *kind, round, machines)?;
            let figure = runtime.block_on(Figure::measure(&server, requests))?;
            if round > 0 {
                println!("  {name}: {:.0}/s, {:.2} ms of processor time each", figure.rate, figure.cpu_ms);
                figures.push(figure);
            }
        }
    }
    tell(&figures);
    println!("resident memory {:.0} MB", server.resident_mb()?);
    server.stop()
}

/// Every round has machines of its own.
fn requests(keys: &[IngestKey], kind: Kind, round: usize, machines: usize) -> Outcome<Vec<Vec<u8>>> {
    let (state, at) = match kind {
        Kind::New => (0, 0),
        Kind::Changed | Kind::Same => (1, 1),
        Kind::Later => (1, 2),
    };
    let all = (0..machines).map(|n| {
        let machine = round * machines + n;
        request(&keys[machine % keys.len()], Run { machine, state, at })
    });
    all.collect()
}

struct Figure {
    rate: f64,
    cpu_ms: f64,
}

impl Figure {
    async fn measure(server: &Server, requests: Vec<Vec<u8>>) -> Outcome<Self> {
        let count = f64::from(u32::try_from(requests.len())?);
        let (before, started) = (cpu_seconds(server.id())?, Instant::now());
        send_all(server.address, requests).await?;
        let rate = count / started.elapsed().as_secs_f64();
        Ok(Figure { rate, cpu_ms: (cpu_seconds(server.id())? - before) * 1e3 / count })
    }
}

async fn send_all(address: SocketAddr, requests: Vec<Vec<u8>>) -> Outcome {
    let (next, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(requests));
    let mut callers: JoinSet<Outcome> = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (next, requests) = (next.clone(), requests.clone());
        callers.spawn(async move {
            let mut connection = Connection::open(address).await?;
            while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (status, body) = connection.ask_bytes(request).await?;
                if status != 200 {
                    return Err(format!("{status}: {}", String::from_utf8_lossy(body)).into());
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

fn tell(figures: &[Vec<Figure>]) {
    let [new, changed, same, later] = figures else { return };
    let of = |figures: &[Figure], pick: fn(&Figure) -> f64| median(figures.iter().map(pick).collect());
    for ((_, name), figures) in KINDS.iter().zip(figures) {
        println!(
            "{name}: {:.0}/s, {:.2} ms of processor time each (medians of {} rounds)",
            of(figures, |figure| figure.rate),
            of(figures, |figure| figure.cpu_ms),
            figures.len()
        );
    }
    for (name, rates) in [("new", new), ("changed", changed)] {
        let rate = of(rates, |figure| figure.rate);
        let verdict = if rate >= RATE_AIM { "met" } else { "MISSED" };
        println!("{name} inventories per second: {rate:.0}, aim at least {RATE_AIM} ({verdict})");
    }
    for (name, ours) in [("the same", same), ("later", later)] {
        for (other, theirs) in [("new", new), ("changed", changed)] {
            let ratio = of(theirs, |figure| figure.cpu_ms) / of(ours, |figure| figure.cpu_ms);
            let by_rate = of(ours, |figure| figure.rate) / of(theirs, |figure| figure.rate);
            let verdict = if ratio >= CHEAPER_AIM { "met" } else { "MISSED" };
            println!(
                "{name} against {other}: {ratio:.1} times cheaper by processor time, {by_rate:.1} by rate, aim at least \
                 {CHEAPER_AIM} ({verdict})"
            );
        }
    }
}
