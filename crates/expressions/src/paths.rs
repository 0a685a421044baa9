//! The paths that an expression reads, known without any values.

use std::fmt;

use super::node::{ExpressionNode, Literal, Root};

/// A chain of constant fields below a root, such as `steps.fetch.output` or `event.data["odd key"]`. Where a chain goes on
/// with an index or a computed key, the path ends before that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencedPath {
    root: Root,
    keys: Vec<String>,
    required: usize,
}

impl ReferencedPath {
    pub fn root(&self) -> &'static str {
        self.root.name()
    }

    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// How many of the first keys must be there. The expression asks for the others, with `has()`, `.?` or `[?…]`.
    pub fn required_keys(&self) -> usize {
        self.required
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.keys.iter().map(|key| size_of::<String>() + key.len()).sum::<usize>()
    }
}

/// As in the source: `event.data["odd key"]`.
impl fmt::Display for ReferencedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root())?;
        for key in &self.keys {
            let is_word = key.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            let starts_as_word = key.starts_with(|letter: char| !letter.is_ascii_digit());
            if is_word && starts_as_word { write!(f, ".{key}")? } else { write!(f, "[{key:?}]")? }
        }
        Ok(())
    }
}

/// The paths of an expression, each once, in the order of the source.
pub fn collect_paths(node: &ExpressionNode) -> Vec<ReferencedPath> {
    let mut found = Vec::new();
    push_paths(node, &mut found);
    // What is asked for in one place may be read in another, as in `has(event.a) ? event.a : 0`.
    let asked: Vec<ReferencedPath> = found.iter().filter(|path| path.required < path.keys.len()).cloned().collect();
    let mut paths: Vec<ReferencedPath> = Vec::new();
    for mut path in found {
        for other in &asked {
            let asked_keys = &other.keys[..=other.required];
            if other.root == path.root && path.keys.starts_with(asked_keys) {
                path.required = path.required.min(other.required);
            }
        }
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

fn push_paths(node: &ExpressionNode, found: &mut Vec<ReferencedPath>) {
    if let Some(path) = path_of(node) {
        found.push(path);
    } else {
        node.visit_children(&mut |child| push_paths(child, found));
    }
}

/// The path of a chain that has nothing but constant fields.
fn path_of(node: &ExpressionNode) -> Option<ReferencedPath> {
    let (operand, key, is_asked) = match node {
        ExpressionNode::Root(root) => return Some(ReferencedPath { root: *root, keys: Vec::new(), required: 0 }),
        ExpressionNode::Select(operand, key) => (&**operand, key, false),
        ExpressionNode::Has(operand, key) | ExpressionNode::OptionalSelect(operand, key) => (&**operand, key, true),
        ExpressionNode::Index(pair) | ExpressionNode::OptionalIndex(pair) => match &**pair {
            [operand, ExpressionNode::Literal(Literal::Text(key))] => {
                (operand, key, matches!(node, ExpressionNode::OptionalIndex(_)))
            }
            _ => return None,
        },
        _ => return None,
    };
    let mut path = path_of(operand)?;
    // After a key that is asked for, all others depend on it.
    if path.required == path.keys.len() && !is_asked {
        path.required += 1;
    }
    path.keys.push(key.to_string());
    Some(path)
}
