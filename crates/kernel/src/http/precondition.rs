//! `If-Match`: a change applies only to the version that the caller has read.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;

use crate::base::{Code, Error, Result};

/// The `ETag`s of the versions that the caller accepts. Without the header, any version is accepted.
#[derive(Clone, Debug, Default)]
pub struct IfMatch(Option<Vec<String>>);

impl IfMatch {
    pub fn check_version(&self, version: i64) -> Result<()> {
        let Some(tags) = &self.0 else { return Ok(()) };
        let current = format!("\"{version}\"");
        if tags.iter().any(|tag| tag == "*" || *tag == current) {
            return Ok(());
        }
        Err(Error::new(Code::VersionMismatch, format!("The record is at version {version}: its ETag is {current}.")))
    }
}

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let values: Vec<_> = parts.headers.get_all(header::IF_MATCH).iter().collect();
        if values.is_empty() {
            return Ok(IfMatch(None));
        }
        let tags = values.iter().flat_map(|value| value.to_str().unwrap_or_default().split(','));
        Ok(IfMatch(Some(tags.map(|tag| tag.trim().to_owned()).collect())))
    }
}
