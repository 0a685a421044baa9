//! The documents of the search index: the names of each record, its other texts, and the values that `field:value` compares.
//!
//! `rules` turns a row into a document, `store` reads rows. How documents are found and who may see them is elsewhere.
//! Documents leave out what changes all the time without a change of the record, such as how many devices have a software.

mod rules;
pub mod store;

use std::fmt::Write as _;

use kernel::base::{StringEnum, TenantId, Timestamp};

use fleet::asset_inventory::find::SoftwareFilter;
use search_language::fold::tokenize_text;
use search_language::spellings::name_keys;
use search_language::{Q_CHARS_MAX, QueryField};

/// How much text of one record is indexed: all that people write about one, and little enough for a writer to hold
/// thousands of documents. Nobody remembers a record by what comes later.
pub const TEXT_BYTES_MAX: usize = 32 << 10;
/// The title and the subtitle are one line each in a list.
const LINE_BYTES_MAX: usize = 512;
/// A query has at most 200 characters of four bytes, so no longer value can match.
const EXACT_BYTES_MAX: usize = 800;

kernel::string_enum! {
    /// What a search finds. The order must not change: existing indexes contain the numbers.
    #[schema(as = SearchKind)]
    pub enum DocumentKind {
        Device "device", User "user", Organization "organization", Ticket "ticket", Workflow "workflow",
        Software "software", Vm "vm",
    }
}

pub const KIND_COUNT: usize = DocumentKind::ALL.len();

/// Machines, people and customers: what people type the names of. Among equals they rank before what mentions them.
pub const NAMED_KINDS: [DocumentKind; 4] =
    [DocumentKind::Device, DocumentKind::User, DocumentKind::Organization, DocumentKind::Vm];

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSet(u8);

impl KindSet {
    pub fn all() -> Self {
        DocumentKind::ALL.iter().copied().collect()
    }

    pub fn has_kind(self, kind: DocumentKind) -> bool {
        self.0 & 1 << kind.index() != 0
    }

    pub fn add_kind(&mut self, kind: DocumentKind) {
        self.0 |= 1 << kind.index();
    }

    /// The kinds in both sets.
    #[must_use]
    pub fn intersect_with(self, other: KindSet) -> KindSet {
        KindSet(self.0 & other.0)
    }
}

impl FromIterator<DocumentKind> for KindSet {
    fn from_iter<I: IntoIterator<Item = DocumentKind>>(kinds: I) -> Self {
        let mut set = KindSet::default();
        kinds.into_iter().for_each(|kind| set.add_kind(kind));
        set
    }
}

/// The kinds of documents that can have values of a field.
pub fn kinds_with_field(field: QueryField) -> KindSet {
    let kinds: &[DocumentKind] = match field {
        QueryField::Type | QueryField::Status | QueryField::Org => DocumentKind::ALL,
        QueryField::Os | QueryField::Serial | QueryField::Mac | QueryField::Platform | QueryField::Model => {
            &[DocumentKind::Device]
        }
        QueryField::Ip | QueryField::Host => &[DocumentKind::Device, DocumentKind::Vm],
        // The assignee's name is looked up among users; tickets have the user's id.
        QueryField::Email | QueryField::Assignee => &[DocumentKind::User, DocumentKind::Ticket],
        QueryField::Tag => &[DocumentKind::Device, DocumentKind::Ticket, DocumentKind::Organization, DocumentKind::Vm],
        QueryField::Priority | QueryField::Number => &[DocumentKind::Ticket],
    };
    kinds.iter().copied().collect()
}

impl DocumentKind {
    /// The index in `ALL`.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The number in the search index.
    pub fn to_number(self) -> u64 {
        self.index() as u64
    }

