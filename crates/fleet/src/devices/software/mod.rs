//! The software index: which devices have which software installed, by name, and how many.
//!
//! A machine has hundreds of packages, each with its own row in the index. Writing them all with the device would block
//! other writes. So a software change is saved with the device, in the same transaction and few rows, and indexed soon after
//! together with others. A reader of the index brings it up to date first.

pub mod store;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::terms::{ALL_ORGANIZATIONS, DeviceCounter, organization_of};
use super::{FullDevice, Software};

/// The dimension of the software counters.
pub const SOFTWARE_DIMENSION: &str = "software";

/// Separates the versions of one name on one device.
pub const VERSION_SEPARATOR: &str = "\u{1f}";

/// Versions indexed for one name on one device. Kernels and runtimes are installed side by side, but not by hundreds.
const VERSIONS_MAX: usize = 50;

/// Names of one software change, and their bytes with versions: few enough that indexing them does not block others long.
const NAMES_MAX: usize = 250;
const NAMES_BYTES_MAX: usize = 64 << 10;

/// Names are divided into so many buckets. Changes of one name on one device share a bucket, and so stay in order.
const BUCKETS: u32 = 8;

/// The name under which software is indexed and counted, whatever its case.
pub fn software_name(name: &str) -> String {
    name.to_lowercase()
}

/// The versions of one name that a device has installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledVersions {
    /// The name as it is displayed.
    pub label: String,
    pub versions: String,
}

/// The installed software by name, each with its versions.
pub fn installed_versions(installed: &[Software]) -> BTreeMap<String, InstalledVersions> {
    installed_versions_among(installed, None)
}

/// The same, for all names or only for these.
fn installed_versions_among(
    installed: &[Software],
    names: Option<&BTreeSet<String>>,
) -> BTreeMap<String, InstalledVersions> {
    if names.is_some_and(BTreeSet::is_empty) {
        return BTreeMap::new();
    }
    let mut all: BTreeMap<String, (&str, BTreeSet<&str>)> = BTreeMap::new();
    for Software { name: label, version, .. } in installed {
        let name = software_name(label);
        if names.is_none_or(|names| names.contains(&name)) {
            let (_, versions) = all.entry(name).or_insert((label, BTreeSet::new()));
            versions.insert(version.as_deref().unwrap_or_default());
        }
    }
    let joined =
        |versions: BTreeSet<&str>| versions.into_iter().take(VERSIONS_MAX).collect::<Vec<_>>().join(VERSION_SEPARATOR);
    let of = |(label, versions): (&str, _)| InstalledVersions { label: label.to_owned(), versions: joined(versions) };
    all.into_iter().map(|(name, found)| (name, of(found))).collect()
}

/// A deleted device has no software installed.
fn installed_software(full: &FullDevice) -> &[Software] {
    if full.device.deleted_at.is_some() { &[] } else { &full.parts.software }
}

/// The names whose software differs between two states; `None` means all.
fn changed_names(before: &FullDevice, after: &FullDevice) -> Option<BTreeSet<String>> {
    let (old, new) = (&before.device, &after.device);
    if old.organization_id != new.organization_id || old.deleted_at != new.deleted_at {
        return None;
    }
    if before.parts.software == after.parts.software {
        return Some(BTreeSet::new());
    }
    let (were, are): (HashSet<&Software>, HashSet<&Software>) =
        (before.parts.software.iter().collect(), after.parts.software.iter().collect());
    Some(were.symmetric_difference(&are).map(|one| software_name(&one.name)).collect())
}

/// A change of the software of a device that waits to be indexed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SoftwareChange {
    #[serde(skip)]
    bucket: u32,
    /// The organization before and after the change.
    was_of: String,
    is_of: String,
    names: Vec<SoftwareNameChange>,
}

/// The versions of one name before and after; `None` where it was or is not installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SoftwareNameChange {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// The displayed name, if it is not all lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

impl SoftwareNameChange {
    fn size_bytes(&self) -> usize {
        let texts = [Some(&self.name), self.from.as_ref(), self.to.as_ref(), self.label.as_ref()];
        texts.into_iter().flatten().map(String::len).sum()
    }
}

/// The software changes between two states of a device, split by bucket and size.
fn software_changes(before: Option<&FullDevice>, after: &FullDevice) -> Vec<SoftwareChange> {
    let touched = before.and_then(|before| changed_names(before, after));
    let mut old =
        before.map(|full| installed_versions_among(installed_software(full), touched.as_ref())).unwrap_or_default();
    let new = installed_versions_among(installed_software(after), touched.as_ref());
    let is_of = organization_of(&after.device);
    let was_of = before.map_or_else(|| is_of.clone(), |full| organization_of(&full.device));
    let mut names = Vec::new();
    for (name, InstalledVersions { label, versions }) in new {
        let from = old.remove(&name).map(|found| found.versions);
        if from.as_ref() != Some(&versions) || was_of != is_of {
            let label = (label != name).then_some(label);
            names.push(SoftwareNameChange { name, from, to: Some(versions), label });
        }
    }
    let removed = |(name, found): (String, InstalledVersions)| SoftwareNameChange {
        name,
        from: Some(found.versions),
        to: None,
        label: None,
    };
    names.extend(old.into_iter().map(removed));
    let mut buckets: BTreeMap<u32, Vec<SoftwareNameChange>> = BTreeMap::new();
    for name in names {
        buckets.entry(bucket_of(&name.name)).or_default().push(name);
    }
    let change = |bucket, names| SoftwareChange { bucket, was_of: was_of.clone(), is_of: is_of.clone(), names };
    buckets
        .into_iter()
        .flat_map(|(bucket, names)| split_changes(names).into_iter().map(move |some| (bucket, some)))
        .map(|(bucket, some)| change(bucket, some))
        .collect()
}

