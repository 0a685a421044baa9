//! `/api/backup/customer-aggregate`: how the backups of each customer stand.
//!
//! What it shows is kept by `posture`; here it is only listed.

pub mod feature;
pub mod routes;
pub mod store;

use serde::Serialize;
use utoipa::ToSchema;

use crate::posture::RunCounts;
use crate::posture::shown::{DeviceCounts, RpoCounts};

/// All customers of the tenant together, whatever the filters and the page.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct BackupTotals {
    pub organizations: HealthCounts,
    pub devices: DeviceCounts,
    #[schema(required)]
    pub coverage_percent: Option<f64>,
    pub rpo: RpoCounts,
    pub jobs_24h: RunCounts,
    pub storage_bytes: i64,
}

/// Customers by their grade. The devices without an organization count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = BackupHealthCounts)]
pub struct HealthCounts {
    pub total: i64,
    pub ok: i64,
    pub unknown: i64,
    pub warning: i64,
    pub critical: i64,
}

/// The part of the answer beside the page.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct WithTotals {
    pub totals: BackupTotals,
}
