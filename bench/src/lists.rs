//! The audit trail and the log of deliveries over HTTP, with many rows of one tenant: every filter alone, and every pair.
//!
//! The values are drawn so that pairs differ: some are frequent together, some rare, and some large sets have nothing in
//! common. Where a page ends early, only its own time is measured; how many did is printed.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use kernel::base::{AuditId, Env, EventId, UserId};
use rusqlite::{Connection as Sqlite, params};
use serde_json::{Value, json};
use tenant_control::features::tickets::TicketId;
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::percentile;
use crate::server::{Server, make_tenant, post};
use crate::tickets::client::Connection;

const AIM_MS: f64 = 50.0;
const ROWS: usize = 2_000_000;
const CONNECTIONS: usize = 4;
const HOOKS: usize = 20;
const ACTORS: usize = 50;
const TARGETS: usize = 20_000;
const ACTIONS: [&str; 8] = [
    "ticket.update",
    "ticket.comment",
    "ticket.create",
    "session.create",
    "api_key.create",
    "webhook.update",
    "api_key.revoke",
    "sla.set",
];
const TYPES: [&str; 6] = [
    "ticket.updated",
    "ticket.commented",
    "ticket.created",
    "api_key.created",
    "api_key.revoked",
    "webhook.auto_disabled",
];
const STATUSES: [&str; 5] = ["succeeded", "failed", "pending", "skipped", "delivering"];
/// The first round of a server's own work is over by then.
const SETTLED: Duration = Duration::from_secs(2);

/// `[ROWS]`
pub fn run(arguments: &[&str]) -> Outcome {
    let rows = match arguments {
        [] => ROWS,
        [rows] => rows.replace('_', "").parse()?,
        _ => return Err("usage: bench lists [ROWS]".into()),
    };
    let requests = setting("BENCH_REQUESTS", 200)?;
    println!(
        "lists: {rows} audit entries and deliveries of one tenant, {requests} requests of 50 rows over {CONNECTIONS} connections"
    );
    let data = folder()?;
    let loaded = Loaded::make(data.path(), rows)?;
    let server = Server::start(data.path())?;
    std::thread::sleep(SETTLED);
    let runtime = runtime()?;
    println!("{:<44}{:>10}{:>10}{:>10}{:>14}{:>8}", "", "p50 ms", "p99 ms", "rows", "ended early", "empty");
    let (mut met, mut all) = (0, 0);
    for (path, filters) in [("/api/admin/audit", AUDIT.as_slice()), ("/api/admin/webhooks/deliveries", LOG.as_slice())]
    {
        for names in alone_and_in_pairs(filters) {
            let measured = runtime.block_on(measure(&server, &loaded, path, &names, requests))?;
            all += 1;
            met += usize::from(measured.print(path, &names));
        }
    }
    println!("aim met by {met} of {all} (p99 below {AIM_MS} ms)");
    server.stop()
}

const AUDIT: [&str; 4] = ["actor_id", "action", "target_id", "since"];
const LOG: [&str; 5] = ["webhook_id", "event_id", "event_type", "status", "since"];

/// None, each filter, each pair, and all together.
fn alone_and_in_pairs<'a>(filters: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut sets = vec![Vec::new()];
    sets.extend(filters.iter().map(|name| vec![*name]));
    for (at, one) in filters.iter().enumerate() {
        sets.extend(filters[at + 1..].iter().map(|other| vec![*one, *other]));
    }
    sets.push(filters.to_vec());
    sets
}

/// What can be asked for.
#[derive(Clone)]
struct Loaded {
    key: String,
    end: i64,
    span_ms: i64,
    actors: Vec<String>,
    targets: Vec<String>,
    hooks: Vec<String>,
    events: Vec<String>,
}

/// A place of so many, the first ones much more often.
fn skewed(chance: &mut Chance, count: usize) -> usize {
    let place = chance.below(count).min(chance.below(count)).min(chance.below(count));
    place.min(chance.below(count))
}

