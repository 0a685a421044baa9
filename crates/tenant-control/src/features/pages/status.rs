//! `/status/`: the current health of the service, as a page and, for monitoring, as JSON. It names no tenant and no host. It
//! also answers while the database is down, always with 200: the page itself works, and its content says what does not.

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use kernel::base::{Error, MINUTE_MS, Result, SECOND_MS, Timestamp};
use kernel::http::{App, SharedApp, prefers_media_type};
use people::sso::ProviderCache;
use search::service::SearchService;
use serde::Serialize;

use super::health_monitor::HealthMonitor;
use super::page::HtmlPage;

#[derive(Template)]
#[template(path = "status.html")]
struct StatusPage<'a> {
    here: &'static str,
    base_url: &'a str,
    now: ServiceStatus,
    at: Timestamp,
}

#[derive(Serialize)]
struct ServiceStatus {
    /// Over the service's own components, without the providers.
    status: ComponentHealth,
    components: Vec<Component>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ComponentHealth {
    Ok,
    /// Works late, or in part.
    Degraded,
    Down,
}

/// The health of one part of the service.
#[derive(Serialize)]
struct Component {
    name: &'static str,
    status: ComponentHealth,
    /// For people.
    detail: &'static str,
    /// How far the component is behind; null if it cannot be behind, or if that is not known.
    lag_seconds: Option<u64>,
}

/// Due work that has waited longer is late. Leases of a dead node are taken over within half of this time.
const QUEUE_LATE_MS: i64 = MINUTE_MS;

pub async fn show_status(State(app): State<SharedApp>, headers: HeaderMap) -> Result<Response> {
    let now = check_status(&app).await;
    let vary = [(header::VARY, HeaderValue::from_static("accept"))];
    if prefers_media_type(&headers, "application/json", "text/html") {
        let json = serde_json::to_vec(&now).map_err(Error::internal)?;
        return Ok((vary, [(header::CONTENT_TYPE, "application/json")], json).into_response());
    }
    let base_url = app.settings.base_url.as_str();
    let page = HtmlPage::new(&StatusPage { here: "/status/", base_url, now, at: app.env.now() })?;
    Ok((vary, page).into_response())
}

async fn check_status(app: &App) -> ServiceStatus {
    let watched: HealthMonitor = app.settings.feature_settings();
    let served: SearchService = app.settings.feature_settings();
    let is_there = watched.is_database_up(app).await;
    let queue_lag_ms = watched.queue_lag_ms(app.env.now()).filter(|_| is_there);
    let providers: ProviderCache = app.settings.feature_settings();
    let mut components =
        vec![database_component(is_there), queue_component(app, is_there, queue_lag_ms), search_component(&served)];
    let status = if !is_there {
        ComponentHealth::Down
    } else if components.iter().all(|component| component.status == ComponentHealth::Ok) {
        ComponentHealth::Ok
    } else {
        ComponentHealth::Degraded
    };
    // The providers belong to tenants, so they do not count for the status of the service.
    components.push(provider_component(providers.health_counts()));
    ServiceStatus { status, components }
}

fn database_component(is_there: bool) -> Component {
    let (status, detail) = if is_there {
        (ComponentHealth::Ok, "Reads and writes are served.")
    } else {
        (ComponentHealth::Down, "The database does not answer. Nothing that was acknowledged is lost.")
    };
    Component { name: "database", status, detail, lag_seconds: None }
}

/// The queue is in the database.
fn queue_component(app: &App, is_there: bool, lag_ms: Option<i64>) -> Component {
    let (status, detail) = match lag_ms {
        _ if is_there && app.outbound.is_holding() => (
            ComponentHealth::Degraded,
            "The operator holds webhooks, requests of workflows and work on clouds: they are sent later.",
        ),
        None if !is_there => (ComponentHealth::Down, "Webhooks, workflows and clouds wait for the database."),
        None => (ComponentHealth::Degraded, "How late webhooks, workflows and clouds are is not known right now."),
        Some(lag_ms) if lag_ms >= QUEUE_LATE_MS => {
            (ComponentHealth::Degraded, "Webhooks, workflows or clouds are late.")
        }
        Some(_) => (ComponentHealth::Ok, "Webhooks, workflows and clouds are on time."),
    };
    let lag_seconds = lag_ms.map(|ms| (ms / SECOND_MS).unsigned_abs());
    Component { name: "queue", status, detail, lag_seconds }
}

/// The index of this node; each node has its own.
fn search_component(served: &SearchService) -> Component {
    let lag = served.lag();
    let (status, detail) = match (&lag, served.get()) {
        (None, _) => (ComponentHealth::Degraded, "The search index is being built; searches have to wait for it."),
        (Some(_), Ok(_)) => (ComponentHealth::Ok, "What is written is found within a second."),
        (Some(_), Err(_)) => {
            (ComponentHealth::Down, "The search index cannot be kept up to date, and does not answer.")
        }
    };
    Component { name: "search", status, detail, lag_seconds: lag.map(|lag| lag.as_secs()) }
}

/// The identity providers as of this node's last requests to them; tenants are not named.
fn provider_component((asked, away): (usize, usize)) -> Component {
    let (status, detail) = match (asked, away) {
        (_, 0) => (
            ComponentHealth::Ok,
            "The tenants' own identity providers answer, as far as they were asked. They do not count for the service as a \
             whole.",
        ),
        (asked, away) if away < asked => (
            ComponentHealth::Degraded,
            "Some of the tenants' own identity providers did not answer when last asked. They do not count for the service \
             as a whole.",
        ),
        _ => (
            ComponentHealth::Degraded,
            "None of the tenants' own identity providers answered when last asked. They do not count for the service as a \
             whole.",
        ),
    };
    Component { name: "providers", status, detail, lag_seconds: None }
}

impl ComponentHealth {
    fn word(self) -> &'static str {
        match self {
            ComponentHealth::Ok => "ok",
            ComponentHealth::Degraded => "degraded",
            ComponentHealth::Down => "down",
        }
    }

    /// Describes the service as a whole.
    fn sentence(self) -> &'static str {
        match self {
            ComponentHealth::Ok => "The service works.",
            ComponentHealth::Degraded => "The service works, but not all of it as it should.",
            ComponentHealth::Down => "The service cannot answer requests right now.",
        }
    }
}

impl StatusPage<'_> {
    /// To the second: `2026-11-15 09:30:12 UTC`.
    fn at_words(&self) -> String {
        let text = self.at.to_string();
        format!("{} UTC", text.get(..19).unwrap_or(&text).replace('T', " "))
    }
}
