//! Patterns: what they match, what they cost, and which are refused.

use super::super::pattern::{as_ascii, check_length, compile_pattern, count_regex_positions};
use super::test_meter;

fn matches(pattern: &str, text: &str) -> bool {
    compile_pattern(pattern).unwrap().is_match(text, &mut test_meter()).unwrap()
}

#[test]
fn classes_are_of_ascii() {
    assert!(matches(r"^\d\w\s$", "1_ ") && !matches(r"^\w$", "é") && matches(r"^\W$", "é") && !matches(r"\d", "٣"));
    assert!(matches(r"^[\w.-]+@[^\s@]+$", "a.b-c@d.e") && !matches(r"^[\w-]+$", "a b"));
    assert!(matches(r"^[^\W\d]$", "a") && !matches(r"^[^\W\d]$", "1"));
    assert!(matches(r"^\\w$", r"\w") && matches(r"a\b é", "a é") && matches(r"\bé", "aé") && !matches(r"a\Bé", "aé"));
}

#[test]
fn repetitions_are_written_out() {
    let count_positions = |pattern: &str| {
        check_length(pattern)?;
        count_regex_positions(&as_ascii(pattern))
    };
    for (pattern, positions) in [
        ("abc", 3),
        ("a*b+c?", 3),
        ("a{10}", 10),
        ("(a{10}){10}", 100),
        (".", 4),
        ("é", 2),
        (r"\w{3}", 3),
        ("a|bc", 3),
        ("^$", 2),
        ("(a{1000}){1000}", 1_000_000),
    ] {
        assert_eq!(count_positions(pattern), Ok(positions), "{pattern}");
    }
    for pattern in ["(", "(?=a)", "[b-a]", "a{2,1}", r"\", r"(a)\1", &"(".repeat(100), &"a".repeat(257)] {
        assert!(count_positions(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn what_means_something_else_in_re2_is_refused() {
    for (pattern, reason) in [
        (r"\<a", "the signs < and >"),
        (r"a\>", "the signs < and >"),
        (r"\b{start}a", r"no \b{…}"),
        ("[a-z&&[^c]]", "&& within a class"),
        ("[a-z--c]", "-- within a class"),
        ("[a-c~~b-d]", "~~ within a class"),
        ("[a[b]]", "a [ within a class"),
        ("(?x)a b", "no flag x"),
        ("(?u:a)", "no flag u"),
        ("(?R)a$", "no flag R"),
        ("a{,3}", "expects a valid decimal"),
        ("a{1, 3}", "is no repetition"),
        ("[--a]", "are ranges"),
        ("[^--]", "are ranges"),
        ("[]-a]", "are ranges"),
        ("a**", "repeats no repetition"),
        ("a*+", "repeats no repetition"),
        ("a{2}{3}", "repeats no repetition"),
        (r"\u0041", r"no \u"),
        (r"[\U00000041-Z]", r"no \u"),
    ] {
        let refused = compile_pattern(pattern).map(|_| ()).unwrap_err();
        assert!(refused.contains(reason), "{pattern}: {refused}");
    }
    for pattern in [
        "a<b>",
        r"[&-]",
        r"[a\-\-c]",
        "[[:alpha:]_]",
        r"[\[a]",
        "(?i)a(?s:.)",
        "(?i-s:a)",
        "a{0,3}",
        r"\pL\p{Greek}",
        "[^]a]",
        "[]-]",
        "[-a]",
        "[a-]",
        "[^^-]",
    ] {
        assert!(compile_pattern(pattern).is_ok(), "{pattern}");
    }
}

/// A compiled pattern tells how much it holds, and holds no more after it was used.
#[test]
fn a_pattern_holds_little() {
    let small = compile_pattern("^db-[0-9]+$").unwrap();
    assert!(small.heap_bytes() < 4 << 10, "{}", small.heap_bytes());
    let large = compile_pattern(r"\pL{4}").unwrap();
    assert!((32 << 10..256 << 10).contains(&large.heap_bytes()), "{}", large.heap_bytes());
}
