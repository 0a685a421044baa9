//! What the jobs of a lane have in common.

use std::sync::Arc;

use clouds::{CloudAdapter, CloudError, CloudErrorKind};
use kernel::base::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use kernel::jobs::ServerNode;
use kernel::jobs::lanes::LeasedLane;

use crate::account::open_account;
use crate::providers::store::StoredProvider;
use crate::vms::OperationId;

/// How long it may not be known what became of an order, because nobody can look, before somebody has to decide.
pub const UNKNOWN_MAX_MS: i64 = 6 * HOUR_MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloudJobId {
    Verify,
    Sync,
    Operation(OperationId),
}

/// What a job works with.
#[derive(Clone)]
pub struct JobContext {
    pub node: ServerNode,
    pub lane: LeasedLane,
    pub provider: Arc<StoredProvider>,
}

impl JobContext {
    pub fn now(&self) -> Timestamp {
        self.node.env.now()
    }

    /// The adapter with the provider's credentials, where machines can be made and looked for with them.
    pub fn open_usable_cloud(&self) -> Result<Arc<dyn CloudAdapter>, CloudError> {
        if self.provider.can_make_machines() {
            return self.open_cloud();
        }
        let detail = "The provider is disabled, or its credentials are refused or were not verified yet.".to_owned();
        Err(CloudError { kind: CloudErrorKind::Unavailable, code: None, detail, retry_after_ms: None })
    }

    /// The adapter with the provider's credentials.
    pub fn open_cloud(&self) -> Result<Arc<dyn CloudAdapter>, CloudError> {
        open_account(&self.node, self.lane.tenant_id, &self.provider, false)
    }
}

/// The wait before the next attempt: a few seconds at first, a minute at most.
pub fn backoff_ms(attempt: i64) -> i64 {
    (2 * SECOND_MS).saturating_mul(1 << (attempt - 1).clamp(0, 10)).min(MINUTE_MS)
}

/// When a machine that does not run yet is looked at again.
pub fn look_again_at(now: Timestamp, attempt: i64) -> Timestamp {
    now.plus_ms(backoff_ms(attempt).min(15 * SECOND_MS))
}
