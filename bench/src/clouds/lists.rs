//! Lists of a fleet over HTTP, against the newest tickets of a tenant with as many, and against the newest machines of a small
//! fleet; all on one server, in turn.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Env, Timestamp};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::fleet::{REGIONS, ROLES, TEAMS};
use super::provider::{BenchProvider, VMS_PATH, start_server};
use super::stub::{CloudStub, LARGE_KEY, SMALL_KEY};
use crate::chance::Chance;
use crate::harness::{Outcome, folder, setting};
use crate::report::percentile;
use crate::server::{Server, make_key_of};
use crate::tickets::client::{Connection, create_all, post};

/// Of the slowest hundredth, against either reference.
const AIM: f64 = 1.5;
const CONNECTIONS: usize = 4;
const WRITERS: usize = 16;
const TICKETS_PATH: &str = "/api/psa/tickets";
/// The index follows, and the log is in the file by then.
const SETTLED: Duration = Duration::from_secs(5);
const DESCRIPTION: &str = "It worked yesterday and nothing was changed since then. The person next to me has the same \
    problem, and restarting did not help. Please call before you come; I am in a meeting until noon.";

#[derive(Clone, Copy, PartialEq, Eq)]
enum FleetQuery {
    Tickets,
    SmallFleet,
    Newest,
    Provider,
    RegionRunning,
    RegionStopped,
    Tag,
    WordStart,
    OneName,
    Changes,
    Summary,
}

/// The first two are what the others are compared with.
const QUERIES: [(FleetQuery, &str); 11] = [
    (FleetQuery::Tickets, "newest 50 tickets"),
    (FleetQuery::SmallFleet, "newest 50 of a small fleet"),
    (FleetQuery::Newest, "newest 50"),
    (FleetQuery::Provider, "provider_id"),
    (FleetQuery::RegionRunning, "region, state=running"),
    (FleetQuery::RegionStopped, "region, state=stopped"),
    (FleetQuery::Tag, "tag"),
    (FleetQuery::WordStart, "q, start of a word"),
    (FleetQuery::OneName, "q, one machine"),
    (FleetQuery::Changes, "updated_since"),
    (FleetQuery::Summary, "view=summary"),
];

pub fn run(runtime: &Runtime, stub: &CloudStub, few: usize) -> Outcome {
    let (rounds, requests) = (setting("BENCH_ROUNDS", 10)?, setting("BENCH_REQUESTS", 100)?);
    let data = folder()?;
    let server = start_server(data.path(), stub)?;
    let tenants = Arc::new(Tenants::make(runtime, &server, data.path(), stub)?);
    println!(
        "lists of {} machines, over {CONNECTIONS} connections, {rounds} rounds of {requests} requests of each; {few} machines in \
         the small fleet, {} tickets",
        tenants.machines, tenants.machines
    );
    std::thread::sleep(SETTLED);
    let mut measured: Vec<Measured> = QUERIES.iter().map(|_| Measured::default()).collect();
    // The first round warms up; it asks for other values.
    for round in 0..=rounds {
        for ((query, _), cell) in QUERIES.iter().zip(&mut measured) {
            let asked = runtime.block_on(ask(server.address, &tenants, *query, round, requests))?;
            if round > 0 {
                cell.add(asked);
            }
        }
    }
    print(&measured);
    server.stop()
}

/// What is asked for.
struct Tenants {
    large: BenchProvider,
    small: BenchProvider,
    tickets_key: String,
    machines: usize,
    /// One machine in a hundred of the large fleet has changed since.
    changed_since: Timestamp,
}

impl Tenants {
    fn make(runtime: &Runtime, server: &Server, data: &Path, stub: &CloudStub) -> Outcome<Self> {
        let began_at = Env::default().now();
        let large = BenchProvider::create(server, data, "large", LARGE_KEY, &REGIONS)?;
        let small = BenchProvider::create(server, data, "small", SMALL_KEY, &REGIONS[..1])?;
        large.wait_for_sync(began_at)?;
        small.wait_for_sync(began_at)?;
        stub.change_one_percent(LARGE_KEY, 0);
        let changed_since = Env::default().now();
        large.request_sync()?;
        large.wait_for_sync(changed_since)?;
        let machines = large.count_machines(None)?;
        let tickets_key = make_key_of(server, data, "tickets")?;
        let key = tickets_key.clone();
        let request = move |n: usize| {
            let subject = format!("The {} of room {n} is slow since the update", ROLES[n % ROLES.len()]);
            let body =
                json!({"subject": subject, "description": DESCRIPTION, "priority": "high", "tags": ["slow", "update"]});
            post(&key, &body.to_string())
        };
        runtime.block_on(create_all(server.address, WRITERS, 0, machines, request))?;
        Ok(Tenants { large, small, tickets_key, machines, changed_since })
    }

