//! Regular expressions written by tenants: their syntax, RE2, and their cost.
//!
//! Matching is linear in the text, but not in the text alone: each byte takes time in proportion to the positions of the
//! pattern. So positions are counted and charged.

mod dialect;

use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::{CostMeter, ExpressionError};

/// A longer pattern is not readable.
pub const BYTES_MAX: usize = 256;
const NESTING_MAX: u32 = 32;
/// Positions of a class with characters beyond ASCII: a character has up to four bytes.
const WIDE_CLASS_POSITIONS: usize = 4;
const POSITIONS_MAX: usize = 500;
const COMPILED_BYTES_MAX: usize = 128 << 10;
/// Matching a byte against this many positions takes about as long as other work charged as one byte: a tenth of a
/// millisecond for a thousand bytes.
const POSITIONS_PER_BYTE: usize = 4;
/// A match sets up memory for each state of the automaton: a microsecond for a thousand.
const STATES_PER_BYTE: usize = 32;
/// What a compiled pattern holds beside its automaton, measured. The allocator adds up to a quarter to the latter.
const OVERHEAD_BYTES: usize = 1 << 10;

/// A compiled pattern holds one automaton and nothing that grows with use: a tenant can have thousands of patterns.
#[derive(Debug)]
pub struct CompiledPattern {
    automaton: PikeVM,
    /// How many bytes are charged for each byte of text that is matched.
    cost_per_byte: usize,
}

impl CompiledPattern {
    pub fn is_match(&self, text: &str, meter: &mut CostMeter) -> Result<bool, ExpressionError> {
        let of_states = self.automaton.get_nfa().states().len() / STATES_PER_BYTE;
        meter.charge_bytes(text.len().saturating_mul(self.cost_per_byte).saturating_add(of_states))?;
        Ok(self.automaton.is_match(&mut self.automaton.create_cache(), text))
    }

    pub fn heap_bytes(&self) -> usize {
        let of_automaton = self.automaton.get_nfa().memory_usage();
        size_of::<Self>() + of_automaton + of_automaton / 4 + OVERHEAD_BYTES
    }
}

/// The pattern of `matches`, or why it is refused.
pub fn compile_pattern(pattern: &str) -> Result<CompiledPattern, String> {
    check_length(pattern)?;
    dialect::check_dialect(pattern)?;
    let regex = as_ascii(pattern);
    let positions = count_hir_positions(&parse_regex(&regex)?);
    let too_large = "The pattern is too large once its repetitions are written out.";
    if positions > POSITIONS_MAX {
        return Err(too_large.to_owned());
    }
    let automaton = PikeVM::builder()
        .syntax(syntax::Config::new().utf8(false).nest_limit(NESTING_MAX))
        .thompson(
            thompson::Config::new()
                .utf8(false)
                .which_captures(WhichCaptures::None)
                .nfa_size_limit(Some(COMPILED_BYTES_MAX)),
        )
        .build(&regex);
    Ok(CompiledPattern {
        automaton: automaton.map_err(|_| too_large)?,
        cost_per_byte: 1 + positions / POSITIONS_PER_BYTE,
    })
}

/// The pattern with the classes of RE2: `\d`, `\w`, `\s` and `\b` know ASCII alone, which also keeps them small.
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
            Some('b') => text.push_str("(?-u:\\b)"),
            Some('B') => text.push_str("(?-u:\\B)"),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}

pub fn check_length(pattern: &str) -> Result<(), String> {
    if pattern.len() > BYTES_MAX {
        return Err(format!("A pattern has at most {BYTES_MAX} bytes."));
    }
    Ok(())
}

/// The number of positions of a pattern once repetitions are expanded, or why the pattern is invalid.
pub fn count_regex_positions(regex: &str) -> Result<usize, String> {
    parse_regex(regex).map(|parsed| count_hir_positions(&parsed))
}

fn parse_regex(regex: &str) -> Result<Hir, String> {
    let parsed = ParserBuilder::new().nest_limit(NESTING_MAX).utf8(false).build().parse(regex);
    parsed.map_err(|error| wrong_pattern(&error.to_string()))
}

/// The error of the parser shows the pattern in several lines; the last line is the message.
fn wrong_pattern(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
    format!("The pattern is wrong: {last}.")
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
