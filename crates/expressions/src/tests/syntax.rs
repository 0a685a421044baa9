//! Our parser accepts what the parser of the crate `cel` accepts, and both make the same tree of it.

use super::super::node::{ExpressionNode, LoopKind};
use super::super::{Expression, ExpressionError, end_of_template};
use super::fuzz::{FuzzRandom, change_letters};
use super::{cel_parser, on_a_small_stack};

/// In a debug build some thousands take a second.
const ROUNDS: usize = 6_000;
/// At least this many must be accepted, and as many refused: otherwise the grammar covers too little.
const EACH_MIN: usize = 500;

/// Where the two differ on purpose: source, whether we accept it, and why.
const DIFFERENCES: &[(&str, bool, &str)] = &[
    ("-0x8000000000000000", true, "the smallest integer can be hexadecimal in CEL"),
    ("[1].map(.x, .x)", false, "a variable has no dot before it in CEL"),
    ("[1].map(!!x, x)", false, "cel takes a name that is negated twice for a name"),
];

/// Refused without a place, where `cel` goes on and finds something worse.
const WITHOUT_PLACE: [&str; 2] = ["There are no messages", "A name has no dot"];

/// Fails unless both parsers refuse the source, or make the same tree of it. Says whether it was accepted.
#[track_caller]
pub fn assert_same_syntax(source: &str) -> bool {
    assert_same_template(source);
    match (Expression::parse(source), cel_parser::parse_expression(source)) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{source:?}");
            true
        }
        (Err(ExpressionError::Invalid { detail, at }), Err(ExpressionError::Invalid { at: theirs, .. })) => {
            let may_lack_place = theirs.is_none() || WITHOUT_PLACE.iter().any(|part| detail.contains(part));
            assert!(at.is_some() || may_lack_place, "{source:?}: {detail} Where?");
            false
        }
        // `cel` has neither these macros nor names between backticks.
        (Ok(ours), Err(_)) if has_newer_macro(&ours.node) || source.contains('`') => true,
        (ours, theirs) => panic!("{source:?}: {ours:?}, cel {theirs:?}"),
    }
}

/// Whether there are macros of two variables, `sortBy`, `cel.bind` or macros of optional values.
fn has_newer_macro(node: &ExpressionNode) -> bool {
    let mut found = match node {
        ExpressionNode::Loop(inner) => inner.has_two_variables || inner.kind == LoopKind::SortBy,
        ExpressionNode::Bind(_) | ExpressionNode::OptionalMap(_) => true,
        _ => false,
    };
    node.visit_children(&mut |child| found |= has_newer_macro(child));
    found
}

/// Compares the ends of templates where the expression before the end can be accepted at all.
#[track_caller]
fn assert_same_template(source: &str) {
    if source.contains('`') {
        return;
    }
    let ours = end_of_template(source).ok().filter(|end| Expression::parse(&source[..*end]).is_ok());
    let theirs = cel_parser::end_of_template(source).ok();
    let theirs = theirs.filter(|end| cel_parser::parse_expression(&source[..*end]).is_ok());
    assert_eq!(ours, theirs, "{source:?}");
}

const LITERALS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "1",
    "007",
    "42u",
    "0x1F",
    "0Xau",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615u",
    "18446744073709551616u",
    "1.5",
    ".5",
    "1e3",
    "1.5E-3",
    "1e+400",
    "''",
    "'a'",
    "\"é\"",
    "'''a'b'''",
    "\"\"\"a\"\n\"b\"\"\"",
    "r'\\d'",
    "R\"\\\"",
    "r'''\\'''",
    "'\\a\\b\\f\\n\\r\\t\\v\\\\\\'\\\"\\`\\?'",
    "'\\x41\\X7a\\u00e9\\U0001F600\\101\\377'",
    "'\\q'",
    "'\\400'",
    "'\\ud800'",
    "'\\u+123'",
    "'a\r\nb\rc'",
    "'}}'",
    "b'x'",
    "bR'\\x'",
    "b'\\377\\x00'",
    "b'\\u0041'",
    "`a`",
];
const NAMES: &[&str] =
    &["input", "event", "run", "now", "steps.a", "steps['b']", "x", "y", "int", "type", "steps", "z"];
const FIELDS: &[&str] = &["a", "`a-b/c d`", "?a", "?`b.c`", "b_1", "_c", "if", "size", "steps", "rb", "in", "null"];
const BINARY: &[&str] =
    &["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||", "&&", "||", "=", "&"];
const GLOBALS: &[&str] = &["size", "int", "string", "has", "dyn", "duration", "all", "nosuch"];
const METHODS: &[&str] = &["size", "contains", "trim", "split", "getHours", "matches", "int", "has"];
const LOOPS: &[&str] = &["all", "exists", "exists_one", "existsOne", "map", "filter"];
const BLANKS: &[&str] = &[" ", " ", " ", "", "", "\n", "\t\r\n", " // '{' \n"];

