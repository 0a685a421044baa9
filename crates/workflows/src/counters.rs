//! Counters of steps and runs for `/metrics`. They are incremented after the outcome is committed.

use kernel::base::StringEnum;

use super::Status;

/// Counts a saved attempt of a step, or a step that ended without an attempt.
pub fn count_step(action: &'static str, outcome: &'static str) {
    metrics::counter!("workflow_steps_total", "action" => action, "outcome" => outcome).increment(1);
}

/// Counts a run if it has ended.
pub fn count_run(status: Status) {
    if status.is_finished() {
        metrics::counter!("workflow_runs_total", "status" => status.as_str()).increment(1);
    }
}
