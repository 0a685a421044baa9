//! Syncs of a fleet: of machines that are all new, of such that have not changed, and of such of which one in a hundred has.
//! What counts is the time during which the service waits for none of the provider's answers.

use std::path::Path;
use std::time::{Duration, Instant};

use kernel::base::{Env, Timestamp};

use super::fleet::{Fleet, REGIONS};
use super::lists;
use super::provider::{BenchProvider, LISTED_MAX, start_server};
use super::stub::{CloudStub, LARGE_KEY, SMALL_KEY, StubAccount};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{limit, median};
use crate::server::{Server, cpu_seconds};

/// Of the time from the request for a sync to its end, outside of all answers.
const OUTSIDE_LIMIT_PERCENT: f64 = 20.0;
/// Machines on a page of the stub: half of what the service asks for, as of a cloud that cuts its pages, and all of it.
const PAGE_SIZES: [usize; 2] = [100, 200];
/// Syncs in which nothing has changed, and as many in which something has, beside each first one.
const SYNCS: usize = 2;
/// Machines of the fleet whose lists are compared with.
const FEW: usize = 100;
/// The first round of a server's own work is over by then, and so is what a sync leaves to do: the index, and the log's way
/// into the file.
const SETTLED: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncKind {
    First,
    Unchanged,
    Changed,
}

const KINDS: [(SyncKind, &str); 3] = [
    (SyncKind::First, "first sync, all new"),
    (SyncKind::Unchanged, "nothing changed"),
    (SyncKind::Changed, "1 % changed state"),
];

pub fn run() -> Outcome {
    let (rounds, machines) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_ROWS", 10_000)?);
    println!(
        "clouds-sync: {machines} machines in {} regions of a stub of EC2; {rounds} rounds for each size of its pages, each a first \
         sync, {SYNCS} in which nothing has changed and {SYNCS} in which 1 % has",
        REGIONS.len()
    );
    let runtime = runtime()?;
    let accounts = vec![
        StubAccount { access_key_id: LARGE_KEY, account_id: "123456789012", fleet: Fleet::new(machines, &REGIONS) },
        StubAccount { access_key_id: SMALL_KEY, account_id: "210987654321", fleet: Fleet::new(FEW, &REGIONS[..1]) },
    ];
    let stub = runtime.block_on(CloudStub::start(accounts))?;
    for page_max in PAGE_SIZES {
        stub.set_page_max(page_max);
        println!("pages of {page_max}:");
        let mut measured: [Vec<SyncFigures>; 3] = Default::default();
        let mut idle = Vec::new();
        for round in 0..rounds {
            let data = folder()?;
            idle.push(measure_round(data.path(), &stub, machines, round, &mut measured)?);
        }
        tell(page_max, &measured, median(idle));
    }
    lists::run(&runtime, &stub, FEW)
}

/// One round on a store of its own. Returns the memory of the idle server.
fn measure_round(
    data: &Path,
    stub: &CloudStub,
    machines: usize,
    round: usize,
    measured: &mut [Vec<SyncFigures>; 3],
) -> Outcome<f64> {
    let server = start_server(data, stub)?;
    std::thread::sleep(SETTLED);
    let idle_mb = server.resident_mb()?;
    let mut provider: Option<BenchProvider> = None;
    for ((kind, name), figures) in KINDS.iter().zip(measured) {
        let syncs = if *kind == SyncKind::First { 1 } else { SYNCS };
        for sync in 0..syncs {
            let changed =
                if *kind == SyncKind::Changed { stub.change_one_percent(LARGE_KEY, round * SYNCS + sync) } else { 0 };
            let (began_at, meter) = (Env::default().now(), SyncMeter::start(&server)?);
            let figure = match &provider {
                None => {
                    let made = BenchProvider::create(&server, data, "bench", LARGE_KEY, &REGIONS)?;
                    let ended = made.wait_for_sync(began_at)?;
                    provider = Some(made);
                    let began = stub.find_verification_end(meter.began).ok_or("no page was asked for")?;
                    meter.finish(&server, stub, began, ended)?
                }
                Some(provider) => {
                    provider.request_sync()?;
                    let ended = provider.wait_for_sync(began_at)?;
                    meter.finish(&server, stub, meter.began, ended)?
                }
            };
            figure.print(name);
            figures.push(figure);
            let provider = provider.as_ref().ok_or("no provider")?;
            let expected = if *kind == SyncKind::First { machines } else { changed };
            check_fleet(provider, stub, machines, (began_at, expected))?;
            std::thread::sleep(SETTLED);
        }
    }
    server.stop()?;
    Ok(idle_mb)
}

