//! The fair queue of SQLite's single writer: one queue per tenant, served round-robin.
//!
//! In a single queue, a tenant that writes over hundreds of connections would delay all who come later. Here a tenant with
//! one write waits for one write of each other tenant, however many they have queued. It is no [`FairBudget`]: the writer
//! is a thread that takes jobs, and no job holds a permit while it runs.
//!
//! [`FairBudget`]: crate::base::FairBudget

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::base::{Error, Result, lock_unpoisoned};

use super::handle::FairnessKey;

/// One queue per fairness key; the first key in `order` is served next.
pub(super) struct FairQueue<T> {
    state: Mutex<FairQueueState<T>>,
    /// Signals that an item was queued, or that the queue was closed.
    changed: Condvar,
    max: usize,
}

struct FairQueueState<T> {
    queues: HashMap<FairnessKey, VecDeque<T>>,
    /// Every key with waiting items, once.
    order: VecDeque<FairnessKey>,
    waiting: usize,
    is_closed: bool,
}

impl<T> FairQueue<T> {
    /// A queue for `max` items in all, and half as many of each tenant.
    pub fn new(max: usize) -> Self {
        let state = FairQueueState { queues: HashMap::new(), order: VecDeque::new(), waiting: 0, is_closed: false };
        FairQueue { state: Mutex::new(state), changed: Condvar::new(), max }
    }

    /// Queues an item, or fails at once if the queue is full.
    pub fn push(&self, key: FairnessKey, item: T) -> Result<()> {
        let mut state = self.lock_state();
        if state.is_closed {
            return Err(Error::unavailable("the writer has stopped"));
        }
        if state.waiting >= self.max {
            return Err(Error::unavailable("the queue of the writer is full"));
        }
        let waiting = state.queues.get(&key).map_or(0, VecDeque::len);
        if key != FairnessKey::System && waiting >= self.max.div_ceil(2) {
            return Err(Error::unavailable("too many writes of this tenant are waiting"));
        }
        if waiting == 0 {
            state.order.push_back(key);
        }
        state.queues.entry(key).or_default().push_back(item);
        state.waiting += 1;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The next item, if there is one.
    pub fn take_next(&self) -> Option<T> {
        let mut state = self.lock_state();
        let key = state.order.pop_front()?;
        let items = state.queues.get_mut(&key)?;
        let item = items.pop_front();
        if items.is_empty() {
            state.queues.remove(&key);
        } else {
            state.order.push_back(key);
        }
        state.waiting -= 1;
        item
    }

    /// Waits for the next item; none when the queue is closed and empty.
    pub fn wait_for_next(&self) -> Option<T> {
        let state = self.lock_state();
        let must_wait = |state: &mut FairQueueState<T>| state.waiting == 0 && !state.is_closed;
        drop(self.changed.wait_while(state, must_wait).unwrap_or_else(PoisonError::into_inner));
        self.take_next()
    }

    pub fn len(&self) -> usize {
        self.lock_state().waiting
    }

    /// Refuses further items; waiting ones can still be taken.
    pub fn close(&self) {
        self.lock_state().is_closed = true;
        self.changed.notify_all();
    }

    /// Closes the queue and drops all items, when the writer thread is gone.
    pub fn close_and_clear(&self) {
        self.close();
        let mut state = self.lock_state();
        state.order.clear();
        state.queues.clear();
        state.waiting = 0;
    }

    fn lock_state(&self) -> MutexGuard<'_, FairQueueState<T>> {
        lock_unpoisoned(&self.state)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::base::{Env, TenantId};

    fn two_tenants() -> (TenantId, TenantId) {
        (TenantId::new(&Env::default()), TenantId::new(&Env::default()))
    }

    #[test]
    fn tenants_the_system_and_jobs_are_served_in_turn() {
        let (queue, (busy, quiet)) = (FairQueue::new(100), two_tenants());
        for n in 0..3 {
            queue.push(FairnessKey::Tenant(busy), format!("busy {n}")).unwrap();
        }
        queue.push(FairnessKey::Job(busy), "job".to_owned()).unwrap();
        queue.push(FairnessKey::Tenant(quiet), "quiet".to_owned()).unwrap();
        queue.push(FairnessKey::System, "system".to_owned()).unwrap();
        let served: Vec<String> = std::iter::from_fn(|| queue.take_next()).collect();
        assert_eq!(served, ["busy 0", "job", "quiet", "system", "busy 1", "busy 2"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn one_who_comes_while_others_are_served_is_next_but_one() {
        let (queue, (busy, quiet)) = (FairQueue::new(100), two_tenants());
        for n in 0..10 {
            queue.push(FairnessKey::Tenant(busy), n).unwrap();
        }
        assert_eq!(queue.take_next(), Some(0));
        queue.push(FairnessKey::Tenant(quiet), 100).unwrap();
        assert_eq!((queue.take_next(), queue.take_next(), queue.take_next()), (Some(1), Some(100), Some(2)));
    }

    #[test]
    fn no_tenant_fills_the_queue() {
        let (queue, (busy, quiet)) = (FairQueue::new(4), two_tenants());
        assert!((0..2).all(|n| queue.push(FairnessKey::Tenant(busy), n).is_ok()));
        assert!(queue.push(FairnessKey::Tenant(busy), 2).is_err());
        assert!((0..2).all(|n| queue.push(FairnessKey::Tenant(quiet), n).is_ok()));
        assert!(queue.push(FairnessKey::System, 0).is_err(), "four in all");
        queue.take_next();
        assert!(queue.push(FairnessKey::System, 0).is_ok());
    }

    #[test]
    fn what_is_queued_when_it_closes_is_still_served() {
        let queue = FairQueue::new(4);
        queue.push(FairnessKey::System, 1).unwrap();
        queue.close();
        assert!(queue.push(FairnessKey::System, 2).is_err());
        assert_eq!((queue.wait_for_next(), queue.wait_for_next()), (Some(1), None));
    }
}
