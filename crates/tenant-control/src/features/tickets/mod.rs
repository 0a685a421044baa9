//! Tickets: what one looks like, and what is told of it.
//!
//! The routes are not here yet. The kinds of events are, because endpoints may subscribe to them from the first day.

use std::collections::BTreeMap;

use kernel::base::Timestamp;
use kernel::events::EventKind;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub const TICKET_CREATED: EventKind<Ticket> = EventKind::new("ticket.created", "A ticket was created.");
pub const TICKET_UPDATED: EventKind<UpdatedTicket> =
    EventKind::new("ticket.updated", "Fields of a ticket changed; `changes` says which, from what and to what.");

/// A ticket.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "tkt_01jd8z6v2mfkpb7h3q9xw5t4ra", "number": 1, "subject": "Printer on fire", "description": "Third floor.",
    "type": "incident", "status": "new", "priority": "high", "organization_id": null,
    "requester": {"name": "Sam", "email": "sam@acme.test"}, "assignee_id": null, "team": null, "category": null,
    "tags": ["printer"], "custom_fields": {}, "device_ids": [], "external_id": null, "source": "api", "due_at": null,
    "first_response_due_at": null, "first_responded_at": null, "resolution_due_at": null, "resolved_at": null,
    "closed_at": null, "sla_state": "none", "comment_count": 0, "version": 1,
    "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:00:00.000Z"
}))]
pub struct Ticket {
    pub id: String,
    /// 1, 2, 3… in each tenant.
    pub number: i64,
    pub subject: String,
    pub description: String,
    pub r#type: String,
    pub status: String,
    pub priority: String,
    #[schema(required)]
    pub organization_id: Option<String>,
    #[schema(required)]
    pub requester: Option<Requester>,
    #[schema(required)]
    pub assignee_id: Option<String>,
    #[schema(required)]
    pub team: Option<String>,
    #[schema(required)]
    pub category: Option<String>,
    pub tags: Vec<String>,
    pub custom_fields: Map<String, Value>,
    pub device_ids: Vec<String>,
    #[schema(required)]
    pub external_id: Option<String>,
    pub source: String,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub due_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub first_response_due_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub first_responded_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub resolution_due_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub resolved_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub closed_at: Option<Timestamp>,
    pub sla_state: String,
    pub comment_count: i64,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// Who asked for help.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = TicketRequester)]
pub struct Requester {
    #[schema(required)]
    pub name: Option<String>,
    #[schema(required)]
    pub email: Option<String>,
}

/// A ticket with what has just changed in it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "tkt_01jd8z6v2mfkpb7h3q9xw5t4ra", "number": 1, "subject": "Printer on fire", "description": "Third floor.",
    "type": "incident", "status": "open", "priority": "high", "organization_id": null,
    "requester": {"name": "Sam", "email": "sam@acme.test"}, "assignee_id": null, "team": null, "category": null,
    "tags": ["printer"], "custom_fields": {}, "device_ids": [], "external_id": null, "source": "api", "due_at": null,
    "first_response_due_at": null, "first_responded_at": null, "resolution_due_at": null, "resolved_at": null,
    "closed_at": null, "sla_state": "none", "comment_count": 0, "version": 2,
    "created_at": "2026-11-15T08:00:00.000Z", "updated_at": "2026-11-15T08:01:00.000Z",
    "changes": {"status": {"from": "new", "to": "open"}}
}))]
pub struct UpdatedTicket {
    #[serde(flatten)]
    pub ticket: Ticket,
    pub changes: BTreeMap<String, FieldChange>,
}

/// One field before and after.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FieldChange {
    pub from: Value,
    pub to: Value,
}
