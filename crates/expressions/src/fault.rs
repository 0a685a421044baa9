//! Errors of expressions. They never contain a value: values may be secrets, and errors are shown and stored.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The budget is exceeded. Nothing absorbs this error: not `||`, not `exists`.
    Spent,
    /// The expression cannot be saved.
    Bad {
        detail: String,
        /// Line and column, counted from 1 in characters.
        at: Option<(u32, u32)>,
    },
    /// The expression could not be evaluated with the given values.
    Failed { detail: String },
}

impl Fault {
    pub fn code(&self) -> &'static str {
        match self {
            Fault::Spent => "expression_too_costly",
            Fault::Bad { .. } => "bad_expression",
            Fault::Failed { .. } => "expression_failed",
        }
    }

    pub fn bad(detail: impl Into<String>) -> Fault {
        Fault::Bad { detail: detail.into(), at: None }
    }

    pub fn bad_at(detail: impl Into<String>, source: &str, offset: usize) -> Fault {
        Fault::Bad { detail: detail.into(), at: Some(place(source, offset)) }
    }

    pub fn failed(detail: impl Into<String>) -> Fault {
        Fault::Failed { detail: detail.into() }
    }
}

/// A sentence for the author of the expression.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Spent => f.write_str("The expression takes too many steps or makes too much text."),
            Fault::Bad { detail, at: None } | Fault::Failed { detail } => f.write_str(detail),
            Fault::Bad { detail, at: Some((line, column)) } => {
                write!(f, "Line {line}, column {column}: {detail}")
            }
        }
    }
}

fn place(source: &str, offset: usize) -> (u32, u32) {
    let before = source.get(..offset).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}
