//! The documents of the search index: the names of each record, its other texts, and the values that `field:value` compares.
//!
//! `rules` turns a row into a document, `store` reads rows. How documents are found and who may see them is elsewhere.
//! Documents leave out what changes all the time without a change of the record, such as how many devices have a software.

mod rules;
pub mod store;

use std::fmt::Write as _;

use kernel::base::{TenantId, Timestamp, Word};

use fleet::asset_inventory::find::Installed;
use search_language::Field;

/// How much text of one record is indexed: all that people write about one, and little enough for a writer to hold
/// thousands of documents. Nobody remembers a record by what comes later.
pub const TEXT_BYTES_MAX: usize = 32 << 10;
/// The title and the subtitle are one line each in a list.
const LINE_BYTES_MAX: usize = 512;
/// A query has at most 200 characters of four bytes, so no longer value can match.
const EXACT_BYTES_MAX: usize = 800;

kernel::words! {
    /// What a search finds.
    #[schema(as = SearchKind)]
    pub enum Kind {
        Device "device", User "user", Organization "organization", Ticket "ticket", Workflow "workflow",
        Software "software",
    }
}

pub const KINDS: usize = Kind::ALL.len();

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    pub fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind.index() != 0
    }

    pub fn add(&mut self, kind: Kind) {
        self.0 |= 1 << kind.index();
    }

    /// The kinds in both sets.
    #[must_use]
    pub fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        let mut some = Kinds::default();
        kinds.into_iter().for_each(|kind| some.add(kind));
        some
    }
}

/// The kinds of documents that can have values of a field.
pub fn kinds_with(field: Field) -> Kinds {
    let kinds: &[Kind] = match field {
        Field::Type | Field::Status | Field::Org => Kind::ALL,
        Field::Os | Field::Serial | Field::Mac | Field::Ip | Field::Host | Field::Platform | Field::Model => {
            &[Kind::Device]
        }
        // The assignee's name is looked up among users; tickets have the user's id.
        Field::Email | Field::Assignee => &[Kind::User, Kind::Ticket],
        Field::Tag => &[Kind::Device, Kind::Ticket, Kind::Organization],
        Field::Priority | Field::Number => &[Kind::Ticket],
    };
    kinds.iter().copied().collect()
}

impl Kind {
    /// The index in `ALL`.
    pub fn index(self) -> usize {
        Kind::ALL.iter().position(|kind| *kind == self).unwrap_or_default()
    }

    /// The number in the search index.
    pub fn number(self) -> u64 {
        self.index() as u64
    }

