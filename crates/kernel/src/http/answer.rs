//! Answers on their way out: what they hold is released with their last byte, and one that stands still is given up.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::TryStreamExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::patience::UnderWay;

/// Handed over in pieces of this size, so that the end of an answer is not taken before its beginning has gone out.
const PIECE_BYTES: usize = 16 * 1024;

/// A body that keeps something until its last byte has left this process: each piece of it keeps it too, for a stream of HTTP/2
/// takes a piece when its client has asked for a single byte of it.
pub(super) struct Held<T> {
    body: Body,
    rest: Bytes,
    kept: Option<Arc<Kept<T>>>,
}

/// What is kept, and the watch over the answer, which ends with it.
struct Kept<T> {
    _kept: T,
    watch: OnceLock<AbortHandle>,
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get() {
            watch.abort();
        }
    }
}

/// A piece of an answer, with what the answer keeps.
struct HeldPiece<T> {
    bytes: Bytes,
    _kept: Option<Arc<Kept<T>>>,
}

impl<T> AsRef<[u8]> for HeldPiece<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + Unpin + 'static> Held<T> {
    /// `stall` is for where the connection cannot tell that nothing is asked for: a stream of HTTP/2 can stand still
    /// while others move.
    pub fn body(body: Body, kept: T, stall: Option<Stall>) -> Body {
        let stall = stall.filter(|_| !body.is_end_stream());
        let answer = Held::new(body, kept);
        match stall {
            Some(stall) => Body::new(Watched::start(answer, stall)),
            None => Body::new(answer),
        }
    }

    fn new(body: Body, kept: T) -> Self {
        let kept = Some(Arc::new(Kept { _kept: kept, watch: OnceLock::new() }));
        Held { body, rest: Bytes::new(), kept }
    }
}

impl<T: Send + Sync + Unpin + 'static> HttpBody for Held<T> {
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
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = HeldPiece { bytes: self.rest.split_to(length), _kept: self.kept.clone() };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
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

/// How long a client may ask for nothing of an answer, and the connection that ends then.
pub(super) struct Stall {
    pub longest: Duration,
    pub connection: Arc<UnderWay>,
}

/// An answer that is given up when nothing of it is asked for any more, or its last pieces are not taken.
struct Watched<T> {
    /// With when something of it was last asked for.
    answer: Arc<Mutex<(Held<T>, Instant)>>,
}

impl<T: Send + Sync + Unpin + 'static> Watched<T> {
    fn start(answer: Held<T>, stall: Stall) -> Self {
        let kept = answer.kept.clone();
        let answer = Arc::new(Mutex::new((answer, Instant::now())));
        let watch = tokio::spawn(give_up(answer.clone(), stall)).abort_handle();
        if let Some(kept) = kept {
            let _ = kept.watch.set(watch);
        }
        Watched { answer }
    }
}

impl<T> Watched<T> {
    fn answer(&self) -> MutexGuard<'_, (Held<T>, Instant)> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives an answer up of which nothing is taken any more, and its connection with it.
async fn give_up<T>(answer: Arc<Mutex<(Held<T>, Instant)>>, stall: Stall) {
    let mut until = Instant::now() + stall.longest;
    loop {
        tokio::time::sleep_until(until).await;
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        let (held, asked_at) = &mut *answer;
        until = *asked_at + stall.longest;
        if until <= Instant::now() {
            // Broken, and not at its end: a file that is cut short must not look whole.
            let broken = futures_util::stream::once(std::future::ready(Err::<Bytes, _>(io::ErrorKind::TimedOut)));
            let broken = Body::from_stream(broken.map_err(io::Error::from));
            stall.connection.end();
            *held = Held { body: broken, rest: Bytes::new(), kept: None };
            return;
        }
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        // The pieces that are on their way keep what they need, and the watch goes on until they have gone.
        let mut answer = self.answer();
        answer.0.kept = None;
        answer.0.rest = Bytes::new();
        answer.0.body = Body::empty();
    }
}

impl<T: Send + Sync + Unpin + 'static> HttpBody for Watched<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut answer = self.answer();
        answer.1 = Instant::now();
        let kept = answer.0.kept.clone();
        // Copied: a stream can keep a piece for as long as it likes, and with it all that it is a piece of.
        let copied = |frame: Frame<Bytes>| {
            frame.map_data(|data| Bytes::from_owner(HeldPiece { bytes: Bytes::copy_from_slice(&data), _kept: kept }))
        };
        Pin::new(&mut answer.0).poll_frame(cx).map_ok(copied)
    }

    fn is_end_stream(&self) -> bool {
        self.answer().0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer().0.size_hint()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use http_body_util::BodyExt;

    use super::super::patience::Pulse;
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_given_up_is_broken_and_not_at_its_end() {
        let pulse: Arc<Pulse> = Arc::default();
        let connection = Arc::new(pulse.begin(true));
        let kept = Arc::new(());
        let held = Held::new(Body::from(vec![0; 2 * PIECE_BYTES]), kept.clone());
        let stall = || Stall { longest: Duration::ZERO, connection: connection.clone() };
        // Watched for so long that it is this test that gives it up.
        let watched = Watched::start(held, Stall { longest: Duration::from_hours(1), ..stall() });
        let answer = watched.answer.clone();
        let mut body = Body::new(watched);
        assert!(body.frame().await.unwrap().is_ok() && Arc::strong_count(&kept) == 2);
        give_up(answer, stall()).await;
        assert_eq!(Arc::strong_count(&kept), 1, "what it kept is free");
        assert!(!body.is_end_stream(), "a part must not be taken for the whole");
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn what_an_answer_keeps_is_kept_by_its_last_piece() {
        let kept = Arc::new(());
        let pulse: Arc<Pulse> = Arc::default();
        let stall = Stall { longest: Duration::from_hours(1), connection: Arc::new(pulse.begin(true)) };
        let mut body = Held::body(Body::from(vec![0; 10]), kept.clone(), Some(stall));
        let piece = body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(Arc::strong_count(&kept), 2, "the piece has not gone out");
        drop(piece);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