impl Loaded {
    fn make(folder: &Path, rows: usize) -> Outcome<Self> {
        let started = Instant::now();
        let server = Server::start(folder)?;
        let (tenant, key) = make_tenant(&server, folder, &[], "bench")?;
        let mut hooks = Vec::new();
        for n in 0..HOOKS {
            let body = json!({"name": "x", "url": format!("https://hook-{n}.example.com/"), "events": ["webhook.auto_disabled"]});
            let made = post(server.address, "/api/admin/webhooks", &key, &body.to_string())?;
            let record: Value = serde_json::from_str(&made.body)?;
            hooks.push(record["id"].as_str().ok_or_else(|| format!("no endpoint: {}", made.body))?.to_owned());
        }
        server.stop()?;
        let world = Env::default();
        let (end, span_ms) = (world.now().as_millis(), 30 * 86_400_000);
        let at = kernel::base::Timestamp::from_millis(end - span_ms);
        let mut loaded = Loaded {
            key,
            end,
            span_ms,
            actors: (0..ACTORS).map(|_| UserId::new_at(&world, at).to_string()).collect(),
            targets: (0..TARGETS).map(|_| TicketId::new_at(&world, at).to_string()).collect(),
            hooks,
            events: Vec::new(),
        };
        let path = folder.join("tenant-control.db");
        let sqlite = Sqlite::open(&path)?;
        sqlite.execute_batch(
            "PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; PRAGMA cache_size = -1000000; PRAGMA wal_autocheckpoint = 0;",
        )?;
        let filling = sqlite.unchecked_transaction()?;
        loaded.fill(&filling, &tenant, rows, &world)?;
        filling.commit()?;
        sqlite.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        let (bytes, seconds) = (std::fs::metadata(&path)?.len(), started.elapsed().as_secs());
        println!("  the file has {} MB, filled in {seconds} s", bytes / 1_000_000);
        Ok(loaded)
    }

    fn fill(&mut self, sqlite: &Sqlite, tenant: &str, rows: usize, world: &Env) -> Outcome {
        let mut chance = Chance::new(1);
        let mut entry = sqlite.prepare(
            "INSERT INTO audit_entries (tenant_id, id, at, actor_type, actor_id, actor_name, action, target_type, target_id,
                address, credential_type, credential_id, request_id, changes)
            VALUES (?1, ?2, ?3, 'user', ?4, 'Somebody', ?5, 'ticket', ?6, '198.51.100.7', 'session',
                'ses_01jd8z6v2mfkpb7h3q9xw5t4rd', 'req_4fK2mXq8Zr1TnB6sWd0a', '{\"status\":{\"from\":\"new\",\"to\":\"open\"}}')",
        )?;
        let mut delivery = sqlite.prepare(
            "INSERT INTO deliveries (tenant_id, id, webhook_id, event_sequence, event_id, event_type, status, generation, tries,
                attempts, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, 1, 1, ?8)",
        )?;
        let mut attempt = sqlite.prepare(
            "INSERT INTO delivery_attempts (tenant_id, delivery_id, number, at, status_code, response_body, address, duration_ms,
                timings) VALUES (?1, ?2, 1, ?3, 200, 'ok', '198.51.100.7:443', 20, '{}')",
        )?;
        for n in 0..rows {
            let at = self.end - self.span_ms + self.span_ms * i64::try_from(n)? / i64::try_from(rows)?;
            let moment = kernel::base::Timestamp::from_millis(at);
            let (actor, action) = (skewed(&mut chance, ACTORS), skewed(&mut chance, ACTIONS.len()));
            // Actors with an odd number never do what has an odd one: two large sets with nothing in common.
            let action = if actor % 2 == 1 { action & !1 } else { action };
            let target = &self.targets[skewed(&mut chance, TARGETS)];
            let id = AuditId::new_at(world, moment).to_string();
            entry.execute(params![tenant, id, at, self.actors[actor], ACTIONS[action], target])?;
            let (hook, kind) = (skewed(&mut chance, HOOKS), skewed(&mut chance, TYPES.len()));
            let kind = if hook % 2 == 1 { kind & !1 } else { kind };
            // One endpoint in five is dead.
            let status = if hook % 5 == 3 { STATUSES[1 + chance.below(3)] } else { STATUSES[0] };
            let event = EventId::new_at(world, moment).to_string();
            let id = format!("dlv_{}{:04}", &event[4..26], hook);
            delivery.execute(params![
                tenant,
                id,
                self.hooks[hook],
                i64::try_from(n)?,
                event,
                TYPES[kind],
                status,
                at
            ])?;
            attempt.execute(params![tenant, id, at])?;
            if n % 1_000 == 0 {
                self.events.push(event);
            }
        }
        Ok(())
    }

    /// One or two values, as often as they occur or evenly.
    fn spell(&self, chance: &mut Chance, names: &[&str]) -> String {
        let mut query = "limit=50".to_owned();
        for name in names {
            let mut pick = |all: &[&str]| -> String {
                let place = |chance: &mut Chance| {
                    if chance.below(2) == 0 { skewed(chance, all.len()) } else { chance.below(all.len()) }
                };
                let first = all[place(chance)].to_owned();
                if chance.below(2) == 0 { first } else { format!("{first},{}", all[place(chance)]) }
            };
            let value = match *name {
                "actor_id" => pick(&self.actors.iter().map(String::as_str).collect::<Vec<_>>()),
                "action" => pick(&ACTIONS),
                "target_id" => pick(&self.targets.iter().map(String::as_str).collect::<Vec<_>>()),
                "webhook_id" => pick(&self.hooks.iter().map(String::as_str).collect::<Vec<_>>()),
                "event_id" => pick(&self.events.iter().map(String::as_str).collect::<Vec<_>>()),
                "event_type" => pick(&TYPES),
                "status" => pick(&STATUSES),
                _ => {
                    let days = i64::try_from(1 + chance.below(29)).unwrap_or(1);
                    let since = kernel::base::Timestamp::from_millis(self.end - days * 86_400_000).to_string();
                    let until = kernel::base::Timestamp::from_millis(self.end - (days - 1) * 86_400_000).to_string();
                    format!("{since}&until={until}")
                }
            };
            let _ = write!(query, "&{name}={value}");
        }
        query
    }
}

