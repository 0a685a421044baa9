//! What all pages share: their headers, and some formats of time.

use std::collections::BTreeMap;

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use kernel::base::{Error, HOUR_MS, MINUTE_MS, Result, Timestamp};
use kernel::http::BaseUrl;

/// A rendered page.
pub struct HtmlPage {
    status: StatusCode,
    html: String,
    content_security_policy: &'static str,
    referrer_policy: HeaderValue,
}

/// The content security policy of a static page: only our own stylesheet and icon, no scripts, frames or forms.
pub const STATIC_POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// For a form whose response redirects to an identity provider. Some browsers apply `form-action` to the redirect too, and
/// the page cannot know the provider, so any https URL is allowed.
const EXTERNAL_FORM_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'self' https:; frame-ancestors 'none'";

/// The same for a service without TLS, to try it out with a provider without TLS.
const EXTERNAL_FORM_POLICY_PLAIN: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'self' https: http:; frame-ancestors 'none'";

/// Also allows our own script, which calls our own API. The sign-out form may redirect to a provider.
const SCRIPT_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'self' https:; frame-ancestors 'none'";

/// The same without TLS.
const SCRIPT_POLICY_PLAIN: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'self' https: http:; frame-ancestors 'none'";

/// The URL of a page may contain a sign-in token, so no referrer is sent.
pub const REFERRER_POLICY: HeaderValue = HeaderValue::from_static("no-referrer");

/// For a page with a form: with `no-referrer` browsers send `Origin: null`, and the server could not verify that the form is
/// its own.
const OWN_REFERRER_POLICY: HeaderValue = HeaderValue::from_static("same-origin");

/// For a form whose response stays on this service.
const OWN_FORM_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'self'; frame-ancestors 'none'";

/// For a page with a form and a token in its URL: only the origin is sent, and the form still has its `Origin`. With
/// `same-origin` the token would be in the `Referer` of the stylesheet request, which proxies in front of the service log.
const ORIGIN_REFERRER_POLICY: HeaderValue = HeaderValue::from_static("strict-origin");

impl HtmlPage {
    pub fn new(template: &impl Template) -> Result<Self> {
        template.render().map(HtmlPage::from_html).map_err(Error::internal)
    }

    /// A page of rendered HTML.
    pub fn from_html(html: String) -> Self {
        let (content_security_policy, referrer_policy) = (STATIC_POLICY, REFERRER_POLICY);
        HtmlPage { status: StatusCode::OK, html, content_security_policy, referrer_policy }
    }

    /// A page with a form that redirects to another site.
    pub fn with_external_form(template: &impl Template, base_url: &BaseUrl) -> Result<Self> {
        let content_security_policy =
            if base_url.is_https() { EXTERNAL_FORM_POLICY } else { EXTERNAL_FORM_POLICY_PLAIN };
        let referrer_policy = OWN_REFERRER_POLICY;
        Ok(HtmlPage { content_security_policy, referrer_policy, ..HtmlPage::new(template)? })
    }

    /// A page with a form of this service, and a token in its URL.
    pub fn with_token(template: &impl Template) -> Result<Self> {
        let (content_security_policy, referrer_policy) = (OWN_FORM_POLICY, ORIGIN_REFERRER_POLICY);
        Ok(HtmlPage { content_security_policy, referrer_policy, ..HtmlPage::new(template)? })
    }

    /// A page with a form that redirects to another site, and a script of this service.
    pub fn with_script(template: &impl Template, base_url: &BaseUrl) -> Result<Self> {
        let content_security_policy = if base_url.is_https() { SCRIPT_POLICY } else { SCRIPT_POLICY_PLAIN };
        let referrer_policy = OWN_REFERRER_POLICY;
        Ok(HtmlPage { content_security_policy, referrer_policy, ..HtmlPage::new(template)? })
    }

    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        HtmlPage { status, ..self }
    }
}

impl IntoResponse for HtmlPage {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(self.content_security_policy)),
            (header::REFERRER_POLICY, self.referrer_policy),
        ];
        (self.status, headers, Html(self.html)).into_response()
    }
}

/// Rendered pages by path.
pub type LibraryPages = BTreeMap<String, String>;

/// `Retry-After` for the pages that tell people to try again in a minute.
pub const RETRY_IN_A_MINUTE: (HeaderName, HeaderValue) = (header::RETRY_AFTER, HeaderValue::from_static("60"));

pub fn redirect_with_cookies(location: &str, cookies: &[String]) -> Result<Response> {
    let headers = [
        (header::LOCATION, HeaderValue::try_from(location).map_err(Error::internal)?),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, REFERRER_POLICY),
    ];
    let mut response = (StatusCode::SEE_OTHER, headers).into_response();
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, HeaderValue::try_from(cookie).map_err(Error::internal)?);
    }
    Ok(response)
}

/// Formats a time to the minute: `2026-11-15 09:30 UTC`.
pub fn minute_words(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} UTC", text.get(..16).unwrap_or(&text).replace('T', " "))
}

/// Formats a duration: `12 hours`, `90 minutes`.
pub fn duration_words(ms: i64) -> String {
    let (count, unit) = if ms % HOUR_MS == 0 { (ms / HOUR_MS, "hour") } else { (ms / MINUTE_MS, "minute") };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_reads_as_people_say_it() {
        assert_eq!(duration_words(90 * MINUTE_MS), "90 minutes");
        assert_eq!(duration_words(12 * HOUR_MS), "12 hours");
        assert_eq!(duration_words(HOUR_MS), "1 hour");
    }
}
