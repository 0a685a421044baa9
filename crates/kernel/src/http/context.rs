//! What surrounds every request: its id, the caller's address, load shedding, the time limit, the problem body of a
//! refusal, the `RateLimit` headers and one line in the log.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, Version, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tower::{Layer, Service};

use super::address::ClientAddress;
use super::answer::{AnswerBytes, Counted, Full, Held, Stall, Taker};
use super::app::{LARGE_BODIES_MIB, Shared};
use super::compress::{Encodings, compress};
use super::limiter::Policy;
use super::manner::Manner;
use super::patience::UnderWay;
use super::payer::Payer;
use super::people::People;
use super::places::Place;
use super::problem::{self, Refused};
use super::rate_state::RateState;
use super::rest::Rest;
use super::trace::{REQUEST_ID, TraceParent, request_id};
use crate::base::{Code, Error, Result, TenantId};
use crate::store::Lane;

/// What a large body takes up: of what its tenant may have, and of what all may.
pub(super) struct Room {
    _of_tenant: Vec<Place<Payer>>,
    _of_all: OwnedSemaphorePermit,
}

/// What the connection knows of a request.
#[derive(Clone)]
pub(super) struct Arrival {
    pub peer: SocketAddr,
    pub under_way: Arc<UnderWay>,
}

/// One request, from its arrival to its line in the log.
pub struct Context {
    pub request_id: Arc<str>,
    pub trace: Option<TraceParent>,
    pub address: ClientAddress,
    rate: Mutex<Option<RateState>>,
    who: OnceLock<Arc<str>>,
    manner: OnceLock<Manner>,
    flight: Mutex<Option<Flight>>,
    turn: Mutex<Option<OwnedSemaphorePermit>>,
    waiting: OnceLock<(Place<Arc<str>>, Place<Payer>)>,
}

impl Context {
    fn new(app: &Shared, request: &Request, arrival: Option<&Arrival>) -> Self {
        let peer = arrival.map_or(SocketAddr::from(([127, 0, 0, 1], 0)), |arrival| arrival.peer);
        Context {
            request_id: request_id(request.headers(), &app.world),
            trace: TraceParent::from_headers(request.headers()),
            address: ClientAddress::find(peer, request.headers(), &app.settings.trusted_proxies),
            rate: Mutex::new(None),
            who: OnceLock::new(),
            manner: OnceLock::new(),
            flight: Mutex::new(None),
            turn: Mutex::new(None),
            waiting: OnceLock::new(),
        }
    }

    /// The context of a request.
    pub(crate) fn of(parts: &Parts) -> Result<Arc<Self>> {
        parts.extensions.get::<Arc<Self>>().cloned().ok_or_else(|| Error::internal("a request has no context"))
    }

