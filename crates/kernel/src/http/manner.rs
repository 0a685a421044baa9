//! How a client is refused that reads no problem: one with a language of its own, or a browser. What it reads is the body,
//! with the headers that belong to it; status, all other headers, the line in the log and the figures are those of every
//! refusal.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::base::{Error, Result};

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

    /// Its body and the header that belongs to it.
    pub(super) fn said(self) -> Response {
        ([(header::CONTENT_TYPE, self.media_type)], Body::from(self.body)).into_response()
    }
}

/// How an error is told to whoever sends a request with these headers; `None` is a problem.
pub type Speak = fn(&HeaderMap, &Error) -> Option<Spoken>;

/// What a browser is shown when it is refused, with the id of its request. `page` is the page or form that it came to, if
/// there is one at its address. Of the answer, the body and the headers are taken.
pub type RefusalPage = fn(error: &Error, request_id: &str, page: Option<&'static str>) -> Result<Response>;

/// How a request is refused that is not simply told the problem.
pub(super) enum Manner {
    /// Noted when a request comes to a door for passes: what is refused before that is a problem.
    Pass {
        /// What a client without a credential is told to present.
        challenge: &'static str,
        /// With the headers of the request, which its handler gets no more.
        speak: Option<(Speak, HeaderMap)>,
    },
    /// Noted when a request arrives at an address of people. Only browsers are shown the page.
    People { show: RefusalPage, page: Option<&'static str>, is_browser: bool },
}

impl Manner {
    /// What the client reads in place of a problem.
    pub fn say(&self, error: &Error, request_id: &str) -> Option<Response> {
        match self {
            Manner::Pass { speak, .. } => {
                let (speak, headers) = speak.as_ref()?;
                speak(headers, error).map(Spoken::said)
            }
            Manner::People { show, page, is_browser: true } => {
                let shown = show(error, request_id, *page);
                shown.inspect_err(|error| tracing::error!(%error, request_id, "a refusal cannot be shown")).ok()
            }
            Manner::People { is_browser: false, .. } => None,
        }
    }

    /// What to present, where that is another credential than everywhere else.
    pub fn challenge(&self) -> Option<HeaderValue> {
        match self {
            Manner::Pass { challenge, .. } => Some(HeaderValue::from_static(challenge)),
            Manner::People { .. } => None,
        }
    }

    /// Whether others may be told the same in another way, by what they would rather read.
    pub fn is_chosen(&self) -> bool {
        matches!(self, Manner::People { .. })
    }
}
