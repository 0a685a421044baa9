//! The only way to mount a route: as a documented operation, an internal route, a page, a form, or an uncharged route.

use std::future::ready;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on, post};
use axum::{Extension, Router};
use tower_http::cors::CorsLayer;
use utoipa::ToSchema;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::app::SharedApp;
use super::context::RequestContext;
use super::csrf;
use super::document::{
    DocumentInfo, DocumentOnce, OpenApiDocument, finish_document, no_security, security_requirements,
};
use super::error_format::RefusalPage;
use super::form::FORM_RULES;
use super::html_routes::HtmlRoutes;
use super::operation::{Arguments, InternalDoor, Operation, operations_of};
use super::rate_policy::RatePolicy;
use super::refusals::RefusalCodes;
use super::request_layer::RequestLayer;
use crate::base::{Code, Error, Result};

/// Routes under construction.
pub struct Api {
    app: SharedApp,
    documented: OpenApiRouter<SharedApp>,
    undocumented: Router<SharedApp>,
    /// The OpenAPI document, for handlers that publish it. It is set when all routes are mounted.
    document: DocumentOnce,
    refusals: RefusalCodes,
    misplaced: Vec<String>,
    html_routes: HtmlRoutes,
}

#[expect(clippy::disallowed_methods, reason = "this is the one door to the router; everywhere else it is closed")]
impl Api {
    pub fn new(app: SharedApp) -> Self {
        let (documented, undocumented) = (OpenApiRouter::new(), Router::new());
        let document = DocumentOnce::default();
        let (refusals, html_routes) = (RefusalCodes::default(), HtmlRoutes::default());
        Api { app, documented, undocumented, document, refusals, misplaced: Vec::new(), html_routes }
    }

    /// Operations on a tenant's data, each with its handler's rules; made by [`operations!`](crate::operations).
    #[must_use]
    pub fn add_tenant_routes(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        for mut operation in operations {
            let needed = security_requirements(&operation.rules);
            let rules = operation.rules;
            for described in operation.described_operations() {
                described.security = Some(needed.clone());
                self.refusals.add_caller_codes(described.operation_id.as_deref().unwrap_or_default(), &rules);
            }
            self.documented = self.documented.routes(operation.routes);
        }
        self
    }

    /// Operations without authentication, charged to the address under `policy`. They can extract [`DocumentOnce`].
    #[must_use]
    pub fn add_public_routes(mut self, policy: RatePolicy, routes: UtoipaMethodRouter<SharedApp>) -> Self {
        let (schemas, mut paths, methods) = routes;
        let described = paths.paths.values_mut().flat_map(operations_of);
        described.for_each(|(_, described)| described.security = Some(no_security()));
        let charge = from_fn_with_state((self.app.clone(), policy), charge_page);
        let methods = methods.route_layer(charge).route_layer(Extension(self.document.clone()));
        self.documented = self.documented.routes((schemas, paths, methods));
        self
    }

    /// Codes that an operation refuses requests with, beyond those that follow from its callers, its parameters and its body.
    #[must_use]
    pub fn add_refusals(mut self, operation_id: &str, codes: &[Code]) -> Self {
        self.refusals.add_codes(operation_id, codes);
        self
    }

    /// A schema that answers refer to, with the schemas it refers to itself: `auto_into_responses` documents an answer but
    /// does not collect its schemas. A test finds every dangling reference.
    #[must_use]
    pub fn add_schema<T: ToSchema>(mut self) -> Self {
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        self.documented.get_openapi_mut().components.get_or_insert_default().schemas.extend(schemas);
        self
    }

    /// An undocumented route below `/internal/`, for agents and other systems with their own kinds of credentials and
    /// bodies. Otherwise it is like any other route. (A route without authentication is a [page](Api::add_page).)
    #[must_use]
    pub fn add_internal_route<H, T>(mut self, method: Method, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, SharedApp>,
        T: Arguments<First: InternalDoor> + 'static,
    {
        match MethodFilter::try_from(method) {
            Ok(method) if path.starts_with("/internal/") => {
                self.undocumented = self.undocumented.route(path, on(method, handler));
            }
            _ => self.misplaced.push(path.to_owned()),
        }
        self
    }

    /// An HTML page, charged to the address under `policy`. Its handler can extract [`DocumentOnce`].
    #[must_use]
    pub fn add_page<T: 'static>(
        mut self,
        path: &'static str,
        policy: RatePolicy,
        handler: impl Handler<T, SharedApp>,
    ) -> Self {
        let charge = from_fn_with_state((self.app.clone(), policy), charge_page);
        let methods = get(handler).route_layer(charge).route_layer(Extension(self.document.clone()));
        self.undocumented = self.undocumented.route(path, methods);
        self.html_routes.pages.push(path);
        self
    }

