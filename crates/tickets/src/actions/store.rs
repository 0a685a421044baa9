//! Workflow actions on tickets. They take the same bodies and give the same answers as the routes.

use feature_kit::{Action, ActionEffect, NullInput};
use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::{Error, Result, Secrets};
use kernel::http::{BodyFields, FromBody, IfMatch, read_object};
use kernel::store::Tx;
use kernel::store::references::RecordReference;
use serde_json::{Map, Value, json};

use super::super::input::{NewComment, NewTicket, TicketFields, TicketPatch};
use super::super::{Ticket, TicketId, store};

pub const ACTIONS: &[Action] = &[
    Action {
        name: "ticket.create",
        about: "Creates a ticket.",
        needs: &[Scope::TicketsWrite],
        example: || json!({"subject": "${{ input.subject }}", "priority": "high"}),
        check: |with| read_object::<NewTicket>(with).without_value(),
        effect: ActionEffect::Transaction(create_ticket),
    },
    Action {
        name: "ticket.update",
        about: "Changes a ticket: a merge patch, as the route takes it.",
        needs: &[Scope::TicketsWrite],
        example: || json!({"ticket_id": "${{ event.data.id }}", "priority": "critical"}),
        check: |with| read_object::<TicketUpdateInput>(with).without_value(),
        effect: ActionEffect::Transaction(update_ticket),
    },
    Action {
        name: "ticket.comment",
        about: "Comments on a ticket. It is no first response.",
        needs: &[Scope::TicketsWrite],
        example: || json!({"ticket_id": "${{ event.data.id }}", "body": "On call was told.", "public": false}),
        check: |with| read_object::<TicketCommentInput>(with).without_value(),
        effect: ActionEffect::Transaction(comment_on_ticket),
    },
];

struct TicketUpdateInput {
    ticket_id: TicketId,
    fields: TicketFields,
}

impl FromBody for TicketUpdateInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let ticket_id = fields.read_required("ticket_id", |field| field.read_id());
        let common = TicketFields::parse_fields(fields, NullInput::Clears);
        Some(TicketUpdateInput { ticket_id: ticket_id?, fields: common? })
    }
}

struct TicketCommentInput {
    ticket_id: TicketId,
    comment: NewComment,
}

impl FromBody for TicketCommentInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let ticket_id = fields.read_required("ticket_id", |field| field.read_id());
        let comment = NewComment::from_fields(fields);
        Some(TicketCommentInput { ticket_id: ticket_id?, comment: comment? })
    }
}

fn create_ticket<'t>(
    tx: &'t mut Tx,
    rights: &'t Rights,
    _: &'t Secrets,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (new, references) = read_object::<NewTicket>(with).into_result()?;
        let creation = store::prepare_creation(tx, new, &references).await?;
        to_json_value(&store::create_ticket(tx, rights, creation).await?)
    })
}

fn update_ticket<'t>(
    tx: &'t mut Tx,
    rights: &'t Rights,
    _: &'t Secrets,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (TicketUpdateInput { ticket_id, fields }, references) =
            read_object::<TicketUpdateInput>(with).into_result()?;
        apply_patch(tx, rights, ticket_id, TicketPatch { fields, comment: None }, &references).await
    })
}

fn comment_on_ticket<'t>(
    tx: &'t mut Tx,
    rights: &'t Rights,
    _: &'t Secrets,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (TicketCommentInput { ticket_id, comment }, references) =
            read_object::<TicketCommentInput>(with).into_result()?;
        let patch = TicketPatch { fields: TicketFields::default(), comment: Some(comment) };
        apply_patch(tx, rights, ticket_id, patch, &references).await
    })
}

async fn apply_patch(
    tx: &mut Tx,
    rights: &Rights,
    id: TicketId,
    patch: TicketPatch,
    references: &[RecordReference],
) -> Result<Value> {
    let pending_change = store::prepare_change(tx, id, references).await?;
    to_json_value(&store::change_ticket(tx, rights, pending_change, &IfMatch::default(), patch).await?)
}

/// The same JSON that the route answers.
fn to_json_value(ticket: &Ticket) -> Result<Value> {
    serde_json::to_value(ticket).map_err(Error::internal)
}
