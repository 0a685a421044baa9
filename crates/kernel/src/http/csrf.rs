//! Cross-site requests: a browser adds the cookie by itself, so a change by cookie must come from our own pages.

use axum::http::{HeaderMap, Method, header};

use super::app::BaseUrl;
use crate::base::{Code, Error, Result};

/// `Sec-Fetch-Site` decides where it is present, else `Origin`, else it is no browser and passes.
pub fn check(method: &Method, headers: &HeaderMap, base_url: &BaseUrl) -> Result<()> {
    if method.is_safe() {
        return Ok(());
    }
    let passes = if let Some(site) = headers.get("sec-fetch-site") {
        site == "same-origin" || site == "none"
    } else if let Some(origin) = headers.get(header::ORIGIN) {
        origin.to_str().is_ok_and(|origin| origin.eq_ignore_ascii_case(base_url.as_str()))
    } else {
        true
    };
    if passes {
        Ok(())
    } else {
        Err(Error::new(Code::CsrfRejected, "A change by cookie must come from this service's own pages."))
    }
}
