//! Devices: the record and its events. Tickets, backups and search refer to devices.
//!
//! `inventory` writes devices from reports and files, `asset_inventory` serves them. This module has what both share: the
//! record and its rules, its SQL, its index and counters, the changes that time alone causes, and the workflow actions.

/// Workflow actions on devices.
pub mod actions {
    pub mod store;
}
mod changes;
pub mod facts;
pub mod feature;
/// Changes that time alone causes.
pub mod clock {
    pub mod store;
}
/// Index and counters of devices.
mod index {
    pub mod store;
}
mod rules;
pub mod software;
mod store;
mod stored;
mod terms;

use kernel::base::{ActorRef, Id, Identified, RecordId, Timestamp};
use kernel::events::EventKind;
use kernel::http::Record;
use kernel::store::references::Referable;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use people::organizations::OrganizationId;

pub use agent_reports::{
    Cpu, DeviceType as Type, Disk, Nic, Os, Platform, Port, Software, Supply, Volume, compact_mac,
};
pub use changes::{DeviceChanges, FieldChange, compare_devices};
pub use index::store::size_class;
pub use rules::{DEVICES_MAX, DeviceSettings, next_check_at, update_derived_fields};
pub use software::{SOFTWARE_DIMENSION, VERSION_SEPARATOR, installed_versions, software_name};
pub use store::{
    ChangeOrigin, LoadedDevice, ReportRowUpdate, SELECT_DEVICES, clamp_future_timestamps, create_device, delete_device,
    edit_device, find_device, find_device_by_number, lock_device, save_device,
};
pub use stored::{CHANGE_COLUMNS, DEVICE_LIST, DeviceRecordColumns, StoredDevice, row_limit};
pub use terms::{
    ALL_ORGANIZATIONS, DUPLICATE_FLAG, DeviceCounter, FLAG_TERM, HEALTH_TERM, NO_ORGANIZATION, ORGANIZATION_TERM,
    OS_TERM, PLATFORM_TERM, REBOOT_FLAG, STATUS_TERM, TAG_TERM, TYPE_TERM, WARRANTY_TERM, WORD_TERM, counters_of,
    fold_os_name, format_term, organization_of, searchable_words, terms_of,
};

pub const DEVICE_CREATED: EventKind<Device> =
    EventKind::new("device.created", "A device reported for the first time, or was imported.");
pub const DEVICE_UPDATED: EventKind<UpdatedDevice> = EventKind::new(
    "device.updated",
    "Something of a device changed that people care about; `changes` says what, from what and to what.",
);
pub const DEVICE_OFFLINE: EventKind<Device> =
    EventKind::new("device.offline", "A device has not been seen for too long.");
pub const DEVICE_DELETED: EventKind<Device> =
    EventKind::new("device.deleted", "A device was taken out of the inventory.");

pub type DeviceId = Id<Device>;

impl Identified for Device {
    const PREFIX: &'static str = "dev";
    const ABOUT: &'static str = "The device.";
}

/// Devices as targets of references.
pub const DEVICES: Referable =
    Referable { prefix: DeviceId::PREFIX, table: "devices", only: Some("deleted_at IS NULL") };

kernel::string_enum! {
    /// `offline` when a device is overdue, `stale` when it has not been seen for weeks, or never.
    #[schema(as = DeviceStatus)]
    pub enum DeviceStatus { Online "online", Offline "offline", Stale "stale" }
}

kernel::string_enum! {
    /// `unknown` until a device has sent an inventory.
    #[schema(as = DeviceHealth)]
    pub enum DeviceHealth {
        Unknown "unknown", Healthy "healthy", NeedsAttention "needs_attention", Unhealthy "unhealthy",
    }
}

kernel::string_enum! {
    /// `unknown` without an end date.
    pub enum WarrantyStatus { Active "active", Expired "expired", Unknown "unknown" }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(example = example_device)]
pub struct Device {
    #[schema(value_type = String)]
    pub id: DeviceId,
    #[schema(required)]
    pub hostname: Option<String>,
    /// What people call it, where that was imported.
    #[schema(required)]
    pub display_name: Option<String>,
    pub r#type: Type,
    pub platform: Platform,
    pub os: Os,
    pub status: DeviceStatus,
    pub health: DeviceHealth,
    #[schema(value_type = Option<String>, required)]
    pub organization_id: Option<OrganizationId>,
    #[schema(required)]
    pub manufacturer: Option<String>,
    #[schema(required)]
    pub model: Option<String>,
    #[schema(required)]
    pub serial_number: Option<String>,
    #[schema(required)]
    pub asset_tag: Option<String>,
    #[schema(required)]
    pub uuid: Option<String>,
    pub cpu: Cpu,
    #[schema(required)]
    pub memory_bytes: Option<i64>,
    /// Of what was scanned over the network: a switch, a printer, a computer that speaks SNMP. Agents do not report it.
    #[schema(required)]
    pub firmware: Option<String>,
    /// All pages that a printer has printed.
    #[schema(required)]
    pub page_count: Option<i64>,
    #[schema(required)]
    pub primary_ip: Option<String>,
    /// With colons, in small letters.
    #[schema(required)]
    pub primary_mac: Option<String>,
    #[schema(required)]
    pub last_logged_user: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_boot_at: Option<Timestamp>,
    #[schema(required)]
    pub needs_reboot: Option<bool>,
    pub patch: DevicePatch,
    pub warranty: Warranty,
    pub agent: DeviceAgent,
    pub tags: Vec<String>,
    pub custom_fields: Map<String, Value>,
    /// A device that this one may duplicate; see the guide to inventory.
    #[schema(value_type = Option<String>, required)]
    pub possible_duplicate_of: Option<DeviceId>,
    /// The first report; null for one that was imported and has not reported yet.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub first_seen_at: Option<Timestamp>,
    /// The last sign of life. It moves neither `version` nor `updated_at`.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_seen_at: Option<Timestamp>,
    /// The last inventory. It moves neither `version` nor `updated_at`.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub inventory_at: Option<Timestamp>,
    /// Set in tombstones alone, which lists with `updated_since` show.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub deleted_at: Option<Timestamp>,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for Device {
    fn version(&self) -> i64 {
        self.version
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DevicePatch)]
pub struct DevicePatch {
    #[schema(required)]
    pub pending: Option<i64>,
    #[schema(required)]
    pub failed: Option<i64>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_installed_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DeviceWarranty)]
