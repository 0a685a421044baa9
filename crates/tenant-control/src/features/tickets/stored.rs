//! A ticket as a row: how it is read, and what is written of it.

use kernel::base::{Error, Result, Timestamp, Word};
use kernel::store::{FromRow, Row, Value};

use super::sla::{Clock, Counted, Deadline, Policy};
use super::{Priority, Requester, SlaState, Source, Status, Ticket, Type};

/// A ticket as it is stored. How it stands depends on when it is looked at.
pub struct StoredTicket {
    pub ticket: Ticket,
    pub clock: Clock,
    /// Of the write that changed it last.
    pub sequence: i64,
}

impl FromRow for StoredTicket {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let text = |index: usize| row.get::<String>(index);
        let name: Option<String> = row.get(7)?;
        let email: Option<String> = row.get(8)?;
        let requester = (name.is_some() || email.is_some()).then_some(Requester { name, email });
        let deadline = |due: usize, risk: usize| -> Result<Option<Deadline>> {
            let (due, risk): (Option<Timestamp>, Option<Timestamp>) = (row.get(due)?, row.get(risk)?);
            Ok(due.zip(risk).map(|(due_at, risk_at)| Deadline { due_at, risk_at }))
        };
        let policy: Option<String> = row.get(24)?;
        let pauses: Vec<(i64, i64)> = serde_json::from_str(&text(23)?).map_err(Error::internal)?;
        let moment = Timestamp::from_millis;
        let counted: (Option<Timestamp>, Option<i64>) = (row.get(34)?, row.get(35)?);
        let clock = Clock {
            counted: counted.0.zip(counted.1).map(|(until, ms)| Counted { until, ms }),
            policy: policy.map(|text| serde_json::from_str::<Policy>(&text)).transpose().map_err(Error::internal)?,
            first_response: deadline(17, 18)?,
            first_responded_at: row.get(19)?,
            resolution: deadline(20, 21)?,
            paused_at: row.get(22)?,
            pauses: pauses.into_iter().map(|(from, until)| (moment(from), moment(until))).collect(),
            created_at: row.get(29)?,
        };
        let devices: Vec<String> = serde_json::from_str(&text(13)?).map_err(Error::internal)?;
        let ticket = Ticket {
            id: row.get(0)?,
            number: row.get(1)?,
            subject: text(2)?,
            description: row.get(32)?,
            r#type: Type::stored(&text(3)?)?,
            status: Status::stored(&text(4)?)?,
            priority: Priority::from_rank(row.get(5)?)?,
            organization_id: row.get(6)?,
            requester,
            assignee_id: row.get(9)?,
            team: row.get(10)?,
            category: row.get(11)?,
            tags: serde_json::from_str(&text(12)?).map_err(Error::internal)?,
            custom_fields: serde_json::from_str(&text(31)?).map_err(Error::internal)?,
            device_ids: devices.iter().filter_map(|id| id.parse().ok()).collect(),
            external_id: row.get(14)?,
            source: Source::stored(&text(15)?)?,
            due_at: row.get(16)?,
            first_response_due_at: row.get(17)?,
            first_responded_at: row.get(19)?,
            resolution_due_at: row.get(20)?,
            resolved_at: row.get(25)?,
            closed_at: row.get(26)?,
            sla_state: SlaState::None,
            comment_count: row.get(27)?,
            version: row.get(28)?,
            created_at: row.get(29)?,
            updated_at: row.get(30)?,
        };
        Ok(StoredTicket { ticket, clock, sequence: row.get(33)? })
    }
}

impl StoredTicket {
    pub fn number(&self) -> i64 {
        self.ticket.number
    }

    /// The ticket as it stands at a moment.
    pub fn at(mut self, now: Timestamp) -> Ticket {
        self.ticket.sla_state = self.clock.state(self.ticket.status, now);
        self.ticket
    }

    /// Takes it out of the future, into which a clock that was ahead has put it. When it is due by its own word stays.
    pub fn bring_back(&mut self, now: Timestamp) -> Result<()> {
        self.clock.bring_back(now)?;
        let ticket = &mut self.ticket;
        ticket.created_at = ticket.created_at.min(now);
        ticket.updated_at = ticket.updated_at.min(now);
        ticket.resolved_at = ticket.resolved_at.map(|at| at.min(now));
        ticket.closed_at = ticket.closed_at.map(|at| at.min(now));
        self.show_clock();
        Ok(())
    }

    /// Everything but the tenant, in the order of INSERT and UPDATE.
    pub fn values(&self) -> Result<Vec<Value>> {
        let (ticket, clock) = (&self.ticket, &self.clock);
        let requester = ticket.requester.clone().unwrap_or_default();
        let devices: Vec<String> = ticket.device_ids.iter().map(ToString::to_string).collect();
        let millis = |(from, until): &(Timestamp, Timestamp)| (from.as_millis(), until.as_millis());
        let pauses: Vec<(i64, i64)> = clock.pauses.iter().map(millis).collect();
        let due = |deadline: Option<Deadline>| deadline.map(|deadline| deadline.due_at);
        let risk = |deadline: Option<Deadline>| deadline.map(|deadline| deadline.risk_at);
        Ok(vec![
            ticket.id.into(),
            ticket.number.into(),
            ticket.subject.as_str().into(),
            ticket.r#type.as_str().into(),
            ticket.status.as_str().into(),
            ticket.priority.rank().into(),
            ticket.organization_id.into(),
            requester.name.into(),
            requester.email.into(),
            ticket.assignee_id.into(),
            ticket.team.as_deref().into(),
            ticket.category.as_deref().into(),
            json(&ticket.tags)?.into(),
            json(&devices)?.into(),
            ticket.external_id.as_deref().into(),
            ticket.source.as_str().into(),
            ticket.due_at.into(),
            due(clock.first_response).into(),
            risk(clock.first_response).into(),
            clock.first_responded_at.into(),
            due(clock.resolution).into(),
            risk(clock.resolution).into(),
            clock.paused_at.into(),
            json(&pauses)?.into(),
            clock.policy.as_ref().map(json).transpose()?.into(),
            ticket.resolved_at.into(),
            ticket.closed_at.into(),
            ticket.comment_count.into(),
            ticket.version.into(),
            ticket.created_at.into(),
            ticket.updated_at.into(),
            json(&ticket.custom_fields)?.into(),
            ticket.description.as_deref().into(),
            self.sequence.into(),
            clock.counted.map(|counted| counted.until).into(),
            clock.counted.map(|counted| counted.ms).into(),
        ])
    }

    /// Shows what the clock says.
    pub fn show_clock(&mut self) {
        self.ticket.first_response_due_at = self.clock.first_response.map(|deadline| deadline.due_at);
        self.ticket.first_responded_at = self.clock.first_responded_at;
        self.ticket.resolution_due_at = self.clock.resolution.map(|deadline| deadline.due_at);
    }
}

pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(Error::internal)
}
