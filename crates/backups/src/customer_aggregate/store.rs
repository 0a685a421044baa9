//! SQL of the list of customers.

use kernel::args;
use kernel::base::{Error, Result, StringEnum};
use kernel::http::{json_size, load_records};
use kernel::store::{ArmSql, Db, FromRow, IndexWalk, Row, Value};
use people::organizations::OrganizationId;

use super::{BackupTotals, HealthCounts};
use crate::posture::shown::store::list_postures;
use crate::posture::shown::{CustomerPosture, DeviceCounts};
use crate::posture::{Health, RunCounts};

const KEYS: ArmSql = ArmSql::new("organization_id", "backup_postures", &["organization_id"]);

kernel::statements! {
    BY_ORGANIZATION = kernel::arm!(KEYS);
    BY_HEALTH = kernel::arm!(KEYS.use_index("backup_postures_by_health").where_equal(&["health"]));
    TOTALS = "SELECT health, COUNT(*), CAST(SUM(total) AS BIGINT), CAST(SUM(in_scope) AS BIGINT), CAST(SUM(protected) AS BIGINT),
            CAST(SUM(never_succeeded) AS BIGINT), CAST(SUM(success) AS BIGINT), CAST(SUM(warning) AS BIGINT),
            CAST(SUM(failed) AS BIGINT), CAST(SUM(missed) AS BIGINT), CAST(SUM(size_bytes) AS BIGINT)
        FROM backup_postures /* INDEXED BY backup_postures_by_health */ WHERE tenant_id = $1 GROUP BY health";
    ORGANIZATION = "SELECT id FROM organizations WHERE tenant_id = $1 AND id = $2";
}

/// Customers that are read at once: each has 28 days and its reasons.
const READ_ROWS: usize = 50;

/// Which customers are listed.
pub struct Filter {
    pub organization_ids: Option<Vec<OrganizationId>>,
    pub healths: Option<Vec<Health>>,
}

type PosturePage = (Vec<CustomerPosture>, Option<OrganizationId>);

/// A page of customers, newest first, and the key after which the next page starts.
pub async fn list_customers(
    db: &Db,
    filter: &Filter,
    after: Option<OrganizationId>,
    limit: usize,
) -> Result<PosturePage> {
    let (keys, next) = match &filter.organization_ids {
        Some(ids) => cut_page(named_keys(db, ids, after).await?, limit),
        None => walk_keys(db, filter, after, limit).await?,
    };
    let wanted =
        |posture: &CustomerPosture| filter.healths.as_ref().is_none_or(|healths| healths.contains(&posture.health));
    load_records(
        &keys,
        next,
        |_| READ_ROWS,
        json_size,
        |part| async move {
            let mut found = list_postures(db, part).await?;
            found.retain(|(_, posture)| wanted(posture));
            found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
            Ok(found)
        },
    )
    .await
}

/// Organizations that were named. One that is not there is not found: a filter is never ignored.
async fn named_keys(db: &Db, ids: &[OrganizationId], after: Option<OrganizationId>) -> Result<Vec<OrganizationId>> {
    for id in ids {
        let found: Option<OrganizationId> = db.find(ORGANIZATION, args![*id]).await?;
        found.ok_or_else(Error::not_found)?;
    }
    let mut keys: Vec<OrganizationId> =
        ids.iter().copied().filter(|id| after.is_none_or(|after| *id < after)).collect();
    keys.sort();
    keys.reverse();
    Ok(keys)
}

/// The first keys of a list, and the one after which the next page starts.
fn cut_page(mut keys: Vec<OrganizationId>, limit: usize) -> (Vec<OrganizationId>, Option<OrganizationId>) {
    let has_more = keys.len() > limit;
    keys.truncate(limit);
    let next = keys.last().copied().filter(|_| has_more);
    (keys, next)
}

async fn walk_keys(
    db: &Db,
    filter: &Filter,
    after: Option<OrganizationId>,
    limit: usize,
) -> Result<(Vec<OrganizationId>, Option<OrganizationId>)> {
    let (text, values) = match &filter.healths {
        Some(healths) => (BY_HEALTH, healths.iter().map(|health| vec![Value::from(health.as_str())]).collect()),
        None => (BY_ORGANIZATION, vec![Vec::new()]),
    };
    let below = after.unwrap_or_else(OrganizationId::after_all);
    let walk = IndexWalk::new(text, values, <OrganizationId as kernel::base::RecordId>::NONE..below, true);
    walk.load_page(db, limit, |id: &OrganizationId| *id, |_| true).await
}

/// The customers of one grade together.
struct GradeTotals {
    health: Health,
    customers: i64,
    devices: [i64; 4],
    runs: RunCounts,
    size_bytes: i64,
}

impl FromRow for GradeTotals {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(GradeTotals {
            health: Health::from_stored(&row.get::<String>(0)?)?,
            customers: row.get(1)?,
            devices: [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?],
            runs: RunCounts { success: row.get(6)?, warning: row.get(7)?, failed: row.get(8)?, missed: row.get(9)? },
            size_bytes: row.get(10)?,
        })
    }
}

/// All customers together.
pub async fn read_totals(db: &Db) -> Result<BackupTotals> {
    let grades: Vec<GradeTotals> = db.list(TOTALS, args![]).await?;
    let mut organizations = HealthCounts::default();
    let (mut devices, mut jobs_24h, mut storage_bytes) = ([0; 4], RunCounts::default(), 0);
    for grade in grades {
        organizations.total += grade.customers;
        let of_grade = match grade.health {
            Health::Ok => &mut organizations.ok,
            Health::Unknown => &mut organizations.unknown,
            Health::Warning => &mut organizations.warning,
            Health::Critical => &mut organizations.critical,
        };
        *of_grade += grade.customers;
        for (sum, of_grade) in devices.iter_mut().zip(grade.devices) {
            *sum += of_grade;
        }
        let RunCounts { success, warning, failed, missed } = grade.runs;
        jobs_24h = RunCounts {
            success: jobs_24h.success + success,
            warning: jobs_24h.warning + warning,
            failed: jobs_24h.failed + failed,
            missed: jobs_24h.missed + missed,
        };
        storage_bytes += grade.size_bytes;
    }
    let [total, in_scope, protected, never_succeeded] = devices;
    let devices = DeviceCounts::new(total, in_scope, protected, never_succeeded);
    Ok(BackupTotals {
        organizations,
        devices,
        coverage_percent: devices.coverage_percent(),
        rpo: devices.rpo(),
        jobs_24h,
        storage_bytes,
    })
}
