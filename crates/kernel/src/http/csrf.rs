//! Cross-site request forgery: browsers add the cookie by themselves, so a change by cookie must come from our own pages.

use axum::http::{HeaderMap, Method, header};

use super::base_url::BaseUrl;
use crate::base::{Code, Error, Result};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Checks `Sec-Fetch-Site` if present, else `Origin`. A request with neither is from no browser and passes.
pub fn check_origin(method: &Method, headers: &HeaderMap, base_url: &BaseUrl) -> Result<()> {
    if method.is_safe() {
        return Ok(());
    }
    // Every occurrence of a repeated header must pass.
    let passes = if headers.contains_key(SEC_FETCH_SITE) {
        headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "same-origin" || site == "none")
    } else {
        let is_ours = |origin: &str| origin.eq_ignore_ascii_case(base_url.as_str());
        headers.get_all(header::ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(is_ours))
    };
    if passes {
        Ok(())
    } else {
        Err(Error::new(Code::CsrfRejected, "A change by cookie must come from this service's own pages."))
    }
}
