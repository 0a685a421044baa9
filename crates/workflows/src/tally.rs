//! Steps and runs in figures, for `/metrics`: counted when what became of them is committed.

use kernel::base::Word;

use super::Status;

/// An attempt of a step that was noted, or the end of a step that came to none.
pub fn count_step(action: &'static str, outcome: &'static str) {
    metrics::counter!("workflow_steps_total", "action" => action, "outcome" => outcome).increment(1);
}

/// A run, if it has ended.
pub fn count_run(status: Status) {
    if status.is_over() {
        metrics::counter!("workflow_runs_total", "status" => status.as_str()).increment(1);
    }
}
