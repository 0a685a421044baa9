//! Timeouts of a connection that moves no bytes, for reading and for writing.
//!
//! They work on the byte stream below TLS and HTTP. Three times are bounded: until a request's head has arrived, between
//! requests, and while the client does not take an answer. While a handler runs, no timeout applies here: it has its own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A client that takes fewer bytes a second loses stall time, of which it has [`ConnectionTimeouts::stall`] in all.
const BYTES_PER_SECOND_MIN: u32 = 16 * 1024;

/// How long the server waits for a client.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    /// For a whole request head, including the TLS handshake of a new connection.
    pub head: Duration,
    /// For the next request on an open connection. Longer than load balancers keep idle connections.
    pub idle: Duration,
    /// For a client that takes nothing of its answer.
    pub stall: Duration,
}

/// What the HTTP service of a connection reports to its byte stream.
#[derive(Default)]
pub(super) struct ConnectionActivity {
    requests_begun: AtomicUsize,
    requests_active: AtomicUsize,
    http2: AtomicBool,
    /// Set to close the connection because an answer has stalled.
    closed: AtomicBool,
    /// The task of the connection, to wake it while it waits for bytes without a timer.
    connection_task: AtomicWaker,
}

impl ConnectionActivity {
    /// Counts a request, which is active until the returned value is dropped.
    pub fn begin_request(self: &Arc<Self>, http2: bool) -> ActiveRequest {
        self.requests_begun.fetch_add(1, Ordering::Relaxed);
        self.requests_active.fetch_add(1, Ordering::Relaxed);
        self.http2.store(http2, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }
}

/// A request of a connection, until the last byte of its answer is handed to the connection.
pub(super) struct ActiveRequest(Arc<ConnectionActivity>);

impl ActiveRequest {
    /// Closes the request's connection.
    pub fn close_connection(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.0.connection_task.wake();
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        // The idle timeout starts here.
        if self.0.requests_active.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.connection_task.wake();
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum ConnectionPhase {
    /// Waiting for a request's head or the TLS handshake, until this time.
    Head(Instant),
    Serving,
    /// Waiting for the first byte of the next request, until this time.
    Idle(Instant),
}

/// A stream that fails when its client exceeds a timeout.
pub(super) struct TimeoutStream<S> {
    stream: S,
    timeouts: ConnectionTimeouts,
    activity: Arc<ConnectionActivity>,
    phase: ConnectionPhase,
    /// The number of requests at the last update of the phase.
    requests_seen: usize,
    read_timer: Pin<Box<Sleep>>,
    write_timer: Pin<Box<Sleep>>,
    /// How long the client may still take nothing, and since when it has taken nothing.
    stall_left: Duration,
    blocked_since: Option<Instant>,
}

impl<S> TimeoutStream<S> {
    pub fn new(stream: S, timeouts: ConnectionTimeouts, activity: Arc<ConnectionActivity>) -> Self {
        let by = Instant::now() + timeouts.head;
        TimeoutStream {
            stream,
            timeouts,
            activity,
            phase: ConnectionPhase::Head(by),
            requests_seen: 0,
            read_timer: Box::pin(tokio::time::sleep_until(by)),
            write_timer: Box::pin(tokio::time::sleep_until(by)),
            stall_left: timeouts.stall,
            blocked_since: None,
        }
    }

    /// Updates the phase from the connection's activity, when a read would block.
    fn update_phase(&mut self) -> ConnectionPhase {
        let begun = self.activity.requests_begun.load(Ordering::Relaxed);
        let has_new_request = std::mem::replace(&mut self.requests_seen, begun) != begun;
        if self.activity.requests_active.load(Ordering::Relaxed) > 0 {
            self.phase = ConnectionPhase::Serving;
        } else if has_new_request || self.phase == ConnectionPhase::Serving {
            self.phase = ConnectionPhase::Idle(Instant::now() + self.timeouts.idle);
        }
        self.phase
    }

    fn start_head_phase(&mut self) {
        // HTTP/2 also sends answers to our pings, which must not keep an idle connection open.
        if matches!(self.update_phase(), ConnectionPhase::Idle(_)) && !self.activity.http2.load(Ordering::Relaxed) {
            self.phase = ConnectionPhase::Head(Instant::now() + self.timeouts.head);
        }
    }

    /// Subtracts the time that the client took nothing, and adds time for the bytes it took.
    fn credit_written(&mut self, bytes: usize) {
        if let Some(since) = self.blocked_since.take() {
            self.stall_left = self.stall_left.saturating_sub(since.elapsed());
        }
        let credit = Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX) / BYTES_PER_SECOND_MIN;
        self.stall_left = (self.stall_left + credit).min(self.timeouts.stall);
    }

    /// The result of a write that would block: pending, or an error once the stall time is used up.
    fn poll_stalled<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let since = *self.blocked_since.get_or_insert_with(Instant::now);
        ready!(poll_deadline(&mut self.write_timer, since + self.stall_left, cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take its answer")))
    }

    fn poll_written(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.poll_stalled(cx),
            Poll::Ready(Ok(bytes)) => {
                self.credit_written(bytes);
                Poll::Ready(Ok(bytes))
            }
            failed @ Poll::Ready(Err(_)) => failed,
        }
    }
}

fn poll_deadline(timer: &mut Pin<Box<Sleep>>, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
    if timer.deadline() != at {
        timer.as_mut().reset(at);
    }
    timer.as_mut().poll(cx)
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
            if buffer.filled().len() > before {
                this.start_head_phase();
            }
            // The task is awake, and registers again before it next waits.
            this.activity.connection_task.take();
            return Poll::Ready(read);
        }
        // Registered before the check, so that a close in between is not missed.
        this.activity.connection_task.register(cx.waker());
        if this.activity.closed.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take its answer")));
        }
        match this.update_phase() {
            ConnectionPhase::Serving => Poll::Pending,
            ConnectionPhase::Head(by) => {
                ready!(poll_deadline(&mut this.read_timer, by, cx));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request came in time")))
            }
            ConnectionPhase::Idle(by) => {
                ready!(poll_deadline(&mut this.read_timer, by, cx));
                // End of file, as if the client had closed the connection: no answer is due.
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.poll_written(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.poll_written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        if self.activity.requests_active.load(Ordering::Relaxed) == 0 {
            self.stall_left = self.timeouts.stall;
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const STALL: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    /// A connection with an answer under way and its client, with a buffer of `bytes` between them.
    struct Line {
        stream: TimeoutStream<DuplexStream>,
        client: DuplexStream,
        bytes: usize,
        _active_request: ActiveRequest,
    }

    impl Line {
        fn with_room_for(bytes: usize) -> Line {
            let (stream, client) = duplex(bytes);
            let activity: Arc<ConnectionActivity> = Arc::default();
            let active_request = activity.begin_request(false);
            let timeouts = ConnectionTimeouts { head: STALL, idle: STALL, stall: STALL };
            Line {
                stream: TimeoutStream::new(stream, timeouts, activity),
                client,
                bytes,
                _active_request: active_request,
            }
        }

        /// Sends as much as the buffer takes; `None` when it is full.
        fn send_answer(&mut self) -> Option<io::Result<usize>> {
            let answer = vec![0; self.bytes];
            self.stream.write(&answer).now_or_never()
        }

        /// Whether the connection is cut when the client takes nothing for this long. The test does not wait: it moves the
        /// start of the stall back.
        fn is_cut_after(&mut self, time: Duration) -> bool {
            while let Some(Ok(_)) = self.send_answer() {}
            self.stream.blocked_since = self.stream.blocked_since.map(|since| since - time);
            let sent = self.send_answer();
            let cut = matches!(&sent, Some(Err(error)) if error.kind() == io::ErrorKind::TimedOut);
            assert!(cut || sent.is_none(), "{sent:?}");
            cut
        }

        /// After how many seconds the connection is cut, if the client empties the buffer once a second.
        async fn seconds_until_cut(&mut self, seconds_max: usize) -> Option<usize> {
            let mut taken = vec![0; self.bytes];
            for second in 1..=seconds_max {
                if self.is_cut_after(SECOND) {
                    return Some(second);
                }
                self.client.read_exact(&mut taken).await.unwrap();
                assert_eq!(self.send_answer().unwrap().unwrap(), self.bytes, "there is room again");
                // Keeps tokio's cooperative budget from being used up.
                tokio::task::yield_now().await;
            }
            None
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up_when_its_time_is_over() {
        assert!(!Line::with_room_for(1024).is_cut_after(STALL.saturating_sub(SECOND)));
        assert!(Line::with_room_for(1024).is_cut_after(STALL + 10 * SECOND));
    }

    #[tokio::test]
    async fn a_client_that_takes_too_little_is_given_up_although_it_never_stands_still() {
        // At half of the minimum rate, half of each second is lost.
        let half = Line::with_room_for(8 * 1024).seconds_until_cut(300).await;
        assert!(half.is_some_and(|seconds| (55..=65).contains(&seconds)), "{half:?}");
        let drops = Line::with_room_for(1).seconds_until_cut(300).await;
        assert!(drops.is_some_and(|seconds| (29..=35).contains(&seconds)), "{drops:?}");
    }

    #[tokio::test]
    async fn a_client_that_takes_enough_is_waited_for_and_saves_up_no_time() {
        let enough = BYTES_PER_SECOND_MIN as usize;
        assert_eq!(Line::with_room_for(enough).seconds_until_cut(300).await, None);
        let mut fast = Line::with_room_for(16 * enough);
        assert_eq!(fast.seconds_until_cut(40).await, None);
        assert!(!fast.is_cut_after(STALL.saturating_sub(SECOND)));
        assert!(fast.is_cut_after(11 * SECOND), "40 seconds in all");
    }
}
