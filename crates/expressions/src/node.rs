//! The syntax tree that is evaluated: names are resolved, functions are known, patterns are compiled.

use regex::Regex;

use super::functions::Function;

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

impl Operator {
    pub fn symbol(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Modulo => "%",
            Operator::Equal => "==",
            Operator::Unequal => "!=",
            Operator::Less => "<",
            Operator::AtMost => "<=",
            Operator::Greater => ">",
            Operator::AtLeast => ">=",
            Operator::In => "in",
        }
    }
}

#[derive(Debug)]
pub struct CompiledPattern {
    pub regex: Regex,
    /// How many bytes are charged for each byte of text that is matched.
    pub cost_per_byte: usize,
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
