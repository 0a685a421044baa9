//! Evaluates an `ExpressionNode`. The meter is charged one step for each node visited, again in each iteration of a loop.
//!
//! `eval_node` recurses as deep as the expression: each kind of node has a function of its own, so that a level takes
//! little stack.

mod access;
mod locals;
mod loops;

use std::collections::btree_map::Entry;
use std::rc::Rc;

use super::functions::{Callee, FunctionSpec, call_function, cannot_take};
use super::node::{ExpressionNode, ListElement, Literal, MapEntry, OptionalMap, Root};
use super::pattern::CompiledPattern;
use super::value::{CelTime, CelValue, ENTRY_BYTES, MapEntries, SLOT_BYTES};
use super::{CostMeter, ExpressionError, ExpressionScope, operators};

use self::locals::Local;

pub fn eval_in_scope<'a>(
    node: &'a ExpressionNode,
    scope: &'a ExpressionScope<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    Evaluator { scope, locals: Vec::new(), meter }.eval_node(node)
}

struct Evaluator<'a, 'm> {
    scope: &'a ExpressionScope<'a>,
    locals: Vec<Local<'a>>,
    meter: &'m mut CostMeter,
}

impl<'a> Evaluator<'a, '_> {
    fn eval_node(&mut self, node: &'a ExpressionNode) -> Result<CelValue<'a>, ExpressionError> {
        self.meter.charge_step()?;
        match node {
            ExpressionNode::Literal(literal) => self.literal_value(literal),
            ExpressionNode::Root(root) => self.root_value(*root),
            ExpressionNode::Local(at, _) => self.eval_local(*at),
            ExpressionNode::Select(operand, key) => self.eval_select(operand, key),
            ExpressionNode::OptionalSelect(operand, key) => self.eval_optional_select(operand, key),
            ExpressionNode::Has(operand, key) => self.eval_has(operand, key),
            ExpressionNode::Index(pair) => self.eval_index(pair),
            ExpressionNode::OptionalIndex(pair) => self.eval_optional_index(pair),
            ExpressionNode::List(elements) => self.eval_list(elements),
            ExpressionNode::Map(entries) => self.eval_map(entries),
            ExpressionNode::Not(operand) => self.eval_not(operand),
            ExpressionNode::Negate(operand) => self.eval_negate(operand),
            ExpressionNode::And(pair) => self.eval_logical(pair, false),
            ExpressionNode::Or(pair) => self.eval_logical(pair, true),
            ExpressionNode::If(parts) => self.eval_conditional(parts),
            ExpressionNode::Binary(operator, pair) => {
                let (one, two) = (self.eval_node(&pair[0])?, self.eval_node(&pair[1])?);
                operators::apply_operator(*operator, &one, &two, self.meter)
            }
            ExpressionNode::Call(function, arguments) => self.eval_call(function, arguments),
            ExpressionNode::Matches(text, pattern) => self.eval_matches(text, pattern),
            ExpressionNode::Loop(loop_node) => self.eval_loop(loop_node),
            ExpressionNode::Bind(bind) => self.eval_bind(bind),
            ExpressionNode::OptionalMap(map) => self.eval_optional_map(map),
        }
    }

    fn literal_value(&mut self, literal: &'a Literal) -> Result<CelValue<'a>, ExpressionError> {
        if let Literal::Bytes(bytes) = literal {
            self.meter.charge_bytes(bytes.len())?;
        }
        Ok(literal.to_value())
    }

    fn root_value(&self, root: Root) -> Result<CelValue<'a>, ExpressionError> {
        let outside = || ExpressionError::failed(format!("There is no {} outside of a foreach.", root.name()));
        Ok(match root {
            Root::Input => CelValue::from_json(self.scope.input),
            Root::Event => CelValue::from_json(self.scope.event),
            Root::Steps => CelValue::from_json(self.scope.steps),
            Root::Run => CelValue::from_json(self.scope.run),
            Root::Now => CelTime::from_timestamp(self.scope.now)
                .map(CelValue::Time)
                .ok_or_else(|| ExpressionError::failed("A time must be within the years 1 to 9999."))?,
            Root::Item => CelValue::from_json(self.scope.item.ok_or_else(outside)?.0),
            Root::Index => CelValue::Int(self.scope.item.ok_or_else(outside)?.1),
        })
    }

    fn eval_nodes(&mut self, nodes: &'a [ExpressionNode]) -> Result<Vec<CelValue<'a>>, ExpressionError> {
        self.meter.charge_bytes(nodes.len() * SLOT_BYTES)?;
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            values.push(self.eval_node(node)?);
        }
        Ok(values)
    }

    fn eval_list(&mut self, elements: &'a [ListElement]) -> Result<CelValue<'a>, ExpressionError> {
        self.meter.charge_bytes(elements.len() * SLOT_BYTES)?;
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.eval_node(&element.value)?;
            items.extend(if element.optional { expect_optional(value)? } else { Some(value) });
        }
        Ok(CelValue::from_items(items))
    }

    fn eval_map(&mut self, entries: &'a [MapEntry]) -> Result<CelValue<'a>, ExpressionError> {
        let mut map = MapEntries::new();
        for entry in entries {
            let key = self.eval_node(&entry.key)?;
            let value = self.eval_node(&entry.value)?;
            let value = if entry.optional { expect_optional(value)? } else { Some(value) };
            if let Some(value) = value {
                self.insert_entry(&mut map, &key, value)?;
            }
        }
        Ok(CelValue::Map(Rc::new(map)))
    }

    fn insert_entry(
        &mut self,
        map: &mut MapEntries<'a>,
        key: &CelValue<'a>,
        value: CelValue<'a>,
    ) -> Result<(), ExpressionError> {
        self.meter.charge_bytes(ENTRY_BYTES)?;
        if let CelValue::Text(text) = key {
            self.meter.charge_bytes(text.len())?;
        }
        let key = key
            .to_key()
            .filter(|_| !matches!(key, CelValue::Double(_)))
            .ok_or_else(|| ExpressionError::failed(format!("{} cannot be the key of a map.", key.kind_name())))?;
        match map.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(value);
                Ok(())
            }
            Entry::Occupied(_) => Err(ExpressionError::failed("A map has the same key twice.")),
        }
    }

    /// Evaluates a node that must be true or false.
    fn eval_bool(&mut self, node: &'a ExpressionNode, sign: &str) -> Result<bool, ExpressionError> {
        match self.eval_node(node)? {
            CelValue::Bool(yes) => Ok(yes),
            other => {
                Err(ExpressionError::failed(format!("{sign} needs true or false, and this is {}.", other.kind_name())))
            }
        }
    }

    fn eval_not(&mut self, operand: &'a ExpressionNode) -> Result<CelValue<'a>, ExpressionError> {
        self.eval_bool(operand, "!").map(|yes| CelValue::Bool(!yes))
    }

    fn eval_negate(&mut self, operand: &'a ExpressionNode) -> Result<CelValue<'a>, ExpressionError> {
        operators::negate_value(&self.eval_node(operand)?)
    }

    /// One true operand decides `||`, one false operand decides `&&`, even if the other fails. An exceeded budget is never
    /// absorbed.
    fn eval_logical(&mut self, pair: &'a [ExpressionNode; 2], decides: bool) -> Result<CelValue<'a>, ExpressionError> {
        let sign = if decides { "||" } else { "&&" };
        let one = match self.eval_bool(&pair[0], sign) {
            Ok(yes) if yes == decides => return Ok(CelValue::Bool(decides)),
            Err(ExpressionError::BudgetExceeded) => return Err(ExpressionError::BudgetExceeded),
            other => other,
        };
        match self.eval_bool(&pair[1], sign) {
            Ok(yes) if yes == decides => Ok(CelValue::Bool(decides)),
            Err(ExpressionError::BudgetExceeded) => Err(ExpressionError::BudgetExceeded),
            two => one.and(two).map(CelValue::Bool),
        }
    }

    fn eval_conditional(&mut self, parts: &'a [ExpressionNode; 3]) -> Result<CelValue<'a>, ExpressionError> {
        let branch = if self.eval_bool(&parts[0], "?:")? { &parts[1] } else { &parts[2] };
        self.eval_node(branch)
    }

    fn eval_call(
        &mut self,
        function: &'static FunctionSpec,
        arguments: &'a [ExpressionNode],
    ) -> Result<CelValue<'a>, ExpressionError> {
        match (function.callee, arguments) {
            (Callee::Or, [optional, other]) => self.eval_or(function, optional, other, false),
            (Callee::OrValue, [optional, other]) => self.eval_or(function, optional, other, true),
            _ => {
                let arguments = self.eval_nodes(arguments)?;
                call_function(function, &arguments, self.meter)
            }
        }
    }

    /// `or` and `orValue`: the second argument is evaluated only if the first has no value.
    fn eval_or(
        &mut self,
        function: &'static FunctionSpec,
        optional: &'a ExpressionNode,
        other: &'a ExpressionNode,
        unwraps: bool,
    ) -> Result<CelValue<'a>, ExpressionError> {
        let optional = self.eval_node(optional)?;
        match optional {
            CelValue::Optional(Some(value)) if unwraps => Ok(Rc::unwrap_or_clone(value)),
            CelValue::Optional(Some(value)) => Ok(CelValue::Optional(Some(value))),
            CelValue::Optional(None) => match self.eval_node(other)? {
                CelValue::Optional(value) if !unwraps => Ok(CelValue::Optional(value)),
                value if unwraps => Ok(value),
                value => Err(cannot_take(function, &[CelValue::Optional(None), value])),
            },
            value => Err(cannot_take(function, &[value])),
        }
    }

    /// `optMap` and `optFlatMap`.
    fn eval_optional_map(&mut self, map: &'a OptionalMap) -> Result<CelValue<'a>, ExpressionError> {
        let Some(value) = expect_optional(self.eval_node(&map.operand)?)? else {
            return Ok(CelValue::Optional(None));
        };
        self.locals.truncate(map.local_index);
        self.locals.push(Local::Value(value));
        let result = self.eval_node(&map.body);
        self.locals.truncate(map.local_index);
        self.meter.charge_bytes(SLOT_BYTES)?;
        if map.flat { expect_optional(result?).map(CelValue::optional) } else { result.map(CelValue::present) }
    }

    fn eval_matches(
        &mut self,
        text: &'a ExpressionNode,
        pattern: &'a CompiledPattern,
    ) -> Result<CelValue<'a>, ExpressionError> {
        match self.eval_node(text)? {
            CelValue::Text(text) => pattern.is_match(&text, self.meter).map(CelValue::Bool),
            other => Err(ExpressionError::failed(format!("matches cannot take ({}).", other.kind_name()))),
        }
    }
}

/// The value of an optional value, if it has one.
fn expect_optional(value: CelValue<'_>) -> Result<Option<CelValue<'_>>, ExpressionError> {
    match value {
        CelValue::Optional(value) => Ok(value.map(Rc::unwrap_or_clone)),
        other => Err(ExpressionError::failed(format!(
            "An optional value is needed here, and this is {}.",
            other.kind_name()
        ))),
    }
}