/// A sync that leaves something out would be a quick one.
fn check_fleet(
    provider: &BenchProvider,
    stub: &CloudStub,
    machines: usize,
    (since, expected): (Timestamp, usize),
) -> Outcome {
    let counts = (provider.count_machines(None)?, provider.count_machines(Some("stopped"))?);
    let changes = provider.count_changes(since)?;
    if counts == (machines, stub.count_stopped(LARGE_KEY)) && changes == expected.min(LISTED_MAX) {
        return Ok(());
    }
    Err(format!(
        "the fleet is not that of the stub: {counts:?} machines and stopped ones of {machines} and {}, {changes} changes of \
         {expected}",
        stub.count_stopped(LARGE_KEY)
    )
    .into())
}

/// What is read before a sync.
struct SyncMeter {
    began: Instant,
    cpu_seconds: f64,
}

/// One sync.
struct SyncFigures {
    outside_percent: f64,
    seconds: f64,
    /// Against the answers of one region, one after the other.
    chain_ratio: f64,
    answers: usize,
    /// Of the server; of a first sync with the verification before it.
    cpu_ms: f64,
    resident_mb: f64,
    peak_mb: f64,
}

impl SyncMeter {
    fn start(server: &Server) -> Outcome<Self> {
        server.forget_peak()?;
        Ok(SyncMeter { cpu_seconds: cpu_seconds(server.id())?, began: Instant::now() })
    }

    fn finish(&self, server: &Server, stub: &CloudStub, began: Instant, ended: Instant) -> Outcome<SyncFigures> {
        let cpu_ms = (cpu_seconds(server.id())? - self.cpu_seconds) * 1e3;
        let (pending, wall) = (stub.measure_pending(began, ended), ended - began);
        Ok(SyncFigures {
            outside_percent: 100.0 * wall.saturating_sub(pending.time).as_secs_f64() / wall.as_secs_f64(),
            seconds: wall.as_secs_f64(),
            chain_ratio: wall.as_secs_f64() / pending.longest_chain.as_secs_f64(),
            answers: pending.count,
            cpu_ms,
            resident_mb: server.resident_mb()?,
            peak_mb: server.peak_mb()?,
        })
    }
}

impl SyncFigures {
    fn print(&self, name: &str) {
        println!(
            "  {name}: {:.2} s, {:.1} % of it outside of {} answers, {:.2} times the longest chain of them; {:.0} ms of processor \
             time; {:.0} MB resident, at most {:.0}",
            self.seconds,
            self.outside_percent,
            self.answers,
            self.chain_ratio,
            self.cpu_ms,
            self.resident_mb,
            self.peak_mb
        );
    }
}

fn tell(page_max: usize, measured: &[Vec<SyncFigures>; 3], idle_mb: f64) {
    let of = |figures: &[SyncFigures], pick: fn(&SyncFigures) -> f64| median(figures.iter().map(pick).collect());
    let first_cpu_ms = of(&measured[0], |figure| figure.cpu_ms);
    for ((_, name), figures) in KINDS.iter().zip(measured) {
        let outside = figures.iter().map(|figure| figure.outside_percent).collect();
        limit(&format!("pages of {page_max}, {name}: outside of answers"), outside, "%", OUTSIDE_LIMIT_PERCENT);
        let (cpu_ms, peak_mb) = (of(figures, |figure| figure.cpu_ms), of(figures, |figure| figure.peak_mb));
        println!(
            "  {:.2} times the longest chain of answers; processor time {cpu_ms:.0} ms, {:.2} of a first sync; memory at most \
             {peak_mb:.0} MB, {:.1} times the {idle_mb:.0} MB of an idle server, and {:.0} MB after it",
            of(figures, |figure| figure.chain_ratio),
            cpu_ms / first_cpu_ms,
            peak_mb / idle_mb,
            of(figures, |figure| figure.resident_mb),
        );
    }
}
