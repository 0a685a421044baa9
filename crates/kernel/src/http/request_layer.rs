//! The outermost layer of every request: its id, the client's address, load shedding, the timeout, the body of a refusal,
//! the `RateLimit` headers and the access log.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tower::{Layer, Service};

use super::admission::AnswerSize;
use super::answer::{HoldingBody, StallLimit};
use super::app::SharedApp;
use super::compress::{AcceptedEncodings, compress_response};
use super::context::{Arrival, RequestContext};
use super::error_format::ErrorFormat;
use super::html_routes::HtmlRoutes;
use super::problem::{self, RefusedRequest};
use super::rate_policy::RatePolicy;
use super::reply::HEADERS_CAPACITY;
use super::trace::{REQUEST_ID, TraceParent};
use super::unread_body::UnreadBody;
use super::usage_meter::MeteredRequest;
use crate::base::{Code, Error, Result};

/// Operators' probes are answered even when every other request is shed.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];
/// How much of a path the log and a problem repeat: more than any route has, and bounded so that clients cannot fill the
/// disk.
const PATH_BYTES_MAX: usize = 512;

/// The outermost layer. It is a `Service` because axum's `from_fn` copies each request a few times more.
#[derive(Clone)]
pub(super) struct RequestLayer {
    pub app: SharedApp,
    pub html_routes: Arc<HtmlRoutes>,
}

impl<S> Layer<S> for RequestLayer {
    type Service = RequestService<S>;

    fn layer(&self, inner: S) -> RequestService<S> {
        RequestService { layer: self.clone(), inner }
    }
}

#[derive(Clone)]
pub(super) struct RequestService<S> {
    layer: RequestLayer,
    inner: S,
}

impl<S> Service<Request> for RequestService<S>
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
        // The service that was polled ready is used; its clone replaces it.
        let inner = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, inner);
        let error_format = self.layer.html_routes.find_error_format(&request);
        Box::pin(serve_request(self.layer.app.clone(), error_format, request, ready).map(Ok))
    }
}

async fn serve_request<S>(app: SharedApp, error_format: Option<ErrorFormat>, mut request: Request, next: S) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let started = Instant::now();
    let arrival = request.extensions_mut().remove::<Arrival>();
    let context = Arc::new(RequestContext::new(&app, &request, arrival.as_ref()));
    if let Some(error_format) = error_format {
        context.set_error_format(error_format);
    }
    request.extensions_mut().insert(context.clone());
    let method = request.method().clone();
    // Only answers to GET and HEAD are compressed: an answer with a new secret never is, because it may also repeat
    // what the caller sent (BREACH).
    let is_read = method == Method::GET || method == Method::HEAD;
    let encodings =
        if is_read { AcceptedEncodings::from_headers(request.headers()) } else { AcceptedEncodings::none() };
    let active_request = arrival.map(|arrival| arrival.active_request);
    let stall = active_request.clone().filter(|_| request.version() == Version::HTTP_2);
    let stall = stall.map(|connection| StallLimit { timeout: app.settings.stall_timeout, connection });
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (request, rest) = UnreadBody::lend_body(request);

    let response = run_handler(&app, &context, &path, request, next).await;
    let mut size = AnswerSize::from_response(&response, stall.is_some());
    let mut response = compress_response(response, encodings).await;
    context.release_work();
    let is_probe = PROBES.contains(&path.as_str());
    let path = &path[..path.floor_char_boundary(PATH_BYTES_MAX)];
    if is_shed(&response) && !is_probe {
        context.delay_flood(&app).await;
    }
    if render_problem(&app, &context, path, &mut response) {
        size = AnswerSize::from_response(&response, stall.is_some());
    }
    let held = if is_probe { Ok(None) } else { context.hold_answer(&app, size, method.is_safe()).await };
    let held = held.unwrap_or_else(|error| {
        response = error.into_response();
        render_problem(&app, &context, path, &mut response);
        None
    });
    context.release_permits();
    write_headers(&app, &context, path, &mut response);
    let seconds = started.elapsed().as_secs_f64();
    log_request(&context, &method, path, &response, seconds);
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    meter_request(&app, &context, &method, route, &response, seconds);
    app.request_metrics.record_request(&method, route, response.status().as_u16(), seconds);
    if let Some(rest) = rest {
        rest.drain_or_close(&mut response).await;
    }
    if held.is_none() && stall.is_none() {
        return response;
    }
    response.map(|body| HoldingBody::wrap_body(body, (held, active_request), stall))
}

