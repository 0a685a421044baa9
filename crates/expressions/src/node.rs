//! The syntax tree that is evaluated: names are resolved, functions are known, patterns are compiled.

use super::functions::Function;
use super::pattern::CompiledPattern;

#[derive(Debug)]
pub enum ExpressionNode {
    Literal(Literal),
    Root(Root),
    /// The variable of a macro: its index among the locals, and its name.
    Local(usize, Box<str>),
    Select(Box<ExpressionNode>, Box<str>),
    Has(Box<ExpressionNode>, Box<str>),
    Index(Box<[ExpressionNode; 2]>),
    List(Vec<ExpressionNode>),
    Map(Vec<(ExpressionNode, ExpressionNode)>),
    Not(Box<ExpressionNode>),
    Negate(Box<ExpressionNode>),
    And(Box<[ExpressionNode; 2]>),
    Or(Box<[ExpressionNode; 2]>),
    If(Box<[ExpressionNode; 3]>),
    Binary(Operator, Box<[ExpressionNode; 2]>),
    /// The receiver before the dot is the first argument.
    Call(Function, Vec<ExpressionNode>),
    Matches(Box<ExpressionNode>, Box<CompiledPattern>),
    Loop(Box<Loop>),
}

#[derive(Debug)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Type(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    Input,
    Event,
    Steps,
    Run,
    Now,
}

impl Root {
    pub const ALL: [Root; 5] = [Root::Input, Root::Event, Root::Steps, Root::Run, Root::Now];

    pub fn name(self) -> &'static str {
        match self {
            Root::Input => "input",
            Root::Event => "event",
            Root::Steps => "steps",
            Root::Run => "run",
            Root::Now => "now",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    In,
}

/// Each operator with its sign and its precedence.
const OPERATORS: [(Operator, &str, u8); 12] = [
    (Operator::Equal, "==", 0),
    (Operator::Unequal, "!=", 0),
    (Operator::Less, "<", 0),
    (Operator::AtMost, "<=", 0),
    (Operator::Greater, ">", 0),
    (Operator::AtLeast, ">=", 0),
    (Operator::In, "in", 0),
    (Operator::Add, "+", 1),
    (Operator::Subtract, "-", 1),
    (Operator::Multiply, "*", 2),
    (Operator::Divide, "/", 2),
    (Operator::Modulo, "%", 2),
];

impl Operator {
    pub fn symbol(self) -> &'static str {
        OPERATORS.iter().find(|(operator, ..)| *operator == self).map_or("", |(_, sign, _)| sign)
    }

    /// The operator of this sign, and its precedence: those with a higher one bind tighter.
    pub fn find_by_sign(sign: &str) -> Option<(Operator, u8)> {
        let row = OPERATORS.iter().find(|(_, other, _)| *other == sign);
        row.map(|(operator, _, precedence)| (*operator, *precedence))
    }
}

#[derive(Debug)]
pub struct Loop {
    pub kind: LoopKind,
    pub range: ExpressionNode,
    /// The index of the loop's variable among the locals.
    pub local_index: usize,
    /// Selects the elements of the resulting list.
    pub filter: Option<ExpressionNode>,
    /// The new element, or the predicate of a quantifier.
    pub body: ExpressionNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    All,
    Exists,
    ExistsOne,
    List,
}

impl ExpressionNode {
    /// How deep nodes are nested, this one included.
    pub fn depth(&self) -> usize {
        let deepest = |nodes: &[ExpressionNode]| nodes.iter().map(ExpressionNode::depth).max().unwrap_or(0);
        let below = match self {
            ExpressionNode::Literal(_) | ExpressionNode::Root(_) | ExpressionNode::Local(..) => 0,
            ExpressionNode::Select(operand, _)
            | ExpressionNode::Has(operand, _)
            | ExpressionNode::Not(operand)
            | ExpressionNode::Negate(operand)
            | ExpressionNode::Matches(operand, _) => operand.depth(),
            ExpressionNode::Index(pair)
            | ExpressionNode::And(pair)
            | ExpressionNode::Or(pair)
            | ExpressionNode::Binary(_, pair) => deepest(&pair[..]),
            ExpressionNode::If(parts) => deepest(&parts[..]),
            ExpressionNode::List(nodes) | ExpressionNode::Call(_, nodes) => deepest(nodes),
            ExpressionNode::Map(entries) => {
                entries.iter().map(|(key, value)| key.depth().max(value.depth())).max().unwrap_or(0)
            }
            ExpressionNode::Loop(inner) => {
                let filter = inner.filter.as_ref().map_or(0, ExpressionNode::depth);
                inner.range.depth().max(filter).max(inner.body.depth())
            }
        };
        below + 1
    }

    /// The source of a name, or of fields and elements selected from one. Other nodes have none.
    pub fn source_path(&self) -> Option<String> {
        match self {
            ExpressionNode::Root(root) => Some(root.name().to_owned()),
            ExpressionNode::Local(_, name) => Some(name.to_string()),
            ExpressionNode::Select(operand, key) => Some(format!("{}.{key}", operand.source_path()?)),
            ExpressionNode::Index(pair) => {
                let operand = pair[0].source_path()?;
                Some(match &pair[1] {
                    ExpressionNode::Literal(Literal::Text(key)) => format!("{operand}[{key:?}]"),
                    ExpressionNode::Literal(Literal::Int(index)) => format!("{operand}[{index}]"),
                    _ => format!("{operand}[…]"),
                })
            }
            _ => None,
        }
    }
}