    /// A page whose handler charges its visitor itself, depending on the caller or on the request. It can extract
    /// [`DocumentOnce`].
    #[must_use]
    pub fn add_charging_page<T: 'static>(mut self, path: &'static str, handler: impl Handler<T, SharedApp>) -> Self {
        let methods = get(handler).route_layer(Extension(self.document.clone()));
        self.undocumented = self.undocumented.route(path, methods);
        self.html_routes.pages.push(path);
        self
    }

    /// The target of an HTML form, charged to the address under `policy`. Cross-site requests are refused whether or not
    /// the visitor is signed in, because a form can sign the visitor in as another user, or out.
    #[must_use]
    pub fn add_form<T: 'static>(
        mut self,
        path: &'static str,
        policy: RatePolicy,
        handler: impl Handler<T, SharedApp>,
    ) -> Self {
        let guard = from_fn_with_state((self.app.clone(), policy), guard_form);
        self.undocumented = self.undocumented.route(path, post(handler).route_layer(guard));
        self.html_routes.forms.push(path);
        self
    }

    /// A form whose handler charges its sender itself. A cross-site request is charged to `public`.
    #[must_use]
    pub fn add_charging_form<T: 'static>(mut self, path: &'static str, handler: impl Handler<T, SharedApp>) -> Self {
        let guard = from_fn_with_state(self.app.clone(), guard_charging_form);
        self.undocumented = self.undocumented.route(path, post(handler).route_layer(guard));
        self.html_routes.forms.push(path);
        self
    }

    /// The page for a browser whose request to a page, a form or an unknown path is refused. API paths and other clients
    /// get a problem response.
    #[must_use]
    pub fn set_refusal_page(mut self, page: RefusalPage) -> Self {
        self.html_routes.refusal_page = Some(page);
        self
    }

    /// A probe or a static file, which is neither charged nor documented.
    #[must_use]
    pub fn add_uncharged_route<T: 'static>(mut self, path: &'static str, handler: impl Handler<T, SharedApp>) -> Self {
        self.undocumented = self.undocumented.route(path, get(handler));
        self
    }

    /// The service and the document that describes it.
    pub fn build_router(self, info: &DocumentInfo) -> Result<(Router, Arc<OpenApiDocument>)> {
        if let Some(path) = self.misplaced.first() {
            return Err(Error::internal(format!("{path} is not a route below /internal/")));
        }
        let (documented, openapi) = self.documented.split_for_parts();
        let document = Arc::new(finish_document(openapi, info, &self.refusals)?);
        self.document.set(document.clone());
        let html_routes = Arc::new(self.html_routes);
        let layer = RequestLayer { app: self.app.clone(), html_routes: html_routes.clone() };
        let fallback =
            move |State(app): State<SharedApp>, request: Request| ready(no_route(&app, &request, &html_routes));
        let router = documented.merge(self.undocumented).fallback(fallback).method_not_allowed_fallback(no_method);
        let router = match cors_layer(&self.app) {
            Some(cors) => router.layer(cors),
            None => router,
        };
        // Outermost, so that the answer to a CORS preflight has its request id and budget too.
        let router = router.layer(layer);
        Ok((router.with_state(self.app), document))
    }
}

async fn charge_page(
    State((app, policy)): State<(SharedApp, RatePolicy)>,
    request: Request,
    next: Next,
) -> Result<Response> {
    charge_request(&app, &request, policy)?;
    Ok(next.run(request).await)
}

async fn guard_form(
    State((app, policy)): State<(SharedApp, RatePolicy)>,
    request: Request,
    next: Next,
) -> Result<Response> {
    charge_request(&app, &request, policy)?;
    check_form_origin(&app, &request)?;
    Ok(run_form(request, next).await)
}

async fn guard_charging_form(State(app): State<SharedApp>, request: Request, next: Next) -> Result<Response> {
    let charge = |error| charge_request(&app, &request, RatePolicy::Public).err().unwrap_or(error);
    check_form_origin(&app, &request).map_err(charge)?;
    Ok(run_form(request, next).await)
}

fn check_form_origin(app: &SharedApp, request: &Request) -> Result<()> {
    csrf::check_origin(request.method(), request.headers(), &app.settings.base_url)
}

async fn run_form(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(FORM_RULES);
    next.run(request).await
}

fn charge_request(app: &SharedApp, request: &Request, policy: RatePolicy) -> Result<()> {
    match request.extensions().get::<Arc<RequestContext>>() {
        Some(context) => context.charge_address(app, policy),
        None => Err(Error::internal("a request has no context")),
    }
}

fn no_route(app: &SharedApp, request: &Request, html_routes: &HtmlRoutes) -> Response {
    let refused = || Error::new(Code::NotFound, "There is no such route. The routes are listed in /api/openapi.json.");
    match charge_request(app, request, RatePolicy::Public) {
        Ok(()) => html_routes.find_redirect(request).unwrap_or_else(|| refused().into_response()),
        Err(error) => error.into_response(),
    }
}

async fn no_method(State(app): State<SharedApp>, request: Request) -> Error {
    let refused = || Error::new(Code::MethodNotAllowed, "The Allow header lists the methods of this route.");
    charge_request(&app, &request, RatePolicy::Public).err().unwrap_or_else(refused)
}

/// CORS, off unless the operator lists origins. Cookies are never allowed across origins; clients there use keys.
fn cors_layer(app: &SharedApp) -> Option<CorsLayer> {
    let origins = &app.settings.cors_origins;
    let headers =
        ["authorization", "x-api-key", "content-type", "idempotency-key", "if-match", "x-request-id", "traceparent"];
    let exposed = [
        "etag",
        "link",
        "location",
        "retry-after",
        "x-request-id",
        "ratelimit",
        "ratelimit-policy",
        "idempotency-replayed",
    ];
    (!origins.is_empty()).then(|| {
        CorsLayer::new()
            .allow_origin(origins.clone())
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers(headers.map(header::HeaderName::from_static))
            .expose_headers(exposed.map(header::HeaderName::from_static))
    })
}
