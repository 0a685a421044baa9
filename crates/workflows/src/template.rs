//! JSON values with expressions in them: `${{ … }}` in texts, never in keys.
//!
//! A text that is exactly one expression becomes the expression's value, of any type; in a longer text each expression
//! becomes text. Results are not evaluated again: an input that contains `${{` stays as it is.

use serde_json::{Map, Value};

use expressions::{Expression, Fault, Meter, Scope, end_of_template};

/// As deep as the JSON parser accepts; parsing and evaluating recurse.
const DEPTH_MAX: usize = 128;
/// Expressions per template. Parsing one takes up to a millisecond.
const EXPRESSIONS_MAX: usize = 500;
/// Further errors are not reported.
const FAULTS_MAX: usize = 20;

/// A parsed value.
#[derive(Debug)]
pub struct Template {
    part: Part,
    expressions: Vec<(String, Expression)>,
}

#[derive(Debug)]
enum Part {
    /// A value without any expression.
    Constant(Value),
    /// Exactly one expression: its index among the expressions.
    Whole(usize),
    Text(Vec<Piece>),
    List(Vec<Part>),
    Object(Vec<(String, Part)>),
}

#[derive(Debug)]
enum Piece {
    Plain(String),
    Expression(usize),
}

impl Template {
    /// Parses every text; errors have the pointer of their text.
    pub fn parse(value: &Value) -> Result<Template, Vec<(String, Fault)>> {
        let mut reading = Reading { expressions: Vec::new(), faults: Vec::new(), pointer: String::new() };
        let part = reading.part(value, 0);
        if reading.faults.is_empty() {
            Ok(Template { part, expressions: reading.expressions })
        } else {
            Err(reading.faults)
        }
    }

    /// The pointers of the texts that have an expression, each once.
    pub fn templated(&self) -> impl Iterator<Item = &str> {
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
    pub fn eval(&self, scope: &Scope<'_>, meter: &mut Meter) -> Result<Value, (String, Fault)> {
        Evaluation { template: self, scope, meter }.part(&self.part)
    }
}

struct Reading {
    expressions: Vec<(String, Expression)>,
    faults: Vec<(String, Fault)>,
    pointer: String,
}

impl Reading {
    fn part(&mut self, value: &Value, depth: usize) -> Part {
        let before = self.expressions.len();
        let part = match value {
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => {
                self.fault(Fault::bad(format!("Values can be at most {DEPTH_MAX} deep.")));
                return Part::Constant(Value::Null);
            }
            Value::Array(items) => Part::List(
                items.iter().enumerate().map(|(at, item)| self.child(&at.to_string(), item, depth)).collect(),
            ),
            Value::Object(entries) => {
                let parts = entries.iter().map(|(key, value)| (key.clone(), self.child(&escaped(key), value, depth)));
                Part::Object(parts.collect())
            }
            Value::String(text) if text.contains("${{") => self.text(text),
            constant => return Part::Constant(constant.clone()),
        };
        if self.expressions.len() == before { Part::Constant(value.clone()) } else { part }
    }

    fn child(&mut self, token: &str, value: &Value, depth: usize) -> Part {
        let length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(token);
        let part = self.part(value, depth + 1);
        self.pointer.truncate(length);
        part
    }

    fn fault(&mut self, fault: Fault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push((self.pointer.clone(), fault));
        }
    }

    fn text(&mut self, text: &str) -> Part {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((plain, after)) = rest.split_once("${{") {
            if !plain.is_empty() {
                pieces.push(Piece::Plain(plain.to_owned()));
            }
            let read = end_of_template(after).and_then(|end| Ok((end, self.expression(&after[..end])?)));
            match read {
                Ok((end, at)) => {
                    pieces.push(Piece::Expression(at));
                    rest = after.get(end + "}}".len()..).unwrap_or_default();
                }
                Err(fault) => {
                    self.fault(fault);
                    return Part::Constant(Value::Null);
                }
            }
        }
        if !rest.is_empty() {
            pieces.push(Piece::Plain(rest.to_owned()));
        }
        match pieces.as_slice() {
            [Piece::Expression(at)] => Part::Whole(*at),
            _ => Part::Text(pieces),
        }
    }

    fn expression(&mut self, source: &str) -> Result<usize, Fault> {
        if self.expressions.len() >= EXPRESSIONS_MAX {
            return Err(Fault::bad(format!("There can be at most {EXPRESSIONS_MAX} expressions.")));
        }
        let expression = Expression::parse(source)?;
        self.expressions.push((self.pointer.clone(), expression));
        Ok(self.expressions.len() - 1)
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

struct Evaluation<'a, 'm> {
    template: &'a Template,
    scope: &'a Scope<'a>,
    meter: &'m mut Meter,
}

impl Evaluation<'_, '_> {
    fn part(&mut self, part: &Part) -> Result<Value, (String, Fault)> {
        match part {
            Part::Constant(value) => Ok(value.clone()),
            Part::Whole(at) => self.with(*at, Expression::eval),
            Part::Text(pieces) => self.text(pieces),
            Part::List(parts) => {
                parts.iter().map(|part| self.part(part)).collect::<Result<Vec<Value>, _>>().map(Value::Array)
            }
            Part::Object(entries) => self.object(entries),
        }
    }

    fn object(&mut self, entries: &[(String, Part)]) -> Result<Value, (String, Fault)> {
        let mut object = Map::new();
        for (key, part) in entries {
            object.insert(key.clone(), self.part(part)?);
        }
        Ok(Value::Object(object))
    }

    fn text(&mut self, pieces: &[Piece]) -> Result<Value, (String, Fault)> {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Plain(plain) => text.push_str(plain),
                Piece::Expression(at) => text.push_str(&self.with(*at, Expression::text)?),
            }
        }
        Ok(Value::String(text))
    }

    fn with<T>(
        &mut self,
        at: usize,
        evaluate: impl Fn(&Expression, &Scope<'_>, &mut Meter) -> Result<T, Fault>,
    ) -> Result<T, (String, Fault)> {
        match self.template.expressions.get(at) {
            Some((pointer, expression)) => {
                evaluate(expression, self.scope, self.meter).map_err(|fault| (pointer.clone(), fault))
            }
            None => Err((String::new(), Fault::failed("There is no such expression."))),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
