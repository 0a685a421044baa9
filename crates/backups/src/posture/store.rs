//! SQL of what is known of devices and organizations. All changes of a transaction go through one [`PostureUpdate`], which
//! reads and writes each organization once, however many of its devices change.

use std::collections::BTreeMap;

use fleet::devices::DeviceId;
use jiff::tz::TimeZone;
use kernel::args;
use kernel::base::{RecordId, Result, StringEnum, Timestamp};
use kernel::events;
use kernel::store::{FactRetention, Tx};
use people::organizations::OrganizationId;

use super::device::{JudgedDevice, judge_device};
use super::missed::store::{ScheduledDevice, judge_schedule, list_covered};
use super::organization::{DAY_WINDOW_MS, OrganizationRecord, earliest, find_zone, judge_organization, zone_of};
use super::queue::store::enqueue_sweep;
use super::record::{DeviceRecord, FailedRun, FailureCount, RunFacts, min_time};
use super::rows::{DeviceColumns, InventoryDevice, PostureColumns, StoredDevice, StoredPosture};
use super::share::DeviceShare;
use super::shown::BACKUP_POSTURE_CHANGED;
use super::shown::store::get_posture;
use super::{JobKind, RunStatus};
use crate::facts::coverage_fact;
use crate::policy::BackupPolicy;
use crate::policy::store::PolicyCache;

kernel::statements! {
    DEVICE = kernel::sql![DeviceColumns::SELECT, " AND device_id = $2"];
    INSERT_DEVICE = DeviceColumns::INSERT;
    UPDATE_DEVICE = DeviceColumns::UPDATE;
    DELETE_DEVICE = "DELETE FROM backup_devices WHERE tenant_id = $1 AND device_id = $2";
    POSTURE = kernel::sql![PostureColumns::SELECT, " AND organization_id = $2"];
    INSERT_POSTURE = PostureColumns::INSERT;
    UPDATE_POSTURE = PostureColumns::UPDATE;
    DELETE_POSTURE = "DELETE FROM backup_postures WHERE tenant_id = $1 AND organization_id = $2";
    ORGANIZATION = "SELECT archived FROM organizations WHERE tenant_id = $1 AND id = $2";
    HAS_DEVICES = "SELECT device_id FROM backup_devices WHERE tenant_id = $1 AND organization_id = $2 LIMIT 1";
    DELETE_LEVEL = "DELETE FROM backup_configs WHERE tenant_id = $1 AND owner_id = $2";
    /// Whether a job has succeeded on a target from then on. The inner rows are bounded by how late a run comes, and at most.
    SUCCEEDED_BETWEEN = "SELECT status FROM (SELECT job, target, status FROM backup_runs WHERE tenant_id = $1 AND device_id = $2
            AND kind = 'backup' AND ended_at >= $3 AND ended_at < $4 ORDER BY ended_at LIMIT $5) AS runs
        WHERE job = $6 AND target = $7 AND status IN ('success', 'warning') LIMIT 1";
    /// Failed backups of a job on a target after a success there that came late.
    FAILED_AFTER = "SELECT COUNT(*), MIN(ended_at) FROM (SELECT job, target, status, ended_at FROM backup_runs WHERE tenant_id = $1
            AND device_id = $2 AND kind = 'backup' AND ended_at > $3 ORDER BY ended_at LIMIT $4) AS runs
        WHERE job = $5 AND target = $6 AND status = 'failed'";
    RUNS_BETWEEN = "SELECT status, COUNT(*) FROM backup_runs WHERE tenant_id = $1 AND organization_id = $2
        AND kind = 'backup' AND ended_at > $3 AND ended_at <= $4 GROUP BY status";
    FIRST_RUN_AFTER = "SELECT MIN(ended_at) FROM backup_runs WHERE tenant_id = $1 AND organization_id = $2
        AND kind = 'backup' AND ended_at > $3";
    /// Runs by quarters of an hour, on which the days of all zones begin.
    RUNS_BY_QUARTER = "SELECT ended_at / 900000, status, COUNT(*) FROM backup_runs WHERE tenant_id = $1 AND organization_id = $2
        AND kind = 'backup' AND ended_at >= $3 GROUP BY ended_at / 900000, status";
}

const QUARTER_MS: i64 = 900_000;
/// Runs of a device that are looked at because one comes late: seven weeks of one every fifteen minutes.
const LATE_RUNS_MAX: i64 = 5_000;
/// Days that the strip may show in any zone, and one more.
const STRIP_MS: i64 = 30 * kernel::base::DAY_MS;

