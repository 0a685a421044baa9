//! Parses source text into an `Expression`, by recursive descent with a table of precedences. Names, functions and
//! patterns are resolved on the way, once.
//!
//! A name that is not known is reported only if the syntax is right: a slip of the pen explains more.

use super::functions::{self, Function};
use super::lexer::{Token, TokenKind, parse_integer, read_tokens, unescape_text};
use super::node::{ExpressionNode, Literal, Loop, LoopKind, Operator, Root};
use super::pattern::compile_pattern;
use super::{Expression, ExpressionError};

/// How deep nodes can be nested: evaluation recurses.
const DEPTH_MAX: usize = 128;
/// Compiling patterns is the most expensive part of saving a definition.
const PATTERNS_MAX: usize = 4;
/// Names that `type()` returns.
const TYPES: [&str; 9] = ["bool", "int", "uint", "double", "string", "list", "map", "null_type", "type"];

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
    Ok(Expression { node, roots: parser.roots, steps: parser.steps })
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

    fn parse_primary(&mut self) -> ParseResult {
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
            (TokenKind::Sign, "[") => self.parse_nodes("]").map(ExpressionNode::List),
            (TokenKind::Sign, "{") => self.parse_map(),
            (TokenKind::Sign, ".") => {
                let name = self.parse_field_name()?.text;
                Err(ExpressionError::invalid(format!("There is no .{name}. A name has no dot before it.")))
            }
            (TokenKind::Constant, "null") => Ok(ExpressionNode::Literal(Literal::Null)),
            (TokenKind::Constant, constant) => Ok(ExpressionNode::Literal(Literal::Bool(constant == "true"))),
            (TokenKind::Text { body, raw }, _) => match unescape_text(body, raw) {
                Some(text) => Ok(ExpressionNode::Literal(Literal::Text(text.into()))),
                None => Err(self.error_at(token, "An escape in this text is wrong: a backslash is written \\\\.")),
            },
            (TokenKind::Bytes, _) => Err(ExpressionError::invalid("There are no bytes here, only texts.")),
            (TokenKind::Name, _) => self.parse_name(token),
            (TokenKind::ReservedWord, word) => Err(self.error_at(token, format!("Reserved word: {word}."))),
            _ => Err(self.unexpected_token(token)),
        }
    }

    fn parse_number(&mut self, negative: bool) -> ParseResult {
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

    /// The elements of a list or the arguments of a call. Only a list can have a comma after the last one.
    fn parse_nodes(&mut self, close: &str) -> Result<Vec<ExpressionNode>, ExpressionError> {
        let mut nodes = Vec::new();
        while !self.take_sign(close) {
            nodes.push(self.parse_conditional()?);
            if !self.take_sign(",") {
                self.expect_sign(close)?;
                break;
            }
            if self.peek_token().is_sign(")") {
                return Err(self.unexpected_token(self.peek_token()));
            }
        }
        Ok(nodes)
    }

    fn parse_map(&mut self) -> ParseResult {
        let mut entries = Vec::new();
        while !self.take_sign("}") {
            let key = self.parse_conditional()?;
            self.expect_sign(":")?;
            entries.push((key, self.parse_conditional()?));
            if !self.take_sign(",") {
                self.expect_sign("}")?;
                break;
            }
        }
        Ok(ExpressionNode::Map(entries))
    }

    /// A name, a global function or `has`.
    fn parse_name(&mut self, name: Token<'s>) -> ParseResult {
        self.check_no_message(name)?;
        if !self.take_sign("(") {
            return Ok(self.resolve_name(name));
        }
        let first = self.peek_token();
        let mut arguments = self.parse_nodes(")")?;
        if name.text != "has" || arguments.len() != 1 {
            return Ok(self.resolve_call(name, false, arguments));
        }
        match arguments.pop() {
            Some(ExpressionNode::Select(operand, key) | ExpressionNode::Has(operand, key)) => {
                Ok(ExpressionNode::Has(operand, key))
            }
            _ => Err(self.error_at(first, "The argument of has() is a field, as in has(input.name).")),
        }
    }

    /// A protocol buffer message is written `Name{…}` or `package.Name{…}`.
    fn check_no_message(&self, name: Token<'s>) -> Result<(), ExpressionError> {
        let mut path = self.tokens[self.next..].iter();
        let after = path.find(|token| !token.is_sign(".") && token.kind != TokenKind::Name);
        if !after.is_some_and(|token| token.is_sign("{")) {
            return Ok(());
        }
        let detail = "There are no messages here, only maps.";
        Err(if self.peek_token().is_sign(".") { ExpressionError::invalid(detail) } else { self.error_at(name, detail) })
    }

    fn resolve_name(&mut self, name: Token<'s>) -> ExpressionNode {
        if let Some(at) = self.locals.iter().rposition(|local| *local == name.text) {
            return ExpressionNode::Local(at, name.text.into());
        }
        if let Some(root) = Root::ALL.into_iter().find(|root| root.name() == name.text) {
            if !self.roots.contains(&root) {
                self.roots.push(root);
            }
            if root == Root::Steps {
                // Withdrawn by `record_step` if the id follows.
                self.refuse_at(name, "A step is named by its id, as in steps.fetch.output.");
            }
            return ExpressionNode::Root(root);
        }
        if let Some(type_name) = TYPES.iter().find(|type_name| **type_name == name.text) {
            return ExpressionNode::Literal(Literal::Type(type_name));
        }
        self.refuse_at(name, format!("There is no {}. There are input, event, steps, run and now.", name.text))
    }

    fn record_step(&mut self, operand: &ExpressionNode, id: &str) {
        if matches!(operand, ExpressionNode::Root(Root::Steps)) {
            // The last refusal is that of the operand: nothing but the id was parsed since.
            self.refusals.pop();
            if !self.steps.iter().any(|step| step == id) {
                self.steps.push(id.to_owned());
            }
        }
    }

    fn resolve_call(
        &mut self,
        name: Token<'s>,
        on_something: bool,
        mut arguments: Vec<ExpressionNode>,
    ) -> ExpressionNode {
        match functions::get_function(name.text, on_something, arguments.len()) {
            Err(detail) => self.refuse_at(name, detail),
            Ok(Function::Matches) => match (arguments.pop(), arguments.pop()) {
                (Some(ExpressionNode::Literal(Literal::Text(pattern))), Some(text)) => {
                    self.resolve_pattern(name, text, &pattern)
                }
                _ => self.refuse_at(name, "The pattern of matches is written out, between quotes."),
            },
            Ok(function) => ExpressionNode::Call(function, arguments),
        }
    }

    fn resolve_pattern(&mut self, name: Token<'s>, text: ExpressionNode, pattern: &str) -> ExpressionNode {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return self.refuse_at(name, format!("An expression has at most {PATTERNS_MAX} patterns."));
        }
        match compile_pattern(pattern) {
            Ok(pattern) => ExpressionNode::Matches(Box::new(text), Box::new(pattern)),
            Err(detail) => self.refuse_at(name, detail),
        }
    }

    /// The fields, elements and calls after an operand.
    fn parse_postfix(&mut self, mut node: ExpressionNode) -> ParseResult {
        loop {
            if self.take_sign("[") {
                let key = self.parse_conditional()?;
                self.expect_sign("]")?;
                if let ExpressionNode::Literal(Literal::Text(id)) = &key {
                    self.record_step(&node, id);
                }
                node = ExpressionNode::Index(Box::new([node, key]));
            } else if self.peek_token().is_sign(".") {
                node = self.parse_member(node)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn parse_member(&mut self, operand: ExpressionNode) -> ParseResult {
        let dot = self.take_token();
        if self.peek_token().is_sign("?") {
            return Err(self.error_at(dot, "Unsupported: there are no optional values here, ask with has()."));
        }
        let name = self.parse_field_name()?;
        if !self.take_sign("(") {
            self.record_step(&operand, name.text);
            return Ok(ExpressionNode::Select(Box::new(operand), name.text.into()));
        }
        if let Some(kind) = find_loop(name.text) {
            return self.parse_loop(operand, name, kind);
        }
        let mut arguments = self.parse_nodes(")")?;
        arguments.insert(0, operand);
        Ok(self.resolve_call(name, true, arguments))
    }

    fn parse_field_name(&mut self) -> Result<Token<'s>, ExpressionError> {
        let name = self.take_token();
        if matches!(name.kind, TokenKind::Name | TokenKind::ReservedWord) {
            return Ok(name);
        }
        Err(self.error_at(name, format!("Expected a name after '.', found {}.", describe_token(name))))
    }

    /// The macros that iterate. The variable is known in all arguments after it.
    fn parse_loop(&mut self, range: ExpressionNode, name: Token<'s>, kind: LoopKind) -> ParseResult {
        let local_index = self.locals.len();
        let variable = self.parse_variable()?;
        self.locals.push(variable);
        let mut parts = if self.take_sign(",") {
            self.parse_nodes(")")?
        } else {
            self.expect_sign(")")?;
            Vec::new()
        };
        self.locals.truncate(local_index);
        let (filter, body) = match (name.text, parts.len()) {
            ("filter", 1) => (parts.pop(), Some(ExpressionNode::Local(local_index, variable.into()))),
            ("map", 2) => {
                let body = parts.pop();
                (parts.pop(), body)
            }
            (_, 1) => (None, parts.pop()),
            _ => (None, None),
        };
        let Some(body) = body else {
            let detail = format!("{0} takes a name and an expression: list.{0}(x, x > 0).", name.text);
            return Ok(self.refuse_at(name, detail));
        };
        Ok(ExpressionNode::Loop(Box::new(Loop { kind, range, local_index, filter, body })))
    }

    fn parse_variable(&mut self) -> Result<&'s str, ExpressionError> {
        if self.take_sign("(") {
            let variable = self.parse_variable()?;
            self.expect_sign(")")?;
            return Ok(variable);
        }
        let (name, after) = (self.take_token(), self.peek_token());
        let is_simple = after.is_sign(",") || after.is_sign(")");
        if name.kind == TokenKind::Name && is_simple {
            return Ok(name.text);
        }
        let wrong = if name.kind == TokenKind::Name { after } else { name };
        Err(self.error_at(wrong, "The first argument must be a simple name."))
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

fn find_loop(name: &str) -> Option<LoopKind> {
    match name {
        "all" => Some(LoopKind::All),
        "exists" => Some(LoopKind::Exists),
        "exists_one" | "existsOne" => Some(LoopKind::ExistsOne),
        "map" | "filter" => Some(LoopKind::List),
        _ => None,
    }
}
