//! What this node knows of how the service is, for whoever asks. A crowd that asks costs no more than one who does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kernel::base::{MINUTE_MS, Result, SECOND_MS, Timestamp};
use kernel::http::App;
use kernel::jobs::{Node, lanes};

use webhooks::WEBHOOK_LANE;
use workflows::WORKFLOW_LANE;

/// Shorter than anybody waits for a page. A database that is silent for longer does not serve people.
const PROBE_MAX: Duration = Duration::from_secs(2);
/// A result is shared for this long: each question is a job of the database's writer.
const PROBE_SHARED_MS: i64 = SECOND_MS;
/// A figure that was not taken again for so long is nobody's any more: it is taken every few seconds.
const MEASURED_MAX_MS: i64 = MINUTE_MS;

/// It is the same for all who have a copy of this.
#[derive(Clone, Default)]
pub struct Watched(Arc<Known>);

#[derive(Default)]
struct Known {
    /// When the database was asked last, and whether it answered.
    database: tokio::sync::Mutex<Option<(Timestamp, bool)>>,
    /// When the queue was looked at last, and for how long the first of it had waited then.
    queue: Mutex<Option<(Timestamp, i64)>>,
}

impl Watched {
    /// Whether reads and writes are served, as of a second ago at most.
    pub(super) async fn is_database_there(&self, app: &App) -> bool {
        let mut last = self.0.database.lock().await;
        let now = app.world.now();
        let before = match *last {
            Some((at, answered)) if is_within(at, now, PROBE_SHARED_MS) => return answered,
            Some((_, answered)) => answered,
            None => false,
        };
        // Already now, so that clients that ask and go away before the answer cost no more than others.
        *last = Some((now, before));
        let answered = probe(app).await;
        // By the time of the answer: whoever has waited for it meanwhile takes it.
        *last = Some((app.world.now(), answered));
        answered
    }

    /// For how long the first work that is due has waited; none if that is not known.
    pub(super) fn queue_lag_ms(&self, now: Timestamp) -> Option<i64> {
        let noted = *self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        noted.filter(|(at, _)| is_within(*at, now, MEASURED_MAX_MS)).map(|(_, lag_ms)| lag_ms)
    }

    fn note_queue(&self, at: Timestamp, lag_ms: i64) {
        *self.0.queue.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, lag_ms));
    }
}

/// Also false for a moment to come: a clock that was set back must not keep an old answer alive.
fn is_within(at: Timestamp, now: Timestamp, ms: i64) -> bool {
    (0..ms).contains(&(now.as_millis() - at.as_millis()))
}

async fn probe(app: &App) -> bool {
    match tokio::time::timeout(PROBE_MAX, app.ping()).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => tracing::warn!(%error, "the database does not answer"),
        Err(_) => tracing::warn!("the database is silent"),
    }
    false
}

/// Looks for how long the first of what is due has waited for a node: deliveries of webhooks and runs of workflows. What
/// an endpoint or a step itself makes wait is not among it.
pub async fn measure(node: &Node) -> Result<()> {
    let now = node.world.now();
    let mut lag_ms = 0;
    for kind in [WEBHOOK_LANE, WORKFLOW_LANE] {
        let due = lanes::longest_due(&node.store, kind, now).await?;
        lag_ms = due.map_or(0, |due| now.as_millis() - due.as_millis()).max(lag_ms);
    }
    let watched: Watched = node.settings.of_feature();
    watched.note_queue(now, lag_ms);
    Ok(())
}
