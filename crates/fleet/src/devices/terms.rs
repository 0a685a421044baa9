//! The terms under which a device is indexed, and the counters that include it.

use std::collections::BTreeSet;

use agent_reports::compact_mac;
use feature_kit::stored_words;
use kernel::base::StringEnum;
use search_language::text_words::TextWords;

use super::Device;

/// Stands for devices without an organization.
pub const NO_ORGANIZATION: &str = "none";
/// Stands for all organizations together.
pub const ALL_ORGANIZATIONS: &str = "*";

/// The organization under which a device is indexed and counted.
pub fn organization_of(device: &Device) -> String {
    device.organization_id.map_or_else(|| NO_ORGANIZATION.to_owned(), |id| id.to_string())
}

/// A term is a letter for the field, and the value.
pub fn format_term(letter: char, value: &str) -> String {
    format!("{letter}:{value}")
}

pub const TYPE_TERM: char = 't';
pub const PLATFORM_TERM: char = 'p';
pub const STATUS_TERM: char = 's';
pub const HEALTH_TERM: char = 'h';
pub const ORGANIZATION_TERM: char = 'o';
pub const TAG_TERM: char = 'g';
pub const WORD_TERM: char = 'w';
pub const OS_TERM: char = 'n';
pub const WARRANTY_TERM: char = 'y';
/// What few devices are, and somebody looks for.
pub const FLAG_TERM: char = 'f';
pub const DUPLICATE_FLAG: &str = "duplicate";
pub const REBOOT_FLAG: &str = "reboot";

/// The name of a system as it is indexed: ASCII letters in lower case, as both databases fold them.
pub fn fold_os_name(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// All terms of a device; its software is indexed separately. A deleted device has none. Saving a device writes only the
/// difference of two results: a term that is new here is missing from older devices until its value changes, and one that is
/// no longer here needs a migration that deletes it.
pub fn terms_of(device: &Device) -> BTreeSet<String> {
    if device.deleted_at.is_some() {
        return BTreeSet::new();
    }
    let mut terms = BTreeSet::from([
        format_term(TYPE_TERM, device.r#type.as_str()),
        format_term(PLATFORM_TERM, device.platform.as_str()),
        format_term(STATUS_TERM, device.status.as_str()),
        format_term(HEALTH_TERM, device.health.as_str()),
        format_term(ORGANIZATION_TERM, &organization_of(device)),
        format_term(WARRANTY_TERM, device.warranty.status.as_str()),
    ]);
    terms.extend(device.os.name.as_deref().map(|name| format_term(OS_TERM, &fold_os_name(name))));
    terms.extend(device.possible_duplicate_of.map(|_| format_term(FLAG_TERM, DUPLICATE_FLAG)));
    terms.extend(device.needs_reboot.filter(|needed| *needed).map(|_| format_term(FLAG_TERM, REBOOT_FLAG)));
    terms.extend(device.tags.iter().map(|tag| format_term(TAG_TERM, tag)));
    terms.extend(
        searchable_texts(device).iter().flat_map(|text| stored_words(text)).map(|word| format_term(WORD_TERM, &word)),
    );
    terms
}

/// The words that `q` searches, field by field.
pub fn searchable_words(device: &Device) -> Vec<TextWords> {
    searchable_texts(device).iter().map(|text| TextWords::new(text)).collect()
}

fn searchable_texts(device: &Device) -> Vec<String> {
    let fields = [
        &device.hostname,
        &device.display_name,
        &device.serial_number,
        &device.model,
        &device.primary_ip,
        &device.primary_mac,
    ];
    let macs = device.primary_mac.as_deref().and_then(compact_mac).map(|mac| mac_notations(&mac));
    fields.into_iter().flatten().cloned().chain(macs.into_iter().flatten()).collect()
}

/// A hardware address in notations without colons: `0123456789ab`, `0123 4567 89ab` and `012345 6789ab`. Between spaces its
/// parts are not joined.
fn mac_notations(mac: &str) -> [String; 3] {
    let by = |digits: usize| {
        let parts: Vec<_> = mac.as_bytes().chunks(digits).map(String::from_utf8_lossy).collect();
        parts.join(" ")
    };
    [by(12), by(4), by(6)]
}

/// The key of one counter of devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceCounter {
    pub organization: String,
    pub dimension: &'static str,
    pub value: String,
}

/// All counters that include a device; its software is counted separately.
pub fn counters_of(device: &Device) -> BTreeSet<DeviceCounter> {
    if device.deleted_at.is_some() {
        return BTreeSet::new();
    }
    let organization = organization_of(device);
    // A system without a name is counted under the empty name, which no system has.
    let os = device.os.name.clone().unwrap_or_default();
    let values = [
        ("platform", device.platform.as_str()),
        ("os", &os),
        ("type", device.r#type.as_str()),
        ("status", device.status.as_str()),
        ("health", device.health.as_str()),
        ("organization", &organization),
        ("warranty", device.warranty.status.as_str()),
    ];
    let counted = |level: &str, dimension, value: &str| DeviceCounter {
        organization: level.to_owned(),
        dimension,
        value: value.to_owned(),
    };
    [ALL_ORGANIZATIONS, &organization]
        .into_iter()
        .flat_map(|level| values.map(|(dimension, value)| counted(level, dimension, value)))
        .collect()
}
