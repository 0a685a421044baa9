//! What people do with a run.

pub mod store;

use kernel::base::Word;

use super::super::Status;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    Cancel,
    Retry,
    /// Of which step, where several wait.
    Approve(Option<String>),
    Reject(Option<String>),
}

impl Control {
    /// As the audit trail names it, and as it is said of a run that it was done with.
    fn deed(&self) -> (&'static str, &'static str) {
        match self {
            Control::Cancel => ("workflow.cancel", "cancelled"),
            Control::Retry => ("workflow.retry", "retried"),
            Control::Approve(_) => ("workflow.approve", "approved"),
            Control::Reject(_) => ("workflow.reject", "rejected"),
        }
    }

    /// What becomes of the approval that is answered, as `/metrics` counts it.
    pub fn decided(&self) -> Option<&'static str> {
        match self {
            Control::Approve(_) => Some(Status::Succeeded.as_str()),
            Control::Reject(_) => Some(Status::Failed.as_str()),
            Control::Cancel | Control::Retry => None,
        }
    }
}
