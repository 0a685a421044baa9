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

use super::connector::{Connector, Fault};
use super::exchange::{Failure, FailureKind, Request, Response, Timings};
use super::socket::{Notes, PROGRESS, Progress, Tether};

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
const OURS: [HeaderName; 9] = [
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

pub(super) struct Client(legacy::Client<Connector, Full<Bytes>>);

impl Client {
    pub fn new(connector: Connector) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_MAX).pool_max_idle_per_host(IDLE_PER_HOST_MAX);
        builder.http1_max_buf_size(BUFFER_BYTES_MAX);
        Client(builder.build(connector))
    }

    pub async fn send(&self, request: Request) -> Result<Response, Failure> {
        let (timeout, body_max) = (request.timeout.min(TIMEOUT_MAX), request.body_max);
        let start = Instant::now();
        let progress = Progress::new(start + timeout, request.for_whom);
        let mut outgoing = outgoing(request);
        let captured = capture_connection(&mut outgoing);
        let mut answering = pin!(PROGRESS.scope(progress.clone(), self.0.request(outgoing)));
        // Declared after the request, so that it is dropped first: an abandoned connection is closed before the client can
        // reuse it.
        let mut attempt = Attempt::new(start, timeout, progress, captured);
        let answer =
            match attempt.progress.in_time(set_off(&attempt.progress, &attempt.captured, answering.as_mut())).await {
                Some(Ok(answer)) => answer,
                Some(Err(error)) => return Err(attempt.failed(fault(&error))),
                None => return Err(attempt.late()),
            };
        attempt.first_byte = Some(attempt.elapsed());
        let (mut head, body) = answer.into_parts();
        let status = head.status.as_u16();
        attempt.answered_over = head.extensions.remove();
        (attempt.status, attempt.headers, attempt.coming) = (Some(status), head.headers, Some(body));
        if let Err(fault) = attempt.read(body_max).await {
            return Err(attempt.failed(fault));
        }
        let Some(address) = attempt.tether().map(|tether| tether.address) else {
            return Err(attempt.failed(Fault::new(FailureKind::Broken, "it is not known who answered")));
        };
        let timings = attempt.timings();
        Ok(Response { status, headers: take(&mut attempt.headers), body: take(&mut attempt.body), address, timings })
    }
}

/// Waits for the response, and marks the request as connected once it has a connection.
async fn set_off<T>(
    progress: &Progress,
    captured: &CaptureConnection,
    mut answering: Pin<&mut impl Future<Output = T>>,
) -> T {
    let mut captured = captured.clone();
    let connected = async { drop(captured.wait_for_connection_metadata().await) };
    tokio::select! {
        biased;
        answer = &mut answering => return answer,
        () = connected => progress.set_off(),
    }
    answering.await
}

fn outgoing(request: Request) -> HttpRequest<Full<Bytes>> {
    let Request { method, target, mut headers, body, .. } = request;
    for name in OURS {
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
struct Attempt {
    start: Instant,
    timeout: Duration,
    progress: Progress,
    captured: CaptureConnection,
    /// Taken from the response, because reading it from `captured` allocates a map each time.
    answered_over: Option<Tether>,
    first_byte: Option<Duration>,
    status: Option<u16>,
    headers: HeaderMap,
    body: Vec<u8>,
    /// The rest of the body.
    coming: Option<Incoming>,
    /// Whether the response was read to its end.
    whole: bool,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(tether) = self.tether().filter(|tether| !self.whole || tether.is_unwritten()) {
            tether.hang_up();
        }
    }
}

impl Attempt {
    fn new(start: Instant, timeout: Duration, progress: Progress, captured: CaptureConnection) -> Self {
        Attempt {
            start,
            timeout,
            progress,
            captured,
            answered_over: None,
            first_byte: None,
            status: None,
            headers: HeaderMap::new(),
            body: Vec::new(),
            coming: None,
            whole: false,
        }
    }

    /// Reads up to `body_max` bytes. The rest, of unknown length, is dropped with the connection.
    async fn read(&mut self, body_max: usize) -> Result<(), Fault> {
        let Some(coming) = &mut self.coming else { return Ok(()) };
        while self.body.len() < body_max {
            match self.progress.in_time(coming.frame()).await {
                Some(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.body.extend(data.iter().take(body_max - self.body.len()));
                }
                Some(Some(Err(error))) => return Err(fault(&error)),
                Some(None) => {
                    self.whole = true;
                    return Ok(());
                }
                None => return Err(self.too_late()),
            }
        }
        self.whole = coming.is_end_stream();
        Ok(())
    }

    fn too_late(&self) -> Fault {
        let what = if self.status.is_some() { "the answer did not end" } else { "there was no answer" };
        Fault::new(FailureKind::Timeout, format!("{what} within {} ms", self.timeout.as_millis()))
    }

    fn late(self) -> Failure {
        let fault = self.too_late();
        self.failed(fault)
    }

    fn failed(mut self, fault: Fault) -> Failure {
        let address = self.tether().map(|tether| tether.address).or(self.progress.notes().address);
        let (Fault { kind, detail }, timings) = (fault, self.timings());
        let (headers, body) = (take(&mut self.headers), take(&mut self.body));
        Failure { kind, detail, address, status: self.status, headers, body, timings }
    }

    /// The connection of the request, once it has one.
    fn tether(&self) -> Option<Tether> {
        if self.answered_over.is_some() {
            return self.answered_over.clone();
        }
        let mut extras = Extensions::new();
        self.captured.connection_metadata().as_ref()?.get_extras(&mut extras);
        extras.remove()
    }

    /// The time since the start, without the time for which the request was held back.
    fn elapsed(&self) -> Duration {
        self.start.elapsed().saturating_sub(self.progress.held())
    }

    fn timings(&self) -> Timings {
        // The connector measured the connection that it opened for this request. A reused connection has no such timings.
        let reused = self.tether().is_some_and(|tether| !tether.is_of(&self.progress));
        let notes = if reused { Notes::default() } else { *self.progress.notes() };
        Timings {
            resolve_ms: notes.resolved.map(milliseconds),
            connect_ms: notes.connected.map(milliseconds),
            tls_ms: notes.encrypted.map(milliseconds),
            first_byte_ms: self.first_byte.map(milliseconds),
            total_ms: milliseconds(self.elapsed()),
        }
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The connector's own cause if there is one; otherwise the connection broke in use.
fn fault(error: &(dyn StdError + 'static)) -> Fault {
    let chain: Vec<&(dyn StdError + 'static)> = std::iter::successors(Some(error), |error| (*error).source()).collect();
    if let Some(fault) = chain.iter().find_map(|error| error.downcast_ref::<Fault>()) {
        return fault.clone();
    }
    // With TLS 1.3, a server may refuse the client after the handshake, for example for lack of a client certificate.
    let kind = if chain.iter().any(|error| is_tls(*error)) { FailureKind::Tls } else { FailureKind::Broken };
    // hyper's wrapper says only that there was an error.
    let said = chain.iter().filter(|error| !error.is::<legacy::Error>()).map(ToString::to_string);
    Fault::new(kind, said.collect::<Vec<_>>().join(": "))
}

fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    matches!(inner, Some(inner) if inner.is::<rustls::Error>())
}
