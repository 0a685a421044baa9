//! Permits of a node that tenants share so that no number of tenants can hold them all.
//!
//! A tenant may hold at most a part of the free permits: many when it is alone, fewer the more others hold. So some are
//! always left, and a tenant that holds none gets one as long as one is free. Permits are never revoked: a holder of many
//! keeps them, and gets no more.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

pub struct FairPermits<K> {
    total: usize,
    /// A holder has at most the number of free permits divided by this.
    part: usize,
    state: Mutex<PermitState<K>>,
    freed: Notify,
}

struct PermitState<K> {
    free: usize,
    held: HashMap<K, usize>,
}

/// One permit, released when it is dropped.
pub struct FairPermit<K: Copy + Eq + Hash> {
    permits: Arc<FairPermits<K>>,
    holder: K,
}

impl<K: Copy + Eq + Hash> FairPermits<K> {
    /// Alone, a holder gets `total / (part + 1)` permits.
    pub fn new(total: usize, part: usize) -> Arc<Self> {
        let state = Mutex::new(PermitState { free: total, held: HashMap::new() });
        Arc::new(FairPermits { total, part, state, freed: Notify::new() })
    }

    /// Acquires a permit without waiting.
    pub fn try_acquire(self: &Arc<Self>, holder: K) -> Option<FairPermit<K>> {
        self.try_acquire_beside(holder, 0)
    }

    /// The same for a holder that has `elsewhere` permits in another pool, which count as well.
    pub fn try_acquire_beside(self: &Arc<Self>, holder: K, elsewhere: usize) -> Option<FairPermit<K>> {
        let mut state = self.lock_state();
        if self.available_in(&state, holder, elsewhere) == 0 {
            return None;
        }
        state.free -= 1;
        *state.held.entry(holder).or_default() += 1;
        Some(FairPermit { permits: self.clone(), holder })
    }

    /// Waits until the holder may have one more permit.
    pub async fn acquire(self: &Arc<Self>, holder: K) -> FairPermit<K> {
        loop {
            // Registered before the attempt, so that a release in between is not missed.
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(permit) = self.try_acquire(holder) {
                return permit;
            }
            freed.await;
        }
    }

    /// How many more permits the holder could acquire now.
    pub fn available_for(&self, holder: K) -> usize {
        self.available_in(&self.lock_state(), holder, 0)
    }

    /// Whether at least half of all permits are free.
    pub fn is_half_free(&self) -> bool {
        2 * self.lock_state().free >= self.total
    }

    pub fn held_by(&self, holder: K) -> usize {
        self.lock_state().held.get(&holder).copied().unwrap_or(0)
    }

    /// Waits until a permit is released.
    pub async fn wait_for_release(&self) {
        self.freed.notified().await;
    }

    fn available_in(&self, state: &PermitState<K>, holder: K, elsewhere: usize) -> usize {
        match state.held.get(&holder).copied().unwrap_or(0) + elsewhere {
            0 => (state.free / (self.part + 1)).max(state.free.min(1)),
            held => state.free.saturating_sub(self.part * held) / (self.part + 1),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, PermitState<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Copy + Eq + Hash> Drop for FairPermit<K> {
    fn drop(&mut self) {
        let mut state = self.permits.lock_state();
        state.free += 1;
        if let Some(held) = state.held.get_mut(&self.holder) {
            *held -= 1;
            if *held == 0 {
                state.held.remove(&self.holder);
            }
        }
        drop(state);
        self.permits.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the holders acquire permits in turn until none gets another.
    fn fill(permits: &Arc<FairPermits<usize>>, holders: std::ops::Range<usize>) -> Vec<FairPermit<usize>> {
        let mut held = Vec::new();
        loop {
            let before = held.len();
            held.extend(holders.clone().filter_map(|holder| permits.try_acquire(holder)));
            if held.len() == before {
                return held;
            }
        }
    }

    #[test]
    fn one_alone_has_its_part_and_gets_it_again_when_it_has_given_it_back() {
        for (total, part, most) in [(512, 3, 128), (512, 8, 56), (64, 7, 8), (20, 8, 2), (2, 8, 1), (1, 8, 1)] {
            let permits = FairPermits::new(total, part);
            assert_eq!(fill(&permits, 0..1).len(), most, "{total} / {part}");
            assert_eq!(fill(&permits, 0..1).len(), most, "{total} / {part}, again");
        }
        assert!(FairPermits::new(0, 8).try_acquire(1).is_none());
    }

    #[test]
    fn however_many_take_all_they_get_something_is_left_for_one_who_has_nothing() {
        for holders in [1, 2, 8, 11, 32, 100, 400] {
            let permits = FairPermits::new(512, 8);
            let held = fill(&permits, 0..holders);
            assert!(permits.available_for(holders) > 0, "{holders} hold {}", held.len());
            assert!(permits.try_acquire(holders).is_some());
        }
    }

    #[tokio::test]
    async fn whoever_waits_goes_on_when_one_is_given_back() {
        let permits = FairPermits::new(1, 8);
        let held = permits.acquire(1).await;
        let waiting = tokio::spawn({
            let permits = permits.clone();
            async move { permits.acquire(2).await.holder }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(held);
        assert_eq!(waiting.await.unwrap_or_default(), 2);
        assert_eq!(permits.held_by(2), 0);
    }
}
