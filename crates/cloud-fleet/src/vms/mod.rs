//! Machines in clouds: those that syncs have found, and those that were ordered here.
//!
//! `input` parses orders, `provision` stores an order with its operation, `find` lists machines, `machine_changes` brings what
//! a cloud tells into the store. There is no way to change or delete a machine: that stays with the cloud's own tools.

/// Workflow actions on machines.
pub mod actions {
    pub mod store;
}
/// Machines that have ended leave the list after a while.
pub mod ended {
    pub mod store;
}
pub mod facts;
pub mod feature;
pub mod find;
/// Forgets the machines of removed regions.
pub mod forget {
    pub mod store;
}
pub mod input;
/// Whose the machines known here are.
pub mod known_accounts {
    pub mod store;
}
/// Brings what a cloud tells of its machines into the store.
pub mod machine_changes {
    pub mod store;
}
/// Stores orders.
pub mod provision {
    pub mod store;
}
pub mod routes;
/// Settles operations whose outcome nobody knows.
pub mod settle {
    pub mod store;
}
pub mod store;
/// Counts of machines.
pub mod summary {
    pub mod store;
}

use std::collections::BTreeMap;

use clouds::MachineState;
use kernel::base::{Id, Identified, Timestamp};
use kernel::events::EventKind;
use kernel::http::Record;
use people::organizations::OrganizationId;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::providers::ProviderId;

pub const VM_PROVISIONED: EventKind<Vm> = EventKind::new("vm.provisioned", "A machine that was ordered here runs.");
pub const VM_FAILED: EventKind<Vm> = EventKind::new(
    "vm.failed",
    "A machine that was ordered here could not be made, or nobody can tell whether it was: `operation.error` says why.",
);
pub const VM_STATE_CHANGED: EventKind<ChangedVm> = EventKind::new(
    "vm.state_changed",
    "The state of a machine is another than before, by what its cloud reports or by how its order went; `changes` says from what \
     to what.",
);

/// The tag by which a machine is found again when the answer to its creation is lost.
pub const OPERATION_TAG: &str = "tenant-control:operation";
/// The tag that names the organization of a machine, by its slug.
pub const ORGANIZATION_TAG: &str = "tenant-control:organization";

pub type VmId = Id<Vm>;

impl Identified for Vm {
    const PREFIX: &'static str = "vm";
    const ABOUT: &'static str = "The machine to act on.";
}

/// An order for one machine.
pub struct VmOperation;
pub type OperationId = Id<VmOperation>;

impl Identified for VmOperation {
    const PREFIX: &'static str = "op";
}

kernel::string_enum! {
    /// How far the order of a machine has come.
    #[schema(as = VmOperationStatus)]
    pub enum OperationStatus {
        /// Stored, and not sent yet.
        Accepted "accepted",
        /// Being sent: whether the cloud has it is not known yet.
        Submitting "submitting",
        /// The cloud has answered that it makes the machine.
        Submitted "submitted",
        /// The machine exists, and does not run yet.
        Waiting "waiting",
        Succeeded "succeeded",
        Failed "failed",
        /// Whether the cloud made the machine cannot be known: somebody has to look, and to settle it.
        NeedsAttention "needs_attention",
    }
}

impl OperationStatus {
    pub fn is_open(self) -> bool {
        !matches!(self, OperationStatus::Succeeded | OperationStatus::Failed | OperationStatus::NeedsAttention)
    }
}

