//! Why a body is refused.

use std::fmt;

/// A refusal: its kind, and one sentence for the reader of the agent's log. It never repeats content of the body, only names
/// of sections and fields from this code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportRefusal {
    pub kind: ReportRefusalKind,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportRefusalKind {
    /// More bytes than allowed.
    TooLarge,
    /// Broken: truncated, wrong checksum, not well formed, a required field missing.
    Malformed,
    /// Perhaps valid, but of a type that is not supported.
    Unsupported,
    /// More entries than allowed.
    TooMany,
}

impl ReportRefusal {
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self { kind: ReportRefusalKind::TooLarge, detail: detail.into() }
    }

    pub fn malformed(detail: impl Into<String>) -> Self {
        Self { kind: ReportRefusalKind::Malformed, detail: detail.into() }
    }

    pub fn unsupported(detail: impl Into<String>) -> Self {
        Self { kind: ReportRefusalKind::Unsupported, detail: detail.into() }
    }

    pub fn too_many(detail: impl Into<String>) -> Self {
        Self { kind: ReportRefusalKind::TooMany, detail: detail.into() }
    }
}

impl fmt::Display for ReportRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.detail)
    }
}

impl std::error::Error for ReportRefusal {}
