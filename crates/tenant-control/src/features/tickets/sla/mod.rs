//! What is promised for a ticket: due times in business hours, pauses, and how a ticket stands.

pub mod hours;
pub mod store;

use kernel::base::{Error, Result, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Priority, SlaState, Status};
use hours::{Hours, minutes_ms};

/// The longest promise: a year.
pub const MINUTES_MAX: i64 = 366 * 24 * 60;
/// From here on a ticket is at risk, in percent of the promised time.
const RISK_PERCENT: i64 = 80;

/// What is promised for tickets of one priority. A ticket keeps the policy it was given, also when it is changed later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub first_response_minutes: i64,
    pub resolution_minutes: i64,
    pub hours: Option<String>,
    pub timezone: Option<String>,
}

/// A policy with the priority that it is for, as the command line shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    pub priority: Priority,
    #[serde(flatten)]
    pub policy: Policy,
}

impl Policy {
    /// The policy, if its minutes and hours make sense.
    pub fn check(self) -> Result<Self> {
        for (pointer, minutes) in
            [("/first_response_minutes", self.first_response_minutes), ("/resolution_minutes", self.resolution_minutes)]
        {
            if !(1..=MINUTES_MAX).contains(&minutes) {
                return Err(Error::invalid(pointer, "out_of_range", format!("must be between 1 and {MINUTES_MAX}")));
            }
        }
        let refused = |detail: String| Error::invalid("/hours", "invalid_hours", detail);
        let hours = Hours::parse(self.hours.as_deref(), self.timezone.as_deref()).map_err(refused)?;
        if !hours.can_hold(self.first_response_minutes.max(self.resolution_minutes)) {
            return Err(refused("are so few that it would take more than ten years".to_owned()));
        }
        Ok(self)
    }

    fn calendar(&self) -> Result<Hours> {
        Hours::parse(self.hours.as_deref(), self.timezone.as_deref()).map_err(Error::internal)
    }
}

/// When something is due, and since when it is at risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub due_at: Timestamp,
    pub risk_at: Timestamp,
}

/// The clock of a ticket.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    pub policy: Option<Policy>,
    pub first_response: Option<Deadline>,
    pub resolution: Option<Deadline>,
    pub first_responded_at: Option<Timestamp>,
    /// It stands since then.
    pub paused_at: Option<Timestamp>,
}

impl Clock {
    /// The clock of a new ticket.
    pub fn start(policy: Option<Policy>, now: Timestamp) -> Result<Self> {
        let mut clock = Clock::default();
        clock.promise(policy, now, now)?;
        Ok(clock)
    }

    /// Another policy, as if it had held from the start: what has passed of the old promise has passed of the new one.
    pub fn promise(&mut self, policy: Option<Policy>, created_at: Timestamp, now: Timestamp) -> Result<()> {
        let old = self.policy.take().map(|policy| Ok::<_, Error>((policy.calendar()?, policy))).transpose()?;
        let Some(new) = policy else {
            (self.resolution, self.policy) = (None, None);
            if self.first_responded_at.is_none() {
                self.first_response = None;
            }
            return Ok(());
        };
        let (calendar, at) = (new.calendar()?, self.paused_at.unwrap_or(now));
        let deadline = |kept: Option<Deadline>, minutes: i64, old_minutes: fn(&Policy) -> i64| {
            let passed = match (&old, kept) {
                (Some((hours, policy)), Some(kept)) => {
                    minutes_ms(old_minutes(policy)) - hours.between(at, kept.due_at) + hours.between(kept.due_at, at)
                }
                _ => calendar.between(created_at, at),
            };
            let moment = |ms: i64| {
                if ms >= passed { calendar.after(at, ms - passed) } else { calendar.before(at, passed - ms) }
            };
            let total = minutes_ms(minutes);
            Some(Deadline { due_at: moment(total), risk_at: moment(total / 100 * RISK_PERCENT) })
        };
        self.resolution = deadline(self.resolution, new.resolution_minutes, |policy| policy.resolution_minutes);
        if self.first_responded_at.is_none() {
            let minutes = new.first_response_minutes;
            self.first_response = deadline(self.first_response, minutes, |policy| policy.first_response_minutes);
        }
        self.policy = Some(new);
        Ok(())
    }

    /// The ticket's status changes: some statuses stop the clock, and leaving them moves what is due.
    pub fn turn(&mut self, to: Status, now: Timestamp) -> Result<()> {
        match (self.paused_at, to.stops_the_clock()) {
            (None, true) => self.paused_at = Some(now),
            (Some(paused_at), false) => {
                if self.first_responded_at.is_none() {
                    self.first_response = self.moved(self.first_response, paused_at, now)?;
                }
                self.resolution = self.moved(self.resolution, paused_at, now)?;
                self.paused_at = None;
            }
            _ => {}
        }
        Ok(())
    }

    /// Somebody has answered, perhaps while the clock stood.
    pub fn respond(&mut self, now: Timestamp) -> Result<()> {
        if self.first_responded_at.is_some() {
            return Ok(());
        }
        if let Some(paused_at) = self.paused_at {
            self.first_response = self.moved(self.first_response, paused_at, now)?;
        }
        self.first_responded_at = Some(now);
        Ok(())
    }

    /// What was left at the pause is left again at its end. What was past stays past.
    fn moved(&self, kept: Option<Deadline>, paused_at: Timestamp, now: Timestamp) -> Result<Option<Deadline>> {
        let (Some(kept), Some(policy)) = (kept, &self.policy) else { return Ok(kept) };
        let calendar = policy.calendar()?;
        let moment = |at: Timestamp| {
            if at > paused_at { calendar.after(now, calendar.between(paused_at, at)) } else { at }
        };
        Ok(Some(Deadline { due_at: moment(kept.due_at), risk_at: moment(kept.risk_at) }))
    }

    /// How the ticket stands at a moment.
    pub fn state(&self, status: Status, now: Timestamp) -> SlaState {
        let at = self.paused_at.unwrap_or(now);
        let responded_at = self.first_responded_at.unwrap_or(at);
        let late = |deadline: Option<Deadline>, at: Timestamp| deadline.is_some_and(|deadline| at > deadline.due_at);
        let risky = |deadline: Option<Deadline>| deadline.is_some_and(|deadline| at > deadline.risk_at);
        if self.first_response.is_none() && self.resolution.is_none() {
            SlaState::None
        } else if late(self.first_response, responded_at) || late(self.resolution, at) {
            SlaState::Breached
        } else if status.is_done() {
            SlaState::Ok
        } else if self.paused_at.is_some() {
            SlaState::Paused
        } else if risky(self.resolution) || self.first_responded_at.is_none() && risky(self.first_response) {
            SlaState::AtRisk
        } else {
            SlaState::Ok
        }
    }
}
