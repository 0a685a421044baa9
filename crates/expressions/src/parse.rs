//! Parses source text into an `Expression`. The source is bounded before anything recurses over it.

use cel::parser::PrattParser;
use cel::parser::pratt_parser::{Lexer, TokenKind};

use super::{Expression, ExpressionError, lower};

/// A longer expression is a program, which belongs elsewhere.
pub const SOURCE_BYTES_MAX: usize = 2_048;
/// The parser recurses, and copies the receiver of each call: these limits keep it within a tenth of a thread's stack and
/// within a millisecond.
pub const TOKENS_MAX: usize = 256;
pub const NESTING_MAX: usize = 24;
const NESTING_MAX_U16: u16 = 24;

pub fn parse_expression(source: &str) -> Result<Expression, ExpressionError> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(ExpressionError::invalid(format!("An expression has at most {SOURCE_BYTES_MAX} bytes.")));
    }
    check_token_limits(source)?;
    let parser = PrattParser::new().max_recursion_depth(NESTING_MAX_U16).error_recovery_limit(1);
    let parsed = parser.parse(source).map_err(|errors| {
        // The first error with a position; later ones follow from it.
        let first = errors.errors.into_iter().find(|error| error.pos.0 > 0);
        let Some(error) = first else { return ExpressionError::invalid("This is not an expression.") };
        let position = (u32::try_from(error.pos.0).unwrap_or(1), u32::try_from(error.pos.1).unwrap_or(1));
        ExpressionError::Invalid { detail: to_sentence(&error.msg), at: Some(position) }
    })?;
    lower::lower_expression(source, &parsed.expr)
}

fn check_token_limits(source: &str) -> Result<(), ExpressionError> {
    let (mut lexer, mut tokens, mut open) = (Lexer::new(source), 0, 0_usize);
    loop {
        let token = lexer.lex();
        match token.kind {
            TokenKind::TokEnd => break,
            TokenKind::TokError => {
                let detail = lexer.get_error().map_or("unknown character", |error| error.message.as_str());
                return Err(ExpressionError::invalid_at(to_sentence(detail), source, token.start));
            }
            TokenKind::TokWhitespace | TokenKind::TokComment => continue,
            TokenKind::TokLeftParen | TokenKind::TokLeftBracket | TokenKind::TokLeftBrace => open += 1,
            TokenKind::TokRightParen | TokenKind::TokRightBracket | TokenKind::TokRightBrace => {
                open = open.saturating_sub(1);
            }
            _ => {}
        }
        tokens += 1;
        if tokens > TOKENS_MAX {
            let detail = format!("An expression has at most {TOKENS_MAX} names, numbers, texts and signs.");
            return Err(ExpressionError::invalid_at(detail, source, token.start));
        }
        if open > NESTING_MAX {
            let detail = format!("Brackets can be at most {NESTING_MAX} deep.");
            return Err(ExpressionError::invalid_at(detail, source, token.start));
        }
    }
    if tokens == 0 {
        return Err(ExpressionError::invalid("An expression cannot be empty."));
    }
    Ok(())
}

/// The offset at which the expression at the start of `rest` ends: the first `}}` that closes no brace of the expression.
/// Braces in its string literals do not count.
pub fn end_of_template(rest: &str) -> Result<usize, ExpressionError> {
    let unended = || ExpressionError::invalid("${{ has no end: }} is missing.");
    let (mut lexer, mut open) = (Lexer::new(rest), 0_usize);
    loop {
        let token = lexer.lex();
        if token.start > SOURCE_BYTES_MAX {
            return Err(ExpressionError::invalid(format!(
                "An expression has at most {SOURCE_BYTES_MAX} bytes, and this one does not end before."
            )));
        }
        match token.kind {
            TokenKind::TokEnd => return Err(unended()),
            TokenKind::TokError => {
                let detail = lexer.get_error().map_or("unknown character", |error| error.message.as_str());
                return Err(ExpressionError::invalid_at(to_sentence(detail), rest, token.start));
            }
            TokenKind::TokLeftBrace => open += 1,
            TokenKind::TokRightBrace if open == 0 => {
                return if rest[token.end..].starts_with('}') { Ok(token.start) } else { Err(unended()) };
            }
            TokenKind::TokRightBrace => open -= 1,
            _ => {}
        }
    }
}

/// A message of the parser as a sentence.
fn to_sentence(message: &str) -> String {
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let mut letters = message.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    let mut sentence: String = first.into_iter().chain(letters).collect();
    if !sentence.ends_with('.') {
        sentence.push('.');
    }
    sentence
}
