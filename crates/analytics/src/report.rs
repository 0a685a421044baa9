//! Reads the figures of a range: its totals, and its buckets.

use std::collections::{BTreeMap, HashMap};

use figures::cells::{
    BORN, BORN_OPEN, CURRENCY, KEY, ORGANIZATION, PRIORITY, ROUTE, SPEND_BEFORE_CHANGE, SPEND_RATE, STATUS,
};
use figures::{Counts, Dimension, FigureSummary, Figures};
use kernel::base::{Result, SECOND_MS, StringEnum, Timestamp};
use tickets::{Priority, TicketStatus};

use crate::families::{
    ApiUsageBucket, ApiUsageFamily, ApiUsageTotals, BackupBucket, BackupFamily, DeviceBucket, DeviceFamily, Families,
    Family, KeyUsage, OrganizationTickets, RouteUsage, SearchBucket, SearchFamily, TicketBucket, TicketFamily,
    TicketTotals, VmBucket, VmFamily, WebhookBucket, WebhookFamily, WorkflowBucket, WorkflowFamily,
};
use crate::fold::store::OTHER_MEMBER;
use crate::grain::{END_OF_TIME, Grain, START_OF_TIME, Span, cover_range};
pub use crate::rollups::store::{FigureReader, TimeRange};
use crate::rollups::store::{StoredFigures, SummaryRow};
use crate::shown::{ApiUsageAnalytics, Measured, Shown, Spend, TicketAnalytics, VmAnalytics};

/// What is asked for.
pub struct ReportRequest {
    /// As it is shown.
    pub range: TimeRange,
    /// Whether the range ends now or later: then everything that has happened since its beginning is in it.
    pub is_until_now: bool,
    /// The starts of all buckets, and the end of the last one.
    pub bounds: Vec<i64>,
    pub families: Vec<Family>,
    pub now: Timestamp,
}

/// The sums that all families are made of.
struct ReportSums {
    range: TimeRange,
    within: FigureSummary,
    at_end: Counts,
    buckets: Vec<BucketSums>,
}

struct BucketSums {
    start: Timestamp,
    within: FigureSummary,
    at_end: Counts,
}

impl ReportRequest {
    /// The range as it is read: what is until now needs no exact end, whatever the clocks of other nodes say.
    pub fn read_range(&self) -> TimeRange {
        let TimeRange { since, until } = self.range;
        TimeRange { since, until: if self.is_until_now { END_OF_TIME } else { until } }
    }

    /// The range as it is shown.
    pub fn moments(&self) -> (Timestamp, Timestamp) {
        (Timestamp::from_millis(self.range.since), Timestamp::from_millis(self.range.until))
    }
}

pub async fn read_families(reader: FigureReader<'_>, request: &ReportRequest) -> Result<Families> {
    let sums = read_sums(reader, request).await?;
    let mut families = Families::default();
    for family in &request.families {
        match family {
            Family::Tickets => families.tickets = Some(read_tickets(reader, request, &sums).await?),
            Family::Vms => families.vms = Some(read_vms(reader, request, &sums).await?),
            Family::ApiUsage => families.api_usage = Some(read_api_usage(reader, &sums).await?),
            Family::Devices => {
                let series = sums.series(|start, figures| DeviceBucket { start, figures });
                families.devices = Some(DeviceFamily { totals: sums.totals(), series });
            }
            Family::Backups => {
                let series = sums.series(|start, figures| BackupBucket { start, figures });
                families.backups = Some(BackupFamily { totals: sums.totals(), series });
            }
            Family::Workflows => {
                let series = sums.series(|start, figures| WorkflowBucket { start, figures });
                families.workflows = Some(WorkflowFamily { totals: sums.totals(), series });
            }
            Family::Webhooks => {
                let series = sums.series(|start, figures| WebhookBucket { start, figures });
                families.webhooks = Some(WebhookFamily { totals: sums.totals(), series });
            }
            Family::Searches => {
                let series = sums.series(|start, figures| SearchBucket { start, figures });
                families.searches = Some(SearchFamily { totals: sums.totals(), series });
            }
        }
    }
    Ok(families)
}

