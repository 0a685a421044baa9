//! Writes sums and facts into an embedded store by direct SQL, in the order of their keys.

use std::path::Path;

use analytics::fold::store::{BIRTH_GRAINS, change_grains};
use figures::{Dimension, Fact, Figures};
use kernel::base::DAY_MS;
use kernel::store::FactRetention;
use rusqlite::{Connection, Statement, params};

use super::bodies::{BodyPool, DailyVolume, RollupBody};
use super::grain::{Grain, starts};
use crate::chance::Chance;
use crate::harness::Outcome;

/// Nothing is safe while it is filled: half a file is of no use anyway.
const FILLING: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
     PRAGMA foreign_keys = OFF; PRAGMA cache_size = -500000;";
/// Rows under one commit.
const STEP: usize = 20_000;

const ROLLUP: &str = "INSERT INTO rollups (tenant_id, dimension, grain, start, member, summary, samples) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const COHORT: &str = "INSERT INTO cohorts (tenant_id, grain, start, change_grain, changed_at, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const FACT: &str = "INSERT INTO facts (tenant_id, at, id, born_at, expires_at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

pub fn open_for_filling(database: &Path) -> Outcome<Connection> {
    let connection = Connection::open(database)?;
    connection.execute_batch(FILLING)?;
    Ok(connection)
}

/// Moves all into the file; a server can open it then.
pub fn finish_filling(connection: &Connection) -> Outcome {
    connection.execute_batch("PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = WAL;")?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// The sums of one tenant in one dimension over a range.
#[derive(Clone, Copy)]
pub struct SumSeries<'a> {
    /// Empty for the platform.
    pub tenant: &'a str,
    pub dimension: Dimension,
    pub grains: &'a [Grain],
    pub members: &'a [String],
    pub since: i64,
    pub until: i64,
}

pub struct RowWriter<'a> {
    connection: &'a Connection,
    rollup: Statement<'a>,
    cohort: Statement<'a>,
    fact: Statement<'a>,
    rows: usize,
    facts: i64,
}

impl<'a> RowWriter<'a> {
    pub fn start(connection: &'a Connection) -> Outcome<Self> {
        connection.execute_batch("BEGIN")?;
        Ok(RowWriter {
            connection,
            rollup: connection.prepare(ROLLUP)?,
            cohort: connection.prepare(COHORT)?,
            fact: connection.prepare(FACT)?,
            rows: 0,
            facts: 0,
        })
    }

    /// How many rows were written.
    pub fn finish(self) -> Outcome<usize> {
        self.connection.execute_batch("COMMIT")?;
        Ok(self.rows)
    }

    /// A row for each member and each of the grains.
    pub fn write_series(&mut self, series: SumSeries<'_>, make: impl Fn(Grain, &mut Chance) -> Figures) -> Outcome {
        let mut chance = Chance::new(u64::from(series.dimension.0));
        for grain in series.grains {
            let pool = BodyPool::make(&mut chance, |chance| RollupBody::of(&make(*grain, chance)));
            self.write_sums(series, *grain, &pool, &mut chance)?;
        }
        Ok(())
    }

    /// The same of one grain, with bodies that others have as well.
    pub fn write_sums(
        &mut self,
        series: SumSeries<'_>,
        grain: Grain,
        pool: &BodyPool<RollupBody>,
        chance: &mut Chance,
    ) -> Outcome {
        let SumSeries { tenant, dimension, members, since, until, .. } = series;
        for start in starts(grain, since, until) {
            for member in members {
                let RollupBody { summary, samples } = pool.draw(chance);
                self.rollup.execute(params![tenant, dimension.0, grain.minutes(), start, member, summary, samples])?;
                self.count_row()?;
            }
        }
        Ok(())
    }

    /// The tickets of a range by when they were created, and by the hours and days in which they changed.
    pub fn write_cohorts(
        &mut self,
        tenant: &str,
        (since, until): (i64, i64),
        volume: DailyVolume,
        organizations: &[String],
    ) -> Outcome {
        let mut chance = Chance::new(64);
        for grain in BIRTH_GRAINS {
            let make = |chance: &mut Chance| volume.cohort_body(grain, organizations, chance);
            let pool = BodyPool::make(&mut chance, make);
            for change in change_grains(grain) {
                // No range that is asked for ends within an earlier day.
                let first = if *change == Grain::Hour { until - HOURS_MS } else { since };
                for start in starts(grain, since, until) {
                    let last = (start + changing_days(grain) * DAY_MS).min(until);
                    for changed_at in starts(*change, start.max(first), last) {
                        let values = (grain.minutes(), start, change.minutes(), changed_at, pool.draw(&mut chance));
                        self.cohort.execute(params![tenant, values.0, values.1, values.2, values.3, values.4])?;
                        self.count_row()?;
                    }
                }
            }
        }
        Ok(())
    }

    pub fn write_fact(&mut self, tenant: &str, fact: &Fact, retention: FactRetention) -> Outcome {
        self.facts += 1;
        let expires_at = fact.at + retention.as_millis();
        self.fact.execute(params![tenant, fact.at, self.facts, fact.born_at, expires_at, fact.body_bytes()])?;
        self.count_row()
    }

    fn count_row(&mut self) -> Outcome {
        self.rows += 1;
        if self.rows.is_multiple_of(STEP) {
            self.connection.execute_batch("COMMIT; BEGIN")?;
        }
        Ok(())
    }
}

/// Of how long ago there are hours of changes.
const HOURS_MS: i64 = 2 * DAY_MS;

/// Days on which a ticket of a quarter of an hour, a day or a week changes: its first, and some after it.
const fn changing_days(grain: Grain) -> i64 {
    match grain {
        Grain::Quarter | Grain::Hour => 3,
        Grain::Day => 8,
        Grain::Week => 14,
    }
}
