//! The asset inventory: reading devices as lists, files, summaries and changes.

mod columns;
pub mod feature;
pub mod find;
mod page;
pub mod routes;
pub mod shown;
pub mod store;
pub mod summary {
    pub mod store;
}

use serde::Serialize;
use utoipa::ToSchema;

kernel::string_enum! {
    /// Lists of a device that come only when they are asked for.
    #[schema(as = DevicePart)]
    pub enum DevicePart {
        Software "software", Disks "disks", Volumes "volumes", Nics "nics", Ports "ports", Supplies "supplies",
    }
}

kernel::string_enum! {
    /// `csv` and `ndjson` are the whole list, as a file.
    #[schema(as = ListFormat)]
    pub enum ListFormat { Json "json", Csv "csv", Ndjson "ndjson" }
}

kernel::string_enum! {
    /// `summary`: figures instead of devices. `history`: with `id`, every change of the device.
    #[schema(as = InventoryView)]
    pub enum InventoryView { Summary "summary", History "history" }
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
pub struct InventorySummary {
    pub total: i64,
    pub platform: Vec<InventoryCount>,
    /// By the name of the system; null where it is not known. At most 1000.
    pub os: Vec<InventoryCount>,
    pub r#type: Vec<InventoryCount>,
    pub status: Vec<InventoryCount>,
    pub health: Vec<InventoryCount>,
    /// By id; null for devices of none.
    pub organization: Vec<InventoryCount>,
    pub warranty: Vec<InventoryCount>,
    /// The 50 that are installed on most devices.
    pub software: Vec<InventoryCount>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = InventoryCount)]
pub struct InventoryCount {
    #[schema(required)]
    pub value: Option<String>,
    pub count: i64,
}
