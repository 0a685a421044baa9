//! Conversion between tickets and rows.

use kernel::base::{Result, StringEnum, Timestamp};
use kernel::store::{FromRow, Row, Value, to_json};

use super::sla::{CountedTime, SlaClock, SlaDeadline};
use super::{
    Priority, SlaState, Source, Ticket, TicketChange, TicketComment, TicketRequester, TicketStatus, TicketType,
};

kernel::columns! {
    /// Every column of a ticket.
    pub struct TicketColumns in "tickets" by id, number {
        id, number, subject, r#type = "type", status, priority, organization_id, requester_name, requester_email,
        assignee_id, team, category, tags, device_ids, external_id, source, due_at, first_response_due_at,
        first_response_risk_at, first_responded_at, resolution_due_at, resolution_risk_at, sla_paused_at, sla_pauses,
        sla_policy, resolved_at, closed_at, comment_count, version, created_at, updated_at, custom_fields, description,
        sequence, sla_counted_until, sla_counted_ms,
    }
}

kernel::columns! {
    pub struct CommentColumns in "ticket_comments" {
        number, ordinal, id, public, author_type, author_id, author_name, created_at, size_bytes, body,
    }
}

kernel::columns! {
    pub struct TicketChangeColumns in "ticket_changes" {
        number, version, at, actor_type, actor_id, actor_name, size_bytes, changes,
    }
}

/// A stored ticket. Its `sla_state` depends on the time, so it is computed when the ticket is shown.
pub struct StoredTicket {
    pub ticket: Ticket,
    pub clock: SlaClock,
    /// The sequence of the last write that changed the ticket.
    pub sequence: i64,
}

impl FromRow for StoredTicket {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: TicketColumns<usize> = TicketColumns::AT;
        let text = |index: usize| row.get::<String>(index);
        let name: Option<String> = row.get(AT.requester_name)?;
        let email: Option<String> = row.get(AT.requester_email)?;
        let requester = (name.is_some() || email.is_some()).then_some(TicketRequester { name, email });
        let deadline = |due: usize, risk: usize| -> Result<Option<SlaDeadline>> {
            let (due, risk): (Option<Timestamp>, Option<Timestamp>) = (row.get(due)?, row.get(risk)?);
            Ok(due.zip(risk).map(|(due_at, risk_at)| SlaDeadline { due_at, risk_at }))
        };
        let pauses: Vec<(i64, i64)> = row.get_json(AT.sla_pauses)?;
        let moment = Timestamp::from_millis;
        let counted: (Option<Timestamp>, Option<i64>) = (row.get(AT.sla_counted_until)?, row.get(AT.sla_counted_ms)?);
        let clock = SlaClock {
            counted: counted.0.zip(counted.1).map(|(until, ms)| CountedTime { until, ms }),
            policy: row.get_optional_json(AT.sla_policy)?,
            first_response: deadline(AT.first_response_due_at, AT.first_response_risk_at)?,
            first_responded_at: row.get(AT.first_responded_at)?,
            resolution: deadline(AT.resolution_due_at, AT.resolution_risk_at)?,
            paused_at: row.get(AT.sla_paused_at)?,
            pauses: pauses.into_iter().map(|(from, until)| (moment(from), moment(until))).collect(),
            created_at: row.get(AT.created_at)?,
        };
        let devices: Vec<String> = row.get_json(AT.device_ids)?;
        let ticket = kernel::read_record!(row, TicketColumns => Ticket {
            id, number, subject, description, organization_id, assignee_id, team, category, external_id, due_at,
            first_response_due_at, first_responded_at, resolution_due_at, resolved_at, closed_at, comment_count,
            version, created_at, updated_at;
            r#type: TicketType::from_stored(&text(AT.r#type)?)?,
            status: TicketStatus::from_stored(&text(AT.status)?)?,
            priority: Priority::from_rank(row.get(AT.priority)?)?,
            requester,
            tags: row.get_json(AT.tags)?,
            custom_fields: row.get_json(AT.custom_fields)?,
            device_ids: devices.iter().filter_map(|id| id.parse().ok()).collect(),
            source: Source::from_stored(&text(AT.source)?)?,
            sla_state: SlaState::None,
        });
        Ok(StoredTicket { ticket, clock, sequence: row.get(AT.sequence)? })
    }
}

impl FromRow for TicketComment {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: CommentColumns<usize> = CommentColumns::AT;
        Ok(kernel::read_record!(row, CommentColumns => TicketComment {
            id, body, public, created_at;
            author: row.get_actor([AT.author_type, AT.author_id, AT.author_name])?,
        }))
    }
}

