//! SQL of scheduled runs that did not come. Each is a run of its own, which is taken away when a late report covers it.

use feature_kit::schedule::CronSchedule;
use fleet::devices::DeviceId;
use kernel::args;
use kernel::base::{DAY_MS, Id, Result, Timestamp};
use kernel::store::{FactRetention, Tx};
use people::organizations::OrganizationId;

use super::super::device::JudgedDevice;
use super::super::record::{DeviceRecord, RunFacts};
use super::super::windows::RunWindow;
use super::super::{JobKind, RunStatus};
use crate::facts::run_fact;
use crate::job_reports::JobRunId;
use crate::policy::{BackupPolicy, DeviceClass};
use crate::runs::store::{RunRow, insert_run};

kernel::statements! {
    MISSED_AROUND = "SELECT id, organization_id, ended_at, started_at, received_at FROM backup_runs WHERE tenant_id = $1 AND device_id = $2
        AND kind = 'backup' AND ended_at >= $3 AND ended_at <= $4 AND status = 'missed' ORDER BY ended_at LIMIT $5";
    MISSED_AFTER = "SELECT MIN(ended_at), MAX(ended_at) FROM backup_runs WHERE tenant_id = $1 AND device_id = $2
        AND kind = 'backup' AND ended_at > $3 AND status = 'missed'";
    RUNS_FROM = "SELECT started_at, ended_at FROM backup_runs WHERE tenant_id = $1 AND device_id = $2
        AND kind = 'backup' AND ended_at >= $3 AND status <> 'missed' ORDER BY ended_at LIMIT $4";
    DELETE_RUN = "DELETE FROM backup_runs WHERE tenant_id = $1 AND id = $2";
}

/// Scheduled runs judged at once; the clock does the rest soon.
const WINDOWS_MAX: usize = 200;
/// Runs before this are not missed any more: the strip does not show them.
const JUDGED_MS_MAX: i64 = 28 * DAY_MS;
/// Missed runs that one run can cover, and runs that are compared with one window.
const RUNS_MAX: i64 = 200;
/// A window opens at most so early, and closes at most so late: see `windows`.
const WINDOW_MS_MAX: i64 = 4 * 3_600_000;

/// A device whose scheduled runs are judged.
pub struct ScheduledDevice<'a> {
    pub id: DeviceId,
    pub organization_id: OrganizationId,
    /// Whether no backup of it was reported before.
    pub is_first: bool,
    pub judged: JudgedDevice,
    /// What it has just run.
    pub run: Option<&'a RunFacts<'a>>,
}

/// A missed run that has come after all.
pub struct CoveredRun {
    id: JobRunId,
    pub organization_id: OrganizationId,
    scheduled_at: Timestamp,
}

/// What judging has changed.
#[derive(Default)]
pub struct ScheduleOutcome {
    /// Scheduled runs that an organization missed (`1`), or that came after all (`-1`).
    pub missed: Vec<(OrganizationId, Timestamp, i64)>,
    /// When the next one has to be judged.
    pub next_at: Option<Timestamp>,
}

/// Judges the scheduled runs of a device up to now.
pub async fn judge_schedule(
    tx: &mut Tx,
    device: &ScheduledDevice<'_>,
    policy: &BackupPolicy,
    record: &mut DeviceRecord,
    covered: Vec<CoveredRun>,
    now: Timestamp,
) -> Result<ScheduleOutcome> {
    let mut outcome = ScheduleOutcome::default();
    if device.run.is_some_and(|run| run.kind == JobKind::Backup) {
        remove_covered(tx, device.id, covered, record, &mut outcome).await?;
    }
    let Some(schedule) = begin_judging(device, policy, record, now) else {
        (record.missed_since, record.missed_at) = (None, None);
        return Ok(outcome);
    };
    let earliest = now.plus_ms(-JUDGED_MS_MAX);
    for _ in 0..WINDOWS_MAX {
        let from = record.judged_until.unwrap_or(now).max(earliest);
        let Some(window) = RunWindow::next_after(&schedule, from) else { return Ok(outcome) };
        let judged_at = window.judged_at(record.last_length_ms());
        if judged_at > now {
            outcome.next_at = Some(judged_at);
            return Ok(outcome);
        }
        record.judged_until = Some(window.scheduled_at);
        if !is_met(tx, device.id, record, window).await? {
            insert_missed(tx, device, policy, window).await?;
            outcome.missed.push((device.organization_id, window.scheduled_at, 1));
            if record.last_run_at.is_none_or(|last| window.scheduled_at > last) {
                record.missed_since.get_or_insert(window.scheduled_at);
                record.missed_at = Some(window.scheduled_at);
            }
        }
    }
    outcome.next_at = Some(now);
    Ok(outcome)
}