    pub(crate) fn note_rate(&self, state: RateState) {
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    /// The credential's id, for the log.
    pub(crate) fn note_who(&self, who: Arc<str>) {
        let _ = self.who.set(who);
    }

    /// How it is refused from here on.
    pub(super) fn note_manner(&self, manner: Manner) {
        let _ = self.manner.set(manner);
    }

    /// Takes one request from the address's own budget.
    pub fn charge_address(&self, app: &Shared, policy: Policy) -> Result<()> {
        let (state, verdict) = app.limiter.charge_address(policy, self.address);
        self.note_rate(state);
        verdict
    }

    /// The caller is known and the request charged: it counts among those of its tenant from here on. One that reads waits
    /// for its tenant's turn, which it has until its answer is made: else a neighbour would wait until all of one tenant's
    /// are. Writes have their turns in the store.
    pub(crate) async fn enter(&self, app: &Shared, method: &Method) -> Result<()> {
        let tenant = self.tenant();
        if let Some(flight) = self.flight().as_mut() {
            flight.enter(app, tenant)?;
        }
        if let Some(tenant) = tenant.filter(|_| method.is_safe()) {
            let turn = app.serving.take(Lane::Tenant(tenant), TURN_WAIT_MAX).await?;
            *self.turn() = Some(turn);
        }
        // Only now: those before it may have filled it. What is deleted has no answer to speak of, and may be the very key
        // whose answers nobody reads.
        let has_answer = method != Method::DELETE;
        if has_answer && app.unsent.is_full(&self.taker(), app.settings.unsent_max) { Err(unread()) } else { Ok(()) }
    }

    /// Waits for what the client has yet to send. Each tenant has a bounded number of such waits; a body that may be large
    /// takes more than one of their `places`.
    pub(crate) async fn wait_for_body<T>(
        &self,
        app: &Shared,
        places: usize,
        wait: impl Future<Output = T>,
    ) -> Result<T> {
        let taken = self.take_places(app, places, app.settings.bodies_per_tenant_max)?;
        self.wait(app, taken, wait).await
    }

    fn take_places(&self, app: &Shared, places: usize, max: usize) -> Result<Vec<Place<Payer>>> {
        let take = |_| app.bodies.take(self.payer(), max);
        let taken: Option<Vec<_>> = (0..places).map(take).collect();
        taken.ok_or_else(|| Error::unavailable("too many bodies of one tenant are awaited"))
    }

    /// Room for a large body, which it has until it is worked off and not only until it has come.
    pub(super) fn make_room(&self, app: &Shared, places: usize) -> Result<Room> {
        let of_tenant = self.take_places(app, places, app.settings.bodies_per_tenant_max.min(LARGE_BODIES_MIB / 2))?;
        let of_all = app.large_bodies.clone().try_acquire_many_owned(u32::try_from(places).map_err(Error::internal)?);
        let of_all = of_all.map_err(|_| Error::unavailable("too many large bodies are under way"))?;
        Ok(Room { _of_tenant: of_tenant, _of_all: of_all })
    }

    /// Waits for something to happen. Each tenant and each credential has a bounded number of requests that do, with
    /// places that are nobody else's: one key's readers keep no other key from anything. A request that has waited once
    /// may wait again.
    pub(crate) async fn wait_for_news<T>(&self, app: &Shared, wait: impl Future<Output = T>) -> Result<T> {
        if self.waiting.get().is_none() {
            let crowded = || Error::unavailable("too many requests of one credential or tenant wait for news");
            let who = self.who.get().cloned().unwrap_or_else(|| "".into());
            let own = app.waits_of.take(who, app.settings.waits_per_credential_max).ok_or_else(crowded)?;
            let place = app.waits.take(self.payer(), app.settings.waits_per_tenant_max).ok_or_else(crowded)?;
            let _ = self.waiting.set((own, place));
        }
        self.wait(app, (), wait).await
    }

    /// Waits with another place than one among the requests under way: else the waits of one tenant would shed everybody.
    async fn wait<T, P>(&self, app: &Shared, place: P, wait: impl Future<Output = T>) -> Result<T> {
        drop((self.end_flight(), self.turn().take()));
        let waited = wait.await;
        drop(place);
        self.start_flight(app)?;
        Ok(waited)
    }

    fn tenant(&self) -> Option<TenantId> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner).and_then(|state| state.tenant)
    }

    fn payer(&self) -> Payer {
        self.tenant().map_or_else(|| Payer::Address(self.address.bucket()), Payer::Tenant)
    }

    fn taker(&self) -> Taker {
        Taker { payer: self.payer(), credential: self.tenant().and_then(|_| self.who.get().cloned()) }
    }

    fn start_flight(&self, app: &Shared) -> Result<()> {
        let mut flight = Flight::start(app).ok_or_else(|| Error::unavailable("too many requests are under way"))?;
        flight.enter(app, self.tenant())?;
        *self.flight() = Some(flight);
        Ok(())
    }

    fn end_flight(&self) -> Option<Flight> {
        self.flight().take()
    }

    fn turn(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flight(&self) -> MutexGuard<'_, Option<Flight>> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a request waits for its tenant's turn.
pub(super) const TURN_WAIT_MAX: Duration = Duration::from_secs(10);

fn unread() -> Error {
    Error::unavailable("answers to this credential, tenant or address are not taken by their clients")
}

/// An answer up to this size gives its place up when it is handed over, as do all to those who are not known: a stream of
/// HTTP/2 can refuse to take a single byte, and whoever opens enough of them would have every place. What they cost is memory,
/// and that is bounded by connections.
const SMALL_BYTES: u64 = 4 * 1024;

/// Answers of operators' probes must come even when everything else is refused.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];
/// As much of a path as the log and a problem repeat: longer than any of ours, so that nobody fills the disk with theirs.
const PATH_BYTES_MAX: usize = 512;

/// The outermost layer. A service of its own, because what axum makes of a function copies each request a few times more.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub app: Shared,
    pub people: Arc<People>,
}

