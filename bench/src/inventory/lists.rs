//! Lists of devices over HTTP: a large tenant and ones of usual size in a store with a million devices, against the same
//! tenants in a small store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use super::data::Makings;
use super::load::{Loaded, Plan, Tenant};
use super::queries::Query;
use super::{PATH, keep};
use crate::chance::Chance;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::percentile;
use crate::server::Server;
use crate::tickets::client::Connection;

/// Of the slowest hundredth, in the large store to the small one.
const AIM: f64 = 1.5;
/// Of the slowest hundredth of any query, and of a summary.
const LIMIT_MS: f64 = 50.0;
const CONNECTIONS: usize = 4;
const LARGEST: i64 = 12_000;
/// Tenants of the small store.
const FEW: usize = 10;
/// The first round of a server's own work is over by then.
const SETTLED: Duration = Duration::from_secs(2);

/// `[--keep FOLDER]`: what is loaded there is used again.
pub fn run(arguments: &[&str]) -> Outcome {
    let (rounds, requests) = (setting("BENCH_ROUNDS", 10)?, setting("BENCH_REQUESTS", 100)?);
    let (rows, tenants) = (setting("BENCH_ROWS", 1_000_000)?, setting("BENCH_TENANTS", 1_000)?);
    println!(
        "inventory-lists: {rows} devices of {tenants} tenants with 30 packages each, the largest with {LARGEST}; over \
         {CONNECTIONS} connections, {rounds} rounds of {requests} requests of each query"
    );
    let temporary = folder()?;
    let parent = keep(arguments)?.unwrap_or_else(|| temporary.path().to_owned());
    let makings = Arc::new(Makings::new(true));
    let average = (i64::try_from(rows)? - LARGEST) / i64::try_from(tenants.max(2) - 1)?;
    let mut stores = Vec::new();
    for tenants in [FEW, tenants] {
        let plan = Plan { tenants, largest: LARGEST, average };
        let loaded = Arc::new(Loaded::make(&parent.join(format!("lists-{tenants}")), plan, &makings)?);
        stores.push(Store { server: Server::start(&loaded.folder)?, loaded, makings: makings.clone() });
    }
    std::thread::sleep(SETTLED);
    let runtime = runtime()?;
    let mut measured: Vec<Vec<Measured>> =
        Query::ALL.iter().map(|_| (0..2 * stores.len()).map(|_| Measured::default()).collect()).collect();
    // The first round warms up; it asks for other values.
    for round in 0..=rounds {
        for ((query, _), row) in Query::ALL.iter().zip(&mut measured) {
            for (place, cell) in row.iter_mut().enumerate() {
                let asked = runtime.block_on(stores[place % 2].ask(*query, place < 2, round, requests))?;
                if round > 0 {
                    cell.add(asked);
                }
            }
        }
    }
    // Without rounds it only loads.
    if rounds > 0 {
        print(&measured, tenants);
    }
    for store in stores {
        store.server.stop()?;
    }
    Ok(())
}

struct Store {
    loaded: Arc<Loaded>,
    server: Server,
    makings: Arc<Makings>,
}

impl Store {
    async fn ask(&self, query: Query, largest: bool, round: usize, requests: usize) -> Outcome<Measured> {
        let mut callers: JoinSet<Outcome<Measured>> = JoinSet::new();
        for caller in 0..CONNECTIONS {
            let (loaded, makings, address) = (self.loaded.clone(), self.makings.clone(), self.server.address);
            let mut chance = Chance::new((round * CONNECTIONS + caller) as u64);
            callers.spawn(async move {
                let (mut connection, mut measured) = (Connection::open(address).await?, Measured::default());
                for _ in 0..requests / CONNECTIONS {
                    let place = if largest { 0 } else { 1 + chance.below(loaded.tenants.len() - 1) };
                    let tenant = &loaded.tenants[place];
                    let mut asked = query.spell(&mut chance, tenant, &makings, loaded.end);
                    if query == Query::SecondPage {
                        let answer = connection.ask(&get(tenant, &asked)).await?;
                        let page: Value = serde_json::from_str(answer.body)?;
                        let cursor = page["next_cursor"].as_str().ok_or_else(|| format!("no cursor: {asked}"))?;
                        asked = format!("{asked}&cursor={cursor}");
                    }
                    measured.time(&mut connection, &asked, &get(tenant, &asked)).await?;
                }
                Ok(measured)
            });
        }
        let mut measured = Measured::default();
        for ended in callers.join_all().await {
            measured.add(ended?);
        }
        Ok(measured)
    }
}

