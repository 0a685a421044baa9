//! The credential that a request presents: one cookie, or one key in one of two headers.

use axum::http::{HeaderMap, HeaderName, header};

use super::key_format::PlainKey;
use crate::base::{Code, Error, Result};

static X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

pub enum PresentedCredential {
    Cookie(String),
    /// `None` if the text is not a well-formed key.
    Key(Option<PlainKey>),
    Nothing,
}

impl PresentedCredential {
    /// More than one credential is refused, because it would be a guess which one the caller meant.
    pub fn from_headers(headers: &HeaderMap, cookie_name: &str) -> Result<Self> {
        let (mut found, mut count) = (PresentedCredential::Nothing, 0);
        let mut take = |one: PresentedCredential| {
            count += 1;
            found = one;
        };
        for value in headers.get_all(header::AUTHORIZATION) {
            let token = value.to_str().ok().and_then(|text| text.split_once(' '));
            let token =
                token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
            take(PresentedCredential::Key(token.and_then(PlainKey::parse)));
        }
        for value in headers.get_all(&X_API_KEY) {
            take(PresentedCredential::Key(value.to_str().ok().map(str::trim).and_then(PlainKey::parse)));
        }
        for value in read_cookies(headers, cookie_name) {
            take(PresentedCredential::Cookie(value));
        }
        if count > 1 {
            let detail = "Send one credential: the session cookie, Authorization or X-API-Key.";
            return Err(Error::new(Code::AmbiguousCredentials, detail));
        }
        Ok(found)
    }
}

/// More cookies than a browser sends for one name or prefix.
const COOKIES_MAX: usize = 200;

/// The values of the cookies of this name. The header is read as bytes, because a cookie of another application may not be
/// UTF-8.
pub fn read_cookies(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = cookie_pairs(headers).filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.take(COOKIES_MAX).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
}

/// The names of the cookies with this prefix, each with the size in bytes of its pair in the header.
pub fn cookie_sizes(headers: &HeaderMap, prefix: &str) -> Vec<(String, usize)> {
    let named = cookie_pairs(headers).filter_map(|pair| {
        let name = str::from_utf8(pair.split(|byte| *byte == b'=').next()?).ok()?;
        name.starts_with(prefix).then(|| (name.to_owned(), pair.len()))
    });
    named.take(COOKIES_MAX).collect()
}

fn cookie_pairs(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(header::COOKIE).iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii))
}