/// Writes random expressions by the grammar of CEL.
struct Writer<'r> {
    random: &'r mut FuzzRandom,
    source: String,
}

impl Writer<'_> {
    fn pick<'t>(&mut self, rows: &[&'t str]) -> &'t str {
        rows[self.random.next_below(rows.len())]
    }

    fn write(&mut self, token: &str) {
        let blank = self.pick(BLANKS);
        self.source.push_str(token);
        self.source.push_str(blank);
    }

    fn write_one_of(&mut self, rows: &[&str]) {
        let token = self.pick(rows);
        self.write(token);
    }

    fn write_expression(&mut self, depth: usize) {
        let form = if depth == 0 { self.random.next_below(2) } else { self.random.next_below(14) };
        let depth = depth.saturating_sub(1);
        match form {
            0 => self.write_one_of(LITERALS),
            1 => self.write_one_of(NAMES),
            2 => {
                for _ in 0..=self.random.next_below(3) {
                    self.write_one_of(&["!", "-", "-"]);
                }
                self.write_expression(depth);
            }
            3..=5 => {
                self.write_expression(depth);
                for _ in 0..=self.random.next_below(3) {
                    self.write_one_of(BINARY);
                    self.write_expression(depth);
                }
            }
            6 => {
                self.write_expression(depth);
                self.write("?");
                self.write_expression(depth);
                self.write(":");
                self.write_expression(depth);
            }
            7 => self.write_list("[", "]", depth),
            8 => self.write_map(depth),
            9 => {
                self.write("(");
                self.write_expression(depth);
                self.write(")");
            }
            10 => {
                self.write_one_of(GLOBALS);
                self.write_list("(", ")", depth);
            }
            11 => {
                self.write_expression(depth);
                self.write(".");
                self.write_one_of(FIELDS);
            }
            12 => {
                self.write_expression(depth);
                self.write("[");
                self.write_optional_mark();
                self.write_expression(depth);
                self.write("]");
            }
            _ => self.write_call(depth),
        }
    }

    fn write_optional_mark(&mut self) {
        if self.random.next_below(12) == 0 {
            self.write("?");
        }
    }

    fn write_list(&mut self, open: &str, close: &str, depth: usize) {
        self.write(open);
        let count = self.random.next_below(4);
        for at in 0..count {
            self.write_optional_mark();
            self.write_expression(depth);
            if at + 1 < count || self.random.next_below(8) == 0 {
                self.write(",");
            }
        }
        self.write(close);
    }

    fn write_map(&mut self, depth: usize) {
        self.write("{");
        let count = self.random.next_below(3);
        for at in 0..count {
            self.write_optional_mark();
            self.write_expression(depth);
            self.write(":");
            self.write_expression(depth);
            if at + 1 < count || self.random.next_below(8) == 0 {
                self.write(",");
            }
        }
        self.write("}");
    }

    fn write_call(&mut self, depth: usize) {
        self.write_expression(depth);
        self.write(".");
        if self.random.next_below(3) == 0 {
            self.write_one_of(METHODS);
            return self.write_list("(", ")", depth);
        }
        self.write_one_of(LOOPS);
        self.write("(");
        self.write_one_of(&["x", "y", "z", "input", "(x)", "x.y", "1", "if"]);
        for _ in 0..=self.random.next_below(2) {
            self.write(",");
            self.write_expression(depth);
        }
        self.write(")");
    }
}

fn compare_all(seed: u64, changed: bool) {
    on_a_small_stack(move || {
        let (mut random, mut counts) = (FuzzRandom(seed), [0_usize; 2]);
        for _ in 0..ROUNDS {
            let mut writer = Writer { random: &mut random, source: String::new() };
            let depth = writer.random.next_below(4);
            writer.write_expression(depth);
            let source = writer.source;
            let source = if changed { change_letters(&source, &mut random) } else { source };
            counts[usize::from(assert_same_syntax(&source))] += 1;
        }
        assert!(counts.iter().all(|count| *count >= EACH_MIN), "refused and accepted: {counts:?}");
    });
}

#[test]
fn random_expressions_are_parsed_as_by_cel() {
    compare_all(0xA076_1D64_78BD_642F, false);
}

#[test]
fn random_expressions_with_a_change_are_parsed_as_by_cel() {
    compare_all(0xE703_7ED1_A0B4_28DB, true);
}

#[test]
fn where_the_parsers_differ_is_known() {
    for (source, accepted, reason) in DIFFERENCES {
        assert_eq!(Expression::parse(source).is_ok(), *accepted, "{source}: {reason}");
        assert_eq!(cel_parser::parse_expression(source).is_ok(), !*accepted, "{source}: {reason}");
    }
}
