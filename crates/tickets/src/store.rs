//! SQL of tickets, their comments and their history.

use std::collections::BTreeMap;

use feature_kit::custom_fields::{check_custom_fields, merge_patch};
use feature_kit::registry;
use kernel::args;
use kernel::audit::{self, FieldChange, NewAuditEntry};
use kernel::auth::Rights;
use kernel::base::{ActorKind, Error, Result, StringEnum, Timestamp};
use kernel::events;
use kernel::http::{IfMatch, PageBytes, PatchField};
use kernel::store::references::{self, RecordReference};
use kernel::store::{Db, FactRetention, FromRow, PendingRows, Tick, Tx, Value, to_json};

use super::facts::ticket_fact;
use super::find::index_terms;
use super::input::{NewComment, NewTicket, TicketFields, TicketPatch};
use super::sla::{self, SlaClock, SlaPolicy};
use super::stored::{CommentColumns, StoredTicket, TicketChangeColumns, TicketColumns};
use super::{
    CommentId, CommentedTicket, Priority, SlaState, Source, TICKET_COMMENTED, TICKET_CREATED, TICKET_UPDATED, Ticket,
    TicketChange, TicketChanges, TicketComment, TicketDetail, TicketId, TicketStatus, TicketType, UpdatedTicket,
    diff_tickets,
};

kernel::statements! {
    /// Any ticket of an organization, live or done, by its postings.
    OF_ORGANIZATION = "SELECT number FROM ticket_terms WHERE tenant_id = $1
        AND term IN ('+o:' || CAST($2 AS TEXT), '-o:' || CAST($2 AS TEXT)) LIMIT 1";
    FULL = TicketColumns::SELECT;
    GET = kernel::sql![FULL, " AND id = $2"];
    NUMBER = "SELECT number FROM tickets WHERE tenant_id = $1 AND id = $2";
    NEXT_NUMBER = "UPDATE tenant_clocks SET ticket_number = ticket_number + 1 WHERE tenant_id = $1 RETURNING ticket_number";
    INSERT = TicketColumns::INSERT;
    UPDATE = TicketColumns::UPDATE;
    /// Inserts up to 16 postings; unused parameters are null.
    INSERT_TERMS = "INSERT INTO ticket_terms (tenant_id, term, number)
        SELECT CAST($1 AS TEXT), slot.column1, CAST($2 AS BIGINT) FROM (VALUES (CAST($3 AS TEXT)), ($4), ($5), ($6), ($7), ($8), ($9), ($10),
            ($11), ($12), ($13), ($14), ($15), ($16), ($17), ($18)) AS slot WHERE slot.column1 IS NOT NULL";
    DELETE_TERMS = "DELETE FROM ticket_terms WHERE tenant_id = $1 AND number = $2 AND term IN ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";
    /// Tickets that changed while the tenant's clock was ahead.
    IN_FUTURE = kernel::sql![FULL, " AND updated_at > $2 ORDER BY updated_at, sequence, number LIMIT $3"];
    FIND_EXTERNAL = "SELECT number FROM tickets WHERE tenant_id = $1 AND external_id = $2";
    INSERT_COMMENT = CommentColumns::INSERT;
    INSERT_CHANGE = TicketChangeColumns::INSERT;
    COMMENT_SIZES = "SELECT ordinal, size_bytes FROM ticket_comments WHERE tenant_id = $1 AND number = $2
        ORDER BY ordinal DESC LIMIT $3";
    COMMENTS = kernel::sql![CommentColumns::SELECT, " AND number = $2 AND ordinal >= $3 ORDER BY ordinal LIMIT $4"];
    COMMENTS_BEFORE = "SELECT ordinal, size_bytes FROM ticket_comments WHERE tenant_id = $1 AND number = $2 AND ordinal < $3
        ORDER BY ordinal DESC LIMIT $4";
    CHANGES_BEFORE = "SELECT version, size_bytes FROM ticket_changes WHERE tenant_id = $1 AND number = $2 AND version < $3
        ORDER BY version DESC LIMIT $4";
    CHANGE_SIZES = "SELECT version, size_bytes FROM ticket_changes WHERE tenant_id = $1 AND number = $2
        ORDER BY version DESC LIMIT $3";
    HISTORY = kernel::sql![TicketChangeColumns::SELECT, " AND number = $2 AND version >= $3 ORDER BY version LIMIT $4"];
}

/// How many comments, and how many changes, are shown with a ticket; and the bytes of each list.
const SHOWN_MAX: i64 = 1_000;
const SHOWN_BYTES_MAX: i64 = 4_000_000;

