//! How long searches take over HTTP: of small tenants and of a large one, against SQL that scans the same store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::load::Loaded;
use super::queries::Query;
use super::sql::Rival;
use super::{Options, request, small, verdict};
use crate::report::percentile;
use crate::server::Server;
use crate::tickets::client::Connection;
use crate::tickets::data::Chance;
use crate::{Outcome, runtime};

/// Of the slowest hundredth.
const LIMIT_MS: f64 = 5.0;
/// How many times as long SQL takes, by the slowest hundredth of each.
const AIM: f64 = 5.0;
/// SQL is asked so many times less often: where it scans, it would take most of the run.
const SQL_SHARE: usize = 4;
/// One query to one kind of tenant in one round; then there are fewer answers, which is told.
pub const CELL_MAX: Duration = Duration::from_secs(4);
/// The whole way of a request, with nothing to find.
const EMPTY: &str = "/api/auth/session";

/// What is asked in one round.
#[derive(Clone, Copy)]
pub struct Asking {
    pub query: Query,
    pub is_largest: bool,
    pub round: usize,
    pub requests: usize,
}

impl Asking {
    /// The same for the server and for SQL, so that both are asked the same.
    pub fn chance(self, caller: usize, callers: usize) -> Chance {
        Chance::new((1 + self.round * callers + caller) as u64)
    }
}

/// What became of requests.
#[derive(Default)]
pub struct Measured {
    pub ms: Vec<f64>,
    pub hits: usize,
    /// Too broad, or the index was not there.
    pub refused: usize,
}

impl Measured {
    pub fn add(&mut self, other: Measured) {
        self.ms.extend(other.ms);
        self.hits += other.hits;
        self.refused += other.refused;
    }

    pub async fn time(&mut self, connection: &mut Connection, request: &str) -> Outcome {
        let started = Instant::now();
        let answer = connection.ask(request).await?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let is_refused = answer.status == 503 || answer.status == 400 && answer.body.contains("query_too_broad");
        if is_refused {
            self.refused += 1;
        } else if answer.status == 200 {
            self.ms.push(ms);
            self.hits += answer.body.matches("\"score\":").count();
        } else {
            return Err(format!("{} {}: {request}", answer.status, answer.body).into());
        }
        Ok(())
    }

    pub fn p99(&self) -> f64 {
        percentile(self.ms.clone(), 990)
    }

    pub fn spell(&self) -> String {
        let (p50, p999) = (percentile(self.ms.clone(), 500), percentile(self.ms.clone(), 999));
        let refused = if self.refused > 0 { format!(", {} refused", self.refused) } else { String::new() };
        format!("p50 {p50:.2}, p99 {:.2}, p99.9 {p999:.2} ms of {}{refused}", self.p99(), self.ms.len())
    }

    fn hits_each(&self) -> f64 {
        small(self.hits) / small(self.ms.len().max(1))
    }
}

struct Row {
    query: Query,
    name: &'static str,
    is_largest: bool,
    ours: Measured,
    theirs: Measured,
}

pub fn run(server: &Server, loaded: &Arc<Loaded>, options: &Options) -> Outcome {
    let Options { connections, rounds, requests, .. } = *options;
    println!(
        "queries: over {connections} connections, {rounds} rounds of {requests} of each; SQL by {connections} readers in this \
         process; small tenants are any of {}",
        loaded.tenants.len() - 1
    );
    let runtime = runtime()?;
    let mut rival = Rival::open(&loaded.database(), connections)?;
    let row = |is_largest: bool| {
        move |(query, name): (Query, &'static str)| Row {
            query,
            name,
            is_largest,
            ours: Measured::default(),
            theirs: Measured::default(),
        }
    };
    let mut rows: Vec<Row> = Query::ALL.into_iter().map(row(false)).collect();
    rows.extend(Query::ALL.into_iter().map(row(true)));
    let mut empty = Measured::default();
    // The first round warms up; it asks for other values.
    for round in 0..=rounds {
        let nothing = runtime.block_on(ask_nothing(server.address, loaded, connections, requests))?;
        if round > 0 {
            empty.add(nothing);
        }
        for row in &mut rows {
            let asking = Asking { query: row.query, is_largest: row.is_largest, round, requests };
            let ours = runtime.block_on(ask(server.address, loaded, connections, asking))?;
            let fewer = Asking { requests: requests.div_ceil(SQL_SHARE), ..asking };
            let theirs = rival.ask(loaded, fewer)?;
            if round > 0 {
                row.ours.add(ours);
                row.theirs.add(theirs);
            }
        }
    }
    if rounds > 0 {
        println!("a request that looks for nothing ({EMPTY}): {}", empty.spell());
        print(&rows);
    }
    Ok(())
}

