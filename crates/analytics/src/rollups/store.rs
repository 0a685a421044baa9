//! SQL that reads sums, and the facts at the ends of a range that no sum ends at.

use std::collections::BTreeMap;

use figures::cells::{CURRENCY, KEY, ROUTE, TENANT};
use figures::{Counts, Dimension, FigureGroups, FigureSummary, Figures, Undecodable};
use kernel::args;
use kernel::base::{Error, Result};
use kernel::store::{Db, FactRetention, Param, Row};

use crate::fold::store::{BIRTH_GRAINS, MEMBER_HOURS_MS, PLATFORM, change_grains, grains_of};
use crate::grain::{END_OF_TIME, Grain, START_OF_TIME, Span, cover_range, join_spans};

kernel::statements! {
    SUMS = "SELECT start, member, summary, samples FROM rollups WHERE tenant_id = $1 AND dimension = $2 AND grain = $3
        AND start >= $4 AND start < $5 ORDER BY start, member";
    SUMMARIES = "SELECT start, member, summary FROM rollups WHERE tenant_id = $1 AND dimension = $2 AND grain = $3
        AND start >= $4 AND start < $5 ORDER BY start, member";
    FACTS = "SELECT tenant_id, at, body FROM facts WHERE tenant_id = $1 AND at >= $2 AND at < $3";
    /// The same of all tenants, along the key of each.
    PLATFORM_FACTS = "SELECT f.tenant_id, f.at, f.body FROM tenants t CROSS JOIN facts f
        WHERE f.tenant_id = t.id AND f.at >= $1 AND f.at < $2";
    /// Along the key: there are more changes than births.
    COHORT_DAYS = "SELECT body FROM cohorts /* INDEXED BY sqlite_autoindex_cohorts_1 */ WHERE tenant_id = $1 AND grain = $2 AND change_grain = 1440
        AND start >= $3 AND start < $4 AND changed_at < $5";
    COHORT_HOURS = "SELECT body FROM cohorts /* INDEXED BY cohorts_by_change */ WHERE tenant_id = $1 AND grain = $2
        AND change_grain = 60 AND start >= $3 AND start < $4 AND changed_at >= $5 AND changed_at < $6";
    /// Of records that were created in a range, the facts of another range.
    FACTS_OF_BORN = "SELECT body FROM facts /* INDEXED BY facts_of_born */
        WHERE tenant_id = $1 AND born_at IS NOT NULL AND at >= $2 AND at < $3 AND born_at >= $4 AND born_at < $5";
    PLATFORM_FACTS_OF_BORN = "SELECT f.body FROM tenants t CROSS JOIN facts f /* INDEXED BY facts_of_born */
        WHERE f.tenant_id = t.id AND f.born_at IS NOT NULL AND f.at >= $1 AND f.at < $2 AND f.born_at >= $3 AND f.born_at < $4";
    FACTS_BY_BIRTH = "SELECT body FROM facts /* INDEXED BY facts_by_birth */
        WHERE tenant_id = $1 AND born_at >= $2 AND born_at < $3 AND at >= $4 AND at < $5";
    PLATFORM_FACTS_BY_BIRTH = "SELECT f.body FROM tenants t CROSS JOIN facts f /* INDEXED BY facts_by_birth */
        WHERE f.tenant_id = t.id AND f.born_at >= $1 AND f.born_at < $2 AND f.at >= $3 AND f.at < $4";
}

/// Whose figures are read.
#[derive(Clone, Copy)]
pub enum FigureReader<'a> {
    /// By the handle of a tenant.
    Tenant(&'a Db),
    /// Of all tenants together, by the handle of the system.
    Platform(&'a Db),
    /// Of one tenant by the handle of the system.
    TenantOfPlatform(&'a Db, &'a str),
}

/// A range of time, in milliseconds: from `since` to before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub since: i64,
    pub until: i64,
}

