//! What making a ticket is measured against: the product's writes of it in one transaction of the store, and nothing
//! else. Nothing is parsed, checked, looked up or answered.

use kernel::args;
use kernel::base::{AuditId, EventId, Result};
use kernel::store::{Db, Value};
use kernel::{audit, events};
use tenant_control::features::tickets::TicketId;
use tenant_control::features::webhooks::follow::store as follow;

use super::new::New;

pub const NEXT_NUMBER: &str =
    "UPDATE tenant_clocks SET ticket_number = ticket_number + 1 WHERE tenant_id = $1 RETURNING ticket_number";
/// The product's statement of that name, as are the others.
pub const INSERT: &str =
    "INSERT INTO tickets (tenant_id, id, number, subject, type, status, priority, organization_id, requester_name,
        requester_email, assignee_id, team, category, tags, device_ids, external_id, source, due_at,
        first_response_due_at, first_response_risk_at, first_responded_at, resolution_due_at, resolution_risk_at,
        sla_paused_at, sla_pauses, sla_policy, resolved_at, closed_at, comment_count, version, created_at, updated_at,
        custom_fields, description)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
        $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)";
pub const INSERT_TERMS: &str =
    "INSERT INTO ticket_terms (tenant_id, term, number)
    SELECT CAST($1 AS TEXT), slot.column1, CAST($2 AS BIGINT) FROM (VALUES (CAST($3 AS TEXT)), ($4), ($5), ($6), ($7), ($8), ($9), ($10),
        ($11), ($12), ($13), ($14), ($15), ($16), ($17), ($18)) AS slot WHERE slot.column1 IS NOT NULL";
/// Its places.
pub const TERMS: usize = 16;
pub const INSERT_CHANGE: &str =
    "INSERT INTO ticket_changes (tenant_id, number, version, at, actor_type, actor_id, actor_name, size_bytes, changes)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const ID: &str = "key_01jd8z6v2mfkpb7h3q9xw5t4rb";
const CHANGES: &str = r#"{"status":{"from":null,"to":"new"}}"#;
const NONE: Option<&str> = None;

pub async fn write(db: &Db, new: New) -> Result<()> {
    let (terms, body, tags) = (new.terms(), new.event(), format!("[\"{}\"]", new.tag));
    db.write(async move |tx| {
        let tick = tx.tick().await?;
        let number: i64 = tx.one(NEXT_NUMBER, args![]).await?;
        let (at, id) = (tick.at, TicketId::new_numbered(tx.world(), tick.at, number).to_string());
        let mut row: Vec<Value> = vec![Value::Null; 33];
        let given: [(usize, Value); 16] = [
            (0, id.as_str().into()),
            (1, number.into()),
            (2, new.subject.as_str().into()),
            (3, "incident".into()),
            (4, "new".into()),
            (5, (new.priority as i64).into()),
            (6, new.organization.as_deref().into()),
            (12, tags.as_str().into()),
            (13, "[]".into()),
            (15, "api".into()),
            (23, "[]".into()),
            (27, 0_i64.into()),
            (28, 1_i64.into()),
            (29, at.into()),
            (30, at.into()),
            (31, "{}".into()),
        ];
        for (place, value) in given {
            row[place] = value;
        }
        tx.exec_each(INSERT, &[row]).await?;
        let mut slots: Vec<Value> = vec![number.into()];
        slots.extend(terms.iter().map(|term| Value::from(term.as_str())));
        slots.resize(1 + TERMS, Value::Null);
        tx.exec_each(INSERT_TERMS, &[slots]).await?;
        tx.exec(INSERT_CHANGE, args![number, 1_i64, at, "api_key", ID, "bench", CHANGES.len() as i64, CHANGES]).await?;
        let entry = AuditId::new(tx.world());
        tx.exec(
            audit::INSERT,
            args![
                entry,
                at,
                "api_key",
                ID,
                "bench",
                "ticket.create",
                "ticket",
                id,
                "127.0.0.1",
                "api_key",
                ID,
                ID,
                NONE
            ],
        )
        .await?;
        let event = EventId::new_at(tx.world(), at);
        let (name, family, any) = ("ticket.created", "ticket.*", "*");
        tx.exec(events::INSERT, args![tick.sequence, event, name, "ticket", id, at, body]).await?;
        if tx.is_worthwhile(follow::SUBSCRIBED, args![name, family, any]).await? {
            tx.exec(follow::WAKE, args![at, name, family, any]).await?;
            tx.exec(follow::DELIVER, args![event, tick.sequence, name, id, at, at, name, family, any]).await?;
        }
        Ok(())
    })
    .await
}
