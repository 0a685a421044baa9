//! The arguments of `serve` about workflows.

use clap::Args;
use kernel::base::{DAY_MS, HOUR_MS};

use workflows::WorkflowSettings;

#[derive(Args, Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the names of the settings")]
pub struct WorkflowArgs {
    /// Concurrent runs per tenant; others are queued
    #[arg(long, value_name = "N", env = "TENANT_CONTROL_WORKFLOW_RUNS_IN_FLIGHT", default_value_t = 100,
          value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub workflow_runs_in_flight: i64,
    /// Queued runs per tenant; beyond that, events wait and calls are refused
    #[arg(long, value_name = "N", env = "TENANT_CONTROL_WORKFLOW_RUNS_QUEUED", default_value_t = 50_000,
          value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    pub workflow_runs_queued: i64,
    /// Runs that one event, call or schedule may start in a chain
    #[arg(long, value_name = "N", env = "TENANT_CONTROL_WORKFLOW_RUNS_CHAINED", default_value_t = 1_000,
          value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    pub workflow_runs_chained: i64,
    /// A run is ended after this long; must be less than --event-days [default: 28, or a little less than that]
    #[arg(long, value_name = "DAYS", env = "TENANT_CONTROL_WORKFLOW_RUN_DAYS",
          value_parser = clap::value_parser!(i64).range(1..=3650))]
    pub workflow_run_days: Option<i64>,
    /// How long runs that are over are kept
    #[arg(long, value_name = "DAYS", env = "TENANT_CONTROL_WORKFLOW_HISTORY_DAYS", default_value_t = 90,
          value_parser = clap::value_parser!(i64).range(1..=3650))]
    pub workflow_history_days: i64,
}

impl WorkflowArgs {
    pub fn workflow_settings(self, event_days: i64) -> WorkflowSettings {
        let defaults = WorkflowSettings::default();
        let shorter = defaults.run_max_ms.min(event_days * DAY_MS - HOUR_MS);
        WorkflowSettings {
            runs_in_flight: self.workflow_runs_in_flight,
            runs_queued: self.workflow_runs_queued,
            runs_chained: self.workflow_runs_chained,
            run_max_ms: self.workflow_run_days.map_or(shorter, |days| days * DAY_MS),
            ..defaults
        }
    }

    pub fn history_ms(self) -> i64 {
        self.workflow_history_days * DAY_MS
    }

    /// A run reads its event as long as it lasts, so it must not outlive the event.
    pub fn check_settings(self, event_days: i64) -> Result<(), String> {
        match self.workflow_run_days {
            Some(days) if days >= event_days => Err(format!(
                "--workflow-run-days {days} is not less than --event-days {event_days}: a run would outlive the event that \
                 started it. Keep events longer, or let runs end sooner."
            )),
            _ => Ok(()),
        }
    }
}
