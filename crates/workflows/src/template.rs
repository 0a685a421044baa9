//! JSON values with expressions in them: `${{ … }}` in texts, never in keys.
//!
//! A text that is exactly one expression becomes the expression's value, of any type; in a longer text each expression
//! becomes text. Results are not evaluated again: an input that contains `${{` stays as it is.

use serde_json::{Map, Value};

use expressions::{CostMeter, Expression, ExpressionError, ExpressionScope, end_of_template};

use super::pointer::escape_key;

/// As deep as the JSON parser accepts; parsing and evaluating recurse.
const DEPTH_MAX: usize = 128;
/// Expressions per template. Parsing one takes up to a millisecond.
const EXPRESSIONS_MAX: usize = 500;
/// Further errors are not reported.
const ERRORS_MAX: usize = 20;

/// A parsed value.
#[derive(Debug)]
pub struct Template {
    part: TemplatePart,
    expressions: Vec<(String, Expression)>,
}

#[derive(Debug)]
enum TemplatePart {
    /// A value without any expression.
    Constant(Value),
    /// Exactly one expression: its index among the expressions.
    Whole(usize),
    Text(Vec<TextPiece>),
    List(Vec<TemplatePart>),
    Object(Vec<(String, TemplatePart)>),
}

#[derive(Debug)]
enum TextPiece {
    Plain(String),
    Expression(usize),
}

impl Template {
    /// Parses every text; errors have the pointer of their text.
    pub fn parse(value: &Value) -> Result<Template, Vec<(String, ExpressionError)>> {
        let mut parser = TemplateParser { expressions: Vec::new(), errors: Vec::new(), pointer: String::new() };
        let part = parser.parse_part(value, 0);
        if parser.errors.is_empty() {
            Ok(Template { part, expressions: parser.expressions })
        } else {
            Err(parser.errors)
        }
    }

    /// The pointers of the texts that have an expression, each once.
    pub fn templated_pointers(&self) -> impl Iterator<Item = &str> {
        let pointers = self.expressions.iter().map(|(pointer, _)| pointer.as_str());
        let mut last = None;
        // Expressions of one text are adjacent.
        pointers.filter(move |pointer| last.replace(*pointer) != Some(*pointer))
    }

    /// Each expression, with the pointer of its text.
    pub fn expressions(&self) -> impl Iterator<Item = (&str, &Expression)> {
        self.expressions.iter().map(|(pointer, expression)| (pointer.as_str(), expression))
    }

    pub fn is_constant(&self) -> bool {
        self.expressions.is_empty()
    }

    /// Evaluates all expressions; an error has the pointer of its text.
    pub fn eval_to_json(
        &self,
        scope: &ExpressionScope<'_>,
        meter: &mut CostMeter,
    ) -> Result<Value, (String, ExpressionError)> {
        TemplateEvaluation { template: self, scope, meter }.eval_part(&self.part)
    }
}

struct TemplateParser {
    expressions: Vec<(String, Expression)>,
    errors: Vec<(String, ExpressionError)>,
    pointer: String,
}

impl TemplateParser {
    fn parse_part(&mut self, value: &Value, depth: usize) -> TemplatePart {
        let before = self.expressions.len();
        let part = match value {
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => {
                self.add_error(ExpressionError::invalid(format!("Values can be at most {DEPTH_MAX} deep.")));
                return TemplatePart::Constant(Value::Null);
            }
            Value::Array(items) => TemplatePart::List(
                items.iter().enumerate().map(|(at, item)| self.parse_child(&at.to_string(), item, depth)).collect(),
            ),
            Value::Object(entries) => {
                let parts =
                    entries.iter().map(|(key, value)| (key.clone(), self.parse_child(&escape_key(key), value, depth)));
                TemplatePart::Object(parts.collect())
            }
            Value::String(text) if text.contains("${{") => self.parse_text(text),
            constant => return TemplatePart::Constant(constant.clone()),
        };
        if self.expressions.len() == before { TemplatePart::Constant(value.clone()) } else { part }
    }

