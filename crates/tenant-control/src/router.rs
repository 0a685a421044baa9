//! The route table: every path, in the order of the specification.

use std::sync::Arc;

use axum::Router;
use kernel::base::Result;
use kernel::http::{Api, DocumentInfo, OpenApiDocument, SharedApp};

use crate::features;

/// The router and the OpenAPI document that describes it.
pub fn build_router(api: Api) -> Result<(Router, Arc<OpenApiDocument>)> {
    api.build_router(&document_info()?)
}

/// Every route: the operations of the specification, then the others, then what is not in the document.
pub fn route_table(app: &SharedApp) -> Api {
    let features = features::install().features;
    let api = features.iter().fold(Api::new(app.clone()), |api, feature| (feature.operations)(api));
    features.iter().fold(api, |api, feature| (feature.more_operations)(api))
}

fn document_info() -> Result<DocumentInfo> {
    Ok(DocumentInfo {
        title: "Tenant Control API",
        version: env!("CARGO_PKG_VERSION"),
        description: DESCRIPTION,
        tags: vec![
            ("Control plane", "API keys, webhook endpoints, organizations, users and the audit trail of a tenant."),
            ("Service workflows", "Tickets of the service desk, and workflows across the modules."),
            ("Search and reporting", "Full-text search; the device inventory as lists, files and figures."),
            ("Cloud", "Credentials for clouds and what they may do; the machines there, and making new ones."),
            ("Recovery", "The backup policy, and how the backups of each customer stand."),
            ("Session", "Signing on, who is calling, and signing out."),
            ("Schema", "This document."),
        ],
        webhooks: features::install().event_kinds()?.to_vec(),
        codes: features::install().error_codes.clone(),
    })
}

const DESCRIPTION: &str = "\
A control plane for the IT of many customers: their tickets, devices and people, driven by an HTTP API that is safe to automate \
against.

**Credentials.** `Authorization: Bearer <key>`, `X-API-Key: <key>` or the session cookie; more than one is refused.

**Records.** A path is a collection; one record is named by `?id=`. Records carry `version`, shown as `ETag` and \
honoured in `If-Match`. Unknown parameters and fields are refused, never ignored.

**Lists.** `{data, has_more, next_cursor}`, newest first; give `next_cursor` back as `cursor`. A page may hold fewer than \
`limit`, when its records are large or rare ones were sought: go by `has_more`. A parameter that takes several values is \
written with commas (`status=new,open`) or repeated (`status=new&status=open`); any other is given once.

**Retries.** Send an `Idempotency-Key` with every POST and PATCH: a repeat replays the first answer.

**Limits.** Every answer carries `RateLimit-Policy` and `RateLimit`; the table is at /api/rate-limits/.

**Errors.** RFC 9457 problems with a stable `code`; each is explained at /documentation/errors/. An operation lists the codes \
that it can answer, by status; `x-error-codes` has them for programs.";
