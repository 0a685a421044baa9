//! `/healthz` and `/readyz`, for load balancers and monitoring.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use feature_kit::Feature;
use kernel::http::{App, SharedApp};

pub const FEATURE: Feature = Feature {
    name: "probes",
    more_operations: |api| api.add_uncharged_route("/healthz", healthz).add_uncharged_route("/readyz", readyz),
    ..Feature::NEW
};

/// The timeout of a readiness check: as long as a request waits for a connection.
const READY_MAX: Duration = Duration::from_secs(5);
/// A result is cached for this long: anybody may probe, and each check is a job of the database's writer.
const READY_SHARED: Duration = Duration::from_secs(1);

/// The process runs and answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The database answers, so the node can take traffic.
pub async fn readyz(State(app): State<SharedApp>) -> (StatusCode, &'static str) {
    if is_ready(&app).await {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n")
    }
}

async fn is_ready(app: &App) -> bool {
    let mut last = app.last_probe.lock().await;
    let before = match *last {
        Some((at, ready)) if at.elapsed() < READY_SHARED => return ready,
        Some((_, ready)) => ready,
        None => false,
    };
    // Stored before the check, so that clients that disconnect before the response do not cause one check each.
    *last = Some((Instant::now(), before));
    let ready = ping_database(app).await;
    *last = Some((Instant::now(), ready));
    ready
}

async fn ping_database(app: &App) -> bool {
    match tokio::time::timeout(READY_MAX, app.ping_store()).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => tracing::warn!(%error, "not ready"),
        Err(_) => tracing::warn!("not ready: no answer from the database"),
    }
    false
}