pub async fn get_ticket(db: &Db, id: TicketId) -> Result<TicketDetail> {
    let stored: StoredTicket = db.get_one(GET, args![id]).await?;
    let number = stored.number();
    let first = first_within_size(&db.list(COMMENT_SIZES, args![number, SHOWN_MAX]).await?);
    let comments = db.list(COMMENTS, args![number, first, SHOWN_MAX]).await?;
    let first = first_within_size(&db.list(CHANGE_SIZES, args![number, SHOWN_MAX]).await?);
    let history = db.list(HISTORY, args![number, first, SHOWN_MAX]).await?;
    Ok(TicketDetail { ticket: stored.into_ticket_at(db.env().now()), comments, history })
}

/// The oldest position from which the newest entries fit into the size limit. `sizes` has positions with their sizes,
/// newest first.
fn first_within_size(sizes: &[(i64, i64)]) -> i64 {
    let mut bytes = 0;
    let fits = |(_, size): &&(i64, i64)| {
        bytes += size;
        bytes <= SHOWN_BYTES_MAX
    };
    sizes.iter().take_while(fits).last().map_or(i64::MAX, |(position, _)| *position)
}

/// The comments of a ticket, newest first, and the position after which the next page starts.
pub async fn list_comments(
    db: &Db,
    id: TicketId,
    after: Option<i64>,
    limit: usize,
) -> Result<(Vec<TicketComment>, Option<i64>)> {
    list_newest_first(db, id, (COMMENTS_BEFORE, COMMENTS), after, limit).await
}

/// The changes of a ticket, newest first, and the position after which the next page starts.
pub async fn list_history(
    db: &Db,
    id: TicketId,
    after: Option<i64>,
    limit: usize,
) -> Result<(Vec<TicketChange>, Option<i64>)> {
    list_newest_first(db, id, (CHANGES_BEFORE, HISTORY), after, limit).await
}

/// A page of comments or changes: reads positions and sizes first, then as many rows as fit.
async fn list_newest_first<T: FromRow>(
    db: &Db,
    id: TicketId,
    (sizes, read): (&str, &str),
    after: Option<i64>,
    limit: usize,
) -> Result<(Vec<T>, Option<i64>)> {
    let number: i64 = db.get_one(NUMBER, args![id]).await?;
    let fetched = i64::try_from(limit + 1).map_err(Error::internal)?;
    let sizes: Vec<(i64, i64)> = db.list(sizes, args![number, after.unwrap_or(i64::MAX), fetched]).await?;
    let mut bytes = PageBytes::default();
    let fits = |(_, size): &&(i64, i64)| bytes.fits_bytes(usize::try_from(*size).unwrap_or_default());
    let shown = sizes.iter().take(limit).take_while(fits).count();
    let Some((last, _)) = shown.checked_sub(1).and_then(|at| sizes.get(at)) else { return Ok((Vec::new(), None)) };
    let mut rows: Vec<T> = db.list(read, args![number, last, i64::try_from(shown).map_err(Error::internal)?]).await?;
    rows.reverse();
    Ok((rows, (sizes.len() > shown).then_some(*last)))
}

/// A ticket to be created, with the queries it depends on. They are sent together and awaited later.
pub struct PendingTicketCreation<'a> {
    fields: TicketFields,
    priority: Priority,
    references: references::ReferenceLookup<'a>,
    policy: PendingRows<SlaPolicy>,
    number: PendingRows<i64>,
}

/// Sends the queries that creating a ticket needs. An unused number is rolled back with the transaction.
pub async fn prepare_creation<'a>(
    tx: &mut Tx,
    new: NewTicket,
    references: &'a [RecordReference],
) -> Result<PendingTicketCreation<'a>> {
    tx.defer_tick().await?;
    let NewTicket(fields) = new;
    let priority = fields.priority.unwrap_or(Priority::Medium);
    let references = references::send_lookup(tx, &registry().referable, references).await?;
    let policy = sla::store::send_policy_query(tx, priority).await?;
    let number = tx.defer_query(NEXT_NUMBER, Vec::new()).await?;
    Ok(PendingTicketCreation { fields, priority, references, policy, number })
}

