//! Lowers the parsed syntax to the tree that is evaluated: names, functions and patterns are resolved here, once.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::parser::pratt_parser::{Lexer, TokenKind};
use regex::RegexBuilder;

use super::functions::{self, Function};
use super::node::{Literal, Loop, LoopKind, Node, Operator, Pattern, Root};
use super::pattern;
use super::{Expression, Fault};

/// How deep nodes can be nested: evaluation recurses.
const DEPTH_MAX: usize = 128;
/// Compiling patterns is the most expensive part of saving a definition.
const PATTERNS_MAX: usize = 4;
const PATTERN_PLACES_MAX: usize = 500;
const PATTERN_BYTES: usize = 128 << 10;
const PATTERN_CACHE_BYTES: usize = 256 << 10;
/// Matching a byte against this many positions takes about as long as other work charged as one byte: a tenth of a
/// millisecond for a thousand bytes.
const PLACES_A_BYTE: usize = 4;

pub fn lower(source: &str, expr: &Expr) -> Result<Expression, Fault> {
    let mut lower = Lower { source, locals: Vec::new(), roots: Vec::new(), steps: Vec::new(), depth: 0, patterns: 0 };
    let node = lower.node(expr)?;
    Ok(Expression { node, roots: lower.roots, steps: lower.steps })
}

struct Lower<'s> {
    source: &'s str,
    locals: Vec<String>,
    roots: Vec<Root>,
    steps: Vec<String>,
    depth: usize,
    patterns: usize,
}

impl Lower<'_> {
    fn node(&mut self, expr: &Expr) -> Result<Node, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::bad(format!("The parts of an expression can stand at most {DEPTH_MAX} deep.")));
        }
        let node = match expr {
            Expr::Literal(value) => literal(value).map(Node::Literal),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(&select.operand.expr, &select.field, select.test),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.nodes(&list.elements).map(Node::List),
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Ok((self.node(&entry.key.expr)?, self.node(&entry.value.expr)?)),
                    EntryExpr::StructField(_) => Err(Fault::bad("There are no messages here, only maps.")),
                });
                entries.collect::<Result<_, _>>().map(Node::Map)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(of) => Err(self.bad(&of.type_name, "There are no messages here, only maps.")),
            Expr::Unspecified => Err(Fault::bad("This is not an expression.")),
        };
        self.depth -= 1;
        node
    }

    fn nodes(&mut self, exprs: &[IdedExpr]) -> Result<Vec<Node>, Fault> {
        exprs.iter().map(|expr| self.node(&expr.expr)).collect()
    }

    fn boxed(&mut self, expr: &IdedExpr) -> Result<Box<Node>, Fault> {
        self.node(&expr.expr).map(Box::new)
    }

    /// An error with the position of the name that it is about.
    fn bad(&self, name: &str, detail: impl Into<String>) -> Fault {
        let mut lexer = Lexer::new(self.source);
        loop {
            let token = lexer.lex();
            match token.kind {
                TokenKind::TokEnd | TokenKind::TokError => return Fault::bad(detail),
                TokenKind::TokIdent if self.source.get(token.start..token.end) == Some(name) => {
                    return Fault::bad_at(detail, self.source, token.start);
                }
                _ => {}
            }
        }
    }

    fn root(&self, name: &str) -> Option<Root> {
        if self.locals.iter().any(|local| local == name) {
            return None;
        }
        Root::ALL.into_iter().find(|root| root.name() == name)
    }

    fn name(&mut self, name: &str) -> Result<Node, Fault> {
        if let Some(at) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Node::Local(at, name.into()));
        }
        match self.root(name) {
            Some(Root::Steps) => Err(self.bad(name, "A step is named by its id, as in steps.fetch.output.")),
            Some(root) => Ok(self.see(root)),
            None => match TYPES.iter().find(|known| **known == name) {
                Some(known) => Ok(Node::Literal(Literal::Type(known))),
                None => Err(self.bad(name, format!("There is no {name}. There are input, event, steps, run and now."))),
            },
        }
    }

    fn see(&mut self, root: Root) -> Node {
        if !self.roots.contains(&root) {
            self.roots.push(root);
        }
        Node::Root(root)
    }

    /// Lowers the operand of a selection. It can be `steps` itself only if the key is a literal.
    fn of(&mut self, operand: &Expr, key: &str) -> Result<Box<Node>, Fault> {
        match operand {
            Expr::Ident(name) if self.root(name) == Some(Root::Steps) => {
                if !self.steps.iter().any(|step| step == key) {
                    self.steps.push(key.to_owned());
                }
                Ok(Box::new(self.see(Root::Steps)))
            }
            operand => self.node(operand).map(Box::new),
        }
    }

    fn select(&mut self, operand: &Expr, key: &str, test: bool) -> Result<Node, Fault> {
        let of = self.of(operand, key)?;
        Ok(if test { Node::Has(of, key.into()) } else { Node::Select(of, key.into()) })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Node, Fault> {
        if let (None, [one, two]) = (&call.target, call.args.as_slice()) {
            if let Some(operator) = binary(&call.func_name) {
                return Ok(Node::Binary(operator, self.pair(one, two)?));
            }
            match call.func_name.as_str() {
                operators::LOGICAL_AND => return Ok(Node::And(self.pair(one, two)?)),
                operators::LOGICAL_OR => return Ok(Node::Or(self.pair(one, two)?)),
                operators::INDEX => return self.index(one, two),
                _ => {}
            }
        }
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_NOT, [of]) => Ok(Node::Not(self.boxed(of)?)),
            (operators::NEGATE, [of]) => Ok(Node::Negate(self.boxed(of)?)),
            (operators::CONDITIONAL, [when, then, otherwise]) => {
                let parts = [self.node(&when.expr)?, self.node(&then.expr)?, self.node(&otherwise.expr)?];
                Ok(Node::If(Box::new(parts)))
            }
            _ => self.function(call),
        }
    }

    fn pair(&mut self, one: &IdedExpr, two: &IdedExpr) -> Result<Box<[Node; 2]>, Fault> {
        Ok(Box::new([self.node(&one.expr)?, self.node(&two.expr)?]))
    }

    fn index(&mut self, of: &IdedExpr, key: &IdedExpr) -> Result<Node, Fault> {
        match &key.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                let of = self.of(&of.expr, text.inner())?;
                Ok(Node::Index(Box::new([*of, self.node(&key.expr)?])))
            }
            _ => Ok(Node::Index(self.pair(of, key)?)),
        }
    }

    fn function(&mut self, call: &CallExpr) -> Result<Node, Fault> {
        let name = call.func_name.as_str();
        let count = call.args.len() + usize::from(call.target.is_some());
        let function = functions::find(name, call.target.is_some(), count).map_err(|detail| self.bad(name, detail))?;
        let mut arguments: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        if function == Function::Matches {
            let pattern = arguments.pop().map(|pattern| &pattern.expr);
            let Some(Expr::Literal(LiteralValue::String(pattern))) = pattern else {
                return Err(self.bad(name, "The pattern of matches is written out, between quotes."));
            };
            let pattern = self.pattern(pattern.inner())?;
            let text =
                arguments.pop().map_or_else(|| Err(Fault::bad("matches needs a text.")), |text| self.boxed(text));
            return Ok(Node::Matches(text?, Box::new(pattern)));
        }
        let arguments: Result<Vec<Node>, Fault> = arguments.into_iter().map(|expr| self.node(&expr.expr)).collect();
        Ok(Node::Call(function, arguments?))
    }

    fn pattern(&mut self, pattern: &str) -> Result<Pattern, Fault> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(self.bad("matches", format!("An expression has at most {PATTERNS_MAX} patterns.")));
        }
        let places = pattern::places(pattern).map_err(|detail| self.bad("matches", detail))?;
        let too_large = || self.bad("matches", "The pattern is too large once its repetitions are written out.");
        if places > PATTERN_PLACES_MAX {
            return Err(too_large());
        }
        let mut builder = RegexBuilder::new(&pattern::as_ascii(pattern));
        let regex = builder.size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_CACHE_BYTES).build();
        Ok(Pattern { regex: regex.map_err(|_| too_large())?, weight: 1 + places / PLACES_A_BYTE })
    }

    /// Recognizes the macros by the initial value of their accumulator.
    fn comprehension(&mut self, of: &ComprehensionExpr) -> Result<Node, Fault> {
        let unknown = || Fault::bad("There is no such macro.");
        let Expr::Call(step) = &of.loop_step.expr else { return Err(unknown()) };
        let (kind, keep, make) = match (&of.accu_init.expr, step.func_name.as_str(), step.args.as_slice()) {
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND, [_, ask]) => (LoopKind::All, None, ask),
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR, [_, ask]) => (LoopKind::Exists, None, ask),
            (Expr::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [ask, _, _]) => {
                (LoopKind::ExistsOne, None, ask)
            }
            (Expr::List(_), operators::CONDITIONAL, [keep, step, _]) => {
                (LoopKind::List, Some(keep), pushed(&step.expr).ok_or_else(unknown)?)
            }
            (Expr::List(_), operators::ADD, _) => {
                (LoopKind::List, None, pushed(&of.loop_step.expr).ok_or_else(unknown)?)
            }
            _ => return Err(unknown()),
        };
        let over = self.node(&of.iter_range.expr)?;
        let local = self.locals.len();
        self.locals.push(of.iter_var.clone());
        let keep = keep.map(|keep| self.node(&keep.expr)).transpose()?;
        let make = self.node(&make.expr)?;
        self.locals.truncate(local);
        Ok(Node::Loop(Box::new(Loop { kind, over, local, keep, make })))
    }
}

