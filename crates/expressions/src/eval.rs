//! Evaluates an `ExpressionNode`. The meter is charged one step for each node visited, again in each iteration of a loop.
//!
//! `eval_node` recurses as deep as the expression: each kind of node has a function of its own, so that a level takes
//! little stack.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use serde_json::Value;

use super::node::{Literal, Loop, LoopKind, Node, Pattern, Root};
use super::value::{ENTRY_BYTES, Key, SLOT_BYTES, Text, V};
use super::{Fault, Meter, Scope, functions, operators};

pub fn eval<'a>(node: &'a Node, scope: &'a Scope<'a>, meter: &mut Meter) -> Result<V<'a>, Fault> {
    Evaluation { scope, locals: Vec::new(), meter }.eval(node)
}

struct Evaluation<'a, 'm> {
    scope: &'a Scope<'a>,
    locals: Vec<V<'a>>,
    meter: &'m mut Meter,
}

/// The elements that a loop iterates over.
enum Items<'a> {
    Json(&'a [Value]),
    Made(Rc<Vec<V<'a>>>),
}

impl<'a> Items<'a> {
    fn get(&self, at: usize) -> Option<V<'a>> {
        match self {
            Items::Json(items) => items.get(at).map(V::of),
            Items::Made(items) => items.get(at).cloned(),
        }
    }
}