/// Creates the ticket. It takes the confirmed rights, because only an authorized caller may learn what is wrong with the
/// request.
pub async fn create_ticket(tx: &mut Tx, _: &Rights, creation: PendingTicketCreation<'_>) -> Result<Ticket> {
    let PendingTicketCreation { fields, priority, references, policy, number } = creation;
    let Tick { at: now, sequence } = tx.tick().await?;
    references.await_check(tx).await?;
    let number = tx.await_rows(number).await?.pop().ok_or_else(|| Error::internal("a tenant without a clock"))?;
    let clock = SlaClock::for_new_ticket(tx.await_rows(policy).await?.pop(), now)?;
    let ticket = Ticket {
        id: TicketId::new_numbered(tx.env(), now, number),
        number,
        subject: String::new(),
        description: None,
        r#type: TicketType::Incident,
        status: TicketStatus::New,
        priority,
        organization_id: None,
        requester: None,
        assignee_id: None,
        team: None,
        category: None,
        tags: Vec::new(),
        custom_fields: serde_json::Map::new(),
        device_ids: Vec::new(),
        external_id: None,
        source: match tx.actor().who.kind {
            ActorKind::User => Source::Ui,
            ActorKind::Workflow => Source::Workflow,
            ActorKind::ApiKey | ActorKind::System | ActorKind::Operator => Source::Api,
        },
        due_at: None,
        first_response_due_at: None,
        first_responded_at: None,
        resolution_due_at: None,
        resolved_at: None,
        closed_at: None,
        sla_state: SlaState::None,
        comment_count: 0,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    let mut stored = StoredTicket { ticket, clock, sequence };
    apply_fields(&mut stored.ticket, fields)?;
    stored.sync_sla_fields();
    check_external_id(tx, None, &stored.ticket).await?;
    tx.defer_exec(INSERT, stored.to_row_values()?).await?;
    tx.record_change("ticket", stored.ticket.id).await?;
    write_terms(tx, INSERT_TERMS, number, &index_terms(&stored.ticket).iter().collect::<Vec<_>>()).await?;
    let first_status = FieldChange { from: serde_json::Value::Null, to: TicketStatus::New.as_str().into() };
    insert_history(tx, &stored.ticket, &TicketChanges(BTreeMap::from([("status".to_owned(), first_status)]))).await?;
    audit::record_entry(tx, NewAuditEntry::new("ticket.create", "ticket", stored.ticket.id)).await?;
    tx.record_fact(&ticket_fact(None, &stored.ticket, now), FactRetention::Long).await?;
    let ticket = stored.into_ticket_at(now);
    events::publish(tx, &TICKET_CREATED, ticket.id, &ticket).await?;
    Ok(ticket)
}

/// The queries that changing a ticket depends on. They are sent together and awaited later.
pub struct PendingTicketChange<'a> {
    references: references::ReferenceLookup<'a>,
    ticket: PendingRows<StoredTicket>,
}

/// Sends the queries that changing a ticket needs.
pub async fn prepare_change<'a>(
    tx: &mut Tx,
    id: TicketId,
    references: &'a [RecordReference],
) -> Result<PendingTicketChange<'a>> {
    tx.defer_tick().await?;
    let references = references::send_lookup(tx, &registry().referable, references).await?;
    Ok(PendingTicketChange { references, ticket: tx.defer_query(GET, vec![id.into()]).await? })
}

/// Changes the ticket for a caller whose rights are confirmed.
pub async fn change_ticket(
    tx: &mut Tx,
    _: &Rights,
    pending_change: PendingTicketChange<'_>,
    if_match: &IfMatch,
    patch: TicketPatch,
) -> Result<Ticket> {
    let Tick { at: now, sequence } = tx.tick().await?;
    let stored = tx.await_rows(pending_change.ticket).await?.pop();
    // References that the ticket has already are not checked: they may be archived or disabled by now.
    let existing = stored.as_ref().map(|stored| existing_references(&stored.ticket)).unwrap_or_default();
    pending_change.references.await_check_except(tx, &existing).await?;
    let mut stored = stored.ok_or_else(Error::not_found)?;
    if_match.check_version(stored.ticket.version)?;
    let old = stored.ticket.clone();
    let TicketPatch { fields, comment } = patch;
    let new_status = fields.status.filter(|status| *status != old.status);
    apply_fields(&mut stored.ticket, fields)?;
    if let Some(to) = new_status {
        old.status.check_transition(to)?;
        transition_status(&mut stored, to, now)?;
    }
    if stored.ticket.priority != old.priority {
        let policy = sla::store::find_policy(tx, stored.ticket.priority).await?;
        stored.clock.set_policy(policy)?;
    }
    stored.sync_sla_fields();
    let field_changes = diff_tickets(&old, &stored.ticket)?;
    check_external_id(tx, Some(&old), &stored.ticket).await?;
    let comment = match comment {
        Some(comment) => Some(append_comment(tx, &mut stored, comment, now).await?),
        None => None,
    };
    if field_changes.0.is_empty() && comment.is_none() {
        return Ok(stored.into_ticket_at(now));
    }
    stored.ticket.version += 1;
    (stored.ticket.updated_at, stored.sequence) = (now, sequence);
    save_ticket(tx, &old, &stored).await?;
    tx.record_fact(&ticket_fact(Some(&old), &stored.ticket, now), FactRetention::Long).await?;
    // Computed again, because a comment may have set the first response.
    let all = diff_tickets(&old, &stored.ticket)?;
    if !all.0.is_empty() {
        insert_history(tx, &stored.ticket, &all).await?;
    }
    publish_changes(tx, stored.into_ticket_at(now), all, !field_changes.0.is_empty(), comment).await
}

