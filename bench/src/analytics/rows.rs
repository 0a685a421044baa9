//! Writes sums and facts into an embedded store by direct SQL, in the order of their keys.

use std::path::Path;

use figures::{Dimension, Fact, Figures};
use kernel::base::DAY_MS;
use kernel::store::FactRetention;
use rusqlite::{Connection, Statement, params};

use super::bodies::{BodyPool, DailyVolume};
use super::grain::Grain;
use crate::chance::Chance;
use crate::harness::Outcome;

/// Nothing is safe while it is filled: half a file is of no use anyway.
const FILLING: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
     PRAGMA foreign_keys = OFF; PRAGMA cache_size = -500000;";
/// Rows under one commit.
const STEP: usize = 20_000;

const ROLLUP: &str =
    "INSERT INTO rollups (tenant_id, dimension, grain, start, member, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const COHORT: &str = "INSERT INTO cohorts (tenant_id, grain, start, changed_on, body) VALUES (?1, ?2, ?3, ?4, ?5)";
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
            let pool = BodyPool::make(&mut chance, |chance| make(*grain, chance).to_bytes());
            self.write_sums(series, *grain, &pool, &mut chance)?;
        }
        Ok(())
    }

    /// The same of one grain, with bodies that others have as well.
    pub fn write_sums(&mut self, series: SumSeries<'_>, grain: Grain, pool: &BodyPool, chance: &mut Chance) -> Outcome {
        let SumSeries { tenant, dimension, members, since, until, .. } = series;
        for start in grain.starts(since, until) {
            for member in members {
                let body = pool.draw(chance);
                self.rollup.execute(params![tenant, dimension.0, grain.minutes(), start, member, body])?;
                self.count_row()?;
            }
        }
        Ok(())
    }

    /// The tickets of a range by when they were created, and by the days on which they changed.
    pub fn write_cohorts(
        &mut self,
        tenant: &str,
        (since, until): (i64, i64),
        volume: DailyVolume,
        organizations: &[String],
    ) -> Outcome {
        let mut chance = Chance::new(64);
        for grain in Grain::OF_BIRTHS {
            let make = |chance: &mut Chance| volume.cohort_body(grain, organizations, chance);
            let pool = BodyPool::make(&mut chance, make);
            for start in grain.starts(since, until) {
                for day in 0..changing_days(grain) {
                    let changed_on = Grain::Day.floor(start) + day * DAY_MS;
                    if changed_on < until {
                        let body = pool.draw(&mut chance);
                        self.cohort.execute(params![tenant, grain.minutes(), start, changed_on, body])?;
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

/// Days on which a ticket of a quarter of an hour, a day or a week changes: its first, and some after it.
const fn changing_days(grain: Grain) -> i64 {
    match grain {
        Grain::Quarter | Grain::Hour => 3,
        Grain::Day => 8,
        Grain::Week => 14,
    }
}
