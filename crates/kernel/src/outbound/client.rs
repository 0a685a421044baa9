//! Sends one request over a connection of the connector and reads its response up to a limit.

use std::error::Error as StdError;
use std::io;
use std::mem::take;
use std::pin::{Pin, pin};
use std::time::Duration;

use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{Extensions, HeaderMap, HeaderValue, Request as HttpRequest, Version};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::connector::{Connector, FailureCause};
use super::exchange::{Failure, FailureKind, OutboundRequest, OutboundResponse, OutboundTimings};
use super::socket::{ConnectionHandle, PROGRESS, ProgressState, RequestProgress};

/// How long a connection stays idle, and how many do for one host: enough for a burst of requests to the same host. A host
/// that is called rarely gets a new connection.
const IDLE_MAX: Duration = Duration::from_secs(15);
const IDLE_PER_HOST_MAX: usize = 16;
/// The limit for the head of a response, and for the read-ahead of its body.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// No exchange may take longer. The limit also keeps the deadline from overflowing.
const TIMEOUT_MAX: Duration = Duration::from_hours(1);

/// Headers that frame a message or belong to one connection. They follow from the target and the body; conflicting values in
/// one request would allow request smuggling.
const CONNECTION_HEADERS: [HeaderName; 9] = [
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    HOST,
    HeaderName::from_static("keep-alive"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

pub(super) struct HttpClient(legacy::Client<Connector, Full<Bytes>>);

impl HttpClient {
    pub fn new(connector: Connector) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_MAX).pool_max_idle_per_host(IDLE_PER_HOST_MAX);
        builder.http1_max_buf_size(BUFFER_BYTES_MAX);
        HttpClient(builder.build(connector))
    }

    pub async fn send_request(&self, request: OutboundRequest) -> Result<OutboundResponse, Failure> {
        let (timeout, body_max) = (request.timeout.min(TIMEOUT_MAX), request.body_max);
        let start = Instant::now();
        let progress = RequestProgress::new(start + timeout, request.tenant);
        let mut outgoing = to_hyper_request(request);
        let captured = capture_connection(&mut outgoing);
        let mut answering = pin!(PROGRESS.scope(progress.clone(), self.0.request(outgoing)));
        // Declared after the request, so that it is dropped first: an abandoned connection is closed before the client can
        // reuse it.
        let mut attempt = RequestAttempt::new(start, timeout, progress, captured);
        let answer = match attempt
            .progress
            .run_in_time(await_response(&attempt.progress, &attempt.captured, answering.as_mut()))
            .await
        {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => return Err(attempt.into_failure(to_failure_cause(&error))),
            None => return Err(attempt.into_timeout()),
        };
        attempt.first_byte = Some(attempt.elapsed());
        let (mut head, body) = answer.into_parts();
        let status = head.status.as_u16();
        attempt.answered_by = head.extensions.remove();
        (attempt.status, attempt.headers, attempt.body_stream) = (Some(status), head.headers, Some(body));
        if let Err(cause) = attempt.read_body(body_max).await {
            return Err(attempt.into_failure(cause));
        }
        let Some(address) = attempt.find_connection().map(|connection| connection.address) else {
            return Err(attempt.into_failure(FailureCause::new(FailureKind::Broken, "it is not known who answered")));
        };
        let timings = attempt.collect_timings();
        Ok(OutboundResponse {
            status,
            headers: take(&mut attempt.headers),
            body: take(&mut attempt.body),
            address,
            timings,
        })
    }
}

/// Waits for the response, and marks the request as connected once it has a connection.
async fn await_response<T>(
    progress: &RequestProgress,
    captured: &CaptureConnection,
    mut answering: Pin<&mut impl Future<Output = T>>,
) -> T {
    let mut captured = captured.clone();
    let connected = async { drop(captured.wait_for_connection_metadata().await) };
    tokio::select! {
        biased;
        answer = &mut answering => return answer,
        () = connected => progress.mark_connected(),
    }
    answering.await
}

fn to_hyper_request(request: OutboundRequest) -> HttpRequest<Full<Bytes>> {
    let OutboundRequest { method, target, mut headers, body, .. } = request;
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
    // A method that expects a body sends `Content-Length: 0`; some servers wait for a body otherwise.
    if !body.is_empty() || !method.is_safe() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let mut outgoing = HttpRequest::new(Full::new(body));
    *outgoing.method_mut() = method;
    *outgoing.uri_mut() = target.uri().clone();
    *outgoing.headers_mut() = headers;
    *outgoing.version_mut() = Version::HTTP_11;
    outgoing
}

