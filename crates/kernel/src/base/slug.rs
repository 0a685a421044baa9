//! Slugs: short names of records that need no quoting in any shell or URL.

use super::{Error, Result};

const SLUG_CHARS_MAX: usize = 63;

/// A slug is 1 to 63 characters of a-z, 0-9 and -, and neither starts nor ends with -.
pub fn check_slug(slug: &str) -> Result<()> {
    let valid = (1..=SLUG_CHARS_MAX).contains(&slug.len())
        && slug.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !slug.starts_with('-')
        && !slug.ends_with('-');
    if valid {
        return Ok(());
    }
    let detail = format!("must be 1 to {SLUG_CHARS_MAX} of a-z, 0-9 and -, not starting or ending with -");
    Err(Error::invalid("/slug", "invalid_slug", detail))
}
