//! What a change of a ticket contributes to figures: pure, of its state before and after.

use figures::Fact;
use figures::Group;
use figures::cells::{
    BORN, BORN_OPEN, FIRST_RESPONSE_MS, ORGANIZATION, PRIORITY, RESOLUTION_MS, SLA_MET, SLA_MISSED, STATUS,
    TICKETS_CREATED, TICKETS_OPEN, TICKETS_RESOLVED,
};
use kernel::base::{StringEnum, Timestamp};

use super::{Ticket, TicketStatus};

/// The fact of a change; empty if no figure changes. `old` is none when the ticket is created.
pub fn ticket_fact(old: Option<&Ticket>, new: &Ticket, at: Timestamp) -> Fact {
    let mut fact = Fact { born_at: Some(new.created_at.as_millis()), ..Fact::new(at.as_millis()) };
    let is_open = |ticket: &Ticket| i64::from(!ticket.status.is_done());
    let was_open = old.map_or(0, is_open);
    fact.add_count(TICKETS_CREATED, i64::from(old.is_none()));
    fact.add_count(TICKETS_OPEN, is_open(new) - was_open);
    let since_creation = |until: Timestamp| until.as_millis() - new.created_at.as_millis();
    if let (None, Some(responded_at)) = (old.and_then(|old| old.first_responded_at), new.first_responded_at) {
        fact.add_sample(FIRST_RESPONSE_MS, since_creation(responded_at));
    }
    let was_resolved = old.is_some_and(|old| old.status == TicketStatus::Resolved);
    if new.status == TicketStatus::Resolved && !was_resolved {
        fact.add_count(TICKETS_RESOLVED, 1);
        fact.add_sample(RESOLUTION_MS, since_creation(at));
        if let Some(met) = kept_promises(new, at) {
            fact.add_count(if met { SLA_MET } else { SLA_MISSED }, 1);
        }
    }
    let text = |word: &'static str| Some(word.to_owned());
    fact.move_count(STATUS, BORN, old.and_then(|old| text(old.status.as_str())), text(new.status.as_str()));
    fact.move_count(PRIORITY, BORN, old.and_then(|old| text(old.priority.as_str())), text(new.priority.as_str()));
    let organization = |ticket: &Ticket| ticket.organization_id.map(|id| id.to_string()).unwrap_or_default();
    fact.move_count(ORGANIZATION, BORN, old.map(organization), Some(organization(new)));
    if let Some(old) = old {
        fact.group_mut(Group::new(ORGANIZATION, organization(old))).add_count(BORN_OPEN, -was_open);
    }
    fact.group_mut(Group::new(ORGANIZATION, organization(new))).add_count(BORN_OPEN, is_open(new));
    fact
}

/// Whether a ticket that is resolved now was answered and resolved in time; none if nothing was promised. One that is resolved
/// without an answer is answered by that.
fn kept_promises(ticket: &Ticket, resolved_at: Timestamp) -> Option<bool> {
    let responded_at = ticket.first_responded_at.unwrap_or(resolved_at);
    let response = ticket.first_response_due_at.map(|due_at| responded_at <= due_at);
    let resolution = ticket.resolution_due_at.map(|due_at| resolved_at <= due_at);
    match (response, resolution) {
        (None, None) => None,
        (response, resolution) => Some(response != Some(false) && resolution != Some(false)),
    }
}