async fn read_sums(reader: FigureReader<'_>, request: &ReportRequest) -> Result<ReportSums> {
    let range = request.read_range();
    let within = reader.read_range(range).await?.to_summary();
    let at_end = reader.read_level(range.until).await?;
    let buckets = read_buckets(reader, &request.bounds).await?;
    Ok(ReportSums { range, within, at_end, buckets })
}

async fn read_buckets(reader: FigureReader<'_>, bounds: &[i64]) -> Result<Vec<BucketSums>> {
    let mut level = Counts::default();
    let first = bounds.first().copied().unwrap_or(START_OF_TIME);
    for row in reader.read_summaries(Dimension::NONE, cover_range(START_OF_TIME, first, &Grain::ALL)).await? {
        level.add_counts(&row.summary.counts);
    }
    let mut summaries = read_bucket_summaries(reader, bounds).await?;
    let mut buckets = Vec::with_capacity(bounds.len());
    for start in bounds.iter().take(bounds.len().saturating_sub(1)) {
        let within = summaries.remove(start).unwrap_or_default();
        level.add_counts(&within.counts);
        buckets.push(BucketSums { start: Timestamp::from_millis(*start), within, at_end: level.clone() });
    }
    Ok(buckets)
}

/// The figures of each bucket by its start. Of a bucket that is one sum the percentiles are there already.
async fn read_bucket_summaries(reader: FigureReader<'_>, bounds: &[i64]) -> Result<HashMap<i64, FigureSummary>> {
    let covers = bounds.windows(2).map(|pair| cover_range(pair[0], pair[1], &Grain::ALL));
    let (whole, parts): (Vec<Vec<Span>>, Vec<Vec<Span>>) = covers.partition(|spans| is_one_sum(spans));
    let whole = reader.read_summaries(Dimension::NONE, whole.concat()).await?;
    let mut summaries: HashMap<i64, FigureSummary> = whole.into_iter().map(|row| (row.start, row.summary)).collect();
    let bucket_of = |at: i64| bounds[bounds.partition_point(|bound| *bound <= at).saturating_sub(1)];
    let mut sums: BTreeMap<i64, Figures> = BTreeMap::new();
    let add = |start, _: &str, stored: StoredFigures<'_>| {
        sums.entry(bucket_of(start)).or_default().add_bytes(stored.summary, stored.samples)
    };
    reader.visit_sums(Dimension::NONE, parts.concat(), add).await?;
    summaries.extend(sums.into_iter().map(|(start, figures)| (start, figures.to_summary())));
    Ok(summaries)
}

fn is_one_sum(spans: &[Span]) -> bool {
    matches!(spans, [one] if one.end - one.start == one.grain.length_ms())
}

impl ReportSums {
    fn totals<T: Shown>(&self) -> T {
        T::measure(&Measured { within: &self.within, at_end: &self.at_end })
    }

    fn series<T: Shown, B>(&self, bucket: impl Fn(Timestamp, T) -> B) -> Vec<B> {
        let measure = |sums: &BucketSums| T::measure(&Measured { within: &sums.within, at_end: &sums.at_end });
        self.buckets.iter().map(|sums| bucket(sums.start, measure(sums))).collect()
    }
}

