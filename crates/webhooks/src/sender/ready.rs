//! The queue of due deliveries of one endpoint, loaded page by page.

use std::collections::VecDeque;

use kernel::base::{Result, Timestamp};
use kernel::jobs::dispatch::JobsInFlight;
use kernel::jobs::lanes::LeasedLane;

use super::super::WebhookId;
use super::super::deliveries::DeliveryId;
use super::order::store::hold_behind;
use super::outcome::{DeliveryPosition, DueDelivery, FRONT};
use super::pace::WINDOW_MAX;
use super::store;

/// Deliveries loaded at once: each load is a new index search, and its rows are kept in memory.
const LOAD_MAX: usize = 128;
/// The size of the first load on an ordered endpoint, where every wake-up discards the queue. When all of these have to
/// wait, the next load is larger.
const ORDERED_LOAD_MAX: usize = WINDOW_MAX;

/// Due deliveries in sending order.
///
/// Deliveries that are under way or whose outcome is not saved yet are still due in the database, at the front. So each load
/// resumes where the last one ended; after the end, nothing is loaded until something may have come.
pub struct DueQueue {
    waiting: VecDeque<DueDelivery>,
    /// The position after which the next load starts; `None` when everything has been loaded.
    resume_after: Option<DeliveryPosition>,
}

impl Default for DueQueue {
    fn default() -> Self {
        DueQueue { waiting: VecDeque::new(), resume_after: Some(FRONT) }
    }
}

impl DueQueue {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn pop_delivery(&mut self) -> Option<DueDelivery> {
        self.waiting.pop_front()
    }

    /// Discards the loaded deliveries: they may no longer be due, or have changed.
    pub fn clear(&mut self) {
        *self = DueQueue::default();
    }

    /// Allows another load from the front if everything had been loaded: new deliveries may be due.
    pub fn reload_if_exhausted(&mut self) {
        self.resume_after.get_or_insert(FRONT);
    }

    /// Starts the next load at the front, where new deliveries may appear because clocks of nodes differ.
    pub fn reload_from_front(&mut self) {
        self.resume_after = Some(FRONT);
    }

    /// Loads more if the queue is empty, without deliveries that are under way. On an ordered endpoint, deliveries behind an
    /// unfinished event are held. False when the lease is lost.
    pub async fn load_due(
        &mut self,
        lane: &LeasedLane,
        id: WebhookId,
        ordered: bool,
        now: Timestamp,
        in_flight: &JobsInFlight<DeliveryId>,
    ) -> Result<bool> {
        let mut limit = if ordered { ORDERED_LOAD_MAX } else { LOAD_MAX };
        while let Some(position) = self.resume_after.filter(|_| self.waiting.is_empty()) {
            let loaded = store::load_due_deliveries(lane.db(), id, ordered, now, position, limit).await?;
            let last = loaded.last().map(|due| (due.next_attempt_at, due.event_sequence));
            self.resume_after = last.filter(|_| loaded.len() == limit);
            let loaded = loaded.into_iter().filter(|due| !in_flight.contains_job(&due.id));
            let (behind, ready): (Vec<DueDelivery>, Vec<DueDelivery>) = loaded.partition(|due| due.is_behind);
            if !behind.is_empty() && !hold_behind(lane, behind.iter().map(|due| due.id).collect()).await? {
                return Ok(false);
            }
            self.waiting.extend(ready);
            limit = LOAD_MAX;
        }
        Ok(true)
    }
}
