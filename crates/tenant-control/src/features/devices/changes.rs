//! What is different between two states of a device, and what of it is worth telling.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

use kernel::base::{Error, Result};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

pub use crate::features::tickets::FieldChange;

use super::{Device, FullDevice, Volume};

/// Elements of a list that a change names on each side; the first of them.
const LISTED_MAX: usize = 100;

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
    let sizes =
        |volumes: &[Volume]| volumes.iter().map(|volume| Volume { free_bytes: None, ..volume.clone() }).collect();
    let (were, are): (Vec<Volume>, Vec<Volume>) = (sizes(&before.volumes), sizes(&after.volumes));
    found.of_list("volumes", &were, &are)?;
    found.any |= before.volumes != after.volumes;
    found.of_list("nics", &before.nics, &after.nics)?;
    found.of_list("software", &before.software, &after.software)?;
    Ok(found)
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
        let from: Vec<&T> = old.iter().filter(|one| !after.contains(one)).take(LISTED_MAX).collect();
        let to: Vec<&T> = new.iter().filter(|one| !before.contains(one)).take(LISTED_MAX).collect();
        // In another order, it is the same.
        if !from.is_empty() || !to.is_empty() {
            let value = |list: Vec<&T>| serde_json::to_value(list).map_err(Error::internal);
            self.told.0.insert(field.to_owned(), FieldChange { from: value(from)?, to: value(to)? });
        }
        Ok(())
    }
}