async fn read_tickets(reader: FigureReader<'_>, request: &ReportRequest, sums: &ReportSums) -> Result<TicketFamily> {
    let cohorts = reader.read_cohorts(request.read_range()).await?;
    let born =
        |dimension, member: &str| cohorts.get(dimension, member).map_or(0, |figures: &Figures| figures.count(BORN));
    let by_status = TicketStatus::ALL.iter().map(|status| (status.as_str().to_owned(), born(STATUS, status.as_str())));
    let by_priority =
        Priority::ALL.iter().map(|priority| (priority.as_str().to_owned(), born(PRIORITY, priority.as_str())));
    let (by_status, by_priority) = (by_status.collect(), by_priority.collect());
    let mut by_organization: Vec<OrganizationTickets> = cohorts
        .into_members(ORGANIZATION)
        .into_iter()
        .filter(|(_, figures)| figures.count(BORN) != 0)
        .map(|(organization, figures)| OrganizationTickets {
            organization_id: Some(organization).filter(|id| !id.is_empty()),
            created: figures.count(BORN),
            open: figures.count(BORN_OPEN),
        })
        .collect();
    by_organization.sort_by_key(|row| (std::cmp::Reverse(row.created), row.organization_id.clone()));
    let totals = TicketTotals {
        figures: sums.totals::<TicketAnalytics>(),
        by_status,
        by_priority,
        by_organization: (!matches!(reader, FigureReader::Platform(_))).then_some(by_organization),
    };
    Ok(TicketFamily { totals, series: sums.series(|start, figures| TicketBucket { start, figures }) })
}

async fn read_api_usage(reader: FigureReader<'_>, sums: &ReportSums) -> Result<ApiUsageFamily> {
    let usage = |figures: &Figures| {
        ApiUsageAnalytics::measure(&Measured { within: &figures.to_summary(), at_end: figures.counts() })
    };
    let by_key = match reader {
        FigureReader::Platform(_) => None,
        FigureReader::Tenant(_) | FigureReader::TenantOfPlatform(..) => {
            let rows = most_used(reader.read_groups(KEY, sums.range).await?);
            let key = |(key, figures): (String, Figures)| KeyUsage {
                key_id: Some(key).filter(|key| !key.is_empty()),
                figures: usage(&figures),
            };
            Some(rows.into_iter().map(key).collect())
        }
    };
    let rows = most_used(reader.read_groups(ROUTE, sums.range).await?);
    let by_route = rows.into_iter().map(|(route, figures)| RouteUsage { route, figures: usage(&figures) }).collect();
    let totals = ApiUsageTotals { figures: sums.totals(), by_key, by_route };
    Ok(ApiUsageFamily { totals, series: sums.series(|start, figures| ApiUsageBucket { start, figures }) })
}

/// Keys and routes that are listed one by one.
const LISTED_MAX: usize = 200;

/// The most requests first; beyond the limit they are added up.
fn most_used(mut groups: BTreeMap<String, Figures>) -> Vec<(String, Figures)> {
    let mut other = groups.remove(OTHER_MEMBER).unwrap_or_default();
    let mut rows: Vec<(String, Figures)> = groups.into_iter().filter(|(_, figures)| !figures.is_empty()).collect();
    rows.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.count(figures::cells::REQUESTS)));
    for (_, figures) in rows.drain(LISTED_MAX.min(rows.len())..) {
        other.add_figures(&figures);
    }
    if !other.is_empty() {
        rows.push((OTHER_MEMBER.to_owned(), other));
    }
    rows
}

async fn read_vms(reader: FigureReader<'_>, request: &ReportRequest, sums: &ReportSums) -> Result<VmFamily> {
    let mut totals: VmAnalytics = sums.totals();
    let mut series = sums.series(|start, figures| VmBucket { start, figures });
    let now = request.now.as_millis();
    let TimeRange { since, until } = request.range;
    let until = until.min(now).max(since);
    let meters = read_meters(reader.read_rate_changes([since, until]).await?);
    totals.set_spend(spent_between(&meters, since, until));
    let mut spans = cover_range(START_OF_TIME, request.bounds.first().copied().unwrap_or(since), &Grain::ALL);
    spans.extend(request.bounds.windows(2).flat_map(|pair| cover_range(pair[0], pair[1], &Grain::ALL)));
    let meters = read_meters(reader.read_summaries(CURRENCY, spans).await?);
    for (bucket, pair) in series.iter_mut().zip(request.bounds.windows(2)) {
        bucket.figures.set_spend(spent_between(&meters, pair[0].min(now), pair[1].min(now)));
    }
    Ok(VmFamily { totals, series })
}