    /// The whole request. What is sought is as frequent in every part of the fleet.
    fn spell(&self, query: FleetQuery, chance: &mut Chance) -> String {
        let region = REGIONS[chance.below(REGIONS.len())];
        let asked = match query {
            FleetQuery::Tickets | FleetQuery::SmallFleet | FleetQuery::Newest => String::new(),
            FleetQuery::Provider => format!("?provider_id={}", self.large.id),
            FleetQuery::RegionRunning => format!("?region={region}&state=running"),
            FleetQuery::RegionStopped => format!("?region={region}&state=stopped"),
            FleetQuery::Tag => format!("?tag=team:team-{:02}", chance.below(TEAMS)),
            FleetQuery::WordStart => format!("?q={}", &ROLES[chance.below(ROLES.len())][..3]),
            FleetQuery::OneName => format!("?q={:05}", chance.below(self.machines)),
            FleetQuery::Changes => format!("?updated_since={}", self.changed_since),
            FleetQuery::Summary => "?view=summary".to_owned(),
        };
        let (path, key) = match query {
            FleetQuery::Tickets => (TICKETS_PATH, &self.tickets_key),
            FleetQuery::SmallFleet => (VMS_PATH, &self.small.key),
            _ => (VMS_PATH, &self.large.key),
        };
        format!("GET {path}{asked} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n")
    }
}

/// What became of the requests of one query.
#[derive(Default)]
struct Measured {
    ms: Vec<f64>,
    rows: usize,
    /// Pages that end before they are full, and say that there is more.
    cut: usize,
}

impl Measured {
    fn add(&mut self, other: Measured) {
        self.ms.extend(other.ms);
        self.rows += other.rows;
        self.cut += other.cut;
    }

    async fn time(&mut self, connection: &mut Connection, request: &str) -> Outcome {
        let started = Instant::now();
        let answer = connection.ask(request).await?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        if answer.status != 200 {
            return Err(format!("{} {}: {request}", answer.status, answer.body).into());
        }
        self.ms.push(ms);
        let rows = answer.body.matches("\"created_at\":").count();
        self.rows += rows;
        self.cut += usize::from(rows < 50 && answer.body.contains("\"has_more\":true"));
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

async fn ask(
    address: SocketAddr,
    tenants: &Arc<Tenants>,
    query: FleetQuery,
    round: usize,
    requests: usize,
) -> Outcome<Measured> {
    let mut callers: JoinSet<Outcome<Measured>> = JoinSet::new();
    for caller in 0..CONNECTIONS {
        let tenants = tenants.clone();
        let mut chance = Chance::new((round * CONNECTIONS + caller) as u64);
        callers.spawn(async move {
            let (mut connection, mut measured) = (Connection::open(address).await?, Measured::default());
            for _ in 0..requests / CONNECTIONS {
                measured.time(&mut connection, &tenants.spell(query, &mut chance)).await?;
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
    let [tickets, small, ..] = measured else { return };
    println!(
        "{:<28}{:>WIDTH$}   p99 to that of tickets, of the small fleet (aim at most {AIM} each)",
        "", "p50 / p99 in ms, rows"
    );
    let (mut met, mut lists) = (0, 0);
    for ((query, name), cell) in QUERIES.iter().zip(measured) {
        let ratios = [cell.p99() / tickets.p99(), cell.p99() / small.p99()];
        let is_met = ratios.iter().all(|ratio| *ratio <= AIM);
        let verdict = match query {
            FleetQuery::Tickets | FleetQuery::SmallFleet => "compared with",
            // It reads every machine, and is no list.
            FleetQuery::Summary => "without an aim",
            _ => {
                lists += 1;
                met += usize::from(is_met);
                if is_met { "met" } else { "MISSED" }
            }
        };
        println!("{name:<28}{:>WIDTH$}   {:.2}, {:.2} ({verdict})", cell.spell(), ratios[0], ratios[1]);
    }
    println!("aim met by {met} of {lists} lists");
}

/// Characters of a column.
const WIDTH: usize = 28;
