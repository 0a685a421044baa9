//! Pages and forms for browsers: which paths they have, how refusals look there, and redirects for a missing or extra
//! trailing slash.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::accept::prefers_media_type;
use super::error_format::{ErrorFormat, RefusalPage};

/// Paths of API clients, which read problems. The few pages below them are found by their own route.
const API_PREFIXES: [&str; 2] = ["/api/", "/internal/"];

/// The pages and forms of the service, and the page of a refusal.
#[derive(Default)]
pub(super) struct HtmlRoutes {
    pub pages: Vec<&'static str>,
    /// The targets of HTML forms.
    pub forms: Vec<&'static str>,
    pub refusal_page: Option<RefusalPage>,
}

impl HtmlRoutes {
    /// The error format of a request to a page, a form, or an unknown path that is not an API path.
    pub fn find_error_format(&self, request: &Request) -> Option<ErrorFormat> {
        let refusal_page = self.refusal_page?;
        let page = match request.extensions().get::<MatchedPath>() {
            Some(route) => Some(self.find_route(route.as_str())?),
            None if is_api_path(request.uri().path()) => return None,
            None => None,
        };
        let is_browser = prefers_media_type(request.headers(), "text/html", "application/json");
        Some(ErrorFormat::Html { refusal_page, page, is_browser })
    }

    fn find_route(&self, route: &str) -> Option<&'static str> {
        self.pages.iter().chain(&self.forms).copied().find(|path| *path == route)
    }

    /// A redirect to the page whose path differs only in the trailing slash.
    pub fn find_redirect(&self, request: &Request) -> Option<Response> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return None;
        }
        let uri = request.uri();
        let other = toggle_trailing_slash(uri.path());
        self.pages.iter().find(|page| matches_route(page, &other))?;
        let location = match uri.query() {
            Some(query) => format!("{other}?{query}"),
            None => other,
        };
        let location = HeaderValue::try_from(location).ok()?;
        // The URL may contain a sign-in token, so no referrer is sent.
        let headers =
            [(header::LOCATION, location), (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"))];
        Some((StatusCode::PERMANENT_REDIRECT, headers).into_response())
    }
}

fn is_api_path(path: &str) -> bool {
    API_PREFIXES.iter().any(|start| path.starts_with(start))
}

/// Removes the trailing slash of a path, or adds one.
fn toggle_trailing_slash(path: &str) -> String {
    path.strip_suffix('/').map_or_else(|| format!("{path}/"), str::to_owned)
}

/// Whether a path matches this route, in which `{…}` stands for any segment.
fn matches_route(route: &str, path: &str) -> bool {
    let is_of = |(named, given): (&str, &str)| named == given || named.starts_with('{') && !given.is_empty();
    route.split('/').count() == path.split('/').count() && route.split('/').zip(path.split('/')).all(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_of_a_route_part_by_part() {
        for path in ["/guides/tickets/", "/guides/%2F/"] {
            assert!(matches_route("/guides/{name}/", path), "{path}");
        }
        for path in ["/guides/tickets", "/guides//", "/guides/", "/guides/a/b/", "//guides/tickets/", "/a/tickets/"] {
            assert!(!matches_route("/guides/{name}/", path), "{path}");
        }
        assert!(matches_route("/", "/") && !matches_route("/", "") && !matches_route("/", "//elsewhere.test"));
    }

    #[test]
    fn the_other_end_of_a_path_has_a_slash_or_none() {
        assert_eq!(toggle_trailing_slash("/status/"), "/status");
        assert_eq!(toggle_trailing_slash("/signin"), "/signin/");
    }
}
