//! Derived fields of a device: status, health, warranty status, and when they must be checked again.

use kernel::base::{DAY_MS, HOUR_MS, Timestamp};

use super::{Device, DeviceHealth, DeviceStatus, FullDevice, Platform, Supply, Volume, WarrantyStatus};

/// How long a device may be silent, as configured by the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Hours from one report to the next; answers to agents carry this interval.
    pub report_hours: i64,
    pub offline_after_ms: i64,
    pub stale_after_ms: i64,
    /// Devices of one tenant.
    pub devices_max: i64,
}

/// Ten times a large customer base; a key that runs wild reaches it within the hour.
pub const DEVICES_MAX: i64 = 100_000;

impl Default for DeviceSettings {
    /// An agent reports every day; a day and a half leaves room for a machine that was off overnight.
    fn default() -> Self {
        DeviceSettings {
            report_hours: 24,
            offline_after_ms: 36 * HOUR_MS,
            stale_after_ms: 30 * DAY_MS,
            devices_max: DEVICES_MAX,
        }
    }
}

/// Free space below `NEARLY_FULL_PERCENT` needs attention; below `FULL_PERCENT` the device is unhealthy.
const NEARLY_FULL_PERCENT: i64 = 10;
const FULL_PERCENT: i64 = 5;

/// Smaller volumes are boot and recovery partitions, which are full from the first day.
const JUDGED_BYTES_MIN: i64 = 2_000_000_000;

/// A supply with so much left needs attention: a new one takes days to arrive.
const LOW_SUPPLY_PERCENT: i64 = 10;

/// Filesystems that are always full or are not disks.
const IGNORED_FILESYSTEMS: [&str; 24] = [
    "squashfs",
    "iso9660",
    "udf",
    "cdfs",
    "tmpfs",
    "devtmpfs",
    "ramfs",
    "overlay",
    "erofs",
    "cramfs",
    "nullfs",
    "autofs",
    // Network filesystems: the machine that owns the disk reports it.
    "nfs",
    "nfs3",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "fuse.sshfs",
    "9p",
    "ceph",
    "glusterfs",
    "fuse.glusterfs",
    "afs",
];

/// The status follows from `last_seen_at`. A device that was never seen is stale.
pub fn status_at(last_seen_at: Option<Timestamp>, now: Timestamp, settings: &DeviceSettings) -> DeviceStatus {
    let Some(seen) = last_seen_at else { return DeviceStatus::Stale };
    if now >= seen.plus_ms(settings.stale_after_ms) {
        DeviceStatus::Stale
    } else if now >= seen.plus_ms(settings.offline_after_ms) {
        DeviceStatus::Offline
    } else {
        DeviceStatus::Online
    }
}

/// A warranty includes its last day, in UTC.
pub fn warranty_at(end_date: Option<&str>, now: Timestamp) -> WarrantyStatus {
    match end_date.and_then(end_of_day) {
        None => WarrantyStatus::Unknown,
        Some(end) if now >= end => WarrantyStatus::Expired,
        Some(_) => WarrantyStatus::Active,
    }
}

/// The first instant after the day.
fn end_of_day(date: &str) -> Option<Timestamp> {
    Timestamp::parse(&format!("{date}T00:00:00Z")).map(|start| start.plus_ms(DAY_MS))
}

/// The worst finding decides. A device that has never sent an inventory is unknown, not healthy.
pub fn health_of(full: &FullDevice) -> DeviceHealth {
    let device = &full.device;
    if device.inventory_at.is_none() {
        return DeviceHealth::Unknown;
    }
    // On Windows, what nobody can reach by a path is a recovery or system partition.
    let is_reached = |volume: &&Volume| device.platform != Platform::Windows || volume.mount.is_some();
    let worst_free = full.parts.volumes.iter().filter(is_reached).filter_map(free_percent).min();
    let is_unhealthy = worst_free.is_some_and(|percent| percent < FULL_PERCENT)
        || device.patch.failed.is_some_and(|failed| failed > 0);
    let needs_attention = worst_free.is_some_and(|percent| percent < NEARLY_FULL_PERCENT)
        || device.needs_reboot == Some(true)
        || device.warranty.status == WarrantyStatus::Expired
        || full.parts.supplies.iter().any(is_low)
        || device.status == DeviceStatus::Stale;
    match (is_unhealthy, needs_attention) {
        (true, _) => DeviceHealth::Unhealthy,
        (false, true) => DeviceHealth::NeedsAttention,
        (false, false) => DeviceHealth::Healthy,
    }
}

/// Whether a supply runs out. Printers do not agree whether the level of a waste container is what is in it or what still
/// fits.
fn is_low(supply: &Supply) -> bool {
    !supply.name.starts_with("waste") && supply.level_percent.is_some_and(|percent| percent <= LOW_SUPPLY_PERCENT)
}

/// In whole percent; `None` for volumes that are not judged.
fn free_percent(volume: &Volume) -> Option<i64> {
    let (total, free) = volume.total_bytes.zip(volume.free_bytes)?;
    let judged =
        volume.filesystem.as_deref().is_none_or(|kind| !IGNORED_FILESYSTEMS.contains(&kind.to_lowercase().as_str()));
    (judged && total >= JUDGED_BYTES_MIN && free >= 0).then(|| free.saturating_mul(100) / total)
}

/// Recomputes the warranty status and the health.
pub fn update_derived_fields(full: &mut FullDevice, now: Timestamp) {
    full.device.warranty.status = warranty_at(full.device.warranty.end_date.as_deref(), now);
    full.device.health = health_of(full);
}

/// The next time at which time alone may change the status or the warranty.
pub fn next_check_at(device: &Device, settings: &DeviceSettings) -> Option<Timestamp> {
    let silent = device.last_seen_at.and_then(|seen| match device.status {
        DeviceStatus::Online => Some(seen.plus_ms(settings.offline_after_ms)),
        DeviceStatus::Offline => Some(seen.plus_ms(settings.stale_after_ms)),
        DeviceStatus::Stale => None,
    });
    let warranty = &device.warranty;
    let over = (warranty.status == WarrantyStatus::Active)
        .then(|| warranty.end_date.as_deref().and_then(end_of_day))
        .flatten();
    [silent, over].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_day_of_a_warranty_belongs_to_it() {
        let at = |text: &str| Timestamp::parse(text).unwrap_or(Timestamp::from_millis(0));
        assert_eq!(warranty_at(Some("2026-03-31"), at("2026-03-31T23:59:59.999Z")), WarrantyStatus::Active);
        assert_eq!(warranty_at(Some("2026-03-31"), at("2026-04-01T00:00:00Z")), WarrantyStatus::Expired);
        assert_eq!(warranty_at(None, at("2026-04-01T00:00:00Z")), WarrantyStatus::Unknown);
        assert_eq!(warranty_at(Some("soon"), at("2026-04-01T00:00:00Z")), WarrantyStatus::Unknown);
    }

    #[test]
    fn a_moment_of_silence_is_the_first_of_the_next_status() {
        let (settings, seen) = (DeviceSettings::default(), Timestamp::from_millis(1_000));
        let after = |ms: i64| status_at(Some(seen), seen.plus_ms(ms), &settings);
        assert_eq!(after(settings.offline_after_ms - 1), DeviceStatus::Online);
        assert_eq!(after(settings.offline_after_ms), DeviceStatus::Offline);
        assert_eq!(after(settings.stale_after_ms), DeviceStatus::Stale);
        assert_eq!(status_at(None, seen, &settings), DeviceStatus::Stale);
    }
}
