//! The parser of the crate `cel`, and its syntax lowered to our tree: what our own parser is compared with.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::parser::PrattParser;
use cel::parser::pratt_parser::{Lexer, TokenKind};

use super::super::functions::{self, Callee};
use super::super::node::{ExpressionNode, ListElement, Literal, Loop, LoopKind, MapEntry, Operator, Root};
use super::super::paths::collect_paths;
use super::super::pattern::{CompiledPattern, compile_pattern};
use super::{Expression, ExpressionError, SOURCE_BYTES_MAX};

const TOKENS_MAX: usize = 256;
const NESTING_MAX: usize = 32;
const DEPTH_MAX: usize = 128;
const PATTERNS_MAX: usize = 4;

pub fn parse_expression(source: &str) -> Result<Expression, ExpressionError> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(ExpressionError::invalid(format!("An expression has at most {SOURCE_BYTES_MAX} bytes.")));
    }
    check_token_limits(source)?;
    let parser = PrattParser::new().max_recursion_depth(32).error_recovery_limit(1).enable_optional_syntax(true);
    let parsed = parser.parse(source).map_err(|errors| {
        // The first error with a position; later ones follow from it.
        let first = errors.errors.into_iter().find(|error| error.pos.0 > 0);
        let Some(error) = first else { return ExpressionError::invalid("This is not an expression.") };
        let position = (u32::try_from(error.pos.0).unwrap(), u32::try_from(error.pos.1).unwrap());
        ExpressionError::Invalid { detail: error.msg, at: Some(position) }
    })?;
    lower_expression(source, &parsed.expr)
}

fn check_token_limits(source: &str) -> Result<(), ExpressionError> {
    let (mut lexer, mut tokens, mut open) = (Lexer::new(source), 0, 0_usize);
    loop {
        let token = lexer.lex();
        match token.kind {
            TokenKind::TokEnd => break,
            TokenKind::TokError => {
                let detail = lexer.get_error().map_or("unknown character", |error| error.message.as_str());
                return Err(ExpressionError::invalid_at(detail, source, token.start));
            }
            TokenKind::TokWhitespace | TokenKind::TokComment => continue,
            TokenKind::TokLeftParen | TokenKind::TokLeftBracket | TokenKind::TokLeftBrace => open += 1,
            TokenKind::TokRightParen | TokenKind::TokRightBracket | TokenKind::TokRightBrace => {
                open = open.saturating_sub(1);
            }
            _ => {}
        }
        tokens += 1;
        if tokens > TOKENS_MAX {
            let detail = format!("An expression has at most {TOKENS_MAX} names, numbers, texts and signs.");
            return Err(ExpressionError::invalid_at(detail, source, token.start));
        }
        if open > NESTING_MAX {
            let detail = format!("Brackets can be at most {NESTING_MAX} deep.");
            return Err(ExpressionError::invalid_at(detail, source, token.start));
        }
    }
    if tokens == 0 {
        return Err(ExpressionError::invalid("An expression cannot be empty."));
    }
    Ok(())
}

/// The offset at which the expression at the start of `rest` ends: the first `}}` that closes no brace of the expression.
/// Braces in its string literals do not count.
pub fn end_of_template(rest: &str) -> Result<usize, ExpressionError> {
    let unended = || ExpressionError::invalid("${{ has no end: }} is missing.");
    let (mut lexer, mut open) = (Lexer::new(rest), 0_usize);
    loop {
        let token = lexer.lex();
        if token.start > SOURCE_BYTES_MAX {
            return Err(ExpressionError::invalid(format!(
                "An expression has at most {SOURCE_BYTES_MAX} bytes, and this one does not end before."
            )));
        }
        match token.kind {
            TokenKind::TokEnd => return Err(unended()),
            TokenKind::TokError => {
                let detail = lexer.get_error().map_or("unknown character", |error| error.message.as_str());
                return Err(ExpressionError::invalid_at(detail, rest, token.start));
            }
            TokenKind::TokLeftBrace => open += 1,
            TokenKind::TokRightBrace if open == 0 => {
                return if rest[token.end..].starts_with('}') { Ok(token.start) } else { Err(unended()) };
            }
            TokenKind::TokRightBrace => open -= 1,
            _ => {}
        }
    }
}

