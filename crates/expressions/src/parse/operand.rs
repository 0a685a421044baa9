//! Operands: literals, lists, maps, and the fields and elements after an operand.

use super::super::ExpressionError;
use super::super::lexer::{Token, TokenKind};
use super::super::literal::{parse_integer, unescape_bytes, unescape_text};
use super::super::node::{ExpressionNode, ListElement, Literal, MapEntry};
use super::{ParseResult, Parser, describe_token};

const WRONG_ESCAPE: &str = "An escape in this text is wrong: a backslash is written \\\\.";

impl<'s> Parser<'s> {
    pub fn parse_primary(&mut self) -> ParseResult {
        let token = self.peek_token();
        match token.kind {
            TokenKind::Int | TokenKind::Uint | TokenKind::Double => return self.parse_number(false),
            _ => self.next += 1,
        }
        match (token.kind, token.text) {
            (TokenKind::Sign, "(") => {
                let node = self.parse_conditional()?;
                self.expect_sign(")")?;
                Ok(node)
            }
            (TokenKind::Sign, "[") => self.parse_list(),
            (TokenKind::Sign, "{") => self.parse_map(),
            (TokenKind::Sign, ".") => {
                let name = self.parse_field_name()?.text;
                Err(ExpressionError::invalid(format!("There is no .{name}. A name has no dot before it.")))
            }
            (TokenKind::Constant, "null") => Ok(ExpressionNode::Literal(Literal::Null)),
            (TokenKind::Constant, constant) => Ok(ExpressionNode::Literal(Literal::Bool(constant == "true"))),
            (TokenKind::Text { body, raw }, _) => match unescape_text(body, raw) {
                Some(text) => Ok(ExpressionNode::Literal(Literal::Text(text.into()))),
                None => Err(self.error_at(token, WRONG_ESCAPE)),
            },
            (TokenKind::Bytes { body, raw }, _) => match unescape_bytes(body, raw) {
                Some(bytes) => Ok(ExpressionNode::Literal(Literal::Bytes(bytes.into()))),
                None => Err(self.error_at(token, WRONG_ESCAPE)),
            },
            (TokenKind::Name, _) => self.parse_name(token),
            (TokenKind::ReservedWord, word) => Err(self.error_at(token, format!("Reserved word: {word}."))),
            _ => Err(self.unexpected_token(token)),
        }
    }

    pub fn parse_number(&mut self, negative: bool) -> ParseResult {
        let token = self.take_token();
        let literal = match token.kind {
            TokenKind::Double => {
                let double = token.text.parse().ok().filter(|double: &f64| double.is_finite());
                double.map(|double| Literal::Double(if negative { -double } else { double }))
            }
            TokenKind::Uint => parse_integer(&token.text[..token.text.len() - 1]).map(Literal::Uint),
            _ => {
                let int = parse_integer(token.text).map(i128::from);
                int.and_then(|int| i64::try_from(if negative { -int } else { int }).ok()).map(Literal::Int)
            }
        };
        literal.map(ExpressionNode::Literal).ok_or_else(|| self.error_at(token, "The number is out of range."))
    }

    /// The arguments of a call.
    pub fn parse_arguments(&mut self) -> Result<Vec<ExpressionNode>, ExpressionError> {
        let mut arguments = Vec::new();
        while !self.take_sign(")") {
            arguments.push(self.parse_conditional()?);
            if !self.take_sign(",") {
                self.expect_sign(")")?;
                break;
            }
            if self.peek_token().is_sign(")") {
                return Err(self.unexpected_token(self.peek_token()));
            }
        }
        Ok(arguments)
    }

    /// A list can have a comma after its last element, and so can a map.
    fn parse_list(&mut self) -> ParseResult {
        let mut elements = Vec::new();
        while !self.take_sign("]") {
            let optional = self.take_sign("?");
            elements.push(ListElement { value: self.parse_conditional()?, optional });
            if !self.take_sign(",") {
                self.expect_sign("]")?;
                break;
            }
        }
        Ok(ExpressionNode::List(elements))
    }

    fn parse_map(&mut self) -> ParseResult {
        let mut entries = Vec::new();
        while !self.take_sign("}") {
            let optional = self.take_sign("?");
            let key = self.parse_conditional()?;
            self.expect_sign(":")?;
            entries.push(MapEntry { key, value: self.parse_conditional()?, optional });
            if !self.take_sign(",") {
                self.expect_sign("}")?;
                break;
            }
        }
        Ok(ExpressionNode::Map(entries))
    }

    /// The fields, elements and calls after an operand.
    pub fn parse_postfix(&mut self, mut node: ExpressionNode) -> ParseResult {
        loop {
            if self.take_sign("[") {
                node = self.parse_index(node)?;
            } else if self.peek_token().is_sign(".") {
                node = self.parse_member(node)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn parse_index(&mut self, operand: ExpressionNode) -> ParseResult {
        let optional = self.take_sign("?");
        let key = self.parse_conditional()?;
        self.expect_sign("]")?;
        if let ExpressionNode::Literal(Literal::Text(id)) = &key {
            self.record_step(&operand, id);
        }
        let pair = Box::new([operand, key]);
        Ok(if optional { ExpressionNode::OptionalIndex(pair) } else { ExpressionNode::Index(pair) })
    }

    fn parse_member(&mut self, operand: ExpressionNode) -> ParseResult {
        self.next += 1;
        let optional = self.take_sign("?");
        let name = self.parse_field_name()?;
        if optional {
            self.record_step(&operand, field_text(name));
            return Ok(ExpressionNode::OptionalSelect(Box::new(operand), field_text(name).into()));
        }
        let is_call = !matches!(name.kind, TokenKind::QuotedName(_)) && self.take_sign("(");
        if !is_call {
            self.record_step(&operand, field_text(name));
            return Ok(ExpressionNode::Select(Box::new(operand), field_text(name).into()));
        }
        self.parse_receiver_call(operand, name)
    }

    pub fn parse_field_name(&mut self) -> Result<Token<'s>, ExpressionError> {
        let name = self.take_token();
        if matches!(name.kind, TokenKind::Name | TokenKind::ReservedWord | TokenKind::QuotedName(_)) {
            return Ok(name);
        }
        Err(self.error_at(name, format!("Expected a name after '.', found {}.", describe_token(name))))
    }
}

/// The name of a field, without the backticks around it.
fn field_text(name: Token<'_>) -> &str {
    match name.kind {
        TokenKind::QuotedName(text) => text,
        _ => name.text,
    }
}
