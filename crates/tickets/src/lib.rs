//! Tickets: the record, its status transitions, and its events.
//!
//! `input` parses request bodies, `sla` computes due times, `find` lists and searches tickets.

/// The workflow actions on tickets.
pub mod actions {
    pub mod store;
}
mod document;
mod examples;
mod facts;
pub mod feature;
pub mod find;
pub mod input;
pub mod routes;
pub mod sla;
pub mod store;
pub mod stored;

use std::collections::BTreeMap;

use kernel::audit::{FieldChange, changed_fields};
use kernel::base::{ActorRef, Error, Id, Identified, Result, StringEnum, Timestamp, UserId};
use kernel::events::EventKind;
use kernel::http::Record;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use fleet::devices::DeviceId;
use people::organizations::OrganizationId;

pub const TICKET_CREATED: EventKind<Ticket> = EventKind::new("ticket.created", "A ticket was created.");
pub const TICKET_UPDATED: EventKind<UpdatedTicket> =
    EventKind::new("ticket.updated", "Fields of a ticket changed; `changes` says which, from what and to what.");
pub const TICKET_COMMENTED: EventKind<CommentedTicket> =
    EventKind::new("ticket.commented", "Somebody commented on a ticket; `comment` is what they wrote.");

pub type TicketId = Id<Ticket>;

impl Identified for Ticket {
    const PREFIX: &'static str = "tkt";
    const ABOUT: &'static str = "The ticket to change.";
}

pub type CommentId = Id<TicketComment>;

impl Identified for TicketComment {
    const PREFIX: &'static str = "cmt";
}

kernel::string_enum! {
    #[schema(as = TicketType)]
    pub enum TicketType {
        Incident "incident", ServiceRequest "service_request", Problem "problem", Change "change", Task "task",
    }
}

kernel::string_enum! {
    #[schema(as = TicketStatus)]
    pub enum TicketStatus {
        New "new", Open "open", InProgress "in_progress", Pending "pending", OnHold "on_hold", Resolved "resolved",
        Closed "closed", Cancelled "cancelled",
    }
}

kernel::string_enum! {
    /// In rising order.
    #[schema(as = TicketPriority)]
    pub enum Priority { Low "low", Medium "medium", High "high", Critical "critical" }
}

kernel::string_enum! {
    /// Where a ticket comes from: `api` by key, `ui` by a session, `workflow` by a run of one.
    #[schema(as = TicketSource)]
    pub enum Source { Api "api", Ui "ui", Email "email", Workflow "workflow", Agent "agent" }
}

kernel::string_enum! {
    /// The state of the service level; `at_risk` when less than a fifth of the time is left.
    pub enum SlaState { Ok "ok", AtRisk "at_risk", Breached "breached", Paused "paused", None "none" }
}

kernel::string_enum! {
    /// What belongs to a ticket and is a list of its own.
    #[schema(as = TicketView)]
    pub enum TicketView { Comments "comments", History "history" }
}

impl TicketStatus {
    /// The statuses that a ticket may change to.
    pub fn next_statuses(self) -> &'static [TicketStatus] {
        use TicketStatus::{Cancelled, Closed, InProgress, OnHold, Open, Pending, Resolved};
        match self {
            TicketStatus::New => &[Open, InProgress, Pending, OnHold, Resolved, Cancelled],
            Open => &[InProgress, Pending, OnHold, Resolved, Cancelled],
            InProgress => &[Open, Pending, OnHold, Resolved, Cancelled],
            Pending => &[Open, InProgress, OnHold, Resolved, Cancelled],
            OnHold => &[Open, InProgress, Pending, Resolved, Cancelled],
            Resolved => &[Closed, Open],
            Closed | Cancelled => &[Open],
        }
    }

    pub fn is_done(self) -> bool {
        matches!(self, TicketStatus::Resolved | TicketStatus::Closed | TicketStatus::Cancelled)
    }

    /// Whether the service desk has nothing to do, so that the SLA clock pauses.
    pub fn stops_the_clock(self) -> bool {
        self.is_done() || matches!(self, TicketStatus::Pending | TicketStatus::OnHold)
    }

    pub fn check_transition(self, to: TicketStatus) -> Result<()> {
        if self.next_statuses().contains(&to) {
            return Ok(());
        }
        let words: Vec<&str> = self.next_statuses().iter().map(|status| status.as_str()).collect();
        let detail = format!(
            "A ticket that is {} cannot become {}. It can become: {}.",
            self.as_str(),
            to.as_str(),
            words.join(", ")
        );
        Err(Error::new(feature_kit::INVALID_TRANSITION, detail))
    }
}

