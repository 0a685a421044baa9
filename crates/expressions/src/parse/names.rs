//! Names and calls, resolved while they are parsed.

use super::super::ExpressionError;
use super::super::functions::{self, Callee};
use super::super::lexer::{Token, TokenKind};
use super::super::node::{ExpressionNode, Literal, Root};
use super::super::pattern::compile_pattern;
use super::{ParseResult, Parser};

/// Compiling patterns is the most expensive part of saving a definition.
const PATTERNS_MAX: usize = 4;
/// Names that `type()` returns.
const TYPES: &[&str] =
    &["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type"];
/// The same of types whose names have dots.
const DOTTED_TYPES: &[&str] = &["google.protobuf.Timestamp", "google.protobuf.Duration", "net.IP", "net.CIDR"];

impl<'s> Parser<'s> {
    /// A name, a global function or `has`.
    pub fn parse_name(&mut self, name: Token<'s>) -> ParseResult {
        self.check_no_message(name)?;
        if self.take_sign("(") {
            return if name.text == "has" { self.parse_has(name) } else { self.parse_global_call(name, name.text) };
        }
        if !self.locals.contains(&name.text) {
            if let Some(type_name) = self.take_dotted_type(name) {
                return Ok(ExpressionNode::Literal(Literal::Type(type_name)));
            }
            if let Some((full_name, last)) = self.take_namespaced_name(name) {
                self.expect_sign("(")?;
                if full_name == "cel.bind" {
                    return self.parse_bind(name);
                }
                return self.parse_global_call(last, &full_name);
            }
        }
        Ok(self.resolve_name(name))
    }

    fn parse_has(&mut self, name: Token<'s>) -> ParseResult {
        let first = self.peek_token();
        let mut arguments = self.parse_arguments()?;
        if arguments.len() != 1 {
            return Ok(self.refuse_at(name, "has takes one field, as in has(input.name)."));
        }
        match arguments.pop() {
            Some(ExpressionNode::Select(operand, key) | ExpressionNode::Has(operand, key)) => {
                Ok(ExpressionNode::Has(operand, key))
            }
            _ => Err(self.error_at(first, "The argument of has() is a field, as in has(input.name).")),
        }
    }

    fn parse_global_call(&mut self, at: Token<'s>, name: &str) -> ParseResult {
        let refusals_before = self.refusals.len();
        let arguments = self.parse_arguments()?;
        Ok(self.resolve_call(at, name, false, arguments, refusals_before))
    }

    pub fn parse_receiver_call(&mut self, operand: ExpressionNode, name: Token<'s>) -> ParseResult {
        let operand = match self.parse_macro(operand, name)? {
            Ok(node) => return Ok(node),
            Err(operand) => operand,
        };
        let refusals_before = self.refusals.len();
        let mut arguments = self.parse_arguments()?;
        arguments.insert(0, operand);
        Ok(self.resolve_call(name, name.text, true, arguments, refusals_before))
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

    fn take_dotted_type(&mut self, name: Token<'s>) -> Option<&'static str> {
        let found = DOTTED_TYPES.iter().find(|type_name| {
            let parts = type_name.split('.').flat_map(|part| [part, "."]);
            let tokens = std::iter::once(&name).chain(&self.tokens[self.next..]);
            let count = 2 * type_name.split('.').count() - 1;
            parts.take(count).zip(tokens.map(|token| token.text)).filter(|(part, token)| part == token).count() == count
        })?;
        self.next += 2 * (found.split('.').count() - 1);
        Some(found)
    }

    /// The name of a function with its namespace, as in `math.abs(`, and the token of its last part.
    fn take_namespaced_name(&mut self, namespace: Token<'s>) -> Option<(String, Token<'s>)> {
        let [dot, last, open] = self.tokens.get(self.next..self.next + 3)? else { return None };
        let is_call = dot.is_sign(".") && last.kind == TokenKind::Name && open.is_sign("(");
        if !is_call || !functions::is_namespace(namespace.text) {
            return None;
        }
        let last = *last;
        self.next += 2;
        Some((format!("{}.{}", namespace.text, last.text), last))
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
        let detail = format!("There is no {}. There are input, event, steps, run and now.", name.text);
        self.refuse_at(name, detail)
    }

    pub fn record_step(&mut self, operand: &ExpressionNode, id: &str) {
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
        at: Token<'s>,
        name: &str,
        on_something: bool,
        mut arguments: Vec<ExpressionNode>,
        refusals_before: usize,
    ) -> ExpressionNode {
        let function = match functions::get_function(name, on_something, arguments.len()) {
            Ok(function) => function,
            Err(detail) => {
                // A slip in the name of a macro also makes its variables unknown: the name comes first.
                self.refusals.insert(refusals_before, self.error_at(at, detail));
                return ExpressionNode::Literal(Literal::Null);
            }
        };
        if let Err(detail) = functions::check_literals(function, &arguments) {
            return self.refuse_at(at, detail);
        }
        match function.callee {
            Callee::Matches => match (arguments.pop(), arguments.pop()) {
                (Some(ExpressionNode::Literal(Literal::Text(pattern))), Some(text)) => {
                    self.resolve_pattern(at, text, &pattern)
                }
                _ => self.refuse_at(at, "The pattern of matches is written out, between quotes."),
            },
            _ => ExpressionNode::Call(function, arguments),
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
}
