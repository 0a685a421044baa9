//! Figures as the API shows them. Each field says in a sentence what it counts; `docs/analytics.md` has the same by example.

use backups::posture::shown::percent_of;
use figures::cells::{
    BACKUPS_FAILED, BACKUPS_MISSED, BACKUPS_SUCCEEDED, BACKUPS_WARNING, DELIVERED, DELIVERIES_FAILED, DELIVERY_LAG_MS,
    DEVICES, DEVICES_ADDED, DEVICES_IN_SCOPE, DEVICES_OFFLINE, DEVICES_ONLINE, DEVICES_PROTECTED, DEVICES_REMOVED,
    DEVICES_STALE, ERRORS, FIRST_RESPONSE_MS, LATENCY_US, REQUESTS, RESOLUTION_MS, RUN_DURATION_MS, RUNS,
    RUNS_CANCELLED, RUNS_FAILED, RUNS_SUCCEEDED, SEARCH_LATENCY_US, SEARCHES, SEARCHES_WITHOUT_RESULT, SLA_MET,
    SLA_MISSED, THROTTLED, TICKETS_CREATED, TICKETS_OPEN, TICKETS_RESOLVED, VMS, VMS_FAILED, VMS_PROVISIONING,
    VMS_REBOOTING, VMS_RUNNING, VMS_STARTING, VMS_STOPPED, VMS_STOPPING, VMS_SUSPENDED, VMS_TERMINATING, VMS_UNKNOWN,
};
use figures::{Cell, Counts, FigureSummary};
use serde::Serialize;
use utoipa::ToSchema;

/// The median and the 90th percentile: exact of up to 20 values, and off by at most 1 % of more; null of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = AnalyticsP50P90)]
pub struct P50P90 {
    #[schema(required)]
    pub p50: Option<f64>,
    #[schema(required)]
    pub p90: Option<f64>,
}

/// The median and the 99th percentile: exact of up to 20 values, and off by at most 1 % of more; null of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = AnalyticsP50P99)]
pub struct P50P99 {
    #[schema(required)]
    pub p50: Option<f64>,
    #[schema(required)]
    pub p99: Option<f64>,
}

const MS_PER_SECOND: f64 = 1_000.0;
const US_PER_MS: f64 = 1_000.0;

fn percentile(figures: &FigureSummary, cell: Cell, percent: u64, units: f64) -> Option<f64> {
    let value = figures.percentile(cell, percent)?;
    // Digits beyond the error of a percentile would only look exact.
    Some((value / units * 1_000.0).round() / 1_000.0)
}

fn p50_p90(figures: &FigureSummary, cell: Cell, units: f64) -> P50P90 {
    P50P90 { p50: percentile(figures, cell, 50, units), p90: percentile(figures, cell, 90, units) }
}

fn p50_p99(figures: &FigureSummary, cell: Cell, units: f64) -> P50P99 {
    P50P99 { p50: percentile(figures, cell, 50, units), p99: percentile(figures, cell, 99, units) }
}

/// What happened within a range or a bucket, and how things stood at its end.
pub struct Measured<'a> {
    pub within: &'a FigureSummary,
    pub at_end: &'a Counts,
}

impl Measured<'_> {
    fn count(&self, cell: Cell) -> i64 {
        self.within.count(cell)
    }

    fn level(&self, cell: Cell) -> i64 {
        self.at_end.count(cell)
    }
}

/// What stands in one field of a file.
#[derive(Clone, Debug, Serialize)]
pub enum FigureField {
    Number(Option<f64>),
    Word(Option<String>),
}

