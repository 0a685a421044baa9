//! What is stored of devices and organizations: the rows' columns, and what they hold.

use fleet::devices::DeviceId;
use kernel::base::{Result, StringEnum, Timestamp};
use kernel::store::{FromRow, Row, Value, to_json};
use people::organizations::OrganizationId;

use super::device::DeviceJudgement;
use super::organization::{Grades, OrganizationRecord, earliest};
use super::record::DeviceRecord;
use super::share::DeviceShare;
use super::{Finding, Health};
use crate::policy::DeviceClass;

kernel::columns! {
    /// What is known of a device.
    pub struct DeviceColumns in "backup_devices" by device_id {
        device_id, organization_id, class, known_since, record, share, findings, severity, last_success_at, verified_at,
        failures, next_at,
    }
}

kernel::columns! {
    /// What is known of an organization.
    pub struct PostureColumns in "backup_postures" by organization_id {
        organization_id, protection_health, recoverability_health, health, total, in_scope, protected, never_succeeded,
        success, warning, failed, missed, size_bytes, record, next_at,
    }
}

/// A device of the inventory, as far as its backups are concerned.
#[derive(Clone, Debug)]
pub struct InventoryDevice {
    pub id: DeviceId,
    pub organization_id: OrganizationId,
    pub class: DeviceClass,
    pub created_at: Timestamp,
}

/// A stored device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDevice {
    pub organization_id: OrganizationId,
    pub class: DeviceClass,
    pub known_since: Timestamp,
    pub record: DeviceRecord,
    pub share: DeviceShare,
    pub findings: Vec<Finding>,
    /// Failed backups in a row, if it is in scope.
    pub failures: i64,
    pub next_at: Option<Timestamp>,
}

impl FromRow for StoredDevice {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: DeviceColumns<usize> = DeviceColumns::AT;
        Ok(StoredDevice {
            organization_id: row.get(AT.organization_id)?,
            class: DeviceClass::from_stored(&row.get::<String>(AT.class)?)?,
            known_since: row.get(AT.known_since)?,
            record: row.get_json(AT.record)?,
            share: row.get_json(AT.share)?,
            findings: row.get_json(AT.findings)?,
            failures: row.get(AT.failures)?,
            next_at: row.get(AT.next_at)?,
        })
    }
}

impl StoredDevice {
    pub fn new(device: &InventoryDevice) -> Self {
        StoredDevice {
            organization_id: device.organization_id,
            class: device.class,
            known_since: device.created_at,
            record: DeviceRecord::default(),
            share: DeviceShare::default(),
            findings: Vec::new(),
            failures: 0,
            next_at: None,
        }
    }

    /// The device as the inventory had it when it was judged last.
    pub fn to_inventory(&self, id: DeviceId) -> InventoryDevice {
        InventoryDevice { id, organization_id: self.organization_id, class: self.class, created_at: self.known_since }
    }

    /// Takes over how it was judged. The next of its scheduled runs has to be judged at `schedule_at`.
    pub fn set_judgement(&mut self, judgement: DeviceJudgement, schedule_at: Option<Timestamp>) {
        let DeviceJudgement { share, findings, failures, next_at } = judgement;
        (self.share, self.findings, self.failures) = (share, findings, failures);
        self.next_at = earliest(next_at, schedule_at);
    }

    pub fn to_values(&self, id: DeviceId) -> Result<Vec<Value>> {
        let severity = self.findings.iter().map(|finding| finding.severity as i64 + 1).max().unwrap_or(0);
        let in_scope = self.share.counts.in_scope == 1;
        let columns = DeviceColumns {
            device_id: id.into(),
            organization_id: self.organization_id.into(),
            class: self.class.as_str().into(),
            known_since: self.known_since.into(),
            record: to_json(&self.record)?.into(),
            share: to_json(&self.share)?.into(),
            findings: to_json(&self.findings)?.into(),
            severity: severity.into(),
            last_success_at: self.record.last_success_at.filter(|_| in_scope).into(),
            verified_at: self.record.verified_at.filter(|_| in_scope).into(),
            failures: self.failures.into(),
            next_at: self.next_at.into(),
        };
        Ok(columns.into_vec())
    }
}

/// A stored organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPosture {
    pub grades: Grades,
    pub record: OrganizationRecord,
    pub next_at: Option<Timestamp>,
}

impl FromRow for StoredPosture {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: PostureColumns<usize> = PostureColumns::AT;
        let health = |at: usize| Health::from_stored(&row.get::<String>(at)?);
        Ok(StoredPosture {
            grades: Grades {
                protection: health(AT.protection_health)?,
                recoverability: health(AT.recoverability_health)?,
            },
            record: row.get_json(AT.record)?,
            next_at: row.get(AT.next_at)?,
        })
    }
}

impl Default for StoredPosture {
    /// Of an organization of which nothing is known.
    fn default() -> Self {
        StoredPosture {
            grades: Grades { protection: Health::Unknown, recoverability: Health::Unknown },
            record: OrganizationRecord::default(),
            next_at: None,
        }
    }
}

impl StoredPosture {
    pub fn to_values(&self, id: OrganizationId) -> Result<Vec<Value>> {
        let (counts, window, grades) = (&self.record.sums.counts, self.record.window, self.grades);
        let columns = PostureColumns {
            organization_id: id.into(),
            protection_health: grades.protection.as_str().into(),
            recoverability_health: grades.recoverability.as_str().into(),
            health: grades.overall().as_str().into(),
            total: counts.total.into(),
            in_scope: counts.in_scope.into(),
            protected: counts.protected.into(),
            never_succeeded: counts.never_succeeded.into(),
            success: window.success.into(),
            warning: window.warning.into(),
            failed: window.failed.into(),
            missed: window.missed.into(),
            size_bytes: counts.size_bytes.into(),
            record: to_json(&self.record)?.into(),
            next_at: self.next_at.into(),
        };
        Ok(columns.into_vec())
    }
}
