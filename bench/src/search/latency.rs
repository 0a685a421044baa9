//! How long searches take over HTTP: of small tenants and of a large one, against SQL that scans the same store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use super::client::request;
use super::load::Loaded;
use super::measured::{Asking, CELL_MAX, Measured, gather, verdict};
use super::options::Options;
use super::queries::Query;
use super::sql::Rival;
use crate::harness::{Outcome, runtime};
use crate::server::Server;
use crate::tickets::client::Connection;

/// Of the slowest hundredth.
const LIMIT_MS: f64 = 5.0;
/// How many times as long SQL takes, by the slowest hundredth of each.
const AIM: f64 = 5.0;
/// SQL is asked so many times less often: where it scans, it would take most of the run.
const SQL_SHARE: usize = 4;
/// The whole way of a request, with nothing to find.
const EMPTY: &str = "/api/auth/session";

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
