//! The filter of the list of machines.

pub mod store;

use std::collections::BTreeMap;
use std::fmt;

use clouds::MachineState;
use kernel::base::Timestamp;
use kernel::store::ListKey;
use people::organizations::OrganizationId;
use search_language::text_words::{QueryWord, TextWords};

use super::VmId;
use crate::providers::ProviderId;

/// A position in the list.
pub type VmListKey = ListKey<(Timestamp, VmId), VmId>;

/// Which machines to list; `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub provider_id: Option<Vec<ProviderId>>,
    pub region: Option<Vec<String>>,
    pub state: Option<Vec<MachineState>>,
    pub tag: Option<Vec<TagFilter>>,
    pub organization_id: Option<Vec<OrganizationId>>,
    /// The words of `q`.
    pub words: Vec<QueryWord>,
    pub updated_since: Option<Timestamp>,
}

/// `key`, or `key:value`. A key may have colons of its own, so every way to read it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct TagFilter(String);

impl TagFilter {
    pub fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| TagFilter(text.to_owned()))
    }

    fn matches(&self, tags: &BTreeMap<String, String>) -> bool {
        let has_value =
            |(at, _): (usize, &str)| tags.get(&self.0[..at]).is_some_and(|value| *value == self.0[at + 1..]);
        tags.contains_key(&self.0) || self.0.match_indices(':').any(has_value)
    }
}

impl fmt::Display for TagFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the filter looks at.
pub struct FilteredVm<'a> {
    pub provider_id: ProviderId,
    pub region: &'a str,
    pub state: MachineState,
    pub organization_id: Option<OrganizationId>,
    pub tags: &'a BTreeMap<String, String>,
    pub name: &'a str,
}

impl Filter {
    pub fn matches_vm(&self, vm: &FilteredVm<'_>) -> bool {
        let has_organization = |ids: &Vec<OrganizationId>| vm.organization_id.is_some_and(|id| ids.contains(&id));
        self.provider_id.as_ref().is_none_or(|ids| ids.contains(&vm.provider_id))
            && self.region.as_ref().is_none_or(|regions| regions.iter().any(|region| region == vm.region))
            && self.state.as_ref().is_none_or(|states| states.contains(&vm.state))
            && self.organization_id.as_ref().is_none_or(has_organization)
            && self.tag.as_ref().is_none_or(|tags| tags.iter().any(|tag| tag.matches(vm.tags)))
            && self.has_words(vm.name)
    }

    fn has_words(&self, name: &str) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let words_of_name = [TextWords::new(name)];
        self.words.iter().all(|word| word.is_in_any(&words_of_name))
    }

    /// How many of its parts are given.
    pub fn count_parts(&self) -> usize {
        let given = [
            self.provider_id.is_some(),
            self.organization_id.is_some(),
            self.region.is_some(),
            self.state.is_some(),
            self.tag.is_some(),
            !self.words.is_empty(),
        ];
        given.into_iter().filter(|is_given| *is_given).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_key_or_a_key_with_its_value_whatever_colons_either_has() {
        let tags = BTreeMap::from([
            ("env".to_owned(), "prod".to_owned()),
            ("team:web".to_owned(), "a:b".to_owned()),
            ("empty".to_owned(), String::new()),
        ]);
        let matches = |text: &str| TagFilter::parse(text).is_some_and(|filter| filter.matches(&tags));
        for text in ["env", "env:prod", "team:web", "team:web:a:b", "empty", "empty:"] {
            assert!(matches(text), "{text}");
        }
        for text in ["", "en", "env:", "env:pro", "team", "team:web:a", "prod", "Env"] {
            assert!(!matches(text), "{text}");
        }
    }
}
