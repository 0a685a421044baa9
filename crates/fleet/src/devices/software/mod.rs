//! Which devices have which software installed: how it is found by name, and counted.
//!
//! A machine has hundreds of packages, each with a place of its own in the index. To write them all with the device would keep
//! everybody else's writes waiting. So a change of what is installed is noted with the device, in one row and one transaction,
//! and brought into the index soon after, together with others. Whoever asks the index brings it up to date first.

pub mod store;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::terms::{ALL, Counted, organization_of};
use super::{FullDevice, Software};

/// As what software is counted.
pub const SOFTWARE: &str = "software";

/// Between versions of one name on one device.
pub const VERSIONS: &str = "\u{1f}";

/// Versions of one name by which a device can be found. Kernels and runtimes are installed side by side, but not by hundreds.
const VERSIONS_MAX: usize = 50;

/// Names of one note, and about how long they are with their versions: as many as can be indexed without anybody waiting long.
const NAMES_MAX: usize = 250;
const NAMES_BYTES_MAX: usize = 64 << 10;

/// Into so many buckets names are divided. What one name means on one device is always in the same, and so in its order.
const BUCKETS: u32 = 8;

/// As what software is found and counted, however it is spelt.
pub fn software_name(name: &str) -> String {
    name.to_lowercase()
}

/// What a device has of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// As it is shown.
    pub label: String,
    pub versions: String,
}

/// The names of what is installed, each with its versions.
pub fn software_of(installed: &[Software]) -> BTreeMap<String, Versions> {
    some_software_of(installed, None)
}

/// The same, of all or of these names.
fn some_software_of(installed: &[Software], names: Option<&BTreeSet<String>>) -> BTreeMap<String, Versions> {
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
    let joined = |versions: BTreeSet<&str>| versions.into_iter().take(VERSIONS_MAX).collect::<Vec<_>>().join(VERSIONS);
    let of = |(label, versions): (&str, _)| Versions { label: label.to_owned(), versions: joined(versions) };
    all.into_iter().map(|(name, found)| (name, of(found))).collect()
}

/// Nothing is installed on a device that is deleted.
fn installed(full: &FullDevice) -> &[Software] {
    if full.device.deleted_at.is_some() { &[] } else { &full.parts.software }
}

/// Names of software that something is different of between two states; none if everything is.
fn touched(before: &FullDevice, after: &FullDevice) -> Option<BTreeSet<String>> {
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

/// A change of what is installed on a device, as it is noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    #[serde(skip)]
    bucket: u32,
    /// As whose it was counted before, and as whose it is now.
    was_of: String,
    is_of: String,
    names: Vec<NameNote>,
}

/// Of one name: its versions before and after, none where it was or is not installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NameNote {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// Where it is not spelt in small letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

impl NameNote {
    fn size_bytes(&self) -> usize {
        let texts = [Some(&self.name), self.from.as_ref(), self.to.as_ref(), self.label.as_ref()];
        texts.into_iter().flatten().map(String::len).sum()
    }
}

/// What has to be noted of a change of a device, in pieces.
fn notes(before: Option<&FullDevice>, after: &FullDevice) -> Vec<Note> {
    let touched = before.and_then(|before| touched(before, after));
    let mut old = before.map(|full| some_software_of(installed(full), touched.as_ref())).unwrap_or_default();
    let new = some_software_of(installed(after), touched.as_ref());
    let is_of = organization_of(&after.device);
    let was_of = before.map_or_else(|| is_of.clone(), |full| organization_of(&full.device));
    let mut names = Vec::new();
    for (name, Versions { label, versions }) in new {
        let from = old.remove(&name).map(|found| found.versions);
        if from.as_ref() != Some(&versions) || was_of != is_of {
            let label = (label != name).then_some(label);
            names.push(NameNote { name, from, to: Some(versions), label });
        }
    }
    let gone = |(name, found): (String, Versions)| NameNote { name, from: Some(found.versions), to: None, label: None };
    names.extend(old.into_iter().map(gone));
    let mut buckets: BTreeMap<u32, Vec<NameNote>> = BTreeMap::new();
    for name in names {
        buckets.entry(bucket_of(&name.name)).or_default().push(name);
    }
    let note = |bucket, names| Note { bucket, was_of: was_of.clone(), is_of: is_of.clone(), names };
    buckets
        .into_iter()
        .flat_map(|(bucket, names)| in_pieces(names).into_iter().map(move |some| (bucket, some)))
        .map(|(bucket, some)| note(bucket, some))
        .collect()
}

