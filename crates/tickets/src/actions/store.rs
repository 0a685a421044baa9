//! Workflow actions on tickets. They take the same bodies and give the same answers as the routes.

use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::{Error, Result};
use kernel::http::{Fields, FromBody, IfMatch, read_object};
use kernel::store::Tx;
use kernel::store::refer::Reference;
use serde_json::{Map, Value, json};

use super::super::input::{Common, NewComment, NewTicket, TicketPatch};
use super::super::{Ticket, TicketId, store};
use feature_kit::{Action, ActionEffect, NullField};

pub const ACTIONS: &[Action] = &[
    Action {
        name: "ticket.create",
        about: "Creates a ticket.",
        needs: &[Scope::TicketsWrite],
        example: || json!({"subject": "${{ input.subject }}", "priority": "high"}),
        check: |with| read_object::<NewTicket>(with).checked(),
        effect: ActionEffect::Transaction(create),
    },
    Action {
        name: "ticket.update",
        about: "Changes a ticket: a merge patch, as the route takes it.",
        needs: &[Scope::TicketsWrite],
        example: || json!({"ticket_id": "${{ event.data.id }}", "priority": "critical"}),
        check: |with| read_object::<Update>(with).checked(),
        effect: ActionEffect::Transaction(update),
    },
    Action {
        name: "ticket.comment",
        about: "Comments on a ticket. It is no first response.",
        needs: &[Scope::TicketsWrite],
        example: || json!({"ticket_id": "${{ event.data.id }}", "body": "On call was told.", "public": false}),
        check: |with| read_object::<Comment>(with).checked(),
        effect: ActionEffect::Transaction(comment),
    },
];

struct Update {
    ticket_id: TicketId,
    fields: Common,
}

impl FromBody for Update {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let ticket_id = fields.required("ticket_id", |field| field.id());
        let common = Common::take(fields, NullField::Clears);
        Some(Update { ticket_id: ticket_id?, fields: common? })
    }
}

struct Comment {
    ticket_id: TicketId,
    comment: NewComment,
}

impl FromBody for Comment {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let ticket_id = fields.required("ticket_id", |field| field.id());
        let comment = NewComment::from_fields(fields);
        Some(Comment { ticket_id: ticket_id?, comment: comment? })
    }
}

fn create<'t>(tx: &'t mut Tx, rights: &'t Rights, with: Map<String, Value>) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (new, references) = read_object::<NewTicket>(with).into_result()?;
        let creation = store::prepare(tx, new, &references).await?;
        answer(&store::create(tx, rights, creation).await?)
    })
}

fn update<'t>(tx: &'t mut Tx, rights: &'t Rights, with: Map<String, Value>) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (Update { ticket_id, fields }, references) = read_object::<Update>(with).into_result()?;
        change(tx, rights, ticket_id, TicketPatch { fields, comment: None }, &references).await
    })
}

fn comment<'t>(tx: &'t mut Tx, rights: &'t Rights, with: Map<String, Value>) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (Comment { ticket_id, comment }, references) = read_object::<Comment>(with).into_result()?;
        let patch = TicketPatch { fields: Common::default(), comment: Some(comment) };
        change(tx, rights, ticket_id, patch, &references).await
    })
}

async fn change(
    tx: &mut Tx,
    rights: &Rights,
    id: TicketId,
    patch: TicketPatch,
    references: &[Reference],
) -> Result<Value> {
    let known = store::look_up(tx, id, references).await?;
    answer(&store::change(tx, rights, known, &IfMatch::default(), patch).await?)
}

/// The same JSON that the route answers.
fn answer(ticket: &Ticket) -> Result<Value> {
    serde_json::to_value(ticket).map_err(Error::internal)
}
