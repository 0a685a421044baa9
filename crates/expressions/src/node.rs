//! The syntax tree that is evaluated: names are resolved, functions are known, patterns are compiled.

use regex::Regex;

use super::functions::Function;

#[derive(Debug)]
pub enum Node {
    Literal(Literal),
    Root(Root),
    /// The variable of a macro: its index among the locals, and its name.
    Local(usize, Box<str>),
    Select(Box<Node>, Box<str>),
    Has(Box<Node>, Box<str>),
    Index(Box<[Node; 2]>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    If(Box<[Node; 3]>),
    Binary(Operator, Box<[Node; 2]>),
    /// The receiver before the dot is the first argument.
    Call(Function, Vec<Node>),
    Matches(Box<Node>, Box<Pattern>),
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
    pub fn sign(self) -> &'static str {
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
pub struct Pattern {
    pub regex: Regex,
    /// How many bytes are charged for each byte of text that is matched.
    pub weight: usize,
}

#[derive(Debug)]
pub struct Loop {
    pub kind: LoopKind,
    pub over: Node,
    /// The index of the loop's variable among the locals.
    pub local: usize,
    /// Selects the elements of the resulting list.
    pub keep: Option<Node>,
    /// The new element, or the predicate of a quantifier.
    pub make: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    All,
    Exists,
    ExistsOne,
    List,
}

impl Node {
    /// The source of a name, or of fields and elements selected from one. Other nodes have none.
    pub fn path(&self) -> Option<String> {
        match self {
            Node::Root(root) => Some(root.name().to_owned()),
            Node::Local(_, name) => Some(name.to_string()),
            Node::Select(of, key) => Some(format!("{}.{key}", of.path()?)),
            Node::Index(pair) => {
                let of = pair[0].path()?;
                Some(match &pair[1] {
                    Node::Literal(Literal::Text(key)) => format!("{of}[{key:?}]"),
                    Node::Literal(Literal::Int(index)) => format!("{of}[{index}]"),
                    _ => format!("{of}[…]"),
                })
            }
            _ => None,
        }
    }
}