fn literal(literal: &LiteralValue) -> Result<Literal, Fault> {
    Ok(match literal {
        LiteralValue::Null => Literal::Null,
        LiteralValue::Boolean(yes) => Literal::Bool(*yes.inner()),
        LiteralValue::Int(int) => Literal::Int(*int.inner()),
        LiteralValue::UInt(uint) => Literal::Uint(*uint.inner()),
        LiteralValue::Double(double) => Literal::Double(*double.inner()),
        LiteralValue::String(text) => Literal::Text(text.inner().into()),
        LiteralValue::Bytes(_) => return Err(Fault::bad("There are no bytes here, only texts.")),
    })
}

/// Finds the `x` of `result + [x]`.
fn pushed(step: &Expr) -> Option<&IdedExpr> {
    let Expr::Call(CallExpr { args, .. }) = step else { return None };
    let [_, list] = args.as_slice() else { return None };
    let Expr::List(list) = &list.expr else { return None };
    let [pushed] = list.elements.as_slice() else { return None };
    Some(pushed)
}

/// Names that `type()` returns.
const TYPES: [&str; 9] = ["bool", "int", "uint", "double", "string", "list", "map", "null_type", "type"];

fn binary(name: &str) -> Option<Operator> {
    Some(match name {
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Modulo,
        operators::EQUALS => Operator::Equal,
        operators::NOT_EQUALS => Operator::Unequal,
        operators::LESS => Operator::Less,
        operators::LESS_EQUALS => Operator::AtMost,
        operators::GREATER => Operator::Greater,
        operators::GREATER_EQUALS => Operator::AtLeast,
        operators::IN => Operator::In,
        _ => return None,
    })
}
