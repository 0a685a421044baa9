//! Service level agreements: due times in business hours, pauses, and the SLA state of a ticket.

pub mod hours;
pub mod store;

use kernel::base::{Error, Result, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Priority, SlaState, TicketStatus};
use hours::{BusinessHours, minutes_ms};

/// The longest target: a year.
pub const MINUTES_MAX: i64 = 366 * 24 * 60;
/// A ticket is at risk after this share of the target time.
const RISK_PERCENT: i64 = 80;

/// The targets for tickets of one priority. A ticket keeps a copy of its policy, also when the policy is changed later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlaPolicy {
    pub first_response_minutes: i64,
    pub resolution_minutes: i64,
    pub hours: Option<String>,
    pub timezone: Option<String>,
}

/// A policy with its priority, as the command line shows it.
#[derive(Clone, Debug, Serialize)]
pub struct PriorityPolicy {
    pub priority: Priority,
    #[serde(flatten)]
    pub policy: SlaPolicy,
}

impl SlaPolicy {
    /// Returns the policy if its minutes and hours are valid.
    pub fn into_checked(self) -> Result<Self> {
        for (pointer, minutes) in
            [("/first_response_minutes", self.first_response_minutes), ("/resolution_minutes", self.resolution_minutes)]
        {
            if !(1..=MINUTES_MAX).contains(&minutes) {
                return Err(Error::invalid(pointer, "out_of_range", format!("must be between 1 and {MINUTES_MAX}")));
            }
        }
        let refused = |detail: String| Error::invalid("/hours", "invalid_hours", detail);
        let hours = BusinessHours::parse(self.hours.as_deref(), self.timezone.as_deref()).map_err(refused)?;
        if !hours.can_hold(self.first_response_minutes.max(self.resolution_minutes)) {
            return Err(refused("are too few: it would take more than ten years".to_owned()));
        }
        Ok(self)
    }

    fn business_hours(&self) -> Result<BusinessHours> {
        BusinessHours::parse(self.hours.as_deref(), self.timezone.as_deref()).map_err(Error::internal)
    }
}

/// When a target is due, and from when on it is at risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlaDeadline {
    pub due_at: Timestamp,
    pub risk_at: Timestamp,
}

/// Pauses that are kept one by one. Older ones are folded into [`CountedTime`].
const PAUSES_MAX: usize = 100;

/// How much time counted until a moment, in the business hours of the policy at that time; without a policy, day and night.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedTime {
    pub until: Timestamp,
    pub ms: i64,
}

/// The SLA clock of a ticket. The deadlines follow from the policy, the creation time and the pauses.
#[derive(Clone, Debug)]
pub struct SlaClock {
    pub created_at: Timestamp,
    pub policy: Option<SlaPolicy>,
    pub first_response: Option<SlaDeadline>,
    pub resolution: Option<SlaDeadline>,
    pub first_responded_at: Option<Timestamp>,
    /// When the current pause began.
    pub paused_at: Option<Timestamp>,
    /// The time that counted before `pauses`; `None` while `pauses` has all of them.
    pub counted: Option<CountedTime>,
    /// Ended pauses, oldest first.
    pub pauses: Vec<(Timestamp, Timestamp)>,
}

impl SlaClock {
    /// The clock of a new ticket.
    pub fn for_new_ticket(policy: Option<SlaPolicy>, created_at: Timestamp) -> Result<Self> {
        let mut clock = SlaClock {
            created_at,
            policy: None,
            first_response: None,
            resolution: None,
            first_responded_at: None,
            paused_at: None,
            counted: None,
            pauses: Vec::new(),
        };
        clock.set_policy(policy)?;
        Ok(clock)
    }

    /// Sets the policy as if it had applied from the start. Time that was counted already stays counted, and so does the
    /// deadline of a first response that was given.
    pub fn set_policy(&mut self, policy: Option<SlaPolicy>) -> Result<()> {
        self.policy = policy;
        self.resolution = None;
        if self.first_responded_at.is_none() {
            self.first_response = None;
        }
        self.update_deadlines()
    }

