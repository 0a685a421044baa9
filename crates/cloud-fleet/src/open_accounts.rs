//! The adapters that a node keeps for a while: they remember sessions of assumed roles and sizes of machines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clouds::CloudAdapter;
use kernel::base::{TenantId, lock_unpoisoned};
use tokio::time::Instant;

use crate::providers::ProviderId;

/// How long an adapter is kept: what a cloud offers changes rarely.
const KEPT_FOR: Duration = Duration::from_mins(10);
const KEPT_MAX: usize = 1_000;

/// For which an adapter is kept: new credentials, another account and somebody who waits have one of their own.
pub type AccountKey = (TenantId, ProviderId, i64, Option<String>, bool);

/// An adapter, and since when it is open.
type OpenAccount = (Instant, Arc<dyn CloudAdapter>);

/// The adapters of a node.
#[derive(Default)]
pub struct OpenAccounts(Mutex<HashMap<AccountKey, OpenAccount>>);

impl OpenAccounts {
    pub fn find_open(&self, key: &AccountKey) -> Option<Arc<dyn CloudAdapter>> {
        let open = lock_unpoisoned(&self.0);
        open.get(key).filter(|(since, _)| since.elapsed() < KEPT_FOR).map(|(_, adapter)| adapter.clone())
    }

    pub fn keep(&self, key: AccountKey, adapter: Arc<dyn CloudAdapter>) {
        let mut open = lock_unpoisoned(&self.0);
        if open.len() >= KEPT_MAX {
            open.retain(|_, (since, _)| since.elapsed() < KEPT_FOR);
        }
        if open.len() < KEPT_MAX {
            open.insert(key, (Instant::now(), adapter));
        }
    }
}
