//! Actions of people on a run.

pub mod store;

use kernel::base::Word;

use super::super::Status;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    Cancel,
    Retry,
    /// The step, if several wait for an approval.
    Approve(Option<String>),
    Reject(Option<String>),
}

impl Control {
    /// The action of the audit entry, and the participle for error messages.
    fn deed(&self) -> (&'static str, &'static str) {
        match self {
            Control::Cancel => ("workflow.cancel", "cancelled"),
            Control::Retry => ("workflow.retry", "retried"),
            Control::Approve(_) => ("workflow.approve", "approved"),
            Control::Reject(_) => ("workflow.reject", "rejected"),
        }
    }

    /// The outcome of an approval step, as `/metrics` counts it.
    pub fn decided(&self) -> Option<&'static str> {
        match self {
            Control::Approve(_) => Some(Status::Succeeded.as_str()),
            Control::Reject(_) => Some(Status::Failed.as_str()),
            Control::Cancel | Control::Retry => None,
        }
    }
}
