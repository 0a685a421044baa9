//! `/api/psa/workflows/trigger`: workflows and their runs.

mod actions;
mod alone;
mod authority;
mod bounds;
mod control;
mod create;
mod crowds;
mod custom;
mod depth;
mod devices;
mod documented;
mod dry_run;
mod failures;
mod faults;
mod figures;
mod history;
mod hold;
mod hostile;
mod model;
mod nodes;
mod redaction;
mod retention;
mod retries;
mod revisions;
mod runs;
mod schedules;
mod scopes;
mod search;
mod secrets;
mod timeouts;
mod triggers;

use serde_json::{Value, json};

use crate::support::people::AUDIT;
use crate::support::{Answer, Server, Tenancy};

pub const WORKFLOWS: &str = "/api/psa/workflows/trigger";

/// A workflow with these steps, started by calls.
pub fn manual(steps: Value) -> Value {
    let mut body = json!({"action": "create", "name": "Work", "on": {"manual": {}}});
    body["steps"] = steps;
    body
}

/// A workflow that needs nothing but a name.
pub fn named(name: &str) -> Value {
    let mut body = manual(json!([{"id": "pause", "uses": "wait", "with": {"seconds": 60}}]));
    body["name"] = name.into();
    body
}

/// The same with one field set to another value.
pub fn named_with(field: &str, value: impl Into<Value>) -> Value {
    let mut body = named("Work");
    body[field] = value.into();
    body
}

pub async fn create(server: &Server, tenancy: &Tenancy, body: &Value) -> Answer {
    server.post(WORKFLOWS).cookie(&tenancy.admin).json(body).await
}

pub async fn change(server: &Server, tenancy: &Tenancy, workflow: &Value, patch: &Value) -> Answer {
    server.patch(one(workflow)).cookie(&tenancy.admin).json(patch).await
}

pub fn id_of(record: &Value) -> &str {
    record["id"].as_str().expect("an id")
}

pub fn one(workflow: &Value) -> String {
    format!("{WORKFLOWS}?id={}", id_of(workflow))
}

pub async fn read(server: &Server, tenancy: &Tenancy, workflow: &Value) -> Value {
    server.get(one(workflow)).cookie(&tenancy.admin).await.ok(200)
}

/// Where a refusal points, and with which code.
#[track_caller]
pub fn faults(answer: &Answer) -> Vec<(String, String)> {
    let problem = answer.problem("invalid_fields");
    let text = |error: &Value, field: &str| error[field].as_str().expect("a text").to_owned();
    let errors = problem["errors"].as_array().expect("errors");
    errors.iter().map(|error| (text(error, "pointer"), text(error, "code"))).collect()
}

/// What the audit trail has of a workflow.
pub async fn trail(server: &Server, tenancy: &Tenancy, workflow: &Value) -> Vec<Value> {
    let page = server.get(format!("{AUDIT}?target_id={}", id_of(workflow))).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().unwrap().clone()
}

/// What was done to a workflow, in the order of the alphabet: a test's clock stands still.
pub async fn actions(server: &Server, tenancy: &Tenancy, workflow: &Value) -> Vec<String> {
    let trail = trail(server, tenancy, workflow).await;
    let mut actions: Vec<String> =
        trail.iter().map(|entry| entry["action"].as_str().unwrap().replace("workflow.", "")).collect();
    actions.sort_unstable();
    actions
}
