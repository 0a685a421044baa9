//! `format`: a text with values in it.

mod clause;

pub use self::clause::push_hexadecimal;

use self::clause::{FormatClause, FormatVerb};
use super::super::node::{ExpressionNode, Literal};
use super::super::value::CelValue;
use super::super::{CostMeter, ExpressionError};
use super::CallResult;

/// More digits than this carry nothing.
const PRECISION_MAX: usize = 100;
const DEFAULT_PRECISION: usize = 6;

/// A text, or a place for a value.
#[derive(Debug)]
enum FormatPiece<'s> {
    Plain(&'s str),
    Clause(FormatClause),
}

/// The next piece of a format, and the rest; `None` at the end.
fn next_piece(format: &str) -> Result<Option<(FormatPiece<'_>, &str)>, String> {
    if format.is_empty() {
        return Ok(None);
    }
    let Some(after) = format.strip_prefix('%') else {
        let end = format.find('%').unwrap_or(format.len());
        let (plain, rest) = format.split_at(end);
        return Ok(Some((FormatPiece::Plain(plain), rest)));
    };
    if let Some(rest) = after.strip_prefix('%') {
        return Ok(Some((FormatPiece::Plain("%"), rest)));
    }
    let (precision, after) = match after.strip_prefix('.') {
        None => (None, after),
        Some(digits) => {
            let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
            let (digits, rest) = digits.split_at(end);
            let precision = digits.parse().ok().filter(|precision| *precision <= PRECISION_MAX);
            let detail = || format!("After %. is a number of digits, at most {PRECISION_MAX}.");
            (Some(precision.ok_or_else(detail)?), rest)
        }
    };
    let letter = after.chars().next();
    let verb = letter.and_then(FormatVerb::find_by_letter).ok_or_else(|| match letter {
        Some(letter) => format!("There is no %{letter} in a format, only %s %d %f %e %b %o %x %X and %%."),
        None => "A format ends with %: a percent sign is written %%.".to_owned(),
    })?;
    let clause = FormatClause { verb, precision: precision.unwrap_or(DEFAULT_PRECISION) };
    let rest = after.get(1..).unwrap_or_default();
    Ok(Some((FormatPiece::Clause(clause), rest)))
}

/// `format.format(values)`
pub fn format<'a>(arguments: &[CelValue<'a>], meter: &mut CostMeter) -> CallResult<'a> {
    let [CelValue::Text(format), values] = arguments else { return Ok(None) };
    if !values.is_list() {
        return Ok(None);
    }
    meter.charge_bytes(format.len())?;
    let (mut text, mut at, mut rest) = (String::new(), 0, &**format);
    while let Some((piece, after)) = next_piece(rest).map_err(ExpressionError::failed)? {
        match piece {
            FormatPiece::Plain(plain) => {
                meter.charge_bytes(plain.len())?;
                text.push_str(plain);
            }
            FormatPiece::Clause(clause) => {
                let value = values.element_at(at).ok_or_else(|| ExpressionError::failed(too_few(at)))?;
                clause.push_value(&value, &mut text, meter)?;
                at += 1;
            }
        }
        rest = after;
    }
    Ok(Some(CelValue::shared_text(text)))
}

fn too_few(count: usize) -> String {
    format!("The format has places for more than the {count} values it is given.")
}

/// What is wrong with a call whose format is a literal.
pub fn check_format(arguments: &[ExpressionNode]) -> Result<(), String> {
    let [ExpressionNode::Literal(Literal::Text(format)), values] = arguments else { return Ok(()) };
    let mut clauses = Vec::new();
    let mut rest = &**format;
    while let Some((piece, after)) = next_piece(rest)? {
        if let FormatPiece::Clause(clause) = piece {
            clauses.push(clause);
        }
        rest = after;
    }
    let ExpressionNode::List(elements) = values else { return Ok(()) };
    if elements.iter().any(|element| element.optional) {
        return Ok(());
    }
    if elements.len() < clauses.len() {
        return Err(too_few(elements.len()));
    }
    if elements.len() > clauses.len() {
        return Err(format!("The format has places for {} values, and is given {}.", clauses.len(), elements.len()));
    }
    for (clause, element) in clauses.iter().zip(elements) {
        if let Some(value) = literal_value(&element.value) {
            let mut meter = CostMeter::new(super::CHECK_STEPS, super::CHECK_BYTES);
            clause.push_value(&value, &mut String::new(), &mut meter).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn literal_value(node: &ExpressionNode) -> Option<CelValue<'_>> {
    let ExpressionNode::Literal(literal) = node else { return None };
    Some(literal.to_value())
}
