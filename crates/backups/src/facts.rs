//! What runs and postures contribute to figures: pure.

use figures::Fact;
use figures::cells::{
    BACKUPS_FAILED, BACKUPS_MISSED, BACKUPS_SUCCEEDED, BACKUPS_WARNING, DEVICES_IN_SCOPE, DEVICES_PROTECTED,
};
use kernel::base::Timestamp;

use crate::posture::share::ShareCounts;
use crate::posture::{JobKind, RunStatus};

/// The fact of a run that is added (`1`) or taken away (`-1`), at its end: a report that comes late counts where it belongs.
pub fn run_fact(kind: JobKind, status: RunStatus, ended_at: Timestamp, by: i64) -> Fact {
    let mut fact = Fact::new(ended_at.as_millis());
    if kind == JobKind::Backup {
        let cell = match status {
            RunStatus::Success => BACKUPS_SUCCEEDED,
            RunStatus::Warning => BACKUPS_WARNING,
            RunStatus::Failed => BACKUPS_FAILED,
            RunStatus::Missed => BACKUPS_MISSED,
        };
        fact.add_count(cell, by);
    }
    fact
}

/// The fact of a change of what the devices of an organization add up to.
pub fn coverage_fact(before: ShareCounts, after: ShareCounts, at: Timestamp) -> Fact {
    let mut fact = Fact::new(at.as_millis());
    fact.add_count(DEVICES_IN_SCOPE, after.in_scope - before.in_scope);
    fact.add_count(DEVICES_PROTECTED, after.protected - before.protected);
    fact
}
