//! The figures of a tenant over HTTP, against a bare read of the same rows.

use std::path::Path;
use std::time::Instant;

use figures::Dimension;
use kernel::base::{DAY_MS, HOUR_MS, Timestamp};
use rusqlite::{Connection as Sqlite, OpenFlags, params};

use super::grain::Grain;
use super::latency::{TimedQuery, check_answer};
use super::load::LoadedTenant;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::percentile;
use crate::server::Server;
use crate::tickets::client::Connection;

const PATH: &str = "/api/analytics/tenant";
const LIMIT_MS: f64 = 20.0;
const LONG_MS: i64 = 90 * DAY_MS;
const DEFAULT_MS: i64 = 30 * DAY_MS;
/// What of the rows is read, in the order in which the product reads it.
const BARE: &str =
    "SELECT start, member, summary, samples FROM rollups WHERE tenant_id = ?1 AND dimension = ?2 AND grain = ?3
    AND start >= ?4 AND start < ?5 ORDER BY start, member";

pub fn run() -> Outcome {
    let (rounds, requests) = (setting("BENCH_ROUNDS", 10)?, setting("BENCH_REQUESTS", 30)?);
    println!("analytics-tenant: GET {PATH}, one at a time, {rounds} rounds of {requests} requests of each query");
    let (data, runtime) = (folder()?, runtime()?);
    let loaded = LoadedTenant::make(data.path(), &[DEFAULT_MS, LONG_MS])?;
    let until = Grain::Hour.floor(loaded.end);
    let server = Server::start(data.path())?;
    let mut queries = make_queries(&loaded, until);
    let bare = BareRead::open(data.path(), &loaded.tenant, until)?;
    let mut connection = runtime.block_on(Connection::open(server.address))?;
    let answer = runtime.block_on(queries[0].read_answer(&mut connection))?;
    check_answer(&answer, &NUMBERS, &LISTS)?;
    let mut bare_ms = Vec::new();
    for round in 0..=rounds {
        for query in &mut queries {
            runtime.block_on(query.ask(&mut connection, requests, round > 0))?;
        }
        for _ in 0..requests {
            let ms = bare.time()?;
            if round > 0 {
                bare_ms.push(ms);
            }
        }
    }
    queries.iter().for_each(TimedQuery::print);
    let (p50, p99) = (percentile(bare_ms.clone(), 500), percentile(bare_ms, 990));
    let ratio = queries[0].p99() / p99;
    println!("the {} rows of 90 days by hour, read and no more: p50 {p50:.2} ms, p99 {p99:.2} ms", bare.rows);
    println!("ratio of 90 days by hour to that {ratio:.1} (of p99)");
    println!("resident memory {:.0} MB", server.resident_mb()?);
    server.stop()
}

/// What must not be nothing.
const NUMBERS: [&str; 8] = [
    "/tickets/totals/created",
    "/devices/totals/total",
    "/vms/totals/spend/amount",
    "/backups/totals/success",
    "/workflows/totals/duration_seconds/p90",
    "/webhooks/totals/lag_ms/p99",
    "/api_usage/totals/latency_ms/p99",
    "/searches/totals/count",
];
const LISTS: [(&str, usize); 5] = [
    ("/tickets/totals/by_organization", 50),
    ("/api_usage/totals/by_key", 20),
    ("/api_usage/totals/by_route", 60),
    ("/tickets/series", 90 * 24),
    ("/searches/series", 90 * 24),
];

/// The first is that of which the bare read has the rows.
fn make_queries(loaded: &LoadedTenant, until: i64) -> Vec<TimedQuery> {
    let moment = |at: i64| Timestamp::from_millis(at).to_string();
    let query = |name, path: String, limit_ms| TimedQuery::new(name, &path, &loaded.key, limit_ms);
    let long = format!("{PATH}?interval=hour&since={}", moment(until - LONG_MS));
    let within = format!("{PATH}?interval=hour&since={}", moment(loaded.end - LONG_MS));
    let (since, earlier) = (moment(loaded.end - DEFAULT_MS), moment(loaded.end - HOUR_MS));
    vec![
        query("90 days by hour, whole hours", format!("{long}&until={}", moment(until)), Some(LIMIT_MS)),
        query("90 days by hour, from within an hour until now", within, Some(LIMIT_MS)),
        query("30 days by day until now (no parameters)", PATH.to_owned(), Some(LIMIT_MS)),
        query("30 days by day until within the last hours", format!("{PATH}?since={since}&until={earlier}"), None),
    ]
}

struct BareRead {
    sqlite: Sqlite,
    tenant: String,
    since: i64,
    until: i64,
    rows: usize,
}

impl BareRead {
    fn open(folder: &Path, tenant: &str, until: i64) -> Outcome<Self> {
        let sqlite = Sqlite::open_with_flags(folder.join("tenant-control.db"), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut bare = BareRead { sqlite, tenant: tenant.to_owned(), since: until - LONG_MS, until, rows: 0 };
        bare.rows = bare.read()?;
        if i64::try_from(bare.rows)? != LONG_MS / HOUR_MS {
            return Err(format!("{} rows for {} hours", bare.rows, LONG_MS / HOUR_MS).into());
        }
        Ok(bare)
    }

    /// In milliseconds.
    fn time(&self) -> Outcome<f64> {
        let started = Instant::now();
        self.read()?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    }

    fn read(&self) -> Outcome<usize> {
        let mut statement = self.sqlite.prepare_cached(BARE)?;
        let asked = params![self.tenant, Dimension::NONE.0, Grain::Hour.minutes(), self.since, self.until];
        let rows: Vec<(i64, String, Vec<u8>, Vec<u8>)> = statement
            .query_map(asked, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(std::hint::black_box(rows).len())
    }
}
