//! The filter of the organization list.

pub mod store;

use kernel::base::Timestamp;
use kernel::store::ListKey;
use search_language::text_words::{QueryWord, TextWords};

use super::{Organization, OrganizationId};

/// A position in the list.
pub type OrganizationListKey = ListKey<(Timestamp, OrganizationId), OrganizationId>;

/// Which organizations to list; `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub slug: Option<String>,
    pub external_id: Option<String>,
    /// The query parameter; see [`Filter::effective_archived`].
    pub archived: Option<bool>,
    /// The words of `q`.
    pub words: Vec<QueryWord>,
    pub updated_since: Option<Timestamp>,
}

impl Filter {
    /// Whether to list archived organizations, the others, or both (`None`). By default a list hides archived ones; a list
    /// of changes has both, or its reader would not learn that one was archived.
    pub fn effective_archived(&self) -> Option<bool> {
        match (self.archived, self.updated_since) {
            (None, Some(_)) => None,
            (archived, _) => Some(archived.unwrap_or(false)),
        }
    }

    pub fn matches_organization(&self, one: &Organization) -> bool {
        self.effective_archived().is_none_or(|archived| archived == one.archived)
            && self.slug.as_ref().is_none_or(|slug| *slug == one.slug)
            && self.external_id.as_ref().is_none_or(|id| one.external_id.as_ref() == Some(id))
            && self.updated_since.is_none_or(|since| one.updated_at >= since)
            && self.has_words(&one.name, &one.slug, one.external_id.as_deref(), &one.domains)
    }

    /// Whether every word of the filter is a prefix of a word in these texts.
    pub fn has_words(&self, name: &str, slug: &str, external_id: Option<&str>, domains: &[String]) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let texts = [name, slug].into_iter().chain(external_id).chain(domains.iter().map(String::as_str));
        let words_of_texts: Vec<TextWords> = texts.map(TextWords::new).collect();
        self.words.iter().all(|word| word.is_in_any(&words_of_texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_the_beginning_of_a_word() {
        let domains = ["globex.example".to_owned(), "shop.test".to_owned()];
        let found = |q: &str| {
            let words = q.split_whitespace().filter_map(QueryWord::parse).collect();
            let filter = Filter { words, ..Filter::default() };
            filter.has_words("Globex & Söhne", "globex-de", Some("CRM/4711"), &domains)
        };
        for q in [
            "glob",
            "SÖH",
            "globex söhne",
            "globex-d",
            "4711 crm",
            "crm/47",
            "globex.ex",
            "shop",
            "test glob",
            "globex sohne",
            "soehne",
            "crm4711",
            "globexde",
        ] {
            assert!(found(q), "{q}");
        }
        for q in ["lobex", "711", "globex-x", "example.shop", "globex nobody", "test.shop"] {
            assert!(!found(q), "{q}");
        }
    }

    #[test]
    fn archived_ones_are_hidden_unless_they_are_asked_for_or_followed() {
        let of = |archived, since: Option<i64>| {
            let updated_since = since.map(Timestamp::from_millis);
            Filter { archived, updated_since, ..Filter::default() }.effective_archived()
        };
        assert_eq!(
            [of(None, None), of(Some(false), None), of(Some(true), None)],
            [Some(false), Some(false), Some(true)]
        );
        assert_eq!(
            [of(None, Some(1)), of(Some(false), Some(1)), of(Some(true), Some(1))],
            [None, Some(false), Some(true)]
        );
    }
}
