//! Fields and elements: `value.field`, `value[key]`, their optional forms, and `has`.

use serde_json::Value;

use super::super::ExpressionError;
use super::super::node::{ExpressionNode, Literal};
use super::super::operators::find_element;
use super::super::value::{CelText, CelValue, MapKey, SLOT_BYTES};
use super::Evaluator;

enum FieldLookup<'a> {
    Found(CelValue<'a>),
    Missing,
    NotAMap,
}

fn lookup_field<'a>(value: &CelValue<'a>, key: &'a str) -> FieldLookup<'a> {
    let found = match value {
        CelValue::Json(Value::Object(entries)) => entries.get(key).map(CelValue::from_json),
        CelValue::Map(entries) => entries.get(&MapKey::Text(CelText::Borrowed(key))).cloned(),
        CelValue::Optional(None) => None,
        CelValue::Optional(Some(value)) => return lookup_field(value, key),
        _ => return FieldLookup::NotAMap,
    };
    found.map_or(FieldLookup::Missing, FieldLookup::Found)
}

impl<'a> Evaluator<'a, '_> {
    /// A field of an optional value is an optional value again.
    pub fn eval_select(&mut self, operand: &'a ExpressionNode, key: &'a str) -> Result<CelValue<'a>, ExpressionError> {
        let value = self.eval_node(operand)?;
        let is_optional = matches!(value, CelValue::Optional(_));
        match lookup_field(&value, key) {
            FieldLookup::Found(found) if is_optional => self.make_optional(Some(found)),
            FieldLookup::Found(found) => Ok(found),
            FieldLookup::Missing if is_optional => self.make_optional(None),
            FieldLookup::Missing => Err(missing_field(operand, key)),
            FieldLookup::NotAMap => Err(not_a_map(operand, &value, key)),
        }
    }

    pub fn eval_optional_select(
        &mut self,
        operand: &'a ExpressionNode,
        key: &'a str,
    ) -> Result<CelValue<'a>, ExpressionError> {
        let value = self.eval_node(operand)?;
        match lookup_field(&value, key) {
            FieldLookup::Found(found) => self.make_optional(Some(found)),
            FieldLookup::Missing => self.make_optional(None),
            FieldLookup::NotAMap if value.is_nothing() => self.make_optional(None),
            FieldLookup::NotAMap => Err(not_a_map(operand, &value, key)),
        }
    }

    fn make_optional(&mut self, found: Option<CelValue<'a>>) -> Result<CelValue<'a>, ExpressionError> {
        self.meter.charge_bytes(SLOT_BYTES)?;
        Ok(CelValue::optional(found))
    }

    pub fn eval_has(&mut self, operand: &'a ExpressionNode, key: &'a str) -> Result<CelValue<'a>, ExpressionError> {
        let value = self.eval_node(operand)?;
        match lookup_field(&value, key) {
            FieldLookup::Found(_) => Ok(CelValue::Bool(true)),
            FieldLookup::Missing => Ok(CelValue::Bool(false)),
            FieldLookup::NotAMap if value.is_nothing() => Ok(CelValue::Bool(false)),
            FieldLookup::NotAMap => Err(not_a_map(operand, &value, key)),
        }
    }

    pub fn eval_index(&mut self, pair: &'a [ExpressionNode; 2]) -> Result<CelValue<'a>, ExpressionError> {
        let (container, key) = self.eval_container(pair)?;
        if let CelValue::Optional(_) = container {
            return self.find_optional_element(&pair[0], &container, &key);
        }
        find_element(&container, &key).ok_or_else(|| no_element(pair, &container))
    }

    pub fn eval_optional_index(&mut self, pair: &'a [ExpressionNode; 2]) -> Result<CelValue<'a>, ExpressionError> {
        let (container, key) = self.eval_container(pair)?;
        self.find_optional_element(&pair[0], &container, &key)
    }

    fn eval_container(
        &mut self,
        pair: &'a [ExpressionNode; 2],
    ) -> Result<(CelValue<'a>, CelValue<'a>), ExpressionError> {
        let (container, key) = (self.eval_node(&pair[0])?, self.eval_node(&pair[1])?);
        if let CelValue::Text(text) = &key {
            self.meter.charge_bytes(text.len())?;
        }
        Ok((container, key))
    }

    fn find_optional_element(
        &mut self,
        node: &ExpressionNode,
        container: &CelValue<'a>,
        key: &CelValue<'a>,
    ) -> Result<CelValue<'a>, ExpressionError> {
        let found = match container {
            CelValue::Optional(None) => None,
            CelValue::Optional(Some(value)) => find_element(value, key),
            value if value.is_list() || value.is_map() => find_element(value, key),
            value if value.is_nothing() => None,
            other => return Err(has_no_elements(node, other)),
        };
        self.make_optional(found)
    }
}

/// The node's name in error messages: its source path, where it has one.
pub fn describe_node(node: &ExpressionNode) -> String {
    node.source_path().map_or_else(|| "This".to_owned(), |path| format!("`{path}`"))
}

fn missing_field(operand: &ExpressionNode, key: &str) -> ExpressionError {
    ExpressionError::failed(format!("{} has no `{key}`.", describe_node(operand)))
}

fn not_a_map(operand: &ExpressionNode, value: &CelValue<'_>, key: &str) -> ExpressionError {
    ExpressionError::failed(format!("{} is {} and has no `{key}`.", describe_node(operand), value.kind_name()))
}

pub fn has_no_elements(node: &ExpressionNode, value: &CelValue<'_>) -> ExpressionError {
    ExpressionError::failed(format!("{} is {} and has no elements.", describe_node(node), value.kind_name()))
}

fn no_element(pair: &[ExpressionNode; 2], container: &CelValue<'_>) -> ExpressionError {
    match (&pair[1], container) {
        (ExpressionNode::Literal(Literal::Text(key)), _) => missing_field(&pair[0], key),
        (_, container) if container.is_list() || container.is_map() => {
            ExpressionError::failed(format!("{} has no such element or key.", describe_node(&pair[0])))
        }
        (_, other) => has_no_elements(&pair[0], other),
    }
}