/// Applies the fields of a request, except status and comment, which have side effects.
fn apply_fields(ticket: &mut Ticket, fields: TicketFields) -> Result<()> {
    if let Some(subject) = fields.subject {
        ticket.subject = subject;
    }
    ticket.r#type = fields.r#type.unwrap_or(ticket.r#type);
    ticket.priority = fields.priority.unwrap_or(ticket.priority);
    fields.description.apply_to(&mut ticket.description);
    fields.organization_id.apply_to(&mut ticket.organization_id);
    match fields.requester {
        PatchField::Keep => {}
        PatchField::Clear => ticket.requester = None,
        PatchField::Set(requester) => ticket.requester = requester.apply_to(ticket.requester.take()),
    }
    fields.assignee_id.apply_to(&mut ticket.assignee_id);
    fields.team.apply_to(&mut ticket.team);
    fields.category.apply_to(&mut ticket.category);
    fields.tags.apply_or_default(&mut ticket.tags);
    match fields.custom_fields {
        PatchField::Keep => {}
        PatchField::Clear => ticket.custom_fields.clear(),
        PatchField::Set(patch) => {
            merge_patch(&mut ticket.custom_fields, patch);
            check_custom_fields(&ticket.custom_fields)
                .map_err(|(code, detail)| Error::invalid("/custom_fields", code, detail))?;
        }
    }
    fields.device_ids.apply_or_default(&mut ticket.device_ids);
    fields.external_id.apply_to(&mut ticket.external_id);
    fields.due_at.apply_to(&mut ticket.due_at);
    Ok(())
}

/// Sets the status with the SLA clock, `resolved_at` and `closed_at`.
fn transition_status(stored: &mut StoredTicket, to: TicketStatus, now: Timestamp) -> Result<()> {
    stored.clock.apply_status(to, now)?;
    let ticket = &mut stored.ticket;
    match to {
        TicketStatus::Resolved => ticket.resolved_at = Some(now),
        TicketStatus::Closed => ticket.closed_at = Some(now),
        _ if ticket.status.is_done() => (ticket.resolved_at, ticket.closed_at) = (None, None),
        _ => {}
    }
    ticket.status = to;
    Ok(())
}

/// Appends a comment. The first public comment by a user or key is the first response.
async fn append_comment(
    tx: &mut Tx,
    stored: &mut StoredTicket,
    new: NewComment,
    now: Timestamp,
) -> Result<TicketComment> {
    let author = tx.actor().who.clone();
    if new.public && matches!(author.kind, ActorKind::User | ActorKind::ApiKey) {
        stored.clock.record_response(now)?;
        stored.sync_sla_fields();
    }
    stored.ticket.comment_count += 1;
    let (number, position) = (stored.ticket.number, stored.ticket.comment_count);
    let id = CommentId::new_numbered(tx.env(), now, position);
    let size = to_json(&new.body)?.len() as i64;
    let row = CommentColumns {
        number: number.into(),
        ordinal: position.into(),
        id: id.into(),
        public: new.public.into(),
        author_type: author.kind.as_str().into(),
        author_id: author.id.as_deref().into(),
        author_name: author.name.as_str().into(),
        created_at: now.into(),
        size_bytes: size.into(),
        body: new.body.as_str().into(),
    };
    tx.defer_exec(INSERT_COMMENT, row.into_vec()).await?;
    Ok(TicketComment { id, body: new.body, public: new.public, author, created_at: now })
}

/// The organization and the assignee that a ticket refers to. Devices are not exempt: a deleted one cannot be named again.
fn existing_references(ticket: &Ticket) -> Vec<String> {
    let organization = ticket.organization_id.map(|id| id.to_string());
    organization.into_iter().chain(ticket.assignee_id.map(|id| id.to_string())).collect()
}

