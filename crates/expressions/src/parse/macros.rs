//! Macros: calls that introduce names for a part of their arguments.

use super::super::ExpressionError;
use super::super::lexer::{Token, TokenKind};
use super::super::node::{Bind, ExpressionNode, Loop, LoopKind, OptionalMap};
use super::{ParseResult, Parser};

/// A macro on a receiver: its name, what it does, how many variables it can have, and how it is written.
struct MacroSpec {
    name: &'static str,
    kind: MacroKind,
    variables: (usize, usize),
    example: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum MacroKind {
    Loop(LoopKind),
    Filter,
    /// Whether the body is an optional value itself.
    OptionalMap {
        flat: bool,
    },
}

const fn macro_spec(
    name: &'static str,
    kind: MacroKind,
    variables: (usize, usize),
    example: &'static str,
) -> MacroSpec {
    MacroSpec { name, kind, variables, example }
}

#[rustfmt::skip]
const MACROS: &[MacroSpec] = &[
    macro_spec("all", MacroKind::Loop(LoopKind::All), (1, 2), "list.all(x, x > 0)"),
    macro_spec("exists", MacroKind::Loop(LoopKind::Exists), (1, 2), "list.exists(x, x > 0)"),
    macro_spec("exists_one", MacroKind::Loop(LoopKind::ExistsOne), (1, 2), "list.exists_one(x, x > 0)"),
    macro_spec("existsOne", MacroKind::Loop(LoopKind::ExistsOne), (1, 2), "list.existsOne(x, x > 0)"),
    macro_spec("map", MacroKind::Loop(LoopKind::List), (1, 1), "list.map(x, x > 0)"),
    macro_spec("filter", MacroKind::Filter, (1, 1), "list.filter(x, x > 0)"),
    macro_spec("transformList", MacroKind::Loop(LoopKind::List), (2, 2), "list.transformList(i, x, i + x)"),
    macro_spec("transformMap", MacroKind::Loop(LoopKind::Map), (2, 2), "map.transformMap(k, v, v + 1)"),
    macro_spec("transformMapEntry", MacroKind::Loop(LoopKind::MapEntries), (2, 2), "map.transformMapEntry(k, v, {v: k})"),
    macro_spec("sortBy", MacroKind::Loop(LoopKind::SortBy), (1, 1), "list.sortBy(x, x.name)"),
    macro_spec("optMap", MacroKind::OptionalMap { flat: false }, (1, 1), "input.?n.optMap(x, x + 1)"),
    macro_spec("optFlatMap", MacroKind::OptionalMap { flat: true }, (1, 1), "input.?a.optFlatMap(x, x.?b)"),
];

pub fn macro_names() -> impl Iterator<Item = &'static str> {
    MACROS.iter().map(|spec| spec.name).chain(["cel.bind"])
}

impl<'s> Parser<'s> {
    /// The rest of a macro after its open bracket, or the receiver again if this is no macro.
    pub fn parse_macro(
        &mut self,
        receiver: ExpressionNode,
        name: Token<'s>,
    ) -> Result<Result<ExpressionNode, ExpressionNode>, ExpressionError> {
        match MACROS.iter().find(|spec| spec.name == name.text) {
            Some(spec) => self.parse_known_macro(receiver, name, spec).map(Ok),
            None => Ok(Err(receiver)),
        }
    }

    /// The variables are known in all arguments after them.
    fn parse_known_macro(&mut self, receiver: ExpressionNode, name: Token<'s>, spec: &MacroSpec) -> ParseResult {
        let local_index = self.locals.len();
        let variable = self.parse_variable()?;
        self.locals.push(variable);
        let two_variables = spec.variables.1 == 2 && (spec.variables.0 == 2 || self.second_is_variable());
        let mut parts = Vec::new();
        if self.take_sign(",") {
            if two_variables {
                let variable = self.parse_variable()?;
                self.locals.push(variable);
            }
            if !two_variables || self.take_sign(",") {
                parts = self.parse_arguments()?;
            } else {
                self.expect_sign(")")?;
            }
        } else {
            self.expect_sign(")")?;
        }
        self.locals.truncate(local_index);
        let body = parts.pop();
        let filter = parts.pop();
        let takes_filter = matches!(spec.kind, MacroKind::Loop(LoopKind::List | LoopKind::Map | LoopKind::MapEntries));
        let (Some(body), true) = (body, parts.is_empty() && (filter.is_none() || takes_filter)) else {
            let what = if spec.variables.0 == 2 { "two names" } else { "a name" };
            let detail = format!("{} takes {what} and an expression: {}.", spec.name, spec.example);
            return Ok(self.refuse_at(name, detail));
        };
        let (kind, filter, body) = match spec.kind {
            MacroKind::Loop(kind) => (kind, filter, body),
            MacroKind::Filter => (LoopKind::List, Some(body), ExpressionNode::Local(local_index, variable.into())),
            MacroKind::OptionalMap { flat } => {
                let map = OptionalMap { operand: receiver, local_index, body, flat };
                return Ok(ExpressionNode::OptionalMap(Box::new(map)));
            }
        };
        Ok(ExpressionNode::Loop(Box::new(Loop {
            kind,
            range: receiver,
            local_index,
            has_two_variables: two_variables,
            filter,
            body,
        })))
    }

    /// Whether a second variable follows, as in `all(i, x, …)`: a name between two commas.
    fn second_is_variable(&self) -> bool {
        let next: Vec<Token<'_>> = self.tokens[self.next..].iter().copied().take(3).collect();
        matches!(next.as_slice(), [one, name, two]
            if one.is_sign(",") && name.kind == TokenKind::Name && two.is_sign(","))
    }

    /// `cel.bind(name, value, body)`, after the open bracket.
    pub fn parse_bind(&mut self, at: Token<'s>) -> ParseResult {
        let local_index = self.locals.len();
        let variable = self.parse_variable()?;
        self.expect_sign(",")?;
        let value = self.parse_conditional()?;
        self.expect_sign(",")?;
        self.locals.push(variable);
        let mut parts = self.parse_arguments()?;
        self.locals.truncate(local_index);
        match (parts.pop(), parts.is_empty()) {
            (Some(body), true) => Ok(ExpressionNode::Bind(Box::new(Bind { local_index, value, body }))),
            _ => Ok(self.refuse_at(at, "cel.bind takes a name and two expressions: cel.bind(x, input.a, x + x).")),
        }
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
        Err(self.error_at(wrong, "The variable of a macro must be a simple name."))
    }
}
