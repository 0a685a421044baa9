//! SQL that reads sums, and the facts at the ends of a range that no sum ends at.

use std::collections::{BTreeMap, HashMap};

use figures::{Dimension, Figures, Group, entries_from_bytes, visit_entries};
use kernel::args;
use kernel::base::{Error, Result};
use kernel::store::{Db, FromRow, Param};

use crate::fold::store::{BIRTH_GRAINS, PLATFORM, grains_of};
use crate::grain::{END_OF_TIME, Grain, START_OF_TIME, Span, cover_range, join_spans};

kernel::statements! {
    SUMS = "SELECT start, member, body FROM rollups WHERE tenant_id = $1 AND dimension = $2 AND grain = $3
        AND start >= $4 AND start < $5 ORDER BY start, member";
    FACTS = "SELECT body FROM facts WHERE tenant_id = $1 AND at >= $2 AND at < $3";
    /// The same of all tenants, along the key of each.
    PLATFORM_FACTS = "SELECT f.body FROM tenants t CROSS JOIN facts f WHERE f.tenant_id = t.id AND f.at >= $1 AND f.at < $2";
    COHORTS = "SELECT body FROM cohorts WHERE tenant_id = $1 AND grain = $2 AND start >= $3 AND start < $4 AND changed_on < $5";
    /// Of records that were created in a range, the facts of another range.
    FACTS_OF_BORN = "SELECT body FROM facts /* INDEXED BY facts_of_born */
        WHERE tenant_id = $1 AND born_at IS NOT NULL AND at >= $2 AND at < $3 AND born_at >= $4 AND born_at < $5";
    PLATFORM_FACTS_OF_BORN = "SELECT f.body FROM tenants t CROSS JOIN facts f /* INDEXED BY facts_of_born */
        WHERE f.tenant_id = t.id AND f.born_at IS NOT NULL AND f.at >= $1 AND f.at < $2 AND f.born_at >= $3 AND f.born_at < $4";
    FACTS_BY_BIRTH = "SELECT body FROM facts /* INDEXED BY facts_by_birth */
        WHERE tenant_id = $1 AND born_at >= $2 AND born_at < $3 AND at < $4";
    PLATFORM_FACTS_BY_BIRTH = "SELECT f.body FROM tenants t CROSS JOIN facts f /* INDEXED BY facts_by_birth */
        WHERE f.tenant_id = t.id AND f.born_at >= $1 AND f.born_at < $2 AND f.at < $3";
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

/// The sum of what happened in one of a grain.
#[derive(Clone, Debug)]
pub struct SumRow {
    pub start: i64,
    pub member: String,
    pub figures: Figures,
}

impl SumRow {}

impl<'a> FigureReader<'a> {
    fn db(self) -> &'a Db {
        match self {
            FigureReader::Tenant(db) | FigureReader::Platform(db) | FigureReader::TenantOfPlatform(db, _) => db,
        }
    }

    async fn list<T: FromRow>(self, sql: &str, values: &[&dyn Param]) -> Result<Vec<T>> {
        let tenant = match self {
            FigureReader::Tenant(db) => return db.list(sql, values).await,
            FigureReader::Platform(_) => PLATFORM,
            FigureReader::TenantOfPlatform(_, tenant) => tenant,
        };
        let with_tenant: Vec<&dyn Param> =
            std::iter::once(&tenant as &dyn Param).chain(values.iter().copied()).collect();
        self.db().list(sql, &with_tenant).await
    }

    /// The reader of one tenant's figures, for the platform's operator.
    pub fn of_tenant<'t>(self, tenant: &'t str) -> FigureReader<'t>
    where
        'a: 't,
    {
        FigureReader::TenantOfPlatform(self.db(), tenant)
    }

    /// How things stood at a moment: the sum of all that was before.
    pub async fn read_level(self, until: i64) -> Result<Figures> {
        self.read_range(TimeRange { since: START_OF_TIME, until }).await
    }

    /// The sums of these spans, in the order of time.
    pub async fn read_spans(self, dimension: Dimension, spans: Vec<Span>) -> Result<Vec<SumRow>> {
        let mut rows = Vec::new();
        for Span { grain, start, end } in join_spans(spans) {
            let number = i64::from(dimension.0);
            let read: Vec<(i64, String, Vec<u8>)> = self.list(SUMS, args![number, grain.minutes(), start, end]).await?;
            rows.reserve(read.len());
            for (start, member, body) in read {
                let figures = Figures::from_bytes(&body).map_err(Error::internal)?;
                rows.push(SumRow { start, member, figures });
            }
        }
        rows.sort_by_key(|row| row.start);
        Ok(rows)
    }

    /// The sums of these spans that are not broken down, as they are stored, in the order of time.
    pub async fn read_bodies(self, spans: Vec<Span>) -> Result<Vec<(i64, Vec<u8>)>> {
        let mut rows = Vec::new();
        for Span { grain, start, end } in join_spans(spans) {
            let read: Vec<(i64, String, Vec<u8>)> =
                self.list(SUMS, args![i64::from(Dimension::NONE.0), grain.minutes(), start, end]).await?;
            rows.extend(read.into_iter().map(|(start, _, body)| (start, body)));
        }
        rows.sort_by_key(|(start, _)| *start);
        Ok(rows)
    }

    /// What is not broken down, of exactly this range.
    pub async fn read_range(self, range: TimeRange) -> Result<Figures> {
        let mut groups = self.read_groups(Dimension::NONE, range).await?;
        Ok(groups.remove("").unwrap_or_default())
    }

    /// By member of a dimension, of exactly this range, where its facts are still kept.
    pub async fn read_groups(self, dimension: Dimension, range: TimeRange) -> Result<BTreeMap<String, Figures>> {
        let grains = grains_of(dimension);
        let spans = cover_range(range.since, range.until, grains);
        let mut groups: BTreeMap<String, Figures> = BTreeMap::new();
        for edge in edges_of(range, &spans) {
            for (group, figures) in self.read_facts(edge).await? {
                if group.dimension == dimension {
                    groups.entry(group.member).or_default().add_figures(&figures);
                }
            }
        }
        for row in self.read_spans(dimension, spans).await? {
            groups.entry(row.member).or_default().add_figures(&row.figures);
        }
        Ok(groups)
    }

    /// The facts of a range shorter than any sum.
    async fn read_facts(self, range: TimeRange) -> Result<Vec<(Group, Figures)>> {
        let values = args![range.since, range.until];
        let bodies = match self {
            FigureReader::Platform(db) => db.list(PLATFORM_FACTS, values).await?,
            FigureReader::Tenant(_) | FigureReader::TenantOfPlatform(..) => self.list(FACTS, values).await?,
        };
        decode_all(bodies)
    }

    /// Of the records that were created in a range, how they stood at its end.
    pub async fn read_cohorts(self, born: TimeRange, now: i64) -> Result<BTreeMap<Group, Figures>> {
        let spans = cover_range(born.since, born.until, &BIRTH_GRAINS);
        // Later than now nothing has happened, so the whole day of today counts.
        let today = if born.until > now { END_OF_TIME } else { Grain::Day.floor(born.until) };
        let mut bodies: Vec<Vec<u8>> = Vec::new();
        for edge in edges_of(born, &spans) {
            bodies.extend(self.read_by_birth(edge, born.until).await?);
        }
        for span in &spans {
            let values = (span.grain.minutes(), span.start, span.end);
            bodies.extend(self.list::<Vec<u8>>(COHORTS, args![values.0, values.1, values.2, today]).await?);
        }
        if let (Some(first), Some(last)) = (spans.first(), spans.last()) {
            let covered = TimeRange { since: first.start, until: last.end };
            if today < born.until {
                bodies.extend(self.read_born(covered, TimeRange { since: today, until: born.until }).await?);
            }
        }
        add_up_cohorts(&bodies)
    }

    /// The facts of a range of the records that were created in another.
    async fn read_born(self, born: TimeRange, at: TimeRange) -> Result<Vec<Vec<u8>>> {
        let values = args![at.since, at.until, born.since, born.until];
        match self {
            FigureReader::Platform(db) => db.list(PLATFORM_FACTS_OF_BORN, values).await,
            FigureReader::Tenant(_) | FigureReader::TenantOfPlatform(..) => self.list(FACTS_OF_BORN, values).await,
        }
    }

    /// All facts until a moment of the records that were created in a range.
    async fn read_by_birth(self, born: TimeRange, until: i64) -> Result<Vec<Vec<u8>>> {
        let values = args![born.since, born.until, until];
        match self {
            FigureReader::Platform(db) => db.list(PLATFORM_FACTS_BY_BIRTH, values).await,
            FigureReader::Tenant(_) | FigureReader::TenantOfPlatform(..) => self.list(FACTS_BY_BIRTH, values).await,
        }
    }
}

