//! News of writes: who waits for a tenant's events on this node is told as soon as they are on disk.
//!
//! Only a hint, and only within the process: other nodes find out by asking, so whoever listens also asks now and then.

use tokio::sync::broadcast;

use crate::base::TenantId;

/// Hints that a slow listener may fall behind by, after which it is told that it missed some.
const BEHIND_MAX: usize = 4_096;

#[derive(Clone)]
pub(super) struct News(broadcast::Sender<TenantId>);

impl Default for News {
    fn default() -> Self {
        News(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl News {
    pub fn tell(&self, tenant: Option<TenantId>) {
        if let Some(tenant) = tenant {
            // Nobody listening is nobody to tell.
            let _ = self.0.send(tenant);
        }
    }

    pub fn listen(&self) -> broadcast::Receiver<TenantId> {
        self.0.subscribe()
    }
}
