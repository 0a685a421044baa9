//! Keeps user data, in which people put passwords, out of errors: a cloud may repeat what it was sent, on one line, cut, or
//! escaped as in JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::base::is_unfit_for_line;

use crate::{CloudError, MachineSpec};

/// So many characters of user data in a row are not shown. Fewer are words that anybody writes.
const RUN_CHARS: usize = 8;
/// User data that is shorter is such a word itself.
const RUN_CHARS_MIN: usize = 4;

impl CloudError {
    /// The error without what it repeats of the user data.
    #[must_use]
    pub fn without_user_data(mut self, spec: &MachineSpec) -> Self {
        if let Some(user_data) = &spec.user_data {
            // AWS is sent it in this form.
            let encoded = BASE64.encode(user_data);
            self.detail = [user_data, &encoded].into_iter().fold(self.detail, |text, secret| redact(&text, secret));
        }
        self
    }
}

/// A character of a text without spaces and escapes, and whether it is a part of what was repeated.
struct FoldedChar {
    at: usize,
    c: char,
    is_repeated: bool,
}

/// The text with `…` for each part of it that is a part of the secret, however both are spaced and escaped.
fn redact(text: &str, secret: &str) -> String {
    let secret: String = fold(secret).iter().map(|folded| folded.c).collect();
    let run_chars = secret.chars().count().min(RUN_CHARS);
    let mut folded = fold(text);
    if run_chars < RUN_CHARS_MIN {
        return text.to_owned();
    }
    for start in 0..(folded.len() + 1).saturating_sub(run_chars) {
        let run = &mut folded[start..start + run_chars];
        if secret.contains(&run.iter().map(|folded| folded.c).collect::<String>()) {
            for folded in run {
                folded.is_repeated = true;
            }
        }
    }
    let (mut shown, mut shown_to) = (String::with_capacity(text.len()), 0);
    for run in folded.chunk_by(|one, next| one.is_repeated == next.is_repeated) {
        if let (Some(first), Some(last)) = (run.first(), run.last())
            && first.is_repeated
        {
            shown.push_str(&text[shown_to..first.at]);
            shown.push('…');
            shown_to = last.at + last.c.len_utf8();
        }
    }
    shown.push_str(&text[shown_to..]);
    shown
}

fn fold(text: &str) -> Vec<FoldedChar> {
    let mut folded = Vec::with_capacity(text.len());
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            // The letter of an escaped line break or tab belongs to the escape.
            chars.next_if(|(_, next)| matches!(next, 'n' | 'r' | 't'));
        } else if !c.is_whitespace() && !is_unfit_for_line(c) {
            folded.push(FoldedChar { at, c, is_repeated: false });
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "#!/bin/sh\nexport  PASSWORD=hunter2\n\techo \"é\\n\" > C:\\new";

    #[test]
    fn what_is_repeated_is_left_out_however_it_is_written() {
        let escaped = serde_json::json!(SCRIPT).to_string();
        for (text, shown) in [
            (format!("bad: {SCRIPT}"), "bad: …"),
            (format!("bad: {} (1)", SCRIPT.split_whitespace().collect::<Vec<_>>().join(" ")), "bad: … (1)"),
            (format!("bad: {escaped}."), "bad: \"…\"."),
            (format!("bad: {}…", &SCRIPT[..30]), "bad: ……"),
            ("PASSWORD=hunter2, twice: PASSWORD=hunter2".to_owned(), "…, twice: …"),
            ("the password has no echo".to_owned(), "the password has no echo"),
            (String::new(), ""),
        ] {
            assert_eq!(redact(&text, SCRIPT), shown);
        }
    }

    #[test]
    fn short_user_data_is_left_out_as_a_whole() {
        assert_eq!(redact("what is hunter2?", "hunter2\n"), "what is …?");
        assert_eq!(redact("what is hunter3?", "hunter2\n"), "what is hunter3?");
        assert_eq!(redact("what is it?", "it"), "what is it?");
        assert_eq!(redact("what is it?", ""), "what is it?");
    }

    #[test]
    fn user_data_is_left_out_in_the_form_in_which_it_is_sent() {
        let mut spec = crate::test_support::spec("eu-central-1", "t3.micro", "ami-1");
        spec.user_data = Some(SCRIPT.to_owned());
        let error = CloudError::invalid(format!("Value ({}) is invalid", &BASE64.encode(SCRIPT)[..40]));
        assert_eq!(error.without_user_data(&spec).detail, "Value (…) is invalid");
    }
}
