//! Permits by key: how many things of one tenant, actor or address may go on at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the permits held by each key. A key without permits takes no memory.
pub(super) struct KeyedPermits<K>(Arc<Mutex<HashMap<K, usize>>>);

impl<K> Default for KeyedPermits<K> {
    fn default() -> Self {
        KeyedPermits(Arc::default())
    }
}

impl<K: Clone + Eq + Hash> KeyedPermits<K> {
    /// A permit of this key, unless `max` are held. It is released when dropped.
    pub(super) fn try_acquire(&self, key: K, max: usize) -> Option<KeyedPermit<K>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.entry(key.clone()) {
            Entry::Occupied(count) if *count.get() >= max => return None,
            Entry::Vacant(_) if max == 0 => return None,
            entry => *entry.or_insert(0) += 1,
        }
        Some(KeyedPermit { permits: KeyedPermits(self.0.clone()), key })
    }
}

pub(super) struct KeyedPermit<K: Clone + Eq + Hash> {
    permits: KeyedPermits<K>,
    key: K,
}

impl<K: Clone + Eq + Hash> Drop for KeyedPermit<K> {
    fn drop(&mut self) {
        let mut counts = self.permits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = counts.entry(self.key.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}
