//! What a million waiting deliveries cost those who do not wait for them: the memory of the release binary, and the
//! rate of writes over the API beside the backlog, against the same on a store without one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Env, EventId};
use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::causes::{CALLERS, Causes};
use super::receipts::Receipts;
use super::sink::{self, Manner, Received};
use super::{Tenant, database, start};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, limit};

/// Slower by at most 1.3.
const AIM: f64 = 0.77;
const LIMIT_MB: f64 = 300.0;
/// Endpoints that the backlog is for; they accept connections and never answer.
const DEAD: usize = 10;
/// One event in so many is due at once; the others wait for a retry of tomorrow.
const DUE_EACH: usize = 10;
const DAY_MS: i64 = 86_400_000;
/// The first round of its own work is over by then.
const SETTLED: Duration = Duration::from_secs(2);

pub fn run() -> Outcome {
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_SECONDS", 30)?);
    let events = setting("BENCH_ROWS", 1_000_000)?.div_ceil(DEAD);
    println!(
        "webhooks-backlog: {} pending deliveries; keys made and revoked over {CALLERS} connections, {seconds} s each",
        events * DEAD
    );
    let (runtime, time) = (runtime()?, Duration::from_secs(seconds as u64));
    let receiver = runtime.block_on(sink::open(|request: Received<'_>| match request.path {
        "/dead" => Manner::Silent,
        _ => Manner::Good,
    }))?;
    let (empty, full) = (Installation::make(receiver)?, Installation::make(receiver)?);
    full.fill(events)?;
    let mut comparison = Comparison::new("writes/s", "with the backlog", "empty");
    let (mut idle, mut used) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let bare = runtime.block_on(empty.measure(time))?;
        let beside = runtime.block_on(full.measure(time))?;
        comparison.add(beside.writes_per_second, bare.writes_per_second);
        idle.push(beside.idle_mb);
        used.push(beside.used_mb);
    }
    comparison.finish(AIM);
    limit("memory after start", idle, "MB", LIMIT_MB);
    limit("memory after work", used, "MB", LIMIT_MB);
    Ok(())
}

struct Measured {
    writes_per_second: f64,
    idle_mb: f64,
    used_mb: f64,
}

/// A store with endpoints: those that the backlog is for, and one that is told of the writes.
struct Installation {
    data: TempDir,
    tenant: Tenant,
}

impl Installation {
    fn make(receiver: SocketAddr) -> Outcome<Self> {
        let data = folder()?;
        let server = start(data.path(), &[])?;
        let tenant = Tenant::make(&server, data.path(), "bench")?;
        for _ in 0..DEAD {
            tenant.subscribe(&server, "ticket.*", receiver, "dead")?;
        }
        tenant.subscribe(&server, "api_key.*", receiver, "good")?;
        server.stop()?;
        Ok(Installation { data, tenant })
    }

    /// As if so many events had happened while nobody answered.
    fn fill(&self, events: usize) -> Outcome {
        let started = Instant::now();
        let (path, tenant) = (database(self.data.path()), self.tenant.id(self.data.path())?);
        let connection = Connection::open(&path)?;
        connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000;")?;
        let filling = connection.unchecked_transaction()?;
        insert(&filling, &tenant, events)?;
        filling.commit()?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        let (bytes, seconds) = (std::fs::metadata(&path)?.len(), started.elapsed().as_secs());
        println!("  the file has {} MB, filled in {seconds} s", bytes / 1_000_000);
        Ok(())
    }

    async fn measure(&self, time: Duration) -> Outcome<Measured> {
        let server = start(self.data.path(), &[])?;
        tokio::time::sleep(SETTLED).await;
        let idle_mb = server.resident_mb()?;
        let causes = Causes::new(server.address, &self.tenant, &Arc::new(Receipts::new()))?;
        let writes_per_second = causes.drive(time, None).await?;
        let used_mb = server.resident_mb()?;
        causes.clean_up().await?;
        server.stop()?;
        Ok(Measured { writes_per_second, idle_mb, used_mb })
    }
}

const EVENT: &str = "INSERT INTO events (tenant_id, sequence, id, type, family, record_id, at, body)
    VALUES (?1, ?2, ?3, 'ticket.created', 'ticket', printf('tkt_%026d', ?2), ?4, ?5)";

/// As `kernel::events` writes them.
const DELIVERIES: &str =
    "INSERT INTO deliveries (tenant_id, id, webhook_id, event_sequence, event_id, event_type, status,
        generation, next_attempt_at, tries, attempts, created_at)
    SELECT w.tenant_id, 'dlv_' || substr(?3, 5, 22) || w.code, w.id, ?2, ?3, 'ticket.created', 'pending',
        w.generation, ?5, 1, 1, ?4
    FROM webhooks w JOIN webhook_subscriptions s ON s.tenant_id = w.tenant_id AND s.webhook_id = w.id
    WHERE w.tenant_id = ?1 AND s.pattern = 'ticket.*'";

fn insert(connection: &Connection, tenant: &str, events: usize) -> Outcome {
    let world = Env::default();
    let now = world.now();
    let clock = "SELECT sequence FROM tenant_clocks WHERE tenant_id = ?1";
    let last: i64 = connection.query_row(clock, [tenant], |row| row.get(0))?;
    let (mut event, mut deliveries) = (connection.prepare(EVENT)?, connection.prepare(DELIVERIES)?);
    let body = format!(r#"{{"type":"ticket.created","data":"{}"}}"#, "x".repeat(500));
    for n in 0..events {
        // Within the last hours, in the order of their ids.
        let at = now.plus_ms(i64::try_from(n)? - i64::try_from(events)?);
        let (sequence, id) = (last + 1 + i64::try_from(n)?, EventId::new_at(&world, at).to_string());
        let next = if n % DUE_EACH == 0 { now } else { now.plus_ms(DAY_MS) };
        event.execute(params![tenant, sequence, id, at.as_millis(), body])?;
        deliveries.execute(params![tenant, sequence, id, at.as_millis(), next.as_millis()])?;
    }
    let clock = "UPDATE tenant_clocks SET sequence = sequence + ?2 WHERE tenant_id = ?1";
    connection.execute(clock, params![tenant, i64::try_from(events)?])?;
    let lanes = "UPDATE lanes SET due_at = ?2 WHERE tenant_id = ?1 AND key IN
        (SELECT webhook_id FROM webhook_subscriptions WHERE tenant_id = ?1 AND pattern = 'ticket.*')";
    connection.execute(lanes, params![tenant, now.as_millis()])?;
    Ok(())
}
