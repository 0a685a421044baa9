//! Why a body was not taken.

use std::fmt;

/// A refusal: what kind, and one sentence for whoever reads the agent's log. It never repeats the body's content, only names
/// of sections and fields that are written in this code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// More bytes than are read.
    TooLarge,
    /// Broken: cut off, wrong checksum, not well formed, a needed field missing.
    Malformed,
    /// Whole perhaps, but not something that is read here.
    Unsupported,
    /// More entries than are kept.
    TooMany,
}

impl Refusal {
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self { kind: RefusalKind::TooLarge, detail: detail.into() }
    }

    pub fn malformed(detail: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Malformed, detail: detail.into() }
    }

    pub fn unsupported(detail: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Unsupported, detail: detail.into() }
    }

    pub fn too_many(detail: impl Into<String>) -> Self {
        Self { kind: RefusalKind::TooMany, detail: detail.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.detail)
    }
}

impl std::error::Error for Refusal {}
