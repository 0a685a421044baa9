//! Machines in the same shape for every cloud.

use std::collections::BTreeMap;
use std::fmt;

/// The tag that names the operation which created a machine. Clouds whose tags cannot be named so write it otherwise; it
/// is shown under this name everywhere.
pub const OPERATION_TAG: &str = "tenant-control:operation";

kernel::string_enum! {
    /// The state of a machine. A state of the cloud that has no counterpart here is `unknown`, never `terminated`.
    #[schema(as = VmState)]
    pub enum MachineState {
        Provisioning "provisioning", Starting "starting", Running "running", Stopping "stopping", Stopped "stopped",
        Suspended "suspended", Rebooting "rebooting", Terminating "terminating", Terminated "terminated", Failed "failed",
        Unknown "unknown",
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub external_id: String,
    pub name: Option<String>,
    pub region: String,
    pub zone: Option<String>,
    pub size: MachineSize,
    pub image: Option<String>,
    pub state: MachineState,
    /// As the cloud says it.
    pub raw_state: String,
    /// Why the cloud stopped or failed it, if it says.
    pub state_reason: Option<String>,
    /// Addresses; of Hetzner's IPv6 the network, such as `2001:db8::/64`, because that is what the cloud assigns.
    pub public_ips: Vec<String>,
    pub private_ips: Vec<String>,
    pub tags: BTreeMap<String, String>,
    pub cost: Option<MachineCost>,
    /// The operation that created it, from its tag.
    pub operation_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineSize {
    pub id: String,
    pub vcpus: Option<i64>,
    pub memory_bytes: Option<i64>,
    pub disk_bytes: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MachineCost {
    pub amount: f64,
    /// As ISO 4217 has it.
    pub currency: String,
    /// `month`.
    pub period: String,
}

impl MachineCost {
    pub(crate) fn new_monthly(amount: f64, currency: &str) -> Self {
        MachineCost { amount, currency: currency.to_owned(), period: "month".to_owned() }
    }
}

/// A machine to be created. `operation_id` travels as client token, where the cloud has one, and as tag. `Debug` does not
/// show the user data, in which people put passwords.
#[derive(Clone)]
pub struct MachineSpec {
    pub operation_id: String,
    pub name: String,
    pub region: String,
    pub size: String,
    pub image: String,
    pub tags: BTreeMap<String, String>,
    pub user_data: Option<String>,
    pub ssh_keys: Vec<String>,
}

impl fmt::Debug for MachineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineSpec")
            .field("operation_id", &self.operation_id)
            .field("name", &self.name)
            .field("region", &self.region)
            .field("size", &self.size)
            .field("image", &self.image)
            .field("tags", &self.tags)
            .field("user_data", &self.user_data.as_ref().map(|_| "[redacted]"))
            .field("ssh_keys", &self.ssh_keys)
            .finish()
    }
}

/// The answer to a creation.
#[derive(Clone, Debug)]
pub struct CreatedMachine {
    pub machine: Machine,
}

impl CreatedMachine {
    /// The answer may come before name and tags are set: they are known from the request.
    pub(crate) fn new(mut machine: Machine, spec: &MachineSpec) -> Self {
        machine.name.get_or_insert_with(|| spec.name.clone());
        machine.operation_id = Some(spec.operation_id.clone());
        machine.tags.insert(OPERATION_TAG.to_owned(), spec.operation_id.clone());
        for (key, value) in &spec.tags {
            machine.tags.entry(key.clone()).or_insert_with(|| value.clone());
        }
        CreatedMachine { machine }
    }
}