/// What the spans leave out at the ends of a range.
fn edges_of(range: TimeRange, spans: &[Span]) -> Vec<TimeRange> {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return vec![range] };
    let edges =
        [TimeRange { since: range.since, until: first.start }, TimeRange { since: last.end, until: range.until }];
    edges.into_iter().filter(|edge| edge.since < edge.until).collect()
}

/// The sums of all figures of cohorts.
fn add_up_cohorts(bodies: &[Vec<u8>]) -> Result<BTreeMap<Group, Figures>> {
    let mut sums: HashMap<(Dimension, &str), Figures> = HashMap::new();
    for body in bodies {
        let add = |dimension: Dimension, member, figures: Figures| {
            if dimension.is_of_cohorts() {
                sums.entry((dimension, member)).or_default().add_figures(&figures);
            }
        };
        visit_entries(body, add).map_err(Error::internal)?;
    }
    Ok(sums.into_iter().map(|((dimension, member), figures)| (Group::new(dimension, member), figures)).collect())
}

fn decode_all(bodies: Vec<Vec<u8>>) -> Result<Vec<(Group, Figures)>> {
    let mut entries = Vec::new();
    for body in bodies {
        entries.extend(entries_from_bytes(&body).map_err(Error::internal)?);
    }
    Ok(entries)
}
