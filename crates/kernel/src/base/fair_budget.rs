//! A budget that payers share fairly: permits to do something, or bytes of memory. Whatever of a node is shared by tenants,
//! addresses or keys is shared by one of these.
//!
//! A payer may hold a part of what the others leave, so no number of greedy payers takes everything from the next one, and
//! a payer that is alone has the most; or a fixed number. Nothing is taken back: a payer that holds more than its limit gets
//! no more. Each payer has its own queue of waiters. Released units go to the payers in turn,
//! first to those that held nothing, as in fair queueing for sparse flows (RFC 8290).

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use super::lock_unpoisoned;

/// How a budget is shared.
#[derive(Clone, Copy, Debug)]
pub struct BudgetLimits {
    /// Units for all payers.
    pub shared: usize,
    /// Further units, for payers that hold few.
    pub reserve: usize,
    /// A payer may take from the reserve until it holds this many units. Its first request may be larger.
    pub floor: usize,
    /// A payer holds at most the shared units that the others leave, divided by this.
    pub divisor: usize,
    /// A payer never holds more than this many units.
    pub each: usize,
}

impl BudgetLimits {
    /// The limits of a budget are those that it names; the others are taken from here.
    pub const UNLIMITED: BudgetLimits =
        BudgetLimits { shared: usize::MAX, reserve: 0, floor: 0, divisor: 1, each: usize::MAX };
}

/// The payer that units are charged to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BudgetAccount<K> {
    pub payer: K,
    /// One credential holds at most half of its payer's limit, so that a greedy key leaves something to the payer's other
    /// keys.
    pub credential: Option<Arc<str>>,
}

impl<K> From<K> for BudgetAccount<K> {
    fn from(payer: K) -> Self {
        BudgetAccount { payer, credential: None }
    }
}

/// Cheap to clone; clones share one budget.
pub struct FairBudget<K: Clone + Eq + Hash>(Arc<BudgetInner<K>>);

impl<K: Clone + Eq + Hash> Clone for FairBudget<K> {
    fn clone(&self) -> Self {
        FairBudget(self.0.clone())
    }
}

struct BudgetInner<K: Clone + Eq + Hash> {
    limits: BudgetLimits,
    state: Mutex<BudgetState<K>>,
}

struct BudgetState<K: Clone + Eq + Hash> {
    held: usize,
    /// Payers that hold or wait for units; the others take no memory.
    payers: HashMap<K, PayerState<K>>,
    /// Payers with waiters: `sparse` has those that held nothing when their first waiter came, `backlogged` the others.
    sparse: VecDeque<K>,
    backlogged: VecDeque<K>,
    /// Grants to `sparse` in a row while somebody waited in `backlogged`.
    sparse_streak: usize,
    waiters: u64,
}

struct PayerState<K: Clone + Eq + Hash> {
    held: usize,
    by_credential: Vec<(Arc<str>, usize)>,
    waiters: VecDeque<BudgetWaiter<K>>,
}

struct BudgetWaiter<K: Clone + Eq + Hash> {
    id: u64,
    account: BudgetAccount<K>,
    units: usize,
    granted: oneshot::Sender<BudgetPermit<K>>,
}

/// Units that are released when the permit is dropped.
#[must_use]
pub struct BudgetPermit<K: Clone + Eq + Hash> {
    budget: FairBudget<K>,
    account: BudgetAccount<K>,
    units: usize,
}

impl<K: Clone + Eq + Hash> FairBudget<K> {
    pub fn new(limits: BudgetLimits) -> Self {
        let state = BudgetState {
            held: 0,
            payers: HashMap::new(),
            sparse: VecDeque::new(),
            backlogged: VecDeque::new(),
            sparse_streak: 0,
            waiters: 0,
        };
        FairBudget(Arc::new(BudgetInner { limits, state: Mutex::new(state) }))
    }

    /// Acquires units without waiting.
    pub fn try_acquire(&self, account: BudgetAccount<K>, units: usize) -> Option<BudgetPermit<K>> {
        self.try_acquire_counting(account, units, 0)
    }

    /// The same for a payer that holds `elsewhere` units of another budget, which count as well.
    pub fn try_acquire_counting(
        &self,
        account: BudgetAccount<K>,
        units: usize,
        elsewhere: usize,
    ) -> Option<BudgetPermit<K>> {
        self.try_take(&mut self.lock_state(), &account, units, elsewhere).then(|| self.make_permit(account, units))
    }

    /// Waits up to `wait_max` for units. Waiters of one payer are served first come, first served.
    pub async fn acquire(
        &self,
        account: BudgetAccount<K>,
        units: usize,
        wait_max: Duration,
    ) -> Option<BudgetPermit<K>> {
        let (waiting, grant) = match self.acquire_or_enqueue(account, units) {
            Ok(permit) => return Some(permit),
            Err(enqueued) => enqueued,
        };
        let permit = tokio::time::timeout(wait_max, grant).await.ok()?.ok()?;
        drop(waiting);
        // Without the yield, the thread that released the units would run this task and the ones it wakes, and would not
        // poll new requests meanwhile.
        tokio::task::yield_now().await;
        Some(permit)
    }

