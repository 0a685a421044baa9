//! One tenant with 400 days of figures in an embedded store, as if it had ten million tickets and a billion requests.
//!
//! The sums of a grain are not those of the shorter one: each is as large as it would be, which is all that is measured. Facts
//! are there where a range that is asked for can end within a quarter of an hour.

use std::path::Path;
use std::time::Instant;

use analytics::fold::store::grains_of;
use figures::Dimension;
use figures::cells::{CURRENCY, KEY, ROUTE};
use kernel::base::{DAY_MS, Env, HOUR_MS, SECOND_MS};
use kernel::store::FactRetention;

use super::bodies::{DailyVolume, spend_figures, usage_figures};
use super::facts::{creation_fact, metered_fact, resolution_fact};
use super::grain::{Grain, part_of_day};
use super::members::Members;
use super::rows::{RowWriter, SumSeries, finish_filling, open_for_filling};
use crate::chance::Chance;
use crate::harness::Outcome;
use crate::server::{Server, make_tenant};
use crate::tickets::data::PRIORITIES;

pub const DAYS: i64 = 400;
pub const VOLUME: DailyVolume = DailyVolume { tickets: 10_000_000 / DAYS, requests: 1_000_000_000 / DAYS };
/// Facts of requests are kept for two days; those of the last hours are read.
const METERED_MS: i64 = 3 * HOUR_MS;

pub struct LoadedTenant {
    pub tenant: String,
    pub key: String,
    /// Before it everything happened.
    pub end: i64,
}

impl LoadedTenant {
    /// Fills the folder; `ago_ms` are the ages at which ranges begin.
    pub fn make(folder: &Path, ago_ms: &[i64]) -> Outcome<Self> {
        let started = Instant::now();
        let server = Server::start(folder)?;
        let (tenant, key) = make_tenant(&server, folder, &[], "bench")?;
        server.stop()?;
        let database = folder.join("tenant-control.db");
        let connection = open_for_filling(&database)?;
        let end = Env::default().now().as_millis();
        let (mut rows, members) = (RowWriter::start(&connection)?, Members::make(end));
        write_own_sums(&mut rows, &tenant, end, &members)?;
        write_keys(&mut rows, &tenant, end, &members)?;
        write_tickets(&mut rows, &[&tenant], (end - DAY_MS, end), &members)?;
        for ago_ms in ago_ms {
            write_tickets(&mut rows, &[&tenant], around(end - ago_ms), &members)?;
        }
        write_metered(&mut rows, &tenant, end, &members)?;
        let rows = rows.finish()?;
        finish_filling(&connection)?;
        let (bytes, seconds) = (std::fs::metadata(&database)?.len(), started.elapsed().as_secs());
        println!("  {DAYS} days: {rows} rows, the file has {} MB, filled in {seconds} s", bytes / 1_000_000);
        Ok(LoadedTenant { tenant, key, end })
    }
}

/// An hour before and after.
pub fn around(at: i64) -> (i64, i64) {
    (at - HOUR_MS, at + HOUR_MS)
}

/// What a tenant and the platform both have.
pub fn write_own_sums(rows: &mut RowWriter<'_>, tenant: &str, end: i64, members: &Members) -> Outcome {
    let (since, alone) = (end - DAYS * DAY_MS, [String::new()]);
    let series = |dimension| SumSeries { tenant, dimension, grains: &Grain::ALL, members: &[], since, until: end };
    let all = SumSeries { members: &alone, ..series(Dimension::NONE) };
    rows.write_series(all, |grain, chance| VOLUME.all_figures(grain, chance))?;
    let routes = SumSeries { members: &members.routes, grains: grains_of(ROUTE), ..series(ROUTE) };
    let share = VOLUME.requests / members.routes.len() as i64;
    rows.write_series(routes, |grain, chance| usage_figures(part_of_day(grain, share), chance))?;
    rows.write_series(SumSeries { members: &members.currencies, ..series(CURRENCY) }, spend_figures)?;
    // Those of the platform are not broken down by organization.
    let organizations: &[String] = if tenant.is_empty() { &[] } else { members.organizations.as_slice() };
    rows.write_cohorts(tenant, (since, end), VOLUME, organizations)
}

fn write_keys(rows: &mut RowWriter<'_>, tenant: &str, end: i64, members: &Members) -> Outcome {
    let keys = members.key_texts();
    let share = VOLUME.requests / keys.len() as i64;
    let series = SumSeries {
        tenant,
        dimension: KEY,
        grains: grains_of(KEY),
        members: &keys,
        since: end - DAYS * DAY_MS,
        until: end,
    };
    rows.write_series(series, |grain, chance| usage_figures(part_of_day(grain, share), chance))
}

/// Facts of tickets that are created and resolved in a range, of these tenants in turn.
pub fn write_tickets(
    rows: &mut RowWriter<'_>,
    tenants: &[&str],
    (since, until): (i64, i64),
    members: &Members,
) -> Outcome {
    let (mut chance, every_ms) = (Chance::new(3), DAY_MS / VOLUME.tickets);
    for n in 0..(until - since) / every_ms {
        let at = since + n * every_ms;
        let tenant = tenants[chance.below(tenants.len())];
        let organization = members.organizations[chance.below(members.organizations.len())].as_str();
        let priority = PRIORITIES[chance.below(PRIORITIES.len())];
        rows.write_fact(tenant, &creation_fact(at, priority, Some(organization)), FactRetention::Long)?;
        let born_at = at - chance.wait_ms(DAY_MS);
        rows.write_fact(tenant, &resolution_fact(born_at, at, organization), FactRetention::Long)?;
    }
    Ok(())
}

fn write_metered(rows: &mut RowWriter<'_>, tenant: &str, end: i64, members: &Members) -> Outcome {
    let (mut chance, of_second) = (Chance::new(4), VOLUME.requests * SECOND_MS / DAY_MS);
    let last = end - end.rem_euclid(SECOND_MS);
    for n in 1..=METERED_MS / SECOND_MS {
        let fact = metered_fact(last - n * SECOND_MS, of_second, members, &mut chance);
        rows.write_fact(tenant, &fact, FactRetention::Short)?;
    }
    Ok(())
}
