//! Deliveries per second of the release binary, against a bare loop of its own HTTP client: what it costs to find what
//! is due, to sign it and to note what became of it. The receivers are one process for both.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kernel::base::{Actor, Env};
use kernel::events::{EventKind, publish};
use kernel::store::{Store, StoreOptions};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::sink::{REPORT, RESET};
use super::{Tenant, bare, database, start};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, median};
use crate::server::{cpu_seconds, get};

const AIM: f64 = 0.5;
/// On a port each, as they would be on a host each.
const ENDPOINTS: usize = 16;
/// Longer than any round that is worth measuring.
const ROUND_MAX: Duration = Duration::from_mins(5);

const KIND: EventKind<Value> = EventKind::new("ticket.created", "A ticket was created.");

pub fn run() -> Outcome {
    let (rounds, deliveries) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_DELIVERIES", 20_000)?);
    let events = deliveries.div_ceil(ENDPOINTS);
    let deliveries = events * ENDPOINTS;
    println!(
        "webhooks-rate: {deliveries} deliveries to {ENDPOINTS} endpoints of one tenant, {} under way at once",
        bare::PLACES
    );
    let (runtime, sink, data) = (runtime()?, Sink::start(ENDPOINTS)?, folder()?);
    let server = start(data.path(), &[])?;
    let tenant = Tenant::make(&server, data.path(), "bench")?;
    for (n, receiver) in sink.addresses.iter().enumerate() {
        tenant.subscribe(&server, "ticket.*", *receiver, &format!("endpoint-{n}"))?;
    }
    server.stop()?;
    let id = tenant.id(data.path())?;
    let mut comparison = Comparison::new("deliveries/s", "server", "bare client");
    let (mut our_cpu, mut their_cpu) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        runtime.block_on(preload(data.path(), &id, events))?;
        let body = a_body(data.path())?;
        sink.ask(RESET)?;
        let before = cpu_seconds(std::process::id())?;
        runtime.block_on(bare::send(&sink.addresses, &body, deliveries))?;
        their_cpu.push((cpu_seconds(std::process::id())? - before) / sink.received_all(deliveries)?.count * 1e6);
        let theirs = sink.received_all(deliveries)?.per_second();
        sink.ask(RESET)?;
        let server = start(data.path(), &[])?;
        let received = sink.received_all(deliveries)?;
        our_cpu.push(cpu_seconds(server.id())? / received.count * 1e6);
        comparison.add(received.per_second(), theirs);
        server.stop()?;
    }
    comparison.finish(AIM);
    // Other work on the machine changes this far less than the speed. The server's start is in it.
    println!("processor time per delivery: server {:.1} us, bare client {:.1} us", median(our_cpu), median(their_cpu));
    Ok(())
}

/// Publishes while the server is away, so that all is due when it comes.
async fn preload(data: &Path, tenant: &str, events: usize) -> Outcome {
    let store = Store::open(
        StoreOptions::sqlite(database(data)).followed_by(&tenant_control::features::install().followers),
        Env::default(),
    )
    .await?;
    let db = store.tenant_for_test(tenant.parse()?, Actor::for_system());
    // A few hundred a write, as the service's own steps have.
    for first in (0..events).step_by(STEP) {
        let count = STEP.min(events - first);
        db.write(async move |tx| {
            for n in first..first + count {
                publish(tx, &KIND, format!("tkt_{n}"), &ticket(n)).await?;
            }
            Ok(())
        })
        .await?;
    }
    store.close().await;
    Ok(())
}

const STEP: usize = 250;

/// A ticket such as tenants have.
fn ticket(n: usize) -> Value {
    json!({
        "id": format!("tkt_{n:026}"), "number": n, "subject": "The printer on the second floor does not answer",
        "description": "Since this morning. Paper and toner were changed, the cable too.", "type": "incident",
        "status": "new", "priority": "high", "organization_id": null,
        "requester": {"name": "Sam", "email": "sam@acme.test"}, "assignee_id": null, "team": null, "category": null,
        "tags": ["printer"], "custom_fields": {}, "device_ids": [], "source": "api", "comment_count": 0, "version": 1,
        "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z",
    })
}

/// What the bare client sends: the text of an event that the server sends too.
fn a_body(data: &Path) -> Outcome<String> {
    let body = "SELECT body FROM events WHERE type = 'ticket.created' ORDER BY sequence DESC LIMIT 1";
    Ok(Connection::open(database(data))?.query_row(body, [], |row| row.get(0))?)
}

struct Received {
    count: f64,
    time: Duration,
}

impl Received {
    fn per_second(&self) -> f64 {
        self.count / self.time.as_secs_f64()
    }
}

/// The receivers as a process of their own, so that both sides call the same.
struct Sink {
    child: Child,
    addresses: Vec<SocketAddr>,
}

impl Sink {
    fn start(ports: usize) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.args(["sink", &ports.to_string()]).stdout(Stdio::piped()).spawn()?;
        let mut sink = Sink { child, addresses: Vec::new() };
        let mut line = String::new();
        BufReader::new(sink.child.stdout.as_mut().ok_or("no stdout")?).read_line(&mut line)?;
        sink.addresses = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(sink)
    }

    fn ask(&self, path: &str) -> Outcome<String> {
        Ok(get(*self.addresses.first().ok_or("no sink")?, path, "")?.body)
    }

    /// Waits until it has received that many; the time is from its first to its last.
    fn received_all(&self, count: usize) -> Outcome<Received> {
        let waiting = Instant::now();
        loop {
            let told = self.ask(REPORT)?;
            let (received, us) = told.split_once(' ').ok_or("the sink did not tell")?;
            if received.parse::<usize>()? >= count {
                return Ok(Received { count: received.parse()?, time: Duration::from_micros(us.parse()?) });
            }
            if waiting.elapsed() > ROUND_MAX {
                return Err(format!("only {received} of {count} deliveries came").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
