//! What making a ticket is measured against: the product's writes of it in one transaction of the store, and nothing
//! else. Nothing is parsed, checked, looked up or answered.

use kernel::args;
use kernel::base::{AuditId, EventId, Result, Timestamp};
use kernel::store::{Db, Tick, Tx, Value};
use kernel::{audit, events};
use tenant_control::features::tickets::TicketId;
use tenant_control::features::tickets::store::{INSERT, INSERT_CHANGE, INSERT_TERMS, NEXT_NUMBER};
use tenant_control::features::tickets::stored::TicketColumns;
use tenant_control::features::webhooks::follow::store as follow;

use super::new::New;

/// The places of [`INSERT_TERMS`].
pub const TERMS: usize = 16;

const ID: &str = "key_01jd8z6v2mfkpb7h3q9xw5t4rb";
const CHANGES: &str = r#"{"status":{"from":null,"to":"new"}}"#;

/// Who is noted as having done it.
pub struct By<'a> {
    pub kind: &'a str,
    pub id: &'a str,
    pub name: &'a str,
    pub address: Option<&'a str>,
    pub credential: Option<(&'a str, &'a str)>,
    pub request: &'a str,
    pub depth: i64,
    pub source: &'a str,
}

pub const KEY: By<'_> = By {
    kind: "api_key",
    id: ID,
    name: "bench",
    address: Some("127.0.0.1"),
    credential: Some(("api_key", ID)),
    request: ID,
    depth: 0,
    source: "api",
};

impl By<'_> {
    /// The audit entry.
    pub fn entry(&self, id: AuditId, at: Timestamp, action: &str, ticket: &str) -> Vec<Value> {
        let credential = self.credential;
        audit::EntryColumns {
            id: id.into(),
            at: at.into(),
            actor_type: self.kind.into(),
            actor_id: self.id.into(),
            actor_name: self.name.into(),
            action: action.into(),
            target_type: "ticket".into(),
            target_id: ticket.into(),
            address: self.address.into(),
            credential_type: credential.map(|(kind, _)| kind).into(),
            credential_id: credential.map(|(_, id)| id).into(),
            request_id: self.request.into(),
            changes: Value::Null,
        }
        .into_vec()
    }
}

/// A ticket that was made.
pub struct Made {
    pub id: String,
    pub number: i64,
    tick: Tick,
}

impl Made {
    /// All of it as it is stored.
    pub fn row(&self, new: &New, by: &By<'_>) -> TicketColumns<Value> {
        TicketColumns {
            id: self.id.as_str().into(),
            number: self.number.into(),
            subject: new.subject.as_str().into(),
            r#type: "incident".into(),
            status: "new".into(),
            priority: (new.priority as i64).into(),
            organization_id: new.organization.as_deref().into(),
            requester_name: Value::Null,
            requester_email: Value::Null,
            assignee_id: Value::Null,
            team: Value::Null,
            category: Value::Null,
            tags: format!("[\"{}\"]", new.tag).into(),
            device_ids: "[]".into(),
            external_id: Value::Null,
            source: by.source.into(),
            due_at: Value::Null,
            first_response_due_at: Value::Null,
            first_response_risk_at: Value::Null,
            first_responded_at: Value::Null,
            resolution_due_at: Value::Null,
            resolution_risk_at: Value::Null,
            sla_paused_at: Value::Null,
            sla_pauses: "[]".into(),
            sla_policy: Value::Null,
            resolved_at: Value::Null,
            closed_at: Value::Null,
            comment_count: 0_i64.into(),
            version: 1_i64.into(),
            created_at: self.tick.at.into(),
            updated_at: self.tick.at.into(),
            custom_fields: "{}".into(),
            description: Value::Null,
            sequence: self.tick.sequence.into(),
            sla_counted_until: Value::Null,
            sla_counted_ms: Value::Null,
        }
    }
}

pub async fn write(db: &Db, new: New) -> Result<()> {
    let body = new.event();
    db.write(async move |tx| create(tx, &new, &body, &KEY).await.map(drop)).await
}

/// The writes of a ticket; `told` is the body of its event.
pub async fn create(tx: &mut Tx, new: &New, told: &str, by: &By<'_>) -> Result<Made> {
    let tick = tx.tick().await?;
    let number: i64 = tx.get_one(NEXT_NUMBER, args![]).await?;
    let id = TicketId::new_numbered(tx.env(), tick.at, number).to_string();
    let made = Made { id, number, tick };
    tx.defer_exec(INSERT, made.row(new, by).into_vec()).await?;
    let mut slots: Vec<Value> = vec![number.into()];
    slots.extend(new.terms().iter().map(|term| Value::from(term.as_str())));
    slots.resize(1 + TERMS, Value::Null);
    tx.defer_exec(INSERT_TERMS, slots).await?;
    let size = CHANGES.len() as i64;
    tx.exec(INSERT_CHANGE, args![number, 1_i64, tick.at, by.kind, by.id, by.name, size, CHANGES]).await?;
    let entry = AuditId::new(tx.env());
    tx.defer_exec(audit::INSERT, by.entry(entry, tick.at, "ticket.create", &made.id)).await?;
    tell(tx, "ticket.created", &made.id, told, by.depth).await?;
    Ok(made)
}

/// The writes of an event.
pub async fn tell(tx: &mut Tx, name: &str, record: &str, body: &str, depth: i64) -> Result<()> {
    let (at, sequence) = (tx.tick().await?.at, tx.next_sequence().await?);
    let (id, of) = (EventId::new_at(tx.env(), at), name.split('.').next().unwrap_or_default());
    let (family, any) = (format!("{of}.*"), "*");
    let root = if depth == 0 { 0 } else { sequence };
    tx.exec(events::INSERT, args![sequence, id, name, of, record, at, body, depth, root]).await?;
    if tx.is_worthwhile(follow::SUBSCRIBED, args![name, family, any]).await? {
        tx.exec(follow::WAKE, args![at, name, family, any]).await?;
        tx.exec(follow::DELIVER, args![id, sequence, name, record, at, at, name, family, any]).await?;
    }
    Ok(())
}
