//! What every page has in common: its headers, and the few words that more than one page writes.

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use kernel::base::{Error, HOUR_MS, MINUTE_MS, Result, Timestamp};
use kernel::http::BaseUrl;

/// A rendered page.
pub struct Page {
    status: StatusCode,
    html: String,
    content_security_policy: &'static str,
    referrer_policy: HeaderValue,
}

/// Nothing but our own stylesheet and icon: no script, no frame, no form target, nothing from anybody else.
pub const STILL: &str =
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A form that is sent to us, and whose answer leads on to somebody's provider. Some browsers hold that address against
/// `form-action` too, and the page cannot know whose it will be: so it may be any, by https.
const LEADING: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'self' https:; frame-ancestors 'none'";

/// The same where the service itself is reached without TLS, to try it out beside a provider that is too.
const LEADING_PLAIN: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'self' https: http:; frame-ancestors 'none'";

/// Also our own script, which may call our own API: whoever signs out may be led to their provider.
const SCRIPTED: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'self' https:; frame-ancestors 'none'";

/// The same without TLS.
const SCRIPTED_PLAIN: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'self' https: http:; frame-ancestors 'none'";

/// The address of a page may hold a sign-in token: nobody is told where a visitor comes from.
pub const REFERRER_POLICY: HeaderValue = HeaderValue::from_static("no-referrer");

/// Nobody but ourselves, on a page with a form: where nobody is told, browsers send `Origin: null` with it, and whether it
/// comes from us cannot be seen.
const OWN_REFERRER_POLICY: HeaderValue = HeaderValue::from_static("same-origin");

/// A form that is sent to us, and whose answer stays with us.
const OWN_FORM: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'self'; frame-ancestors 'none'";

/// Where the address of a page with a form holds a token: nobody is told more than the host, and the form still has its
/// `Origin`. By `same-origin` the token would be in the `Referer` of the stylesheet, which proxies before us log.
const ORIGIN_REFERRER_POLICY: HeaderValue = HeaderValue::from_static("strict-origin");

impl Page {
    pub fn new(template: &impl Template) -> Result<Self> {
        template.render().map(Page::rendered).map_err(Error::internal)
    }

    /// Of what a template has become before.
    pub fn rendered(html: String) -> Self {
        let (content_security_policy, referrer_policy) = (STILL, REFERRER_POLICY);
        Page { status: StatusCode::OK, html, content_security_policy, referrer_policy }
    }

    /// The page has a form that leads to another site.
    pub fn leading(template: &impl Template, base_url: &BaseUrl) -> Result<Self> {
        let content_security_policy = if base_url.is_https() { LEADING } else { LEADING_PLAIN };
        let referrer_policy = OWN_REFERRER_POLICY;
        Ok(Page { content_security_policy, referrer_policy, ..Page::new(template)? })
    }

    /// The page has a form of ours, and a token in its address.
    pub fn with_token(template: &impl Template) -> Result<Self> {
        let (content_security_policy, referrer_policy) = (OWN_FORM, ORIGIN_REFERRER_POLICY);
        Ok(Page { content_security_policy, referrer_policy, ..Page::new(template)? })
    }

    /// The page has a form that leads to another site, and brings a script of ours.
    pub fn with_script(template: &impl Template, base_url: &BaseUrl) -> Result<Self> {
        let content_security_policy = if base_url.is_https() { SCRIPTED } else { SCRIPTED_PLAIN };
        let referrer_policy = OWN_REFERRER_POLICY;
        Ok(Page { content_security_policy, referrer_policy, ..Page::new(template)? })
    }

    #[must_use]
    pub fn status(self, status: StatusCode) -> Self {
        Page { status, ..self }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(self.content_security_policy)),
            (header::REFERRER_POLICY, self.referrer_policy),
        ];
        (self.status, headers, Html(self.html)).into_response()
    }
}

/// What is not possible right now may be in a minute, as the pages say that tell so.
pub const IN_A_MINUTE: (HeaderName, HeaderValue) = (header::RETRY_AFTER, HeaderValue::from_static("60"));

/// A moment to the minute: `2026-11-15 09:30 UTC`.
pub fn minute_words(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} UTC", text.get(..16).unwrap_or(&text).replace('T', " "))
}

/// A length of time as people say it.
pub fn words(ms: i64) -> String {
    let (count, unit) = if ms % HOUR_MS == 0 { (ms / HOUR_MS, "hour") } else { (ms / MINUTE_MS, "minute") };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_reads_as_people_say_it() {
        assert_eq!(words(90 * MINUTE_MS), "90 minutes");
        assert_eq!(words(12 * HOUR_MS), "12 hours");
        assert_eq!(words(HOUR_MS), "1 hour");
    }
}
