//! A connection to a checked address, plain or encrypted, and the state of its request.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use crate::base::TenantId;

tokio::task_local! {
    /// The progress of the current request. hyper's client gives the connector only the URI, and it needs the deadline too.
    pub(super) static PROGRESS: Progress;
}

/// The connector's view of one request: its deadline, its tenant and its progress.
#[derive(Clone)]
pub(super) struct Progress {
    until: Instant,
    pub for_whom: Option<TenantId>,
    notes: Arc<Mutex<Notes>>,
}

/// What is known so far, for the report of a request that times out.
#[derive(Clone, Copy, Default)]
pub(super) struct Notes {
    pub address: Option<SocketAddr>,
    pub resolved: Option<Duration>,
    pub connected: Option<Duration>,
    pub encrypted: Option<Duration>,
    /// How long the request was held back before, and since when it is held back now.
    held: Duration,
    held_since: Option<Instant>,
    /// Whether the request has a connection.
    set_off: bool,
}

impl Notes {
    fn end_hold(&mut self) {
        if let Some(since) = self.held_since.take() {
            self.held += since.elapsed();
        }
    }
}

impl Progress {
    pub fn new(until: Instant, for_whom: Option<TenantId>) -> Self {
        Progress { until, for_whom, notes: Arc::default() }
    }

    /// The deadline so far. It moves while the request is held back.
    pub fn deadline(&self) -> Instant {
        self.until + self.held()
    }

    pub fn held(&self) -> Duration {
        let notes = self.notes();
        notes.held + notes.held_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Holds the request back until the guard is dropped or the request has a connection.
    pub fn hold(&self) -> HeldBack<'_> {
        let mut notes = self.notes();
        if !notes.set_off {
            notes.held_since = Some(Instant::now());
        }
        HeldBack(self)
    }

    /// Marks that the request has a connection. It may be another one than was being opened for it, which the client then
    /// opens for the next request; waiting for that must not extend this request's deadline.
    pub fn set_off(&self) {
        let mut notes = self.notes();
        notes.end_hold();
        notes.set_off = true;
    }

    /// The output of the future, or `None` after the deadline, which may move meanwhile.
    pub async fn in_time<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        loop {
            let deadline = self.deadline();
            match timeout_at(deadline, &mut future).await {
                Ok(output) => return Some(output),
                Err(_) if self.deadline() > deadline => {}
                Err(_) => return None,
            }
        }
    }

    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a request back until it is dropped.
pub(super) struct HeldBack<'a>(&'a Progress);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.notes().end_hold();
    }
}

/// A handle to a connection, attached to it and to each of its responses.
#[derive(Clone)]
pub(super) struct Tether {
    pub address: SocketAddr,
    opened_by: Progress,
    end: Arc<Mutex<End>>,
}

/// Lets another task close the connection.
#[derive(Default)]
struct End {
    hung_up: bool,
    /// Whether part of a request is not written yet.
    unwritten: bool,
    task: Option<Waker>,
}

impl Tether {
    pub fn new(address: SocketAddr, opened_by: Progress) -> Self {
        Tether { address, opened_by, end: Arc::default() }
    }

    /// Closes the connection at once. hyper's client would first finish writing, and the server may never read that.
    pub fn hang_up(&self) {
        let mut end = self.end();
        end.hung_up = true;
        if let Some(task) = end.task.take() {
            task.wake();
        }
    }

    /// Whether part of a request is not written yet. After its response the server may never read it, and until then the
    /// connection cannot be reused.
    pub fn is_unwritten(&self) -> bool {
        self.end().unwritten
    }

    /// Fails if the connection was closed. Registers the task to be woken when that happens.
    fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        let mut end = self.end();
        if end.hung_up {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !end.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            end.task = Some(cx.waker().clone());
        }
        Ok(())
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection was opened for this request, and not reused from an earlier one.
    pub fn is_of(&self, progress: &Progress) -> bool {
        Arc::ptr_eq(&self.opened_by.notes, &progress.notes)
    }
}

pub(super) enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// The connection that the connector gives to hyper's client.
pub(super) struct Socket {
    pub stream: Stream,
    pub tether: Tether,
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.tether.clone())
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.tether.check(cx)?;
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.tether.check(cx)?;
        let written = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(cx, buffer),
        };
        if !matches!(written, Poll::Ready(Ok(count)) if count == buffer.len()) {
            self.tether.end().unwritten = true;
        }
        written
    }

    /// The client flushes after it has written the whole request.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tether.check(cx)?;
        let flushed = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.tether.end().unwritten = flushed.is_pending();
        flushed
    }

    /// A shutdown that would block is skipped, because nothing waits for it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        };
        if closed.is_pending() { Poll::Ready(Ok(())) } else { closed }
    }
}