fn get(tenant: &Tenant, query: &str) -> String {
    format!("GET {PATH}?{query} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\n\r\n", tenant.key)
}

/// What became of the requests of one query to one kind of tenant in one store.
#[derive(Default)]
struct Measured {
    ms: Vec<f64>,
    rows: usize,
    /// Pages that end before they are full, and say that there is more.
    cut: usize,
    slowest: Option<(f64, String)>,
}

impl Measured {
    fn add(&mut self, other: Measured) {
        self.ms.extend(other.ms);
        self.rows += other.rows;
        self.cut += other.cut;
        if other.slowest.as_ref().map(|(ms, _)| *ms) > self.slowest.as_ref().map(|(ms, _)| *ms) {
            self.slowest = other.slowest;
        }
    }

    async fn time(&mut self, connection: &mut Connection, query: &str, request: &str) -> Outcome {
        let started = Instant::now();
        let answer = connection.ask(request).await?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        if answer.status != 200 {
            return Err(format!("{} {}: {request}", answer.status, answer.body).into());
        }
        self.ms.push(ms);
        let rows = answer.body.matches("\"hostname\":").count();
        self.rows += rows;
        self.cut += usize::from(rows < 50 && answer.body.contains("\"has_more\":true"));
        if self.slowest.as_ref().is_none_or(|(most, _)| ms > *most) {
            self.slowest = Some((ms, query.to_owned()));
        }
        Ok(())
    }

    fn p99(&self) -> f64 {
        percentile(self.ms.clone(), 990)
    }

    fn spell(&self) -> String {
        let count = self.ms.len().max(1);
        let cut = if self.cut > 0 { format!(" {}% cut", 100 * self.cut / count) } else { String::new() };
        format!("{:.2} / {:.2}, {}{cut}", percentile(self.ms.clone(), 500), self.p99(), self.rows / count)
    }
}

fn print(measured: &[Vec<Measured>], tenants: usize) {
    let names = [
        format!("largest of {FEW}"),
        format!("largest of {tenants}"),
        format!("usual of {FEW}"),
        format!("usual of {tenants}"),
    ];
    let head: Vec<String> = names.iter().map(|name| format!("{name:>WIDTH$}")).collect();
    println!(
        "{:<26}{}   p99, large store to small (aim at most {AIM} each)",
        "p50 / p99 in ms, devices",
        head.concat()
    );
    let (mut met, mut worst) = (0, Vec::new());
    for ((query, name), row) in Query::ALL.iter().zip(measured) {
        let cells: Vec<String> = row.iter().map(|cell| format!("{:>WIDTH$}", cell.spell())).collect();
        let ratios: Vec<f64> = row.chunks(2).map(|pair| pair[1].p99() / pair[0].p99()).collect();
        let is_met = ratios.iter().all(|ratio| *ratio <= AIM);
        met += usize::from(is_met);
        let told: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let limit = row.iter().map(Measured::p99).fold(0.0, f64::max);
        let kind = if query.is_summary() { ", a summary" } else { "" };
        let verdict = if limit < LIMIT_MS { "" } else { ", over 50 ms" };
        let met = if is_met { "met" } else { "MISSED" };
        println!("{name:<26}{}   {} ({met}{kind}{verdict})", cells.concat(), told.join(", "));
        worst.extend(row.iter().filter_map(|cell| cell.slowest.clone()));
    }
    println!("aim met by {met} of {} queries; the slowest requests:", Query::ALL.len());
    worst.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    for (ms, query) in worst.iter().take(8) {
        println!("  {ms:.1} ms: {query}");
    }
}

/// Characters of a column.
const WIDTH: usize = 28;
