//! The queue of due deliveries of one endpoint, loaded page by page.

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

/// Deliveries loaded at once: each load is a new index search, and its rows are kept in memory.
const LOOK_MAX: usize = 128;
/// The size of the first load on an ordered endpoint, where every wake-up discards the queue. When all of these have to
/// wait, the next load is larger.
const ORDERED_LOOK_MAX: usize = WINDOW_MAX;

/// A position in the sending order: when a delivery is due, and the sequence of its event.
pub type Place = (Timestamp, i64);

/// Before every due delivery.
pub const FRONT: Place = (Timestamp::from_millis(i64::MIN), 0);

/// Due deliveries in sending order.
///
/// Deliveries that are under way or whose outcome is not saved yet are still due in the database, at the front. So each load
/// resumes where the last one ended; after the end, nothing is loaded until something may have come.
pub struct Ready {
    waiting: VecDeque<Due>,
    /// The position after which the next load starts; `None` when everything has been loaded.
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

    /// Discards the loaded deliveries: they may no longer be due, or have changed.
    pub fn clear(&mut self) {
        *self = Ready::default();
    }

    /// Allows another load from the front if everything had been loaded: new deliveries may be due.
    pub fn look_again(&mut self) {
        self.place.get_or_insert(FRONT);
    }

    /// Starts the next load at the front, where new deliveries may appear because clocks of nodes differ.
    pub fn start_over(&mut self) {
        self.place = Some(FRONT);
    }

    /// Loads more if the queue is empty, without deliveries that are under way. On an ordered endpoint, deliveries behind an
    /// unfinished event are held. False when the lease is lost.
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
