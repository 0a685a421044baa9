//! The rules that all routes share: problem responses, strict query parameters and bodies, lists with signed cursors,
//! versions, idempotency, rate limits, request ids, load shedding, and the OpenAPI document.
//!
//! A handler follows the contract's order of checks: `caller: Access<R>`, `query.parse()?`, `body.read().await?`,
//! then its one transaction. Only the extractor of the caller can fail. The other extractors keep the raw value, which
//! the handler parses later.

mod accept;
mod access;
mod account;
mod address;
mod admission;
mod answer;
mod api;
mod app;
mod base_url;
mod body;
mod budgets;
mod caller;
mod compress;
mod connection_limits;
mod connection_timeouts;
mod context;
mod csrf;
mod csv;
mod cursors;
mod custom_credential;
mod document;
mod error_format;
mod fields;
mod form;
mod guest;
mod html_routes;
mod idempotency;
mod limiter;
mod operation;
mod page;
mod param;
mod params;
mod patch;
mod payer;
mod precondition;
mod problem;
mod rate_policy;
mod rate_state;
mod raw;
mod refusals;
mod reply;
mod request_layer;
mod request_metrics;
mod rules;
mod running_keys;
mod server;
mod settings;
mod stream;
mod tls;
mod trace;
mod unread_body;
mod usage_meter;

pub use accept::prefers_media_type;
pub use access::{Access, Grant, PendingGrant};
pub use address::ClientAddress;
pub use api::Api;
pub use app::{App, SharedApp};
pub use base_url::BaseUrl;
pub use body::{Json, ReceivedBody};
pub use budgets::{AdmissionLimits, WorkPermit};
pub use caller::Caller;
pub use connection_limits::ConnectionLimits;
pub use connection_timeouts::ConnectionTimeouts;
pub use context::RequestContext;
pub use csrf::check_origin as check_csrf;
pub use csv::{CsvLine, unguard_text};
pub use cursors::CursorSigner;
pub use custom_credential::{CredentialHolder, CredentialOwner, CustomCredential};
pub use document::{DocumentInfo, DocumentOnce, OpenApiDocument};
pub use error_format::{ErrorRenderer, RefusalPage, RenderedError};
pub use fields::{BodyField, BodyFields, FromBody, ParsedObject, read_object};
pub use form::{Form, FormFields};
pub use idempotency::{Idempotency, IdempotentReply, shorten_stored_answers};
pub use limiter::RateLimiter;
pub use operation::{Arguments, InternalDoor, Operation, TenantDoor};
pub use page::{
    LIMIT_DEFAULT, LIMIT_MAX, ListPage, OneOrPage, PAGE_BYTES_MAX, PageBytes, PageRequest, PageWith, json_size,
    load_records,
};
pub use param::QueryParam;
pub use params::{FromParams, LIST_MAX, Params, QueryString, RecordQuery};
pub use patch::PatchField;
pub use precondition::IfMatch;
pub use problem::ProblemDetails;
pub use rate_policy::{PolicyLimit, RatePolicy, RateTable, WINDOW_SECONDS};
pub use raw::{Raw, RawAnswer, RawBody};
pub use reply::{
    Accepted, Created, NoContent, Ok200, Record, RenderedReply, Reply, ResponseDocs, Versioned, document_response,
};
pub use rules::{BODY_BYTES_MAX, Route, Rules};
pub use server::{Listener, Server};
pub use settings::HttpSettings;
pub use stream::{RowBatch, RowEncoding, Streamed, Streamer};
pub use tls::{Certificates, TlsFiles};
pub use trace::TraceParent;
pub use usage_meter::{TenantUsage, UsageMeter};

pub(crate) use idempotency::STATEMENTS as IDEMPOTENCY_STATEMENTS;
pub(crate) use limiter::STATEMENTS as LIMITER_STATEMENTS;
