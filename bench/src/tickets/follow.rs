//! Whether a copy that is kept by `updated_since` misses anything: writers change every ticket once a round, in an order of
//! chance, and readers with pages of several sizes go on by cursor, or from the last row's `updated_at`, meanwhile. After
//! each round every reader must have every change.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::Value;
use tokio::task::JoinSet;

use super::PATH;
use super::client::{self, Connection};
use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::server::{Server, make_tenant, post};

const RECORDS: usize = 1_000;
const WRITERS: usize = 32;
const LIMITS: [usize; 4] = [1, 3, 50, 200];
const LONG_AGO: &str = "2000-01-01T00:00:00.000Z";

/// `[postgres]`
pub fn run(arguments: &[&str]) -> Outcome {
    let rounds = setting("BENCH_CHANGES", 50_000)?.div_ceil(RECORDS);
    let data = folder()?;
    let cluster = match arguments {
        [] => None,
        ["postgres"] => Some(Cluster::start()?),
        _ => return Err("usage: bench tickets-follow [postgres]".into()),
    };
    let url = cluster.as_ref().map(Cluster::url);
    let store: Vec<&str> = url.iter().flat_map(|url| ["--database-url", url.as_str()]).collect();
    println!("tickets-follow: {} changes by {WRITERS} writers, pages of {LIMITS:?}", rounds * RECORDS);
    let server = Server::start_with(data.path(), &store)?;
    let (_, key) = make_tenant(&server, data.path(), &store, "bench")?;
    let mut ids = Vec::new();
    for n in 0..RECORDS {
        let made = post(server.address, PATH, &key, &format!(r#"{{"subject":"Ticket {n}"}}"#))?;
        let record: Value = serde_json::from_str(&made.body)?;
        ids.push(record["id"].as_str().ok_or_else(|| format!("no ticket: {}", made.body))?.to_owned());
    }
    let started = Instant::now();
    let missed = runtime()?.block_on(follow(server.address, &key, ids, rounds))?;
    let verdict = if missed == 0 { "met" } else { "MISSED" };
    println!(
        "  {missed} of {} changes missed by any of {} readers in {} s, aim 0 ({verdict})",
        rounds * RECORDS,
        LIMITS.len(),
        started.elapsed().as_secs()
    );
    server.stop()
}

async fn follow(address: SocketAddr, key: &str, mut ids: Vec<String>, rounds: usize) -> Outcome<usize> {
    let (mut chance, mut missed) = (Chance::new(1), 0);
    let mut readers = Vec::new();
    for limit in LIMITS {
        readers.push(Reader::new(address, key, limit).await?);
    }
    for round in 1..=rounds {
        for at in (1..ids.len()).rev() {
            ids.swap(at, chance.below(at + 1));
        }
        let over = Arc::new(AtomicBool::new(false));
        let mut reading: JoinSet<Outcome<(Reader, usize)>> = JoinSet::new();
        for reader in readers.drain(..) {
            reading.spawn(reader.follow(over.clone(), 1 + u64::try_from(round)?));
        }
        change_all(address, key, Arc::new(ids.clone()), round).await?;
        over.store(true, Ordering::Release);
        for read in reading.join_all().await {
            let (reader, without) = read?;
            missed += without;
            readers.push(reader);
        }
    }
    Ok(missed)
}

/// Changes each ticket once.
async fn change_all(address: SocketAddr, key: &str, ids: Arc<Vec<String>>, round: usize) -> Outcome {
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers: JoinSet<Outcome> = JoinSet::new();
    for _ in 0..WRITERS {
        let (next, ids, key) = (next.clone(), ids.clone(), key.to_owned());
        writers.spawn(async move {
            let mut connection = Connection::open(address).await?;
            while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                let answer = connection.ask(&patch(&key, id, round)).await?;
                if answer.status != 200 {
                    return Err(format!("{}: {}", answer.status, answer.body).into());
                }
            }
            Ok(())
        });
    }
    writers.join_all().await.into_iter().collect()
}

fn patch(key: &str, id: &str, round: usize) -> String {
    let body = format!(r#"{{"category":"{round}"}}"#);
    format!(
        "PATCH {PATH}?id={id} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

struct Reader {
    connection: Connection,
    key: String,
    limit: usize,
    since: String,
    cursor: Option<String>,
    versions: HashMap<String, u64>,
}

impl Reader {
    async fn new(address: SocketAddr, key: &str, limit: usize) -> Outcome<Self> {
        let connection = Connection::open(address).await?;
        let (key, since) = (key.to_owned(), LONG_AGO.to_owned());
        Ok(Reader { connection, key, limit, since, cursor: None, versions: HashMap::new() })
    }

    /// Reads until all is read that was there when the writers had ended; how many tickets it has in another version.
    async fn follow(mut self, over: Arc<AtomicBool>, version: u64) -> Outcome<(Self, usize)> {
        loop {
            let ended = over.load(Ordering::Acquire);
            if !self.read_page().await? && ended {
                break;
            }
        }
        let missed = RECORDS - self.versions.values().filter(|seen| **seen == version).count();
        Ok((self, missed))
    }

    /// Whether there is more behind the page.
    async fn read_page(&mut self) -> Outcome<bool> {
        let cursor = self.cursor.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let query = format!("updated_since={}&limit={}{cursor}", self.since, self.limit);
        let answer = self.connection.ask(&client::get(&self.key, &query)).await?;
        if answer.status != 200 {
            return Err(format!("{}: {}", answer.status, answer.body).into());
        }
        let page: Value = serde_json::from_str(answer.body)?;
        let mut last = self.since.clone();
        for row in page["data"].as_array().ok_or("no data")? {
            let (id, version) = (row["id"].as_str().ok_or("no id")?, row["version"].as_u64().ok_or("no version")?);
            self.versions.insert(id.to_owned(), version);
            row["updated_at"].as_str().ok_or("no time")?.clone_into(&mut last);
        }
        self.cursor = page["next_cursor"].as_str().map(ToOwned::to_owned);
        // A cursor belongs to the moment it was asked for with.
        if self.cursor.is_none() {
            self.since = last;
        }
        Ok(page["has_more"] == true)
    }
}
