//! What is left of a request's body when the request is refused before it was read.
//!
//! A client of HTTP/1 may send the body after the head, and another request after that. What is small is taken in and
//! dropped, so that the client finds the answer and a connection that goes on; else it is told that the connection ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, Version};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use super::rules::BODY_BYTES_MAX;

/// A body that would have been taken is worth taking in.
const REST_BYTES_MAX: u64 = BODY_BYTES_MAX as u64;
/// A client that takes longer sends its next request on another connection.
const REST_TIME_MAX: Duration = Duration::from_secs(1);

/// A body that can be taken back from whoever did not read it.
pub(super) struct Rest(Arc<Mutex<Lent>>);

struct Lent {
    body: Body,
    /// Whether anybody has begun to read it.
    begun: bool,
    ended: bool,
}

impl Rest {
    /// Of a request that has a body and whose connection can be told to end. One that waits to be told to go on has
    /// nothing on its way.
    pub fn of(request: Request) -> (Request, Option<Self>) {
        if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
            return (request, None);
        }
        let begun = request.headers().contains_key(EXPECT);
        let mut lent = None;
        let request = request.map(|body| {
            let shared = Arc::new(Mutex::new(Lent { body, begun, ended: false }));
            lent = Some(Rest(shared.clone()));
            Body::new(Borrowed(shared))
        });
        (request, lent)
    }

    /// Takes in what is left, or tells the client that the connection ends with this answer.
    pub async fn settle(self, response: &mut Response) {
        let (body, begun, ended) = {
            let mut lent = lock(&self.0);
            (std::mem::take(&mut lent.body), lent.begun, lent.ended)
        };
        if ended || (!begun && take_in(body).await) {
            return;
        }
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Whether the whole of it came, and was not too much.
async fn take_in(mut body: Body) -> bool {
    if body.size_hint().lower() > REST_BYTES_MAX {
        return false;
    }
    let all = async {
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > REST_BYTES_MAX {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(REST_TIME_MAX, all).await.unwrap_or(false)
}

struct Borrowed(Arc<Mutex<Lent>>);

fn lock(lent: &Mutex<Lent>) -> MutexGuard<'_, Lent> {
    lent.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpBody for Borrowed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut lent = lock(&self.0);
        lent.begun = true;
        let polled = Pin::new(&mut lent.body).poll_frame(cx);
        lent.ended = matches!(polled, Poll::Ready(None)) || lent.body.is_end_stream();
        polled
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).body.size_hint()
    }
}
