//! The figures of a platform with many tenants over HTTP.

use kernel::base::{DAY_MS, Timestamp};

use super::fleet::LoadedPlatform;
use super::grain::Grain;
use super::latency::{TimedQuery, check_answer};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::server::Server;
use crate::tickets::client::Connection;

const PATH: &str = "/api/analytics/platform";
const LIMIT_MS: f64 = 100.0;
const RANGE_MS: i64 = 30 * DAY_MS;

/// What must not be nothing.
const NUMBERS: [&str; 6] = [
    "/tenants/total",
    "/tenants/active",
    "/top_tenants/0/devices",
    "/tickets/totals/by_status/new",
    "/api_usage/totals/latency_ms/p99",
    "/vms/totals/spend/amount",
];
const LISTS: [(&str, usize); 3] = [("/top_tenants", 20), ("/api_usage/totals/by_route", 60), ("/tickets/series", 30)];

pub fn run() -> Outcome {
    let (rounds, requests) = (setting("BENCH_ROUNDS", 10)?, setting("BENCH_REQUESTS", 30)?);
    let tenants = setting("BENCH_TENANTS", 1_000)?;
    println!(
        "analytics-platform: GET {PATH} of {tenants} tenants, one at a time, {rounds} rounds of {requests} requests of each query"
    );
    let (data, runtime) = (folder()?, runtime()?);
    let loaded = LoadedPlatform::make(data.path(), tenants, &[RANGE_MS, 2 * RANGE_MS])?;
    let server = Server::start(data.path())?;
    let mut queries = make_queries(&loaded);
    let mut connection = runtime.block_on(Connection::open(server.address))?;
    for query in &queries {
        let answer = runtime.block_on(query.read_answer(&mut connection))?;
        check_answer(&answer, &NUMBERS, &LISTS)?;
    }
    for round in 0..=rounds {
        for query in &mut queries {
            runtime.block_on(query.ask(&mut connection, requests, round > 0))?;
        }
    }
    queries.iter().for_each(TimedQuery::print);
    println!("resident memory {:.0} MB", server.resident_mb()?);
    server.stop()
}

fn make_queries(loaded: &LoadedPlatform) -> Vec<TimedQuery> {
    let moment = |at: i64| Timestamp::from_millis(at).to_string();
    let until = Grain::Day.floor(loaded.end);
    let whole = format!("{PATH}?interval=day&since={}&until={}", moment(until - RANGE_MS), moment(until));
    vec![
        TimedQuery::new("30 days by day, whole days", &whole, &loaded.key, Some(LIMIT_MS)),
        TimedQuery::new("30 days by day until now (no parameters)", PATH, &loaded.key, Some(LIMIT_MS)),
    ]
}