/// What happened in one of a grain, without what its percentiles are computed of.
#[derive(Clone, Debug)]
pub struct SummaryRow {
    pub start: i64,
    pub member: String,
    pub summary: FigureSummary,
}

impl<'a> FigureReader<'a> {
    fn db(self) -> &'a Db {
        match self {
            FigureReader::Tenant(db) | FigureReader::Platform(db) | FigureReader::TenantOfPlatform(db, _) => db,
        }
    }

    async fn visit(
        self,
        sql: &str,
        values: &[&dyn Param],
        each: impl FnMut(&Row<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        let tenant = match self {
            FigureReader::Tenant(db) => return db.visit(sql, values, each).await,
            FigureReader::Platform(_) => PLATFORM,
            FigureReader::TenantOfPlatform(_, tenant) => tenant,
        };
        let with_tenant: Vec<&dyn Param> =
            std::iter::once(&tenant as &dyn Param).chain(values.iter().copied()).collect();
        self.db().visit(sql, &with_tenant, each).await
    }

    /// The reader of one tenant's figures, for the platform's operator.
    pub fn of_tenant<'t>(self, tenant: &'t str) -> FigureReader<'t>
    where
        'a: 't,
    {
        FigureReader::TenantOfPlatform(self.db(), tenant)
    }

    /// How things stood at a moment: the sum of all that was before.
    pub async fn read_level(self, until: i64) -> Result<Counts> {
        let range = TimeRange { since: START_OF_TIME, until: self.align(Dimension::NONE, until) };
        let spans = cover_range(range.since, range.until, &Grain::ALL);
        let mut facts = FigureGroups::default();
        for edge in edges_of(range, &spans) {
            let add = |row: &Row<'_>| add_fact(&mut facts, Dimension::NONE, row);
            self.visit_facts(edge, add).await?;
        }
        let mut level = facts.get(Dimension::NONE, "").map(Figures::counts).cloned().unwrap_or_default();
        for row in self.read_summaries(Dimension::NONE, spans).await? {
            level.add_counts(&row.summary.counts);
        }
        Ok(level)
    }

    /// The sums of these spans one by one, in the order of time.
    pub async fn read_summaries(self, dimension: Dimension, spans: Vec<Span>) -> Result<Vec<SummaryRow>> {
        let mut rows = Vec::new();
        for Span { grain, start, end } in join_spans(spans) {
            let values = args![i64::from(dimension.0), grain.minutes(), start, end];
            let each = |row: &Row<'_>| {
                let summary = FigureSummary::from_bytes(row.get_bytes(2)?).map_err(Error::internal)?;
                rows.push(SummaryRow { start: row.get(0)?, member: row.get(1)?, summary });
                Ok(())
            };
            self.visit(SUMMARIES, values, each).await?;
        }
        rows.sort_by_key(|row| row.start);
        Ok(rows)
    }

    /// Calls `add` for each sum of these spans with its start, its member, and its figures as bytes.
    pub async fn visit_sums(
        self,
        dimension: Dimension,
        spans: Vec<Span>,
        mut add: impl FnMut(i64, &str, StoredFigures<'_>) -> Result<(), Undecodable> + Send,
    ) -> Result<()> {
        for Span { grain, start, end } in join_spans(spans) {
            let values = args![i64::from(dimension.0), grain.minutes(), start, end];
            let each = |row: &Row<'_>| {
                let stored = StoredFigures { summary: row.get_bytes(2)?, samples: row.get_bytes(3)? };
                add(row.get(0)?, row.get_text(1)?, stored).map_err(Error::internal)
            };
            self.visit(SUMS, values, each).await?;
        }
        Ok(())
    }

    /// What is not broken down, of exactly this range.
    pub async fn read_range(self, range: TimeRange) -> Result<Figures> {
        Ok(self.read_groups(Dimension::NONE, range).await?.remove("").unwrap_or_default())
    }

    /// By member of a dimension, of exactly this range; where its facts are gone, from the start of a sum to that of another, so
    /// that ranges that follow each other add up.
    pub async fn read_groups(self, dimension: Dimension, range: TimeRange) -> Result<BTreeMap<String, Figures>> {
        let (since, until) = (self.align(dimension, range.since), self.align(dimension, range.until));
        let range = TimeRange { since, until };
        let spans = cover_range(since, until, grains_of(dimension));
        let mut groups = FigureGroups::default();
        for edge in edges_of(range, &spans) {
            self.visit_facts(edge, |row| add_fact(&mut groups, dimension, row)).await?;
        }
        let add = |_, member: &str, stored: StoredFigures<'_>| {
            groups.add_with(dimension, member, |sum| sum.add_bytes(stored.summary, stored.samples))
        };
        self.visit_sums(dimension, spans, add).await?;
        Ok(groups.into_members(dimension))
    }

    /// Before this facts of records may be gone. They are deleted some time after they expire.
    fn facts_kept_since(self) -> i64 {
        self.db().env().now().as_millis() - FactRetention::Long.as_millis()
    }

    /// The last moment until this one that the figures of a dimension are known to.
    fn align(self, dimension: Dimension, at: i64) -> i64 {
        let now = self.db().env().now().as_millis();
        let is_metered = [KEY, ROUTE, TENANT].contains(&dimension);
        let retention = if is_metered { FactRetention::Short } else { FactRetention::Long };
        match grains_of(dimension) {
            _ if at >= now - retention.as_millis() => at,
            [Grain::Hour, ..] if at < now - MEMBER_HOURS_MS => Grain::Day.floor(at),
            [shortest, ..] => shortest.floor(at),
            [] => at,
        }
    }

    /// The facts of a range shorter than any sum, each with its tenant and its time.
    async fn visit_facts(self, range: TimeRange, each: impl FnMut(&Row<'_>) -> Result<()> + Send) -> Result<()> {
        let values = args![range.since, range.until];
        match self {
            FigureReader::Platform(db) => db.visit(PLATFORM_FACTS, values, each).await,
            FigureReader::Tenant(_) | FigureReader::TenantOfPlatform(..) => self.visit(FACTS, values, each).await,
        }
    }

    /// Changes of rates by currency since the beginning, in the order of time: one by one in the quarters of an hour of these
    /// moments, which are in their order, while facts are kept.
    pub async fn read_rate_changes(self, moments: [i64; 2]) -> Result<Vec<SummaryRow>> {
        let (mut spans, mut changes, mut end) = (Vec::new(), Vec::new(), START_OF_TIME);
        for at in moments {
            // No sum reaches beyond a moment.
            let quarter = TimeRange { since: Grain::Quarter.floor(at), until: Grain::Quarter.ceil(at) };
            if quarter.since < end {
                continue;
            }
            spans.extend(cover_range(end, quarter.since, &Grain::ALL));
            end = quarter.since;
            if at == quarter.since || quarter.since < self.facts_kept_since() {
                continue;
            }
            end = quarter.until;
            let add = |row: &Row<'_>| {
                let (start, mut groups) = (row.get(1)?, FigureGroups::default());
                add_fact(&mut groups, CURRENCY, row)?;
                let change =
                    |(member, figures): (String, Figures)| SummaryRow { start, member, summary: figures.to_summary() };
                changes.extend(groups.into_members(CURRENCY).into_iter().map(change));
                Ok(())
            };
            self.visit_facts(quarter, add).await?;
        }
        spans.extend(cover_range(end, END_OF_TIME, &Grain::ALL));
        changes.extend(self.read_summaries(CURRENCY, spans).await?);
        changes.sort_by_key(|row| row.start);
        Ok(changes)
    }

    /// Of the records that were created in a range, how they stood at its end; when the facts of then are gone, at the end of its
    /// hour.
    pub async fn read_cohorts(self, born: TimeRange) -> Result<FigureGroups> {
        let until = born.until;
        let has_facts = until >= self.facts_kept_since();
        let day = Grain::Day.floor(until);
        let hour = if has_facts { Grain::Hour.floor(until) } else { Grain::Hour.ceil(until) };
        let spans = cover_range(born.since, until, &BIRTH_GRAINS);
        let mut sums = FigureGroups::default();
        let mut add =
            |row: &Row<'_>| sums.add_bytes_of(row.get_bytes(0)?, Dimension::is_of_cohorts).map_err(Error::internal);
        for edge in edges_of(born, &spans) {
            self.visit_by_birth(edge, TimeRange { since: START_OF_TIME, until }, &mut add).await?;
        }
        for Span { grain, start, end } in &spans {
            let (born, minutes) = (TimeRange { since: *start, until: *end }, grain.minutes());
            if change_grains(*grain).contains(&Grain::Hour) {
                self.visit(COHORT_DAYS, args![minutes, start, end, day], &mut add).await?;
                if day < hour {
                    self.visit(COHORT_HOURS, args![minutes, start, end, day, hour], &mut add).await?;
                }
                if hour < until {
                    self.visit_born(born, TimeRange { since: hour, until }, &mut add).await?;
                }
            } else if has_facts {
                self.visit(COHORT_DAYS, args![minutes, start, end, day], &mut add).await?;
                self.visit_by_birth(born, TimeRange { since: day, until }, &mut add).await?;
            } else {
                let day = Grain::Day.ceil(until);
                self.visit(COHORT_DAYS, args![minutes, start, end, day], &mut add).await?;
            }
        }
        Ok(sums)
    }

    /// The facts of a range of the records that were created in another.
    async fn visit_born(
        self,
        born: TimeRange,
        at: TimeRange,
        each: impl FnMut(&Row<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        let values = args![at.since, at.until, born.since, born.until];
        match self {
            FigureReader::Platform(db) => db.visit(PLATFORM_FACTS_OF_BORN, values, each).await,
            FigureReader::Tenant(_) | FigureReader::TenantOfPlatform(..) => {
                self.visit(FACTS_OF_BORN, values, each).await
            }
        }
    }

    /// The same, where few records were created.
    async fn visit_by_birth(
        self,
        born: TimeRange,
        at: TimeRange,
        each: impl FnMut(&Row<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        let values = args![born.since, born.until, at.since, at.until];
        match self {
            FigureReader::Platform(db) => db.visit(PLATFORM_FACTS_BY_BIRTH, values, each).await,
            FigureReader::Tenant(_) | FigureReader::TenantOfPlatform(..) => {
                self.visit(FACTS_BY_BIRTH, values, each).await
            }
        }
    }
}

/// The figures of a row of sums as they are stored.
pub struct StoredFigures<'a> {
    pub summary: &'a [u8],
    pub samples: &'a [u8],
}

/// Adds what a fact contributes to a dimension.
fn add_fact(groups: &mut FigureGroups, dimension: Dimension, row: &Row<'_>) -> Result<()> {
    let body = row.get_bytes(2)?;
    if dimension != TENANT {
        return groups.add_bytes_of(body, |other| other == dimension).map_err(Error::internal);
    }
    // A fact does not name its tenant, because it has one.
    let mut all = FigureGroups::default();
    all.add_bytes_of(body, |other| other == Dimension::NONE).map_err(Error::internal)?;
    if let Some(figures) = all.get(Dimension::NONE, "") {
        groups.add_with(TENANT, row.get_text(0)?, |sum| sum.add_figures(figures));
    }
    Ok(())
}

/// What the spans leave out at the ends of a range.
fn edges_of(range: TimeRange, spans: &[Span]) -> Vec<TimeRange> {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return vec![range] };
    let edges =
        [TimeRange { since: range.since, until: first.start }, TimeRange { since: last.end, until: range.until }];
    edges.into_iter().filter(|edge| edge.since < edge.until).collect()
}
