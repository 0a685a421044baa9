//! Headers that a tenant adds to outgoing requests, of deliveries and of workflow steps: which names are allowed, and that a
//! stored value is sent only to the scheme, host and port it was given for.

use std::collections::BTreeMap;

use kernel::base::FieldError;
use kernel::http::BodyField;

pub const HEADERS_MAX: usize = 20;
/// Of one header, so that all of them fit what servers accept.
pub const HEADER_BYTES_MAX: usize = 2_048;
/// Stands for a header's value in every answer; sent back, it keeps what is stored.
pub const MASK: &str = "********";

/// Headers that the service sets itself, or that decide how the request is framed.
const REFUSED: &[&str] =
    &["host", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect", "cookie", "user-agent"];
const REFUSED_FAMILIES: &[&str] = &["content-", "proxy-", "webhook-"];
const NAME_BYTES_MAX: usize = 100;

/// Parses the headers of a body. `own` names further headers that this kind of request sets itself, `free` those that it
/// leaves to the tenant.
pub fn parse_headers(field: &mut BodyField<'_>, own: &[&str], free: &[&str]) -> Option<BTreeMap<String, String>> {
    let mut seen = Vec::new();
    let headers = field.read_map(HEADERS_MAX, |name, value| {
        let lower = name.to_ascii_lowercase();
        if !is_header_name(name) {
            return value.report_error("invalid_header", NOT_A_NAME);
        }
        let refused = [REFUSED, own].iter().any(|names| names.contains(&lower.as_str()))
            || REFUSED_FAMILIES.iter().any(|family| lower.starts_with(family));
        if refused && !free.contains(&lower.as_str()) {
            return value.report_error("header_not_allowed", "is set by the service and cannot be given");
        }
        if seen.contains(&lower) {
            return value.report_error("duplicate_header", "is given twice; names of headers do not depend on case");
        }
        seen.push(lower);
        let text = value.read_string()?;
        if text.len() > HEADER_BYTES_MAX || !text.bytes().all(|byte| byte == b'\t' || (0x20..0x7f).contains(&byte)) {
            return value.report_error(
                "invalid_header",
                format!("must be at most {HEADER_BYTES_MAX} visible ASCII characters"),
            );
        }
        Some(text)
    })?;
    Some(headers.into_iter().collect())
}

pub const NOT_A_NAME: &str = "is not the name of a header";

/// Whether this is a token by RFC 9110.
pub fn is_header_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_token)
}

/// The given headers, with the stored value wherever the mask is given. `same_target` says whether scheme, host and port are
/// those the stored values were given for; if not, the mask is refused. `pointer` is the JSON pointer of the headers.
pub fn merge_headers(
    stored: &BTreeMap<String, String>,
    same_target: bool,
    given: BTreeMap<String, String>,
    pointer: &str,
) -> Result<BTreeMap<String, String>, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut report_error = |name: &str, code: &'static str, detail: String| {
        let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
        errors.push(FieldError { pointer, code, detail });
    };
    let mut merged = BTreeMap::new();
    for (name, value) in given {
        if value != MASK {
            merged.insert(name, value);
            continue;
        }
        match stored.iter().find(|(stored_name, _)| stored_name.eq_ignore_ascii_case(&name)) {
            Some((_, stored_value)) if same_target => drop(merged.insert(name, stored_value.clone())),
            Some(_) => report_error(
                &name,
                "url_moved",
                format!("{MASK} keeps a stored value only for the same scheme, host and port; give the value again"),
            ),
            None => report_error(
                &name,
                "nothing_to_keep",
                format!("{MASK} keeps a stored value, and there is none for this header"),
            ),
        }
    }
    if errors.is_empty() { Ok(merged) } else { Err(errors) }
}
