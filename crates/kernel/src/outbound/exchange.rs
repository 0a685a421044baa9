//! A request, and its response or failure.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{HeaderMap, Method};
use bytes::Bytes;

use super::target::Target;
use crate::base::TenantId;

/// One request. The body is sent in one piece, with its length.
#[derive(Clone, Debug)]
pub struct OutboundRequest {
    pub method: Method,
    pub target: Target,
    /// Sent as they are, except headers that belong to the connection: see `client.rs`.
    pub headers: HeaderMap,
    pub body: Bytes,
    /// For the whole exchange, from the lookup of the name to the last byte of the response. Waiting for a lookup permit is
    /// not counted.
    pub timeout: Duration,
    /// How many bytes of the response body are read. The rest is dropped with its connection, which is not a failure.
    pub body_max: usize,
    /// The tenant on whose behalf the request is sent; it limits concurrent lookups.
    pub tenant: Option<TenantId>,
}

/// A response of any status. A redirect is a response like any other and is not followed.
#[derive(Clone, Debug)]
pub struct OutboundResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// The address of the server.
    pub address: SocketAddr,
    pub timings: OutboundTimings,
}

/// Why there is no complete response, and what is known of the attempt.
#[derive(Clone, Debug)]
pub struct Failure {
    pub kind: FailureKind,
    pub detail: String,
    /// Whether the request had a connection: without one, nothing of it was sent.
    pub was_connected: bool,
    /// The address of the server, if a connection was tried.
    pub address: Option<SocketAddr>,
    /// The status, if the head of the response arrived.
    pub status: Option<u16>,
    /// The headers, if the head of the response arrived.
    pub headers: HeaderMap,
    /// The part of the body that arrived.
    pub body: Vec<u8>,
    pub timings: OutboundTimings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The target is, or resolves to, an address that may not be called. Nothing was sent.
    NotAllowed,
    /// The name has no address, or its lookup failed.
    Name,
    Connect,
    /// The server's certificate is not trusted, or there is no common version or cipher of TLS.
    Tls,
    Timeout,
    /// The connection was reset or closed too early, or the response is not HTTP.
    Broken,
    /// Nothing was sent, because too many lookups of this tenant were under way. The request can be retried at once.
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

/// How long each phase took. The first three are `None` when a connection was reused, or the phase was not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboundTimings {
    pub resolve_ms: Option<i64>,
    pub connect_ms: Option<i64>,
    pub tls_ms: Option<i64>,
    /// From the start to the head of the response.
    pub first_byte_ms: Option<i64>,
    pub total_ms: i64,
}