impl<S> Layer<S> for Surroundings {
    type Service = Surrounded<S>;

    fn layer(&self, inner: S) -> Surrounded<S> {
        Surrounded { around: self.clone(), inner }
    }
}

#[derive(Clone)]
pub(super) struct Surrounded<S> {
    around: Surroundings,
    inner: S,
}

impl<S> Service<Request> for Surrounded<S>
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The one that is ready, and another to become so.
        let inner = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, inner);
        let manner = self.around.people.manner(&request);
        Box::pin(serve(self.around.app.clone(), manner, request, ready).map(Ok))
    }
}

async fn serve<S>(app: Shared, manner: Option<Manner>, mut request: Request, next: S) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let started = Instant::now();
    let arrival = request.extensions_mut().remove::<Arrival>();
    let context = Arc::new(Context::new(&app, &request, arrival.as_ref()));
    if let Some(manner) = manner {
        context.note_manner(manner);
    }
    request.extensions_mut().insert(context.clone());
    let method = request.method().clone();
    // Only what GET answers is compressed, and what HEAD says of it: an answer that holds a new secret never is, beside what
    // the caller sent.
    let is_read = method == Method::GET || method == Method::HEAD;
    let encodings = if is_read { Encodings::of(request.headers()) } else { Encodings::none() };
    let under_way = arrival.map(|arrival| arrival.under_way);
    let stall = under_way.clone().filter(|_| request.version() == Version::HTTP_2);
    let stall = stall.map(|connection| Stall { longest: app.settings.stall_timeout, connection });
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (request, rest) = Rest::of(request);

    let response = run(&app, &context, &path, request, next).await;
    let mut response = compress(response, encodings).await;
    drop(context.turn().take());
    let counted = count_bytes(&app, &context, &method, &mut response);

    let path = &path[..path.floor_char_boundary(PATH_BYTES_MAX)];
    if let Some(error) = response.extensions_mut().remove::<Arc<Error>>() {
        let (base_url, manner) = (&app.settings.base_url, context.manner.get());
        let refused = Refused { base_url, path, request_id: &context.request_id, manner };
        problem::render(&error, &refused, &mut response);
        match (error.code(), error.cause()) {
            (Code::Internal, cause) => tracing::error!(request_id = &*context.request_id, cause, "request failed"),
            (_, Some(cause)) => tracing::warn!(request_id = &*context.request_id, cause, "request refused"),
            _ => {}
        }
    }
    write_headers(&app, &context, path, &mut response);
    let seconds = started.elapsed().as_secs_f64();
    log(&context, &method, path, &response, seconds);
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    app.meters.count(&method, route, response.status().as_u16(), seconds);
    let is_small = is_small(&response);
    let flight = context.end_flight().filter(|_| context.tenant().is_some() && !is_small);
    if let Some(rest) = rest {
        rest.settle(&mut response).await;
    }
    if is_small && stall.is_none() {
        return response;
    }
    let held = (flight, counted, under_way);
    response.map(|body| Held::body(body, held, stall))
}

/// Whether an answer is so small that nobody has to wait for it to be taken.
fn is_small(response: &Response) -> bool {
    response.body().size_hint().upper().is_some_and(|bytes| bytes <= SMALL_BYTES)
}

/// Counts an answer among those that are not taken yet. One that would be too much is not given, unless it tells of
/// something that was done.
fn count_bytes(app: &Shared, context: &Context, method: &Method, response: &mut Response) -> Option<Counted> {
    let AnswerBytes(bytes) = response.extensions_mut().remove()?;
    let counted = app.unsent.add(context.taker(), bytes, app.settings.unsent_max, !method.is_safe());
    counted.unwrap_or_else(|Full| {
        *response = unread().into_response();
        None
    })
}

