//! SQL of organizations as the API shows them.

use fleet::devices::DeviceId;
use kernel::base::{RecordId, Result, StringEnum, Timestamp};
use kernel::store::{Db, FromRow, Row, Select, Tx, Value, from_json};
use people::organizations::OrganizationId;

use super::super::organization::{Grades, OrganizationRecord};
use super::super::{Finding, Health, Reason};
use super::{CustomerPosture, Extremes, show_posture};

kernel::statements! {
    /// With the extremes of its devices, each the end of an index.
    SHOWN = "SELECT p.organization_id, o.name, p.protection_health, p.recoverability_health, p.record,
            (SELECT MAX(d.last_success_at) FROM backup_devices d WHERE d.tenant_id = $1
                AND d.organization_id = p.organization_id AND d.last_success_at IS NOT NULL),
            (SELECT MIN(d.last_success_at) FROM backup_devices d WHERE d.tenant_id = $1
                AND d.organization_id = p.organization_id AND d.last_success_at IS NOT NULL),
            (SELECT MIN(d.verified_at) FROM backup_devices d WHERE d.tenant_id = $1
                AND d.organization_id = p.organization_id AND d.verified_at IS NOT NULL),
            (SELECT MAX(d.failures) FROM backup_devices d WHERE d.tenant_id = $1
                AND d.organization_id = p.organization_id AND d.failures > 0)
        FROM backup_postures p LEFT JOIN organizations o ON o.tenant_id = $1 AND o.id = p.organization_id
        WHERE p.tenant_id = $1 AND p.organization_id = $2";
    REASONS = "SELECT b.device_id, b.findings, COALESCE(d.hostname, d.display_name)
        FROM backup_devices b /* INDEXED BY backup_devices_by_severity */
            LEFT JOIN devices d ON d.tenant_id = $1 AND d.id = b.device_id
        WHERE b.tenant_id = $1 AND b.organization_id = $2 AND b.severity > 0
        ORDER BY b.severity DESC, b.device_id DESC LIMIT $3";
}

/// Reasons that are shown of one organization.
const REASONS_MAX: i64 = 1_000;

/// What is stored of an organization.
struct ShownPosture {
    id: OrganizationId,
    name: Option<String>,
    grades: Grades,
    record: OrganizationRecord,
    extremes: Extremes,
}

impl FromRow for ShownPosture {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let health = |at: usize| Health::from_stored(&row.get::<String>(at)?);
        Ok(ShownPosture {
            id: row.get(0)?,
            name: row.get(1)?,
            grades: Grades { protection: health(2)?, recoverability: health(3)? },
            record: row.get_json(4)?,
            extremes: Extremes {
                last_success_at: row.get(5)?,
                oldest_last_success_at: row.get(6)?,
                oldest_verified_at: row.get(7)?,
                failures: row.get(8)?,
            },
        })
    }
}

impl ShownPosture {
    /// Whether reasons of its devices are shown. While nobody has reported, all that there is to say is said once.
    fn shows_devices(&self) -> bool {
        self.record.sums.counts.reported > 0
    }

    fn into_posture(self, of_devices: impl Iterator<Item = DeviceFindings>, now: Timestamp) -> CustomerPosture {
        let own = self.record.findings.iter().map(|finding| to_reason(finding.clone(), None, None));
        let mut reasons: Vec<Reason> = own.collect();
        for DeviceFindings { device, name, findings } in of_devices {
            reasons.extend(findings.into_iter().map(|finding| to_reason(finding, Some(device), name.clone())));
        }
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.severity));
        reasons.truncate(usize::try_from(REASONS_MAX).unwrap_or(usize::MAX));
        let organization = Some(self.id).filter(|id| *id != OrganizationId::NONE).zip(self.name);
        show_posture(organization, &self.record, self.grades, &self.extremes, reasons, now)
    }
}

/// A device with its reasons, and the number of its organization on the page.
struct DeviceFindings {
    device: DeviceId,
    name: Option<String>,
    findings: Vec<Finding>,
}

impl FromRow for DeviceFindings {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(DeviceFindings { device: row.get(0)?, name: row.get(2)?, findings: from_json(&row.get::<String>(1)?)? })
    }
}

/// The same as one of several arms.
struct ArmFindings {
    arm: usize,
    findings: DeviceFindings,
}

impl FromRow for ArmFindings {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let arm: i64 = row.get_last()?;
        Ok(ArmFindings { arm: usize::try_from(arm).unwrap_or_default(), findings: DeviceFindings::from_row(row)? })
    }
}

fn to_reason(finding: Finding, device_id: Option<DeviceId>, device_name: Option<String>) -> Reason {
    let Finding { code, severity, since, detail } = finding;
    Reason { code, severity, device_id, device_name, since, detail }
}

fn reason_values(id: OrganizationId, limit: i64) -> Vec<Value> {
    vec![id.into(), limit.into()]
}

/// How an organization stands (`OrganizationId::NONE`: the devices without one), within a transaction.
pub async fn get_posture(tx: &mut Tx, id: OrganizationId) -> Result<Option<CustomerPosture>> {
    let now = tx.tick().await?.at;
    let Some(shown) = tx.find::<ShownPosture>(SHOWN, kernel::args![id]).await? else { return Ok(None) };
    let limit = if shown.shows_devices() { REASONS_MAX } else { 0 };
    let of_devices: Vec<DeviceFindings> = tx.list(REASONS, kernel::args![id, limit]).await?;
    Ok(Some(shown.into_posture(of_devices.into_iter(), now)))
}

/// How these organizations stand, in their order.
pub async fn list_postures(db: &Db, ids: &[OrganizationId]) -> Result<Vec<(OrganizationId, CustomerPosture)>> {
    let now = db.env().now();
    let arms = ids.iter().map(|id| vec![Value::from(*id)]).collect();
    let none = vec![Value::from("")];
    let shown: Vec<ShownPosture> = db.select(&Select::union_arms(SHOWN, arms, none)).await?;
    let with_devices: Vec<OrganizationId> = shown.iter().filter(|one| one.shows_devices()).map(|one| one.id).collect();
    let mut of_devices: Vec<Vec<DeviceFindings>> = with_devices.iter().map(|_| Vec::new()).collect();
    if !with_devices.is_empty() {
        let arms = with_devices.iter().map(|id| reason_values(*id, REASONS_MAX)).collect();
        let none = vec![Value::from(""), Value::Int(0)];
        let rows: Vec<ArmFindings> = db.select(&Select::union_arms(REASONS, arms, none)).await?;
        for ArmFindings { arm, findings } in rows {
            if let Some(of_arm) = of_devices.get_mut(arm) {
                of_arm.push(findings);
            }
        }
    }
    let mut of_devices: std::collections::HashMap<_, _> = with_devices.into_iter().zip(of_devices).collect();
    let postures = shown.into_iter().map(|one| {
        let (id, findings) = (one.id, of_devices.remove(&one.id).unwrap_or_default());
        (id, one.into_posture(findings.into_iter(), now))
    });
    Ok(postures.collect())
}
