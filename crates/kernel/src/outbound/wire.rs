//! A connection to a checked address, plain or encrypted, and what is known of it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use crate::base::TenantId;

tokio::task_local! {
    /// The trip that is under way. The connector learns only the host from the client, and needs the deadline too.
    pub(super) static TRIP: Trip;
}

/// One request from the side of the connector: until when, and what it found out on the way.
#[derive(Clone)]
pub(super) struct Trip {
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
}

impl Trip {
    pub fn new(until: Instant, for_whom: Option<TenantId>) -> Self {
        Trip { until, for_whom, notes: Arc::default() }
    }

    /// Until when, as far as is known: being held back is not counted in.
    pub fn deadline(&self) -> Instant {
        self.until + self.held()
    }

    pub fn held(&self) -> Duration {
        let notes = self.notes();
        notes.held + notes.held_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Holds the trip back until what this returns is dropped.
    pub fn hold(&self) -> Held<'_> {
        self.notes().held_since = Some(Instant::now());
        Held(self)
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

/// A trip that is held back.
pub(super) struct Held<'a>(&'a Trip);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut notes = self.0.notes();
        if let Some(since) = notes.held_since.take() {
            notes.held += since.elapsed();
        }
    }
}

/// Goes with a connection for as long as it lives, and from it to every answer.
#[derive(Clone)]
pub(super) struct Line {
    pub address: SocketAddr,
    opened_by: Trip,
}

impl Line {
    pub fn new(address: SocketAddr, opened_by: Trip) -> Self {
        Line { address, opened_by }
    }

    /// Whether the connection was made for this trip, or by an earlier one and used again.
    pub fn is_of(&self, trip: &Trip) -> bool {
        Arc::ptr_eq(&self.opened_by.notes, &trip.notes)
    }
}

pub(super) enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// What the connector hands to the client.
pub(super) struct Wire {
    pub stream: Stream,
    pub line: Line,
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.line.clone())
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(cx, buffer),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
