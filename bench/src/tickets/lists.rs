//! Lists of tickets over HTTP, at several sizes of the tenant: the slowest hundredth of each query at the largest size
//! against that at the smallest.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use super::client::{Connection, get};
use super::data::Makings;
use super::load::Loaded;
use super::queries::Query;
use crate::chance::Chance;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::percentile;
use crate::server::Server;

const AIM: f64 = 1.5;
const CONNECTIONS: usize = 4;
const SIZES: &str = "10000,1000000,10000000";
/// The first round of a server's own work is over by then.
const SETTLED: Duration = Duration::from_secs(2);

/// `[SIZES] [--data FOLDER]`: a folder that is named is kept, and what is loaded there is used again.
pub fn run(arguments: &[&str]) -> Outcome {
    let (rounds, requests) = (setting("BENCH_ROUNDS", 10)?, setting("BENCH_REQUESTS", 100)?);
    let (sizes, data) = match arguments {
        [] => (SIZES, None),
        ["--data", data] => (SIZES, Some(*data)),
        [sizes] => (*sizes, None),
        [sizes, "--data", data] | ["--data", data, sizes] => (*sizes, Some(*data)),
        _ => return Err("usage: bench tickets-lists [SIZES] [--data FOLDER]".into()),
    };
    println!(
        "tickets-lists: over {CONNECTIONS} connections, {rounds} rounds of {requests} requests of each query and size"
    );
    let temporary = folder()?;
    let parent = data.map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let makings = Arc::new(Makings::new());
    let mut tenants = Vec::new();
    for size in sizes.split(',') {
        let size: u32 = size.replace('_', "").parse()?;
        let loaded = Arc::new(Loaded::make(&parent.join(size.to_string()), size, &makings)?);
        tenants.push(Tenant { server: Server::start(&loaded.folder)?, loaded, makings: makings.clone() });
    }
    std::thread::sleep(SETTLED);
    let runtime = runtime()?;
    let mut measured: Vec<Vec<Measured>> =
        Query::ALL.iter().map(|_| tenants.iter().map(|_| Measured::default()).collect()).collect();
    // The first round warms up; it asks for other values.
    for round in 0..=rounds {
        for ((query, _), row) in Query::ALL.iter().zip(&mut measured) {
            for (tenant, cell) in tenants.iter().zip(row) {
                let asked = runtime.block_on(tenant.ask(*query, round, requests))?;
                if round > 0 {
                    cell.add(asked);
                }
            }
        }
    }
    // Without rounds it only loads.
    if rounds > 0 {
        print(&tenants, &measured);
    }
    for tenant in tenants {
        tenant.server.stop()?;
    }
    Ok(())
}

struct Tenant {
    loaded: Arc<Loaded>,
    server: Server,
    makings: Arc<Makings>,
}

/// What became of the requests of one query at one size.
#[derive(Default)]
struct Measured {
    ms: Vec<f64>,
    rows: usize,
    /// Answered that the query is too broad.
    refused: usize,
}

impl Measured {
    fn add(&mut self, other: Measured) {
        self.ms.extend(other.ms);
        self.rows += other.rows;
        self.refused += other.refused;
    }
}

impl Tenant {
    async fn ask(&self, query: Query, round: usize, requests: usize) -> Outcome<Measured> {
        let mut callers: JoinSet<Outcome<Measured>> = JoinSet::new();
        for caller in 0..CONNECTIONS {
            let (loaded, makings, address) = (self.loaded.clone(), self.makings.clone(), self.server.address);
            let mut chance = Chance::new((round * CONNECTIONS + caller) as u64);
            callers.spawn(async move {
                let (mut connection, mut measured) = (Connection::open(address).await?, Measured::default());
                for _ in 0..requests / CONNECTIONS {
                    let mut asked = query.spell(&mut chance, &loaded, &makings);
                    if query == Query::DeepPage {
                        let answer = connection.ask(&get(&loaded.key, &asked)).await?;
                        let page: Value = serde_json::from_str(answer.body)?;
                        let cursor = page["next_cursor"].as_str().ok_or_else(|| format!("no cursor: {asked}"))?;
                        asked = format!("{asked}&cursor={cursor}");
                    }
                    measured.time(&mut connection, &get(&loaded.key, &asked)).await?;
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

impl Measured {
    fn p99(&self) -> f64 {
        percentile(self.ms.clone(), 990)
    }

    fn spell(&self) -> String {
        let count = self.ms.len();
        let rows = self.rows.checked_div(count - self.refused).unwrap_or(0);
        let refused = if self.refused > 0 { format!(", {}/{count} refused", self.refused) } else { String::new() };
        format!("{:.2} / {:.2}, {rows}{refused}", percentile(self.ms.clone(), 500), self.p99())
    }

    async fn time(&mut self, connection: &mut Connection, request: &str) -> Outcome {
        let started = Instant::now();
        let answer = connection.ask(request).await?;
        self.ms.push(started.elapsed().as_secs_f64() * 1e3);
        match answer.status {
            200 => self.rows += answer.body.matches("\"number\":").count(),
            400 if answer.body.contains("query_too_broad") => self.refused += 1,
            status => return Err(format!("{status} {}: {request}", answer.body).into()),
        }
        Ok(())
    }
}

fn print(tenants: &[Tenant], measured: &[Vec<Measured>]) {
    let sizes: Vec<String> = tenants.iter().map(|tenant| format!("{:>WIDTH$}", tenant.loaded.size)).collect();
    println!("{:<24}{}   p99, largest to smallest (aim at most {AIM})", "p50 / p99 in ms, rows", sizes.concat());
    let mut met = 0;
    for ((_, name), row) in Query::ALL.iter().zip(measured) {
        let cells: Vec<String> = row.iter().map(|cell| format!("{:>WIDTH$}", cell.spell())).collect();
        let ratio = row.last().zip(row.first()).map_or(f64::NAN, |(last, first)| last.p99() / first.p99());
        let is_met = ratio <= AIM && row.iter().all(|cell| cell.refused == 0);
        met += usize::from(is_met);
        println!("{name:<24}{}   {ratio:.2} ({})", cells.concat(), if is_met { "met" } else { "MISSED" });
    }
    println!("aim met by {met} of {} queries", Query::ALL.len());
}

/// Characters of a column.
const WIDTH: usize = 38;
