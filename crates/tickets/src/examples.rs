//! The examples of the OpenAPI document: one ticket, from its creation to its first comment.

use serde_json::{Value, json};

pub fn new_ticket() -> Value {
    json!({
        "id": "tkt_01jd8z6v2mfkpb7h3q9xw5t4ra", "number": 1, "subject": "Printer on fire", "description": "Third floor.",
        "type": "incident", "status": "new", "priority": "high", "organization_id": null,
        "requester": {"name": "Sam", "email": "sam@acme.test"}, "assignee_id": null, "team": null, "category": null,
        "tags": ["printer"], "custom_fields": {}, "device_ids": [], "external_id": null, "source": "api", "due_at": null,
        "first_response_due_at": null, "first_responded_at": null, "resolution_due_at": null, "resolved_at": null,
        "closed_at": null, "sla_state": "none", "comment_count": 0, "version": 1,
        "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z"
    })
}

/// The example with these fields changed or added.
fn with_fields(mut example: Value, fields: Value) -> Value {
    if let (Value::Object(example), Value::Object(fields)) = (&mut example, fields) {
        example.extend(fields);
    }
    example
}

pub fn ticket_detail() -> Value {
    let created = json!({
        "at": "2026-11-15T08:00:00.000Z",
        "actor": {"type": "api_key", "id": "key_01jd8z6v2mfkpb7h3q9xw5t4rc", "name": "Monitoring"},
        "changes": {"status": {"from": null, "to": "new"}}
    });
    with_fields(new_ticket(), json!({"comments": [], "history": [created]}))
}

pub fn updated_ticket() -> Value {
    let changes = json!({"status": {"from": "new", "to": "open"}});
    let fields = json!({
        "status": "open", "version": 2, "updated_at": "2026-11-15T08:01:00.000Z", "changes": changes
    });
    with_fields(new_ticket(), fields)
}

pub fn ticket_comment() -> Value {
    json!({
        "id": "cmt_01jd8z6v2mfkpb7h3q9xw5t4rb", "body": "On my way.", "public": true,
        "author": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rc", "name": "Admin"},
        "created_at": "2026-11-15T08:02:00.000Z"
    })
}

pub fn commented_ticket() -> Value {
    let fields = json!({
        "status": "open", "version": 3, "updated_at": "2026-11-15T08:02:00.000Z", "comment_count": 1,
        "first_responded_at": "2026-11-15T08:02:00.000Z", "comment": ticket_comment()
    });
    with_fields(new_ticket(), fields)
}