#[derive(Default)]
struct Measured {
    ms: Vec<f64>,
    rows: usize,
    early: usize,
    empty: usize,
}

impl Measured {
    /// Whether the aim is met.
    fn print(&self, path: &str, names: &[&str]) -> bool {
        let count = self.ms.len().max(1);
        let (p50, p99) = (percentile(self.ms.clone(), 500), percentile(self.ms.clone(), 990));
        let last = path.rsplit('/').next().unwrap_or_default();
        let name = format!("{last} {}", if names.is_empty() { "all".to_owned() } else { names.join(" + ") });
        let is_met = p99 < AIM_MS;
        let verdict = if is_met { "" } else { "  MISSED" };
        println!(
            "{name:<44}{p50:>10.2}{p99:>10.2}{:>10}{:>14}{:>8}{verdict}",
            self.rows / count,
            self.early,
            self.empty
        );
        is_met
    }
}

async fn measure(
    server: &Server,
    loaded: &Loaded,
    path: &'static str,
    names: &[&'static str],
    requests: usize,
) -> Outcome<Measured> {
    let mut callers: JoinSet<Outcome<Measured>> = JoinSet::new();
    for caller in 0..CONNECTIONS {
        let (loaded, names, address) = (loaded.clone(), names.to_vec(), server.address);
        callers.spawn(async move {
            let (mut chance, mut measured) = (Chance::new(7 + caller as u64), Measured::default());
            let mut connection = Connection::open(address).await?;
            for _ in 0..requests.div_ceil(CONNECTIONS) {
                let query = loaded.spell(&mut chance, &names);
                let key = &loaded.key;
                let request =
                    format!("GET {path}?{query} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n");
                let started = Instant::now();
                let answer = connection.ask(&request).await?;
                measured.ms.push(started.elapsed().as_secs_f64() * 1e3);
                if answer.status != 200 {
                    return Err(format!("{} {}: {request}", answer.status, answer.body).into());
                }
                let page: Value = serde_json::from_str(answer.body)?;
                let shown = page["data"].as_array().map_or(0, Vec::len);
                let early = page["has_more"] == true && shown < 50;
                measured.rows += shown;
                measured.early += usize::from(early);
                measured.empty += usize::from(early && shown == 0);
            }
            Ok(measured)
        });
    }
    let mut measured = Measured::default();
    for ended in callers.join_all().await {
        let ended = ended?;
        measured.ms.extend(ended.ms);
        measured.rows += ended.rows;
        measured.early += ended.early;
        measured.empty += ended.empty;
    }
    Ok(measured)
}
