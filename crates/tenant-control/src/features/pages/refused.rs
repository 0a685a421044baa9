//! The error page for browsers: for an unknown path, and for an error at a page or a form.

use askama::Template;
use axum::response::{IntoResponse, Response};
use kernel::base::{Code, Error, Result};
use people::sso;

use super::page::HtmlPage;
use super::signin_link::REDEEM_PATH;

#[derive(Template)]
#[template(path = "refused.html")]
struct RefusedPage<'a> {
    here: &'static str,
    title: &'static str,
    detail: &'a str,
    advice: Option<String>,
    /// The page to continue from, if there is one.
    back: Option<&'static str>,
    request_id: &'a str,
}

pub fn render_refusal(error: &Error, request_id: &str, page: Option<&'static str>) -> Result<Response> {
    let shown = if error.code() == Code::NotFound {
        RefusedPage {
            here: "",
            title: "Page not found",
            detail: "There is nothing at this address. It may have been mistyped, or a link to it is out of date.",
            advice: None,
            back: None,
            request_id,
        }
    } else {
        let (title, detail) = (error.code().title(), error.detail());
        RefusedPage {
            here: "",
            title,
            detail,
            advice: Some(retry_advice(error)),
            back: page.map(back_path),
            request_id,
        }
    };
    HtmlPage::new(&shown).map(HtmlPage::into_response)
}

/// What a person with a browser can do about the error.
fn retry_advice(error: &Error) -> String {
    match error.retry_after_seconds() {
        Some(1) => "Try again in 1 second.".to_owned(),
        Some(seconds) => format!("Try again in {seconds} seconds."),
        None if error.code().status() >= 500 => {
            "Try again. If it happens once more, tell the operator of this service, with the request id.".to_owned()
        }
        None => "Open the page again, and go on from there.".to_owned(),
    }
}

/// The page itself, or the page before it if it cannot be opened directly.
fn back_path(page: &'static str) -> &'static str {
    match page {
        sso::CALLBACK_PATH | REDEEM_PATH => "/signin",
        "/signout" => "/overview",
        // For a route with many pages, the page that lists them.
        page => page.split('{').next().unwrap_or(page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_says_when_to_come_back() {
        assert_eq!(retry_advice(&Error::rate_limited(1, "")), "Try again in 1 second.");
        assert_eq!(retry_advice(&Error::rate_limited(37, "")), "Try again in 37 seconds.");
        assert!(retry_advice(&Error::internal("a cause")).contains("request id"));
        assert!(retry_advice(&Error::new(Code::CsrfRejected, "")).starts_with("Open the page again"));
    }

    #[test]
    fn nobody_is_sent_back_to_what_cannot_be_opened() {
        assert_eq!(back_path(sso::CALLBACK_PATH), "/signin");
        assert_eq!(back_path(REDEEM_PATH), "/signin");
        assert_eq!(back_path("/signout"), "/overview");
        assert_eq!(back_path("/status/"), "/status/");
        assert_eq!(back_path("/documentation/guides/{name}/"), "/documentation/guides/");
    }
}
