//! What each series of `/metrics` means, for its HELP line. A test compares the names with those in the sources.

use metrics::{describe_counter, describe_gauge, describe_histogram};

pub const COUNTERS: &[(&str, &str)] = &[
    ("cloud_orders_total", "Orders of machines that ended or need attention, by outcome."),
    ("cloud_syncs_total", "Syncs of regions, by outcome."),
    ("cloud_verifications_total", "Verifications of cloud providers, by the status that they lead to."),
    ("log_lines_dropped_total", "Log lines that could not be written in time."),
    ("store_groups_failed", "Group commits of the embedded store that failed."),
    ("task_restarts_total", "Restarts of background tasks that had ended, by task."),
    ("tc_http_answers_broken_total", "Streamed answers that broke off."),
    ("tc_http_requests_total", "Answered requests, by method, route and status."),
    ("webhook_attempts_total", "Attempts to send a delivery, by outcome."),
    ("workflow_runs_total", "Runs of workflows, by the status that they came to."),
    ("workflow_steps_total", "Steps of workflows, by action and outcome."),
];

pub const GAUGES: &[(&str, &str)] = &[
    ("clock_ahead_seconds", "How far this node's clock is ahead of the database's; negative if it is behind."),
    ("cloud_queue_lag_seconds", "How long the first region or provider has been due."),
    ("figures_queue_depth", "Changes that are in no figure yet, counted up to 10,000."),
    ("outgoing_held", "1 if the server was started with --hold-outgoing, else 0."),
    ("search_build_documents", "Documents in the search index that is being built; 0 if none is."),
    ("search_documents", "Documents in the search index."),
    ("search_lag_seconds", "How far the search index is behind the store."),
    ("store_queue_depth", "Writes that wait for the writer of the embedded store."),
    ("tenant_control_build_info", "Always 1; the labels say which build this is."),
    ("webhook_queue_depth", "Deliveries of all tenants that wait, counted up to 10,000."),
    ("webhook_queue_lag_seconds", "How long the first delivery has been due."),
    ("workflow_queue_depth", "Queued runs of all tenants, counted up to 10,000."),
    ("workflow_queue_lag_seconds", "How long the first tenant's workflows have been due."),
];

pub const HISTOGRAMS: &[(&str, &str)] = &[
    ("store_commit_seconds", "Duration of a commit of the embedded store."),
    ("store_group_size", "Writes that one commit of the embedded store had."),
    ("tc_http_request_seconds", "Time from a request to its answer, by method and route."),
];

/// Gives every series its HELP line.
pub fn describe_all() {
    for (name, text) in COUNTERS {
        describe_counter!(*name, *text);
    }
    for (name, text) in GAUGES {
        describe_gauge!(*name, *text);
    }
    for (name, text) in HISTOGRAMS {
        describe_histogram!(*name, *text);
    }
}
