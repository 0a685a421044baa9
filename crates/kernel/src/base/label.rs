//! A human name: 1 to 200 characters, trimmed, no control characters, and something in it that can be seen.

use super::hidden::{is_hidden, turns_text};

/// The longest name, in characters.
pub const LABEL_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(String);

impl Label {
    /// The trimmed name, or what is wrong with it. Joiners stay, which emoji and several scripts are written with.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.chars().count() > LABEL_CHARS_MAX {
            return Err(format!("must be 1 to {LABEL_CHARS_MAX} characters after trimming"));
        }
        if text.chars().any(|c| c.is_control() || turns_text(c)) {
            return Err("must not contain control characters".to_owned());
        }
        if text.chars().all(|c| c.is_whitespace() || is_hidden(c)) {
            return Err("must contain something that can be seen".to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_seen_and_reads_as_it_is_written() {
        for text in [" Ann ", "می\u{200c}خواهم", "👩\u{200d}💻", "क\u{94d}\u{200d}ष", "❤\u{fe0f}", "שלום\u{200f}!"]
        {
            assert_eq!(Label::parse(text).map(Label::into_string).as_deref(), Ok(text.trim()));
        }
        for text in ["\u{200b}", "\u{3164}\u{3164}", "\u{200d} \u{2060}", "\u{feff}", "\u{ad}", "\u{e0041}", "\u{2800}"]
        {
            assert_eq!(
                Label::parse(text).err().as_deref(),
                Some("must contain something that can be seen"),
                "{text:?}"
            );
        }
        for text in ["a\u{202e}b", "\u{202a}a\u{202c}", "a\u{2066}b\u{2069}", "a\nb", "\u{202e}"] {
            assert_eq!(Label::parse(text).err().as_deref(), Some("must not contain control characters"), "{text:?}");
        }
    }
}
