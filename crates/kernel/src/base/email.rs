//! What can be an e-mail address; whether it is one, only a message can tell.

const EMAIL_BYTES_MAX: usize = 254;

pub fn is_email(text: &str) -> bool {
    text.len() <= EMAIL_BYTES_MAX
        && text
            .split_once('@')
            .is_some_and(|(name, domain)| !name.is_empty() && !domain.is_empty() && !domain.contains('@'))
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}
