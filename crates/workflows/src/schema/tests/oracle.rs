//! Random schemas, values and texts, compared with what the crate `jsonschema` says of them.

use jsonschema::{Draft, PatternOptions, Validator};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use super::super::check_limits;
use super::InputSchema;

const SEED: [u8; 32] = *b"schemas are what jsonschema says";
const CASES: u32 = 4_000;
const VALUES: usize = 12;
/// At least this many schemas must be refused, and this many values accepted and refused: else the grammar has too little.
const EACH_MIN: usize = 300;

const SCHEMA_KEYWORDS: [&str; 9] =
    ["items", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not", "contentSchema"];
const LIST_KEYWORDS: [&str; 4] = ["prefixItems", "allOf", "anyOf", "oneOf"];
const ENTRY_KEYWORDS: [&str; 5] = ["properties", "dependentSchemas", "dependencies", "$defs", "definitions"];
const SIZE_KEYWORDS: [&str; 8] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"];
const NUMBER_KEYWORDS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const NAMES: [&str; 6] = ["a", "b", "ab", "c/d", "", "~é"];
const TYPES: [&str; 8] = ["array", "boolean", "integer", "null", "number", "object", "string", "text"];
const PATTERNS: [&str; 30] = [
    "^a",
    "b$",
    "^ab$",
    "^(a|b)$",
    r"^\S*$",
    r"\s",
    r"^\d+$",
    r"\D",
    r"^\w+$",
    r"^\W$",
    "[a-c]",
    "[^a-c]",
    r"[\w-]",
    r"[\w-z]",
    r"[a-\w]",
    r"[\w--z]",
    "[a&&b]",
    "[a~~b]",
    "[+--]",
    "[a-c--]",
    "[[a]]",
    "[]a]",
    r"[\s\-]",
    r"\a",
    r"[\a]",
    "é|b{2}",
    "a.b",
    r"\p{L}{40}",
    "(?i)A",
    r"^[\d.]*\.$",
];
const TEXTS: [&str; 18] =
    ["", "a", "b", "ab", "abc", "a b", "é", "\u{a0}", "1", "12.", "[", "]", "a]", "&", "-", "--", "+,", "\u{7}"];
const NUMBERS: [&str; 26] = [
    "0",
    "-0.0",
    "1",
    "1.0",
    "2",
    "3",
    "-1",
    "1.5",
    "0.1",
    "0.3",
    "4.35",
    "0.01",
    "1e2",
    "100",
    "7e-3",
    "12345678.9",
    "9007199254740992",
    "9007199254740993",
    "9007199254740992.0",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e19",
    "1e300",
    "-1e300",
    "1e-7",
];

/// Random bytes that make the choices; when none are left, the first choice is taken.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn pick<T: Copy>(&mut self, rows: &[T]) -> T {
        rows[self.pick_below(rows.len())]
    }

    fn pick_below(&mut self, end: usize) -> usize {
        self.0.next().map_or(0, |choice| usize::from(*choice) % end)
    }

    fn number(&mut self) -> Value {
        serde_json::from_str(self.pick(&NUMBERS)).unwrap()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.pick_below(if depth == 0 { 6 } else { 10 }) {
            0 => Value::Null,
            1 => json!(self.pick_below(2) == 0),
            2 | 3 => self.number(),
            4 | 5 => json!(self.pick(&TEXTS)),
            6 | 7 => (0..self.pick_below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let entries = (0..self.pick_below(4)).map(|_| (self.pick(&NAMES).to_owned(), self.value(depth - 1)));
                Value::Object(entries.collect())
            }
        }
    }

    fn names(&mut self) -> Value {
        (0..self.pick_below(3)).map(|_| json!(self.pick(&NAMES))).collect()
    }

    fn schema(&mut self, depth: usize) -> Value {
        if self.pick_below(12) == 0 {
            return json!(self.pick_below(2) == 0);
        }
        let mut entries = Map::new();
        for _ in 0..=self.pick_below(3) {
            let (keyword, value) = self.keyword(depth);
            // Now and then what stands there is anything.
            let value = if self.pick_below(60) == 0 { self.value(1) } else { value };
            entries.insert(keyword.to_owned(), value);
        }
        Value::Object(entries)
    }

    fn keyword(&mut self, depth: usize) -> (&'static str, Value) {
        match self.pick_below(if depth == 0 { 10 } else { 18 }) {
            0 => ("type", json!(self.pick(&TYPES[..7]))),
            1 => ("type", (0..self.pick_below(4)).map(|_| json!(self.pick(&TYPES))).collect()),
            2 => ("const", self.value(2)),
            3 => ("enum", (0..self.pick_below(4)).map(|_| self.value(2)).collect()),
            4 => (self.pick(&SIZE_KEYWORDS), json!(self.pick(&[0.0, 1.0, 2.0, 3.0]))),
            5 | 6 => (self.pick(&NUMBER_KEYWORDS), self.number()),
            7 => ("pattern", json!(self.pick(&PATTERNS))),
            8 => ("uniqueItems", json!(true)),
            9 => ("required", self.names()),
            10 => ("dependentRequired", json!({ self.pick(&NAMES): self.names() })),
            11 => ("dependencies", json!({ self.pick(&NAMES): self.names() })),
            12 => ("patternProperties", json!({ self.pick(&PATTERNS): self.schema(depth - 1) })),
            13 => {
                let keyword = self.pick(&ENTRY_KEYWORDS);
                let entries = (0..3).map(|_| (self.pick(&NAMES).to_owned(), self.schema(depth - 1)));
                (keyword, Value::Object(entries.collect()))
            }
            14 | 15 => {
                let schemas = (0..self.pick_below(4)).map(|_| self.schema(depth - 1)).collect();
                (self.pick(&LIST_KEYWORDS), schemas)
            }
            _ => (self.pick(&SCHEMA_KEYWORDS), self.schema(depth - 1)),
        }
    }
}

