//! Evaluates an `ExpressionNode`. The meter is charged one step for each node visited, again in each iteration of a loop.
//!
//! `eval_node` recurses as deep as the expression: each kind of node has a function of its own, so that a level takes
//! little stack.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use serde_json::Value;

use super::node::{ExpressionNode, Literal, Loop, LoopKind, Root};
use super::pattern::CompiledPattern;
use super::value::{CelText, CelValue, ENTRY_BYTES, MapKey, SLOT_BYTES};
use super::{CostMeter, ExpressionError, ExpressionScope, functions, operators};

pub fn eval_in_scope<'a>(
    node: &'a ExpressionNode,
    scope: &'a ExpressionScope<'a>,
    meter: &mut CostMeter,
) -> Result<CelValue<'a>, ExpressionError> {
    Evaluator { scope, locals: Vec::new(), meter }.eval_node(node)
}

struct Evaluator<'a, 'm> {
    scope: &'a ExpressionScope<'a>,
    locals: Vec<CelValue<'a>>,
    meter: &'m mut CostMeter,
}

/// The elements that a loop iterates over.
enum LoopItems<'a> {
    Json(&'a [Value]),
    Computed(Rc<Vec<CelValue<'a>>>),
}

impl<'a> LoopItems<'a> {
    fn item_at(&self, at: usize) -> Option<CelValue<'a>> {
        match self {
            LoopItems::Json(items) => items.get(at).map(CelValue::from_json),
            LoopItems::Computed(items) => items.get(at).cloned(),
        }
    }
}

