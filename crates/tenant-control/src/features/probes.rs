//! `/healthz` and `/readyz`, for whatever watches the process.

use axum::extract::State;
use axum::http::StatusCode;
use kernel::http::Shared;

/// The process runs and answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The database answers, so traffic may come.
pub async fn readyz(State(app): State<Shared>) -> (StatusCode, &'static str) {
    match app.store.ping().await {
        Ok(()) => (StatusCode::OK, "ready\n"),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n")
        }
    }
}