/// A figure of one family: made of sums, and a column of a file for each of its fields.
pub trait Shown: Serialize {
    fn measure(measured: &Measured<'_>) -> Self;
    /// The fields by their path.
    fn columns(&self) -> Vec<(String, FigureField)>;
}

macro_rules! columns {
    ($self:ident: $($count:ident),* ; $($number:ident),* ; $($part:ident . $percentile:ident),*) => {{
        #[expect(clippy::cast_precision_loss, reason = "counts are far fewer than 2^53")]
        let columns = vec![
            $((stringify!($count).to_owned(), FigureField::Number(Some($self.$count as f64))),)*
            $((stringify!($number).to_owned(), FigureField::Number($self.$number)),)*
            $((concat!(stringify!($part), ".", stringify!($percentile)).to_owned(), FigureField::Number($self.$part.$percentile)),)*
        ];
        columns
    }};
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TicketAnalytics {
    /// Tickets that were created.
    pub created: i64,
    /// How often a ticket became resolved. One that was opened again and resolved again counts twice.
    pub resolved: i64,
    /// Tickets that were not resolved, closed or cancelled at the end.
    pub open: i64,
    /// The same as `open`.
    pub backlog: i64,
    /// Seconds from the creation of a ticket to its first public answer, of the tickets that were first answered then.
    pub first_response_seconds: P50P90,
    /// Seconds from the creation of a ticket to its resolution, of the tickets that were resolved then.
    pub resolution_seconds: P50P90,
    /// Of the resolutions with a promised time, those that kept both promises: first response and resolution.
    #[schema(required)]
    pub sla_met_percent: Option<f64>,
}

impl Shown for TicketAnalytics {
    fn measure(measured: &Measured<'_>) -> Self {
        let (met, missed) = (measured.count(SLA_MET), measured.count(SLA_MISSED));
        TicketAnalytics {
            created: measured.count(TICKETS_CREATED),
            resolved: measured.count(TICKETS_RESOLVED),
            open: measured.level(TICKETS_OPEN),
            backlog: measured.level(TICKETS_OPEN),
            first_response_seconds: p50_p90(measured.within, FIRST_RESPONSE_MS, MS_PER_SECOND),
            resolution_seconds: p50_p90(measured.within, RESOLUTION_MS, MS_PER_SECOND),
            sla_met_percent: percent_of(met, met + missed),
        }
    }

    fn columns(&self) -> Vec<(String, FigureField)> {
        columns!(self: created, resolved, open, backlog; sla_met_percent; first_response_seconds.p50,
            first_response_seconds.p90, resolution_seconds.p50, resolution_seconds.p90)
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DeviceAnalytics {
    /// Live devices at the end.
    pub total: i64,
    /// Of them those that were online.
    pub online: i64,
    pub offline: i64,
    pub stale: i64,
    /// Devices that were created.
    pub added: i64,
    /// Devices that were deleted.
    pub removed: i64,
}

impl Shown for DeviceAnalytics {
    fn measure(measured: &Measured<'_>) -> Self {
        DeviceAnalytics {
            total: measured.level(DEVICES),
            online: measured.level(DEVICES_ONLINE),
            offline: measured.level(DEVICES_OFFLINE),
            stale: measured.level(DEVICES_STALE),
            added: measured.count(DEVICES_ADDED),
            removed: measured.count(DEVICES_REMOVED),
        }
    }

    fn columns(&self) -> Vec<(String, FigureField)> {
        columns!(self: total, online, offline, stale, added, removed; ;)
    }
}

/// States of machines that are counted; one that is terminated counts no more.
const VM_STATES: [(&str, Cell); 10] = [
    ("provisioning", VMS_PROVISIONING),
    ("starting", VMS_STARTING),
    ("running", VMS_RUNNING),
    ("stopping", VMS_STOPPING),
    ("stopped", VMS_STOPPED),
    ("suspended", VMS_SUSPENDED),
    ("rebooting", VMS_REBOOTING),
    ("terminating", VMS_TERMINATING),
    ("failed", VMS_FAILED),
    ("unknown", VMS_UNKNOWN),
];

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VmAnalytics {
    /// Machines that were not terminated at the end.
    pub total: i64,
    /// Of them, how many were in each state.
    #[schema(value_type = BTreeMap<String, i64>)]
    pub by_state: VmStates,
    /// What the machines cost by the list prices of their clouds, for the time for which they were known; null if no cloud told a price.
    /// Of several currencies it is that in which the most was spent, and `spend_by_currency` has all.
    #[schema(required)]
    pub spend: Option<Spend>,
    pub spend_by_currency: Vec<Spend>,
}

/// In the order of a machine's life.
#[derive(Clone, Debug)]
pub struct VmStates([i64; VM_STATES.len()]);

impl Serialize for VmStates {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(VM_STATES.iter().zip(self.0).map(|((state, _), count)| (state, count)))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AnalyticsSpend)]
pub struct Spend {
    pub amount: f64,
    /// As the cloud names it, such as `EUR`.
    pub currency: String,
}

impl Shown for VmAnalytics {
    fn measure(measured: &Measured<'_>) -> Self {
        let states = VM_STATES.map(|(_, cell)| measured.level(cell));
        VmAnalytics {
            total: measured.level(VMS),
            by_state: VmStates(states),
            spend: None,
            spend_by_currency: Vec::new(),
        }
    }

    fn columns(&self) -> Vec<(String, FigureField)> {
        let mut columns = columns!(self: total; ;);
        #[expect(clippy::cast_precision_loss, reason = "machines are far fewer than 2^53")]
        let states = VM_STATES
            .iter()
            .zip(self.by_state.0)
            .map(|((state, _), count)| (format!("by_state.{state}"), FigureField::Number(Some(count as f64))));
        columns.extend(states);
        let (amount, currency) = self.spend.as_ref().map(|spend| (spend.amount, spend.currency.clone())).unzip();
        columns.push(("spend.amount".to_owned(), FigureField::Number(amount)));
        columns.push(("spend.currency".to_owned(), FigureField::Word(currency)));
        columns
    }
}

impl VmAnalytics {
    /// Adds what was spent, the most first.
    pub fn set_spend(&mut self, mut spend: Vec<Spend>) {
        spend.sort_by(|one, other| other.amount.total_cmp(&one.amount).then_with(|| one.currency.cmp(&other.currency)));
        self.spend = spend.first().cloned();
        self.spend_by_currency = spend;
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BackupAnalytics {
    /// Backups that ended with success.
    pub success: i64,
    pub warning: i64,
    pub failed: i64,
    /// Scheduled backups that did not come. One that came late is taken away again.
    pub missed: i64,
    /// Of the devices whose backups are judged, those with a backup within their RPO at the end.
    #[schema(required)]
    pub coverage_percent: Option<f64>,
}

impl Shown for BackupAnalytics {
    fn measure(measured: &Measured<'_>) -> Self {
        BackupAnalytics {
            success: measured.count(BACKUPS_SUCCEEDED),
            warning: measured.count(BACKUPS_WARNING),
            failed: measured.count(BACKUPS_FAILED),
            missed: measured.count(BACKUPS_MISSED),
            coverage_percent: percent_of(measured.level(DEVICES_PROTECTED), measured.level(DEVICES_IN_SCOPE)),
        }
    }

    fn columns(&self) -> Vec<(String, FigureField)> {
        columns!(self: success, warning, failed, missed; coverage_percent;)
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WorkflowAnalytics {
    /// Runs that were created, without dry runs.
    pub runs: i64,
    /// Runs that ended with success.
    pub succeeded: i64,
    pub failed: i64,
    pub cancelled: i64,
    /// Seconds from the creation of a run to its end, of the runs that ended then.
    pub duration_seconds: P50P90,
}

impl Shown for WorkflowAnalytics {
    fn measure(measured: &Measured<'_>) -> Self {
        WorkflowAnalytics {
            runs: measured.count(RUNS),
            succeeded: measured.count(RUNS_SUCCEEDED),
            failed: measured.count(RUNS_FAILED),
            cancelled: measured.count(RUNS_CANCELLED),
            duration_seconds: p50_p90(measured.within, RUN_DURATION_MS, MS_PER_SECOND),
        }
    }

    fn columns(&self) -> Vec<(String, FigureField)> {
        columns!(self: runs, succeeded, failed, cancelled; ; duration_seconds.p50, duration_seconds.p90)
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WebhookAnalytics {
    /// Deliveries that an endpoint accepted.
    pub delivered: i64,
    /// Deliveries that were given up.
    pub failed: i64,
    /// Milliseconds from an event to its delivery, of the deliveries that were accepted then, without those that were sent again.
    pub lag_ms: P50P99,
}

impl Shown for WebhookAnalytics {
    fn measure(measured: &Measured<'_>) -> Self {
        WebhookAnalytics {
            delivered: measured.count(DELIVERED),
            failed: measured.count(DELIVERIES_FAILED),
            lag_ms: p50_p99(measured.within, DELIVERY_LAG_MS, 1.0),
        }
    }

    fn columns(&self) -> Vec<(String, FigureField)> {
        columns!(self: delivered, failed; ; lag_ms.p50, lag_ms.p99)
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ApiUsageAnalytics {
    /// Requests to `/api/` by the tenant's keys and people, with those that were refused.
    pub requests: i64,
    /// Answers with a status of 400 or more, but 429.
    pub errors: i64,
    /// Answers with 429.
    pub throttled: i64,
    /// Milliseconds that the service took to answer.
    pub latency_ms: P50P99,
}

impl Shown for ApiUsageAnalytics {
    fn measure(measured: &Measured<'_>) -> Self {
        ApiUsageAnalytics {
            requests: measured.count(REQUESTS),
            errors: measured.count(ERRORS),
            throttled: measured.count(THROTTLED),
            latency_ms: p50_p99(measured.within, LATENCY_US, US_PER_MS),
        }
    }

    fn columns(&self) -> Vec<(String, FigureField)> {
        columns!(self: requests, errors, throttled; ; latency_ms.p50, latency_ms.p99)
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SearchAnalytics {
    /// Searches that were answered.
    pub count: i64,
    /// Of them those that found nothing.
    pub without_result: i64,
    /// Milliseconds that a search took.
    pub latency_ms: P50P99,
}

impl Shown for SearchAnalytics {
    fn measure(measured: &Measured<'_>) -> Self {
        SearchAnalytics {
            count: measured.count(SEARCHES),
            without_result: measured.count(SEARCHES_WITHOUT_RESULT),
            latency_ms: p50_p99(measured.within, SEARCH_LATENCY_US, US_PER_MS),
        }
    }

    fn columns(&self) -> Vec<(String, FigureField)> {
        columns!(self: count, without_result; ; latency_ms.p50, latency_ms.p99)
    }
}