    pub fn from_number(number: u64) -> Option<DocumentKind> {
        DocumentKind::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The API path of a record.
    fn record_url(self, id: &str) -> String {
        match self {
            DocumentKind::Device => format!("/api/rmm/reports/asset-inventory?id={id}"),
            DocumentKind::User => format!("/api/admin/users?id={id}"),
            DocumentKind::Organization => format!("/api/admin/organizations?id={id}"),
            DocumentKind::Ticket => format!("/api/psa/tickets?id={id}"),
            DocumentKind::Workflow => format!("/api/psa/workflows/trigger?id={id}"),
            DocumentKind::Software => software_url(id),
            DocumentKind::Vm => format!("/api/cloud/vms?id={id}"),
        }
    }
}

/// What a record is called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentitySort {
    /// A name or address, half of which people type.
    Name,
    /// A serial number and the like. The first characters are the maker's.
    Code,
    /// Digits by chance, of which nobody types a part.
    Uuid,
}

/// A record as it is indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchDocument {
    pub tenant: TenantId,
    pub kind: DocumentKind,
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
    pub exact: Vec<(QueryField, String)>,
    /// The keys of what the record is called as a whole, from [`name_keys`]: a query that is one of them means this record.
    pub identities: Vec<(IdentitySort, String)>,
    /// The letters and digits of the serial number, by whose end a device is found.
    pub serial: Option<String>,
    /// Not done, not gone, not disabled. Live documents rank before others.
    pub is_live: bool,
    /// When the record last changed.
    pub changed_at: Timestamp,
    pub url: String,
}

impl SearchDocument {
    /// A document without texts.
    fn new(kind: DocumentKind, tenant: TenantId, id: &str, at: Timestamp) -> Self {
        let mut document = SearchDocument {
            tenant,
            kind,
            id: id.to_owned(),
            organization_id: None,
            title: String::new(),
            subtitle: String::new(),
            names: Vec::new(),
            bodies: Vec::new(),
            exact: Vec::new(),
            identities: Vec::new(),
            serial: None,
            is_live: true,
            changed_at: at,
            url: kind.record_url(id),
        };
        document.add_exact(QueryField::Type, Some(kind.as_str()));
        document
    }

    /// Sets how the document looks in a list.
    fn set_heading(&mut self, title: &str, subtitle: &str) {
        truncate_text(title, LINE_BYTES_MAX).clone_into(&mut self.title);
        truncate_text(subtitle, LINE_BYTES_MAX).clone_into(&mut self.subtitle);
    }

    fn add_name(&mut self, field: &'static str, name: Option<&str>) {
        self.names.extend(self.bound_text(name).map(|name| (field, name)));
    }

    fn add_body(&mut self, field: &'static str, text: Option<&str>) {
        self.bodies.extend(self.bound_text(text).map(|text| (field, text)));
    }

    /// Adds a value for `field:value`. Values that no query can contain are left out.
    fn add_exact(&mut self, field: QueryField, value: Option<&str>) {
        let value = non_blank(value).and_then(|value| field.normalize_value(value).ok());
        if let Some(value) = value.filter(|value| value.len() <= EXACT_BYTES_MAX) {
            let exact = (field, value);
            if !self.exact.contains(&exact) {
                self.exact.push(exact);
            }
        }
    }

    /// Adds what the record is called. The parts of codes are also written together if they are numbers.
    fn add_identity(&mut self, sort: IdentitySort, name: Option<&str>) {
        let mut keys = non_blank(name).map(name_keys).unwrap_or_default();
        if sort != IdentitySort::Name {
            keys.push(compact_identifier(name));
        }
        for key in keys {
            let is_known = self.identities.iter().any(|(_, known)| *known == key);
            if !key.is_empty() && key.len() <= EXACT_BYTES_MAX && !is_known {
                self.identities.push((sort, key));
            }
        }
    }

    /// As much of the text as the document may still have.
    fn bound_text(&self, text: Option<&str>) -> Option<String> {
        let used: usize = self.names.iter().chain(&self.bodies).map(|(_, text)| text.len()).sum();
        let text = truncate_text(non_blank(text)?, TEXT_BYTES_MAX.saturating_sub(used));
        non_blank(Some(text)).map(str::to_owned)
    }
}

/// The letters and digits of an identifier.
fn compact_identifier(identifier: Option<&str>) -> String {
    tokenize_text(identifier.unwrap_or_default()).into_iter().map(|token| token.text).collect()
}

