//! A connection to a checked address, plain or encrypted, and what is known of it.

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
    /// The request that is under way. The connector learns only the host from the client, and needs the deadline too.
    pub(super) static PROGRESS: Progress;
}

/// One request from the side of the connector: until when, and what it found out on the way.
#[derive(Clone)]
pub(super) struct Progress {
    until: Instant,
    pub for_whom: Option<TenantId>,
    notes: Arc<Mutex<Notes>>,
}

/// What is known so far; a request that times out tells this much.
#[derive(Clone, Copy, Default)]
pub(super) struct Notes {
    pub address: Option<SocketAddr>,
    pub resolved: Option<Duration>,
    pub connected: Option<Duration>,
    pub encrypted: Option<Duration>,
    /// How long it has been held back by ourselves, and since when it is.
    held: Duration,
    held_since: Option<Instant>,
    /// Whether its request has a connection.
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

    /// Until when, as far as is known: being held back is not counted in.
    pub fn deadline(&self) -> Instant {
        self.until + self.held()
    }

    pub fn held(&self) -> Duration {
        let notes = self.notes();
        notes.held + notes.held_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Holds the request back until what this returns is dropped, or its request has a connection.
    pub fn hold(&self) -> HeldBack<'_> {
        let mut notes = self.notes();
        if !notes.set_off {
            notes.held_since = Some(Instant::now());
        }
        HeldBack(self)
    }

    /// Its request has a connection. That may be another than the one that was being made for it, which the client then
    /// goes on to make for the next request: what that waits for gives this one no more time.
    pub fn set_off(&self) {
        let mut notes = self.notes();
        notes.end_hold();
        notes.set_off = true;
    }

    /// What comes of it before the deadline, wherever that moves meanwhile.
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

/// A request that is held back.
pub(super) struct HeldBack<'a>(&'a Progress);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.notes().end_hold();
    }
}

/// Goes with a connection for as long as it lives, and from it to every answer.
#[derive(Clone)]
pub(super) struct Tether {
    pub address: SocketAddr,
    opened_by: Progress,
    end: Arc<Mutex<End>>,
}

/// How a connection is ended from outside of the task that runs it.
#[derive(Default)]
struct End {
    hung_up: bool,
    /// Whether the other side has yet to take something of a request.
    unwritten: bool,
    task: Option<Waker>,
}

impl Tether {
    pub fn new(address: SocketAddr, opened_by: Progress) -> Self {
        Tether { address, opened_by, end: Arc::default() }
    }

    /// Ends the connection at once. The client would first write out what it has begun, and the other side can take for
    /// ever to read it.
    pub fn hang_up(&self) {
        let mut end = self.end();
        end.hung_up = true;
        if let Some(task) = end.task.take() {
            task.wake();
        }
    }

    /// Whether the other side has yet to take something of a request. After its answer it may never do so; and until it
    /// does, the connection serves no other.
    pub fn is_unwritten(&self) -> bool {
        self.end().unwritten
    }

    /// Whether to go on. The task is told when that changes.
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

    /// Whether the connection was made for this request, or for an earlier one and used again.
    pub fn is_of(&self, progress: &Progress) -> bool {
        Arc::ptr_eq(&self.opened_by.notes, &progress.notes)
    }
}

pub(super) enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// What the connector hands to the client.
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

    /// The client flushes when it has handed over all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tether.check(cx)?;
        let flushed = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.tether.end().unwritten = flushed.is_pending();
        flushed
    }

    /// A farewell that is not taken at once is left out: nobody waits for it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        };
        if closed.is_pending() { Poll::Ready(Ok(())) } else { closed }
    }
}