impl FromRow for TicketChange {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: TicketChangeColumns<usize> = TicketChangeColumns::AT;
        Ok(TicketChange {
            at: row.get(AT.at)?,
            actor: row.get_actor([AT.actor_type, AT.actor_id, AT.actor_name])?,
            changes: row.get_json(AT.changes)?,
        })
    }
}

impl StoredTicket {
    pub fn number(&self) -> i64 {
        self.ticket.number
    }

    /// The ticket with its SLA state at a moment.
    pub fn into_ticket_at(mut self, now: Timestamp) -> Ticket {
        self.ticket.sla_state = self.clock.state_at(self.ticket.status, now);
        self.ticket
    }

    /// Clamps timestamps that were written while the tenant's clock was ahead. The caller's own `due_at` stays.
    pub fn clamp_future_timestamps(&mut self, now: Timestamp) -> Result<()> {
        self.clock.clamp_future_timestamps(now)?;
        let ticket = &mut self.ticket;
        ticket.created_at = ticket.created_at.min(now);
        ticket.updated_at = ticket.updated_at.min(now);
        ticket.resolved_at = ticket.resolved_at.map(|at| at.min(now));
        ticket.closed_at = ticket.closed_at.map(|at| at.min(now));
        self.sync_sla_fields();
        Ok(())
    }

    /// The values of every column, for INSERT and UPDATE.
    pub fn to_row_values(&self) -> Result<Vec<Value>> {
        let (ticket, clock) = (&self.ticket, &self.clock);
        let requester = ticket.requester.clone().unwrap_or_default();
        let devices: Vec<String> = ticket.device_ids.iter().map(ToString::to_string).collect();
        let millis = |(from, until): &(Timestamp, Timestamp)| (from.as_millis(), until.as_millis());
        let pauses: Vec<(i64, i64)> = clock.pauses.iter().map(millis).collect();
        let due = |deadline: Option<SlaDeadline>| deadline.map(|deadline| deadline.due_at);
        let risk = |deadline: Option<SlaDeadline>| deadline.map(|deadline| deadline.risk_at);
        let row = TicketColumns {
            id: ticket.id.into(),
            number: ticket.number.into(),
            subject: ticket.subject.as_str().into(),
            r#type: ticket.r#type.as_str().into(),
            status: ticket.status.as_str().into(),
            priority: ticket.priority.rank().into(),
            organization_id: ticket.organization_id.into(),
            requester_name: requester.name.into(),
            requester_email: requester.email.into(),
            assignee_id: ticket.assignee_id.into(),
            team: ticket.team.as_deref().into(),
            category: ticket.category.as_deref().into(),
            tags: to_json(&ticket.tags)?.into(),
            device_ids: to_json(&devices)?.into(),
            external_id: ticket.external_id.as_deref().into(),
            source: ticket.source.as_str().into(),
            due_at: ticket.due_at.into(),
            first_response_due_at: due(clock.first_response).into(),
            first_response_risk_at: risk(clock.first_response).into(),
            first_responded_at: clock.first_responded_at.into(),
            resolution_due_at: due(clock.resolution).into(),
            resolution_risk_at: risk(clock.resolution).into(),
            sla_paused_at: clock.paused_at.into(),
            sla_pauses: to_json(&pauses)?.into(),
            sla_policy: clock.policy.as_ref().map(to_json).transpose()?.into(),
            resolved_at: ticket.resolved_at.into(),
            closed_at: ticket.closed_at.into(),
            comment_count: ticket.comment_count.into(),
            version: ticket.version.into(),
            created_at: ticket.created_at.into(),
            updated_at: ticket.updated_at.into(),
            custom_fields: to_json(&ticket.custom_fields)?.into(),
            description: ticket.description.as_deref().into(),
            sequence: self.sequence.into(),
            sla_counted_until: clock.counted.map(|counted| counted.until).into(),
            sla_counted_ms: clock.counted.map(|counted| counted.ms).into(),
        };
        Ok(row.into_vec())
    }

    /// Copies the due times and the first response of the SLA clock to the ticket.
    pub fn sync_sla_fields(&mut self) {
        self.ticket.first_response_due_at = self.clock.first_response.map(|deadline| deadline.due_at);
        self.ticket.first_responded_at = self.clock.first_responded_at;
        self.ticket.resolution_due_at = self.clock.resolution.map(|deadline| deadline.due_at);
    }
}
