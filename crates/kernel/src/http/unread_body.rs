//! The unread body of an HTTP/1 request that is answered before its body was read.
//!
//! The client may still be sending the body, and another request after it. A small body is drained, so that the client
//! reads the answer and can reuse the connection. Otherwise the answer says `Connection: close`.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
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
use crate::base::lock_unpoisoned;

/// A body that the API would have accepted is drained.
const DRAIN_BYTES_MAX: u64 = BODY_BYTES_MAX as u64;
/// The time for draining. The connection of a slower client is closed.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// A request body that is lent to the handler, and drained here if the handler did not read it.
pub(super) struct UnreadBody(Arc<Mutex<LentBody>>);

struct LentBody {
    body: Body,
    /// Whether the handler has begun to read it.
    begun: bool,
    ended: bool,
}

impl UnreadBody {
    /// Lends the body of an HTTP/1 request to its handler. A client that sent `Expect` waits for 100 and has sent no body
    /// yet, so there is nothing to drain.
    pub fn lend_body(request: Request) -> (Request, Option<Self>) {
        if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
            return (request, None);
        }
        let begun = request.headers().contains_key(EXPECT);
        let mut lent = None;
        let request = request.map(|body| {
            let shared = Arc::new(Mutex::new(LentBody { body, begun, ended: false }));
            lent = Some(UnreadBody(shared.clone()));
            Body::new(BorrowedBody(shared))
        });
        (request, lent)
    }

    /// Drains the body, or adds `Connection: close` to the answer.
    pub async fn drain_or_close(self, response: &mut Response) {
        let untouched = {
            let mut lent = lock_unpoisoned(&self.0);
            if lent.ended {
                return;
            }
            // A body that a task may still be reading is not taken away: it would look complete to that task.
            (!lent.begun).then(|| std::mem::take(&mut lent.body))
        };
        if let Some(body) = untouched
            && drain_body(body).await
        {
            return;
        }
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Reads and drops a body. Returns whether it arrived completely within the limits.
async fn drain_body(mut body: Body) -> bool {
    if body.size_hint().lower() > DRAIN_BYTES_MAX {
        return false;
    }
    let all = async {
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > DRAIN_BYTES_MAX {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(DRAIN_TIME_MAX, all).await.unwrap_or(false)
}

struct BorrowedBody(Arc<Mutex<LentBody>>);

impl HttpBody for BorrowedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut lent = lock_unpoisoned(&self.0);
        lent.begun = true;
        let polled = Pin::new(&mut lent.body).poll_frame(cx);
        lent.ended = matches!(polled, Poll::Ready(None)) || lent.body.is_end_stream();
        polled
    }

    fn is_end_stream(&self) -> bool {
        lock_unpoisoned(&self.0).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock_unpoisoned(&self.0).body.size_hint()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use futures_util::stream::iter;

    use super::*;

    const PIECE: &[u8] = &[0; 64 * 1024];

    /// A request with a body of these chunks and of unknown length.
    fn request_with_body(pieces: &[&'static [u8]]) -> (Body, UnreadBody) {
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            pieces.iter().map(|piece| Ok(Bytes::from_static(piece))).collect();
        let (request, rest) = UnreadBody::lend_body(Request::new(Body::from_stream(iter(pieces))));
        (request.into_body(), rest.unwrap())
    }

    async fn ends_connection(rest: UnreadBody) -> bool {
        let mut response = Response::new(Body::empty());
        rest.drain_or_close(&mut response).await;
        response.headers().contains_key(CONNECTION)
    }

    #[tokio::test]
    async fn a_connection_goes_on_behind_a_body_that_is_read_or_taken_in() {
        let (untouched, rest) = request_with_body(&[b"one", b"two"]);
        assert!(!ends_connection(rest).await);
        drop(untouched);
        let (read, rest) = request_with_body(&[b"one", b"two"]);
        assert_eq!(read.collect().await.unwrap().to_bytes(), "onetwo");
        assert!(!ends_connection(rest).await);
        let most = vec![PIECE; BODY_BYTES_MAX / PIECE.len()];
        let (_untouched, rest) = request_with_body(&most);
        assert!(!ends_connection(rest).await);
        let (_untouched, rest) = request_with_body(&[&most[..], &[b"x"]].concat());
        assert!(ends_connection(rest).await, "more than anybody would take");
    }

    #[tokio::test]
    async fn a_body_that_somebody_reads_is_left_to_them() {
        let (mut body, rest) = request_with_body(&[b"one", b"two"]);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        assert!(ends_connection(rest).await);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "two", "what is left does not look like its end");
    }
}
