//! Reads the fields of an object, and collects all that is wrong with them.

use serde_json::Value;

/// A field of `credentials` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialsFieldError {
    /// Relative to `credentials`: `secret_access_key`. Empty for the object itself.
    pub field: String,
    /// As in the errors of other fields: `required`, `invalid_type`, `invalid_text`, `unknown_field`, `is_unused`.
    pub code: &'static str,
    pub detail: String,
}

/// Longer than any key or token of the clouds: those of DigitalOcean have 71 characters.
const SECRET_BYTES_MAX: usize = 1_024;
/// Names of unknown fields are repeated up to this length.
const FIELD_CHARS_MAX: usize = 100;

pub struct CredentialFields<'a> {
    value: &'a Value,
    known: Vec<&'static str>,
    errors: Vec<CredentialsFieldError>,
}

impl<'a> CredentialFields<'a> {
    pub fn new(value: &'a Value) -> Self {
        CredentialFields { value, known: Vec::new(), errors: Vec::new() }
    }

    /// Whether the field is given, be it usable or not.
    pub fn has(&self, field: &str) -> bool {
        self.value.get(field).is_some_and(|value| !value.is_null())
    }

    pub fn refuse(&mut self, field: &str, code: &'static str, detail: &str) {
        self.errors.push(CredentialsFieldError { field: field.to_owned(), code, detail: detail.to_owned() });
    }

    /// A key or token: one word of visible ASCII characters, which is what fits into a header.
    pub fn read_secret(&mut self, field: &'static str) -> Option<String> {
        self.read_checked(field, |text| {
            if text.len() > SECRET_BYTES_MAX {
                Some("is too long")
            } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                Some("must have no spaces, line breaks, control characters or letters with accents")
            } else {
                None
            }
        })
    }

    pub fn read_checked(&mut self, field: &'static str, check: fn(&str) -> Option<&'static str>) -> Option<String> {
        if self.value.is_object() && !self.has(field) {
            self.known.push(field);
            self.refuse(field, "required", "is missing");
            return None;
        }
        self.read_optional(field, check)
    }

    pub fn read_optional(&mut self, field: &'static str, check: fn(&str) -> Option<&'static str>) -> Option<String> {
        self.known.push(field);
        let value = self.value.get(field).filter(|value| !value.is_null())?;
        let Some(text) = value.as_str() else {
            self.refuse(field, "invalid_type", "must be a string");
            return None;
        };
        let problem = if text.is_empty() { Some("must not be empty") } else { check(text) };
        if let Some(problem) = problem {
            self.refuse(field, "invalid_text", problem);
            return None;
        }
        Some(text.to_owned())
    }

    /// The credentials, if nothing was refused and no field is unknown.
    pub fn finish<T>(mut self, credentials: Option<T>) -> Result<T, Vec<CredentialsFieldError>> {
        let Some(object) = self.value.as_object() else {
            self.errors.clear();
            self.refuse("", "invalid_type", "must be an object");
            return Err(self.errors);
        };
        let expected = self.known.join(", ");
        for field in object.keys().filter(|field| !self.known.contains(&field.as_str())) {
            let field: String = field.chars().take(FIELD_CHARS_MAX).collect();
            let detail =
                if expected.is_empty() { "is unknown".to_owned() } else { format!("is unknown; expected {expected}") };
            self.errors.push(CredentialsFieldError { field, code: "unknown_field", detail });
        }
        match credentials {
            Some(credentials) if self.errors.is_empty() => Ok(credentials),
            _ => Err(self.errors),
        }
    }
}
