//! The address of the service, as the operator has configured it.

use axum::http::Uri;

use crate::base::{Error, Result};

/// The address at which clients reach the service: scheme, host and port, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::internal(format!(
                "base URL {text:?}: must be http://HOST[:PORT] or https://HOST[:PORT], without a path"
            ))
        };
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?.as_str().to_ascii_lowercase();
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme)).ok_or_else(wrong)?;
        if !["", "/"].contains(&uri.path()) || uri.query().is_some() || authority.contains('@') {
            return Err(wrong());
        }
        // Browsers omit the default port in `Origin`.
        let default_port = if scheme == "https" { ":443" } else { ":80" };
        Ok(BaseUrl(format!("{scheme}://{}", authority.strip_suffix(default_port).unwrap_or(&authority))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }

    pub fn cookie_name(&self) -> &'static str {
        if self.is_https() { "__Host-session" } else { "session" }
    }
}
