//! What a change of a device contributes to figures: pure, of its state before and after.

use figures::cells::{DEVICES, DEVICES_ADDED, DEVICES_OFFLINE, DEVICES_ONLINE, DEVICES_REMOVED, DEVICES_STALE};
use figures::{Cell, Fact};
use kernel::base::Timestamp;

use super::{Device, DeviceStatus};

/// The fact of a change; empty if no figure changes. `old` is none when the device is new.
pub fn device_fact(old: Option<&Device>, new: &Device, at: Timestamp) -> Fact {
    let mut fact = Fact::new(at.as_millis());
    let is_live = |device: &&Device| device.deleted_at.is_none();
    let (before, after) = (old.filter(is_live), Some(new).filter(is_live));
    for (device, by) in before.map(|device| (device, -1)).into_iter().chain(after.map(|device| (device, 1))) {
        fact.add_count(DEVICES, by);
        fact.add_count(status_cell(device.status), by);
    }
    fact.add_count(DEVICES_ADDED, i64::from(before.is_none() && after.is_some()));
    fact.add_count(DEVICES_REMOVED, i64::from(before.is_some() && after.is_none()));
    fact
}

/// The level of the devices of a status.
pub fn status_cell(status: DeviceStatus) -> Cell {
    match status {
        DeviceStatus::Online => DEVICES_ONLINE,
        DeviceStatus::Offline => DEVICES_OFFLINE,
        DeviceStatus::Stale => DEVICES_STALE,
    }
}
