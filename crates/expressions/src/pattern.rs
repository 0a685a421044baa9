//! Regular expressions written by tenants: their syntax and their cost.
//!
//! Matching is linear in the text, but not in the text alone: where the automaton has too many states to cache, each byte
//! takes time in proportion to the positions of the pattern. So positions are counted and charged.

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// A longer pattern is not readable.
pub const BYTES_MAX: usize = 256;
const NESTING_MAX: u32 = 32;
/// Positions of a class with characters beyond ASCII: a character has up to four bytes.
const WIDE_CLASS_POSITIONS: usize = 4;
const POSITIONS_MAX: usize = 500;
const COMPILED_BYTES_MAX: usize = 128 << 10;
const CACHE_BYTES_MAX: usize = 256 << 10;
/// Matching a byte against this many positions takes about as long as other work charged as one byte: a tenth of a
/// millisecond for a thousand bytes.
const POSITIONS_PER_BYTE: usize = 4;

#[derive(Debug)]
pub struct CompiledPattern {
    pub regex: Regex,
    /// How many bytes are charged for each byte of text that is matched.
    pub cost_per_byte: usize,
}

/// The pattern of `matches`, or why it is refused.
pub fn compile_pattern(pattern: &str) -> Result<CompiledPattern, String> {
    let positions = count_positions(pattern)?;
    let too_large = "The pattern is too large once its repetitions are written out.";
    if positions > POSITIONS_MAX {
        return Err(too_large.to_owned());
    }
    let mut builder = RegexBuilder::new(&as_ascii(pattern));
    let regex = builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(CACHE_BYTES_MAX).build();
    let regex = regex.map_err(|_| too_large)?;
    Ok(CompiledPattern { regex, cost_per_byte: 1 + positions / POSITIONS_PER_BYTE })
}

/// The pattern with the classes of RE2: `\d`, `\w` and `\s` match ASCII alone, which also keeps them small.
pub fn as_ascii(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        // Classes can be nested, so the replacement is valid inside a class too.
        match letters.next() {
            Some('d') => text.push_str("[0-9]"),
            Some('D') => text.push_str("[^0-9]"),
            Some('w') => text.push_str("[0-9A-Za-z_]"),
            Some('W') => text.push_str("[^0-9A-Za-z_]"),
            Some('s') => text.push_str("[\\t\\n\\x0C\\r\\x20]"),
            Some('S') => text.push_str("[^\\t\\n\\x0C\\r\\x20]"),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}

/// The number of positions once repetitions are expanded, or why the pattern is invalid.
pub fn count_positions(pattern: &str) -> Result<usize, String> {
    check_length(pattern)?;
    count_regex_positions(&as_ascii(pattern))
}

pub fn check_length(pattern: &str) -> Result<(), String> {
    if pattern.len() > BYTES_MAX {
        return Err(format!("A pattern has at most {BYTES_MAX} bytes."));
    }
    Ok(())
}

/// The same of a pattern as `regex` takes it.
pub fn count_regex_positions(regex: &str) -> Result<usize, String> {
    match ParserBuilder::new().nest_limit(NESTING_MAX).build().parse(regex) {
        Ok(parsed) => Ok(count_hir_positions(&parsed)),
        Err(error) => {
            // The error shows the pattern in several lines; the last line is the message.
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Err(format!("The pattern is wrong: {last}."))
        }
    }
}

fn count_hir_positions(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) if !class.is_ascii() => WIDE_CLASS_POSITIONS,
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            count_hir_positions(&repetition.sub).saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
        }
        HirKind::Capture(capture) => count_hir_positions(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(0, |sum: usize, part| sum.saturating_add(count_hir_positions(part)))
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn classes_are_of_ascii() {
        let matches = |pattern: &str, text: &str| regex::Regex::new(&as_ascii(pattern)).unwrap().is_match(text);
        assert!(matches(r"^\d\w\s$", "1_ ") && !matches(r"^\w$", "é") && matches(r"^\W$", "é") && !matches(r"\d", "٣"));
        assert!(matches(r"^[\w.-]+@[^\s@]+$", "a.b-c@d.e") && !matches(r"^[\w-]+$", "a b"));
        assert!(matches(r"^[^\W\d]$", "a") && !matches(r"^[^\W\d]$", "1"));
        assert!(matches(r"^\\w$", r"\w") && matches(r"(?x) ^ \s $", "\t"));
    }

    #[test]
    fn repetitions_are_written_out() {
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
            assert_eq!(super::count_positions(pattern), Ok(positions), "{pattern}");
        }
        for pattern in ["(", "(?=a)", "[b-a]", "a{2,1}", r"\", r"(a)\1", &"(".repeat(100), &"a".repeat(257)] {
            assert!(super::count_positions(pattern).is_err(), "{pattern}");
        }
    }
}
