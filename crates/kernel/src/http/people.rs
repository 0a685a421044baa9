//! Pages and forms for browsers: which paths they have, how refusals look there, and redirects for a missing or extra
//! trailing slash.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::accept::prefers;
use super::manner::{Manner, RefusalPage};

/// Paths of API clients, which read problems. The few pages below them are found by their own route.
const OF_PROGRAMS: [&str; 2] = ["/api/", "/internal/"];

/// The pages and forms of the service, and the page of a refusal.
#[derive(Default)]
pub(super) struct People {
    pub pages: Vec<&'static str>,
    /// The targets of HTML forms.
    pub forms: Vec<&'static str>,
    pub refusal_page: Option<RefusalPage>,
}

impl People {
    /// The error format of a request to a page, a form, or an unknown path that is not an API path.
    pub fn manner(&self, request: &Request) -> Option<Manner> {
        let show = self.refusal_page?;
        let page = match request.extensions().get::<MatchedPath>() {
            Some(route) => Some(self.find(route.as_str())?),
            None if is_of_programs(request.uri().path()) => return None,
            None => None,
        };
        let is_browser = prefers(request.headers(), "text/html", "application/json");
        Some(Manner::People { show, page, is_browser })
    }

    fn find(&self, route: &str) -> Option<&'static str> {
        self.pages.iter().chain(&self.forms).copied().find(|path| *path == route)
    }

    /// A redirect to the page whose path differs only in the trailing slash.
    pub fn lead(&self, request: &Request) -> Option<Response> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return None;
        }
        let uri = request.uri();
        let other = with_other_end(uri.path());
        self.pages.iter().find(|page| is_of_route(page, &other))?;
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

fn is_of_programs(path: &str) -> bool {
    OF_PROGRAMS.iter().any(|start| path.starts_with(start))
}

/// Removes the trailing slash of a path, or adds one.
fn with_other_end(path: &str) -> String {
    path.strip_suffix('/').map_or_else(|| format!("{path}/"), str::to_owned)
}

/// Whether a path matches this route, in which `{…}` stands for any segment.
fn is_of_route(route: &str, path: &str) -> bool {
    let is_of = |(named, given): (&str, &str)| named == given || named.starts_with('{') && !given.is_empty();
    route.split('/').count() == path.split('/').count() && route.split('/').zip(path.split('/')).all(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_of_a_route_part_by_part() {
        for path in ["/guides/tickets/", "/guides/%2F/"] {
            assert!(is_of_route("/guides/{name}/", path), "{path}");
        }
        for path in ["/guides/tickets", "/guides//", "/guides/", "/guides/a/b/", "//guides/tickets/", "/a/tickets/"] {
            assert!(!is_of_route("/guides/{name}/", path), "{path}");
        }
        assert!(is_of_route("/", "/") && !is_of_route("/", "") && !is_of_route("/", "//elsewhere.test"));
    }

    #[test]
    fn the_other_end_of_a_path_has_a_slash_or_none() {
        assert_eq!(with_other_end("/status/"), "/status");
        assert_eq!(with_other_end("/signin"), "/signin/");
    }
}
