//! The fair queue of SQLite's single writer: one queue per tenant, served round-robin.
//!
//! In a single queue, a tenant that writes over hundreds of connections would delay all who come later. Here a tenant with
//! one write waits for one write of each other tenant, however many they have queued.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::base::{Error, Result};

use super::handle::Lane;

/// One queue per fairness key; the first key in `order` is served next.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Signals that an item was queued, or that the queue was closed.
    news: Condvar,
    max: usize,
}

struct State<T> {
    lanes: HashMap<Lane, VecDeque<T>>,
    /// Every key with waiting items, once.
    order: VecDeque<Lane>,
    waiting: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    /// A queue for `max` items in all, and half as many of each tenant.
    pub fn new(max: usize) -> Self {
        let state = State { lanes: HashMap::new(), order: VecDeque::new(), waiting: 0, is_closed: false };
        Queue { state: Mutex::new(state), news: Condvar::new(), max }
    }

    /// Queues an item, or fails at once if the queue is full.
    pub fn push(&self, lane: Lane, item: T) -> Result<()> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Error::unavailable("the writer has stopped"));
        }
        if state.waiting >= self.max {
            return Err(Error::unavailable("the queue of the writer is full"));
        }
        let waiting = state.lanes.get(&lane).map_or(0, VecDeque::len);
        if lane != Lane::System && waiting >= self.max.div_ceil(2) {
            return Err(Error::unavailable("too many writes of this tenant are waiting"));
        }
        if waiting == 0 {
            state.order.push_back(lane);
        }
        state.lanes.entry(lane).or_default().push_back(item);
        state.waiting += 1;
        drop(state);
        self.news.notify_one();
        Ok(())
    }

    /// The next item, if there is one.
    pub fn take(&self) -> Option<T> {
        let mut state = self.lock();
        let lane = state.order.pop_front()?;
        let items = state.lanes.get_mut(&lane)?;
        let item = items.pop_front();
        if items.is_empty() {
            state.lanes.remove(&lane);
        } else {
            state.order.push_back(lane);
        }
        state.waiting -= 1;
        item
    }

    /// Waits for the next item; none when the queue is closed and empty.
    pub fn wait(&self) -> Option<T> {
        let state = self.lock();
        let nothing = |state: &mut State<T>| state.waiting == 0 && !state.is_closed;
        drop(self.news.wait_while(state, nothing).unwrap_or_else(PoisonError::into_inner));
        self.take()
    }

    pub fn len(&self) -> usize {
        self.lock().waiting
    }

    /// Refuses further items; waiting ones can still be taken.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.news.notify_all();
    }

    /// Closes the queue and drops all items, when the writer thread is gone.
    pub fn abandon(&self) {
        self.close();
        let mut state = self.lock();
        state.order.clear();
        state.lanes.clear();
        state.waiting = 0;
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::base::{TenantId, World};

    fn tenants() -> (TenantId, TenantId) {
        (TenantId::new(&World::default()), TenantId::new(&World::default()))
    }

    #[test]
    fn tenants_the_system_and_jobs_are_served_in_turn() {
        let (queue, (busy, quiet)) = (Queue::new(100), tenants());
        for n in 0..3 {
            queue.push(Lane::Tenant(busy), format!("busy {n}")).unwrap();
        }
        queue.push(Lane::Job(busy), "job".to_owned()).unwrap();
        queue.push(Lane::Tenant(quiet), "quiet".to_owned()).unwrap();
        queue.push(Lane::System, "system".to_owned()).unwrap();
        let served: Vec<String> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(served, ["busy 0", "job", "quiet", "system", "busy 1", "busy 2"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn one_who_comes_while_others_are_served_is_next_but_one() {
        let (queue, (busy, quiet)) = (Queue::new(100), tenants());
        for n in 0..10 {
            queue.push(Lane::Tenant(busy), n).unwrap();
        }
        assert_eq!(queue.take(), Some(0));
        queue.push(Lane::Tenant(quiet), 100).unwrap();
        assert_eq!((queue.take(), queue.take(), queue.take()), (Some(1), Some(100), Some(2)));
    }

    #[test]
    fn no_tenant_fills_the_queue() {
        let (queue, (busy, quiet)) = (Queue::new(4), tenants());
        assert!((0..2).all(|n| queue.push(Lane::Tenant(busy), n).is_ok()));
        assert!(queue.push(Lane::Tenant(busy), 2).is_err());
        assert!((0..2).all(|n| queue.push(Lane::Tenant(quiet), n).is_ok()));
        assert!(queue.push(Lane::System, 0).is_err(), "four in all");
        queue.take();
        assert!(queue.push(Lane::System, 0).is_ok());
    }

    #[test]
    fn what_is_queued_when_it_closes_is_still_served() {
        let queue = Queue::new(4);
        queue.push(Lane::System, 1).unwrap();
        queue.close();
        assert!(queue.push(Lane::System, 2).is_err());
        assert_eq!((queue.wait(), queue.wait()), (Some(1), None));
    }
}
