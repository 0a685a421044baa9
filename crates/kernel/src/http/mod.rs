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
mod body;
mod caller;
mod compress;
mod context;
mod csrf;
mod csv;
mod cursors;
mod document;
mod fields;
mod form;
mod guest;
mod idempotency;
mod limiter;
mod manner;
mod meters;
mod operation;
mod page;
mod param;
mod params;
mod pass;
mod patch;
mod patience;
mod payer;
mod people;
mod places;
mod precondition;
mod problem;
mod rate_state;
mod raw;
mod reply;
mod rest;
mod rules;
mod server;
mod stream;
mod tls;
mod trace;

pub use accept::prefers;
pub use access::{Access, AskedGrant, Grant};
pub use address::ClientAddress;
pub use admission::{AdmissionLimits, WorkPermit};
pub use api::Api;
pub use app::{App, BaseUrl, Settings, Shared};
pub use body::{FromBody, Json, Received};
pub use caller::Caller;
pub use context::Context;
pub use csrf::check as check_csrf;
pub use csv::{CsvLine, unguarded};
pub use cursors::Cursors;
pub use document::{Document, DocumentInfo, DocumentOnce, finish_document};
pub use fields::{Field, Fields, Read, read_object};
pub use form::{Form, FormFields};
pub use idempotency::{Idempotency, Once, shorten_stored_answers};
pub use limiter::{Limiter, Policy, PolicyLimit, RateTable, WINDOW_SECONDS};
pub use manner::{RefusalPage, Speak, Spoken};
pub use operation::{Arguments, InternalDoor, Operation, TenantDoor};
pub use page::{LIMIT_DEFAULT, LIMIT_MAX, OneOrPage, PAGE_BYTES_MAX, Page, PageBytes, PageRequest, PageWith};
pub use param::Param;
pub use params::{FromParams, LIST_MAX, One, Params, Query};
pub use pass::{Holder, Pass, PassOwner};
pub use patch::Patch;
pub use patience::Patience;
pub use precondition::IfMatch;
pub use problem::Problem;
pub use raw::{Raw, RawAnswer, RawBody};
pub use reply::{Accepted, Created, Documented, NoContent, Ok200, Record, Rendered, Reply, Versioned, documented};
pub use rules::{BODY_BYTES_MAX, Route, Rules};
pub use server::{ConnectionLimits, Listener, Server};
pub use stream::{Encoding, Rows, Streamed, Streamer};
pub use tls::{Certificates, TlsFiles};
pub use trace::TraceParent;

pub(crate) use idempotency::STATEMENTS as IDEMPOTENCY_STATEMENTS;
pub(crate) use limiter::STATEMENTS as LIMITER_STATEMENTS;
