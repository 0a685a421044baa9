//! The credential that a request presents: one cookie or one key, in whichever header.

use axum::http::{HeaderMap, header};

use super::key_format::PlainKey;
use crate::base::{Code, Error, Result};

pub enum Presented {
    Cookie(String),
    /// `None` is something that cannot be a key.
    Key(Option<PlainKey>),
    Nothing,
}

impl Presented {
    /// More than one credential is refused: which one should count is not ours to guess.
    pub fn find(headers: &HeaderMap, cookie_name: &str) -> Result<Self> {
        let mut found = Vec::new();
        for value in headers.get_all(header::AUTHORIZATION) {
            let token = value.to_str().ok().and_then(|text| text.split_once(' '));
            let token =
                token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
            found.push(Presented::Key(token.and_then(PlainKey::parse)));
        }
        for value in headers.get_all("x-api-key") {
            found.push(Presented::Key(value.to_str().ok().map(str::trim).and_then(PlainKey::parse)));
        }
        for line in headers.get_all(header::COOKIE) {
            let pairs = line.to_str().unwrap_or_default().split(';');
            let values = pairs.filter_map(|pair| pair.trim().strip_prefix(cookie_name)?.strip_prefix('='));
            found.extend(values.map(|value| Presented::Cookie(value.to_owned())));
        }
        match (found.pop(), found.len()) {
            (None, _) => Ok(Presented::Nothing),
            (Some(one), 0) => Ok(one),
            _ => Err(Error::new(
                Code::AmbiguousCredentials,
                "Send one credential: the session cookie, Authorization or X-API-Key.",
            )),
        }
    }
}
