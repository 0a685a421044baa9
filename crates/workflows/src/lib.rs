//! Workflows: their definitions, their runs, and the events about them.
//!
//! `definition` parses requests and `check` validates them; `runs` keeps the history, `engine` does the work that is due.
//! Templates, schedules and input schemas are modules of their own, independent of the rest, and expressions are a crate.

pub mod actions;
pub mod check;
pub mod counters;
pub mod definition;
mod document;
pub mod dry_run {
    pub mod store;
}
pub mod engine;
pub mod feature;
/// Wakes the lane of workflows when an event is published.
pub mod follow {
    pub mod store;
}
pub mod jobs;
mod json_depth;
mod pointer;
/// Clamps timestamps in the future, for `admin clock repair`.
pub mod repair {
    pub mod store;
}
/// Deletes old runs and deleted workflows.
pub mod retention {
    pub mod store;
}
mod records;
pub mod routes;
pub mod run_plan;
pub mod runs;
pub mod save_check;
pub mod schema;
pub mod secrets;
pub mod store;
mod stored;
pub mod template;

use std::time::Duration;

use kernel::base::{ActorRef, DAY_MS, Id, Identified, Timestamp};
use kernel::events::EventKind;
use kernel::http::Record;
pub use kernel::jobs::steps::WorkStatus as Status;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub use records::{
    ApprovalQuestion, ApprovalRequested, RunDetail, RunError, RunStep, RunTrigger, StepAttempt, StepError, TriggerKind,
    WorkflowRun,
};

pub const WORKFLOW_RUN_STARTED: EventKind<WorkflowRun> = EventKind::new("workflow.run.started", "A run began to act.");
pub const WORKFLOW_RUN_SUCCEEDED: EventKind<WorkflowRun> =
    EventKind::new("workflow.run.succeeded", "A run succeeded; any failed steps were allowed to fail.");
pub const WORKFLOW_RUN_FAILED: EventKind<WorkflowRun> =
    EventKind::new("workflow.run.failed", "A run failed or ran out of time; `error` says where and why.");
pub const WORKFLOW_RUN_CANCELLED: EventKind<WorkflowRun> =
    EventKind::new("workflow.run.cancelled", "Somebody cancelled a run, or deleted its workflow.");
pub const WORKFLOW_APPROVAL_REQUESTED: EventKind<ApprovalRequested> = EventKind::new(
    "workflow.approval.requested",
    "A run waits until somebody approves or rejects; `approval` says what.",
);

pub type WorkflowId = Id<Workflow>;

impl Identified for Workflow {
    const PREFIX: &'static str = "wf";
    const ABOUT: &'static str = "The workflow to act on.";
}

pub type RunId = Id<WorkflowRun>;

impl Identified for WorkflowRun {
    const PREFIX: &'static str = "run";
    const ABOUT: &'static str = "The run to act on.";
}

/// The kind of the lanes on which workflows run, and the key of each tenant's only lane.
pub const WORKFLOW_LANE: &str = "workflow";
pub const LANE_KEY: &str = "all";
/// The name under which workflows follow events.
pub const FOLLOWER: &str = "workflows";

/// Workflows per tenant.
pub const WORKFLOWS_MAX: i64 = 200;
pub const STEPS_MAX: usize = 50;
/// A whole definition as JSON.
pub const DEFINITION_BYTES_MAX: usize = 128 << 10;
/// The input of a run that is started by hand.
pub const INPUT_BYTES_MAX: usize = 64 << 10;
/// All inputs and outputs of the steps of one run: a request for the run reads and returns all of them.
pub const RUN_BYTES_MAX: usize = 4 << 20;
/// A step with less input and output is not checked against the sum of the other steps.
pub const STEP_BYTES_SMALL: usize = 16 << 10;
/// Expressions per definition.
pub const EXPRESSIONS_MAX: usize = 500;
pub const RETRIES_MAX: i64 = 10;
/// Statuses that a field can list.
pub const STATUSES_MAX: usize = 20;
pub const BACKOFF_SECONDS_MAX: i64 = 24 * 60 * 60;
pub const BACKOFF_SECONDS_DEFAULT: i64 = 10;
/// The timeout of a step, and the length of a wait.
pub const SECONDS_MAX: i64 = 28 * 24 * 60 * 60;
/// Runs in one chain, in which each run caused the next.
pub const CHAIN_DEPTH_MAX: i64 = 8;

/// Workflow settings of the operator.
#[derive(Clone, Debug)]
pub struct WorkflowSettings {
    /// Runs per tenant in the status `running`; further runs are queued. Runs in the status `waiting` do not count.
    pub runs_in_flight: i64,
    /// Queued runs per tenant. Beyond that, events wait in the feed and calls are refused.
    pub runs_queued: i64,
    /// Runs in all chains of one root cause (an event, a call or a time of a schedule). With a limit on depth alone, two
    /// workflows that start on every event would make tens of thousands of runs of one ticket.
    pub runs_chained: i64,
    /// A run that takes longer is ended.
    pub run_max_ms: i64,
    /// For one `http.request`, the response body included.
    pub http_timeout: Duration,
    /// Steps of one tenant that its node runs at once.
    pub steps_under_way: usize,
    /// Tenants whose workflows one node works on at once.
    pub lanes_max: usize,
    /// How long a node works on a tenant's lane while other lanes wait for a permit.
    pub tenure: Duration,
    /// How long the process waits for running steps when it stops.
    pub stop_max: Duration,
}

