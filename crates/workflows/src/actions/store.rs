//! The actions that belong to no other feature. Only `event.emit` acts in the step's transaction.

use feature_kit::{Action, ActionEffect};
use futures_util::future::BoxFuture;
use kernel::auth::Rights;
use kernel::base::{Result, Secrets};
use kernel::events;
use kernel::http::read_object;
use kernel::store::Tx;
use serde_json::{Map, Value, json};

use super::{ApprovalInput, CustomEvent, EmitInput, HTTP_REQUEST, HttpRequest, WaitInput};

pub const ACTIONS: &[Action] = &[
    Action {
        name: "event.emit",
        about: "Emits an event `custom.<name>`, to which webhooks can subscribe and on which workflows can start.",
        needs: &[],
        example: || json!({"name": "deploy.finished", "data": {"version": "${{ input.version }}"}}),
        check: |with| read_object::<EmitInput>(with).without_value(),
        effect: ActionEffect::Transaction(emit_event),
    },
    Action {
        name: HTTP_REQUEST,
        about: "Sends a request. Every attempt carries the same `Idempotency-Key`. A status outside 2xx fails unless it is \
                expected. Values of headers are sealed and never shown.",
        needs: &[],
        example: || {
            json!({"method": "POST", "url": "https://chat.example.com/hooks/ops", "headers": {"Authorization": "Bearer token"},
                "body": {"text": "${{ event.data.subject }}"}})
        },
        check: |with| read_object::<HttpRequest>(with).without_value(),
        effect: ActionEffect::Http,
    },
    Action {
        name: "wait",
        about: "Waits so many `seconds`, or `until` a moment.",
        needs: &[],
        example: || json!({"seconds": 300}),
        check: |with| read_object::<WaitInput>(with).without_value(),
        effect: ActionEffect::Wait,
    },
    Action {
        name: "approval",
        about: "Waits until somebody approves or rejects.",
        needs: &[],
        example: || json!({"message": "Reboot the file server?"}),
        check: |with| read_object::<ApprovalInput>(with).without_value(),
        effect: ActionEffect::Approval,
    },
];

/// The event is ordered by its run: subscribers that want order receive the events of a run in order.
fn emit_event<'t>(
    tx: &'t mut Tx,
    _: &'t Rights,
    _: &'t Secrets,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (EmitInput { kind, data }, _) = read_object::<EmitInput>(with).into_result()?;
        let run = tx.actor().request_id.clone().unwrap_or_default();
        let published = events::publish_named(tx, &kind, run, &CustomEvent(data)).await?;
        Ok(json!({"id": published.id.to_string(), "type": kind, "sequence": published.sequence}))
    })
}