fn lower_expression(source: &str, expr: &Expr) -> Result<Expression, ExpressionError> {
    let mut lower =
        Lowering { source, locals: Vec::new(), roots: Vec::new(), steps: Vec::new(), depth: 0, patterns: 0 };
    let node = lower.lower_node(expr)?;
    let paths = collect_paths(&node);
    Ok(Expression { node, roots: lower.roots, steps: lower.steps, paths })
}

struct Lowering<'s> {
    source: &'s str,
    locals: Vec<String>,
    roots: Vec<Root>,
    steps: Vec<String>,
    depth: usize,
    patterns: usize,
}

impl Lowering<'_> {
    fn lower_node(&mut self, expr: &Expr) -> Result<ExpressionNode, ExpressionError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ExpressionError::invalid(format!("An expression can be nested at most {DEPTH_MAX} deep.")));
        }
        let node = match expr {
            Expr::Literal(value) => Ok(ExpressionNode::Literal(lower_literal(value))),
            Expr::Ident(name) => self.lower_name(name),
            Expr::Select(select) => self.lower_select(&select.operand.expr, &select.field, select.test),
            Expr::Call(call) => self.lower_call(call),
            Expr::List(list) => {
                let elements = list.elements.iter().enumerate().map(|(at, element)| {
                    let optional = list.optional_indices.contains(&at);
                    Ok(ListElement { value: self.lower_node(&element.expr)?, optional })
                });
                elements.collect::<Result<_, _>>().map(ExpressionNode::List)
            }
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Ok(MapEntry {
                        key: self.lower_node(&entry.key.expr)?,
                        value: self.lower_node(&entry.value.expr)?,
                        optional: entry.optional,
                    }),
                    EntryExpr::StructField(_) => {
                        Err(ExpressionError::invalid("There are no messages here, only maps."))
                    }
                });
                entries.collect::<Result<_, _>>().map(ExpressionNode::Map)
            }
            Expr::Comprehension(comprehension) => self.lower_comprehension(comprehension),
            Expr::Struct(message) => {
                Err(self.error_at_name(&message.type_name, "There are no messages here, only maps."))
            }
            Expr::Unspecified => Err(ExpressionError::invalid("This is not an expression.")),
        };
        self.depth -= 1;
        node
    }

    fn lower_boxed(&mut self, expr: &IdedExpr) -> Result<Box<ExpressionNode>, ExpressionError> {
        self.lower_node(&expr.expr).map(Box::new)
    }

    /// An error with the position of the name that it is about.
    fn error_at_name(&self, name: &str, detail: impl Into<String>) -> ExpressionError {
        let mut lexer = Lexer::new(self.source);
        loop {
            let token = lexer.lex();
            match token.kind {
                TokenKind::TokEnd | TokenKind::TokError => return ExpressionError::invalid(detail),
                TokenKind::TokIdent if self.source.get(token.start..token.end) == Some(name) => {
                    return ExpressionError::invalid_at(detail, self.source, token.start);
                }
                _ => {}
            }
        }
    }

    fn find_root(&self, name: &str) -> Option<Root> {
        if self.locals.iter().any(|local| local == name) {
            return None;
        }
        Root::ALL.into_iter().find(|root| root.name() == name)
    }

    fn lower_name(&mut self, name: &str) -> Result<ExpressionNode, ExpressionError> {
        if let Some(at) = self.locals.iter().rposition(|local| local == name) {
            return Ok(ExpressionNode::Local(at, name.into()));
        }
        match self.find_root(name) {
            Some(Root::Steps) => Err(self.error_at_name(name, "A step is named by its id, as in steps.fetch.output.")),
            Some(root) => Ok(self.record_root(root)),
            None => match TYPES.iter().find(|type_name| **type_name == name) {
                Some(type_name) => Ok(ExpressionNode::Literal(Literal::Type(type_name))),
                None => Err(self.error_at_name(name, format!("There is no {name}."))),
            },
        }
    }

    fn record_root(&mut self, root: Root) -> ExpressionNode {
        if !self.roots.contains(&root) {
            self.roots.push(root);
        }
        ExpressionNode::Root(root)
    }

    /// Lowers the operand of a selection. It can be `steps` itself only if the key is a literal.
    fn lower_operand(&mut self, operand: &Expr, key: &str) -> Result<Box<ExpressionNode>, ExpressionError> {
        match operand {
            Expr::Ident(name) if self.find_root(name) == Some(Root::Steps) => {
                if !self.steps.iter().any(|step| step == key) {
                    self.steps.push(key.to_owned());
                }
                Ok(Box::new(self.record_root(Root::Steps)))
            }
            operand => self.lower_node(operand).map(Box::new),
        }
    }

    fn lower_select(&mut self, operand: &Expr, key: &str, test: bool) -> Result<ExpressionNode, ExpressionError> {
        let operand = self.lower_operand(operand, key)?;
        Ok(if test { ExpressionNode::Has(operand, key.into()) } else { ExpressionNode::Select(operand, key.into()) })
    }

    fn lower_call(&mut self, call: &CallExpr) -> Result<ExpressionNode, ExpressionError> {
        if let (None, [one, two]) = (&call.target, call.args.as_slice()) {
            if let Some(operator) = find_binary_operator(&call.func_name) {
                return Ok(ExpressionNode::Binary(operator, self.lower_pair(one, two)?));
            }
            match call.func_name.as_str() {
                operators::LOGICAL_AND => return Ok(ExpressionNode::And(self.lower_pair(one, two)?)),
                operators::LOGICAL_OR => return Ok(ExpressionNode::Or(self.lower_pair(one, two)?)),
                operators::INDEX => return self.lower_index(one, two).map(ExpressionNode::Index),
                operators::OPT_INDEX => return self.lower_index(one, two).map(ExpressionNode::OptionalIndex),
                operators::OPT_SELECT => return self.lower_optional_select(one, two),
                _ => {}
            }
        }
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_NOT, [operand]) => Ok(ExpressionNode::Not(self.lower_boxed(operand)?)),
            (operators::NEGATE, [operand]) => Ok(ExpressionNode::Negate(self.lower_boxed(operand)?)),
            (operators::CONDITIONAL, [when, then, otherwise]) => {
                let parts =
                    [self.lower_node(&when.expr)?, self.lower_node(&then.expr)?, self.lower_node(&otherwise.expr)?];
                Ok(ExpressionNode::If(Box::new(parts)))
            }
            _ => self.lower_function(call),
        }
    }

    fn lower_pair(&mut self, one: &IdedExpr, two: &IdedExpr) -> Result<Box<[ExpressionNode; 2]>, ExpressionError> {
        Ok(Box::new([self.lower_node(&one.expr)?, self.lower_node(&two.expr)?]))
    }

    fn lower_index(&mut self, operand: &IdedExpr, key: &IdedExpr) -> Result<Box<[ExpressionNode; 2]>, ExpressionError> {
        match &key.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                let operand = self.lower_operand(&operand.expr, text.inner())?;
                Ok(Box::new([*operand, self.lower_node(&key.expr)?]))
            }
            _ => self.lower_pair(operand, key),
        }
    }

    fn lower_optional_select(&mut self, operand: &IdedExpr, key: &IdedExpr) -> Result<ExpressionNode, ExpressionError> {
        let Expr::Literal(LiteralValue::String(key)) = &key.expr else {
            return Err(ExpressionError::invalid("A field has a name."));
        };
        let operand = self.lower_operand(&operand.expr, key.inner())?;
        Ok(ExpressionNode::OptionalSelect(operand, key.inner().into()))
    }

    fn lower_function(&mut self, call: &CallExpr) -> Result<ExpressionNode, ExpressionError> {
        let name = call.func_name.as_str();
        let namespace = call.target.as_deref().and_then(|target| match &target.expr {
            Expr::Ident(name) if functions::is_namespace(name) && !self.locals.contains(name) => Some(name),
            _ => None,
        });
        let target = call.target.as_deref().filter(|_| namespace.is_none());
        let full_name = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}.{name}"));
        let count = call.args.len() + usize::from(target.is_some());
        let function = functions::get_function(&full_name, target.is_some(), count)
            .map_err(|detail| self.error_at_name(name, detail))?;
        let arguments = target.into_iter().chain(&call.args);
        let mut arguments: Vec<ExpressionNode> =
            arguments.map(|expr| self.lower_node(&expr.expr)).collect::<Result<_, _>>()?;
        functions::check_literals(function, &arguments).map_err(|detail| self.error_at_name(name, detail))?;
        if !matches!(function.callee, Callee::Matches) {
            return Ok(ExpressionNode::Call(function, arguments));
        }
        let (Some(ExpressionNode::Literal(Literal::Text(pattern))), Some(text)) = (arguments.pop(), arguments.pop())
        else {
            return Err(self.error_at_name(name, "The pattern of matches is written out, between quotes."));
        };
        let pattern = self.compile_pattern(&pattern)?;
        Ok(ExpressionNode::Matches(Box::new(text), Box::new(pattern)))
    }

    fn compile_pattern(&mut self, pattern: &str) -> Result<CompiledPattern, ExpressionError> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(self.error_at_name("matches", format!("An expression has at most {PATTERNS_MAX} patterns.")));
        }
        compile_pattern(pattern).map_err(|detail| self.error_at_name("matches", detail))
    }

    /// Recognizes the macros by the initial value of their accumulator.
    fn lower_comprehension(&mut self, comprehension: &ComprehensionExpr) -> Result<ExpressionNode, ExpressionError> {
        let unknown = || ExpressionError::invalid("There is no such macro.");
        let Expr::Call(step) = &comprehension.loop_step.expr else { return Err(unknown()) };
        let (kind, filter, body) = match (&comprehension.accu_init.expr, step.func_name.as_str(), step.args.as_slice())
        {
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND, [_, predicate]) => {
                (LoopKind::All, None, predicate)
            }
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR, [_, predicate]) => {
                (LoopKind::Exists, None, predicate)
            }
            (Expr::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [predicate, _, _]) => {
                (LoopKind::ExistsOne, None, predicate)
            }
            (Expr::List(_), operators::CONDITIONAL, [filter, step, _]) => {
                (LoopKind::List, Some(filter), find_pushed_element(&step.expr).ok_or_else(unknown)?)
            }
            (Expr::List(_), operators::ADD, _) => {
                (LoopKind::List, None, find_pushed_element(&comprehension.loop_step.expr).ok_or_else(unknown)?)
            }
            _ => return Err(unknown()),
        };
        let range = self.lower_node(&comprehension.iter_range.expr)?;
        let local_index = self.locals.len();
        self.locals.push(comprehension.iter_var.clone());
        let filter = filter.map(|filter| self.lower_node(&filter.expr)).transpose()?;
        let body = self.lower_node(&body.expr)?;
        self.locals.truncate(local_index);
        Ok(ExpressionNode::Loop(Box::new(Loop { kind, range, local_index, has_two_variables: false, filter, body })))
    }
}

fn lower_literal(literal: &LiteralValue) -> Literal {
    match literal {
        LiteralValue::Null => Literal::Null,
        LiteralValue::Boolean(yes) => Literal::Bool(*yes.inner()),
        LiteralValue::Int(int) => Literal::Int(*int.inner()),
        LiteralValue::UInt(uint) => Literal::Uint(*uint.inner()),
        LiteralValue::Double(double) => Literal::Double(*double.inner()),
        LiteralValue::String(text) => Literal::Text(text.inner().into()),
        LiteralValue::Bytes(bytes) => Literal::Bytes(bytes.inner().into()),
    }
}

/// Finds the `x` of `result + [x]`.
fn find_pushed_element(step: &Expr) -> Option<&IdedExpr> {
    let Expr::Call(CallExpr { args, .. }) = step else { return None };
    let [_, list] = args.as_slice() else { return None };
    let Expr::List(list) = &list.expr else { return None };
    let [pushed] = list.elements.as_slice() else { return None };
    Some(pushed)
}

/// Names that `type()` returns.
const TYPES: [&str; 11] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type"];

fn find_binary_operator(name: &str) -> Option<Operator> {
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