fn build_theirs(schema: &Value) -> Option<Validator> {
    let patterns = PatternOptions::regex().size_limit(64 << 10).dfa_size_limit(256 << 10);
    let options = jsonschema::options().with_draft(Draft::Draft202012).offline();
    options.with_pattern_options(patterns).should_validate_formats(true).build(schema).ok()
}

/// They divide floats that are whole and large, or very small, as floats; ours are decimals.
fn is_known_difference(schema: &str, value: &str) -> bool {
    let is_extreme =
        |text: &str| ["e+", "e-", "90071992547409", "18446744073709"].iter().any(|part| text.contains(part));
    schema.contains("multipleOf") && (is_extreme(schema) || is_extreme(value))
}

#[track_caller]
fn run_cases(bytes: usize, case: impl Fn(&mut Choices) -> Result<(), String>) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &SEED));
    let result =
        runner.run(&vec(any::<u8>(), bytes), |numbers| case(&mut Choices(numbers.iter())).map_err(TestCaseError::fail));
    let failed = match result {
        Err(TestError::Abort(reason) | TestError::Fail(reason, _)) => Some(reason.to_string()),
        Ok(()) => None,
    };
    assert_eq!(failed, None);
}

#[test]
fn random_schemas_mean_what_they_mean_to_jsonschema() {
    // Schemas refused; values accepted and refused.
    let seen = std::cell::RefCell::new([0_usize; 3]);
    run_cases(300, |choices| {
        let schema = choices.schema(3);
        if check_limits(&schema).is_err() {
            return Ok(());
        }
        let (ours, theirs) = match (InputSchema::parse(&schema), build_theirs(&schema)) {
            (Ok(ours), Some(theirs)) => (ours, theirs),
            (Err(_), None) => {
                seen.borrow_mut()[0] += 1;
                return Ok(());
            }
            (ours, theirs) => return Err(format!("{schema}: {ours:?}, but theirs {theirs:?}")),
        };
        for _ in 0..VALUES {
            let value = choices.value(3);
            let errors = ours.validate_input(&value);
            seen.borrow_mut()[if errors.is_empty() { 1 } else { 2 }] += 1;
            let is_same = errors.is_empty() == theirs.is_valid(&value);
            if !is_same && !is_known_difference(&schema.to_string(), &value.to_string()) {
                return Err(format!("{schema} of {value}: {errors:?}"));
            }
        }
        Ok(())
    });
    let seen = seen.into_inner();
    assert!(seen.iter().all(|count| *count >= EACH_MIN), "refused, accepted, mismatched: {seen:?}");
}