/// Splits names into pieces that fit one software change each.
fn split_changes(names: Vec<SoftwareNameChange>) -> Vec<Vec<SoftwareNameChange>> {
    let (mut pieces, mut size_bytes) = (Vec::<Vec<SoftwareNameChange>>::new(), 0);
    for name in names {
        size_bytes += name.size_bytes();
        match pieces.last_mut() {
            Some(last) if last.len() < NAMES_MAX && size_bytes <= NAMES_BYTES_MAX => last.push(name),
            _ => {
                size_bytes = name.size_bytes();
                pieces.push(vec![name]);
            }
        }
    }
    pieces
}

/// The bucket of a name must never change: pending changes of the name would be indexed out of order.
fn bucket_of(name: &str) -> u32 {
    name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % BUCKETS
}

/// Several software changes combined into one write of the index.
#[derive(Debug, Default)]
struct SoftwareIndexBatch {
    /// The versions of a name on a device; `None` if it is no longer installed.
    installed: BTreeMap<(String, i64), Option<String>>,
    /// The amounts by which counters change, with the displayed names.
    counts: BTreeMap<DeviceCounter, (String, i64)>,
}

impl SoftwareIndexBatch {
    /// Adds a change. Changes of one device must come in order.
    fn add_change(&mut self, number: i64, SoftwareChange { was_of, is_of, names, .. }: SoftwareChange) {
        for SoftwareNameChange { name, from, to, label } in names {
            let label = label.unwrap_or_else(|| name.clone());
            for (is_there, organization, by) in [(from.is_some(), &was_of, -1), (to.is_some(), &is_of, 1)] {
                if is_there {
                    self.adjust_counter(ALL_ORGANIZATIONS, &name, &label, by);
                    self.adjust_counter(organization, &name, &label, by);
                }
            }
            self.installed.insert((name, number), to);
        }
    }

    fn adjust_counter(&mut self, organization: &str, name: &str, label: &str, by: i64) {
        let counted = DeviceCounter {
            organization: organization.to_owned(),
            dimension: SOFTWARE_DIMENSION,
            value: name.to_owned(),
        };
        self.counts.entry(counted).or_insert_with(|| (label.to_owned(), 0)).1 += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(was_of: &str, is_of: &str, names: &[(&str, Option<&str>, Option<&str>)]) -> SoftwareChange {
        let own = |text: &str| text.to_owned();
        let name = |(name, from, to): &(&str, Option<&str>, Option<&str>)| SoftwareNameChange {
            name: own(name),
            from: from.map(own),
            to: to.map(own),
            label: None,
        };
        SoftwareChange { bucket: 0, was_of: own(was_of), is_of: own(is_of), names: names.iter().map(name).collect() }
    }

    #[test]
    fn what_comes_and_goes_again_counts_for_nothing() {
        let mut folded = SoftwareIndexBatch::default();
        folded.add_change(1, change("none", "none", &[("bash", None, Some("5.2"))]));
        folded.add_change(2, change("none", "none", &[("bash", None, Some("5.2")), ("vim", None, Some("9"))]));
        folded.add_change(1, change("none", "one", &[("bash", Some("5.2"), Some("5.3"))]));
        folded.add_change(2, change("none", "none", &[("vim", Some("9"), None)]));
        let installed: Vec<_> =
            folded.installed.iter().map(|((name, n), to)| (name.as_str(), *n, to.as_deref())).collect();
        assert_eq!(installed, [("bash", 1, Some("5.3")), ("bash", 2, Some("5.2")), ("vim", 2, None)]);
        let counts: Vec<_> = folded
            .counts
            .iter()
            .map(|(counted, (_, by))| (counted.organization.as_str(), counted.value.as_str(), *by))
            .collect();
        let expected = [("*", "bash", 2), ("*", "vim", 0), ("none", "bash", 1), ("none", "vim", 0), ("one", "bash", 1)];
        assert_eq!(counts, expected);
    }

    /// Pending changes were stored with these buckets, and the next release must read them in the same order.
    #[test]
    fn a_name_stays_in_its_bucket() {
        let buckets = ["bash", "curl", "libc6", "microsoft edge", "übersicht", ""].map(bucket_of);
        assert_eq!(buckets, [4, 4, 0, 7, 3, 0]);
    }

    #[test]
    fn a_note_is_neither_long_nor_large() {
        let name = |n: usize, versions: usize| SoftwareNameChange {
            name: format!("package-{n}"),
            from: None,
            to: Some("1".repeat(versions)),
            label: None,
        };
        let sizes = |names: Vec<SoftwareNameChange>| split_changes(names).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..600).map(|n| name(n, 1)).collect()), [250, 250, 100]);
        assert_eq!(sizes((0..5).map(|n| name(n, 30_000)).collect()), [2, 2, 1]);
        assert_eq!(sizes((0..3).map(|n| name(n, 100_000)).collect()), [1, 1, 1]);
        assert!(sizes(Vec::new()).is_empty());
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let change = change("none", "one", &[("bash", None, Some("5.2")), ("vim", Some("9"), None)]);
        let text = serde_json::to_string(&change).unwrap_or_default();
        assert_eq!(serde_json::from_str::<SoftwareChange>(&text).ok(), Some(change));
    }
}