    pub fn numbered(number: u64) -> Option<Kind> {
        Kind::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The API path of a record.
    fn url(self, id: &str) -> String {
        match self {
            Kind::Device => format!("/api/rmm/reports/asset-inventory?id={id}"),
            Kind::User => format!("/api/admin/users?id={id}"),
            Kind::Organization => format!("/api/admin/organizations?id={id}"),
            Kind::Ticket => format!("/api/psa/tickets?id={id}"),
            Kind::Workflow => format!("/api/psa/workflows/trigger?id={id}"),
            Kind::Software => software_url(id),
        }
    }
}

/// A record as it is indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub tenant: TenantId,
    pub kind: Kind,
    /// The record's id; for software its name in lower case.
    pub id: String,
    /// The organization that the record belongs to; for an organization its own id.
    pub organization_id: Option<String>,
    pub title: String,
    pub subtitle: String,
    /// The names of the record by API field. Matches here rank before those in `bodies`.
    pub names: Vec<(&'static str, String)>,
    /// The other texts of the record by API field.
    pub bodies: Vec<(&'static str, String)>,
    /// The values that `field:value` compares, from [`QueryField::normalize_value`]. The assignee of a ticket is a user id.
    pub exact: Vec<(Field, String)>,
    /// Not done, not gone, not disabled. Live documents rank before others.
    pub is_live: bool,
    /// When the record last changed.
    pub at: Timestamp,
    pub url: String,
}

impl Document {
    /// A document without texts.
    fn new(kind: Kind, tenant: TenantId, id: &str, at: Timestamp) -> Self {
        let mut document = Document {
            tenant,
            kind,
            id: id.to_owned(),
            organization_id: None,
            title: String::new(),
            subtitle: String::new(),
            names: Vec::new(),
            bodies: Vec::new(),
            exact: Vec::new(),
            is_live: true,
            at,
            url: kind.url(id),
        };
        document.compare(Field::Type, Some(kind.as_str()));
        document
    }

    /// Sets how the document looks in a list.
    fn show(&mut self, title: &str, subtitle: &str) {
        cut(title, LINE_BYTES_MAX).clone_into(&mut self.title);
        cut(subtitle, LINE_BYTES_MAX).clone_into(&mut self.subtitle);
    }

    /// Adds a name.
    fn call(&mut self, field: &'static str, name: Option<&str>) {
        if let Some(name) = said(name).and_then(|name| said(Some(cut(name, self.room_bytes())))) {
            self.names.push((field, name.to_owned()));
        }
    }

    /// Adds another text.
    fn say(&mut self, field: &'static str, text: Option<&str>) {
        if let Some(text) = said(text).and_then(|text| said(Some(cut(text, self.room_bytes())))) {
            self.bodies.push((field, text.to_owned()));
        }
    }

    /// Adds a value for `field:value`. Values that no query can contain are left out.
    fn compare(&mut self, field: Field, value: Option<&str>) {
        let value = said(value).and_then(|value| field.value(value).ok());
        if let Some(value) = value.filter(|value| value.len() <= EXACT_BYTES_MAX) {
            let exact = (field, value);
            if !self.exact.contains(&exact) {
                self.exact.push(exact);
            }
        }
    }

    /// How much more text the document may have.
    fn room_bytes(&self) -> usize {
        let used: usize = self.names.iter().chain(&self.bodies).map(|(_, text)| text.len()).sum();
        TEXT_BYTES_MAX.saturating_sub(used)
    }
}

/// The trimmed text; `None` if it is blank.
fn said(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Truncates a text at a character boundary.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The list of devices that have the software. A name that the filter would parse differently leads to a search for it.
fn software_url(name: &str) -> String {
    let is_one_name = Installed::parse(name).is_some_and(|one| one.version.is_none() && one.name == name);
    if is_one_name && !name.contains(',') {
        return format!("/api/rmm/reports/asset-inventory?software={}", percent_encoded(name));
    }
    let start: String = name.chars().filter(|c| *c != '"').take(NAME_CHARS_MAX).collect();
    format!("/api/search?q={}&types=software", percent_encoded(&format!("\"{start}\"")))
}

/// The most characters of a name in a search, which adds two quotes.
const NAME_CHARS_MAX: usize = super::Q_CHARS_MAX - 2;

/// Encodes a value for the query of a URL.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::base::RecordId;
    use search_language::fields::TYPES;

    fn document() -> Document {
        Document::new(Kind::Software, TenantId::NONE, "c++ & 東", Timestamp::from_millis(0))
    }

    #[test]
    fn every_kind_is_a_type_that_a_query_can_name() {
        for kind in Kind::ALL {
            assert!(TYPES.contains(&kind.as_str()), "{kind:?}");
            assert_eq!(Kind::parse(kind.as_str()), Some(*kind));
        }
        assert_eq!(Kind::parse("vm"), None);
    }

    #[test]
    fn a_name_is_spelt_for_a_url() {
        assert_eq!(document().url, "/api/rmm/reports/asset-inventory?software=c%2B%2B%20%26%20%E6%9D%B1");
    }

    #[test]
    fn nothing_is_not_indexed_and_what_is_said_twice_is_compared_once() {
        let mut document = document();
        for text in [None, Some(""), Some(" \n"), Some(" a ")] {
            document.call("name", text);
            document.say("tags", text);
        }
        assert_eq!((document.names, document.bodies), (vec![("name", "a".to_owned())], vec![("tags", "a".to_owned())]));
        let mut document = self::document();
        for value in ["Red", " red", "", "\u{301}", &"x".repeat(EXACT_BYTES_MAX + 1)] {
            document.compare(Field::Tag, Some(value));
        }
        document.compare(Field::Number, Some("none"));
        assert_eq!(document.exact, [(Field::Type, "software".to_owned()), (Field::Tag, "red".to_owned())]);
    }

    #[test]
    fn a_text_is_cut_between_characters_and_never_too_long_in_all() {
        let mut document = document();
        document.show(&"ü".repeat(LINE_BYTES_MAX), "");
        assert_eq!(document.title.len(), LINE_BYTES_MAX);
        document.call("name", Some("a"));
        for _ in 0..3 {
            document.say("description", Some(&"ü".repeat(TEXT_BYTES_MAX / 4)));
        }
        let lengths: Vec<usize> = document.bodies.iter().map(|(_, text)| text.len()).collect();
        assert_eq!(lengths, [TEXT_BYTES_MAX / 2, TEXT_BYTES_MAX / 2 - 2]);
    }
}