/// Meters by currency, of changes in the order of time.
fn read_meters(changes: Vec<SummaryRow>) -> BTreeMap<String, SpendMeter> {
    let mut meters: BTreeMap<String, SpendMeter> = BTreeMap::new();
    for row in changes {
        meters.entry(row.member).or_default().add_changes(row.start, &row.summary.counts);
    }
    meters
}

/// What was spent in one currency up to any end of its rows. A rate that changes by `r` at `t` adds `r` × (end − `t`); each row
/// has the sum of its changes, and that of what they would have cost from its start on.
#[derive(Default)]
struct SpendMeter {
    /// From the start of each row on: the sum of all rates, and what has to be subtracted.
    steps: Vec<(i64, i128, i128)>,
}

impl SpendMeter {
    fn add_changes(&mut self, start: i64, changes: &Counts) {
        let (_, rate, offset) = self.steps.last().copied().unwrap_or_default();
        let (change, before) = (changes.count(SPEND_RATE), changes.count(SPEND_BEFORE_CHANGE));
        let offset = offset + i128::from(change) * i128::from(start / SECOND_MS) + i128::from(before);
        self.steps.push((start, rate + i128::from(change), offset));
    }

    fn spent_until(&self, at: i64) -> i128 {
        let after = self.steps.partition_point(|(start, ..)| *start < at);
        let (_, rate, offset) = after.checked_sub(1).map_or_else(Default::default, |last| self.steps[last]);
        rate * i128::from(at / SECOND_MS) - offset
    }
}

/// Rates are in millionths of the currency for an hour.
const RATE_SECONDS: f64 = 3_600.0 * 1_000_000.0;

fn spent_between(meters: &BTreeMap<String, SpendMeter>, since: i64, until: i64) -> Vec<Spend> {
    let spend = meters.iter().filter_map(|(currency, meter)| {
        #[expect(clippy::cast_precision_loss, reason = "an amount of money with four digits after the point")]
        let amount = (meter.spent_until(until) - meter.spent_until(since)).max(0) as f64 / RATE_SECONDS;
        let amount = (amount * 10_000.0).round() / 10_000.0;
        (amount > 0.0).then(|| Spend { amount, currency: currency.clone() })
    });
    spend.collect()
}

#[cfg(test)]
mod tests {
    use kernel::base::HOUR_MS;

    use super::*;

    #[test]
    fn a_machine_is_paid_for_while_it_exists() {
        let hour = 1_000 * HOUR_MS;
        let changes = |change: i64, seconds: i64| {
            let mut counts = Counts::default();
            counts.add_count(SPEND_RATE, change);
            counts.add_count(SPEND_BEFORE_CHANGE, change * seconds);
            counts
        };
        let mut meter = SpendMeter::default();
        // From a quarter past the first hour to half past the third, at two an hour.
        meter.add_changes(hour, &changes(2_000_000, 900));
        meter.add_changes(hour + 2 * HOUR_MS, &changes(-2_000_000, 1_800));
        let meters = BTreeMap::from([("EUR".to_owned(), meter)]);
        let spent = |since, until| spent_between(&meters, since, until).first().map_or(0.0, |spend| spend.amount);
        assert!((spent(hour, hour + HOUR_MS) - 1.5).abs() < 1e-9);
        assert!((spent(hour, hour + 2 * HOUR_MS) - 3.5).abs() < 1e-9);
        assert!((spent(hour, hour + 9 * HOUR_MS) - 4.5).abs() < 1e-9);
        assert!(spent_between(&meters, hour + 3 * HOUR_MS, hour + 9 * HOUR_MS).is_empty());
        assert!(spent_between(&meters, 0, hour).is_empty());
    }
}
