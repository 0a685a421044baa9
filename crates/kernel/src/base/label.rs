//! Human-readable names: 1 to 200 characters, trimmed, without control characters or invisible characters.

use super::hidden::{find_hidden, is_hidden, is_unfit_for_line};

/// The longest name, in characters.
pub const LABEL_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(String);

impl Label {
    /// Returns the trimmed name, or what is wrong with it. Invisible characters are refused except where a script needs
    /// them, so that two different names do not look the same.
    pub fn parse(text: &str) -> Result<Self, String> {
        let label = Label::parse_line(text)?;
        match find_hidden(&label.0) {
            None => Ok(label),
            Some(hidden) => Err(format!(
                "must not contain the invisible character U+{:04X}; retype the name if you copied it",
                u32::from(hidden)
            )),
        }
    }

    /// Parses a line that is not a name, such as the subject of a mail. It may contain invisible characters, but not only
    /// them.
    pub fn parse_line(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.chars().count() > LABEL_CHARS_MAX {
            return Err(format!("must be 1 to {LABEL_CHARS_MAX} characters after trimming"));
        }
        if text.chars().any(is_unfit_for_line) {
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
    fn names_of_the_world_are_taken_as_they_are_written() {
        for text in [
            " Ann ",
            // Persian with a non-joiner, also after Latin letters; Sinhala and Devanagari with joiners; Malayalam ending in
            // one.
            "می\u{200c}خواهم",
            "API\u{200c}ها",
            "ශ\u{dca}\u{200d}රී ලංකා",
            "क\u{94d}\u{200d}ष",
            "മോഹന\u{d4d}\u{200d}",
            // Emoji: joined, with a skin tone, with a selector, as a keycap.
            "👩\u{200d}💻",
            "👩🏽\u{200d}⚕\u{fe0f}",
            "👁\u{fe0f}\u{200d}🗨\u{fe0f}",
            "❤\u{fe0f}",
            "1\u{fe0f}\u{20e3}",
            // A registered variant of a Japanese name, a Mongolian letter.
            "葛\u{e0100}城",
            "ᠮ\u{180b}ᠣ",
            "שלום!",
            "Zoë e\u{301}",
        ] {
            assert_eq!(Label::parse(text).map(Label::into_string).as_deref(), Ok(text.trim()), "{text:?}");
        }
    }

    #[test]
    fn what_nobody_sees_makes_no_name() {
        for (text, named) in [
            ("Ad\u{200b}min", "U+200B"),
            ("Ad\u{200c}min", "U+200C"),
            ("Ad\u{200d}min", "U+200D"),
            ("\u{feff}Admin", "U+FEFF"),
            ("Admin\u{200e}", "U+200E"),
            ("שלום\u{200f}!", "U+200F"),
            ("Ad\u{ad}min", "U+00AD"),
            ("Ad\u{2060}min", "U+2060"),
            ("Ad\u{2063}min", "U+2063"),
            ("Ad\u{34f}min", "U+034F"),
            ("Admin\u{fe0f}", "U+FE0F"),
            ("1\u{fe0f}", "U+FE0F"),
            ("Admin\u{e0100}", "U+E0100"),
            ("Admin\u{180e}", "U+180E"),
            ("🏴\u{e0067}\u{e007f}", "U+E0067"),
            ("👩\u{200d}", "U+200D"),
            ("علی\u{200c}", "U+200C"),
            ("علی\u{200c}\u{200c}ها", "U+200C"),
            ("Ann\u{3164}", "U+3164"),
        ] {
            let detail = Label::parse(text).err().unwrap_or_default();
            assert!(detail.contains(named), "{text:?}: {detail}");
            // A line accepts what a name does not.
            assert!(Label::parse_line(text).is_ok(), "{text:?}");
        }
        for text in ["\u{200b}", "\u{3164}\u{3164}", "\u{200d} \u{2060}", "\u{feff}", "\u{ad}", "\u{e0041}", "\u{2800}"]
        {
            let expected = Some("must contain something that can be seen");
            assert_eq!(Label::parse(text).err().as_deref(), expected, "{text:?}");
            assert_eq!(Label::parse_line(text).err().as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_turns_or_breaks_a_text_is_taken_nowhere() {
        for text in
            ["a\u{202e}b", "\u{202a}a\u{202c}", "a\u{2066}b\u{2069}", "a\nb", "\u{202e}", "a\u{2028}b", "a\u{0}b"]
        {
            for parse in [Label::parse, Label::parse_line] {
                assert_eq!(parse(text).err().as_deref(), Some("must not contain control characters"), "{text:?}");
            }
        }
    }
}
