//! A human name: 1 to 200 characters, trimmed, no control characters.

/// The longest name, in characters.
pub const LABEL_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(String);

impl Label {
    /// The trimmed name, or what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.chars().count() > LABEL_CHARS_MAX {
            return Err(format!("must be 1 to {LABEL_CHARS_MAX} characters after trimming"));
        }
        if text.chars().any(char::is_control) {
            return Err("must not contain control characters".to_owned());
        }
        Ok(Label(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}
