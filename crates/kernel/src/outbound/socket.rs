//! A connection to a checked address, plain or encrypted, and the state of its request.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use crate::base::{TenantId, lock_unpoisoned};

tokio::task_local! {
    /// The progress of the current request. hyper's client gives the connector only the URI, and it needs the deadline too.
    pub(super) static PROGRESS: RequestProgress;
}

/// The connector's view of one request: its deadline, its tenant and its progress.
#[derive(Clone)]
pub(super) struct RequestProgress {
    until: Instant,
    pub tenant: Option<TenantId>,
    state: Arc<Mutex<ProgressState>>,
}

/// The state so far, for the report of a request that times out.
#[derive(Clone, Copy, Default)]
pub(super) struct ProgressState {
    pub address: Option<SocketAddr>,
    pub resolved: Option<Duration>,
    pub connected: Option<Duration>,
    pub encrypted: Option<Duration>,
    /// How long the request was held back before, and since when it is held back now.
    held: Duration,
    held_since: Option<Instant>,
    /// Whether the request has a connection.
    has_connection: bool,
}

impl ProgressState {
    fn end_hold(&mut self) {
        if let Some(since) = self.held_since.take() {
            self.held += since.elapsed();
        }
    }
}

impl RequestProgress {
    pub fn new(until: Instant, tenant: Option<TenantId>) -> Self {
        RequestProgress { until, tenant, state: Arc::default() }
    }

    /// The deadline so far. It moves while the request is held back.
    pub fn deadline(&self) -> Instant {
        self.until + self.held_duration()
    }

    pub fn held_duration(&self) -> Duration {
        let state = self.lock_state();
        state.held + state.held_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Holds the request back until the guard is dropped or the request has a connection.
    pub fn hold_back(&self) -> HoldGuard<'_> {
        let mut state = self.lock_state();
        if !state.has_connection {
            state.held_since = Some(Instant::now());
        }
        HoldGuard(self)
    }

    /// Marks that the request has a connection. It may be another one than was being opened for it, which the client then
    /// opens for the next request; waiting for that must not extend this request's deadline.
    pub fn mark_connected(&self) {
        let mut state = self.lock_state();
        state.end_hold();
        state.has_connection = true;
    }

    /// The output of the future, or `None` after the deadline, which may move meanwhile.
    pub async fn run_in_time<F: Future>(&self, future: F) -> Option<F::Output> {
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

    pub fn lock_state(&self) -> MutexGuard<'_, ProgressState> {
        lock_unpoisoned(&self.state)
    }
}

/// Holds a request back until it is dropped.
pub(super) struct HoldGuard<'a>(&'a RequestProgress);

impl Drop for HoldGuard<'_> {
    fn drop(&mut self) {
        self.0.lock_state().end_hold();
    }
}

/// A handle to a connection, attached to it and to each of its responses.
#[derive(Clone)]
pub(super) struct ConnectionHandle {
    pub address: SocketAddr,
    opened_by: RequestProgress,
    end: Arc<Mutex<ConnectionEnd>>,
}

/// Lets another task close the connection.
#[derive(Default)]
struct ConnectionEnd {
    hung_up: bool,
    /// Whether part of a request is not written yet.
    unwritten: bool,
    task: Option<Waker>,
}

impl ConnectionHandle {
    pub fn new(address: SocketAddr, opened_by: RequestProgress) -> Self {
        ConnectionHandle { address, opened_by, end: Arc::default() }
    }

    /// Closes the connection at once. hyper's client would first finish writing, and the server may never read that.
    pub fn hang_up(&self) {
        let mut end = self.lock_end();
        end.hung_up = true;
        if let Some(task) = end.task.take() {
            task.wake();
        }
    }

    /// Whether part of a request is not written yet. After its response the server may never read it, and until then the
    /// connection cannot be reused.
    pub fn is_unwritten(&self) -> bool {
        self.lock_end().unwritten
    }

    /// Fails if the connection was closed. Registers the task to be woken when that happens.
    fn check_open(&self, cx: &Context<'_>) -> io::Result<()> {
        let mut end = self.lock_end();
        if end.hung_up {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !end.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            end.task = Some(cx.waker().clone());
        }
        Ok(())
    }

    fn lock_end(&self) -> MutexGuard<'_, ConnectionEnd> {
        lock_unpoisoned(&self.end)
    }

    /// Whether the connection was opened for this request, and not reused from an earlier one.
    pub fn was_opened_by(&self, progress: &RequestProgress) -> bool {
        Arc::ptr_eq(&self.opened_by.state, &progress.state)
    }
}

pub(super) enum SocketStream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// The connection that the connector gives to hyper's client.
pub(super) struct Socket {
    pub stream: SocketStream,
    pub handle: ConnectionHandle,
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.handle.clone())
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.handle.check_open(cx)?;
        match &mut self.stream {
            SocketStream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            SocketStream::Encrypted(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.handle.check_open(cx)?;
        let written = match &mut self.stream {
            SocketStream::Plain(stream) => Pin::new(stream).poll_write(cx, buffer),
            SocketStream::Encrypted(stream) => Pin::new(stream).poll_write(cx, buffer),
        };
        if !matches!(written, Poll::Ready(Ok(count)) if count == buffer.len()) {
            self.handle.lock_end().unwritten = true;
        }
        written
    }

    /// The client flushes after it has written the whole request.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.check_open(cx)?;
        let flushed = match &mut self.stream {
            SocketStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            SocketStream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.handle.lock_end().unwritten = flushed.is_pending();
        flushed
    }

    /// A shutdown that would block is skipped, because nothing waits for it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = match &mut self.stream {
            SocketStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketStream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        };
        if closed.is_pending() { Poll::Ready(Ok(())) } else { closed }
    }
}
