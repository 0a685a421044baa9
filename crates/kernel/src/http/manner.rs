//! How a route refuses whose clients speak a language of their own. What they read is the body; status, headers, the line in
//! the log and the figures are those of every refusal.

use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::base::Error;

/// A refusal in the words of the client, in place of a problem.
#[derive(Clone)]
pub struct Spoken {
    pub media_type: &'static str,
    pub body: Bytes,
}

impl Spoken {
    /// The answer of a handler that knows better than the headers do how its client speaks.
    pub fn answer(self, error: Error) -> Response {
        let mut response = error.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// How an error is told to whoever sends a request with these headers; `None` is a problem.
pub type Speak = fn(&HeaderMap, &Error) -> Option<Spoken>;

/// Noted when a request comes to its door: what is refused before that is a problem.
pub(super) struct Manner {
    /// What a client without a credential is told to present.
    pub challenge: &'static str,
    /// With the headers of the request, which its handler gets no more.
    pub speak: Option<(Speak, HeaderMap)>,
}

impl Manner {
    pub fn say(&self, error: &Error) -> Option<Spoken> {
        self.speak.as_ref().and_then(|(speak, headers)| speak(headers, error))
    }

    pub fn challenge(&self) -> HeaderValue {
        HeaderValue::from_static(self.challenge)
    }
}