async fn run<S>(app: &Shared, context: &Context, path: &str, request: Request, mut next: S) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let is_probe = PROBES.contains(&path);
    let flight = if is_probe { Ok(()) } else { context.start_flight(app) };
    if let Err(error) = flight.and_then(|()| check_host(app, context, &request)) {
        return error.into_response();
    }
    if is_probe {
        let Ok(response) = next.call(request).await;
        return response;
    }
    let served = AssertUnwindSafe(next.call(request)).catch_unwind();
    match tokio::time::timeout(app.settings.request_timeout, served).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Err(panic)) => Error::internal(format!("a handler panicked: {}", panic_text(&*panic))).into_response(),
        Err(_) => Error::unavailable("the request took too long").into_response(),
    }
}

/// A request of HTTP/1.1 names its host, and none has two such headers: whoever passed it on may have gone by another one (RFC
/// 9112, 3.2). Nothing here is decided by it.
/// Charged like everything else that is refused to somebody who is not known.
fn check_host(app: &Shared, context: &Context, request: &Request) -> Result<()> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => return Ok(()),
        (None, None) if request.version() != Version::HTTP_11 => return Ok(()),
        _ => {}
    }
    context.charge_address(app, Policy::Public)?;
    Err(Error::new(Code::InvalidHeader, "Host must be given once, as a name or address with or without a port."))
}

fn is_host(value: &HeaderValue) -> bool {
    let is_authority = |text: &str| {
        let Ok(authority) = text.parse::<Authority>() else { return false };
        let host = authority.host();
        // It takes a user, several names and any word for a port; what is left behind the host is the port.
        let is_port = |rest: &str| {
            let port = rest.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
            port.is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok())
        };
        let rest = text.strip_prefix(host);
        !host.is_empty() && !host.contains(',') && rest.is_some_and(|rest| rest.is_empty() || is_port(rest))
    };
    value.is_empty() || value.to_str().is_ok_and(is_authority)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// As many headers as most answers have.
pub(super) const HEADERS: usize = 8;

fn write_headers(app: &Shared, context: &Context, path: &str, response: &mut Response) {
    let headers = response.headers_mut();
    headers.reserve(HEADERS);
    if let Ok(id) = HeaderValue::try_from(&*context.request_id) {
        headers.insert(&REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if app.settings.base_url.is_https() {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    if path.starts_with("/api/") {
        let noted = *context.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let state = noted.unwrap_or_else(|| app.limiter.peek_address(Policy::Public, context.address));
        state.write(headers);
    }
}

/// Never the query: it may carry a sign-in token.
fn log(context: &Context, method: &Method, path: &str, response: &Response, seconds: f64) {
    tracing::info!(
        target: "access",
        method = method.as_str(),
        path,
        status = response.status().as_u16(),
        ms = (seconds * 1e6).round() / 1e3,
        request_id = &*context.request_id,
        address = %context.address.0,
        who = context.who.get().map(|who| &**who),
        trace_id = context.trace.as_ref().map(TraceParent::trace_id),
    );
}

/// A place among the requests under way, and among those of its tenant when that is known.
struct Flight {
    app: Shared,
    of_tenant: Option<Place<TenantId>>,
}

impl Flight {
    fn start(app: &Shared) -> Option<Self> {
        // Counted only where there is room: one that is refused must not for a moment take the place of one that is not.
        let one_more = |taken: usize| (taken < app.settings.in_flight_max).then_some(taken + 1);
        let counted = app.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.is_ok().then(|| Flight { app: app.clone(), of_tenant: None })
    }

    fn enter(&mut self, app: &Shared, tenant: Option<TenantId>) -> Result<()> {
        if let Some(tenant) = tenant.filter(|_| self.of_tenant.is_none()) {
            let place = app.in_flight_of.take(tenant, app.settings.in_flight_per_tenant_max());
            let crowded = || Error::unavailable("too many requests of one tenant are under way");
            self.of_tenant = Some(place.ok_or_else(crowded)?);
        }
        Ok(())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.app.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
