//! The syntax tree that is evaluated: names are resolved, functions are known, patterns are compiled.

use super::functions::FunctionSpec;
use super::pattern::CompiledPattern;
use super::value::{CelText, CelValue};

#[derive(Debug)]
pub enum ExpressionNode {
    Literal(Literal),
    Root(Root),
    /// The variable of a macro: its index among the locals, and its name.
    Local(usize, Box<str>),
    Select(Box<ExpressionNode>, Box<str>),
    /// `value.?field`
    OptionalSelect(Box<ExpressionNode>, Box<str>),
    Has(Box<ExpressionNode>, Box<str>),
    Index(Box<[ExpressionNode; 2]>),
    /// `value[?key]`
    OptionalIndex(Box<[ExpressionNode; 2]>),
    List(Vec<ListElement>),
    Map(Vec<MapEntry>),
    Not(Box<ExpressionNode>),
    Negate(Box<ExpressionNode>),
    And(Box<[ExpressionNode; 2]>),
    Or(Box<[ExpressionNode; 2]>),
    If(Box<[ExpressionNode; 3]>),
    Binary(Operator, Box<[ExpressionNode; 2]>),
    /// The receiver before the dot is the first argument.
    Call(&'static FunctionSpec, Vec<ExpressionNode>),
    Matches(Box<ExpressionNode>, Box<CompiledPattern>),
    Loop(Box<Loop>),
    Bind(Box<Bind>),
    /// `optMap` and `optFlatMap`.
    OptionalMap(Box<OptionalMap>),
}

#[derive(Debug)]
pub struct ListElement {
    pub value: ExpressionNode,
    /// `[?value]`: an optional value, which is left out if there is none.
    pub optional: bool,
}

#[derive(Debug)]
pub struct MapEntry {
    pub key: ExpressionNode,
    pub value: ExpressionNode,
    /// `{?key: value}`
    pub optional: bool,
}

#[derive(Debug)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Type(&'static str),
}

impl Literal {
    /// Bytes are copied.
    pub fn to_value(&self) -> CelValue<'_> {
        match self {
            Literal::Null => CelValue::Null,
            Literal::Bool(yes) => CelValue::Bool(*yes),
            Literal::Int(int) => CelValue::Int(*int),
            Literal::Uint(uint) => CelValue::Uint(*uint),
            Literal::Double(double) => CelValue::Double(*double),
            Literal::Text(text) => CelValue::Text(CelText::Borrowed(text)),
            Literal::Bytes(bytes) => CelValue::Bytes((**bytes).into()),
            Literal::Type(name) => CelValue::Type(name),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    Input,
    Event,
    Steps,
    Run,
    Now,
    Item,
    Index,
}

impl Root {
    pub const ALL: [Root; 7] = [Root::Input, Root::Event, Root::Steps, Root::Run, Root::Now, Root::Item, Root::Index];

    pub fn name(self) -> &'static str {
        match self {
            Root::Input => "input",
            Root::Event => "event",
            Root::Steps => "steps",
            Root::Run => "run",
            Root::Now => "now",
            Root::Item => "item",
            Root::Index => "index",
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
    /// The index of the loop's first variable among the locals.
    pub local_index: usize,
    /// With two variables, the first is the index or the key, and the second the element or the value.
    pub has_two_variables: bool,
    /// Selects the elements of the result.
    pub filter: Option<ExpressionNode>,
    /// The new element, the predicate of a quantifier, or the key to sort by.
    pub body: ExpressionNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    All,
    Exists,
    ExistsOne,
    List,
    /// Makes a map with the same keys.
    Map,
    /// Makes a map of the entries of other maps.
    MapEntries,
    SortBy,
}

/// `cel.bind(name, value, body)`
#[derive(Debug)]
pub struct Bind {
    pub local_index: usize,
    pub value: ExpressionNode,
    pub body: ExpressionNode,
}

#[derive(Debug)]
pub struct OptionalMap {
    pub operand: ExpressionNode,
    pub local_index: usize,
    pub body: ExpressionNode,
    /// Whether the body is an optional value itself.
    pub flat: bool,
}

impl ExpressionNode {
    /// Calls this with each node directly below.
    pub fn visit_children<'n>(&'n self, visit: &mut dyn FnMut(&'n ExpressionNode)) {
        match self {
            ExpressionNode::Literal(_) | ExpressionNode::Root(_) | ExpressionNode::Local(..) => {}
            ExpressionNode::Select(operand, _)
            | ExpressionNode::OptionalSelect(operand, _)
            | ExpressionNode::Has(operand, _)
            | ExpressionNode::Not(operand)
            | ExpressionNode::Negate(operand)
            | ExpressionNode::Matches(operand, _) => visit(operand),
            ExpressionNode::Index(pair)
            | ExpressionNode::OptionalIndex(pair)
            | ExpressionNode::And(pair)
            | ExpressionNode::Or(pair)
            | ExpressionNode::Binary(_, pair) => pair.iter().for_each(visit),
            ExpressionNode::If(parts) => parts.iter().for_each(visit),
            ExpressionNode::Call(_, nodes) => nodes.iter().for_each(visit),
            ExpressionNode::List(elements) => elements.iter().for_each(|element| visit(&element.value)),
            ExpressionNode::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key);
                visit(&entry.value);
            }),
            ExpressionNode::Loop(inner) => {
                visit(&inner.range);
                inner.filter.iter().for_each(&mut *visit);
                visit(&inner.body);
            }
            ExpressionNode::Bind(bind) => {
                visit(&bind.value);
                visit(&bind.body);
            }
            ExpressionNode::OptionalMap(map) => {
                visit(&map.operand);
                visit(&map.body);
            }
        }
    }

    /// How deep nodes are nested, this one included.
    pub fn depth(&self) -> usize {
        let mut below = 0;
        self.visit_children(&mut |child| below = below.max(child.depth()));
        below + 1
    }

    /// About how many bytes the node holds beside its own size, with all below it.
    pub fn heap_bytes(&self) -> usize {
        let own = match self {
            ExpressionNode::Literal(Literal::Text(text)) => text.len(),
            ExpressionNode::Literal(Literal::Bytes(bytes)) => bytes.len(),
            ExpressionNode::Local(_, name)
            | ExpressionNode::Select(_, name)
            | ExpressionNode::OptionalSelect(_, name)
            | ExpressionNode::Has(_, name) => name.len(),
            ExpressionNode::Matches(_, pattern) => pattern.heap_bytes(),
            ExpressionNode::Loop(_) => size_of::<Loop>(),
            _ => 0,
        };
        let mut bytes = own;
        self.visit_children(&mut |child| bytes += NODE_BYTES + child.heap_bytes());
        bytes
    }

    /// The source of a name, or of fields and elements selected from one. Other nodes have none.
    pub fn source_path(&self) -> Option<String> {
        match self {
            ExpressionNode::Root(root) => Some(root.name().to_owned()),
            ExpressionNode::Local(_, name) => Some(name.to_string()),
            ExpressionNode::Select(operand, key) => Some(format!("{}.{key}", operand.source_path()?)),
            ExpressionNode::OptionalSelect(operand, key) => Some(format!("{}.?{key}", operand.source_path()?)),
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

/// A node, and what the allocator and a place in a list of nodes add to it.
const NODE_BYTES: usize = size_of::<ExpressionNode>() + 24;
