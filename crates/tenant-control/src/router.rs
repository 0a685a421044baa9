//! One table: every path, in the order of the specification.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use kernel::base::Result;
use kernel::http::{Api, Document, DocumentInfo, Page, Policy, Shared};
use kernel::operations;
use utoipa_axum::routes;

use crate::catalogue;
use crate::features::{
    api_keys, asset_inventory, audit, devices, inventory, openapi, organizations, pages, probes, search, session, sso,
    tickets, users, webhooks, workflows,
};

/// The service and the document that describes it.
pub fn build(api: Api) -> Result<(Router, Arc<Document>)> {
    api.finish(&document_info()?)
}

/// Every route.
pub fn table(app: &Shared) -> Api {
    Api::new(app.clone())
        .public(Policy::Public, routes!(openapi::get))
        .tenant(operations!(
            api_keys::routes::list,
            api_keys::routes::create,
            api_keys::routes::replace,
            api_keys::routes::revoke
        ))
        .tenant(operations!(
            webhooks::routes::list,
            webhooks::routes::create,
            webhooks::routes::replace,
            webhooks::routes::delete
        ))
        .tenant(operations!(tickets::routes::list, tickets::routes::create, tickets::routes::change))
        .tenant(operations!(
            workflows::routes::list,
            workflows::routes::act,
            workflows::routes::change,
            workflows::routes::delete
        ))
        .tenant(operations!(search::routes::search))
        .tenant(operations!(asset_inventory::routes::list))
        .public(Policy::Auth, routes!(sso::routes::begin))
        // Own extras of the contract.
        .tenant(operations!(webhooks::deliveries::routes::list, webhooks::deliveries::routes::act))
        .tenant(operations!(webhooks::events::routes::list))
        .tenant(operations!(session::routes::get, session::routes::delete))
        .tenant(operations!(audit::routes::list))
        .tenant(operations!(
            organizations::routes::list,
            organizations::routes::create,
            organizations::routes::replace,
            organizations::routes::delete
        ))
        .tenant(operations!(users::routes::list, users::routes::create, users::routes::replace, users::routes::disable))
        .schema::<Page<api_keys::ApiKey>>()
        .schema::<api_keys::NewKey>()
        .schema::<Page<webhooks::Webhook>>()
        .schema::<webhooks::NewWebhook>()
        .schema::<Page<webhooks::deliveries::Delivery>>()
        .schema::<webhooks::events::document::CataloguePage>()
        .schema::<webhooks::events::document::FeedPage>()
        .schema::<Page<tickets::Ticket>>()
        .schema::<tickets::TicketDetail>()
        .schema::<tickets::View>()
        .schema::<Page<tickets::Comment>>()
        .schema::<Page<tickets::Change>>()
        .schema::<tickets::UpdatedTicket>()
        .schema::<tickets::CommentedTicket>()
        .schema::<Page<workflows::Workflow>>()
        .schema::<Page<workflows::Run>>()
        .schema::<workflows::RunDetail>()
        .schema::<workflows::routes::View>()
        .schema::<workflows::ApprovalRequested>()
        .schema::<workflows::actions::CustomEvent>()
        .schema::<search::routes::Found>()
        .schema::<search::Highlight>()
        .schema::<search::Type>()
        .schema::<Page<asset_inventory::shown::Shown>>()
        .schema::<asset_inventory::shown::Shown>()
        .schema::<Page<devices::Change>>()
        .schema::<asset_inventory::Summary>()
        .schema::<asset_inventory::Part>()
        .schema::<asset_inventory::Format>()
        .schema::<asset_inventory::View>()
        .schema::<devices::UpdatedDevice>()
        .schema::<session::Session>()
        .schema::<Page<audit::AuditEntry>>()
        .schema::<Page<organizations::Organization>>()
        .schema::<organizations::UpdatedOrganization>()
        .schema::<Page<users::User>>()
        .schema::<users::UpdatedUser>()
        .schema::<sso::routes::SignOnBegun>()
        // For agents.
        .internal(Method::POST, inventory::routes::PATH, inventory::routes::receive)
        .internal(Method::GET, inventory::routes::PATH, inventory::routes::configure)
        // Pages for people.
        .page("/", Policy::Public, pages::home)
        .page("/api/rate-limits/", Policy::Public, pages::rate_limits)
        .page("/documentation/", Policy::Public, pages::documentation)
        .page("/documentation/api/", Policy::Public, pages::library)
        .page("/documentation/api/{name}/", Policy::Public, pages::library)
        .page("/documentation/guides/", Policy::Public, pages::library)
        .page("/documentation/guides/{name}/", Policy::Public, pages::library)
        .page("/documentation/errors/", Policy::Public, pages::errors)
        .page("/documentation/changelog/", Policy::Public, pages::changelog)
        .page("/documentation/changelog/atom.xml", Policy::Public, pages::feed)
        .page("/status/", Policy::Public, pages::status)
        .charging_page("/signin", pages::signin)
        .charging_form("/signin", pages::begin_signin)
        .charging_form(pages::REDEEM_PATH, pages::redeem_link)
        // Only what does not fit is charged.
        .charging_page(sso::CALLBACK_PATH, pages::callback)
        .form("/signout", Policy::Public, pages::signout)
        // Finding the caller charges its own budget, or the address's when there is none.
        .charging_page("/overview", pages::overview)
        .refusal_page(pages::refused)
        .free("/assets/style.css", pages::stylesheet)
        .free("/assets/overview.js", pages::overview_script)
        .free("/assets/icon.svg", pages::icon)
        // For operators.
        .free("/healthz", probes::healthz)
        .free("/readyz", probes::readyz)
}

fn document_info() -> Result<DocumentInfo> {
    Ok(DocumentInfo {
        title: "Tenant Control API",
        version: env!("CARGO_PKG_VERSION"),
        description: DESCRIPTION,
        tags: vec![
            ("Control plane", "API keys, webhook endpoints, organizations, users and the audit trail of a tenant."),
            ("Service workflows", "Tickets of the service desk, and workflows across the modules."),
            (
                "Search and reporting",
                "What a tenant has, found as people type it; the inventory of devices, in lists, files and figures.",
            ),
            ("Session", "Signing on, who is calling, and signing out."),
            ("Schema", "This document."),
        ],
        webhooks: catalogue::kinds()?.to_vec(),
        codes: catalogue::codes(),
    })
}

const DESCRIPTION: &str = "\
One control plane for tickets, devices, cloud machines and backups of many customers.

**Credentials.** `Authorization: Bearer <key>`, `X-API-Key: <key>` or the session cookie; more than one is refused.

**Records.** A path is a collection; one record is named by `?id=`. Records carry `version`, shown as `ETag` and \
honoured in `If-Match`. Unknown parameters and fields are refused, never ignored.

**Lists.** `{data, has_more, next_cursor}`, newest first; give `next_cursor` back as `cursor`. A page may hold fewer than \
`limit`, when its records are large or rare ones were sought: go by `has_more`.

**Retries.** Send an `Idempotency-Key` with every POST and PATCH: a repeat replays the first answer.

**Limits.** Every answer carries `RateLimit-Policy` and `RateLimit`; the table is at /api/rate-limits/.

**Errors.** RFC 9457 problems with a stable `code`; each is explained at /documentation/errors/.";