impl Priority {
    /// The number that the priority is stored and sorted by.
    pub fn rank(self) -> i64 {
        self as i64
    }

    pub fn from_rank(rank: i64) -> Result<Self> {
        let found = Priority::ALL.iter().copied().find(|priority| priority.rank() == rank);
        found.ok_or_else(|| Error::internal(format!("unknown priority {rank} in the database")))
    }
}

/// A ticket.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = examples::new_ticket)]
pub struct Ticket {
    #[schema(value_type = String)]
    pub id: TicketId,
    /// 1, 2, 3… in each tenant, without gaps.
    pub number: i64,
    pub subject: String,
    #[schema(required)]
    pub description: Option<String>,
    pub r#type: TicketType,
    pub status: TicketStatus,
    pub priority: Priority,
    #[schema(value_type = Option<String>, required)]
    pub organization_id: Option<OrganizationId>,
    #[schema(required)]
    pub requester: Option<TicketRequester>,
    #[schema(value_type = Option<String>, required)]
    pub assignee_id: Option<UserId>,
    #[schema(required)]
    pub team: Option<String>,
    #[schema(required)]
    pub category: Option<String>,
    pub tags: Vec<String>,
    pub custom_fields: Map<String, Value>,
    #[schema(value_type = Vec<String>)]
    pub device_ids: Vec<DeviceId>,
    #[schema(required)]
    pub external_id: Option<String>,
    pub source: Source,
    /// A date that you set; it is not part of the service level.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub due_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub first_response_due_at: Option<Timestamp>,
    /// The first public comment of a user or key.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub first_responded_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub resolution_due_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub resolved_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub closed_at: Option<Timestamp>,
    pub sla_state: SlaState,
    pub comment_count: i64,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for Ticket {
    fn version(&self) -> i64 {
        self.version
    }
}

/// Who asked for help.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TicketRequester)]
pub struct TicketRequester {
    #[schema(required)]
    pub name: Option<String>,
    #[schema(required)]
    pub email: Option<String>,
}

/// A ticket with what was said and done about it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = examples::ticket_detail)]
pub struct TicketDetail {
    #[serde(flatten)]
    pub ticket: Ticket,
    /// Oldest first; the last 1000 and about 4 MB of them. All are the list `view=comments`.
    pub comments: Vec<TicketComment>,
    /// Oldest first; the last 1000 and about 4 MB of them. All are the list `view=history`.
    pub history: Vec<TicketChange>,
}

impl Record for TicketDetail {
    fn version(&self) -> i64 {
        self.ticket.version
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = TicketComment, example = examples::ticket_comment)]
pub struct TicketComment {
    #[schema(value_type = String)]
    pub id: CommentId,
    pub body: String,
    /// Whether the requester may read it.
    pub public: bool,
    pub author: ActorRef,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// One change of a ticket; the first is its creation.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = TicketChange, example = json!({
    "at": "2026-11-15T08:01:00.000Z",
    "actor": {"type": "api_key", "id": "key_01jd8z6v2mfkpb7h3q9xw5t4rc", "name": "Monitoring"},
    "changes": {"status": {"from": "new", "to": "open"}}
}))]
pub struct TicketChange {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub actor: ActorRef,
    pub changes: TicketChanges,
}

/// Fields before and after.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, ToSchema)]
#[schema(as = TicketChanges)]
#[serde(transparent)]
pub struct TicketChanges(pub BTreeMap<String, FieldChange>);

/// A ticket with what has just changed in it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = examples::updated_ticket)]
pub struct UpdatedTicket {
    #[serde(flatten)]
    pub ticket: Ticket,
    pub changes: TicketChanges,
}

/// A ticket with what has just been said about it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = examples::commented_ticket)]
pub struct CommentedTicket {
    #[serde(flatten)]
    pub ticket: Ticket,
    pub comment: TicketComment,
}

/// Fields that change with every write or by themselves, and are not reported as changes.
const UNREPORTED_FIELDS: [&str; 4] = ["version", "updated_at", "sla_state", "comment_count"];

/// The fields in which two states of a ticket differ.
pub fn diff_tickets(old: &Ticket, new: &Ticket) -> Result<TicketChanges> {
    changed_fields(old, new, &UNREPORTED_FIELDS).map(TicketChanges)
}