/// An organization within a transaction.
struct LoadedOrganization {
    now: StoredPosture,
    policy: BackupPolicy,
    zone: TimeZone,
    /// As it is stored, if it is.
    before: Option<StoredPosture>,
}

/// The changes of one transaction.
pub struct PostureUpdate {
    now: Timestamp,
    policies: PolicyCache,
    organizations: BTreeMap<OrganizationId, LoadedOrganization>,
}

impl PostureUpdate {
    /// Begins the changes of a transaction: its time is that of the tenant's clock.
    pub async fn begin(tx: &mut Tx) -> Result<Self> {
        let now = tx.tick().await?.at;
        Ok(PostureUpdate { now, policies: PolicyCache::default(), organizations: BTreeMap::new() })
    }

    pub async fn find_stored(tx: &mut Tx, id: DeviceId) -> Result<Option<StoredDevice>> {
        tx.find(DEVICE, args![id]).await
    }

    pub async fn find_organization(tx: &mut Tx, id: OrganizationId) -> Result<Option<OrganizationRecord>> {
        let stored: Option<StoredPosture> = tx.find(POSTURE, args![id]).await?;
        Ok(stored.map(|stored| stored.record))
    }

    /// The policy that holds for a device.
    pub async fn get_device_policy(&mut self, tx: &mut Tx, device: &InventoryDevice) -> Result<BackupPolicy> {
        self.policies.get_of_device(tx, device.organization_id, &device.id.to_string()).await
    }

    /// Judges a device again. It may be new, have moved, or have run something.
    pub async fn update_device(
        &mut self,
        tx: &mut Tx,
        device: &InventoryDevice,
        stored: Option<StoredDevice>,
        run: Option<&RunFacts<'_>>,
    ) -> Result<()> {
        let is_new = stored.is_none();
        let mut stored = stored.unwrap_or_else(|| StoredDevice::new(device));
        let before = stored.clone();
        self.load_organization(tx, before.organization_id).await?;
        self.load_organization(tx, device.organization_id).await?;
        stored.organization_id = device.organization_id;
        stored.class = device.class;
        let key = device.id.to_string();
        let policy = self.policies.get_of_device(tx, device.organization_id, &key).await?;
        let is_first = stored.record.first_run_at.is_none();
        if let Some(run) = run {
            add_run(tx, device.id, &mut stored.record, run).await?;
            self.count_run(device.organization_id, run);
        }
        stored.record.forget_jobs(self.now);
        let judged = JudgedDevice {
            class: device.class,
            is_excluded: policy.excludes_device(device.id),
            known_since: stored.known_since,
            first_report_at: self.find_first_report(device.organization_id),
            is_disabled: self.policies.disables_device(&key),
        };
        let scheduled =
            ScheduledDevice { id: device.id, organization_id: device.organization_id, is_first, judged, run };
        let schedule_at = self.judge_schedule(tx, &scheduled, &policy, &mut stored.record).await?;
        let judgement = judge_device(&stored.record, judged, &policy, self.now);
        self.move_share(&before, device.organization_id, &judgement.share);
        stored.set_judgement(judgement, schedule_at);
        if is_new {
            return tx.defer_exec(INSERT_DEVICE, stored.to_values(device.id)?).await;
        }
        if stored != before {
            tx.defer_exec(UPDATE_DEVICE, stored.to_values(device.id)?).await?;
        }
        Ok(())
    }

    /// Takes a device out of its organization.
    pub async fn remove_device(&mut self, tx: &mut Tx, id: DeviceId, stored: &StoredDevice) -> Result<()> {
        self.load_organization(tx, stored.organization_id).await?;
        if let Some(organization) = self.organizations.get_mut(&stored.organization_id) {
            organization.now.record.sums.add(&stored.share, -1);
        }
        tx.defer_exec(DELETE_DEVICE, vec![id.into()]).await?;
        tx.defer_exec(DELETE_LEVEL, vec![id.to_string().into()]).await
    }

    /// Judges an organization again, also without any change of its devices.
    pub async fn update_organization(&mut self, tx: &mut Tx, id: OrganizationId) -> Result<()> {
        self.load_organization(tx, id).await
    }

    /// Removes the policy of an organization that was deleted.
    pub async fn remove_policy(&mut self, tx: &mut Tx, id: OrganizationId) -> Result<()> {
        tx.defer_exec(DELETE_LEVEL, vec![id.to_string().into()]).await
    }

