//! Pages of the customer aggregate of a large tenant over HTTP, beside the newest tickets of a small one on the same server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::data::Plan;
use super::load::Loaded;
use crate::chance::Chance;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::percentile;
use crate::server::{Server, make_key_of};
use crate::tickets::client::{Connection, create_all, post};

/// Of the slowest hundredth.
const LIMIT_MS: f64 = 50.0;
const CONNECTIONS: usize = 4;
const TICKETS: usize = 500;
const PATH: &str = "/api/backup/customer-aggregate";
const TICKETS_PATH: &str = "/api/psa/tickets";
/// The index has been built, and what the clock had to do since the file was filled is done by then.
const SETTLED: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq)]
enum AggregateQuery {
    Tickets,
    Fifty,
    TwoHundred,
    FiftyAnywhere,
    TwoHundredAnywhere,
    Critical,
    OneCustomer,
}

/// The first is what the others are shown beside.
const QUERIES: [(AggregateQuery, &str); 7] = [
    (AggregateQuery::Tickets, "newest 50 tickets of a small tenant"),
    (AggregateQuery::Fifty, "50 customers"),
    (AggregateQuery::TwoHundred, "200 customers"),
    (AggregateQuery::FiftyAnywhere, "50 customers, anywhere"),
    (AggregateQuery::TwoHundredAnywhere, "200 customers, anywhere"),
    (AggregateQuery::Critical, "50 customers, health=critical"),
    (AggregateQuery::OneCustomer, "one customer"),
];

pub fn run() -> Outcome {
    let (rounds, requests) = (setting("BENCH_ROUNDS", 10)?, setting("BENCH_REQUESTS", 100)?);
    let plan = Plan {
        devices: setting("BENCH_ROWS", 100_000)?,
        reports: setting("BENCH_RUNS", 100)?,
        silent_ms: 0,
        has_troubles: true,
    };
    println!(
        "backups-aggregate: GET {PATH} over {CONNECTIONS} connections, {rounds} rounds of {requests} requests of each query"
    );
    let (data, runtime) = (folder()?, runtime()?);
    let loaded = Loaded::make(data.path(), plan)?;
    let server = Server::start(data.path())?;
    std::thread::sleep(SETTLED);
    let asked = Arc::new(Asked::prepare(&runtime, &server, data.path(), &loaded)?);
    let mut measured: Vec<Measured> = QUERIES.iter().map(|_| Measured::default()).collect();
    // The first round warms up; it asks for other values.
    for round in 0..=rounds {
        for ((query, _), cell) in QUERIES.iter().zip(&mut measured) {
            let found = runtime.block_on(ask(server.address, &asked, *query, round, requests))?;
            if round > 0 {
                cell.add(found);
            }
        }
    }
    print(&measured);
    println!("resident memory {:.0} MB", server.resident_mb()?);
    server.stop()
}

/// What is asked for.
struct Asked {
    key: String,
    tickets_key: String,
    /// Where pages begin, all over the list.
    cursors: Vec<String>,
    organizations: Vec<String>,
}

impl Asked {
    fn prepare(runtime: &Runtime, server: &Server, data: &Path, loaded: &Loaded) -> Outcome<Self> {
        let tickets_key = make_key_of(server, data, "small")?;
        let key = tickets_key.clone();
        let ticket = move |n: usize| {
            let body = json!({"subject": format!("The printer of room {n} does not answer"), "priority": "high"});
            post(&key, &body.to_string())
        };
        runtime.block_on(create_all(server.address, CONNECTIONS, 0, TICKETS, ticket))?;
        let organizations = loaded.customers.iter().map(|customer| customer.id.to_string()).collect();
        let cursors = runtime.block_on(walk(server.address, loaded))?;
        Ok(Asked { key: loaded.key.clone(), tickets_key, cursors, organizations })
    }

    /// The whole request.
    fn spell(&self, query: AggregateQuery, chance: &mut Chance) -> String {
        let cursor = self.cursors.get(chance.below(self.cursors.len())).map(|cursor| format!("&cursor={cursor}"));
        let cursor = cursor.unwrap_or_default();
        let asked = match query {
            AggregateQuery::Tickets => return get(TICKETS_PATH, "limit=50", &self.tickets_key),
            AggregateQuery::Fifty => "limit=50".to_owned(),
            AggregateQuery::TwoHundred => "limit=200".to_owned(),
            AggregateQuery::FiftyAnywhere => format!("limit=50{cursor}"),
            AggregateQuery::TwoHundredAnywhere => format!("limit=200{cursor}"),
            AggregateQuery::Critical => "health=critical".to_owned(),
            AggregateQuery::OneCustomer => {
                format!("organization_id={}", self.organizations[chance.below(self.organizations.len())])
            }
        };
        get(PATH, &asked, &self.key)
    }
}