impl WorkflowSettings {
    /// How many of the running steps may be requests: servers that do not answer must not block the tenant's other steps.
    pub fn requests_under_way(&self) -> usize {
        (self.steps_under_way * 3 / 4).max(1)
    }
}

impl Default for WorkflowSettings {
    fn default() -> Self {
        WorkflowSettings {
            runs_in_flight: 100,
            runs_queued: 50_000,
            runs_chained: 1_000,
            run_max_ms: 28 * DAY_MS,
            http_timeout: Duration::from_mins(1),
            steps_under_way: 32,
            lanes_max: 512,
            tenure: Duration::from_secs(5),
            stop_max: Duration::from_secs(5),
        }
    }
}

/// The definition in a revision of a workflow. Header values are masked wherever it is shown or stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    pub name: String,
    pub on: Trigger,
    pub input_schema: Option<Value>,
    pub steps: Vec<WorkflowStep>,
}

/// What starts a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WorkflowTrigger)]
pub enum Trigger {
    Event(EventTrigger),
    Schedule(ScheduleTrigger),
    Manual(ManualTrigger),
}

/// Events of these kinds, if they pass the filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowEventTrigger)]
pub struct EventTrigger {
    /// Kinds of events, `<family>.*`, or `*`. Each needs the `read` scope of its family.
    pub types: Vec<String>,
    /// A CEL expression over `event`; without one every event counts.
    #[serde(rename = "if")]
    #[schema(required)]
    pub condition: Option<String>,
}

/// Starts on a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowScheduleTrigger)]
pub struct ScheduleTrigger {
    /// Five fields: minute, hour, day of the month, month, day of the week.
    pub cron: String,
    /// A name of the IANA time zone database.
    pub timezone: String,
}

/// Starts only when called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowManualTrigger)]
pub struct ManualTrigger {}

/// One step of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowStep)]
pub struct WorkflowStep {
    pub id: String,
    /// The action.
    pub uses: String,
    /// What the action is given; strings may hold `${{ CEL }}`.
    pub with: Map<String, Value>,
    /// A CEL expression; when it is false the step is skipped, and what needs it too.
    #[serde(rename = "if")]
    #[schema(required)]
    pub condition: Option<String>,
    /// Steps that must be done before.
    pub needs: Vec<String>,
    pub retry: RetryRule,
    /// Counted from when the step is ready, waiting and retries included.
    #[schema(required)]
    pub timeout_seconds: Option<i64>,
    pub on_error: OnError,
    #[serde(default)]
    pub on_skipped: OnSkipped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowRetry)]
pub struct RetryRule {
    /// Retries after the first attempt.
    pub max: i64,
    /// Before the first retry; doubled for each that follows, up to an hour. A `Retry-After` of the server is waited for,
    /// up to a day.
    pub backoff_seconds: i64,
    /// Statuses from 400 to 499 that `http.request` is retried after, besides 408, 409, 425 and 429.
    #[serde(default)]
    pub on_status: Vec<u16>,
}

impl Default for RetryRule {
    fn default() -> Self {
        RetryRule { max: 0, backoff_seconds: BACKOFF_SECONDS_DEFAULT, on_status: Vec::new() }
    }
}

kernel::string_enum! {
    /// What a failed step means for its run.
    #[derive(Deserialize)]
    #[schema(as = WorkflowOnError)]
    pub enum OnError { Fail "fail", Continue "continue" }
}

kernel::string_enum! {
    /// What it means for a step that one it needs was skipped.
    #[derive(Deserialize, Default)]
    #[schema(as = WorkflowOnSkipped)]
    pub enum OnSkipped {
        #[default]
        Skip "skip",
        Continue "continue",
    }
}

/// A workflow, with the revision in force.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "wf_01jd8z6v2mfkpb7h3q9xw5t4ra", "name": "Escalate", "enabled": true,
    "on": {"event": {"types": ["ticket.created"], "if": "event.data.priority == 'critical'"}}, "input_schema": null,
    "steps": [{"id": "note", "uses": "ticket.comment",
        "with": {"ticket_id": "${{ event.data.id }}", "body": "Somebody is on call.", "public": false},
        "if": null, "needs": [], "retry": {"max": 0, "backoff_seconds": 10, "on_status": []}, "timeout_seconds": null,
        "on_error": "fail", "on_skipped": "skip"}],
    "revision": 1, "next_run_at": null,
    "saved_by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"},
    "created_by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"},
    "version": 1, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z"
}))]
pub struct Workflow {
    #[schema(value_type = String)]
    pub id: WorkflowId,
    pub name: String,
    /// Whether it starts on events, on its schedule and on calls.
    pub enabled: bool,
    pub on: Trigger,
    /// The JSON Schema that the input of a call must fit.
    #[schema(required, value_type = Option<Object>)]
    pub input_schema: Option<Value>,
    pub steps: Vec<WorkflowStep>,
    /// Rises with each change of the definition. Runs keep theirs.
    pub revision: i64,
    /// When its schedule fires next.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub next_run_at: Option<Timestamp>,
    /// Who saved it: its runs have their rights.
    pub saved_by: ActorRef,
    pub created_by: ActorRef,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for Workflow {
    fn version(&self) -> i64 {
        self.version
    }
}
