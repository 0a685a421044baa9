//! The filter of devices, and the index terms that it translates to.

mod order;
pub mod search;
pub mod store;

use std::collections::BTreeSet;

use feature_kit::{IdOrNone, Q_CHARS_MAX, StoredWord, split_words};
use kernel::base::{StringEnum, Timestamp};
use kernel::store::ChangeKey;
use people::organizations::OrganizationId;
use search_language::text_words::TextWords;

use crate::devices::{
    self, Device, DeviceHealth, DeviceStatus, Platform, StoredDevice, Type, VERSION_SEPARATOR, WarrantyStatus,
    compact_mac, fold_os_name, format_term, searchable_words, software_name,
};

pub use order::{DeviceOrder, DeviceSortBy, DeviceSortKey, OrderKey};

/// Which devices match; `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// May include `none`, for devices without an organization.
    pub organization_id: Option<Vec<IdOrNone<OrganizationId>>>,
    pub r#type: Option<Vec<Type>>,
    pub platform: Option<Vec<Platform>>,
    pub status: Option<Vec<DeviceStatus>>,
    pub health: Option<Vec<DeviceHealth>>,
    pub tag: Option<Vec<String>>,
    pub software: Option<Vec<SoftwareFilter>>,
    /// Whole hostnames; case is ignored.
    pub hostname: Option<Vec<String>>,
    /// Whole serial numbers; case is ignored.
    pub serial_number: Option<Vec<String>>,
    /// How the names of operating systems begin; case is ignored.
    pub os: Option<Vec<String>>,
    pub last_seen_before: Option<Timestamp>,
    pub needs_reboot: Option<bool>,
    pub warranty: Option<Vec<WarrantyStatus>>,
    /// Whether the device is flagged as a possible duplicate of another.
    pub possible_duplicate: Option<bool>,
    /// The words of `q`.
    pub words: Vec<StoredWord>,
    pub updated_since: Option<Timestamp>,
}

/// A software name, optionally with one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftwareFilter {
    /// In lower case.
    pub name: String,
    pub version: Option<String>,
}

impl SoftwareFilter {
    /// `name` or `name@version`. An `@` at the beginning belongs to the name.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (name, version) = match text.rsplit_once('@') {
            Some((name, version)) if !name.is_empty() => (name, Some(version.to_owned())),
            _ => (text, None),
        };
        let whole = !name.is_empty() && version.as_deref() != Some("") && text.chars().count() <= Q_CHARS_MAX;
        whole.then(|| SoftwareFilter { name: software_name(name), version })
    }
}

impl std::fmt::Display for SoftwareFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A set of devices that contains every match of the filter.
#[derive(Clone, Debug)]
pub enum DeviceSet {
    /// Devices with any of these terms.
    Terms(Vec<String>),
    /// Devices with any of these terms, or any term with one of these prefixes.
    Prefixes { whole: Vec<String>, starts: Vec<String> },
    /// Devices with any of these names installed, in any version.
    Software(Vec<String>),
}