fn get(path: &str, query: &str, key: &str) -> String {
    format!("GET {path}?{query} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n")
}

/// Goes through all pages once: where each but the last ends, and whether all that was filled is there.
async fn walk(address: SocketAddr, loaded: &Loaded) -> Outcome<Vec<String>> {
    let (mut connection, mut cursors, mut customers) = (Connection::open(address).await?, Vec::<String>::new(), 0);
    loop {
        let cursor = cursors.last().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let answer = connection.ask(&get(PATH, &format!("limit=50{cursor}"), &loaded.key)).await?;
        let page: Value = serde_json::from_str(answer.body)?;
        customers += page["data"].as_array().map_or(0, Vec::len);
        if let Some(next) = page["next_cursor"].as_str() {
            cursors.push(next.to_owned());
            continue;
        }
        let totals = &page["totals"];
        println!("  the totals: {totals}");
        let devices = loaded.machines().count();
        if customers == loaded.customers.len() && totals["devices"]["total"] == json!(devices) {
            // What begins there is a whole page.
            cursors.truncate(cursors.len().saturating_sub(4));
            return Ok(cursors);
        }
        return Err(format!("{customers} customers are listed, and not those that were filled").into());
    }
}

/// What became of the requests of one query.
#[derive(Default)]
struct Measured {
    ms: Vec<f64>,
    rows: usize,
    bytes: usize,
}

impl Measured {
    fn add(&mut self, other: Measured) {
        self.ms.extend(other.ms);
        self.rows += other.rows;
        self.bytes += other.bytes;
    }

    async fn time(&mut self, connection: &mut Connection, request: &str) -> Outcome {
        let started = Instant::now();
        let answer = connection.ask(request).await?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        if answer.status != 200 {
            return Err(format!("{} {}: {request}", answer.status, answer.body).into());
        }
        self.ms.push(ms);
        self.rows +=
            answer.body.matches(if request.contains(PATH) { "\"rule_32110\":" } else { "\"subject\":" }).count();
        self.bytes += answer.body.len();
        Ok(())
    }

    fn p99(&self) -> f64 {
        percentile(self.ms.clone(), 990)
    }

    fn spell(&self) -> String {
        let count = self.ms.len().max(1);
        let (p50, kb) = (percentile(self.ms.clone(), 500), self.bytes / count / 1_000);
        format!("{p50:.1} / {:.1}, {}, {kb}", self.p99(), self.rows / count)
    }
}

async fn ask(
    address: SocketAddr,
    asked: &Arc<Asked>,
    query: AggregateQuery,
    round: usize,
    requests: usize,
) -> Outcome<Measured> {
    let mut callers: JoinSet<Outcome<Measured>> = JoinSet::new();
    for caller in 0..CONNECTIONS {
        let asked = asked.clone();
        let mut chance = Chance::new((round * CONNECTIONS + caller) as u64);
        callers.spawn(async move {
            let (mut connection, mut measured) = (Connection::open(address).await?, Measured::default());
            for _ in 0..requests / CONNECTIONS {
                measured.time(&mut connection, &asked.spell(query, &mut chance)).await?;
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

fn print(measured: &[Measured]) {
    let Some(tickets) = measured.first() else { return };
    println!("{:<38}{:>WIDTH$}   p99 to that of tickets (limit {LIMIT_MS} ms)", "", "p50 / p99 in ms, rows, kB");
    let mut met = 0;
    for ((query, name), cell) in QUERIES.iter().zip(measured) {
        let is_met = cell.p99() < LIMIT_MS;
        let verdict = match query {
            AggregateQuery::Tickets => "compared with",
            _ if is_met => "met",
            _ => "MISSED",
        };
        met += usize::from(is_met && *query != AggregateQuery::Tickets);
        println!("{name:<38}{:>WIDTH$}   {:.2} ({verdict})", cell.spell(), cell.p99() / tickets.p99());
    }
    println!("limit met by {met} of {} pages", QUERIES.len() - 1);
}

/// Characters of a column.
const WIDTH: usize = 28;
