//! The language of `q`: words, `"phrases"`, `-exclusions` and `field:value`, all of which must hold.
//!
//! There is no `OR`, no brackets, no wildcards and no ranges: a search box is no query language, and every word also matches
//! as a prefix. The parser reads a text of any length in one pass.

pub mod fields;
pub mod fold;
pub mod highlight;
#[cfg(test)]
mod random;
mod reader;
pub mod typos;

use std::fmt;

pub use fields::QueryField;
use reader::QueryReader;

/// The longest query, in characters. The caller refuses longer ones.
pub const Q_CHARS_MAX: usize = 200;
/// Each clause costs a lookup in the index. Nobody types more, and the first words of a pasted text are enough to find it.
pub const CLAUSES_MAX: usize = 16;

/// The clauses that a record must match and those that it must not match. `must` is never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedQuery {
    pub must: Vec<Clause>,
    pub must_not: Vec<Clause>,
}

/// One condition of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clause {
    /// Text without spaces: `printer`, `web-01.example.com`, `10.0.0.5`, `anna@acme.test`.
    ///
    /// The tokens match in a row: the last one as a prefix, the others as whole words. Only a single token may have
    /// typos, because a typo in an address would be another address. A match of `number` or `mac` is enough without the
    /// words.
    Words {
        tokens: Vec<String>,
        /// A bare number may be the number of a ticket.
        number: Option<i64>,
        /// The twelve digits of a hardware address. The words still count: the same digits may be a serial or an account.
        mac: Option<String>,
    },
    /// `"in quotes"`: whole words in a row, without typos.
    Phrase(Vec<String>),
    /// `#42`: the ticket with this number, and nothing else.
    Number(i64),
    /// `os:windows`: the value is normalized by [`QueryField::normalize_value`] and compared with the whole stored value.
    Field { field: QueryField, value: String },
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

/// Parses a query. Standalone punctuation is ignored, as in `Smith & Sons`; incomplete syntax is an error.
pub fn parse(q: &str) -> Result<ParsedQuery, QueryError> {
    let mut reader = QueryReader { rest: q, at: 0 };
    let mut query = ParsedQuery::default();
    let mut excluded_at = None;
    reader.skip_spaces();
    let start = reader.at;
    while !reader.rest.is_empty() {
        let at = reader.at;
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
            Some(clause) => add_clause(&mut query.must, clause),
            None if is_excluded => {
                return Err(QueryError::new(at, "Nothing that can be searched for follows the `-`."));
            }
            None => {}
        }
        if query.must.len() + query.must_not.len() > CLAUSES_MAX {
            return Err(QueryError::new(at, format!("A search has at most {CLAUSES_MAX} parts.")));
        }
        reader.skip_spaces();
    }
    match excluded_at {
        _ if !query.must.is_empty() => Ok(query),
        Some(at) => Err(QueryError::new(at, "Something to look for is needed next to what is excluded with `-`.")),
        None => Err(QueryError::new(start, "Nothing in this can be searched for: a letter or a digit is needed.")),
    }
}

/// Adds a clause unless the query has it already.
fn add_clause(clauses: &mut Vec<Clause>, clause: Clause) {
    if !clauses.contains(&clause) {
        clauses.push(clause);
    }
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

    fn words_clause(tokens: &[&str]) -> Clause {
        Clause::Words { tokens: tokens.iter().map(|&token| token.to_owned()).collect(), number: None, mac: None }
    }

    fn phrase_clause(tokens: &[&str]) -> Clause {
        Clause::Phrase(tokens.iter().map(|&token| token.to_owned()).collect())
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
            (" Printer\tZürich ", vec![words_clause(&["printer"]), words_clause(&["zurich"])]),
            ("web-01.Example.com", vec![words_clause(&["web", "01", "example", "com"])]),
            (
                "10.0.0.5 anna@acme.test",
                vec![words_clause(&["10", "0", "0", "5"]), words_clause(&["anna", "acme", "test"])],
            ),
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
        ] {
            assert_eq!(parse_must(q), expected, "{q}");
        }
    }

    fn words_of_number(token: &str, number: i64) -> Clause {
        Clause::Words { tokens: vec![token.to_owned()], number: Some(number), mac: None }
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
        let many: Vec<String> = (10..=10 + CLAUSES_MAX).map(|number| format!("w{number}")).collect();
        let many = many.join(" ");
        for (q, at, part) in [
            ("é foo:bar", 2, "no field `foo`. The fields are type, status,"),
            ("-foo:bar", 1, "in quotes: \"foo:…\""),
            ("abc:def", 0, "no field `abc`"),
            ("x os:", 2, "`os:` needs a value"),
            ("os: windows", 0, "`os:` needs a value"),
            ("os:\"\"", 0, "`os:` needs a value"),
            ("é „open", 2, "not closed"),
            ("os:\"open", 3, "not closed"),
            ("x \"&\"", 2, "Between these quotes"),
            (" -a -b", 1, "next to what is excluded"),
            (" & …", 1, "a letter or a digit"),
            ("", 0, "a letter or a digit"),
            ("a -&", 2, "follows the `-`"),
            ("type:printer", 5, "device, user, organization"),
            ("number:x", 7, "digits alone"),
            (many.as_str(), 4 * CLAUSES_MAX, "at most 16"),
        ] {
            let error = parse(q).unwrap_err();
            assert_eq!(error.at, at, "{q}: {error}");
            assert!(error.detail.contains(part), "{q}: {error}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused_at_a_place_within_it() {
        let mut random = TestRandom::new(2);
        for _ in 0..20_000 {
            let q = random.random_text(&PIECES, 20);
            match parse(&q) {
                Ok(query) => {
                    assert!(!query.must.is_empty(), "{q:?}");
                    assert!(query.must.len() + query.must_not.len() <= CLAUSES_MAX, "{q:?}");
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
