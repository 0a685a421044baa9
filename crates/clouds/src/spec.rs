//! What can be said of a specification without the cloud: names, tags and sizes of texts, by each cloud's published rules.

use crate::{CloudError, MachineSpec, OPERATION_TAG};

/// A field of a specification that the cloud would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFieldError {
    /// Such as `name`, `user_data` or `tags`.
    pub field: &'static str,
    pub detail: String,
}

impl SpecFieldError {
    pub(crate) fn new(field: &'static str, detail: impl Into<String>) -> Self {
        SpecFieldError { field, detail: detail.into() }
    }
}

/// The rules of all clouds. Each adapter adds its own.
pub(crate) fn check_common(spec: &MachineSpec, user_data_bytes_max: usize) -> Vec<SpecFieldError> {
    let mut errors = Vec::new();
    if !is_operation_id(&spec.operation_id) {
        let detail = "must be 1 to 63 letters, digits, _ and -, with a letter or digit at both ends";
        errors.push(SpecFieldError::new("operation_id", detail));
    }
    for (field, value) in [("name", &spec.name), ("region", &spec.region), ("size", &spec.size), ("image", &spec.image)]
    {
        if value.trim().is_empty() || value.chars().any(char::is_control) {
            errors.push(SpecFieldError::new(field, "must not be empty or have control characters"));
        }
    }
    if spec.tags.contains_key(OPERATION_TAG) {
        errors.push(SpecFieldError::new("tags", format!("{OPERATION_TAG} is set by the service")));
    }
    if spec.user_data.as_ref().is_some_and(|user_data| user_data.len() > user_data_bytes_max) {
        let detail = format!("must have at most {user_data_bytes_max} bytes");
        errors.push(SpecFieldError::new("user_data", detail));
    }
    errors
}

/// Refuses a specification with all that is wrong with it.
pub(crate) fn refuse_invalid(errors: &[SpecFieldError]) -> Result<(), CloudError> {
    if errors.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = errors.iter().map(|error| format!("{} {}", error.field, error.detail)).collect();
    Err(CloudError::invalid(format!("Nothing was sent to the cloud: {}.", texts.join("; "))))
}

/// Whether the text can be a token, a tag and a filter at every cloud, where `*`, `,` and `:` would mean something.
pub(crate) fn is_operation_id(text: &str) -> bool {
    is_word(text, 63, &['_', '-'])
}

/// Whether the text is a host name as RFC 1123 has it.
pub(crate) fn is_host_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_word(label, 63, &['-']))
}

/// Whether the text has up to `chars_max` letters, digits and some others, and begins and ends with a letter or digit.
pub(crate) fn is_word(text: &str, chars_max: usize, others: &[char]) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= chars_max
        && is_end(text.chars().next())
        && is_end(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(&c))
}

/// An operation id that is put into a filter.
pub(crate) fn check_operation_id(operation_id: &str) -> Result<(), CloudError> {
    if is_operation_id(operation_id) {
        Ok(())
    } else {
        Err(CloudError::invalid("An operation id has 1 to 63 letters, digits, _ and -."))
    }
}
