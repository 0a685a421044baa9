//! Idempotency keys in use: a second request with a key is refused while the first one is running.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::base::{Code, Error, Result, lock_unpoisoned, sha256};

/// Keys whose first request is still running on this node. The database's lock covers other nodes.
#[derive(Clone, Default)]
pub(super) struct RunningKeys(Arc<Mutex<HashSet<[u8; 32]>>>);

pub(super) struct RunningKey {
    keys: RunningKeys,
    name: [u8; 32],
}

impl RunningKeys {
    pub(super) fn start_key(&self, name: &str) -> Result<RunningKey> {
        let name = sha256(name.as_bytes());
        if !lock_unpoisoned(&self.0).insert(name) {
            return Err(in_progress_error());
        }
        Ok(RunningKey { keys: self.clone(), name })
    }
}

impl Drop for RunningKey {
    fn drop(&mut self) {
        lock_unpoisoned(&self.keys.0).remove(&self.name);
    }
}

pub(super) fn in_progress_error() -> Error {
    Error::new(Code::IdempotencyInProgress, "The first request with this Idempotency-Key is still running.")
}