/// Texts of each format, and letters to change them with. Theirs takes some signs for digits of dates and times.
const SAMPLES: [(&str, &str, &[&str]); 10] = [
    ("date", "01239:x", &["2024-02-29", "2023-12-31", "0000-01-01", "2100-02-28"]),
    ("date-time", "01239:TtZzé", &["2024-02-29T23:59:60Z", "2023-01-01t00:00:00.5+01:30"]),
    ("duration", "01PYMDWTHS-.", &["P1Y2M3DT4H5M6S", "P3W", "PT0S", "P1MT1M", "P1Y"]),
    (
        "email",
        "a1@.-+_ <>\"\\[]:é\u{7}",
        &["a.b@c-d.de", "\"a b\\\"\"@c.de", "a@[127.0.0.1]", "a@[IPv6:::1]", "A B <a+b@c.de>", "\"\"@c"],
    ),
    ("hostname", "aZ1-._é", &["a-b.example.com", "1.2", "xn--bcher-kva.de", "a--b.c"]),
    ("ipv4", "0125.:", &["127.0.0.1", "255.255.255.255"]),
    ("ipv6", "0f:.g", &["::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4"]),
    ("time", "01259:Zz", &["23:59:60Z", "00:29:60+00:30", "15:59:60-08:00", "12:00:00.123z"]),
    (
        "uri",
        "a1:/?#[]@%+.v ~é\"\\",
        &["http://u:p@h.de:80/a/b%20c?d=e#f", "urn:a:b", "http://[::1]:8/", "x://[v1.a:b]", "a:", "http://@h:"],
    ),
    ("uuid", "0aFg-", &["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"]),
];

#[test]
fn changed_texts_are_of_the_format_that_jsonschema_says() {
    let build = |format: &str| {
        let schema = json!({"format": format});
        (InputSchema::parse(&schema).unwrap(), build_theirs(&schema).unwrap())
    };
    let schemas: Vec<_> = SAMPLES.iter().map(|(format, ..)| build(format)).collect();
    run_cases(12, |choices| {
        let at = choices.pick_below(SAMPLES.len());
        let (format, letters, samples) = SAMPLES[at];
        let mut text: Vec<char> = choices.pick(samples).chars().collect();
        let letters: Vec<char> = letters.chars().collect();
        for _ in 0..choices.pick_below(3) {
            let place = choices.pick_below(text.len() + 1);
            match choices.pick_below(3) {
                0 => text.insert(place, choices.pick(&letters)),
                1 if place < text.len() => drop(text.remove(place)),
                _ if place < text.len() => text[place] = choices.pick(&letters),
                _ => {}
            }
        }
        let text: String = text.into_iter().collect();
        // They decode what follows `xn--`.
        let is_same = schemas[at].0.validate_input(&json!(text)).is_empty() == schemas[at].1.is_valid(&json!(text));
        if is_same || text.contains("xn--") { Ok(()) } else { Err(format!("{format}: {text:?}")) }
    });
}

/// The texts of one pattern that the other matches.
#[test]
fn patterns_match_what_they_match_in_jsonschema() {
    let letters: Vec<&str> =
        vec!["[", "]", "^", "-", "a", "z", "&", "~", r"\w", r"\s", r"\d", r"\D", r"\-", "|", "*", "é"];
    run_cases(14, |choices| {
        let pattern: String = (0..9).map(|_| choices.pick(&letters)).collect();
        let schema = json!({ "pattern": pattern });
        // For theirs a class that begins with its end is over, and its other letters are read in two ways.
        if check_limits(&schema).is_err() || pattern.contains("[]") || pattern.contains("[^]") {
            return Ok(());
        }
        let (ours, theirs) = match (InputSchema::parse(&schema), build_theirs(&schema)) {
            (Ok(ours), Some(theirs)) => (ours, theirs),
            (Err(_), None) => return Ok(()),
            (ours, theirs) => return Err(format!("{pattern}: {ours:?}, but theirs {theirs:?}")),
        };
        for text in TEXTS.iter().chain(&["z", "~", "^", "az", "[a", "a-z", "\u{feff}", "\u{b}", "٣"]) {
            if ours.validate_input(&json!(text)).is_empty() != theirs.is_valid(&json!(text)) {
                return Err(format!("{pattern} of {text:?}"));
            }
        }
        Ok(())
    });
}
