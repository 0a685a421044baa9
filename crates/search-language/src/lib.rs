//! The language of `q`: words, `"phrases"`, `-exclusions` and `field:value`, all of which must hold.
//!
//! There is no `OR`, no brackets, no wildcards and no ranges: a search box is no query language, and every word also matches
//! as a prefix. What people paste is text, whatever signs it has: quotes without a partner, colons and dashes are ignored.
//! The parser reads a text of any length in one pass.

pub mod addresses;
pub mod fields;
pub mod fold;
pub mod highlight;
mod identity;
#[cfg(test)]
mod random;
mod reader;
pub mod spellings;
pub mod text_words;
pub mod typos;

use std::fmt;

pub use fields::QueryField;
pub use identity::Identity;
use reader::QueryReader;

/// The longest query, in characters. The caller refuses longer ones.
pub const Q_CHARS_MAX: usize = 200;
/// The words and phrases that are looked up: each costs a walk through the index. Nobody types more, and the first words of
/// a pasted text are enough to find it; further ones are ignored.
pub const WORDS_MAX: usize = 16;
/// The fields and exclusions of a query. None is ignored, and a query that the caller accepts has fewer.
pub const FILTERS_MAX: usize = 100;

/// The clauses that a record must match and those that it must not match. `must` is never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedQuery {
    pub must: Vec<Clause>,
    pub must_not: Vec<Clause>,
    /// The words and phrases of `must` as they were typed, with a space between them.
    pub text: String,
}

/// One condition of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clause {
    /// Text without spaces: `printer`, `web-01.example.com`, `10.0.0.5`, `anna@acme.test`.
    Words(Words),
    /// `"in quotes"`: whole words in a row, without typos.
    Phrase(Tokens),
    /// `#42`: the ticket with this number, and nothing else.
    Number(i64),
    /// `os:windows`: the value is normalized by [`QueryField::normalize_value`] and compared with the whole stored value.
    Field { field: QueryField, value: String },
}

impl Clause {
    /// Whether it looks for text, and not for the value of a field.
    pub fn is_text(&self) -> bool {
        !matches!(self, Clause::Field { .. })
    }
}

/// Text without spaces. A match of one of its meanings is enough without the words.
///
/// The tokens match in a row: the last one as a prefix, the others as whole words. Only a single token may have typos,
/// because a typo in an address would be another address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    pub tokens: Tokens,
    /// A bare number may be the number of a ticket.
    pub number: Option<i64>,
    /// The digits of a hardware address, or of its beginning. The words still count: the same digits may be a serial.
    pub mac: Option<String>,
    /// An IP address in its shortest form.
    pub ip: Option<String>,
    /// The digits of a UUID.
    pub uuid: Option<String>,
    /// The host of a URL or a share.
    pub host: Option<String>,
}

/// Words in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Folded, and never empty in a clause.
    pub folded: Vec<String>,
    /// The same words with their umlauts transcribed, if they have any.
    pub transcribed: Option<Vec<String>>,
}

impl Tokens {
    /// Every spelling of the words.
    pub fn spellings(&self) -> impl Iterator<Item = &[String]> {
        std::iter::once(self.folded.as_slice()).chain(self.transcribed.as_deref())
    }
}

/// Why a query cannot be parsed, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    /// The offset in characters of the query, from 0.
    pub at: usize,
    pub detail: String,
}

impl QueryError {
    pub fn new(at: usize, detail: impl Into<String>) -> Self {
        Self { at, detail: detail.into() }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "At character {}: {}", self.at + 1, self.detail)
    }
}

impl std::error::Error for QueryError {}

/// Parses a query. Only a field that does not exist or cannot have the value, and nothing to look for, are errors.
pub fn parse(q: &str) -> Result<ParsedQuery, QueryError> {
    let mut reader = QueryReader { rest: q, at: 0 };
    let mut query = ParsedQuery::default();
    let mut excluded_at = None;
    let mut words = 0;
    reader.skip_spaces();
    let start = reader.at;
    while !reader.rest.is_empty() {
        let (at, before) = (reader.at, reader.rest);
        if reader.skip_dash() {
            reader.skip_spaces();
            continue;
        }
        let is_excluded = reader.skip_minus();
        match reader.read_clause()? {
            Some(clause) if is_excluded => {
                excluded_at = excluded_at.or(Some(at));
                add_clause(&mut query.must_not, clause);
            }
            Some(clause) if clause.is_text() => {
                let written = before.get(..before.len() - reader.rest.len()).unwrap_or_default();
                query.text.push_str(if query.text.is_empty() { "" } else { " " });
                query.text.push_str(written);
                if words < WORDS_MAX && add_clause(&mut query.must, clause) {
                    words += 1;
                }
            }
            Some(clause) => {
                add_clause(&mut query.must, clause);
            }
            None => {}
        }
        if query.must.len() + query.must_not.len() > WORDS_MAX + FILTERS_MAX {
            return Err(QueryError::new(at, format!("A search has at most {FILTERS_MAX} fields and exclusions.")));
        }
        reader.skip_spaces();
    }
    match excluded_at {
        _ if !query.must.is_empty() => Ok(query),
        Some(at) => Err(QueryError::new(at, "Something to look for is needed next to what is excluded with `-`.")),
        None => Err(QueryError::new(start, "Nothing in this can be searched for: a letter or a digit is needed.")),
    }
}

