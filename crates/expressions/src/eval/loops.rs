//! The macros that iterate over lists and maps.

use std::rc::Rc;

use serde_json::Value;

use super::super::ExpressionError;
use super::super::functions::sort_by_keys;
use super::super::node::{ExpressionNode, Loop, LoopKind};
use super::super::value::{CelText, CelValue, ENTRY_BYTES, MapEntries, SLOT_BYTES};
use super::Evaluator;
use super::access::has_no_elements;
use super::locals::Local;

/// What a loop iterates over: the elements of a list, or the keys and values of a map.
enum LoopItems<'a> {
    List(CelValue<'a>),
    Entries(Vec<(CelValue<'a>, CelValue<'a>)>),
}

impl<'a> LoopItems<'a> {
    /// The index and the element, or the key and the value.
    fn pair_at(&self, at: usize) -> Option<(CelValue<'a>, CelValue<'a>)> {
        match self {
            LoopItems::List(list) => Some((CelValue::from_count(at), list.element_at(at)?)),
            LoopItems::Entries(entries) => entries.get(at).cloned(),
        }
    }
}

impl<'a> Evaluator<'a, '_> {
    fn eval_loop_range(&mut self, node: &'a ExpressionNode) -> Result<LoopItems<'a>, ExpressionError> {
        let value = self.eval_node(node)?;
        self.meter.charge_bytes(if value.is_map() { value.element_count() * ENTRY_BYTES } else { 0 })?;
        Ok(LoopItems::Entries(match &value {
            list if list.is_list() => return Ok(LoopItems::List(value)),
            CelValue::Json(Value::Object(entries)) => {
                let entries = entries.iter();
                entries
                    .map(|(key, value)| (CelValue::Text(CelText::Borrowed(key)), CelValue::from_json(value)))
                    .collect()
            }
            CelValue::Map(entries) => entries.iter().map(|(key, value)| (key.to_value(), value.clone())).collect(),
            other => return Err(has_no_elements(node, other)),
        }))
    }

    pub fn eval_loop(&mut self, loop_node: &'a Loop) -> Result<CelValue<'a>, ExpressionError> {
        let items = self.eval_loop_range(&loop_node.range)?;
        let result = match loop_node.kind {
            LoopKind::All => self.eval_quantifier(loop_node, &items, false),
            LoopKind::Exists => self.eval_quantifier(loop_node, &items, true),
            LoopKind::ExistsOne => self.eval_exists_one(loop_node, &items),
            LoopKind::List => self.eval_list_loop(loop_node, &items),
            LoopKind::Map | LoopKind::MapEntries => self.eval_map_loop(loop_node, &items),
            LoopKind::SortBy => self.eval_sort_by(loop_node, &items),
        };
        self.locals.truncate(loop_node.local_index);
        result
    }

    /// Sets the variables of the iteration; false after the last one.
    fn begin_iteration(&mut self, loop_node: &Loop, items: &LoopItems<'a>, at: usize) -> Result<bool, ExpressionError> {
        let Some((first, second)) = items.pair_at(at) else { return Ok(false) };
        self.meter.charge_step()?;
        // An error absorbed by `||` may have left locals of an inner macro.
        self.locals.truncate(loop_node.local_index);
        if loop_node.has_two_variables {
            self.locals.extend([Local::Value(first), Local::Value(second)]);
        } else {
            // The elements of a list, and the keys of a map.
            let is_list = matches!(items, LoopItems::List(_));
            self.locals.push(Local::Value(if is_list { second } else { first }));
        }
        Ok(true)
    }

    /// Whether the loop's filter selects the element of this iteration.
    fn passes_filter(&mut self, loop_node: &'a Loop) -> Result<bool, ExpressionError> {
        match &loop_node.filter {
            Some(filter) => self.eval_bool(filter, "A filter"),
            None => Ok(true),
        }
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
            if !self.begin_iteration(loop_node, items, at)? {
                break;
            }
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
            if !self.begin_iteration(loop_node, items, at)? {
                break;
            }
            count += usize::from(self.eval_bool(&loop_node.body, "exists_one")?);
        }
        Ok(CelValue::Bool(count == 1))
    }

    fn eval_list_loop(&mut self, loop_node: &'a Loop, items: &LoopItems<'a>) -> Result<CelValue<'a>, ExpressionError> {
        let mut list = Vec::new();
        for at in 0.. {
            if !self.begin_iteration(loop_node, items, at)? {
                break;
            }
            if self.passes_filter(loop_node)? {
                self.meter.charge_bytes(SLOT_BYTES)?;
                list.push(self.eval_node(&loop_node.body)?);
            }
        }
        Ok(CelValue::from_items(list))
    }

    /// A map with the keys that the loop iterates over, or with the entries of the maps that its body makes.
    fn eval_map_loop(&mut self, loop_node: &'a Loop, items: &LoopItems<'a>) -> Result<CelValue<'a>, ExpressionError> {
        let mut map = MapEntries::new();
        for at in 0.. {
            if !self.begin_iteration(loop_node, items, at)? {
                break;
            }
            if !self.passes_filter(loop_node)? {
                continue;
            }
            let value = self.eval_node(&loop_node.body)?;
            if loop_node.kind == LoopKind::MapEntries {
                self.insert_entries(&mut map, &value)?;
            } else if let Some((key, _)) = items.pair_at(at) {
                self.insert_entry(&mut map, &key, value)?;
            }
        }
        Ok(CelValue::Map(Rc::new(map)))
    }

    fn insert_entries(&mut self, map: &mut MapEntries<'a>, value: &CelValue<'a>) -> Result<(), ExpressionError> {
        match value {
            CelValue::Map(entries) => {
                for (key, value) in entries.iter() {
                    self.insert_entry(map, &key.to_value(), value.clone())?;
                }
            }
            CelValue::Json(Value::Object(entries)) => {
                for (key, value) in entries {
                    self.insert_entry(map, &CelValue::Text(CelText::Borrowed(key)), CelValue::from_json(value))?;
                }
            }
            other => {
                let detail = format!("transformMapEntry needs a map, and this is {}.", other.kind_name());
                return Err(ExpressionError::failed(detail));
            }
        }
        Ok(())
    }

    fn eval_sort_by(&mut self, loop_node: &'a Loop, items: &LoopItems<'a>) -> Result<CelValue<'a>, ExpressionError> {
        let LoopItems::List(list) = items else {
            return Err(ExpressionError::failed("sortBy takes a list, and this is map."));
        };
        let mut keyed = Vec::new();
        for at in 0.. {
            if !self.begin_iteration(loop_node, items, at)? {
                break;
            }
            self.meter.charge_bytes(2 * SLOT_BYTES)?;
            let key = self.eval_node(&loop_node.body)?;
            keyed.extend(list.element_at(at).map(|element| (key, element)));
        }
        sort_by_keys(keyed, self.meter)
    }
}
