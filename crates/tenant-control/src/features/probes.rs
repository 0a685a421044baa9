//! `/healthz` and `/readyz`, for whatever watches the process.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use kernel::http::Shared;

/// As long as a request waits for a connection. A database that is silent for longer does not serve.
const READY_MAX: Duration = Duration::from_secs(5);

/// The process runs and answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The database answers, so traffic may come.
pub async fn readyz(State(app): State<Shared>) -> (StatusCode, &'static str) {
    match tokio::time::timeout(READY_MAX, app.store.ping()).await {
        Ok(Ok(())) => return (StatusCode::OK, "ready\n"),
        Ok(Err(error)) => tracing::warn!(%error, "not ready"),
        Err(_) => tracing::warn!("not ready: the database is silent"),
    }
    (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n")
}