impl<'a> Evaluator<'a, '_> {
    fn eval_node(&mut self, node: &'a ExpressionNode) -> Result<CelValue<'a>, ExpressionError> {
        self.meter.charge_step()?;
        match node {
            ExpressionNode::Literal(literal) => Ok(literal_value(literal)),
            ExpressionNode::Root(root) => Ok(self.root_value(*root)),
            ExpressionNode::Local(at, _) => Ok(self.locals.get(*at).cloned().unwrap_or(CelValue::Null)),
            ExpressionNode::Select(operand, key) => self.eval_select(operand, key),
            ExpressionNode::Has(operand, key) => self.eval_has(operand, key),
            ExpressionNode::Index(pair) => self.eval_index(pair),
            ExpressionNode::List(nodes) => self.eval_nodes(nodes).map(CelValue::from_items),
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
            ExpressionNode::Call(function, arguments) => {
                let arguments = self.eval_nodes(arguments)?;
                functions::call_function(*function, &arguments, self.meter)
            }
            ExpressionNode::Matches(text, pattern) => self.eval_matches(text, pattern),
            ExpressionNode::Loop(loop_node) => self.eval_loop(loop_node),
        }
    }

    fn root_value(&self, root: Root) -> CelValue<'a> {
        match root {
            Root::Input => CelValue::from_json(self.scope.input),
            Root::Event => CelValue::from_json(self.scope.event),
            Root::Steps => CelValue::from_json(self.scope.steps),
            Root::Run => CelValue::from_json(self.scope.run),
            Root::Now => CelValue::Time(self.scope.now),
        }
    }

    fn eval_select(&mut self, operand: &'a ExpressionNode, key: &'a str) -> Result<CelValue<'a>, ExpressionError> {
        let value = self.eval_node(operand)?;
        match lookup_field(&value, key) {
            FieldLookup::Found(found) => Ok(found),
            FieldLookup::Missing => Err(missing_field(operand, key)),
            FieldLookup::NotAMap => Err(not_a_map(operand, &value, key)),
        }
    }

    fn eval_has(&mut self, operand: &'a ExpressionNode, key: &'a str) -> Result<CelValue<'a>, ExpressionError> {
        let value = self.eval_node(operand)?;
        match lookup_field(&value, key) {
            FieldLookup::Found(_) => Ok(CelValue::Bool(true)),
            FieldLookup::Missing => Ok(CelValue::Bool(false)),
            FieldLookup::NotAMap => Err(not_a_map(operand, &value, key)),
        }
    }

    fn eval_index(&mut self, pair: &'a [ExpressionNode; 2]) -> Result<CelValue<'a>, ExpressionError> {
        let (container, key) = (self.eval_node(&pair[0])?, self.eval_node(&pair[1])?);
        if let CelValue::Text(text) = &key {
            self.meter.charge_bytes(text.len())?;
        }
        operators::find_element(&container, &key).ok_or_else(|| match (&pair[1], &container) {
            (ExpressionNode::Literal(Literal::Text(key)), _) => missing_field(&pair[0], key),
            (_, CelValue::Json(_) | CelValue::List(_) | CelValue::Map(_)) => {
                ExpressionError::failed(format!("{} has no such element or key.", describe_node(&pair[0])))
            }
            (_, other) => ExpressionError::failed(format!(
                "{} is {} and has no elements.",
                describe_node(&pair[0]),
                other.kind_name()
            )),
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

    fn eval_map(&mut self, entries: &'a [(ExpressionNode, ExpressionNode)]) -> Result<CelValue<'a>, ExpressionError> {
        let mut map: BTreeMap<MapKey<'a>, CelValue<'a>> = BTreeMap::new();
        for (key, value) in entries {
            self.meter.charge_bytes(ENTRY_BYTES)?;
            let key = self.eval_node(key)?;
            if let CelValue::Text(text) = &key {
                self.meter.charge_bytes(text.len())?;
            }
            let key = key
                .to_key()
                .filter(|_| !matches!(key, CelValue::Double(_)))
                .ok_or_else(|| ExpressionError::failed(format!("{} cannot be the key of a map.", key.kind_name())))?;
            let value = self.eval_node(value)?;
            match map.entry(key) {
                Entry::Vacant(vacant) => drop(vacant.insert(value)),
                Entry::Occupied(_) => return Err(ExpressionError::failed("A map has the same key twice.")),
            }
        }
        Ok(CelValue::Map(Rc::new(map)))
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

    fn eval_matches(
        &mut self,
        text: &'a ExpressionNode,
        pattern: &'a CompiledPattern,
    ) -> Result<CelValue<'a>, ExpressionError> {
        match self.eval_node(text)? {
            CelValue::Text(text) => {
                self.meter.charge_bytes(text.len().saturating_mul(pattern.cost_per_byte))?;
                Ok(CelValue::Bool(pattern.regex.is_match(&text)))
            }
            other => Err(ExpressionError::failed(format!("matches cannot take ({}).", other.kind_name()))),
        }
    }

    fn eval_loop_range(&mut self, node: &'a ExpressionNode) -> Result<LoopItems<'a>, ExpressionError> {
        let value = self.eval_node(node)?;
        match value {
            CelValue::Json(Value::Array(items)) => Ok(LoopItems::Json(items)),
            CelValue::List(items) => Ok(LoopItems::Computed(items)),
            // A loop over a map iterates over its keys.
            CelValue::Json(Value::Object(entries)) => {
                self.meter.charge_bytes(entries.len() * SLOT_BYTES)?;
                Ok(LoopItems::Computed(Rc::new(
                    entries.keys().map(|key| CelValue::Text(CelText::Borrowed(key))).collect(),
                )))
            }
            CelValue::Map(entries) => {
                self.meter.charge_bytes(entries.len() * SLOT_BYTES)?;
                Ok(LoopItems::Computed(Rc::new(entries.keys().map(MapKey::to_value).collect())))
            }
            other => Err(ExpressionError::failed(format!(
                "{} is {} and has no elements.",
                describe_node(node),
                other.kind_name()
            ))),
        }
    }

    fn eval_loop(&mut self, loop_node: &'a Loop) -> Result<CelValue<'a>, ExpressionError> {
        let items = self.eval_loop_range(&loop_node.range)?;
        // An error absorbed by `||` may have left locals of an inner loop.
        self.locals.truncate(loop_node.local_index);
        self.locals.push(CelValue::Null);
        let result = match loop_node.kind {
            LoopKind::All => self.eval_quantifier(loop_node, &items, false),
            LoopKind::Exists => self.eval_quantifier(loop_node, &items, true),
            LoopKind::ExistsOne => self.eval_exists_one(loop_node, &items),
            LoopKind::List => self.eval_list_loop(loop_node, &items),
        };
        self.locals.truncate(loop_node.local_index);
        result
    }

    fn begin_iteration(&mut self, loop_node: &Loop, item: CelValue<'a>) -> Result<(), ExpressionError> {
        self.meter.charge_step()?;
        self.locals.truncate(loop_node.local_index);
        self.locals.push(item);
        Ok(())
    }

    /// Combines the predicate's results for all elements as `||` or `&&` would.
    fn eval_quantifier(
        &mut self,
        loop_node: &'a Loop,
        items: &LoopItems<'a>,
        decides: bool,
    ) -> Result<CelValue<'a>, ExpressionError> {
        let sign = if decides { "exists" } else { "all" };
        let mut result = Ok(CelValue::Bool(!decides));
        for at in 0.. {
            let Some(item) = items.item_at(at) else { break };
            self.begin_iteration(loop_node, item)?;
            match self.eval_bool(&loop_node.body, sign) {
                Ok(yes) if yes == decides => return Ok(CelValue::Bool(decides)),
                Ok(_) => {}
                Err(ExpressionError::BudgetExceeded) => return Err(ExpressionError::BudgetExceeded),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    fn eval_exists_one(&mut self, loop_node: &'a Loop, items: &LoopItems<'a>) -> Result<CelValue<'a>, ExpressionError> {
        let mut count = 0_usize;
        for at in 0.. {
            let Some(item) = items.item_at(at) else { break };
            self.begin_iteration(loop_node, item)?;
            count += usize::from(self.eval_bool(&loop_node.body, "exists_one")?);
        }
        Ok(CelValue::Bool(count == 1))
    }

    fn eval_list_loop(&mut self, loop_node: &'a Loop, items: &LoopItems<'a>) -> Result<CelValue<'a>, ExpressionError> {
        let mut list = Vec::new();
        for at in 0.. {
            let Some(item) = items.item_at(at) else { break };
            self.begin_iteration(loop_node, item)?;
            let passes = match &loop_node.filter {
                Some(filter) => self.eval_bool(filter, "A filter")?,
                None => true,
            };
            if passes {
                self.meter.charge_bytes(SLOT_BYTES)?;
                list.push(self.eval_node(&loop_node.body)?);
            }
        }
        Ok(CelValue::from_items(list))
    }
}

fn literal_value(literal: &Literal) -> CelValue<'_> {
    match literal {
        Literal::Null => CelValue::Null,
        Literal::Bool(yes) => CelValue::Bool(*yes),
        Literal::Int(int) => CelValue::Int(*int),
        Literal::Uint(uint) => CelValue::Uint(*uint),
        Literal::Double(double) => CelValue::Double(*double),
        Literal::Text(text) => CelValue::Text(CelText::Borrowed(text)),
        Literal::Type(name) => CelValue::Type(name),
    }
}

enum FieldLookup<'a> {
    Found(CelValue<'a>),
    Missing,
    NotAMap,
}

fn lookup_field<'a>(value: &CelValue<'a>, key: &'a str) -> FieldLookup<'a> {
    let found = match value {
        CelValue::Json(Value::Object(entries)) => entries.get(key).map(CelValue::from_json),
        CelValue::Map(entries) => entries.get(&MapKey::Text(CelText::Borrowed(key))).cloned(),
        _ => return FieldLookup::NotAMap,
    };
    found.map_or(FieldLookup::Missing, FieldLookup::Found)
}

/// The node's name in error messages: its source path, where it has one.
fn describe_node(node: &ExpressionNode) -> String {
    node.source_path().map_or_else(|| "This".to_owned(), |path| format!("`{path}`"))
}

fn missing_field(operand: &ExpressionNode, key: &str) -> ExpressionError {
    ExpressionError::failed(format!("{} has no `{key}`.", describe_node(operand)))
}

fn not_a_map(operand: &ExpressionNode, value: &CelValue<'_>, key: &str) -> ExpressionError {
    ExpressionError::failed(format!("{} is {} and has no `{key}`.", describe_node(operand), value.kind_name()))
}
