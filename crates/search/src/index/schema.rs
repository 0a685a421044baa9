//! The schema of the index, and how documents are written to it.
//!
//! Every token and every exact term starts with its tenant and kind, so that the terms of one tenant and kind are adjacent
//! in the dictionary. No query can reach the terms of another tenant, and none reads or pays for the terms of a kind that
//! its caller may not see: there is no filter that could be forgotten.

use kernel::base::{StringEnum, TenantId, sha256};
use search_language::fold::fold_text;
use search_language::spellings::{PlacedWord, placed_parts, placed_words};
use serde::{Deserialize, Serialize};
use tantivy::schema::{Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{Token, TokenStream, Tokenizer};
use tantivy::{Index, IndexSettings, TantivyDocument, Term};

use super::super::documents::{DocumentKind, IdentitySort, KindSet, SearchDocument};

/// The version of this format and of text folding. It is part of every commit: an index with another number is rebuilt.
pub const FORMAT: u32 = 2;

const TOKENIZER: &str = "owner";
/// Comes before every token. Texts have no control characters, and tokens are only letters and digits.
const NEXT: char = '\x1f';
/// Comes before a token at the position of the one before it: another spelling of the same word.
const SAME: char = '\x1d';
/// A position between two fields of a document, so that no phrase runs from one into the next.
const GAP: char = '\x1e';

/// The prefix of a tenant's terms of one kind: the letters of the tenant's id and one letter for the kind. Its length is
/// fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermOwner(String, DocumentKind);

/// `ten_` and 26 letters.
const ID_START: usize = 4;
pub const OWNER_LEN: usize = 27;

impl TermOwner {
    pub fn for_kind(tenant: TenantId, kind: DocumentKind) -> Self {
        let mut owner = tenant.to_string().split_off(ID_START);
        owner.push(kind_letter(kind));
        TermOwner(owner, kind)
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub fn is_any_of(&self, kinds: KindSet) -> bool {
        kinds.has_kind(self.1)
    }

    /// The key of a token in the dictionary.
    pub fn token_key(&self, token: &str) -> Vec<u8> {
        [self.as_bytes(), token.as_bytes()].concat()
    }

    /// The key that all exact values with a beginning have in common.
    pub fn exact_key(&self, name: &str, start: &str) -> Vec<u8> {
        self.token_key(&exact_text(name, start))
    }

    /// A term of this tenant and kind. This is the only place that makes terms.
    fn make_term(&self, field: Field, text: &str) -> Term {
        Term::from_field_text(field, &[self.0.as_str(), text].concat())
    }

    pub fn exact_term(&self, fields: &IndexFields, name: &str, value: &str) -> Term {
        self.make_term(fields.exact, &exact_text(name, value))
    }

    pub fn key_term(&self, fields: &IndexFields, id: &str) -> Term {
        self.make_term(fields.key, id)
    }
}

/// These letters must not change: existing indexes contain them.
fn kind_letter(kind: DocumentKind) -> char {
    match kind {
        DocumentKind::Device => 'd',
        DocumentKind::User => 'u',
        DocumentKind::Organization => 'o',
        DocumentKind::Ticket => 't',
        DocumentKind::Workflow => 'w',
        DocumentKind::Software => 's',
        DocumentKind::Vm => 'v',
    }
}

fn exact_text(name: &str, value: &str) -> String {
    [name, "\0", value].concat()
}

#[derive(Clone, Copy, Debug)]
pub struct IndexFields {
    pub key: Field,
    pub name: Field,
    pub body: Field,
    pub exact: Field,
    pub kind: Field,
    pub rank: Field,
    pub tie_high: Field,
    pub tie_low: Field,
    pub stored: Field,
}

pub fn build_schema() -> (Schema, IndexFields) {
    let text = |option| {
        // Ranking ignores the length of texts, which saves a byte per document and field.
        let indexing = TextFieldIndexing::default().set_tokenizer(TOKENIZER).set_index_option(option);
        TextOptions::default().set_indexing_options(indexing.set_fieldnorms(false))
    };
    let fast = || NumericOptions::default().set_fast();
    let mut builder = Schema::builder();
    let fields = IndexFields {
        key: builder.add_text_field("key", text(IndexRecordOption::Basic)),
        name: builder.add_text_field("name", text(IndexRecordOption::WithFreqsAndPositions)),
        body: builder.add_text_field("body", text(IndexRecordOption::WithFreqsAndPositions)),
        exact: builder.add_text_field("exact", text(IndexRecordOption::Basic)),
        kind: builder.add_u64_field("kind", fast()),
        rank: builder.add_u64_field("rank", fast()),
        tie_high: builder.add_u64_field("tie_high", fast()),
        tie_low: builder.add_u64_field("tie_low", fast()),
        // A text field, because tantivy reads a bytes field byte by byte.
        stored: builder.add_text_field("shown", TextOptions::default().set_stored()),
    };
    (builder.build(), fields)
}

/// The size of a block of stored documents. Every hit unpacks one, so it is only a few documents.
const SHOWN_BLOCK_BYTES: usize = 4_096;

pub fn index_settings() -> IndexSettings {
    IndexSettings {
        // This avoids an extra thread for every segment that is written.
        docstore_compress_dedicated_thread: false,
        docstore_blocksize: SHOWN_BLOCK_BYTES,
        ..IndexSettings::default()
    }
}

/// Must be called after every open or create: the index does not store tokenizers, and writing fails without this one.
pub fn register_tokenizer(index: &Index) {
    index.tokenizers().register(TOKENIZER, OwnerTokenizer::default());
}

/// The stored part of a document, from which hits are made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredDocument {
    pub tenant: String,
    /// [`DocumentKind::to_number`].
    pub kind: u64,
    pub id: String,
    pub organization_id: Option<String>,
    pub title: String,
    pub subtitle: String,
    pub url: String,
    /// The field names and indexed texts, names first.
    pub texts: Vec<(String, String)>,
}

/// The tantivy document of a search document.
pub fn build_entry(fields: &IndexFields, document: &SearchDocument) -> TantivyDocument {
    let owner = TermOwner::for_kind(document.tenant, document.kind);
    let mut entry = TantivyDocument::default();
    entry.add_text(fields.key, [owner.0.as_str(), &NEXT.to_string(), &document.id].concat());
    for (field, texts) in [(fields.name, &document.names), (fields.body, &document.bodies)] {
        let mut tokens = owner.0.clone();
        for (name, text) in texts {
            tokens.push(GAP);
            let words = if ADDRESSES.contains(name) { placed_parts(text) } else { placed_words(text) };
            push_words(&mut tokens, &words);
        }
        entry.add_text(field, tokens);
    }
    let mut exact = owner.0.clone();
    for (name, value) in exact_terms(document) {
        exact.push(NEXT);
        exact.push_str(&exact_text(name, &value));
    }
    entry.add_text(fields.exact, exact);
    entry.add_u64(fields.kind, document.kind.to_number());
    entry.add_u64(fields.rank, document_rank(document));
    let (high, low) = tie_breaker(document);
    entry.add_u64(fields.tie_high, high);
    entry.add_u64(fields.tie_low, low);
    // The short host name is not stored as a text: it is part of the full name.
    let is_part = |(field, text): &&(&'static str, String)| {
        document.bodies.iter().any(|(of, whole)| of == field && whole.len() > text.len() && whole.starts_with(text))
    };
    let texts = document.names.iter().filter(|text| !is_part(text)).chain(&document.bodies);
    let stored = StoredDocument {
        tenant: document.tenant.to_string(),
        kind: document.kind.to_number(),
        id: document.id.clone(),
        organization_id: document.organization_id.clone(),
        title: document.title.clone(),
        subtitle: document.subtitle.clone(),
        url: document.url.clone(),
        texts: texts.map(|(name, text)| ((*name).to_owned(), text.clone())).collect(),
    };
    entry.add_text(fields.stored, serde_json::to_string(&stored).unwrap_or_default());
    entry
}

/// Fields with addresses and the like. They have exact terms in every notation, so their parts need not be joined.
const ADDRESSES: [&str; 4] = ["primary_ip", "primary_mac", "nics", "uuid"];

fn push_words(tokens: &mut String, words: &[PlacedWord]) {
    let mut position = None;
    for word in words {
        tokens.push(if position == Some(word.position) { SAME } else { NEXT });
        tokens.push_str(&word.text);
        position = Some(word.position);
    }
}

/// The smallest key after all keys with this prefix. Keys are UTF-8, in which no byte is 255.
pub fn prefix_end(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Names of exact terms that are no fields of the query language.
pub const ORGANIZATION_ID: &str = "organization_id";
/// What a record is called as a whole.
pub const IDENTITY: &str = "is";
/// The same once more, where it is also found by its beginning.
pub const NAME: &str = "name";
pub const CODE: &str = "code";
/// The serial number backwards: a value begins with what the number ends with.
pub const SERIAL_END: &str = "serial_end";

fn exact_terms(document: &SearchDocument) -> Vec<(&'static str, String)> {
    let mut terms: Vec<(&'static str, String)> =
        document.exact.iter().map(|(field, value)| (field.name(), value.clone())).collect();
    terms.extend(document.organization_id.iter().map(|id| (ORGANIZATION_ID, id.clone())));
    for (sort, key) in &document.identities {
        terms.push((IDENTITY, key.clone()));
        match sort {
            IdentitySort::Name => terms.push((NAME, key.clone())),
            IdentitySort::Code => terms.push((CODE, key.clone())),
            IdentitySort::Uuid => {}
        }
    }
    terms.extend(document.serial.iter().map(|serial| (SERIAL_END, serial.chars().rev().collect())));
    terms
}

/// The order among documents that match equally well: live before others, then newer before older. It has 48 bits.
fn document_rank(document: &SearchDocument) -> u64 {
    let at = u64::try_from(document.changed_at.as_millis()).unwrap_or_default();
    u64::from(document.is_live) << LIVE_BIT | at.min((1 << LIVE_BIT) - 1)
}

const LIVE_BIT: u32 = 47;

/// Whether a document is live, and when it changed.
pub fn split_rank(rank: u64) -> (bool, u64) {
    (rank >> LIVE_BIT & 1 == 1, rank & ((1 << LIVE_BIT) - 1))
}

/// The order among documents with equal ranks: the first letters of the title, then an arbitrary but stable hash.
fn tie_breaker(document: &SearchDocument) -> (u64, u64) {
    let number = |bytes: &[u8]| {
        let mut first = [0; 8];
        first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_be_bytes(first)
    };
    let key = [document.kind.as_str(), "\0", &document.id].concat();
    (number(fold_text(&document.title).as_bytes()), number(&sha256(key.as_bytes())))
}

/// Splits a text of [`build_entry`]: the owner, then tokens, each after [`NEXT`] or [`SAME`]. Emits every token prefixed with the owner.
#[derive(Clone, Default)]
struct OwnerTokenizer {
    token: Token,
}

struct OwnerTokens<'a> {
    prefix: &'a str,
    rest: &'a str,
    token: &'a mut Token,
}

impl Tokenizer for OwnerTokenizer {
    type TokenStream<'a> = OwnerTokens<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> OwnerTokens<'a> {
        self.token.reset();
        let (prefix, rest) = text.split_at_checked(OWNER_LEN).unwrap_or((text, ""));
        OwnerTokens { prefix, rest, token: &mut self.token }
    }
}

impl TokenStream for OwnerTokens<'_> {
    fn advance(&mut self) -> bool {
        loop {
            let mut chars = self.rest.chars();
            let Some(separator) = chars.next() else { return false };
            let rest = chars.as_str();
            let end = rest.find([NEXT, SAME, GAP]).unwrap_or(rest.len());
            let (text, rest) = rest.split_at(end);
            self.rest = rest;
            // `reset` leaves `usize::MAX`, so the first token is at position 0.
            self.token.position = self.token.position.wrapping_add(usize::from(separator != SAME));
            if separator != GAP {
                self.token.text.clear();
                self.token.text.push_str(self.prefix);
                self.token.text.push_str(text);
                return true;
            }
        }
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}