impl Filter {
    /// Checks everything but the software, which needs a query.
    pub fn matches_device(&self, device: &Device) -> bool {
        fn is_any_of<T: PartialEq>(accepted: Option<&Vec<T>>, value: &T) -> bool {
            accepted.is_none_or(|accepted| accepted.contains(value))
        }
        fn is_same_text(accepted: Option<&Vec<String>>, value: Option<&str>) -> bool {
            let is_same =
                |value: &str| accepted.into_iter().flatten().any(|one| one.to_lowercase() == value.to_lowercase());
            accepted.is_none() || value.is_some_and(is_same)
        }
        is_any_of(self.organization_id.as_ref(), &IdOrNone(device.organization_id))
            && is_any_of(self.r#type.as_ref(), &device.r#type)
            && is_any_of(self.platform.as_ref(), &device.platform)
            && is_any_of(self.status.as_ref(), &device.status)
            && is_any_of(self.health.as_ref(), &device.health)
            && self.tag.as_ref().is_none_or(|accepted| device.tags.iter().any(|tag| accepted.contains(tag)))
            && is_same_text(self.hostname.as_ref(), device.hostname.as_deref())
            && is_same_text(self.serial_number.as_ref(), device.serial_number.as_deref())
            && self.matches_os(device)
            && self.last_seen_before.is_none_or(|before| device.last_seen_at.is_some_and(|seen| seen < before))
            && self.needs_reboot.is_none_or(|needed| device.needs_reboot.unwrap_or(false) == needed)
            && is_any_of(self.warranty.as_ref(), &device.warranty.status)
            && self.possible_duplicate.is_none_or(|flagged| device.possible_duplicate_of.is_some() == flagged)
            && self.updated_since.is_none_or(|since| device.updated_at >= since)
            && self.matches_words(device)
    }

    /// Whether any software is filtered by version.
    pub fn has_software_version(&self) -> bool {
        self.software.iter().flatten().any(|one| one.version.is_some())
    }

    /// Whether a name with these versions matches the software filter.
    pub fn matches_software(&self, name: &str, versions: &str) -> bool {
        let has = |requested: &String| versions.split(VERSION_SEPARATOR).any(|version| version == requested);
        self.software.iter().flatten().any(|one| one.name == name && one.version.as_ref().is_none_or(has))
    }

    fn matches_os(&self, device: &Device) -> bool {
        let Some(starts) = &self.os else { return true };
        let name = device.os.name.as_deref().map(fold_os_name).unwrap_or_default();
        starts.iter().any(|start| name.starts_with(&fold_os_name(start)))
    }

    fn matches_words(&self, device: &Device) -> bool {
        let fields = if self.words.is_empty() { Vec::new() } else { searchable_words(device) };
        let mac = device.primary_mac.as_deref().and_then(compact_mac);
        self.words.iter().all(|word| matches_word(word, &fields, mac.as_deref()))
    }

    /// The sets that contain every match, those first that are likely to be small.
    pub fn candidate_sets(&self) -> Vec<DeviceSet> {
        fn enum_terms<W: StringEnum>(letter: char, values: Option<&Vec<W>>) -> Option<DeviceSet> {
            values.map(|values| {
                DeviceSet::Terms(values.iter().map(|value| format_term(letter, value.as_str())).collect())
            })
        }
        let software = self.software.as_ref().map(|any| {
            let names: BTreeSet<String> = any.iter().map(|one| one.name.clone()).collect();
            DeviceSet::Software(names.into_iter().collect())
        });
        let tags = self
            .tag
            .as_ref()
            .map(|any| DeviceSet::Terms(any.iter().map(|tag| format_term(devices::TAG_TERM, tag)).collect()));
        let organizations = self.organization_id.as_ref().map(|any| {
            DeviceSet::Terms(any.iter().map(|id| format_term(devices::ORGANIZATION_TERM, &id.to_string())).collect())
        });
        let flagged = self.possible_duplicate.filter(|flagged| *flagged);
        let flagged = flagged.map(|_| DeviceSet::Terms(vec![format_term(devices::FLAG_TERM, devices::DUPLICATE_FLAG)]));
        let reboot = self.needs_reboot.filter(|needed| *needed);
        let reboot = reboot.map(|_| DeviceSet::Terms(vec![format_term(devices::FLAG_TERM, devices::REBOOT_FLAG)]));
        let os = self.os.as_ref().map(|starts| DeviceSet::Prefixes {
            whole: Vec::new(),
            starts: starts.iter().map(|start| format_term(devices::OS_TERM, &fold_os_name(start))).collect(),
        });
        let rest = [
            tags,
            flagged,
            reboot,
            organizations,
            enum_terms(devices::WARRANTY_TERM, self.warranty.as_ref()),
            enum_terms(devices::HEALTH_TERM, self.health.as_ref()),
            enum_terms(devices::STATUS_TERM, self.status.as_ref()),
            enum_terms(devices::TYPE_TERM, self.r#type.as_ref()),
            enum_terms(devices::PLATFORM_TERM, self.platform.as_ref()),
            os,
        ];
        let words = self.words.iter().map(candidate_set_for_word);
        // One hostname or serial number is found by its words; of several, some other set is walked.
        let names = [&self.hostname, &self.serial_number].into_iter().filter_map(|any| match any.as_deref() {
            Some([one]) => Some(candidate_set_for_rows(&[split_words(one).collect()], None)),
            _ => None,
        });
        software.into_iter().chain(names).chain(words).chain(rest.into_iter().flatten()).collect()
    }
}

/// Whether a word of `q` is a prefix in these fields, or of a hardware address in any notation. A whole hardware address
/// matches nothing else: its parts are on too many devices to be searched one by one.
fn matches_word(word: &StoredWord, fields: &[TextWords], mac: Option<&str>) -> bool {
    if let Some(address) = parse_whole_mac(word.written()) {
        return mac == Some(address.as_str()) || fields.iter().any(|known| known.has_start(&address));
    }
    let of_mac = compact_mac(word.written()).zip(mac).is_some_and(|(digits, mac)| mac.starts_with(&digits));
    of_mac || word.is_in_any(fields)
}

fn candidate_set_for_word(word: &StoredWord) -> DeviceSet {
    if let Some(address) = parse_whole_mac(word.written()) {
        return DeviceSet::Prefixes { whole: Vec::new(), starts: vec![format_term(devices::WORD_TERM, &address)] };
    }
    candidate_set_for_rows(word.rows(), compact_mac(word.written()).as_deref())
}

/// The set of devices that may have one of these rows: by the longest part of each, of which all but the last are whole
/// words, or by the prefix of a hardware address. The first digits of an address are its maker's and shared by whole fleets,
/// and so are the letters of a name such as `pc0042`: there the last part is used if it is long enough to be distinctive.
fn candidate_set_for_rows(rows: &[Vec<String>], address: Option<&str>) -> DeviceSet {
    let to_word_term = |text: &str| format_term(devices::WORD_TERM, text);
    let (mut wholes, mut starts): (BTreeSet<String>, BTreeSet<String>) = (BTreeSet::new(), BTreeSet::new());
    for (index, row) in rows.iter().enumerate() {
        let Some((last, before)) = row.split_last() else { continue };
        let is_number = address.is_some() || index > 0 && last.bytes().all(|byte| byte.is_ascii_digit());
        let is_distinctive = is_number && last.len() >= DISTINCTIVE_DIGITS_MIN;
        let longest = before.iter().max_by_key(|part| part.len());
        match longest.filter(|part| part.len() >= last.len() && !is_distinctive) {
            Some(whole) => wholes.insert(to_word_term(whole)),
            None => starts.insert(to_word_term(last)),
        };
    }
    starts.extend(address.map(to_word_term));
    DeviceSet::Prefixes { whole: wholes.into_iter().collect(), starts: starts.into_iter().collect() }
}

/// Digits from which a part of a hardware address, or a number in a name, is distinctive within a fleet.
const DISTINCTIVE_DIGITS_MIN: usize = 3;

/// A whole hardware address without separators, if it is written in a usual notation: in groups of two, four or six digits,
/// or without separators. An IP address such as `192.168.100.100` can have as many digits.
fn parse_whole_mac(word: &str) -> Option<String> {
    let is_even = |between: &[char], group: usize| word.split(between).all(|digits| digits.len() == group);
    let is_written = is_even(&[':', '-'], 2) || is_even(&['.'], 4) || is_even(&['-'], 6) || is_even(&[], 12);
    compact_mac(word).filter(|digits| is_written && digits.len() == 12)
}

pub fn change_key(stored: &StoredDevice) -> ChangeKey<i64> {
    ChangeKey { at: stored.device.updated_at, sequence: stored.sequence, key: stored.number }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use feature_kit::stored_words;

    fn stored(word: &str) -> StoredWord {
        StoredWord::parse(word).unwrap()
    }

    #[test]
    fn a_word_is_found_by_its_beginning_and_an_address_in_any_notation() {
        let fields = ["web-01.example", "192.168.7.10", "02:fc:00:00:00:01", "10001X", "1921"];
        let known: Vec<TextWords> = fields.iter().map(|field| TextWords::new(field)).collect();
        let found = |word: &str| matches_word(&stored(word), &known, Some("02fc00000001"));
        for word in [
            "web-01",
            "web01",
            "web0",
            "WEB",
            "exam",
            "192.168",
            "192.168.7.1",
            "02-FC-00",
            "02fc.0000",
            "02:fc",
            "01.ex",
            "02fc",
        ] {
            assert!(found(word), "{word}");
        }
        for word in
            ["eb", "web-02", "193", "02-FD", "fc-02-00", "19.168", "168.192", "web.example", "192.168.1", "19.21"]
        {
            assert!(!found(word), "{word}");
        }
    }

    #[test]
    fn a_whole_hardware_address_is_nothing_but_one() {
        let known = |field: &str| vec![TextWords::new(field)];
        for word in ["02:fc:00:00:0a:01", "02-FC-00-00-0A-01", "02fc.0000.0a01", "02fc00-000a01", "02FC00000A01"] {
            assert_eq!(parse_whole_mac(word).as_deref(), Some("02fc00000a01"), "{word}");
            let word = stored(word);
            assert!(matches_word(&word, &[], Some("02fc00000a01")), "{word:?}");
            assert!(
                matches_word(&word, &known("02fc00000a01"), None),
                "{word:?}, which may be a serial number as well"
            );
            assert!(!matches_word(&word, &known("x-02-fc-00-00-0a-01"), None), "{word:?}");
        }
        for word in
            ["192.168.100.100", "fe80::1234:5678", "02:fc:00:00:0a", "1234-5678-9012", "02:fc:00:00:0a:01:02", "web01"]
        {
            assert_eq!(parse_whole_mac(word), None, "{word}");
        }
        assert!(matches_word(&stored("192.168.100.100"), &known("192.168.100.100"), None));
    }

    /// The index must find every device that the filter accepts.
    #[test]
    fn whatever_a_word_is_a_beginning_of_is_in_its_set() {
        let fields = [
            "web-01.example",
            "192.168.100.100",
            "02:fc:00:00:0a:01",
            "fe80::1234:5678",
            "x-02-fc-00a",
            "1234-5678-9012-3456",
            "PC-0042",
            "pc0043",
            "München",
        ];
        let words = [
            "web-01",
            "web01",
            "web0",
            "pc0042",
            "pc-0043",
            "pc00",
            "muenchen",
            "01.ex",
            "192.168.1",
            "192.168.100.100",
            "02:fc:00",
            "fc:00:00",
            "0a:01",
            "02-fc-00",
            "02fc.0",
            "02:fc:00:00:0a:01",
            "fe80::1234:5678",
            "fe80:",
            "1234-5678-9012",
            "1234-5678-90",
            "02fc00000a01",
            "02",
        ];
        let mut accepted = 0;
        for field in fields {
            let mac = compact_mac(field).filter(|mac| mac.len() == 12);
            let texts: Vec<&str> = [field].into_iter().chain(mac.as_deref()).collect();
            let known: Vec<TextWords> = texts.iter().map(|text| TextWords::new(text)).collect();
            let words = words.map(stored);
            for word in words.iter().filter(|word| matches_word(word, &known, mac.as_deref())) {
                let (whole, starts) = match candidate_set_for_word(word) {
                    DeviceSet::Prefixes { whole, starts } => (whole, starts),
                    DeviceSet::Terms(whole) | DeviceSet::Software(whole) => (whole, Vec::new()),
                };
                let has = |known: &String| {
                    let own = format_term(devices::WORD_TERM, known);
                    whole.contains(&own) || starts.iter().any(|start| own.starts_with(start.as_str()))
                };
                assert!(
                    texts.iter().flat_map(|text| stored_words(text)).any(|word| has(&word)),
                    "{word:?} is found in {field}: {whole:?} {starts:?}"
                );
                accepted += 1;
            }
        }
        assert!(accepted >= 22, "{accepted} of them are beginnings");
    }

    #[test]
    fn a_version_stands_behind_the_last_at_sign() {
        let parsed = |text: &str| SoftwareFilter::parse(text).map(|one| (one.name, one.version));
        assert_eq!(parsed("OpenSSL@3.0.11"), Some(("openssl".to_owned(), Some("3.0.11".to_owned()))));
        assert_eq!(parsed("@scope/tool"), Some(("@scope/tool".to_owned(), None)));
        assert_eq!((parsed(""), parsed("bash@")), (None, None));
    }
}
