//! Workflows, measured from outside: how many steps a second, how soon after its event a run acts, and whether a tenant
//! with a long queue holds up another.
//!
//! Deliberately left out: schedules, approvals and waits, of which nobody has many at once.

mod bare;
pub mod fairness;
pub mod latency;
mod queue;
pub mod steps;

use serde_json::{Value, json};

use crate::harness::Outcome;
use crate::server::{Server, post};

const PATH: &str = "/api/psa/workflows/trigger";

/// Saves a workflow and gives its id.
fn save(server: &Server, key: &str, definition: &Value) -> Outcome<String> {
    let made = post(server.address, PATH, key, &definition.to_string())?;
    let record: Value = serde_json::from_str(&made.body)?;
    let id = record["id"].as_str().filter(|_| made.status == 201);
    id.map(str::to_owned).ok_or_else(|| format!("no workflow was saved: {}", made.body).into())
}

/// A call that starts a run.
fn call(workflow: &str, input: &Value) -> String {
    json!({"workflow_id": workflow, "input": input}).to_string()
}

/// A ticket, a comment on it and an event, each of what came of the one before.
fn three_steps() -> Value {
    json!({"action": "create", "name": "Report a host", "on": {"manual": {}}, "steps": [
        {"id": bare::STEPS[0], "uses": "ticket.create", "with":
            {"subject": "${{ input.host }} does not answer", "priority": "high", "tags": ["monitoring"]}},
        {"id": bare::STEPS[1], "uses": "ticket.comment", "needs": [bare::STEPS[0]], "with":
            {"ticket_id": "${{ steps.make.output.id }}", "body": "${{ input.host }}: silent since ${{ now }}.", "public": false}},
        {"id": bare::STEPS[2], "uses": "event.emit", "needs": [bare::STEPS[1]], "with":
            {"name": "host.reported", "data": {"ticket": "${{ steps.note.output.number }}", "host": "${{ input.host }}"}}},
    ]})
}