async fn ask(address: SocketAddr, loaded: &Arc<Loaded>, connections: usize, asking: Asking) -> Outcome<Measured> {
    let mut callers: JoinSet<Outcome<Measured>> = JoinSet::new();
    for caller in 0..connections {
        let loaded = loaded.clone();
        callers.spawn(async move {
            let (mut connection, mut measured) = (Connection::open(address).await?, Measured::default());
            let (mut chance, until) = (asking.chance(caller, connections), Instant::now() + CELL_MAX);
            for _ in 0..asking.requests.div_ceil(connections) {
                if Instant::now() > until {
                    break;
                }
                let tenant = loaded.pick(&mut chance, asking.is_largest);
                let q = asking.query.spell(&mut chance, &tenant.known).q;
                measured.time(&mut connection, &request(&tenant.key, &q)).await?;
            }
            Ok(measured)
        });
    }
    gather(callers).await
}

async fn ask_nothing(
    address: SocketAddr,
    loaded: &Arc<Loaded>,
    connections: usize,
    requests: usize,
) -> Outcome<Measured> {
    let mut callers: JoinSet<Outcome<Measured>> = JoinSet::new();
    for _ in 0..connections {
        let key = &loaded.largest()?.key;
        let request = format!("GET {EMPTY} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n");
        callers.spawn(async move {
            let (mut connection, mut measured) = (Connection::open(address).await?, Measured::default());
            for _ in 0..requests.div_ceil(connections) {
                measured.time(&mut connection, &request).await?;
            }
            Ok(measured)
        });
    }
    gather(callers).await
}

/// What all callers have seen.
pub async fn gather(callers: JoinSet<Outcome<Measured>>) -> Outcome<Measured> {
    let mut measured = Measured::default();
    for ended in callers.join_all().await {
        measured.add(ended?);
    }
    Ok(measured)
}

fn print(rows: &[Row]) {
    for is_largest in [false, true] {
        let (mut quick, mut quicker, mut scans) = (0, 0, 0);
        let whose = if is_largest { "large tenant" } else { "small tenants" };
        for row in rows.iter().filter(|row| row.is_largest == is_largest) {
            let Row { query, name, ours, theirs, .. } = row;
            let (p99, ratio) = (ours.p99(), theirs.p99() / ours.p99());
            let (is_quick, is_quicker) = (p99 < LIMIT_MS && ours.refused == 0, ratio >= AIM);
            quick += usize::from(is_quick);
            let aim = if query.is_scan() {
                scans += 1;
                quicker += usize::from(is_quicker);
                format!("aim at least {AIM}: {}", verdict(is_quicker))
            } else {
                "it has an index for this".to_owned()
            };
            println!(
                "{name}, {whose}: {}, {:.0} hits (limit {LIMIT_MS} ms: {:.2} of it, {}); SQL {}, {:.0} hits: {ratio:.1} times as \
                 long ({aim})",
                ours.spell(),
                ours.hits_each(),
                p99 / LIMIT_MS,
                verdict(is_quick),
                theirs.spell(),
                theirs.hits_each(),
            );
        }
        println!("{whose}: limit met by {quick} of {}; aim against SQL met by {quicker} of {scans}", Query::ALL.len());
    }
}