    fn acquire_or_enqueue(&self, account: BudgetAccount<K>, units: usize) -> Result<BudgetPermit<K>, Enqueued<'_, K>> {
        let mut state = self.lock_state();
        if self.try_take(&mut state, &account, units, 0) {
            drop(state);
            return Ok(self.make_permit(account, units));
        }
        let (granted, grant) = oneshot::channel();
        let payer = account.payer.clone();
        let id = state.enqueue_waiter(account, units, granted);
        Err((QueuedWaiter { budget: self, payer, id }, grant))
    }

    /// Charges the units if they fit and no earlier request of the same payer waits.
    fn try_take(&self, state: &mut BudgetState<K>, account: &BudgetAccount<K>, units: usize, elsewhere: usize) -> bool {
        let is_first = state.payers.get(&account.payer).is_none_or(|payer| payer.waiters.is_empty());
        let fits = is_first && state.fits_limits(&self.0.limits, account, units, elsewhere);
        if fits {
            state.add_units(account, units);
        }
        fits
    }

    /// Counts units that are already in use, even beyond the limits.
    pub fn acquire_over_limit(&self, account: BudgetAccount<K>, units: usize) -> BudgetPermit<K> {
        self.lock_state().add_units(&account, units);
        self.make_permit(account, units)
    }

    /// Whether an account holds at least 15/16 of its limit.
    pub fn is_nearly_spent(&self, account: &BudgetAccount<K>) -> bool {
        let state = self.lock_state();
        let (held, of_credential) = state.held_by(account);
        let limit = state.limit_of(&self.0.limits, held, 0);
        let is_spent = |held: usize, limit: usize| held > 0 && held >= limit - limit / 16;
        is_spent(held, limit) || is_spent(of_credential, limit / 2)
    }

    /// How many single units a payer could acquire now.
    pub fn available_for(&self, payer: &K) -> usize {
        let (limits, state) = (&self.0.limits, self.lock_state());
        let held = state.payers.get(payer).map_or(0, |payer| payer.held);
        let free = (limits.shared + limits.reserve).saturating_sub(state.held);
        let own_part = state.limit_of(limits, held, 0).saturating_sub(held);
        let own_floor = limits.floor.max(1).saturating_sub(held).min(free);
        own_part.max(own_floor).min(limits.each.saturating_sub(held))
    }

    /// Whether at least half of the shared units are free.
    pub fn is_half_free(&self) -> bool {
        self.lock_state().held <= self.0.limits.shared / 2
    }

    /// The units that a payer holds.
    pub fn held_by(&self, payer: &K) -> usize {
        self.lock_state().payers.get(payer).map_or(0, |payer| payer.held)
    }

    fn make_permit(&self, account: BudgetAccount<K>, units: usize) -> BudgetPermit<K> {
        BudgetPermit { budget: self.clone(), account, units }
    }

    fn release_units(&self, account: &BudgetAccount<K>, units: usize) {
        let mut state = self.lock_state();
        state.subtract_units(account, units);
        self.serve_waiters(state);
    }

    fn serve_waiters(&self, mut state: MutexGuard<'_, BudgetState<K>>) {
        let granted: Vec<BudgetWaiter<K>> = std::iter::from_fn(|| state.grant_next(&self.0.limits)).collect();
        drop(state);
        for waiter in granted {
            // If the waiter has gone, the permit is dropped and its units go to the next waiter.
            drop(waiter.granted.send(self.make_permit(waiter.account, waiter.units)));
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, BudgetState<K>> {
        lock_unpoisoned(&self.0.state)
    }
}

impl<K: Clone + Eq + Hash> BudgetPermit<K> {
    /// Waits for more units of the same account. Returns false on timeout.
    pub async fn grow(&mut self, units: usize, wait_max: Duration) -> bool {
        let Some(mut more) = self.budget.acquire(self.account.clone(), units, wait_max).await else { return false };
        self.units += std::mem::take(&mut more.units);
        true
    }
}

impl<K: Clone + Eq + Hash> Drop for BudgetPermit<K> {
    fn drop(&mut self) {
        if self.units > 0 {
            self.budget.release_units(&self.account, self.units);
        }
    }
}

/// A queue entry, and the channel on which its permit arrives.
type Enqueued<'a, K> = (QueuedWaiter<'a, K>, oneshot::Receiver<BudgetPermit<K>>);

/// Removes a waiter from its queue when dropped: after a grant, a timeout or cancellation.
struct QueuedWaiter<'a, K: Clone + Eq + Hash> {
    budget: &'a FairBudget<K>,
    payer: K,
    id: u64,
}

impl<K: Clone + Eq + Hash> Drop for QueuedWaiter<'_, K> {
    fn drop(&mut self) {
        let mut state = self.budget.lock_state();
        if let Some(payer) = state.payers.get_mut(&self.payer) {
            payer.waiters.retain(|waiter| waiter.id != self.id);
        }
        state.forget_idle(&self.payer);
        // A smaller waiter behind it in the queue may fit now.
        self.budget.serve_waiters(state);
    }
}

