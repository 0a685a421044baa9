//! The answer by family: totals of the range, and a series of buckets.

use std::collections::BTreeMap;

use kernel::base::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::shown::{
    ApiUsageAnalytics, BackupAnalytics, DeviceAnalytics, SearchAnalytics, TicketAnalytics, VmAnalytics,
    WebhookAnalytics, WorkflowAnalytics,
};

macro_rules! families {
    ($($family:ident: $bucket:ident, $totals:ty, $shown:ident;)*) => {$(
        /// One hour, day or week.
        #[derive(Clone, Debug, Serialize, ToSchema)]
        pub struct $bucket {
            /// When it begins.
            #[schema(value_type = String, format = DateTime)]
            pub start: Timestamp,
            #[serde(flatten)]
            pub figures: $shown,
        }

        #[derive(Clone, Debug, Serialize, ToSchema)]
        pub struct $family {
            /// Of exactly the range.
            pub totals: $totals,
            /// By whole hours, days or weeks.
            pub series: Vec<$bucket>,
        }
    )*};
}

families! {
    TicketFamily: TicketBucket, TicketTotals, TicketAnalytics;
    DeviceFamily: DeviceBucket, DeviceAnalytics, DeviceAnalytics;
    VmFamily: VmBucket, VmAnalytics, VmAnalytics;
    BackupFamily: BackupBucket, BackupAnalytics, BackupAnalytics;
    WorkflowFamily: WorkflowBucket, WorkflowAnalytics, WorkflowAnalytics;
    WebhookFamily: WebhookBucket, WebhookAnalytics, WebhookAnalytics;
    ApiUsageFamily: ApiUsageBucket, ApiUsageTotals, ApiUsageAnalytics;
    SearchFamily: SearchBucket, SearchAnalytics, SearchAnalytics;
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TicketTotals {
    #[serde(flatten)]
    pub figures: TicketAnalytics,
    /// The tickets that were created in the range, by their status at its end: every status, also those of none.
    pub by_status: BTreeMap<String, i64>,
    /// The same by their priority.
    pub by_priority: BTreeMap<String, i64>,
    /// The same by their organization, the most first. Left out of the platform's figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by_organization: Option<Vec<OrganizationTickets>>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AnalyticsOrganization)]
pub struct OrganizationTickets {
    /// Null for tickets without one.
    #[schema(required)]
    pub organization_id: Option<String>,
    /// Tickets that were created in the range.
    pub created: i64,
    /// Of them those that were open at its end. Older tickets that are open, which `totals.open` has, are not among them.
    pub open: i64,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ApiUsageTotals {
    #[serde(flatten)]
    pub figures: ApiUsageAnalytics,
    /// The most requests first. Left out of the platform's figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by_key: Option<Vec<KeyUsage>>,
    /// The most requests first.
    pub by_route: Vec<RouteUsage>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AnalyticsKeyUsage)]
pub struct KeyUsage {
    /// Null for people who signed in. At most 200 are counted one by one; those beyond are `other` together.
    #[schema(required)]
    pub key_id: Option<String>,
    #[serde(flatten)]
    pub figures: ApiUsageAnalytics,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AnalyticsRouteUsage)]
pub struct RouteUsage {
    /// Method and path, such as `GET /api/psa/tickets`; `other` as of keys.
    pub route: String,
    #[serde(flatten)]
    pub figures: ApiUsageAnalytics,
}

/// The families that were asked for.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[schema(as = AnalyticsFamilies)]
pub struct Families {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tickets: Option<TicketFamily>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub devices: Option<DeviceFamily>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub vms: Option<VmFamily>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub backups: Option<BackupFamily>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub workflows: Option<WorkflowFamily>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub webhooks: Option<WebhookFamily>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub api_usage: Option<ApiUsageFamily>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub searches: Option<SearchFamily>,
}

kernel::string_enum! {
    #[schema(as = AnalyticsFamily)]
    pub enum Family {
        Tickets "tickets", Devices "devices", Vms "vms", Backups "backups", Workflows "workflows", Webhooks "webhooks",
        ApiUsage "api_usage", Searches "searches",
    }
}
