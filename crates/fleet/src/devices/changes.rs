//! What is different between two states of a device, and what of it is worth telling.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

pub use kernel::audit::FieldChange;
use kernel::base::{Error, Result};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Device, FullDevice, Nic, Volume};

/// Elements of a list that a change names on each side, the first of them, and how much they may say.
const LISTED_MAX: usize = 100;
const LISTED_BYTES_MAX: usize = 16 << 10;

/// Fields before and after. Of a list, such as `software`, only what is different: `from` is what is gone, `to` what came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, serde::Deserialize, ToSchema)]
#[schema(as = DeviceChanges)]
#[serde(transparent)]
pub struct Changes(pub BTreeMap<String, FieldChange>);

/// What is different.
#[derive(Debug, Default)]
pub struct Differences {
    /// What people care about: it is told, and stands in the history.
    pub told: Changes,
    /// Whether anything is, of what moves `version` and `updated_at`.
    pub any: bool,
}

/// What the server notes by itself: no change of the device.
const OBSERVED: [&str; 5] = ["version", "created_at", "updated_at", "last_seen_at", "inventory_at"];
/// What is different nearly every day, so that nobody would want to be told.
const QUIET: [&str; 3] = ["last_boot_at", "last_logged_user", "agent"];

pub fn differences(old: &FullDevice, new: &FullDevice) -> Result<Differences> {
    let mut found = of_fields(&old.device, &new.device)?;
    let (before, after) = (&old.parts, &new.parts);
    found.of_list("disks", &before.disks, &after.disks)?;
    // How much is free is different at every report.
    let sizes = |volumes: &[Volume]| -> Vec<Volume> {
        let lasting = volumes.iter().filter(|volume| !of_container(volume));
        lasting.map(|volume| Volume { free_bytes: None, ..volume.clone() }).collect()
    };
    found.of_list("volumes", &sizes(&before.volumes), &sizes(&after.volumes))?;
    let lasting = |nics: &[Nic]| -> Vec<Nic> { nics.iter().filter(|nic| !comes_and_goes(nic)).cloned().collect() };
    found.of_list("nics", &lasting(&before.nics), &lasting(&after.nics))?;
    found.any |= before.volumes != after.volumes || before.nics != after.nics;
    found.of_list("software", &before.software, &after.software)?;
    Ok(found)
}

/// Whether an interface is one end of a container's or a guest's, which has a new one whenever it starts.
fn comes_and_goes(nic: &Nic) -> bool {
    const STARTS: [&str; 8] = ["veth", "cali", "lxc", "vnet", "tap", "vif", "azv", "fwpr"];
    nic.name.as_deref().is_some_and(|name| STARTS.iter().any(|start| name.starts_with(start)))
}

/// Whether a volume is a container's: it comes and goes with it.
fn of_container(volume: &Volume) -> bool {
    const KINDS: [&str; 3] = ["overlay", "aufs", "fuse.fuse-overlayfs"];
    const PLACES: [&str; 4] = ["/var/lib/docker/", "/var/lib/containers/", "/var/lib/kubelet/", "/run/containerd/"];
    volume.filesystem.as_deref().is_some_and(|kind| KINDS.contains(&kind))
        || volume.mount.as_deref().is_some_and(|mount| PLACES.iter().any(|place| mount.starts_with(place)))
}

fn of_fields(old: &Device, new: &Device) -> Result<Differences> {
    let object = |device: &Device| match serde_json::to_value(device).map_err(Error::internal)? {
        Value::Object(object) => Ok(object),
        _ => Err(Error::internal("a device is an object")),
    };
    let (old, mut new) = (object(old)?, object(new)?);
    let mut found = Differences::default();
    for (field, from) in old {
        let to = new.remove(&field).unwrap_or_default();
        if from == to || OBSERVED.contains(&field.as_str()) {
            continue;
        }
        found.any = true;
        if !QUIET.contains(&field.as_str()) {
            found.told.0.insert(field, FieldChange { from, to });
        }
    }
    Ok(found)
}

impl Differences {
    fn of_list<T: Serialize + Eq + Hash>(&mut self, field: &str, old: &[T], new: &[T]) -> Result<()> {
        if old == new {
            return Ok(());
        }
        self.any = true;
        let (before, after): (HashSet<&T>, HashSet<&T>) = (old.iter().collect(), new.iter().collect());
        let from = listed(old.iter().filter(|one| !after.contains(one)))?;
        let to = listed(new.iter().filter(|one| !before.contains(one)))?;
        // In another order, it is the same.
        if !from.is_empty() || !to.is_empty() {
            self.told.0.insert(field.to_owned(), FieldChange { from: from.into(), to: to.into() });
        }
        Ok(())
    }
}

/// The first of them; one at least.
fn listed<'a, T: Serialize + 'a>(elements: impl Iterator<Item = &'a T>) -> Result<Vec<Value>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for element in elements.take(LISTED_MAX) {
        bytes += serde_json::to_string(element).map_err(Error::internal)?.len();
        if bytes > LISTED_BYTES_MAX && !found.is_empty() {
            break;
        }
        found.push(serde_json::to_value(element).map_err(Error::internal)?);
    }
    Ok(found)
}
