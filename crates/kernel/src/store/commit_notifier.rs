//! Notifies waiting readers of this process that a tenant's events were committed.
//!
//! The notification is only a hint within the process. Other nodes poll, and so does every receiver, now and then.

use tokio::sync::broadcast;

use crate::base::TenantId;

/// Notifications that a slow receiver may lag behind before it loses some.
const LAG_MAX: usize = 4_096;

#[derive(Clone)]
pub(super) struct CommitNotifier(broadcast::Sender<TenantId>);

impl Default for CommitNotifier {
    fn default() -> Self {
        CommitNotifier(broadcast::Sender::new(LAG_MAX))
    }
}

impl CommitNotifier {
    pub fn notify_commit(&self, tenant: Option<TenantId>) {
        if let Some(tenant) = tenant {
            // An error means that there is no receiver.
            let _ = self.0.send(tenant);
        }
    }

    pub fn subscribe_commits(&self) -> broadcast::Receiver<TenantId> {
        self.0.subscribe()
    }
}
