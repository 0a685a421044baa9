//! Locking a mutex that a panicking thread may have held.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic under it: every holder here leaves its value valid between any two statements.
pub fn lock_unpoisoned<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
