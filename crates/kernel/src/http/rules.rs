//! The rules of a route: who may call it, under which rate policy, and with which body.
//!
//! A feature declares them once beside its handlers, which name them in their first argument: `caller: Access<Reading>`.
//! The checks before the handler, the `security` of the OpenAPI document, and the scope that a change confirms again in
//! its transaction all come from them.

use axum::http::request::Parts;

use super::error_format::ErrorRenderer;
use super::params::decode_component;
use super::rate_policy::RatePolicy;
use crate::auth::Scope;

/// A type that stands for the rules of routes. Declared by [`rules!`](crate::rules).
pub trait Route: 'static {
    const RULES: Rules;
}

/// Declares rules: `rules! { Reading = Rules::new(RatePolicy::Read, &[Scope::TicketsRead]); }`.
#[macro_export]
macro_rules! rules {
    ($($(#[$about:meta])* $name:ident = $rules:expr;)*) => {$(
        $(#[$about])*
        pub struct $name;

        impl $crate::http::Route for $name {
            const RULES: $crate::http::Rules = $rules;
        }
    )*};
}

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    policy: RatePolicy,
    exports: bool,
    pub(crate) scopes: &'static [Scope],
    pub(crate) sessions_only: Option<&'static str>,
    pub(crate) body: BodyRules,
    pub(crate) error_renderer: Option<ErrorRenderer>,
}

/// The largest body of a route, unless its rules set another bound.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The size and media types that a body may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyRules {
    pub bytes_max: usize,
    /// The media types of a body that is not JSON.
    pub media_types: &'static [&'static str],
}

impl BodyRules {
    const USUAL: BodyRules = BodyRules { bytes_max: BODY_BYTES_MAX, media_types: &[] };

    /// Adds the rules to the request for the body's extractor. The usual ones are left out.
    pub fn insert_into(self, parts: &mut Parts) {
        if self != BodyRules::USUAL {
            parts.extensions.insert(self);
        }
    }

    pub fn from_parts(parts: &Parts) -> Self {
        parts.extensions.get().copied().unwrap_or(BodyRules::USUAL)
    }
}

impl Rules {
    /// For callers that hold any of `scopes`, or for all callers if there are none. A route with one scope does not name it
    /// again. A route whose scope depends on the request lists all it may need, and its handler calls
    /// `caller.require(scope)?`.
    pub const fn new(policy: RatePolicy, scopes: &'static [Scope]) -> Self {
        Rules { policy, exports: false, scopes, sessions_only: None, body: BodyRules::USUAL, error_renderer: None }
    }

    /// Requests for the list as a file (`format=csv` or `ndjson`) are charged to the policy of exports.
    #[must_use]
    pub const fn or_export(mut self) -> Self {
        self.exports = true;
        self
    }

    /// For sessions alone; a key is refused with `detail`.
    #[must_use]
    pub const fn sessions_only(mut self, detail: &'static str) -> Self {
        self.sessions_only = Some(detail);
        self
    }

    /// Sets another bound for the body than [`BODY_BYTES_MAX`].
    #[must_use]
    pub const fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.body.bytes_max = bytes;
        self
    }

    /// Sets the media types of a body that is read as [`Raw`](super::Raw).
    #[must_use]
    pub const fn media_types(mut self, media_types: &'static [&'static str]) -> Self {
        self.body.media_types = media_types;
        self
    }

    /// Renders refusals of a route for passes, in place of problems: see [`RenderedError`](super::RenderedError).
    #[must_use]
    pub const fn with_error_renderer(mut self, renderer: ErrorRenderer) -> Self {
        self.error_renderer = Some(renderer);
        self
    }

    /// The one scope of the route.
    pub(crate) const fn one_scope(&self) -> Option<Scope> {
        match self.scopes {
            [scope] => Some(*scope),
            _ => None,
        }
    }

    /// Whether the policy charges the caller, not the address.
    pub(crate) const fn is_by_caller(&self) -> bool {
        !self.policy.is_by_address()
    }

    /// The policy that a request is charged to.
    pub(crate) fn policy_for(&self, query: Option<&str>) -> RatePolicy {
        if self.exports && query.is_some_and(asks_for_file) { RatePolicy::Export } else { self.policy }
    }
}

/// Decodes the query like the handler, which will refuse a repeated parameter. Here any occurrence counts.
fn asks_for_file(query: &str) -> bool {
    query.split('&').filter_map(|pair| pair.split_once('=')).any(|(name, value)| {
        decode_component(name).is_some_and(|name| name == "format")
            && decode_component(value).is_some_and(|value| ["csv", "ndjson"].contains(&value.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_as_a_file_is_an_export_however_it_is_spelt() {
        let (list, file) = (Rules::new(RatePolicy::Read, &[]), Rules::new(RatePolicy::Read, &[]).or_export());
        for query in ["format=csv", "limit=1&format=ndjson", "f%6Frmat=cs%76", "format=json&format=csv"] {
            assert_eq!(
                (file.policy_for(Some(query)), list.policy_for(Some(query))),
                (RatePolicy::Export, RatePolicy::Read),
                "{query}"
            );
        }
        for query in [None, Some(""), Some("format=json"), Some("format"), Some("q=format=csv"), Some("format=csvs")] {
            assert_eq!(file.policy_for(query), RatePolicy::Read, "{query:?}");
        }
    }
}
