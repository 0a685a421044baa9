//! Answers on their way out. A request is under way until the last byte of its answer is handed to the connection, and
//! large answers that wait for their clients are bounded in bytes, for each client and in all.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::TryStreamExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::patience::UnderWay;
use super::payer::Payer;

/// Handed over in pieces of this size, so that the end of an answer is not taken before its beginning has gone out.
const PIECE_BYTES: usize = 16 * 1024;

/// An answer up to this size is not counted: it fits into what the connection holds anyway.
const SMALL_BYTES: usize = 64 * 1024;

/// How large the body of an answer is before it is compressed.
#[derive(Clone, Copy)]
pub(super) struct AnswerBytes(pub usize);

impl AnswerBytes {
    /// To be noted with an answer; none if it is too small to be counted.
    pub fn of(body: &[u8]) -> Option<Self> {
        (body.len() > SMALL_BYTES).then_some(AnswerBytes(body.len()))
    }
}

/// A body that keeps something until its last byte is taken.
pub(super) struct Held<T> {
    body: Body,
    rest: Bytes,
    _kept: Option<T>,
}

impl<T: Send + Unpin + 'static> Held<T> {
    /// `stall` is for where the connection cannot tell that nothing is asked for: a stream of HTTP/2 can stand still
    /// while others move.
    pub fn body(body: Body, held: T, stall: Option<Stall>) -> Body {
        let stall = stall.filter(|_| !body.is_end_stream());
        let answer = Held { body, rest: Bytes::new(), _kept: Some(held) };
        match stall {
            Some(stall) => Body::new(Watched::start(answer, stall)),
            None => Body::new(answer),
        }
    }
}

impl<T: Unpin> HttpBody for Held<T> {
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
        let piece = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
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

/// An answer that is let go when nothing of it is asked for any more.
struct Watched<T> {
    /// With when something of it was last asked for.
    answer: Arc<Mutex<(Held<T>, Instant)>>,
    watch: AbortHandle,
}

impl<T: Send + Unpin + 'static> Watched<T> {
    fn start(answer: Held<T>, stall: Stall) -> Self {
        let answer = Arc::new(Mutex::new((answer, Instant::now())));
        let watch = tokio::spawn(give_up(answer.clone(), stall)).abort_handle();
        Watched { answer, watch }
    }
}

impl<T> Watched<T> {
    fn answer(&self) -> MutexGuard<'_, (Held<T>, Instant)> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets an answer go of which nothing is taken any more, and its connection with it.
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
            *held = Held { body: broken, rest: Bytes::new(), _kept: None };
            return stall.connection.end();
        }
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl<T: Unpin> HttpBody for Watched<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut answer = self.answer();
        answer.1 = Instant::now();
        // Copied: a stream can keep a piece for as long as it likes, and with it all that it is a piece of.
        let copied = |frame: Frame<Bytes>| frame.map_data(|data| Bytes::copy_from_slice(&data));
        Pin::new(&mut answer.0).poll_frame(cx).map_ok(copied)
    }

    fn is_end_stream(&self) -> bool {
        self.answer().0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer().0.size_hint()
    }
}

/// The bytes of large answers that clients have yet to take.
#[derive(Clone, Default)]
pub(super) struct Unsent(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    total: usize,
    by_payer: HashMap<Payer, usize>,
    by_credential: HashMap<Arc<str>, usize>,
}

/// What may be unsent.
#[derive(Clone, Copy, Debug)]
pub struct UnsentMax {
    /// Of one tenant, or of one address that is nobody's. One credential of a tenant may have half of it: who reads nothing
    /// with one key keeps no other key from its answers.
    pub per_payer_bytes: usize,
    pub total_bytes: usize,
}

impl UnsentMax {
    fn per_credential_bytes(self) -> usize {
        self.per_payer_bytes / 2
    }
}

/// Whose an answer is.
#[derive(Clone, Debug)]
pub(super) struct Taker {
    pub payer: Payer,
    /// Which of the payer's credentials, if it has any.
    pub credential: Option<Arc<str>>,
}

impl Default for UnsentMax {
    fn default() -> Self {
        // Four of the largest answers there are, a ticket with all it may show; or some thirty full pages.
        UnsentMax { per_payer_bytes: 32 * 1024 * 1024, total_bytes: 128 * 1024 * 1024 }
    }
}

impl Unsent {
    /// Whether a client still has to take so much that it is given nothing more. A little before there is no room at all:
    /// else page after page would be made only to find that it is too large for what is left.
    pub fn is_full(&self, taker: &Taker, max: UnsentMax) -> bool {
        let (of_payer, of_credential) = self.counts().of(taker);
        let is_enough = |bytes: usize, max: usize| bytes >= max - max / 16;
        is_enough(of_payer, max.per_payer_bytes) || is_enough(of_credential, max.per_credential_bytes())
    }