/// The unique index enforces this too; the check names the other ticket.
async fn check_external_id(tx: &mut Tx, old: Option<&Ticket>, new: &Ticket) -> Result<()> {
    let Some(external_id) = &new.external_id else { return Ok(()) };
    if old.is_some_and(|old| old.external_id.as_ref() == Some(external_id)) {
        return Ok(());
    }
    match tx.find::<i64>(FIND_EXTERNAL, args![external_id]).await? {
        None => Ok(()),
        Some(number) => Err(Error::conflict(format!("Ticket {number} has this external_id already."))),
    }
}

async fn save_ticket(tx: &mut Tx, old: &Ticket, stored: &StoredTicket) -> Result<()> {
    tx.defer_exec(UPDATE, stored.to_row_values()?).await?;
    tx.record_change("ticket", old.id).await?;
    let (before, after) = (index_terms(old), index_terms(&stored.ticket));
    write_terms(tx, DELETE_TERMS, old.number, &before.difference(&after).collect::<Vec<_>>()).await?;
    write_terms(tx, INSERT_TERMS, old.number, &after.difference(&before).collect::<Vec<_>>()).await
}

/// Parameters for terms in one statement.
const TERMS_PER_STATEMENT: usize = 16;

async fn write_terms(tx: &mut Tx, sql: &'static str, number: i64, terms: &[&String]) -> Result<()> {
    for terms in terms.chunks(TERMS_PER_STATEMENT) {
        let mut row: Vec<Value> = vec![number.into()];
        row.extend(terms.iter().map(|term| Value::from(term.as_str())));
        row.resize(1 + TERMS_PER_STATEMENT, Value::Null);
        tx.defer_exec(sql, row).await?;
    }
    Ok(())
}

/// Inserts the history row of a change, under the ticket's new version.
async fn insert_history(tx: &mut Tx, ticket: &Ticket, changes: &TicketChanges) -> Result<()> {
    let actor = tx.actor().who.clone();
    let changes = to_json(changes)?;
    let row = TicketChangeColumns {
        number: ticket.number.into(),
        version: ticket.version.into(),
        at: ticket.updated_at.into(),
        actor_type: actor.kind.as_str().into(),
        actor_id: actor.id.into(),
        actor_name: actor.name.into(),
        size_bytes: Value::Int(changes.len() as i64),
        changes: changes.into(),
    };
    tx.defer_exec(INSERT_CHANGE, row.into_vec()).await
}

/// Writes audit entries and publishes events for the change and the comment. A comment alone is no update.
async fn publish_changes(
    tx: &mut Tx,
    ticket: Ticket,
    all: TicketChanges,
    changed: bool,
    comment: Option<TicketComment>,
) -> Result<Ticket> {
    if changed {
        let mut entry = audit::AuditChanges::default();
        for (field, change) in &all.0 {
            entry.add_shortened(field, &change.from, &change.to)?;
        }
        audit::record_entry(tx, NewAuditEntry::new("ticket.update", "ticket", ticket.id).with_changes(entry)).await?;
        let updated = UpdatedTicket { ticket: ticket.clone(), changes: all };
        events::publish(tx, &TICKET_UPDATED, ticket.id, &updated).await?;
    }
    let Some(comment) = comment else { return Ok(ticket) };
    audit::record_entry(tx, NewAuditEntry::new("ticket.comment", "ticket", ticket.id)).await?;
    let commented = CommentedTicket { ticket, comment };
    events::publish(tx, &TICKET_COMMENTED, commented.ticket.id, &commented).await?;
    Ok(commented.ticket)
}

/// Tickets of one batch: each is read and written whole.
const CLAMP_ROWS: i64 = 200;

/// Clamps future timestamps of tickets to `now`, before the tenant's clock is set back. Otherwise readers of changes would
/// miss every change until the clock reaches those timestamps again. Returns the number of tickets.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    let clamp = db.write_in_batches(CLAMP_ROWS, async move |tx| {
        let found: Vec<StoredTicket> = tx.list(IN_FUTURE, args![now, CLAMP_ROWS]).await?;
        let mut rows = Vec::with_capacity(found.len());
        for mut stored in found {
            stored.clamp_future_timestamps(now)?;
            tx.record_change("ticket", stored.ticket.id).await?;
            rows.push(stored.to_row_values()?);
        }
        tx.exec_each(UPDATE, &rows).await
    });
    clamp.await
}
