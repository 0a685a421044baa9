//! Texts of a cloud, made fit to be stored and shown: one line within bounds, without U+0000, which the database does not take.

use kernel::base::is_unfit_for_line;

pub fn clean_text(text: &str, chars_max: usize) -> String {
    text.chars().filter(|c| !is_unfit_for_line(*c)).take(chars_max).collect()
}
