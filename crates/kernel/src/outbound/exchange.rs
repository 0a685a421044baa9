//! What goes out and what comes back: one request, one answer or one failure.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{HeaderMap, Method};
use bytes::Bytes;

use super::target::Target;
use crate::base::TenantId;

/// One request. The body is sent whole, with its length.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub target: Target,
    /// Sent as they are, but for those that belong to the connection and not to the sender: see `client.rs`.
    pub headers: HeaderMap,
    pub body: Bytes,
    /// For the whole exchange, from asking for the name to the last byte of the answer. Waiting for a turn to ask is not
    /// counted in.
    pub timeout: Duration,
    /// How much of the answer is read. The rest is dropped with its connection, which is not a failure.
    pub body_max: usize,
    /// The tenant on whose behalf: each may have only so many names looked up at once.
    pub for_whom: Option<TenantId>,
}

/// An answer, whatever its status. A redirect is an answer like any other and is not followed.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// Who answered.
    pub address: SocketAddr,
    pub timings: Timings,
}

/// Why there is no whole answer, and what is known of the attempt.
#[derive(Clone, Debug)]
pub struct Failure {
    pub kind: FailureKind,
    pub detail: String,
    /// Who was called, if it came to that.
    pub address: Option<SocketAddr>,
    /// When the head of the answer came, but its body did not.
    pub status: Option<u16>,
    /// Those of that head.
    pub headers: HeaderMap,
    /// What came of the body.
    pub body: Vec<u8>,
    pub timings: Timings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The target is, or resolves to, an address that may not be called. Nothing was sent.
    NotAllowed,
    /// The name has no address, or nobody answers for it.
    Name,
    Connect,
    /// The other side could not prove who it is, or speaks no TLS that we speak.
    Tls,
    Timeout,
    /// The connection was reset or closed too soon, or what came is not HTTP.
    Broken,
    /// Nobody was asked for anything: too many names of this tenant were being looked up. It can be tried again at once.
    HeldBack,
}

impl FailureKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureKind::NotAllowed => "target_not_allowed",
            FailureKind::Name => "name_not_resolved",
            FailureKind::Connect => "connect_failed",
            FailureKind::Tls => "tls_failed",
            FailureKind::Timeout => "timeout",
            FailureKind::Broken => "connection_broken",
            FailureKind::HeldBack => "held_back",
        }
    }
}

/// How long what took. The first three are missing when a connection was used again, or when it did not come to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    pub resolve_ms: Option<i64>,
    pub connect_ms: Option<i64>,
    pub tls_ms: Option<i64>,
    /// From the start to the head of the answer.
    pub first_byte_ms: Option<i64>,
    pub total_ms: i64,
}