/// The trimmed text; `None` if it is blank.
fn non_blank(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Truncates a text at a character boundary.
fn truncate_text(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The list of devices that have the software. A name that the filter would parse differently leads to a search for it.
fn software_url(name: &str) -> String {
    let is_one_name = SoftwareFilter::parse(name).is_some_and(|one| one.version.is_none() && one.name == name);
    if is_one_name && !name.contains(',') {
        return format!("/api/rmm/reports/asset-inventory?software={}", percent_encoded(name));
    }
    let start: String = name.chars().filter(|c| *c != '"').take(NAME_CHARS_MAX).collect();
    format!("/api/search?q={}&types=software", percent_encoded(&format!("\"{start}\"")))
}

/// The most characters of a name in a search, which adds two quotes.
const NAME_CHARS_MAX: usize = Q_CHARS_MAX - 2;

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

    fn document() -> SearchDocument {
        SearchDocument::new(DocumentKind::Software, TenantId::NONE, "c++ & 東", Timestamp::from_millis(0))
    }

    #[test]
    fn every_kind_is_a_type_that_a_query_can_name() {
        for kind in DocumentKind::ALL {
            assert!(TYPES.contains(&kind.as_str()), "{kind:?}");
            assert_eq!(DocumentKind::parse(kind.as_str()), Some(*kind));
        }
        assert_eq!(DocumentKind::parse("vms"), None);
    }

    #[test]
    fn a_name_is_spelt_for_a_url() {
        assert_eq!(document().url, "/api/rmm/reports/asset-inventory?software=c%2B%2B%20%26%20%E6%9D%B1");
    }

    #[test]
    fn nothing_is_not_indexed_and_what_is_said_twice_is_compared_once() {
        let mut document = document();
        for text in [None, Some(""), Some(" \n"), Some(" a ")] {
            document.add_name("name", text);
            document.add_body("tags", text);
        }
        assert_eq!((document.names, document.bodies), (vec![("name", "a".to_owned())], vec![("tags", "a".to_owned())]));
        let mut document = self::document();
        for value in ["Red", " red", "", "\u{301}", &"x".repeat(EXACT_BYTES_MAX + 1)] {
            document.add_exact(QueryField::Tag, Some(value));
        }
        document.add_exact(QueryField::Number, Some("none"));
        assert_eq!(document.exact, [(QueryField::Type, "software".to_owned()), (QueryField::Tag, "red".to_owned())]);
    }

    #[test]
    fn a_name_is_known_by_its_letters_and_an_identifier_by_its_digits_alone_as_well() {
        let mut document = document();
        for name in [None, Some(" "), Some("&"), Some("WEB-01"), Some("web 01"), Some("10.0.0.5"), Some("Müller")] {
            document.add_identity(IdentitySort::Name, name);
        }
        document.add_identity(IdentitySort::Code, Some("1234-5678"));
        document.add_identity(IdentitySort::Name, Some(&"x".repeat(EXACT_BYTES_MAX * 20)));
        let keys: Vec<&str> = document.identities.iter().map(|(_, key)| key.as_str()).collect();
        let expected = ["web01", "10.0.0.5", "muller", "mueller", "1234.5678", "12345678"];
        assert_eq!(keys[..expected.len()], expected);
        assert!(keys.iter().all(|key| key.len() <= EXACT_BYTES_MAX));
    }

    #[test]
    fn a_text_is_cut_between_characters_and_never_too_long_in_all() {
        let mut document = document();
        document.set_heading(&"ü".repeat(LINE_BYTES_MAX), "");
        assert_eq!(document.title.len(), LINE_BYTES_MAX);
        document.add_name("name", Some("a"));
        for _ in 0..3 {
            document.add_body("description", Some(&"ü".repeat(TEXT_BYTES_MAX / 4)));
        }
        let lengths: Vec<usize> = document.bodies.iter().map(|(_, text)| text.len()).collect();
        assert_eq!(lengths, [TEXT_BYTES_MAX / 2, TEXT_BYTES_MAX / 2 - 2]);
    }
}
