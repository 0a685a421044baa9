//! Actions of people on a run.

pub mod store;

use kernel::base::StringEnum;

use super::super::Status;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunControl {
    Cancel,
    Retry,
    /// The step, if several wait for an approval.
    Approve(Option<String>),
    Reject(Option<String>),
}

impl RunControl {
    /// The action of the audit entry, and the participle for error messages.
    fn audit_labels(&self) -> (&'static str, &'static str) {
        match self {
            RunControl::Cancel => ("workflow.cancel", "cancelled"),
            RunControl::Retry => ("workflow.retry", "retried"),
            RunControl::Approve(_) => ("workflow.approve", "approved"),
            RunControl::Reject(_) => ("workflow.reject", "rejected"),
        }
    }

    /// The outcome of an approval step, as `/metrics` counts it.
    pub fn approval_outcome(&self) -> Option<&'static str> {
        match self {
            RunControl::Approve(_) => Some(Status::Succeeded.as_str()),
            RunControl::Reject(_) => Some(Status::Failed.as_str()),
            RunControl::Cancel | RunControl::Retry => None,
        }
    }
}