/// A machine in a cloud.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = example_vm)]
pub struct Vm {
    #[schema(value_type = String)]
    pub id: VmId,
    #[serde(flatten)]
    pub details: VmDetails,
    /// When it left the list: its provider or region was removed, or it was terminated 30 days ago. Only a list of changes
    /// shows it then.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub deleted_at: Option<Timestamp>,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

fn example_vm() -> Value {
    json!({
        "id": "vm_01jd8z6v2mfkpb7h3q9xw5t4ra", "provider_id": "prv_01jd8z6v2mfkpb7h3q9xw5t4rb",
        "external_id": "i-0abcd1234ef567890", "name": "web-1", "region": "eu-central-1", "zone": "eu-central-1a",
        "size": {"id": "t3.micro", "vcpus": 2, "memory_bytes": 1_073_741_824, "disk_bytes": null},
        "image": "ami-0abcdef1234567890", "state": "running", "raw_state": "running", "intended_state": "running",
        "public_ips": ["203.0.113.7"], "private_ips": ["10.0.0.7"], "tags": {"Name": "web-1"}, "managed": true, "cost": null,
        "organization_id": null,
        "operation": {"id": "op_01jd8z6v2mfkpb7h3q9xw5t4rc", "status": "succeeded", "error": null},
        "first_seen_at": "2026-11-15T08:00:20.000Z", "last_seen_at": "2026-11-15T08:05:00.000Z", "deleted_at": null,
        "version": 3, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:30.000Z"
    })
}

/// A machine with what has just changed of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = example_changed_vm)]
pub struct ChangedVm {
    #[serde(flatten)]
    pub vm: Vm,
    pub changes: VmChanges,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VmChanges {
    pub state: VmStateChange,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VmStateChange {
    #[schema(value_type = MachineState)]
    pub from: MachineState,
    #[schema(value_type = MachineState)]
    pub to: MachineState,
}

/// The same machine when it began to run.
fn example_changed_vm() -> Value {
    let mut example = example_vm();
    example["changes"] = json!({"state": {"from": "provisioning", "to": "running"}});
    example
}

impl Record for Vm {
    fn version(&self) -> i64 {
        self.version
    }
}

/// What is known of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VmDetails {
    #[schema(value_type = String)]
    pub provider_id: ProviderId,
    /// Its id in the cloud; null until the cloud has told it.
    #[schema(required)]
    pub external_id: Option<String>,
    pub name: String,
    pub region: String,
    #[schema(required)]
    pub zone: Option<String>,
    pub size: VmSize,
    #[schema(required)]
    pub image: Option<String>,
    #[schema(value_type = MachineState)]
    pub state: MachineState,
    /// The state in the cloud's own words; empty before the cloud has told it.
    pub raw_state: String,
    /// What was ordered here; null for a machine that was not.
    #[schema(value_type = Option<MachineState>, required)]
    pub intended_state: Option<MachineState>,
    pub public_ips: Vec<String>,
    pub private_ips: Vec<String>,
    pub tags: BTreeMap<String, String>,
    /// Whether it was ordered here.
    pub managed: bool,
    /// What it costs by the cloud's list; null where the cloud does not tell.
    #[schema(required)]
    pub cost: Option<VmCost>,
    /// Given with the order, or by the tag `tenant-control:organization` with the slug of an organization.
    #[schema(value_type = Option<String>, required)]
    pub organization_id: Option<OrganizationId>,
    /// The order; null for a machine that was not ordered here.
    #[schema(required)]
    pub operation: Option<VmOperationState>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub first_seen_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_seen_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct VmSize {
    pub id: String,
    #[schema(required)]
    pub vcpus: Option<i64>,
    #[schema(required)]
    pub memory_bytes: Option<i64>,
    #[schema(required)]
    pub disk_bytes: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, ToSchema)]
pub struct VmCost {
    pub amount: f64,
    /// As ISO 4217 has it.
    pub currency: String,
    /// `month`.
    pub period: String,
}

/// The order of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = VmOperation)]
pub struct VmOperationState {
    #[schema(value_type = String)]
    pub id: OperationId,
    pub status: OperationStatus,
    #[schema(required)]
    pub error: Option<VmOperationError>,
}

/// Why a machine was not made, in plain words.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VmOperationError {
    /// `auth`, `permission`, `not_found`, `invalid`, `quota`, `capacity`, `conflict`, `rate_limited`, `unavailable`,
    /// `ambiguous`, `timeout`, `gone`, `abandoned` or `provider_deleted`.
    pub code: String,
    pub detail: String,
}

/// A machine as an order would make it. Nothing is stored.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": null, "provider_id": "prv_01jd8z6v2mfkpb7h3q9xw5t4rb", "external_id": null, "name": "web-1",
    "region": "eu-central-1", "zone": null,
    "size": {"id": "t3.micro", "vcpus": null, "memory_bytes": null, "disk_bytes": null},
    "image": "ami-0abcdef1234567890", "state": "provisioning", "raw_state": "", "intended_state": "running",
    "public_ips": [], "private_ips": [], "tags": {"Name": "web-1"}, "managed": true, "cost": null,
    "organization_id": null, "operation": null, "first_seen_at": null, "last_seen_at": null
}))]
pub struct VmPreview {
    /// Always null.
    #[schema(required)]
    pub id: Option<String>,
    #[serde(flatten)]
    pub details: VmDetails,
}