/// Adds a clause unless the query has it already. Says whether it was added.
fn add_clause(clauses: &mut Vec<Clause>, clause: Clause) -> bool {
    let is_new = !clauses.contains(&clause);
    if is_new {
        clauses.push(clause);
    }
    is_new
}

#[cfg(test)]
#[expect(clippy::panic, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::random::TestRandom;
    use super::*;

    const PIECES: [&str; 24] = [
        "a",
        "printer",
        "-",
        "\"",
        "“",
        "„",
        ":",
        "os:",
        "type:",
        "foo:",
        "device",
        "#",
        "42",
        " ",
        "  ",
        "\u{a0}",
        "–",
        "é",
        "02:fc:00:00:00:01",
        "fe80::1",
        "://",
        "\0",
        "東",
        ".",
    ];

    fn tokens(folded: &[&str]) -> Tokens {
        Tokens { folded: folded.iter().map(|&token| token.to_owned()).collect(), transcribed: None }
    }

    fn words_clause(folded: &[&str]) -> Clause {
        Clause::Words(words(folded))
    }

    fn phrase_clause(folded: &[&str]) -> Clause {
        Clause::Phrase(tokens(folded))
    }

    fn field_clause(field: QueryField, value: &str) -> Clause {
        Clause::Field { field, value: value.to_owned() }
    }

    fn parse_must(q: &str) -> Vec<Clause> {
        parse(q).unwrap_or_else(|error| panic!("{q}: {error}")).must
    }

    #[test]
    fn words_are_read_as_people_type_them() {
        for (q, expected) in [
            (" Printer\tZoë ", vec![words_clause(&["printer"]), words_clause(&["zoe"])]),
            ("web-01.Example.com", vec![words_clause(&["web", "01", "example", "com"])]),
            ("10.0.0 anna@acme.test", vec![words_clause(&["10", "0", "0"]), words_clause(&["anna", "acme", "test"])]),
            ("Smith & Sons, – −", vec![words_clause(&["smith"]), words_clause(&["sons"])]),
            ("24\" foo\"bar", vec![words_of_number("24", 24), words_clause(&["foo", "bar"])]),
            ("東京", vec![words_clause(&["東", "京"])]),
            ("–x −y", vec![words_clause(&["x"]), words_clause(&["y"])]),
            (
                "Outlook - cannot send -",
                vec![words_clause(&["outlook"]), words_clause(&["cannot"]), words_clause(&["send"])],
            ),
            ("a A a", vec![words_clause(&["a"])]),
            ("\"foo:bar\"", vec![phrase_clause(&["foo", "bar"])]),
            // What is pasted is text.
            ("C: drive full", vec![words_clause(&["c"]), words_clause(&["drive"]), words_clause(&["full"])]),
            ("error: denied", vec![words_clause(&["error"]), words_clause(&["denied"])]),
            ("x os:", vec![words_clause(&["x"]), words_clause(&["os"])]),
            ("os: windows", vec![words_clause(&["os"]), words_clause(&["windows"])]),
            ("é „open", vec![words_clause(&["e"]), words_clause(&["open"])]),
            ("a \"b c", vec![words_clause(&["a"]), words_clause(&["b"]), words_clause(&["c"])]),
            ("os:\"open x", vec![field_clause(QueryField::Os, "open"), words_clause(&["x"])]),
            ("x \"&\" -& -\"&\"", vec![words_clause(&["x"])]),
            ("RE: AW: x", vec![words_clause(&["x"])]),
            (
                "https://intra/x",
                vec![Clause::Words(Words { host: Some("intra".to_owned()), ..words(&["intra", "x"]) })],
            ),
        ] {
            assert_eq!(parse_must(q), expected, "{q}");
        }
    }

    fn words(folded: &[&str]) -> Words {
        Words { tokens: tokens(folded), ..Words::default() }
    }

    fn words_of_number(token: &str, number: i64) -> Clause {
        Clause::Words(Words { number: Some(number), ..words(&[token]) })
    }

    #[test]
    fn a_number_may_be_that_of_a_ticket_and_with_a_hash_is_nothing_else() {
        for (q, expected) in [
            ("42", words_of_number("42", 42)),
            ("042,", words_of_number("042", 42)),
            ("#42", Clause::Number(42)),
            ("(#42).", Clause::Number(42)),
            ("＃４２", Clause::Number(42)),
            ("\"42\"", phrase_clause(&["42"])),
            ("0", words_clause(&["0"])),
            ("#x1", words_clause(&["x1"])),
            ("#99999999999999999999", words_clause(&["99999999999999999999"])),
        ] {
            assert_eq!(parse_must(q), [expected], "{q}");
        }
    }

    #[test]
    fn phrases_fields_and_exclusions_are_read() {
        let q = "„Blue Screen” OS:\"Windows  11\" type:device mac:02-FC-00-00-00-01 \
                 -old -\"not this\" -status:closed -#7 ip:fe80:0::1";
        let query = parse(q).unwrap();
        let expected = [
            phrase_clause(&["blue", "screen"]),
            field_clause(QueryField::Os, "windows 11"),
            field_clause(QueryField::Type, "device"),
            field_clause(QueryField::Mac, "02fc00000001"),
            field_clause(QueryField::Ip, "fe80::1"),
        ];
        assert_eq!(query.must, expected);
        let expected = [
            words_clause(&["old"]),
            phrase_clause(&["not", "this"]),
            field_clause(QueryField::Status, "closed"),
            Clause::Number(7),
        ];
        assert_eq!(query.must_not, expected);
        assert_eq!(parse_must("\"a\"b\"c\""), [phrase_clause(&["a"]), words_clause(&["b", "c"])]);
    }

    #[test]
    fn an_error_names_the_place() {
        let many: Vec<String> = (10..=10 + FILTERS_MAX + WORDS_MAX).map(|number| format!("-w{number}")).collect();
        let many = many.join(" ");
        for (q, at, part) in [
            ("é foo:bar", 2, "no field `foo`. The fields are type, status,"),
            ("-foo:bar", 1, "in quotes: \"foo:…\""),
            ("abc:def", 0, "no field `abc`"),
            (" -a -b", 1, "next to what is excluded"),
            (" & …", 1, "a letter or a digit"),
            ("", 0, "a letter or a digit"),
            ("type:printer", 5, "device, user, organization"),
            ("number:x", 7, "digits alone"),
            ("type:printer os:", 5, "device, user, organization"),
            ("Foo:\"bar", 0, "no field `Foo`"),
            (" -a \"&\"", 1, "next to what is excluded"),
            (many.as_str(), 5 * 90 + 6 * (FILTERS_MAX + WORDS_MAX - 90), "at most 100"),
        ] {
            let error = parse(q).unwrap_err();
            assert_eq!(error.at, at, "{q}: {error}");
            assert!(error.detail.contains(part), "{q}: {error}");
        }
    }

    #[test]
    fn of_a_long_text_the_first_words_are_looked_up_and_every_filter_counts() {
        let many: Vec<String> = (1..=30).map(|number| format!("word{number} -not{number}")).collect();
        let query = parse(&format!("{} type:ticket", many.join(" "))).unwrap();
        assert_eq!((query.must.len(), query.must_not.len()), (WORDS_MAX + 1, 30));
        assert_eq!(query.must.last(), Some(&field_clause(QueryField::Type, "ticket")));
        assert!(query.text.ends_with("word29 word30"), "{}", query.text);
        assert_eq!(parse_must(&format!("{}b", "a ".repeat(40))), [words_clause(&["a"]), words_clause(&["b"])]);
    }

    #[test]
    fn any_text_is_read_or_refused_at_a_place_within_it() {
        let mut random = TestRandom::new(2);
        for _ in 0..20_000 {
            let q = random.random_text(&PIECES, 20);
            match parse(&q) {
                Ok(query) => {
                    assert!(!query.must.is_empty(), "{q:?}");
                    assert!(query.must.iter().filter(|clause| clause.is_text()).count() <= WORDS_MAX, "{q:?}");
                    assert_eq!(query.must.iter().any(Clause::is_text), !query.text.is_empty(), "{q:?}");
                    query.identity();
                }
                Err(error) => assert!(error.at < q.chars().count() || q.trim().is_empty(), "{q:?}: {error}"),
            }
        }
    }

    /// If the parser read anything twice, the slowest of these would take minutes.
    #[test]
    fn a_long_text_is_read_in_one_pass() {
        for piece in
            ["a", "os:\"a\"", "\"a\"", "a:", "-", "#", "a ", "ad:be:", "東", "\"a\"ad:be:", "os:a ", "é\u{301}"]
        {
            let q = piece.repeat(65_536 / piece.len());
            let error = parse(&q).err();
            assert!(error.is_none_or(|error| error.detail.len() < 400), "{piece}");
        }
    }
}
