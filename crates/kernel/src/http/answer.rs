//! Bodies of answers: permits are released with the last byte, and a stalled answer is aborted.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::TryStreamExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection_timeouts::ActiveRequest;
use crate::base::lock_unpoisoned;

/// Bodies are handed over in chunks of this size, so that the last chunk is not taken before the first has been sent.
const CHUNK_BYTES: usize = 16 * 1024;

/// A body that holds resources until its last byte has left this process. Each chunk holds them too, because an HTTP/2
/// stream takes a whole chunk as soon as its client accepts one byte of it.
pub(super) struct HoldingBody<T> {
    body: Body,
    rest: Bytes,
    resources: Option<Arc<HeldResources<T>>>,
}

/// The held value, and the task that watches the answer, which is aborted with it.
struct HeldResources<T> {
    _value: T,
    watch: OnceLock<AbortHandle>,
}

impl<T> Drop for HeldResources<T> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get() {
            watch.abort();
        }
    }
}

/// A chunk of an answer that holds the answer's resources.
struct HoldingChunk<T> {
    bytes: Bytes,
    _resources: Option<Arc<HeldResources<T>>>,
}

impl<T> AsRef<[u8]> for HoldingChunk<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + Unpin + 'static> HoldingBody<T> {
    /// `stall` is set for HTTP/2, where a stream can stall while others on its connection move, so that the connection's
    /// timeouts do not notice.
    pub fn wrap_body(body: Body, value: T, stall: Option<StallLimit>) -> Body {
        let stall = stall.filter(|_| !body.is_end_stream());
        let answer = HoldingBody::new(body, value);
        match stall {
            Some(stall) => Body::new(WatchedBody::start_watch(answer, stall)),
            None => Body::new(answer),
        }
    }

    fn new(body: Body, value: T) -> Self {
        let resources = Some(Arc::new(HeldResources { _value: value, watch: OnceLock::new() }));
        HoldingBody { body, rest: Bytes::new(), resources }
    }
}

impl<T: Send + Sync + Unpin + 'static> HttpBody for HoldingBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
        let length = self.rest.len().min(CHUNK_BYTES);
        let chunk = HoldingChunk { bytes: self.rest.split_to(length), _resources: self.resources.clone() };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(chunk)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// How long an answer may stall, and the connection that is closed then.
pub(super) struct StallLimit {
    pub timeout: Duration,
    pub connection: Arc<ActiveRequest>,
}

/// A body that is aborted when it is not polled any more, or when its last chunks are not sent.
struct WatchedBody<T> {
    /// The body, and when it was last polled.
    body: Arc<Mutex<(HoldingBody<T>, Instant)>>,
}

impl<T: Send + Sync + Unpin + 'static> WatchedBody<T> {
    fn start_watch(answer: HoldingBody<T>, stall: StallLimit) -> Self {
        let resources = answer.resources.clone();
        let body = Arc::new(Mutex::new((answer, Instant::now())));
        let watch = tokio::spawn(abort_when_stalled(body.clone(), stall)).abort_handle();
        if let Some(resources) = resources {
            let _ = resources.watch.set(watch);
        }
        WatchedBody { body }
    }
}

/// Waits until the answer stalls, then breaks it off and closes its connection.
async fn abort_when_stalled<T>(answer: Arc<Mutex<(HoldingBody<T>, Instant)>>, stall: StallLimit) {
    let mut until = Instant::now() + stall.timeout;
    loop {
        tokio::time::sleep_until(until).await;
        let mut answer = lock_unpoisoned(&answer);
        let (held, polled_at) = &mut *answer;
        until = *polled_at + stall.timeout;
        if until <= Instant::now() {
            // The body ends with an error, so that a truncated file does not look complete.
            let broken = futures_util::stream::once(std::future::ready(Err::<Bytes, _>(io::ErrorKind::TimedOut)));
            let broken = Body::from_stream(broken.map_err(io::Error::from));
            stall.connection.close_connection();
            *held = HoldingBody { body: broken, rest: Bytes::new(), resources: None };
            return;
        }
    }
}

impl<T> Drop for WatchedBody<T> {
    fn drop(&mut self) {
        // Chunks that are not sent yet hold the resources, and the watch task runs until they are.
        let mut answer = lock_unpoisoned(&self.body);
        answer.0.resources = None;
        answer.0.rest = Bytes::new();
        answer.0.body = Body::empty();
    }
}

impl<T: Send + Sync + Unpin + 'static> HttpBody for WatchedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut answer = lock_unpoisoned(&self.body);
        answer.1 = Instant::now();
        let resources = answer.0.resources.clone();
        // Copied, because a stalled stream would otherwise keep the whole buffer that the chunk is a slice of.
        let copied = |frame: Frame<Bytes>| {
            frame.map_data(|data| {
                Bytes::from_owner(HoldingChunk { bytes: Bytes::copy_from_slice(&data), _resources: resources })
            })
        };
        Pin::new(&mut answer.0).poll_frame(cx).map_ok(copied)
    }

    fn is_end_stream(&self) -> bool {
        lock_unpoisoned(&self.body).0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock_unpoisoned(&self.body).0.size_hint()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use http_body_util::BodyExt;

    use super::super::connection_timeouts::ConnectionActivity;
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_given_up_is_broken_and_not_at_its_end() {
        let activity: Arc<ConnectionActivity> = Arc::default();
        let connection = Arc::new(activity.begin_request(true));
        let value = Arc::new(());
        let held = HoldingBody::new(Body::from(vec![0; 2 * CHUNK_BYTES]), value.clone());
        let stall = || StallLimit { timeout: Duration::ZERO, connection: connection.clone() };
        // The watch task never fires: the test aborts the answer itself.
        let watched = WatchedBody::start_watch(held, StallLimit { timeout: Duration::from_hours(1), ..stall() });
        let answer = watched.body.clone();
        let mut body = Body::new(watched);
        assert!(body.frame().await.unwrap().is_ok() && Arc::strong_count(&value) == 2);
        abort_when_stalled(answer, stall()).await;
        assert_eq!(Arc::strong_count(&value), 1, "what it kept is free");
        assert!(!body.is_end_stream(), "a part must not be taken for the whole");
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn what_an_answer_keeps_is_kept_by_its_last_piece() {
        let value = Arc::new(());
        let activity: Arc<ConnectionActivity> = Arc::default();
        let stall = StallLimit { timeout: Duration::from_hours(1), connection: Arc::new(activity.begin_request(true)) };
        let mut body = HoldingBody::wrap_body(Body::from(vec![0; 10]), value.clone(), Some(stall));
        let piece = body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(Arc::strong_count(&value), 2, "the piece has not gone out");
        drop(piece);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