impl<'a> Evaluation<'a, '_> {
    fn eval(&mut self, node: &'a Node) -> Result<V<'a>, Fault> {
        self.meter.step()?;
        match node {
            Node::Literal(literal) => Ok(of_literal(literal)),
            Node::Root(root) => Ok(self.root(*root)),
            Node::Local(at, _) => Ok(self.locals.get(*at).cloned().unwrap_or(V::Null)),
            Node::Select(of, key) => self.select(of, key),
            Node::Has(of, key) => self.has(of, key),
            Node::Index(pair) => self.index(pair),
            Node::List(nodes) => self.nodes(nodes).map(V::list),
            Node::Map(entries) => self.map(entries),
            Node::Not(of) => self.not(of),
            Node::Negate(of) => self.negate(of),
            Node::And(pair) => self.either(pair, false),
            Node::Or(pair) => self.either(pair, true),
            Node::If(parts) => self.conditional(parts),
            Node::Binary(operator, pair) => {
                let (one, two) = (self.eval(&pair[0])?, self.eval(&pair[1])?);
                operators::apply(*operator, &one, &two, self.meter)
            }
            Node::Call(function, arguments) => {
                let arguments = self.nodes(arguments)?;
                functions::call(*function, &arguments, self.meter)
            }
            Node::Matches(text, pattern) => self.matches(text, pattern),
            Node::Loop(of) => self.run(of),
        }
    }

    fn root(&self, root: Root) -> V<'a> {
        match root {
            Root::Input => V::of(self.scope.input),
            Root::Event => V::of(self.scope.event),
            Root::Steps => V::of(self.scope.steps),
            Root::Run => V::of(self.scope.run),
            Root::Now => V::Time(self.scope.now),
        }
    }

    fn select(&mut self, of: &'a Node, key: &'a str) -> Result<V<'a>, Fault> {
        let value = self.eval(of)?;
        match field(&value, key) {
            Field::Is(found) => Ok(found),
            Field::Missing => Err(missing(of, key)),
            Field::NoMap => Err(no_map(of, &value, key)),
        }
    }

    fn has(&mut self, of: &'a Node, key: &'a str) -> Result<V<'a>, Fault> {
        let value = self.eval(of)?;
        match field(&value, key) {
            Field::Is(_) => Ok(V::Bool(true)),
            Field::Missing => Ok(V::Bool(false)),
            Field::NoMap => Err(no_map(of, &value, key)),
        }
    }

    fn index(&mut self, pair: &'a [Node; 2]) -> Result<V<'a>, Fault> {
        let (of, key) = (self.eval(&pair[0])?, self.eval(&pair[1])?);
        if let V::Text(text) = &key {
            self.meter.bytes(text.len())?;
        }
        operators::pick(&of, &key).ok_or_else(|| match (&pair[1], &of) {
            (Node::Literal(Literal::Text(key)), _) => missing(&pair[0], key),
            (_, V::Json(_) | V::List(_) | V::Map(_)) => {
                Fault::failed(format!("{} has no such element or key.", called(&pair[0])))
            }
            (_, other) => Fault::failed(format!("{} is {} and has no elements.", called(&pair[0]), other.kind())),
        })
    }

    fn nodes(&mut self, nodes: &'a [Node]) -> Result<Vec<V<'a>>, Fault> {
        self.meter.bytes(nodes.len() * SLOT_BYTES)?;
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            values.push(self.eval(node)?);
        }
        Ok(values)
    }

    fn map(&mut self, entries: &'a [(Node, Node)]) -> Result<V<'a>, Fault> {
        let mut map: BTreeMap<Key<'a>, V<'a>> = BTreeMap::new();
        for (key, value) in entries {
            self.meter.bytes(ENTRY_BYTES)?;
            let key = self.eval(key)?;
            if let V::Text(text) = &key {
                self.meter.bytes(text.len())?;
            }
            let key = key
                .key()
                .filter(|_| !matches!(key, V::Double(_)))
                .ok_or_else(|| Fault::failed(format!("{} cannot be the key of a map.", key.kind())))?;
            let value = self.eval(value)?;
            match map.entry(key) {
                Entry::Vacant(place) => drop(place.insert(value)),
                Entry::Occupied(_) => return Err(Fault::failed("A map has the same key twice.")),
            }
        }
        Ok(V::Map(Rc::new(map)))
    }

    /// Evaluates a node that must be true or false.
    fn truth(&mut self, node: &'a Node, sign: &str) -> Result<bool, Fault> {
        match self.eval(node)? {
            V::Bool(yes) => Ok(yes),
            other => Err(Fault::failed(format!("{sign} needs true or false, and this is {}.", other.kind()))),
        }
    }

    fn not(&mut self, of: &'a Node) -> Result<V<'a>, Fault> {
        self.truth(of, "!").map(|yes| V::Bool(!yes))
    }

    fn negate(&mut self, of: &'a Node) -> Result<V<'a>, Fault> {
        operators::negate(&self.eval(of)?)
    }

    /// One true operand decides `||`, one false operand decides `&&`, even if the other fails. An exceeded budget is never
    /// absorbed.
    fn either(&mut self, pair: &'a [Node; 2], decides: bool) -> Result<V<'a>, Fault> {
        let sign = if decides { "||" } else { "&&" };
        let one = match self.truth(&pair[0], sign) {
            Ok(yes) if yes == decides => return Ok(V::Bool(decides)),
            Err(Fault::Spent) => return Err(Fault::Spent),
            other => other,
        };
        match self.truth(&pair[1], sign) {
            Ok(yes) if yes == decides => Ok(V::Bool(decides)),
            Err(Fault::Spent) => Err(Fault::Spent),
            two => one.and(two).map(V::Bool),
        }
    }

    fn conditional(&mut self, parts: &'a [Node; 3]) -> Result<V<'a>, Fault> {
        let taken = if self.truth(&parts[0], "?:")? { &parts[1] } else { &parts[2] };
        self.eval(taken)
    }

    fn matches(&mut self, text: &'a Node, pattern: &'a Pattern) -> Result<V<'a>, Fault> {
        match self.eval(text)? {
            V::Text(text) => {
                self.meter.bytes(text.len().saturating_mul(pattern.weight))?;
                Ok(V::Bool(pattern.regex.is_match(&text)))
            }
            other => Err(Fault::failed(format!("matches cannot take ({}).", other.kind()))),
        }
    }

    fn items(&mut self, node: &'a Node) -> Result<Items<'a>, Fault> {
        let value = self.eval(node)?;
        match value {
            V::Json(Value::Array(items)) => Ok(Items::Json(items)),
            V::List(items) => Ok(Items::Made(items)),
            // A loop over a map iterates over its keys.
            V::Json(Value::Object(entries)) => {
                self.meter.bytes(entries.len() * SLOT_BYTES)?;
                Ok(Items::Made(Rc::new(entries.keys().map(|key| V::Text(Text::Borrowed(key))).collect())))
            }
            V::Map(entries) => {
                self.meter.bytes(entries.len() * SLOT_BYTES)?;
                Ok(Items::Made(Rc::new(entries.keys().map(Key::value).collect())))
            }
            other => Err(Fault::failed(format!("{} is {} and has no elements.", called(node), other.kind()))),
        }
    }

    fn run(&mut self, of: &'a Loop) -> Result<V<'a>, Fault> {
        let items = self.items(&of.over)?;
        // An error absorbed by `||` may have left locals of an inner loop.
        self.locals.truncate(of.local);
        self.locals.push(V::Null);
        let found = match of.kind {
            LoopKind::All => self.decide(of, &items, false),
            LoopKind::Exists => self.decide(of, &items, true),
            LoopKind::ExistsOne => self.count(of, &items),
            LoopKind::List => self.list(of, &items),
        };
        self.locals.truncate(of.local);
        found
    }

    fn turn(&mut self, of: &Loop, item: V<'a>) -> Result<(), Fault> {
        self.meter.step()?;
        self.locals.truncate(of.local);
        self.locals.push(item);
        Ok(())
    }

    /// Combines the predicate's results for all elements as `||` or `&&` would.
    fn decide(&mut self, of: &'a Loop, items: &Items<'a>, decides: bool) -> Result<V<'a>, Fault> {
        let sign = if decides { "exists" } else { "all" };
        let mut answer = Ok(V::Bool(!decides));
        for at in 0.. {
            let Some(item) = items.get(at) else { break };
            self.turn(of, item)?;
            match self.truth(&of.make, sign) {
                Ok(yes) if yes == decides => return Ok(V::Bool(decides)),
                Ok(_) => {}
                Err(Fault::Spent) => return Err(Fault::Spent),
                Err(fault) => answer = answer.and(Err(fault)),
            }
        }
        answer
    }

    fn count(&mut self, of: &'a Loop, items: &Items<'a>) -> Result<V<'a>, Fault> {
        let mut count = 0_usize;
        for at in 0.. {
            let Some(item) = items.get(at) else { break };
            self.turn(of, item)?;
            count += usize::from(self.truth(&of.make, "exists_one")?);
        }
        Ok(V::Bool(count == 1))
    }

    fn list(&mut self, of: &'a Loop, items: &Items<'a>) -> Result<V<'a>, Fault> {
        let mut list = Vec::new();
        for at in 0.. {
            let Some(item) = items.get(at) else { break };
            self.turn(of, item)?;
            let kept = match &of.keep {
                Some(keep) => self.truth(keep, "A filter")?,
                None => true,
            };
            if kept {
                self.meter.bytes(SLOT_BYTES)?;
                list.push(self.eval(&of.make)?);
            }
        }
        Ok(V::list(list))
    }
}

fn of_literal(literal: &Literal) -> V<'_> {
    match literal {
        Literal::Null => V::Null,
        Literal::Bool(yes) => V::Bool(*yes),
        Literal::Int(int) => V::Int(*int),
        Literal::Uint(uint) => V::Uint(*uint),
        Literal::Double(double) => V::Double(*double),
        Literal::Text(text) => V::Text(Text::Borrowed(text)),
        Literal::Type(name) => V::Type(name),
    }
}

enum Field<'a> {
    Is(V<'a>),
    Missing,
    NoMap,
}

fn field<'a>(value: &V<'a>, key: &'a str) -> Field<'a> {
    let found = match value {
        V::Json(Value::Object(entries)) => entries.get(key).map(V::of),
        V::Map(entries) => entries.get(&Key::Text(Text::Borrowed(key))).cloned(),
        _ => return Field::NoMap,
    };
    found.map_or(Field::Missing, Field::Is)
}

/// The node's name in error messages: its source path, where it has one.
fn called(node: &Node) -> String {
    node.path().map_or_else(|| "This".to_owned(), |path| format!("`{path}`"))
}

fn missing(of: &Node, key: &str) -> Fault {
    Fault::failed(format!("{} has no `{key}`.", called(of)))
}

fn no_map(of: &Node, value: &V<'_>, key: &str) -> Fault {
    Fault::failed(format!("{} is {} and has no `{key}`.", called(of), value.kind()))
}