pub struct Warranty {
    #[schema(format = Date, required)]
    pub start_date: Option<String>,
    #[schema(format = Date, required)]
    pub end_date: Option<String>,
    pub status: WarrantyStatus,
}

/// What reported last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DeviceAgent)]
pub struct DeviceAgent {
    #[schema(required)]
    pub name: Option<String>,
    #[schema(required)]
    pub version: Option<String>,
    /// What the agent calls the device.
    #[schema(required)]
    pub device_id: Option<String>,
    /// The tag that it was installed with; it names the organization by its slug or name.
    #[schema(required)]
    pub tag: Option<String>,
}

/// One change of a device; the first is its creation.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = DeviceChange, example = json!({
    "at": "2026-11-15T08:01:00.000Z", "actor": {"type": "system", "id": "ing_01jd8z6v2mfkpb7h3q9xw5t4re", "name": "Ingest key ing_01jd8z6v2mfkpb7h3q9xw5t4re"},
    "changes": {"memory_bytes": {"from": 34_359_738_368_i64, "to": 68_719_476_736_i64}}
}))]
pub struct DeviceChange {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub actor: ActorRef,
    pub changes: DeviceChanges,
}

/// A device with what has just changed of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = example_updated_device)]
pub struct UpdatedDevice {
    #[serde(flatten)]
    pub device: Device,
    pub changes: DeviceChanges,
}

/// A device with its parts: the unit that is loaded, changed and saved.
#[derive(Clone, Debug, PartialEq)]
pub struct FullDevice {
    pub device: Device,
    pub parts: DeviceParts,
}

/// The hardware and installed software of a device: lists that responses carry only on request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceParts {
    pub disks: Vec<Disk>,
    pub volumes: Vec<Volume>,
    pub nics: Vec<Nic>,
    /// Sorted by name.
    pub software: Vec<Software>,
    pub ports: Vec<Port>,
    pub supplies: Vec<Supply>,
}

/// The device in the examples of the API document.
fn example_device() -> Value {
    json!({
        "id": "dev_01jd8z6v2mfkpb7h3q9xw5t4rd", "hostname": "web01", "display_name": null, "type": "server",
        "platform": "linux",
        "os": {"name": "Debian GNU/Linux 12 (bookworm)", "version": "12.11", "build": null, "kernel": "6.1.0-44-amd64", "arch": "x86_64"},
        "status": "online", "health": "healthy", "organization_id": null, "manufacturer": "Dell Inc.",
        "model": "PowerEdge R640", "serial_number": "7XK2P13", "asset_tag": null,
        "uuid": "4c4c4544-0058-4b10-8032-b7c04f503133",
        "cpu": {"model": "Intel(R) Xeon(R) Silver 4210", "sockets": 2, "cores": 20}, "memory_bytes": 68_719_476_736_i64,
        "firmware": null, "page_count": null,
        "primary_ip": "192.0.2.10", "primary_mac": "02:fc:00:00:00:01", "last_logged_user": "root",
        "last_boot_at": "2026-11-14T23:57:31.000Z", "needs_reboot": null,
        "patch": {"pending": null, "failed": null, "last_installed_at": null},
        "warranty": {"start_date": null, "end_date": "2028-03-31", "status": "active"},
        "agent": {"name": "FusionInventory-Agent", "version": "2.6", "device_id": "web01-2026-11-15-00-18-42", "tag": null},
        "tags": [], "custom_fields": {}, "possible_duplicate_of": null, "first_seen_at": "2026-11-15T08:00:00.000Z",
        "last_seen_at": "2026-11-15T08:00:00.000Z", "inventory_at": "2026-11-15T08:00:00.000Z", "deleted_at": null,
        "version": 1, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z"
    })
}

/// The same device a day later, with more memory.
fn example_updated_device() -> Value {
    let mut example = example_device();
    for field in ["last_seen_at", "inventory_at", "updated_at"] {
        example[field] = "2026-11-16T08:00:00.000Z".into();
    }
    example["version"] = 2.into();
    example["changes"] = json!({"memory_bytes": {"from": 34_359_738_368_i64, "to": 68_719_476_736_i64}});
    example
}