impl<K: Clone + Eq + Hash> BudgetState<K> {
    /// The units held by the account's payer, and by its credential.
    fn held_by(&self, account: &BudgetAccount<K>) -> (usize, usize) {
        let Some(payer) = self.payers.get(&account.payer) else { return (0, 0) };
        let of_credential = account.credential.as_ref().and_then(|credential| {
            payer.by_credential.iter().find_map(|(of, held)| (of == credential).then_some(*held))
        });
        (payer.held, of_credential.unwrap_or(0))
    }

    /// The limit of a payer that holds `held` units here and `elsewhere` units of another budget.
    fn limit_of(&self, limits: &BudgetLimits, held: usize, elsewhere: usize) -> usize {
        limits.shared.saturating_sub(self.held - held).saturating_add(elsewhere) / limits.divisor
    }

    fn fits_limits(&self, limits: &BudgetLimits, account: &BudgetAccount<K>, units: usize, elsewhere: usize) -> bool {
        let (held_here, of_credential) = self.held_by(account);
        let held = held_here + elsewhere;
        if held + units > limits.each {
            return false;
        }
        if held == 0 || held + units <= limits.floor {
            return self.held + units <= limits.shared + limits.reserve;
        }
        let limit = self.limit_of(limits, held_here, elsewhere);
        held + units <= limit
            && (of_credential == 0 || account.credential.is_none() || of_credential + units <= limit / 2)
    }

    fn add_units(&mut self, account: &BudgetAccount<K>, units: usize) {
        self.held += units;
        let payer = self.payers.entry(account.payer.clone()).or_insert_with(PayerState::new);
        payer.held += units;
        if let Some(credential) = &account.credential {
            match payer.by_credential.iter_mut().find(|(of, _)| of == credential) {
                Some((_, held)) => *held += units,
                None => payer.by_credential.push((credential.clone(), units)),
            }
        }
    }

    fn subtract_units(&mut self, account: &BudgetAccount<K>, units: usize) {
        self.held -= units;
        let Some(payer) = self.payers.get_mut(&account.payer) else { return };
        payer.held -= units;
        if let Some(credential) = &account.credential
            && let Some(index) = payer.by_credential.iter().position(|(of, _)| of == credential)
        {
            payer.by_credential[index].1 -= units;
            if payer.by_credential[index].1 == 0 {
                payer.by_credential.swap_remove(index);
            }
        }
        self.forget_idle(&account.payer);
    }

    fn enqueue_waiter(
        &mut self,
        account: BudgetAccount<K>,
        units: usize,
        granted: oneshot::Sender<BudgetPermit<K>>,
    ) -> u64 {
        self.waiters += 1;
        let (id, key) = (self.waiters, account.payer.clone());
        let payer = self.payers.entry(key.clone()).or_insert_with(PayerState::new);
        if payer.waiters.is_empty() {
            let queue = if payer.held == 0 { &mut self.sparse } else { &mut self.backlogged };
            queue.push_back(key);
        }
        payer.waiters.push_back(BudgetWaiter { id, account, units, granted });
        id
    }

    /// Removes the next waiter whose units fit from its queue, and charges the units to its account.
    fn grant_next(&mut self, limits: &BudgetLimits) -> Option<BudgetWaiter<K>> {
        let fits = |state: &Self, key: &K| {
            let first = state.payers.get(key).and_then(|payer| payer.waiters.front());
            first.is_some_and(|waiter| state.fits_limits(limits, &waiter.account, waiter.units, 0))
        };
        let find_fitting = |queue: &VecDeque<K>| queue.iter().position(|key| fits(self, key));
        let (sparse, backlogged) = (find_fitting(&self.sparse), find_fitting(&self.backlogged));
        // More grants in a row than there are payers: one has come back. Payers that ask for one thing after the other would
        // keep those in `backlogged` waiting for good.
        let sparse = sparse.filter(|_| backlogged.is_none() || self.sparse_streak < self.payers.len());
        let key = match sparse {
            Some(index) => self.sparse.remove(index)?,
            None => self.backlogged.remove(backlogged?)?,
        };
        self.sparse_streak = if sparse.is_some() && !self.backlogged.is_empty() { self.sparse_streak + 1 } else { 0 };
        let payer = self.payers.get_mut(&key)?;
        let waiter = payer.waiters.pop_front()?;
        if !payer.waiters.is_empty() {
            self.backlogged.push_back(key);
        }
        self.add_units(&waiter.account, waiter.units);
        Some(waiter)
    }

    fn forget_idle(&mut self, key: &K) {
        let Some(payer) = self.payers.get(key) else { return };
        if payer.waiters.is_empty() {
            let is_idle = payer.held == 0;
            if !self.sparse.is_empty() || !self.backlogged.is_empty() {
                self.sparse.retain(|other| other != key);
                self.backlogged.retain(|other| other != key);
            }
            if is_idle {
                self.payers.remove(key);
            }
        }
    }
}

impl<K: Clone + Eq + Hash> PayerState<K> {
    fn new() -> Self {
        PayerState { held: 0, by_credential: Vec::new(), waiters: VecDeque::new() }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
