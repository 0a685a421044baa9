//! Errors of expressions. They never contain a value: values may be secrets, and errors are shown and stored.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpressionError {
    /// The budget is exceeded. Nothing absorbs this error: not `||`, not `exists`.
    BudgetExceeded,
    /// The expression cannot be saved.
    Invalid {
        detail: String,
        /// Line and column, counted from 1 in characters.
        at: Option<(u32, u32)>,
    },
    /// The expression could not be evaluated with the given values.
    Failed { detail: String },
}

impl ExpressionError {
    pub fn code(&self) -> &'static str {
        match self {
            ExpressionError::BudgetExceeded => "expression_too_costly",
            ExpressionError::Invalid { .. } => "bad_expression",
            ExpressionError::Failed { .. } => "expression_failed",
        }
    }

    pub fn invalid(detail: impl Into<String>) -> ExpressionError {
        ExpressionError::Invalid { detail: detail.into(), at: None }
    }

    pub fn invalid_at(detail: impl Into<String>, source: &str, offset: usize) -> ExpressionError {
        ExpressionError::Invalid { detail: detail.into(), at: Some(line_and_column(source, offset)) }
    }

    pub fn failed(detail: impl Into<String>) -> ExpressionError {
        ExpressionError::Failed { detail: detail.into() }
    }
}

/// A sentence for the author of the expression.
impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpressionError::BudgetExceeded => {
                f.write_str("The expression takes too many steps or makes too much text.")
            }
            ExpressionError::Invalid { detail, at: None } | ExpressionError::Failed { detail } => f.write_str(detail),
            ExpressionError::Invalid { detail, at: Some((line, column)) } => {
                write!(f, "Line {line}, column {column}: {detail}")
            }
        }
    }
}

fn line_and_column(source: &str, offset: usize) -> (u32, u32) {
    let before = source.get(..offset).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}
