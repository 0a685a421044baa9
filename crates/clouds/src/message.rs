//! Texts of a cloud, made fit for people: one line, short, and without secrets that an answer may repeat.

use kernel::base::is_unfit_for_line;

const MESSAGE_CHARS_MAX: usize = 300;
/// The longest code of the three clouds has 49 characters.
const CODE_CHARS_MAX: usize = 80;
/// Shorter ones are words that occur in any message.
const SECRET_BYTES_MIN: usize = 4;

/// A message as one line of at most 300 characters.
pub fn clean_message(message: &str, secrets: &[&str]) -> String {
    let message = remove_secrets(message, secrets);
    let mut words = String::new();
    for word in message.split(|c: char| c.is_whitespace() || is_unfit_for_line(c)).filter(|word| !word.is_empty()) {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
    match words.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// A code, if it looks like one.
pub fn clean_code(code: &str, secrets: &[&str]) -> Option<String> {
    let is_code = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let code = remove_secrets(code.trim(), secrets);
    (!code.is_empty() && code.len() <= CODE_CHARS_MAX && code.chars().all(is_code)).then_some(code)
}

fn remove_secrets(text: &str, secrets: &[&str]) -> String {
    let usable = secrets.iter().filter(|secret| secret.len() >= SECRET_BYTES_MIN);
    usable.fold(
        text.to_owned(),
        |text, secret| {
            if text.contains(*secret) { text.replace(*secret, "[redacted]") } else { text }
        },
    )
}

/// Bytes in hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_short_line_without_secrets() {
        assert_eq!(clean_message(" no\n\tsuch\u{0} \u{202e}thing ", &[]), "no such thing");
        assert_eq!(clean_message("Bearer hunter2hunter2 is bad", &["hunter2hunter2"]), "Bearer [redacted] is bad");
        let long = clean_message(&"é".repeat(1_000), &[]);
        assert_eq!(long.chars().count(), MESSAGE_CHARS_MAX + 1);
    }

    #[test]
    fn a_code_is_a_word() {
        assert_eq!(clean_code("InvalidAMIID.NotFound", &[]).as_deref(), Some("InvalidAMIID.NotFound"));
        assert_eq!(clean_code("<b>", &[]), None);
        assert_eq!(clean_code("hunter2hunter2", &["hunter2hunter2"]), None);
        assert_eq!(clean_code(&"x".repeat(81), &[]), None);
    }
}
