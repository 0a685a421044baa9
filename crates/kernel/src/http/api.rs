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

use super::app::Shared;
use super::context::{Context, Surroundings};
use super::csrf;
use super::document::{Document, DocumentInfo, DocumentOnce, finish_document, open, security};
use super::form::FORM;
use super::limiter::Policy;
use super::manner::RefusalPage;
use super::operation::{Arguments, InternalDoor, Operation, operations_of};
use super::people::People;
use crate::base::{Code, Error, Result};

/// Routes under construction.
pub struct Api {
    app: Shared,
    documented: OpenApiRouter<Shared>,
    undocumented: Router<Shared>,
    /// The OpenAPI document, for handlers that publish it. It is set when all routes are mounted.
    document: DocumentOnce,
    misplaced: Vec<String>,
    people: People,
}

#[expect(clippy::disallowed_methods, reason = "this is the one door to the router; everywhere else it is closed")]
impl Api {
    pub fn new(app: Shared) -> Self {
        let (documented, undocumented) = (OpenApiRouter::new(), Router::new());
        let document = DocumentOnce::default();
        Api { app, documented, undocumented, document, misplaced: Vec::new(), people: People::default() }
    }

    /// Operations on a tenant's data, each with its handler's rules; made by [`operations!`](crate::operations).
    #[must_use]
    pub fn tenant(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        for mut operation in operations {
            let needed = security(&operation.rules);
            operation.described().for_each(|described| described.security = Some(needed.clone()));
            self.documented = self.documented.routes(operation.routes);
        }
        self
    }

    /// Operations without authentication, charged to the address under `policy`. They can extract [`DocumentOnce`].
    #[must_use]
    pub fn public(mut self, policy: Policy, routes: UtoipaMethodRouter<Shared>) -> Self {
        let (schemas, mut paths, methods) = routes;
        let described = paths.paths.values_mut().flat_map(operations_of);
        described.for_each(|(_, described)| described.security = Some(open()));
        let charge = from_fn_with_state((self.app.clone(), policy), charge_page);
        let methods = methods.route_layer(charge).route_layer(Extension(self.document.clone()));
        self.documented = self.documented.routes((schemas, paths, methods));
        self
    }

    /// A schema that answers refer to, with the schemas it refers to itself: `auto_into_responses` documents an answer but
    /// does not collect its schemas. A test finds every dangling reference.
    #[must_use]
    pub fn schema<T: ToSchema>(mut self) -> Self {
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        self.documented.get_openapi_mut().components.get_or_insert_default().schemas.extend(schemas);
        self
    }

    /// An undocumented route below `/internal/`, for agents and other systems with their own kinds of credentials and
    /// bodies. Otherwise it is like any other route. (A route without authentication is a [page](Api::add_page).)
    #[must_use]
    pub fn internal<H, T>(mut self, method: Method, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Shared>,
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
    pub fn page<T: 'static>(mut self, path: &'static str, policy: Policy, handler: impl Handler<T, Shared>) -> Self {
        let charge = from_fn_with_state((self.app.clone(), policy), charge_page);
        let methods = get(handler).route_layer(charge).route_layer(Extension(self.document.clone()));
        self.undocumented = self.undocumented.route(path, methods);
        self.people.pages.push(path);
        self
    }

