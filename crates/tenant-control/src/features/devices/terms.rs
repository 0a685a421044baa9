//! By what a device is found, and as what it is counted.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kernel::base::Word;

use super::{Device, FullDevice, Software};
use crate::features::tickets::find::words_in_order;

/// Of devices without an organization.
pub const NONE: &str = "none";
/// Of all organizations together.
pub const ALL: &str = "*";

/// A term: a letter for what it says, and the value.
pub fn term(letter: char, value: &str) -> String {
    format!("{letter}:{value}")
}

pub const TYPE: char = 't';
pub const PLATFORM: char = 'p';
pub const STATUS: char = 's';
pub const HEALTH: char = 'h';
pub const ORGANIZATION: char = 'o';
pub const TAG: char = 'g';
pub const WORD: char = 'w';

/// Everything a device can be found by, but its software. Nothing finds one that is deleted.
pub fn terms_of(device: &Device) -> BTreeSet<String> {
    if device.deleted_at.is_some() {
        return BTreeSet::new();
    }
    let organization = device.organization_id.map_or_else(|| NONE.to_owned(), |id| id.to_string());
    let mut terms = BTreeSet::from([
        term(TYPE, device.r#type.as_str()),
        term(PLATFORM, device.platform.as_str()),
        term(STATUS, device.status.as_str()),
        term(HEALTH, device.health.as_str()),
        term(ORGANIZATION, &organization),
    ]);
    terms.extend(device.tags.iter().map(|tag| term(TAG, tag)));
    terms.extend(spoken(device).iter().flatten().map(|word| term(WORD, word)));
    terms
}

/// The words that `q` looks at, field by field.
pub fn spoken(device: &Device) -> Vec<Vec<String>> {
    let fields = [
        &device.hostname,
        &device.display_name,
        &device.serial_number,
        &device.model,
        &device.primary_ip,
        &device.primary_mac,
    ];
    let mac = device.primary_mac.as_deref().and_then(compact_mac);
    let fields = fields.into_iter().flatten().map(|text| words_in_order(text).collect());
    fields.chain(mac.map(|mac| vec![mac])).collect()
}

/// A hardware address, or its beginning, without what stands between its digits: people write it in many ways.
pub fn compact_mac(text: &str) -> Option<String> {
    let between = |c: char| matches!(c, ':' | '-' | '.');
    let digits: String = text.chars().filter(|c| !between(*c)).map(|c| c.to_ascii_lowercase()).collect();
    let is_hex = (2..=12).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then_some(digits)
}

/// As what software is found and counted, however it is spelt.
pub fn software_name(name: &str) -> String {
    name.to_lowercase()
}

/// Between versions of one name on one device.
pub const VERSIONS: &str = "\u{1f}";

/// Versions of one name by which a device can be found. Kernels and runtimes are installed side by side, but not by hundreds.
const VERSIONS_MAX: usize = 50;

/// Names of software that something is different of between two states; none if everything is.
pub fn touched(before: &FullDevice, after: &FullDevice) -> Option<BTreeSet<String>> {
    let (old, new) = (&before.device, &after.device);
    if old.organization_id != new.organization_id || old.deleted_at != new.deleted_at {
        return None;
    }
    let (were, are): (HashSet<&Software>, HashSet<&Software>) =
        (before.parts.software.iter().collect(), after.parts.software.iter().collect());
    Some(were.symmetric_difference(&are).map(|one| software_name(&one.name)).collect())
}

/// What of its software is meant: all, or what has one of these names.
fn some<'a>(full: &'a FullDevice, names: Option<&BTreeSet<String>>) -> impl Iterator<Item = (String, &'a Software)> {
    let all = if full.device.deleted_at.is_none() { full.parts.software.as_slice() } else { &[] };
    let few = names.is_some_and(BTreeSet::is_empty);
    let named = all.iter().filter(move |_| !few).map(|one| (software_name(&one.name), one));
    named.filter(move |(name, _)| names.is_none_or(|names| names.contains(name)))
}

/// The names of what is installed, each with its versions; all, or some of them.
pub fn software_of(full: &FullDevice, names: Option<&BTreeSet<String>>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (name, Software { version, .. }) in some(full, names) {
        all.entry(name).or_default().insert(version.as_deref().unwrap_or_default());
    }
    let joined = |versions: BTreeSet<&str>| versions.into_iter().take(VERSIONS_MAX).collect::<Vec<_>>().join(VERSIONS);
    all.into_iter().map(|(name, versions)| (name, joined(versions))).collect()
}

/// One thing of which devices are counted: of which organization, what, and which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    pub organization: String,
    pub dimension: &'static str,
    pub value: String,
}

/// The dimensions of the summary, in its order.
pub const DIMENSIONS: [&str; 7] = ["platform", "os", "type", "status", "health", "organization", "warranty"];
pub const SOFTWARE: &str = "software";

/// Everything a device is counted as, with how it is spelt; of its software all, or some.
pub fn counts_of(full: &FullDevice, names: Option<&BTreeSet<String>>) -> BTreeMap<Counted, String> {
    let device = &full.device;
    if device.deleted_at.is_some() {
        return BTreeMap::new();
    }
    let organization = device.organization_id.map_or_else(|| NONE.to_owned(), |id| id.to_string());
    // Without a name it is the empty one, which no system has.
    let os = device.os.name.clone().unwrap_or_default();
    let mut values: Vec<(&'static str, String, String)> = [
        ("platform", device.platform.as_str().to_owned()),
        ("os", os),
        ("type", device.r#type.as_str().to_owned()),
        ("status", device.status.as_str().to_owned()),
        ("health", device.health.as_str().to_owned()),
        ("organization", organization.clone()),
        ("warranty", device.warranty.status.as_str().to_owned()),
    ]
    .into_iter()
    .map(|(dimension, value)| (dimension, value.clone(), value))
    .collect();
    values.extend(some(full, names).map(|(name, one)| (SOFTWARE, name, one.name.clone())));
    let levels = [ALL.to_owned(), organization];
    let counted = |level: &String, (dimension, value, label): &(&'static str, String, String)| {
        (Counted { organization: level.clone(), dimension, value: value.clone() }, label.clone())
    };
    levels.iter().flat_map(|level| values.iter().map(|value| counted(level, value)).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_the_same_in_every_notation() {
        for text in ["02:FC:00:00:00:01", "02-fc-00-00-00-01", "02fc.0000.0001", "02fc00000001"] {
            assert_eq!(compact_mac(text).as_deref(), Some("02fc00000001"), "{text}");
        }
        assert_eq!(compact_mac("02-FC").as_deref(), Some("02fc"));
        assert_eq!((compact_mac("web01"), compact_mac("a"), compact_mac("02:fc:00:00:00:01:02")), (None, None, None));
    }
}
