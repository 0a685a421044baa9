//! The health of the service as this node knows it. Results are shared, so many requests cost no more than one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kernel::base::{MINUTE_MS, Result, SECOND_MS, Timestamp};
use kernel::http::App;
use kernel::jobs::{ServerNode, lanes};

use cloud_fleet::CLOUD_LANE;
use webhooks::WEBHOOK_LANE;
use workflows::WORKFLOW_LANE;

/// The timeout of a probe, shorter than anybody waits for a page. A slower database counts as down.
const PROBE_MAX: Duration = Duration::from_secs(2);
/// How long a result is shared: each probe is a job of the database's writer.
const PROBE_SHARED_MS: i64 = SECOND_MS;
/// A measurement older than this is not used: a new one is made every few seconds.
const MEASURED_MAX_MS: i64 = MINUTE_MS;

/// All clones share one state.
#[derive(Clone, Default)]
pub struct HealthMonitor(Arc<MonitorState>);

#[derive(Default)]
struct MonitorState {
    /// When the database was last probed, and whether it answered.
    database: tokio::sync::Mutex<Option<(Timestamp, bool)>>,
    /// When the queue was last measured, and how long its oldest due work had waited.
    queue: Mutex<Option<(Timestamp, i64)>>,
}

impl HealthMonitor {
    /// Whether reads and writes are served, as of a second ago at most.
    pub(super) async fn is_database_up(&self, app: &App) -> bool {
        let mut last = self.0.database.lock().await;
        let now = app.env.now();
        let before = match *last {
            Some((at, answered)) if is_recent(at, now, PROBE_SHARED_MS) => return answered,
            Some((_, answered)) => answered,
            None => false,
        };
        // Saved before the probe, so that clients that disconnect early cause no further probes.
        *last = Some((now, before));
        let answered = ping_database(app).await;
        // Saved with the time of the answer, so that waiting requests share it.
        *last = Some((app.env.now(), answered));
        answered
    }

    /// How long the oldest due work has waited; `None` if there is no recent measurement.
    pub(super) fn queue_lag_ms(&self, now: Timestamp) -> Option<i64> {
        let measured = *self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        measured.filter(|(at, _)| is_recent(*at, now, MEASURED_MAX_MS)).map(|(_, lag_ms)| lag_ms)
    }

    fn save_queue_lag(&self, at: Timestamp, lag_ms: i64) {
        *self.0.queue.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, lag_ms));
    }
}

/// Also false for a time in the future: after a clock was set back, an old result must not stay valid.
fn is_recent(at: Timestamp, now: Timestamp, ms: i64) -> bool {
    (0..ms).contains(&(now.as_millis() - at.as_millis()))
}

async fn ping_database(app: &App) -> bool {
    match tokio::time::timeout(PROBE_MAX, app.ping_store()).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => tracing::warn!(%error, "database probe failed"),
        Err(_) => tracing::warn!("database probe timed out"),
    }
    false
}

/// Measures how long the oldest due work of each kind has waited for a node. Waiting caused by an endpoint, a step or a cloud
/// is not included.
pub async fn measure_queue(node: &ServerNode) -> Result<()> {
    let now = node.env.now();
    let mut lag_ms = 0;
    let queues = [
        (CLOUD_LANE, metrics::gauge!("cloud_queue_lag_seconds")),
        (WEBHOOK_LANE, metrics::gauge!("webhook_queue_lag_seconds")),
        (WORKFLOW_LANE, metrics::gauge!("workflow_queue_lag_seconds")),
    ];
    for (kind, gauge) in queues {
        let due = lanes::find_longest_due(&node.store, kind, now).await?;
        let late_ms = due.map_or(0, |due| now.as_millis() - due.as_millis());
        gauge.set(f64::from(u32::try_from(late_ms).unwrap_or(u32::MAX)) / 1_000.0);
        lag_ms = lag_ms.max(late_ms);
    }
    let monitor: HealthMonitor = node.settings.feature_settings();
    monitor.save_queue_lag(now, lag_ms);
    Ok(())
}
