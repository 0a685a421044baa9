//! Runs and their steps, as they are shown.

use kernel::base::{ActorRef, Timestamp};
use kernel::http::Record;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{RunId, Status, WorkflowId};

/// A run of a workflow.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WorkflowRun, example = json!({
    "id": "run_01jd8z6v2mfkpb7h3q9xw5t4rc", "workflow_id": "wf_01jd8z6v2mfkpb7h3q9xw5t4ra", "workflow_name": "Escalate",
    "revision": 1, "status": "succeeded", "dry_run": false, "depth": 1,
    "trigger": {"type": "event", "event_id": "evt_01jd8z6v2mfkpb7h3q9xw5t4rd", "scheduled_for": null, "late": false, "by": null},
    "input": {}, "error": null, "deadline_at": "2026-12-13T08:00:00.000Z",
    "started_at": "2026-11-15T08:00:00.000Z", "ended_at": "2026-11-15T08:00:00.120Z",
    "version": 2, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.120Z"
}))]
pub struct WorkflowRun {
    #[schema(value_type = String)]
    pub id: RunId,
    #[schema(value_type = String)]
    pub workflow_id: WorkflowId,
    pub workflow_name: String,
    /// Of the workflow when the run began.
    pub revision: i64,
    pub status: Status,
    pub dry_run: bool,
    /// The position of this run in its chain of runs, from 1.
    pub depth: i64,
    pub trigger: RunTrigger,
    /// What it was given.
    #[schema(value_type = Object)]
    pub input: Value,
    #[schema(required)]
    pub error: Option<RunError>,
    /// When the run is ended at the latest.
    #[schema(value_type = String, format = DateTime)]
    pub deadline_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub ended_at: Option<Timestamp>,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for WorkflowRun {
    fn version(&self) -> i64 {
        self.version
    }
}

/// What started a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WorkflowRunTrigger)]
pub struct RunTrigger {
    #[serde(rename = "type")]
    pub kind: TriggerKind,
    #[schema(required)]
    pub event_id: Option<String>,
    /// The moment of the schedule.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub scheduled_for: Option<Timestamp>,
    /// Whether it began more than a minute late, because no server was running.
    pub late: bool,
    /// Who called.
    #[schema(required)]
    pub by: Option<ActorRef>,
}

kernel::string_enum! {
    #[schema(as = WorkflowTriggerKind)]
    pub enum TriggerKind { Event "event", Schedule "schedule", Manual "manual" }
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowRunError)]
pub struct RunError {
    pub code: String,
    pub detail: String,
    /// The step that failed.
    #[schema(required)]
    pub step_id: Option<String>,
}

/// A run with each of its steps.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WorkflowRunDetail, example = json!({
    "id": "run_01jd8z6v2mfkpb7h3q9xw5t4rc", "workflow_id": "wf_01jd8z6v2mfkpb7h3q9xw5t4ra", "workflow_name": "Escalate",
    "revision": 1, "status": "succeeded", "dry_run": false, "depth": 1,
    "trigger": {"type": "manual", "event_id": null, "scheduled_for": null, "late": false,
        "by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"}},
    "input": {"minutes": 5}, "error": null, "deadline_at": "2026-12-13T08:00:00.000Z",
    "started_at": "2026-11-15T08:00:00.000Z", "ended_at": "2026-11-15T08:00:00.120Z",
    "version": 2, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.120Z",
    "steps": [{"id": "pause", "uses": "wait", "status": "succeeded", "input": {"seconds": 300},
        "output": {"until": "2026-11-15T08:05:00.000Z"}, "error": null,
        "attempts": [{"number": 1, "at": "2026-11-15T08:00:00.000Z", "ended_at": "2026-11-15T08:05:00.000Z", "error": null,
            "status_code": null, "duration_ms": 300_000}],
        "next_attempt_at": null, "ready_at": "2026-11-15T08:00:00.000Z", "started_at": "2026-11-15T08:00:00.000Z",
        "ended_at": "2026-11-15T08:05:00.000Z"}]
}))]
pub struct RunDetail {
    #[serde(flatten)]
    pub run: WorkflowRun,
    /// In the order of the definition.
    pub steps: Vec<RunStep>,
}

impl Record for RunDetail {
    fn version(&self) -> i64 {
        self.run.version
    }
}

/// A step of a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WorkflowRunStep)]
pub struct RunStep {
    pub id: String,
    pub uses: String,
    pub status: Status,
    /// What the action was given, after its expressions were evaluated; values of headers are masked.
    #[schema(required, value_type = Option<Object>)]
    pub input: Option<Box<RawValue>>,
    /// What the action answered.
    #[schema(required, value_type = Option<Object>)]
    pub output: Option<Box<RawValue>>,
    #[schema(required)]
    pub error: Option<StepError>,
    pub attempts: Vec<StepAttempt>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub next_attempt_at: Option<Timestamp>,
    /// When all that it needs was done.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub ready_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub ended_at: Option<Timestamp>,
}

/// Why a step failed, or an attempt of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowStepError)]
pub struct StepError {
    pub code: String,
    pub detail: String,
    /// The status that a server answered to `http.request`.
    #[serde(default)]
    #[schema(required)]
    pub status: Option<u16>,
}

impl StepError {
    pub fn new(code: &str, detail: impl Into<String>) -> Self {
        StepError { code: code.to_owned(), detail: detail.into(), status: None }
    }
}

/// One attempt of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkflowAttempt)]
pub struct StepAttempt {
    pub number: i64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub ended_at: Option<Timestamp>,
    #[schema(required)]
    pub error: Option<StepError>,
    /// What a server answered to `http.request`.
    #[schema(required)]
    pub status_code: Option<i64>,
    pub duration_ms: i64,
}

/// A run that waits for an approval.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "run_01jd8z6v2mfkpb7h3q9xw5t4rc", "workflow_id": "wf_01jd8z6v2mfkpb7h3q9xw5t4ra", "workflow_name": "Reboot",
    "revision": 1, "status": "waiting", "dry_run": false, "depth": 1,
    "trigger": {"type": "manual", "event_id": null, "scheduled_for": null, "late": false,
        "by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"}},
    "input": {}, "error": null, "deadline_at": "2026-12-13T08:00:00.000Z",
    "started_at": "2026-11-15T08:00:00.000Z", "ended_at": null,
    "version": 2, "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z",
    "approval": {"step_id": "ask", "message": "Reboot the file server?"}
}))]
#[schema(as = WorkflowApprovalRequested)]
pub struct ApprovalRequested {
    #[serde(flatten)]
    pub run: WorkflowRun,
    pub approval: ApprovalQuestion,
}

/// What is to be approved.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WorkflowApproval)]
pub struct ApprovalQuestion {
    pub step_id: String,
    pub message: String,
}