    /// Pauses or resumes the clock for a new status. Resuming moves the deadlines.
    pub fn apply_status(&mut self, to: TicketStatus, now: Timestamp) -> Result<()> {
        match (self.paused_at, to.stops_the_clock()) {
            (None, true) => self.paused_at = Some(now),
            (Some(paused_at), false) => {
                self.paused_at = None;
                self.pauses.push((paused_at, now));
                self.fold_oldest_pauses()?;
                self.update_deadlines()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Records the first response, which may come during a pause.
    pub fn record_response(&mut self, now: Timestamp) -> Result<()> {
        if self.first_responded_at.is_some() {
            return Ok(());
        }
        self.first_responded_at = Some(now);
        if let Some(policy) = &self.policy {
            self.first_response = Some(self.response_deadline(policy, &policy.business_hours()?));
        }
        self.update_deadlines()
    }

    /// Clamps creation, pauses and response to `now`, and recomputes the deadlines if that changes them. Counted time that
    /// reaches into the future cannot be split, and is dropped.
    pub fn clamp_future_timestamps(&mut self, now: Timestamp) -> Result<()> {
        let ended = self.pauses.last().map(|(_, until)| *until);
        let added_up = self.counted.map(|counted| counted.until);
        let moments = [Some(self.created_at), self.paused_at, ended, added_up];
        let moved = moments.into_iter().flatten().any(|moment| moment > now);
        let responded_then = self.first_responded_at.is_some_and(|at| at <= now);
        self.first_responded_at = self.first_responded_at.map(|at| at.min(now));
        if !moved {
            return Ok(());
        }
        self.created_at = self.created_at.min(now);
        self.paused_at = self.paused_at.map(|at| at.min(now));
        self.pauses.iter_mut().for_each(|pause| *pause = (pause.0.min(now), pause.1.min(now)));
        self.counted = self.counted.filter(|counted| counted.until <= now);
        // The deadline of a response that was given by now stays.
        self.first_response = self.first_response.filter(|_| responded_then);
        let policy = self.policy.take();
        self.set_policy(policy)
    }

    /// Folds the oldest of too many pauses into the counted time.
    fn fold_oldest_pauses(&mut self) -> Result<()> {
        let calendar = self.policy.as_ref().map_or(Ok(BusinessHours::Always), SlaPolicy::business_hours)?;
        while self.pauses.len() > PAUSES_MAX {
            let (from, until) = self.pauses.remove(0);
            let (start, ms) = self.counted.map_or((self.created_at, 0), |counted| (counted.until, counted.ms));
            self.counted = Some(CountedTime { until, ms: ms + calendar.counted_ms_between(start, from) });
        }
        Ok(())
    }

    fn update_deadlines(&mut self) -> Result<()> {
        let Some(policy) = &self.policy else {
            (self.first_response, self.resolution) = (None, None);
            return Ok(());
        };
        let calendar = policy.business_hours()?;
        self.resolution =
            Some(self.compute_deadline(&calendar, policy.resolution_minutes, self.resolution, &self.pauses));
        if self.first_responded_at.is_none() || self.first_response.is_none() {
            self.first_response = Some(self.response_deadline(policy, &calendar));
        }
        Ok(())
    }

    /// The deadline of the first response.
    fn response_deadline(&self, policy: &SlaPolicy, calendar: &BusinessHours) -> SlaDeadline {
        let pauses = self.pauses_until(self.first_responded_at);
        self.compute_deadline(calendar, policy.first_response_minutes, self.first_response, &pauses)
    }

    /// The pauses before a moment, including the current one if it began before it.
    fn pauses_until(&self, moment: Option<Timestamp>) -> Vec<(Timestamp, Timestamp)> {
        let Some(moment) = moment else { return self.pauses.clone() };
        let current = self.paused_at.map(|paused_at| (paused_at, moment));
        let all = self.pauses.iter().copied().chain(current);
        all.filter(|(from, _)| *from < moment).map(|(from, until)| (from, until.min(moment))).collect()
    }

    /// When so many minutes of business hours have passed outside of pauses. A deadline within the counted time keeps its
    /// previous value, because later pauses do not move it.
    fn compute_deadline(
        &self,
        calendar: &BusinessHours,
        minutes: i64,
        previous: Option<SlaDeadline>,
        pauses: &[(Timestamp, Timestamp)],
    ) -> SlaDeadline {
        let moment = |ms: i64, previous: Option<Timestamp>| {
            let (mut at, mut left) = (self.created_at, ms);
            if let Some(counted) = self.counted {
                if ms <= counted.ms {
                    return previous.unwrap_or_else(|| calendar.moment_after(self.created_at, ms).min(counted.until));
                }
                (at, left) = (counted.until, ms - counted.ms);
            }
            for (from, until) in pauses {
                let running = calendar.counted_ms_between(at, *from);
                if left <= running {
                    break;
                }
                left -= running;
                at = at.max(*until);
            }
            calendar.moment_after(at, left)
        };
        let (total, due_at, risk_at) =
            (minutes_ms(minutes), previous.map(|at| at.due_at), previous.map(|at| at.risk_at));
        SlaDeadline { due_at: moment(total, due_at), risk_at: moment(total / 100 * RISK_PERCENT, risk_at) }
    }

    /// The SLA state at a moment.
    pub fn state_at(&self, status: TicketStatus, now: Timestamp) -> SlaState {
        let at = self.paused_at.unwrap_or(now);
        let responded_at = self.first_responded_at.unwrap_or(at);
        let late = |deadline: Option<SlaDeadline>, at: Timestamp| deadline.is_some_and(|deadline| at > deadline.due_at);
        let risky = |deadline: Option<SlaDeadline>| deadline.is_some_and(|deadline| at > deadline.risk_at);
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