/// One request under way and the response so far. Dropping it closes the connection, unless that can be reused.
struct RequestAttempt {
    start: Instant,
    timeout: Duration,
    progress: RequestProgress,
    captured: CaptureConnection,
    /// Taken from the response, because reading it from `captured` allocates a map each time.
    answered_by: Option<ConnectionHandle>,
    first_byte: Option<Duration>,
    status: Option<u16>,
    headers: HeaderMap,
    body: Vec<u8>,
    /// The rest of the body.
    body_stream: Option<Incoming>,
    /// Whether the response was read to its end.
    whole: bool,
}

impl Drop for RequestAttempt {
    fn drop(&mut self) {
        if let Some(connection) = self.find_connection().filter(|connection| !self.whole || connection.is_unwritten()) {
            connection.hang_up();
        }
    }
}

impl RequestAttempt {
    fn new(start: Instant, timeout: Duration, progress: RequestProgress, captured: CaptureConnection) -> Self {
        RequestAttempt {
            start,
            timeout,
            progress,
            captured,
            answered_by: None,
            first_byte: None,
            status: None,
            headers: HeaderMap::new(),
            body: Vec::new(),
            body_stream: None,
            whole: false,
        }
    }

    /// Reads up to `body_max` bytes. The rest, of unknown length, is dropped with the connection.
    async fn read_body(&mut self, body_max: usize) -> Result<(), FailureCause> {
        let Some(body) = &mut self.body_stream else { return Ok(()) };
        while self.body.len() < body_max {
            match self.progress.run_in_time(body.frame()).await {
                Some(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.body.extend(data.iter().take(body_max - self.body.len()));
                }
                Some(Some(Err(error))) => return Err(to_failure_cause(&error)),
                Some(None) => {
                    self.whole = true;
                    return Ok(());
                }
                None => return Err(self.timeout_cause()),
            }
        }
        self.whole = body.is_end_stream();
        Ok(())
    }

    fn timeout_cause(&self) -> FailureCause {
        let what = if self.status.is_some() { "the answer did not end" } else { "there was no answer" };
        FailureCause::new(FailureKind::Timeout, format!("{what} within {} ms", self.timeout.as_millis()))
    }

    fn into_timeout(self) -> Failure {
        let cause = self.timeout_cause();
        self.into_failure(cause)
    }

    fn into_failure(mut self, cause: FailureCause) -> Failure {
        let connection = self.find_connection();
        let was_connected = connection.is_some();
        let address = connection.map(|connection| connection.address).or(self.progress.lock_state().address);
        let (FailureCause { kind, detail }, timings) = (cause, self.collect_timings());
        let (headers, body) = (take(&mut self.headers), take(&mut self.body));
        Failure { kind, detail, was_connected, address, status: self.status, headers, body, timings }
    }

    /// The connection of the request, once it has one.
    fn find_connection(&self) -> Option<ConnectionHandle> {
        if self.answered_by.is_some() {
            return self.answered_by.clone();
        }
        let mut extras = Extensions::new();
        self.captured.connection_metadata().as_ref()?.get_extras(&mut extras);
        extras.remove()
    }

    /// The time since the start, without the time for which the request was held back.
    fn elapsed(&self) -> Duration {
        self.start.elapsed().saturating_sub(self.progress.held_duration())
    }

    fn collect_timings(&self) -> OutboundTimings {
        // The connector measured the connection that it opened for this request. A reused connection has no such timings.
        let reused = self.find_connection().is_some_and(|connection| !connection.was_opened_by(&self.progress));
        let state = if reused { ProgressState::default() } else { *self.progress.lock_state() };
        OutboundTimings {
            resolve_ms: state.resolved.map(to_ms),
            connect_ms: state.connected.map(to_ms),
            tls_ms: state.encrypted.map(to_ms),
            first_byte_ms: self.first_byte.map(to_ms),
            total_ms: to_ms(self.elapsed()),
        }
    }
}

fn to_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The connector's own cause if there is one; otherwise the connection broke in use.
fn to_failure_cause(error: &(dyn StdError + 'static)) -> FailureCause {
    let chain: Vec<&(dyn StdError + 'static)> = std::iter::successors(Some(error), |error| (*error).source()).collect();
    if let Some(cause) = chain.iter().find_map(|error| error.downcast_ref::<FailureCause>()) {
        return cause.clone();
    }
    // With TLS 1.3, a server may refuse the client after the handshake, for example for lack of a client certificate.
    let kind = if chain.iter().any(|error| is_tls_error(*error)) { FailureKind::Tls } else { FailureKind::Broken };
    // hyper's wrapper says only that there was an error.
    let messages = chain.iter().filter(|error| !error.is::<legacy::Error>()).map(ToString::to_string);
    FailureCause::new(kind, messages.collect::<Vec<_>>().join(": "))
}

fn is_tls_error(error: &(dyn StdError + 'static)) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    matches!(inner, Some(inner) if inner.is::<rustls::Error>())
}
