//! The one error type of the service. It keeps what the client sees apart from what the log sees.

use std::fmt;

use super::Code;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One invalid field of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// A JSON pointer into the body; empty for the body itself.
    pub pointer: String,
    pub code: &'static str,
    pub detail: String,
}

/// A refusal or a failure. `detail` reaches the client, `source` only the log.
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    code: Code,
    detail: String,
    fields: Vec<FieldError>,
    required_scope: Option<String>,
    retry_after_seconds: Option<u64>,
    duplicate: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Error(Box::new(ErrorInner {
            code,
            detail: detail.into(),
            fields: Vec::new(),
            required_scope: None,
            retry_after_seconds: None,
            duplicate: false,
            source: None,
        }))
    }

    pub fn not_found() -> Self {
        Error::new(Code::NotFound, "There is no such record in this tenant.")
    }

    pub fn conflict(detail: impl Into<String>) -> Self {
        Error::new(Code::Conflict, detail)
    }

    /// All invalid fields of a body at once.
    pub fn invalid_fields(fields: Vec<FieldError>) -> Self {
        let names: Vec<&str> =
            fields.iter().map(|f| if f.pointer.is_empty() { "the body" } else { &f.pointer }).collect();
        // Forbidden targets have their own code if nothing else is wrong.
        let target = Code::TargetNotAllowed;
        let only = !fields.is_empty() && fields.iter().all(|field| field.code == target.name());
        let code = if only { target } else { Code::InvalidFields };
        let mut error = Error::new(code, format!("Not valid: {}. See errors for each.", names.join(", ")));
        error.0.fields = fields;
        error
    }

    /// One invalid field, found after the body was parsed.
    pub fn invalid(pointer: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Error::invalid_fields(vec![FieldError { pointer: pointer.into(), code, detail: detail.into() }])
    }

    /// One invalid field whose code is also that of the whole refusal.
    pub fn invalid_as(code: Code, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let mut error = Error::invalid(pointer, code.name(), detail);
        error.0.code = code;
        error
    }

    /// A target that the service must not connect to.
    pub fn target_not_allowed(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Error::invalid(pointer, Code::TargetNotAllowed.name(), detail)
    }

    pub fn insufficient_scope(scope: impl Into<String>, detail: impl Into<String>) -> Self {
        let mut error = Error::new(Code::InsufficientScope, detail);
        error.0.required_scope = Some(scope.into());
        error
    }

    pub fn rate_limited(retry_after_seconds: u64, detail: impl Into<String>) -> Self {
        let mut error = Error::new(Code::RateLimited, detail);
        error.0.retry_after_seconds = Some(retry_after_seconds);
        error
    }

    /// The service is overloaded, or something that it needs is not reachable.
    pub fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let mut error =
            Error::new(Code::Unavailable, "The service cannot do this right now. No acknowledged change was lost.");
        error.0.retry_after_seconds = Some(UNAVAILABLE_RETRY_AFTER_SECONDS);
        error.0.source = Some(source.into());
        error
    }

    /// Replaces the detail and `Retry-After` of [`Error::unavailable`] where another service is not reachable.
    #[must_use]
    pub fn with_retry_detail(mut self, detail: impl Into<String>, retry_after_seconds: u64) -> Self {
        (self.0.detail, self.0.retry_after_seconds) = (detail.into(), Some(retry_after_seconds));
        self
    }

    /// A bug or a failure of the service. The client learns only the request id.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let mut error =
            Error::new(Code::Internal, "The fault is on our side and has been logged under the request id.");
        error.0.source = Some(source.into());
        error
    }

    /// A unique constraint refused the statement. Unhandled, it is an internal error; see [`OnDuplicate`].
    pub fn duplicate_key(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let mut error = Error::internal(source);
        error.0.duplicate = true;
        error
    }

    /// The failure of a statement that was sent without waiting for it. The log names the statement. [`OnDuplicate`] ignores
    /// the error, because it would be applied to the next statement instead.
    #[must_use]
    pub fn in_statement(mut self, sql: &str) -> Self {
        let cause = self.cause_chain().unwrap_or_default();
        self.0.source = Some(format!("in the statement {sql}: {cause}").into());
        self.0.duplicate = false;
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    pub fn fields(&self) -> &[FieldError] {
        &self.0.fields
    }

    pub fn required_scope(&self) -> Option<&str> {
        self.0.required_scope.as_deref()
    }

    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.0.retry_after_seconds
    }

    pub fn is_duplicate(&self) -> bool {
        self.0.duplicate
    }

    /// The source and its chain of causes, for the log only.
    pub fn cause_chain(&self) -> Option<String> {
        let mut next: Option<&dyn std::error::Error> = Some(self.0.source.as_deref()?);
        let mut chain = Vec::new();
        while let Some(error) = next {
            chain.push(error.to_string());
            next = error.source();
        }
        Some(chain.join(": "))
    }
}

/// How long a client should wait when a resource is not reachable: long enough for a failover, short enough to retry.
const UNAVAILABLE_RETRY_AFTER_SECONDS: u64 = 2;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.detail)?;
        for field in &self.0.fields {
            write!(f, " [{} {}]", field.pointer, field.detail)?;
        }
        match self.cause_chain() {
            Some(cause) => write!(f, " ({cause})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Replaces the error of a broken unique constraint.
pub trait OnDuplicate {
    #[must_use]
    fn on_duplicate(self, answer: impl FnOnce() -> Error) -> Self;
}

impl<T> OnDuplicate for Result<T> {
    fn on_duplicate(self, answer: impl FnOnce() -> Error) -> Self {
        self.map_err(|error| if error.is_duplicate() { answer() } else { error })
    }
}
