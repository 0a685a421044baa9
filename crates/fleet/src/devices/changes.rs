//! Differences between two states of a device, and which of them are published.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

use kernel::base::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Device, FullDevice, Nic, Port, Supply, Type, Volume};

/// A change of a list names at most so many elements on each side, in at most so many bytes.
const LISTED_MAX: usize = 100;
const LISTED_BYTES_MAX: usize = 16 << 10;

/// One field before and after; of a list only what was removed and added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceFieldChange)]
pub struct FieldChange {
    #[schema(required)]
    pub from: Value,
    #[schema(required)]
    pub to: Value,
    /// Where a list was too long to be shown whole: true, and only then present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// How many elements a truncated list has lost in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_total: Option<usize>,
    /// How many elements a truncated list has gained in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_total: Option<usize>,
}

impl FieldChange {
    pub fn new(from: Value, to: Value) -> Self {
        FieldChange { from, to, ..FieldChange::default() }
    }
}

/// Fields before and after. Of a list, such as `software`, only the difference: `from` was removed, `to` was added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceChanges)]
#[serde(transparent)]
pub struct DeviceChanges(pub BTreeMap<String, FieldChange>);

/// The differences between two states.
#[derive(Debug, Default)]
pub struct DeviceDifferences {
    /// Changes that people care about: they are published and saved in the history.
    pub published: DeviceChanges,
    /// Whether anything changed that moves `version` and `updated_at`.
    pub has_changes: bool,
}

/// Fields that the server maintains itself. They are not changes of the device.
const OBSERVED_FIELDS: [&str; 5] = ["version", "created_at", "updated_at", "last_seen_at", "inventory_at"];
/// Fields that change nearly every day: events about them would be noise.
const UNPUBLISHED_FIELDS: [&str; 4] = ["last_boot_at", "last_logged_user", "agent", "page_count"];

pub fn compare_devices(old: &FullDevice, new: &FullDevice) -> Result<DeviceDifferences> {
    let mut found = compare_fields(&old.device, &new.device)?;
    let (before, after) = (&old.parts, &new.parts);
    found.compare_list("disks", &before.disks, &after.disks)?;
    // Free space differs in every report.
    let sizes = |volumes: &[Volume]| -> Vec<Volume> {
        let lasting = volumes.iter().filter(|volume| !is_container_volume(volume));
        lasting.map(|volume| Volume { free_bytes: None, ..volume.clone() }).collect()
    };
    found.compare_list("volumes", &sizes(&before.volumes), &sizes(&after.volumes))?;
    // The link of a switch's or printer's interface goes up and down like that of a port.
    let is_equipment = matches!(new.device.r#type, Type::Network | Type::Printer);
    let lasting = |nics: &[Nic]| -> Vec<Nic> {
        let lasting = nics.iter().filter(|nic| !is_transient_nic(nic));
        lasting.map(|nic| Nic { status: nic.status.clone().filter(|_| !is_equipment), ..nic.clone() }).collect()
    };
    found.compare_list("nics", &lasting(&before.nics), &lasting(&after.nics))?;
    found.has_changes |= before.volumes != after.volumes || before.nics != after.nics;
    found.compare_list("software", &before.software, &after.software)?;
    // Links go up and down with the machines at their other ends, and supplies are used up every day.
    let lasting = |ports: &[Port]| -> Vec<Port> {
        ports.iter().map(|port| Port { status: None, speed_bps: None, ..port.clone() }).collect()
    };
    found.compare_list("ports", &lasting(&before.ports), &lasting(&after.ports))?;
    let named = |supplies: &[Supply]| -> Vec<Supply> {
        supplies.iter().map(|supply| Supply { level_percent: None, ..supply.clone() }).collect()
    };
    found.compare_list("supplies", &named(&before.supplies), &named(&after.supplies))?;
    found.has_changes |= before.ports != after.ports || before.supplies != after.supplies;
    Ok(found)
}

/// Whether an interface belongs to a container or guest, which gets a new one at every start.
fn is_transient_nic(nic: &Nic) -> bool {
    const STARTS: [&str; 8] = ["veth", "cali", "lxc", "vnet", "tap", "vif", "azv", "fwpr"];
    nic.name.as_deref().is_some_and(|name| STARTS.iter().any(|start| name.starts_with(start)))
}

/// Whether a volume belongs to a container and disappears with it.
fn is_container_volume(volume: &Volume) -> bool {
    const KINDS: [&str; 3] = ["overlay", "aufs", "fuse.fuse-overlayfs"];
    const MOUNTS: [&str; 4] = ["/var/lib/docker/", "/var/lib/containers/", "/var/lib/kubelet/", "/run/containerd/"];
    volume.filesystem.as_deref().is_some_and(|kind| KINDS.contains(&kind))
        || volume.mount.as_deref().is_some_and(|mount| MOUNTS.iter().any(|prefix| mount.starts_with(prefix)))
}

fn compare_fields(old: &Device, new: &Device) -> Result<DeviceDifferences> {
    let object = |device: &Device| match serde_json::to_value(device).map_err(Error::internal)? {
        Value::Object(object) => Ok(object),
        _ => Err(Error::internal("a device is an object")),
    };
    let (old, mut new) = (object(old)?, object(new)?);
    let mut found = DeviceDifferences::default();
    for (field, from) in old {
        let to = new.remove(&field).unwrap_or_default();
        if from == to || OBSERVED_FIELDS.contains(&field.as_str()) {
            continue;
        }
        found.has_changes = true;
        if !UNPUBLISHED_FIELDS.contains(&field.as_str()) {
            found.published.0.insert(field, FieldChange::new(from, to));
        }
    }
    Ok(found)
}

impl DeviceDifferences {
    fn compare_list<T: Serialize + Eq + Hash>(&mut self, field: &str, old: &[T], new: &[T]) -> Result<()> {
        if old == new {
            return Ok(());
        }
        self.has_changes = true;
        let (before, after): (HashSet<&T>, HashSet<&T>) = (old.iter().collect(), new.iter().collect());
        let removed: Vec<&T> = old.iter().filter(|one| !after.contains(one)).collect();
        let added: Vec<&T> = new.iter().filter(|one| !before.contains(one)).collect();
        // The same elements in another order are no change.
        if removed.is_empty() && added.is_empty() {
            return Ok(());
        }
        let (from, to) = (first_elements(&removed)?, first_elements(&added)?);
        let is_cut = from.len() < removed.len() || to.len() < added.len();
        let mut change = FieldChange::new(from.into(), to.into());
        if is_cut {
            change.truncated = Some(true);
            (change.from_total, change.to_total) = (Some(removed.len()), Some(added.len()));
        }
        self.published.0.insert(field.to_owned(), change);
        Ok(())
    }
}

/// The first elements within the bounds, at least one.
fn first_elements<T: Serialize>(elements: &[&T]) -> Result<Vec<Value>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for element in elements.iter().take(LISTED_MAX) {
        bytes += serde_json::to_string(element).map_err(Error::internal)?.len();
        if bytes > LISTED_BYTES_MAX && !found.is_empty() {
            break;
        }
        found.push(serde_json::to_value(element).map_err(Error::internal)?);
    }
    Ok(found)
}
