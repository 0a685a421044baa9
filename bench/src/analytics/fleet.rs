//! A platform with many tenants in an embedded store, which together have as much as the one tenant of `load`.
//!
//! Of each tenant there are the sums that a range up to now adds up to a level, and of the platform's sums by tenant the hours of
//! the last weeks: no more than that is read.

use std::path::Path;
use std::time::Instant;

use figures::Dimension;
use figures::cells::TENANT;
use kernel::base::{DAY_MS, Env, TenantId, Timestamp};
use rusqlite::{Connection, params};

use super::bodies::{BodyPool, DailyVolume, RollupBody};
use super::grain::Grain;
use super::load::{DAYS, VOLUME, around, write_own_sums, write_tickets};
use super::members::Members;
use super::rows::{RowWriter, SumSeries, finish_filling, open_for_filling};
use crate::chance::Chance;
use crate::harness::Outcome;
use crate::server::{Server, make_operator_key};

/// A tenant's own sums: of how many days each grain is there.
const OWN_DAYS: [(Grain, i64); 4] = [(Grain::Quarter, 1), (Grain::Hour, 3), (Grain::Day, 60), (Grain::Week, DAYS)];
/// The same of the platform's sums by tenant.
const BY_TENANT_DAYS: [(Grain, i64); 3] = [(Grain::Hour, 40), (Grain::Day, 100), (Grain::Week, DAYS)];

const INSERT_TENANT: &str =
    "INSERT INTO tenants (id, slug, name, version, created_at, updated_at) VALUES (?1, ?2, ?2, 1, ?3, ?3)";
const CLOCK: &str = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence) VALUES (?1, ?2, 0)";

pub struct LoadedPlatform {
    /// Of an operator of the platform.
    pub key: String,
    /// Before it everything happened.
    pub end: i64,
}

impl LoadedPlatform {
    /// Fills the folder; `ago_ms` are the ages at which ranges begin.
    pub fn make(folder: &Path, tenants: usize, ago_ms: &[i64]) -> Outcome<Self> {
        let started = Instant::now();
        let server = Server::start(folder)?;
        let key = make_operator_key(&server, folder, "operator")?;
        server.stop()?;
        let database = folder.join("tenant-control.db");
        let connection = open_for_filling(&database)?;
        let end = Env::default().now().as_millis();
        let tenants = insert_tenants(&connection, tenants, end)?;
        let (mut rows, members) = (RowWriter::start(&connection)?, Members::make(end));
        write_own_sums(&mut rows, "", end, &members)?;
        write_by_tenant(&mut rows, &tenants, end)?;
        write_tenants(&mut rows, &tenants, end)?;
        let texts: Vec<&str> = tenants.iter().map(String::as_str).collect();
        for ago_ms in ago_ms {
            write_tickets(&mut rows, &texts, around(end - ago_ms), &members)?;
        }
        let rows = rows.finish()?;
        finish_filling(&connection)?;
        let (bytes, seconds) = (std::fs::metadata(&database)?.len(), started.elapsed().as_secs());
        println!(
            "  {} tenants, {DAYS} days: {rows} rows, the file has {} MB, filled in {seconds} s",
            tenants.len(),
            bytes / 1_000_000
        );
        Ok(LoadedPlatform { key, end })
    }
}

/// Made one after the other in the time of which there are figures; in the order of their ids.
fn insert_tenants(connection: &Connection, count: usize, end: i64) -> Outcome<Vec<String>> {
    let (env, mut tenants) = (Env::default(), Vec::with_capacity(count));
    connection.execute_batch("BEGIN")?;
    for n in 0..i64::try_from(count)? {
        let at = end - DAYS * DAY_MS + n * DAYS * DAY_MS / i64::try_from(count)?;
        let id = TenantId::new_at(&env, Timestamp::from_millis(at)).to_string();
        connection.execute(INSERT_TENANT, params![id, format!("bench-{n}"), at])?;
        connection.execute(CLOCK, params![id, at])?;
        tenants.push(id);
    }
    connection.execute_batch("COMMIT")?;
    tenants.sort();
    Ok(tenants)
}

fn share_of(tenants: &[String]) -> DailyVolume {
    let count = tenants.len().max(1) as i64;
    DailyVolume { tickets: VOLUME.tickets / count, requests: VOLUME.requests / count }
}

fn write_by_tenant(rows: &mut RowWriter<'_>, tenants: &[String], end: i64) -> Outcome {
    let share = share_of(tenants);
    for (grain, days) in BY_TENANT_DAYS {
        let series = SumSeries {
            tenant: "",
            dimension: TENANT,
            grains: &[grain],
            members: tenants,
            since: end - days * DAY_MS,
            until: end,
        };
        rows.write_series(series, |grain, chance| share.tenant_figures(grain, chance))?;
    }
    Ok(())
}

fn write_tenants(rows: &mut RowWriter<'_>, tenants: &[String], end: i64) -> Outcome {
    let (share, alone, mut chance) = (share_of(tenants), [String::new()], Chance::new(5));
    for (grain, days) in OWN_DAYS {
        let pool = BodyPool::make(&mut chance, |chance| RollupBody::of(&share.all_figures(grain, chance)));
        for tenant in tenants {
            let series = SumSeries {
                tenant,
                dimension: Dimension::NONE,
                grains: &[],
                members: &alone,
                since: end - days * DAY_MS,
                until: end,
            };
            rows.write_sums(series, grain, &pool, &mut chance)?;
        }
    }
    Ok(())
}
