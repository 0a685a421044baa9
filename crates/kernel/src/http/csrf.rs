//! Cross-site requests: a browser adds the cookie by itself, so a change by cookie must come from our own pages.

use axum::http::{HeaderMap, Method, header};

use super::app::BaseUrl;
use crate::base::{Code, Error, Result};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// `Sec-Fetch-Site` decides where it is present, else `Origin`, else it is no browser and passes.
pub fn check(method: &Method, headers: &HeaderMap, base_url: &BaseUrl) -> Result<()> {
    if method.is_safe() {
        return Ok(());
    }
    // Said twice, it must be right both times.
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