/// Counts a request to the API as its tenant's. Pages and agents are not metered.
fn meter_request(
    app: &SharedApp,
    context: &RequestContext,
    method: &Method,
    route: &str,
    response: &Response,
    seconds: f64,
) {
    let Some((tenant, key)) = context.metered().filter(|_| route.starts_with("/api/")) else { return };
    let key = key.map(|key| key.to_string()).unwrap_or_default();
    let status = response.status().as_u16();
    let request = MeteredRequest { tenant, key: &key, method, route, status, seconds };
    app.usage.record_request(&request, app.env.now());
}

/// Whether the answer tells its client to retry later.
fn is_shed(response: &Response) -> bool {
    matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

/// Writes the body of a refusal, if the answer is one.
fn render_problem(app: &SharedApp, context: &RequestContext, path: &str, response: &mut Response) -> bool {
    let Some(error) = response.extensions_mut().remove::<Arc<Error>>() else { return false };
    let (base_url, error_format) = (&app.settings.base_url, context.error_format());
    let refused = RefusedRequest { base_url, path, request_id: &context.request_id, error_format };
    problem::render_error(&error, &refused, response);
    match (error.code(), error.cause_chain()) {
        (Code::Internal, cause) => tracing::error!(request_id = &*context.request_id, cause, "request failed"),
        (_, Some(cause)) => tracing::warn!(request_id = &*context.request_id, cause, "request refused"),
        _ => {}
    }
    true
}

async fn run_handler<S>(
    app: &SharedApp,
    context: &RequestContext,
    path: &str,
    request: Request,
    mut next: S,
) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let is_probe = PROBES.contains(&path);
    let counted = if is_probe { Ok(()) } else { context.count_request(app) };
    if let Err(error) = counted.and_then(|()| check_host(app, context, &request)) {
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

/// Requires one valid `Host` in HTTP/1.1 (RFC 9112, 3.2): a proxy may have routed by another one. The service itself does
/// not use it. A refusal is charged to the address, as for any unauthenticated caller.
fn check_host(app: &SharedApp, context: &RequestContext, request: &Request) -> Result<()> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => return Ok(()),
        (None, None) if request.version() != Version::HTTP_11 => return Ok(()),
        _ => {}
    }
    context.charge_address(app, RatePolicy::Public)?;
    Err(Error::new(Code::InvalidHeader, "Host must be given once, as a name or address with or without a port."))
}

fn is_host(value: &HeaderValue) -> bool {
    let is_authority = |text: &str| {
        let Ok(authority) = text.parse::<Authority>() else { return false };
        let host = authority.host();
        // `Authority` also accepts a user, several names and any text as a port, so the rest is checked here.
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

fn write_headers(app: &SharedApp, context: &RequestContext, path: &str, response: &mut Response) {
    let headers = response.headers_mut();
    headers.reserve(HEADERS_CAPACITY);
    if let Ok(id) = HeaderValue::try_from(&*context.request_id) {
        headers.insert(&REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if app.settings.base_url.is_https() {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    if path.starts_with("/api/") {
        let charged = context.rate_state();
        let state = charged.unwrap_or_else(|| app.limiter.peek_address(RatePolicy::Public, context.address));
        state.write_headers(headers);
    }
}

/// Writes the access log. The query is left out, because it may contain a sign-in token.
fn log_request(context: &RequestContext, method: &Method, path: &str, response: &Response, seconds: f64) {
    tracing::info!(
        target: "access",
        method = method.as_str(),
        path,
        status = response.status().as_u16(),
        ms = (seconds * 1e6).round() / 1e3,
        request_id = &*context.request_id,
        address = %context.address.0,
        who = context.actor_id().as_deref(),
        trace_id = context.trace.as_ref().map(TraceParent::trace_id),
    );
}
