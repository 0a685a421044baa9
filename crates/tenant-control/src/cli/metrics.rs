//! `/metrics` for Prometheus, on an address of its own.

pub mod descriptions;
mod process;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri, header};
use axum::response::IntoResponse;
use kernel::base::{Error, Result, run_blocking};
use kernel::http::{ConnectionLimits, Listener, Server};
use kernel::jobs::supervise_task;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::sync::watch::channel;

use super::log;

/// From a cached read to a request shortly before its timeout.
const SECONDS_BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Installs the recorder and starts the listener. Returns the bound address.
pub async fn start_metrics(address: SocketAddr) -> Result<SocketAddr> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| Error::internal(error.to_string()))?;
    descriptions::describe_all();
    metrics::gauge!("tenant_control_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    // The stop signal is never sent: metrics are served to the end of the process.
    let (_, running) = channel(false);
    let listener = Listener::bind(address, None).await?;
    let bound = listener.local_address().map_err(Error::internal)?;
    let upkeep = handle.clone();
    tokio::spawn(supervise_task("keeping metrics", running.clone(), move || keep_up(upkeep.clone())));
    let router = Router::new().fallback(move |uri: Uri| render_metrics(handle.clone(), uri));
    tokio::spawn(supervise_task("serving metrics", running, move || {
        Server::run(listener.clone(), router.clone(), ConnectionLimits::default(), std::future::pending())
    }));
    Ok(bound)
}

async fn keep_up(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_EVERY).await;
        handle.run_upkeep();
    }
}

async fn render_metrics(handle: PrometheusHandle, uri: Uri) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    if uri.path() != "/metrics" {
        return (StatusCode::NOT_FOUND, kind, "only /metrics is here\n".to_owned());
    }
    metrics::counter!("log_lines_dropped_total").absolute(log::dropped_lines());
    let process = run_blocking(|| Ok(process::render_process())).await.unwrap_or_default();
    (StatusCode::OK, kind, handle.render() + &process)
}

/// Shows whether the operator holds outgoing traffic.
pub fn record_hold(is_holding: bool) {
    metrics::gauge!("outgoing_held").set(if is_holding { 1.0 } else { 0.0 });
}