    /// Counts an answer until the value is dropped; none if it is small, an error if there is no room. An answer that
    /// tells of a change is counted even where there is no room: what was done must be told.
    pub fn add(&self, taker: Taker, bytes: usize, max: UnsentMax, must: bool) -> Result<Option<Counted>, Full> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let mut counts = self.counts();
        let (of_payer, of_credential) = counts.of(&taker);
        // Whoever has nothing unsent gets its answer, whatever others leave unread.
        let is_payer_full = of_payer + bytes > max.per_payer_bytes || counts.total + bytes > max.total_bytes;
        let is_full = (is_payer_full && of_payer > 0)
            || (of_credential + bytes > max.per_credential_bytes() && of_credential > 0);
        if is_full && !must {
            return Err(Full);
        }
        counts.total += bytes;
        counts.by_payer.insert(taker.payer, of_payer + bytes);
        if let Some(credential) = &taker.credential {
            counts.by_credential.insert(credential.clone(), of_credential + bytes);
        }
        drop(counts);
        Ok(Some(Counted { unsent: self.clone(), taker, bytes }))
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// The bytes of the payer, and those of the credential.
    fn of(&self, taker: &Taker) -> (usize, usize) {
        let of_payer = self.by_payer.get(&taker.payer).copied().unwrap_or(0);
        let credential = taker.credential.as_ref();
        (of_payer, credential.and_then(|credential| self.by_credential.get(credential)).copied().unwrap_or(0))
    }
}

/// There is no room for another answer.
#[derive(Debug)]
pub(super) struct Full;

pub(super) struct Counted {
    unsent: Unsent,
    taker: Taker,
    bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.unsent.counts();
        counts.total -= self.bytes;
        subtract(&mut counts.by_payer, self.taker.payer, self.bytes);
        if let Some(credential) = self.taker.credential.take() {
            subtract(&mut counts.by_credential, credential, self.bytes);
        }
    }
}

/// What nothing is counted for takes no memory.
fn subtract<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K, bytes: usize) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= bytes;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::net::IpAddr;

    use http_body_util::BodyExt;

    use super::super::patience::Pulse;
    use super::*;

    const LARGE: usize = SMALL_BYTES + 1;
    const MAX: UnsentMax = UnsentMax { per_payer_bytes: 2 * LARGE, total_bytes: 3 * LARGE };

    fn payer(number: u8) -> Taker {
        Taker { payer: Payer::Address(IpAddr::from([192, 0, 2, number])), credential: None }
    }

    #[test]
    fn one_payer_may_leave_so_much_unsent_and_has_room_again_when_it_is_taken() {
        let unsent = Unsent::default();
        assert!(unsent.add(payer(1), SMALL_BYTES, MAX, false).unwrap().is_none(), "what is small is not counted");
        let first = unsent.add(payer(1), LARGE, MAX, false).unwrap();
        assert!(!unsent.is_full(&payer(1), MAX));
        let second = unsent.add(payer(1), LARGE, MAX, false).unwrap();
        assert!(unsent.is_full(&payer(1), MAX) && !unsent.is_full(&payer(2), MAX));
        assert!(unsent.add(payer(1), LARGE, MAX, false).is_err());
        let told = unsent.add(payer(1), LARGE, MAX, true).unwrap();
        assert!(told.is_some(), "what was done is told, and counted");
        drop((first, told));
        assert!(!unsent.is_full(&payer(1), MAX));
        let again = unsent.add(payer(1), LARGE, MAX, false).unwrap();
        drop((second, again));
        let counts = unsent.0.lock().unwrap();
        assert_eq!((counts.total, counts.by_payer.len()), (0, 0), "to the byte");
    }

    #[test]
    fn one_credential_may_leave_half_of_it_unsent() {
        let unsent = Unsent::default();
        let max = UnsentMax { per_payer_bytes: 4 * LARGE, total_bytes: 9 * LARGE };
        let key = |name: &str| Taker { credential: Some(name.into()), ..payer(1) };
        let add = |name: &str| unsent.add(key(name), LARGE, max, false);
        let one = [add("one").unwrap(), add("one").unwrap()];
        assert!(add("one").is_err() && unsent.is_full(&key("one"), max));
        assert!(!unsent.is_full(&key("other"), max));
        let other = [add("other").unwrap(), add("other").unwrap()];
        assert!(add("third").is_err() && unsent.is_full(&key("third"), max), "all that their tenant may have");
        drop(one);
        assert!(add("third").is_ok() && add("one").is_ok());
        drop(other);
        let counts = unsent.0.lock().unwrap();
        assert_eq!((counts.total, counts.by_payer.len(), counts.by_credential.len()), (0, 0, 0), "to the byte");
    }

    #[test]
    fn all_payers_together_may_leave_so_much_unsent() {
        let unsent = Unsent::default();
        let one = [1, 1].map(|number| unsent.add(payer(number), LARGE, MAX, false).unwrap());
        let other = unsent.add(payer(2), LARGE, MAX, false).unwrap();
        assert!(!unsent.is_full(&payer(2), MAX), "it is not this one that has too much");
        assert!(unsent.add(payer(2), LARGE, MAX, false).is_err());
        let third = unsent.add(payer(3), LARGE, MAX, false).unwrap();
        assert!(third.is_some(), "whoever has nothing unsent gets its answer");
        drop(third);
        assert!(unsent.add(payer(2), LARGE, MAX, false).is_err());
        drop(one);
        assert!(unsent.add(payer(2), LARGE, MAX, false).is_ok());
        drop(other);
    }

    #[tokio::test]
    async fn an_answer_that_is_given_up_is_broken_and_not_at_its_end() {
        let pulse: Arc<Pulse> = Arc::default();
        let connection = Arc::new(pulse.begin(true));
        let kept = Arc::new(());
        let held = Held { body: Body::from(vec![0; LARGE]), rest: Bytes::new(), _kept: Some(kept.clone()) };
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
}
