//! Texts as words of a shell's command line, because people paste what is printed.

/// Quotes a text as one word.
pub fn quote_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@._+-/:=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A flag and its value. A value that begins with `-` is tied to its flag, because it would be read as another one.
pub fn format_flag(name: &str, value: &str) -> String {
    let separator = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{separator}{}", quote_word(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_text_cannot_run_a_command() {
        assert_eq!(quote_word("a.b+c@acme.test"), "a.b+c@acme.test");
        assert_eq!(quote_word("/srv/tenant-control"), "/srv/tenant-control");
        assert_eq!(quote_word("$(id)@acme.test"), "'$(id)@acme.test'");
        assert_eq!(quote_word("o'hara@acme.test"), r"'o'\''hara@acme.test'");
        assert_eq!(quote_word("/srv/my data"), "'/srv/my data'");
        assert_eq!(quote_word("postgres://tc@db/tc?sslmode=require&x"), "'postgres://tc@db/tc?sslmode=require&x'");
        assert_eq!(quote_word(""), "''");
    }

    #[test]
    fn a_value_is_not_read_as_a_flag() {
        assert_eq!(format_flag("--email", "a@acme.test"), "--email a@acme.test");
        assert_eq!(format_flag("--email", "-a@acme.test"), "--email=-a@acme.test");
        assert_eq!(format_flag("--data-dir", "-my data"), "--data-dir='-my data'");
    }
}