    /// Judges and saves the organizations, and publishes the grades that have changed.
    pub async fn save(mut self, tx: &mut Tx) -> Result<()> {
        for (id, organization) in std::mem::take(&mut self.organizations) {
            let LoadedOrganization { now: mut stored, policy, before, .. } = organization;
            let counts = stored.record.sums.counts;
            let counted = before.as_ref().map(|before| before.record.sums.counts).unwrap_or_default();
            tx.record_fact(&coverage_fact(counted, counts, self.now), FactRetention::Long).await?;
            if counts.total == 0 && !is_shown(tx, id).await? {
                tx.defer_exec(DELETE_POSTURE, vec![id.into()]).await?;
                continue;
            }
            if counts.reported > 0 && stored.record.first_report_at.is_none() {
                stored.record.first_report_at = Some(self.now);
                if counts.silent_unknown > 0 {
                    // From now on the silence of its other devices is counted.
                    enqueue_sweep(tx, &id.to_string()).await?;
                }
            }
            let judgement = judge_organization(&stored.record, &policy, self.now);
            (stored.record.findings, stored.record.judged) = (judgement.findings, judgement.shown);
            stored.next_at = earliest(judgement.next_at, stored.record.window_ends_at);
            let is_new = before.is_none();
            let before = before.unwrap_or_default();
            let has_changed = judgement.grades != before.grades;
            stored.grades = judgement.grades;
            if !is_new && stored == before {
                continue;
            }
            tx.defer_exec(if is_new { INSERT_POSTURE } else { UPDATE_POSTURE }, stored.to_values(id)?).await?;
            if has_changed && let Some(posture) = get_posture(tx, id).await? {
                events::publish(tx, &BACKUP_POSTURE_CHANGED, id, &posture).await?;
            }
        }
        Ok(())
    }

    async fn load_organization(&mut self, tx: &mut Tx, id: OrganizationId) -> Result<()> {
        if self.organizations.contains_key(&id) {
            return Ok(());
        }
        let policy = self.policies.get_of_organization(tx, id).await?;
        let before: Option<StoredPosture> = tx.find(POSTURE, args![id]).await?;
        let mut now = before.clone().unwrap_or_default();
        let zone_name = zone_of(&policy);
        let zone = find_zone(&zone_name);
        let record = &mut now.record;
        if record.zone != zone_name {
            // A new one may have been hidden before.
            count_again(tx, id, record, &zone, self.now).await?;
            record.zone = zone_name;
        }
        shorten_window(tx, id, record, self.now).await?;
        record.forget_old_days(&zone, self.now);
        self.organizations.insert(id, LoadedOrganization { now, policy, zone, before });
        Ok(())
    }

    /// When any device of an organization first reported a backup.
    fn find_first_report(&self, id: OrganizationId) -> Option<Timestamp> {
        self.organizations.get(&id).and_then(|organization| organization.now.record.first_report_at)
    }

    fn count_run(&mut self, id: OrganizationId, run: &RunFacts<'_>) {
        let now = self.now;
        let Some(organization) = self.organizations.get_mut(&id) else { return };
        let record = &mut organization.now.record;
        let is_success = run.status.is_success();
        match run.kind {
            JobKind::Backup => {
                record.count_run(run.status, run.ended_at, 1, &organization.zone, now);
                if is_success {
                    record.first_success_at = min_time(record.first_success_at, run.ended_at);
                }
            }
            JobKind::Verify if is_success => record.verified_at = record.verified_at.max(Some(run.ended_at)),
            JobKind::RestoreTest if is_success => {
                record.restore_tested_at = record.restore_tested_at.max(Some(run.ended_at));
            }
            JobKind::RestoreTest => record.restore_failed = record.restore_failed.take().max(Some(FailedRun::new(run))),
            JobKind::Verify | JobKind::Prune => {}
        }
    }

    /// Judges the scheduled runs of a device, and counts those that were missed, or came after all.
    async fn judge_schedule(
        &mut self,
        tx: &mut Tx,
        device: &ScheduledDevice<'_>,
        policy: &BackupPolicy,
        record: &mut DeviceRecord,
    ) -> Result<Option<Timestamp>> {
        let now = self.now;
        let covered = list_covered(tx, device, record).await?;
        // A run was missed by the organization that the device belonged to then.
        for run in &covered {
            // It may have been deleted since.
            if Self::find_organization(tx, run.organization_id).await?.is_some() {
                self.load_organization(tx, run.organization_id).await?;
            }
        }
        let outcome = judge_schedule(tx, device, policy, record, covered, now).await?;
        for (id, at, by) in outcome.missed {
            if let Some(organization) = self.organizations.get_mut(&id) {
                organization.now.record.count_run(RunStatus::Missed, at, by, &organization.zone, now);
            }
        }
        Ok(outcome.next_at)
    }

