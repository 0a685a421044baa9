//! What is due and waits for its attempt, looked up some at a time.

use std::collections::VecDeque;

use kernel::base::{Result, Timestamp};
use kernel::jobs::dispatch::UnderWay;
use kernel::jobs::lanes::Lane;

use super::super::WebhookId;
use super::super::deliveries::DeliveryId;
use super::order::store::hold_behind;
use super::outcome::Due;
use super::pace::WINDOW_MAX;
use super::store;

/// Deliveries looked up at once: each look begins anew in the index, and what it finds is kept in memory.
const LOOK_MAX: usize = 128;
/// The same of a first look where order counts, for there it is forgotten whenever something was told. When all of that has
/// to wait, more is looked at.
const ORDERED_LOOK_MAX: usize = WINDOW_MAX;

/// A place in the order in which what is due is sent: when it is due, and the sequence of its event.
pub type Place = (Timestamp, i64);

/// Before all that is due.
pub const FRONT: Place = (Timestamp::from_millis(i64::MIN), 0);

/// What is due, in the order in which it is sent.
///
/// Whatever is under way or not yet noted is still due in the database, and stands at the front. So a look goes on where the
/// last one ended; and after the end there is none until it is told that something may have come.
pub struct Ready {
    waiting: VecDeque<Due>,
    /// Behind which the next look begins; none after the end.
    place: Option<Place>,
}

impl Default for Ready {
    fn default() -> Self {
        Ready { waiting: VecDeque::new(), place: Some(FRONT) }
    }
}

impl Ready {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn next(&mut self) -> Option<Due> {
        self.waiting.pop_front()
    }

    /// Forgets what was looked up: it may not be sent any more, or not as it was.
    pub fn clear(&mut self) {
        *self = Ready::default();
    }

    /// Something may have come: if all was looked up, it is looked again.
    pub fn look_again(&mut self) {
        self.place.get_or_insert(FRONT);
    }

    /// The next look begins at the front, where something may stand that was not there: clocks of nodes differ.
    pub fn start_over(&mut self) {
        self.place = Some(FRONT);
    }

    /// Looks up more if nothing is left, without what is under way. Where order counts, what has to wait is held back. False
    /// when the lane is lost.
    pub async fn look(
        &mut self,
        lane: &Lane,
        id: WebhookId,
        ordered: bool,
        now: Timestamp,
        under_way: &UnderWay<DeliveryId>,
    ) -> Result<bool> {
        let mut limit = if ordered { ORDERED_LOOK_MAX } else { LOOK_MAX };
        while let Some(place) = self.place.filter(|_| self.waiting.is_empty()) {
            let found = store::due(lane.db(), id, ordered, now, place, limit).await?;
            let last = found.last().map(|due| (due.next_attempt_at, due.event_sequence));
            self.place = last.filter(|_| found.len() == limit);
            let found = found.into_iter().filter(|due| !under_way.contains(&due.id));
            let (behind, ready): (Vec<Due>, Vec<Due>) = found.partition(|due| due.is_behind);
            if !behind.is_empty() && !hold_behind(lane, behind.iter().map(|due| due.id).collect()).await? {
                return Ok(false);
            }
            self.waiting.extend(ready);
            limit = LOOK_MAX;
        }
        Ok(true)
    }
}