    /// A page whose handler charges its visitor itself, depending on the caller or on the request.
    #[must_use]
    pub fn charging_page<T: 'static>(mut self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.undocumented = self.undocumented.route(path, get(handler));
        self.people.pages.push(path);
        self
    }

    /// The target of an HTML form, charged to the address under `policy`. Cross-site requests are refused whether or not
    /// the visitor is signed in, because a form can sign the visitor in as another user, or out.
    #[must_use]
    pub fn form<T: 'static>(mut self, path: &'static str, policy: Policy, handler: impl Handler<T, Shared>) -> Self {
        let guard = from_fn_with_state((self.app.clone(), policy), guard_form);
        self.undocumented = self.undocumented.route(path, post(handler).route_layer(guard));
        self.people.forms.push(path);
        self
    }

    /// A form whose handler charges its sender itself. A cross-site request is charged to `public`.
    #[must_use]
    pub fn charging_form<T: 'static>(mut self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        let guard = from_fn_with_state(self.app.clone(), guard_charging_form);
        self.undocumented = self.undocumented.route(path, post(handler).route_layer(guard));
        self.people.forms.push(path);
        self
    }

    /// The page for a browser whose request to a page, a form or an unknown path is refused. API paths and other clients
    /// get a problem response.
    #[must_use]
    pub fn refusal_page(mut self, page: RefusalPage) -> Self {
        self.people.refusal_page = Some(page);
        self
    }

    /// A probe or a static file, which is neither charged nor documented.
    #[must_use]
    pub fn free<T: 'static>(mut self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.undocumented = self.undocumented.route(path, get(handler));
        self
    }

    /// The service and the document that describes it.
    pub fn finish(self, info: &DocumentInfo) -> Result<(Router, Arc<Document>)> {
        if let Some(path) = self.misplaced.first() {
            return Err(Error::internal(format!("{path} is not a route below /internal/")));
        }
        let (documented, openapi) = self.documented.split_for_parts();
        let document = Arc::new(finish_document(openapi, info)?);
        self.document.set(document.clone());
        let people = Arc::new(self.people);
        let around = Surroundings { app: self.app.clone(), people: people.clone() };
        let nowhere = move |State(app): State<Shared>, request: Request| ready(no_route(&app, &request, &people));
        let router = documented.merge(self.undocumented).fallback(nowhere).method_not_allowed_fallback(no_method);
        let router = match cors(&self.app) {
            Some(cors) => router.layer(cors),
            None => router,
        };
        // Outermost, so that the answer to a CORS preflight has its request id and budget too.
        let router = router.layer(around);
        Ok((router.with_state(self.app), document))
    }
}

async fn charge_page(State((app, policy)): State<(Shared, Policy)>, request: Request, next: Next) -> Response {
    match charge(&app, &request, policy) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn guard_form(State((app, policy)): State<(Shared, Policy)>, mut request: Request, next: Next) -> Response {
    let charged = charge(&app, &request, policy);
    match charged.and_then(|()| csrf::check(request.method(), request.headers(), &app.settings.base_url)) {
        Ok(()) => {
            request.extensions_mut().insert(FORM);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

async fn guard_charging_form(State(app): State<Shared>, mut request: Request, next: Next) -> Response {
    match csrf::check(request.method(), request.headers(), &app.settings.base_url) {
        Ok(()) => {
            request.extensions_mut().insert(FORM);
            next.run(request).await
        }
        Err(error) => charge(&app, &request, Policy::Public).err().unwrap_or(error).into_response(),
    }
}

fn charge(app: &Shared, request: &Request, policy: Policy) -> Result<()> {
    match request.extensions().get::<Arc<Context>>() {
        Some(context) => context.charge_address(app, policy),
        None => Err(Error::internal("a request has no context")),
    }
}

fn no_route(app: &Shared, request: &Request, people: &People) -> Response {
    let refused = || Error::new(Code::NotFound, "There is no such route. The routes are listed in /api/openapi.json.");
    match charge(app, request, Policy::Public) {
        Ok(()) => people.lead(request).unwrap_or_else(|| refused().into_response()),
        Err(error) => error.into_response(),
    }
}

async fn no_method(State(app): State<Shared>, request: Request) -> Error {
    let refused = || Error::new(Code::MethodNotAllowed, "The Allow header lists the methods of this route.");
    charge(&app, &request, Policy::Public).err().unwrap_or_else(refused)
}

/// CORS, off unless the operator lists origins. Cookies are never allowed across origins; clients there use keys.
fn cors(app: &Shared) -> Option<CorsLayer> {
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
