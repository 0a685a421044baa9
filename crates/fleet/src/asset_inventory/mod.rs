//! The asset inventory: reading devices as lists, files, summaries and changes.

mod columns;
pub mod find;
mod page;
pub mod routes;
pub mod shown;
pub mod store;
pub mod summary {
    pub mod store;
}

use feature_kit::Feature;
use serde::Serialize;
use utoipa::ToSchema;

pub const FEATURE: Feature = Feature {
    name: "asset_inventory",
    operations: routes::mount,
    statements: &[find::store::STATEMENTS, store::STATEMENTS, summary::store::STATEMENTS],
    ..Feature::NEW
};

kernel::words! {
    /// Lists of a device that come only when they are asked for.
    #[schema(as = DevicePart)]
    pub enum Part { Software "software", Disks "disks", Volumes "volumes", Nics "nics" }
}

kernel::words! {
    /// `csv` and `ndjson` are the whole list, as a file.
    #[schema(as = ListFormat)]
    pub enum Format { Json "json", Csv "csv", Ndjson "ndjson" }
}

kernel::words! {
    /// `summary`: figures instead of devices. `history`: with `id`, every change of the device.
    #[schema(as = InventoryView)]
    pub enum View { Summary "summary", History "history" }
}

/// How many devices there are of each kind, most first.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = InventorySummary, example = json!({
    "total": 2, "platform": [{"value": "linux", "count": 2}], "os": [{"value": "Debian GNU/Linux", "count": 2}],
    "type": [{"value": "server", "count": 1}, {"value": "virtual", "count": 1}],
    "status": [{"value": "online", "count": 2}], "health": [{"value": "healthy", "count": 2}],
    "organization": [{"value": null, "count": 2}], "warranty": [{"value": "unknown", "count": 2}],
    "software": [{"value": "bash", "count": 2}]
}))]
pub struct Summary {
    pub total: i64,
    pub platform: Vec<Count>,
    /// By the name of the system; null where it is not known. At most 1000.
    pub os: Vec<Count>,
    pub r#type: Vec<Count>,
    pub status: Vec<Count>,
    pub health: Vec<Count>,
    /// By id; null for devices of none.
    pub organization: Vec<Count>,
    pub warranty: Vec<Count>,
    /// The 50 that are installed on most devices.
    pub software: Vec<Count>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = InventoryCount)]
pub struct Count {
    #[schema(required)]
    pub value: Option<String>,
    pub count: i64,
}