    fn parse_child(&mut self, token: &str, value: &Value, depth: usize) -> TemplatePart {
        let length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(token);
        let part = self.parse_part(value, depth + 1);
        self.pointer.truncate(length);
        part
    }

    fn add_error(&mut self, fault: ExpressionError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push((self.pointer.clone(), fault));
        }
    }

    fn parse_text(&mut self, text: &str) -> TemplatePart {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((plain, after)) = rest.split_once("${{") {
            if !plain.is_empty() {
                pieces.push(TextPiece::Plain(plain.to_owned()));
            }
            let parsed = end_of_template(after).and_then(|end| Ok((end, self.parse_expression(&after[..end])?)));
            match parsed {
                Ok((end, at)) => {
                    pieces.push(TextPiece::Expression(at));
                    rest = after.get(end + "}}".len()..).unwrap_or_default();
                }
                Err(fault) => {
                    self.add_error(fault);
                    return TemplatePart::Constant(Value::Null);
                }
            }
        }
        if !rest.is_empty() {
            pieces.push(TextPiece::Plain(rest.to_owned()));
        }
        match pieces.as_slice() {
            [TextPiece::Expression(at)] => TemplatePart::Whole(*at),
            _ => TemplatePart::Text(pieces),
        }
    }

    fn parse_expression(&mut self, source: &str) -> Result<usize, ExpressionError> {
        if self.expressions.len() >= EXPRESSIONS_MAX {
            return Err(ExpressionError::invalid(format!("There can be at most {EXPRESSIONS_MAX} expressions.")));
        }
        let expression = Expression::parse(source)?;
        self.expressions.push((self.pointer.clone(), expression));
        Ok(self.expressions.len() - 1)
    }
}

struct TemplateEvaluation<'a, 'm> {
    template: &'a Template,
    scope: &'a ExpressionScope<'a>,
    meter: &'m mut CostMeter,
}

impl TemplateEvaluation<'_, '_> {
    fn eval_part(&mut self, part: &TemplatePart) -> Result<Value, (String, ExpressionError)> {
        match part {
            TemplatePart::Constant(value) => Ok(value.clone()),
            TemplatePart::Whole(at) => self.eval_expression(*at, Expression::eval_to_json),
            TemplatePart::Text(pieces) => self.eval_text(pieces),
            TemplatePart::List(parts) => {
                parts.iter().map(|part| self.eval_part(part)).collect::<Result<Vec<Value>, _>>().map(Value::Array)
            }
            TemplatePart::Object(entries) => self.eval_object(entries),
        }
    }

    fn eval_object(&mut self, entries: &[(String, TemplatePart)]) -> Result<Value, (String, ExpressionError)> {
        let mut object = Map::new();
        for (key, part) in entries {
            object.insert(key.clone(), self.eval_part(part)?);
        }
        Ok(Value::Object(object))
    }

    fn eval_text(&mut self, pieces: &[TextPiece]) -> Result<Value, (String, ExpressionError)> {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                TextPiece::Plain(plain) => text.push_str(plain),
                TextPiece::Expression(at) => text.push_str(&self.eval_expression(*at, Expression::eval_to_text)?),
            }
        }
        Ok(Value::String(text))
    }

    fn eval_expression<T>(
        &mut self,
        at: usize,
        evaluate: impl Fn(&Expression, &ExpressionScope<'_>, &mut CostMeter) -> Result<T, ExpressionError>,
    ) -> Result<T, (String, ExpressionError)> {
        match self.template.expressions.get(at) {
            Some((pointer, expression)) => {
                evaluate(expression, self.scope, self.meter).map_err(|fault| (pointer.clone(), fault))
            }
            None => Err((String::new(), ExpressionError::failed("There is no such expression."))),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