/// The same names, as few at a time as fit into one note.
fn in_pieces(names: Vec<NameNote>) -> Vec<Vec<NameNote>> {
    let (mut pieces, mut size_bytes) = (Vec::<Vec<NameNote>>::new(), 0);
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

/// Never another for the same name: notes of it would be taken out of their order.
fn bucket_of(name: &str) -> u32 {
    name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % BUCKETS
}

/// Several notes as one change of the index.
#[derive(Debug, Default)]
struct Folded {
    /// The versions of a name on a device; none if it is not installed any more.
    installed: BTreeMap<(String, i64), Option<String>>,
    /// By how much the counters change, with how what they count is spelt.
    counts: BTreeMap<Counted, (String, i64)>,
}

impl Folded {
    /// Adds a note of a device; those of one device in their order.
    fn add(&mut self, number: i64, Note { was_of, is_of, names, .. }: Note) {
        for NameNote { name, from, to, label } in names {
            let label = label.unwrap_or_else(|| name.clone());
            for (is_there, organization, by) in [(from.is_some(), &was_of, -1), (to.is_some(), &is_of, 1)] {
                if is_there {
                    self.count(ALL, &name, &label, by);
                    self.count(organization, &name, &label, by);
                }
            }
            self.installed.insert((name, number), to);
        }
    }

    fn count(&mut self, organization: &str, name: &str, label: &str, by: i64) {
        let counted = Counted { organization: organization.to_owned(), dimension: SOFTWARE, value: name.to_owned() };
        self.counts.entry(counted).or_insert_with(|| (label.to_owned(), 0)).1 += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(was_of: &str, is_of: &str, names: &[(&str, Option<&str>, Option<&str>)]) -> Note {
        let own = |text: &str| text.to_owned();
        let name = |(name, from, to): &(&str, Option<&str>, Option<&str>)| NameNote {
            name: own(name),
            from: from.map(own),
            to: to.map(own),
            label: None,
        };
        Note { bucket: 0, was_of: own(was_of), is_of: own(is_of), names: names.iter().map(name).collect() }
    }

    #[test]
    fn what_comes_and_goes_again_counts_for_nothing() {
        let mut folded = Folded::default();
        folded.add(1, note("none", "none", &[("bash", None, Some("5.2"))]));
        folded.add(2, note("none", "none", &[("bash", None, Some("5.2")), ("vim", None, Some("9"))]));
        folded.add(1, note("none", "one", &[("bash", Some("5.2"), Some("5.3"))]));
        folded.add(2, note("none", "none", &[("vim", Some("9"), None)]));
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

    /// What waits to be indexed was put where these say, and the next version must find it in its order.
    #[test]
    fn a_name_stays_in_its_bucket() {
        let buckets = ["bash", "curl", "libc6", "microsoft edge", "übersicht", ""].map(bucket_of);
        assert_eq!(buckets, [4, 4, 0, 7, 3, 0]);
    }

    #[test]
    fn a_note_is_neither_long_nor_large() {
        let name = |n: usize, versions: usize| NameNote {
            name: format!("package-{n}"),
            from: None,
            to: Some("1".repeat(versions)),
            label: None,
        };
        let sizes = |names: Vec<NameNote>| in_pieces(names).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..600).map(|n| name(n, 1)).collect()), [250, 250, 100]);
        assert_eq!(sizes((0..5).map(|n| name(n, 30_000)).collect()), [2, 2, 1]);
        assert_eq!(sizes((0..3).map(|n| name(n, 100_000)).collect()), [1, 1, 1]);
        assert!(sizes(Vec::new()).is_empty());
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = note("none", "one", &[("bash", None, Some("5.2")), ("vim", Some("9"), None)]);
        let text = serde_json::to_string(&note).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Note>(&text).ok(), Some(note));
    }
}
