//! The figures of the tenant on `/overview`, as plots of the last days in UTC. `/api/analytics/tenant` has more of them, in
//! other time zones and ranges.

use analytics::families::{Families, Family};
use analytics::report::{FigureReader, ReportRequest, TimeRange, read_families};
use kernel::auth::Scope;
use kernel::base::{DAY_MS, Result, Timestamp};
use kernel::http::Caller;
use kernel::store::Db;

use super::plot::{Plot, PlotKind, PlotSeries, PlotText};

/// With today.
pub const DAYS: usize = 30;

/// What the page shows of them. Without the right to read figures it says nothing of them.
#[derive(Default)]
pub struct OverviewFigures {
    pub may_read: bool,
    pub has_failed: bool,
    /// Empty if nothing at all was counted.
    pub plots: Vec<Plot>,
}

impl OverviewFigures {
    /// The page is there without its figures too, so that a failure to read them is not one of the page.
    pub async fn read(caller: &Caller) -> Self {
        let Ok(db) = caller.require(Scope::AnalyticsRead) else { return OverviewFigures::default() };
        let now = caller.app().env.now();
        match caller.calculate(async move { plot_last_days(&db, now).await }).await {
            Ok(plots) => OverviewFigures { may_read: true, has_failed: false, plots },
            Err(error) => {
                tracing::warn!(%error, "failed to read the figures of the overview");
                OverviewFigures { may_read: true, has_failed: true, plots: Vec::new() }
            }
        }
    }
}

async fn plot_last_days(db: &Db, now: Timestamp) -> Result<Vec<Plot>> {
    let request = request_days(now);
    let families = read_families(FigureReader::Tenant(db), &request).await?;
    let plots = plot_families(&families, &request.bounds);
    Ok(if plots.iter().any(Plot::has_data) { plots } else { Vec::new() })
}

/// The last days as buckets. Totals are not shown; theirs are of today, which is the least to read.
fn request_days(now: Timestamp) -> ReportRequest {
    let today = now.as_millis().div_euclid(DAY_MS) * DAY_MS;
    let bounds = (0..=DAYS as i64).map(|day| today + (day + 1 - DAYS as i64) * DAY_MS).collect();
    let families = vec![Family::Tickets, Family::Devices, Family::Backups, Family::ApiUsage];
    let range = TimeRange { since: today, until: today + DAY_MS };
    ReportRequest { range, is_until_now: true, bounds, families, now }
}

fn plot_families(families: &Families, bounds: &[i64]) -> Vec<Plot> {
    let starts = bounds.split_last().map(|(_, starts)| starts).unwrap_or_default();
    let days: Vec<String> = starts.iter().map(|start| to_date(*start)).collect();
    let mut plots = Vec::new();
    if let Some(tickets) = &families.tickets {
        let of = |name, value| to_series(name, &tickets.series, value);
        let counts = [of("Created", |day| day.figures.created), of("Resolved", |day| day.figures.resolved)];
        plots.push(Plot::new(TICKETS, PlotKind::Bars, &days, &counts));
        plots.push(Plot::new(BACKLOG, PlotKind::Lines, &days, &[of("Open", |day| day.figures.open)]));
    }
    if let Some(devices) = &families.devices {
        let of = |name, value| to_series(name, &devices.series, value);
        let levels = [
            of("Online", |day| day.figures.online),
            of("Offline", |day| day.figures.offline),
            of("Stale", |day| day.figures.stale),
        ];
        plots.push(Plot::new(DEVICES, PlotKind::Lines, &days, &levels));
    }
    if let Some(backups) = &families.backups {
        let of = |name, value| to_series(name, &backups.series, value);
        let counts = [
            of("Success", |day| day.figures.success),
            of("Warning", |day| day.figures.warning),
            of("Failed", |day| day.figures.failed),
            of("Missed", |day| day.figures.missed),
        ];
        plots.push(Plot::new(BACKUPS, PlotKind::StackedBars, &days, &counts));
    }
    if let Some(usage) = &families.api_usage {
        let of = |name, value| to_series(name, &usage.series, value);
        let counts = [of("Requests", |day| day.figures.requests), of("Errors", |day| day.figures.errors)];
        plots.push(Plot::new(REQUESTS, PlotKind::Bars, &days, &counts));
    }
    plots
}

const TICKETS: PlotText = PlotText {
    name: "plot-tickets",
    title: "Tickets created and resolved",
    empty: "No ticket was created or resolved in these days. How many are will appear here.",
};
const BACKLOG: PlotText = PlotText {
    name: "plot-backlog",
    title: "Open tickets at the end of the day",
    empty: "No ticket was open at the end of these days. How many are will appear here.",
};
const DEVICES: PlotText = PlotText {
    name: "plot-devices",
    title: "Devices at the end of the day",
    empty: "There was no device in these days. How many are online, offline and stale will appear here.",
};
const BACKUPS: PlotText = PlotText {
    name: "plot-backups",
    title: "Backups",
    empty: "No backup was reported or missed in these days. How they end will appear here.",
};
const REQUESTS: PlotText = PlotText {
    name: "plot-requests",
    title: "Requests to the API",
    empty: "Nobody called the API in these days. Requests and errors will appear here.",
};

fn to_series<B>(name: &'static str, buckets: &[B], value: fn(&B) -> i64) -> PlotSeries {
    PlotSeries { name, values: buckets.iter().map(value).collect() }
}

/// `2026-01-15`
fn to_date(start: i64) -> String {
    let text = Timestamp::from_millis(start).to_string();
    text.get(..10).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_end_with_today() {
        // 2026-01-15T10:00:00Z
        let request = request_days(Timestamp::from_millis(1_768_471_200_000));
        assert_eq!(request.bounds.len(), DAYS + 1);
        let days: Vec<String> = request.bounds.iter().map(|start| to_date(*start)).collect();
        assert_eq!(
            (days[0].as_str(), days[DAYS - 1].as_str(), days[DAYS].as_str()),
            ("2025-12-17", "2026-01-15", "2026-01-16")
        );
    }
}
