//! Parses source text into an `Expression`, by recursive descent with a table of precedences. Names, functions and
//! patterns are resolved on the way, once.
//!
//! A name that is not known is reported only if the syntax is right: a slip of the pen explains more.

mod macros;
mod names;
mod operand;

pub use self::macros::macro_names;

use super::lexer::{Token, TokenKind, read_tokens};
use super::node::{ExpressionNode, Literal, Operator, Root};
use super::paths::collect_paths;
use super::{Expression, ExpressionError};

/// How deep nodes can be nested: evaluation recurses.
const DEPTH_MAX: usize = 128;

type ParseResult = Result<ExpressionNode, ExpressionError>;

pub fn parse_expression(source: &str) -> Result<Expression, ExpressionError> {
    let mut parser = Parser {
        source,
        tokens: read_tokens(source)?,
        next: 0,
        locals: Vec::new(),
        roots: Vec::new(),
        steps: Vec::new(),
        patterns: 0,
        refusals: Vec::new(),
    };
    let node = parser.parse_conditional()?;
    let token = parser.peek_token();
    if token.kind != TokenKind::End {
        return Err(parser.error_at(token, format!("Unexpected {} after the expression.", describe_token(token))));
    }
    if let Some(refusal) = parser.refusals.into_iter().next() {
        return Err(refusal);
    }
    if node.depth() > DEPTH_MAX {
        return Err(ExpressionError::invalid(format!("An expression can be nested at most {DEPTH_MAX} deep.")));
    }
    let paths = collect_paths(&node);
    Ok(Expression { node, roots: parser.roots, steps: parser.steps, paths })
}

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token<'s>>,
    next: usize,
    /// The variables of the macros around the current token.
    locals: Vec<&'s str>,
    roots: Vec<Root>,
    steps: Vec<String>,
    patterns: usize,
    /// What is wrong with names, functions and patterns so far.
    refusals: Vec<ExpressionError>,
}

impl<'s> Parser<'s> {
    fn peek_token(&self) -> Token<'s> {
        let end = Token { kind: TokenKind::End, text: "", start: self.source.len() };
        self.tokens.get(self.next).copied().unwrap_or(end)
    }

    fn take_token(&mut self) -> Token<'s> {
        let token = self.peek_token();
        self.next += 1;
        token
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let found = self.peek_token().is_sign(sign);
        self.next += usize::from(found);
        found
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), ExpressionError> {
        if self.take_sign(sign) {
            return Ok(());
        }
        let token = self.peek_token();
        Err(self.error_at(token, format!("Expected '{sign}', found {}.", describe_token(token))))
    }

    fn error_at(&self, token: Token<'s>, detail: impl Into<String>) -> ExpressionError {
        ExpressionError::invalid_at(detail, self.source, token.start)
    }

    fn unexpected_token(&self, token: Token<'s>) -> ExpressionError {
        self.error_at(token, format!("Unexpected {}, expecting expression.", describe_token(token)))
    }

    /// Refuses the expression once its syntax is known to be right. The node stands in for what cannot be resolved.
    fn refuse_at(&mut self, token: Token<'s>, detail: impl Into<String>) -> ExpressionNode {
        self.refusals.push(self.error_at(token, detail));
        ExpressionNode::Literal(Literal::Null)
    }

    fn parse_conditional(&mut self) -> ParseResult {
        let condition = self.parse_disjunction()?;
        if !self.take_sign("?") {
            return Ok(condition);
        }
        let then = self.parse_disjunction()?;
        self.expect_sign(":")?;
        let otherwise = self.parse_conditional()?;
        Ok(ExpressionNode::If(Box::new([condition, then, otherwise])))
    }

    fn parse_disjunction(&mut self) -> ParseResult {
        let mut terms = vec![self.parse_conjunction()?];
        while self.take_sign("||") {
            terms.push(self.parse_conjunction()?);
        }
        Ok(join_balanced(terms, ExpressionNode::Or))
    }

    fn parse_conjunction(&mut self) -> ParseResult {
        let mut terms = vec![self.parse_binary(0)?];
        while self.take_sign("&&") {
            terms.push(self.parse_binary(0)?);
        }
        Ok(join_balanced(terms, ExpressionNode::And))
    }

    /// Operators that bind at least as tightly as this; those that bind equally group from the left.
    fn parse_binary(&mut self, precedence_min: u8) -> ParseResult {
        let mut left = self.parse_unary()?;
        while let Some((operator, precedence)) = Operator::find_by_sign(self.peek_token().text) {
            if precedence < precedence_min {
                break;
            }
            self.next += 1;
            let right = self.parse_binary(precedence + 1)?;
            left = ExpressionNode::Binary(operator, Box::new([left, right]));
        }
        Ok(left)
    }

    /// Signs before an operand. Two equal ones cancel each other out, as in `cel-go`.
    fn parse_unary(&mut self) -> ParseResult {
        let (first, mut signs) = (self.next, Vec::new());
        while self.peek_token().is_sign("!") || self.peek_token().is_sign("-") {
            let sign = self.take_token().text;
            if signs.last() == Some(&sign) {
                signs.pop();
            } else {
                signs.push(sign);
            }
        }
        // The smallest integer has no positive counterpart, so a single minus belongs to the number.
        if self.next == first + 1
            && signs == ["-"]
            && matches!(self.peek_token().kind, TokenKind::Int | TokenKind::Double)
        {
            let number = self.parse_number(true)?;
            return self.parse_postfix(number);
        }
        let primary = self.parse_primary()?;
        let mut node = self.parse_postfix(primary)?;
        for sign in signs.into_iter().rev() {
            let operand = Box::new(node);
            node = if sign == "!" { ExpressionNode::Not(operand) } else { ExpressionNode::Negate(operand) };
        }
        Ok(node)
    }
}

/// The token in error messages.
fn describe_token(token: Token<'_>) -> String {
    if token.kind == TokenKind::End { "the end".to_owned() } else { format!("'{}'", token.text) }
}

/// A long chain becomes a tree that is as flat as possible.
fn join_balanced(
    mut terms: Vec<ExpressionNode>,
    join: fn(Box<[ExpressionNode; 2]>) -> ExpressionNode,
) -> ExpressionNode {
    let right = terms.split_off(terms.len().div_ceil(2));
    if right.is_empty() {
        return terms.pop().unwrap_or(ExpressionNode::Literal(Literal::Null));
    }
    join(Box::new([join_balanced(terms, join), join_balanced(right, join)]))
}