/// The schedule that the device is judged by, if there is one. A new schedule counts from now on; that of a device which
/// reports for the first time, from its report on.
fn begin_judging(
    device: &ScheduledDevice<'_>,
    policy: &BackupPolicy,
    record: &mut DeviceRecord,
    now: Timestamp,
) -> Option<CronSchedule> {
    let is_judged = policy.enabled
        && !device.judged.is_excluded
        && device.judged.class != DeviceClass::Workstation
        && record.first_run_at.is_some();
    let given = policy.schedule.as_ref().filter(|_| is_judged);
    let schedule = given.and_then(|given| CronSchedule::parse(&given.cron, &given.timezone).ok());
    let name = given.map(|given| format!("{} {}", given.cron, given.timezone));
    if record.schedule != name {
        record.judged_until = if device.is_first { record.first_run_at } else { Some(now) };
        (record.missed_since, record.missed_at) = (None, None);
        record.schedule = name;
    }
    schedule
}

/// Missed runs that what the device has just run covers.
pub async fn list_covered(tx: &mut Tx, device: &ScheduledDevice<'_>, record: &DeviceRecord) -> Result<Vec<CoveredRun>> {
    let Some(run) = device.run.filter(|run| run.kind == JobKind::Backup) else { return Ok(Vec::new()) };
    let (from, until) = (run.started_at.plus_ms(-WINDOW_MS_MAX), run.ended_at.plus_ms(WINDOW_MS_MAX));
    if record.judged_until.is_none_or(|judged_until| from > judged_until) && record.missed_since.is_none() {
        return Ok(Vec::new());
    }
    let around: Vec<(JobRunId, OrganizationId, Timestamp, Timestamp, Timestamp)> =
        tx.list(MISSED_AROUND, args![device.id, from, until, RUNS_MAX]).await?;
    let mut covered = Vec::new();
    for (id, organization_id, scheduled_at, opens_at, closes_at) in around {
        if (RunWindow { scheduled_at, opens_at, closes_at }).is_met_by(run.started_at, run.ended_at) {
            covered.push(CoveredRun { id, organization_id, scheduled_at });
        }
    }
    Ok(covered)
}

/// Takes away missed runs that have come after all, and those that the newest run is newer than from the reason.
async fn remove_covered(
    tx: &mut Tx,
    id: DeviceId,
    covered: Vec<CoveredRun>,
    record: &mut DeviceRecord,
    outcome: &mut ScheduleOutcome,
) -> Result<()> {
    for run in covered {
        tx.exec(DELETE_RUN, args![run.id]).await?;
        let fact = run_fact(JobKind::Backup, RunStatus::Missed, run.scheduled_at, -1);
        tx.record_fact(&fact, FactRetention::Long).await?;
        outcome.missed.push((run.organization_id, run.scheduled_at, -1));
    }
    if let Some(since) = record.missed_since {
        // Those before it are of an earlier schedule, or were met since.
        let after = record.last_run_at.max(Some(since.plus_ms(-1)));
        (record.missed_since, record.missed_at) = tx.get_one(MISSED_AFTER, args![id, after]).await?;
    }
    Ok(())
}

async fn is_met(tx: &mut Tx, id: DeviceId, record: &DeviceRecord, window: RunWindow) -> Result<bool> {
    let (Some(started_at), Some(ended_at)) = (record.last_run_started_at, record.last_run_at) else { return Ok(false) };
    if window.is_met_by(started_at, ended_at) {
        return Ok(true);
    }
    if ended_at < window.opens_at {
        return Ok(false);
    }
    let runs: Vec<(Timestamp, Timestamp)> = tx.list(RUNS_FROM, args![id, window.opens_at, RUNS_MAX]).await?;
    Ok(runs.into_iter().any(|(started_at, ended_at)| window.is_met_by(started_at, ended_at)))
}

async fn insert_missed(
    tx: &mut Tx,
    device: &ScheduledDevice<'_>,
    policy: &BackupPolicy,
    window: RunWindow,
) -> Result<()> {
    let job = policy.schedule.as_ref().map(|schedule| schedule.cron.clone()).unwrap_or_default();
    let row = RunRow {
        id: Id::new(tx.env()),
        external_id: None,
        device_id: device.id,
        organization_id: device.organization_id,
        job: &job,
        kind: JobKind::Backup,
        tool: "",
        target: "",
        status: RunStatus::Missed,
        is_declared: false,
        started_at: window.opens_at,
        ended_at: window.scheduled_at,
        received_at: window.closes_at,
        exit_code: None,
        reasons: "[]".to_owned(),
        outcome: "{}".to_owned(),
    };
    insert_run(tx, row).await
}