    /// Moves what a device adds to where it belongs now.
    fn move_share(&mut self, before: &StoredDevice, id: OrganizationId, share: &DeviceShare) {
        if let Some(left) = self.organizations.get_mut(&before.organization_id) {
            left.now.record.sums.add(&before.share, -1);
        }
        if let Some(joined) = self.organizations.get_mut(&id) {
            joined.now.record.sums.add(share, 1);
        }
    }
}

/// An organization is shown unless it was deleted, or is archived and has no devices. Those without one are shown while there
/// are any.
async fn is_shown(tx: &mut Tx, id: OrganizationId) -> Result<bool> {
    if id == OrganizationId::NONE {
        return Ok(false);
    }
    let is_archived: Option<bool> = tx.find(ORGANIZATION, args![id]).await?;
    Ok(is_archived == Some(false) || tx.find::<DeviceId>(HAS_DEVICES, args![id]).await?.is_some())
}

/// Adds a run, which is stored already.
async fn add_run(tx: &mut Tx, id: DeviceId, record: &mut DeviceRecord, run: &RunFacts<'_>) -> Result<()> {
    match record.add_run(run) {
        FailureCount::Known => {}
        FailureCount::IsFirst { until } => {
            let values = args![id, run.ended_at, until, LATE_RUNS_MAX, run.job, run.target];
            if tx.find::<String>(SUCCEEDED_BETWEEN, values).await?.is_none() {
                record.add_first_failure(run);
            }
        }
        FailureCount::CountAfter => {
            let values = args![id, run.ended_at, LATE_RUNS_MAX, run.job, run.target];
            let (failures, since): (i64, Option<Timestamp>) = tx.get_one(FAILED_AFTER, values).await?;
            if let Some(since) = since {
                record.set_failures(run, failures, since);
            }
        }
    }
    Ok(())
}

/// Takes runs out of the window of 24 hours that have left it.
async fn shorten_window(
    tx: &mut Tx,
    id: OrganizationId,
    record: &mut OrganizationRecord,
    now: Timestamp,
) -> Result<()> {
    let until = now.plus_ms(-DAY_WINDOW_MS);
    let Some(from) = record.window_from.filter(|_| record.window_ends_at.is_some_and(|at| at <= now)) else {
        return Ok(());
    };
    let left: Vec<(String, i64)> = tx.list(RUNS_BETWEEN, args![id, from, until]).await?;
    for (status, runs) in left {
        record.window.add(RunStatus::from_stored(&status)?, -runs);
    }
    record.window_from = Some(until);
    let first: Option<Timestamp> = tx.get_one(FIRST_RUN_AFTER, args![id, until]).await?;
    record.window_ends_at = first.map(|first| first.plus_ms(DAY_WINDOW_MS));
    Ok(())
}

/// Counts the days of the strip anew, in another zone, and the last 24 hours.
async fn count_again(
    tx: &mut Tx,
    id: OrganizationId,
    record: &mut OrganizationRecord,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<()> {
    let runs: Vec<(i64, String, i64)> = tx.list(RUNS_BY_QUARTER, args![id, now.plus_ms(-STRIP_MS)]).await?;
    record.days = BTreeMap::new();
    for (quarter, status, runs) in runs {
        let at = Timestamp::from_millis(quarter * QUARTER_MS);
        record.count_day(RunStatus::from_stored(&status)?, at, runs, zone, now);
    }
    let from = now.plus_ms(-DAY_WINDOW_MS);
    let window: Vec<(String, i64)> = tx.list(RUNS_BETWEEN, args![id, from, Timestamp::from_millis(i64::MAX)]).await?;
    (record.window, record.window_from) = (super::RunCounts::default(), Some(from));
    for (status, runs) in window {
        record.window.add(RunStatus::from_stored(&status)?, runs);
    }
    let first: Option<Timestamp> = tx.get_one(FIRST_RUN_AFTER, args![id, from]).await?;
    record.window_ends_at = first.map(|first| first.plus_ms(DAY_WINDOW_MS));
    Ok(())
}
