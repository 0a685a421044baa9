//! Backups: what is wanted (`config`, the policy), what happened (`job_reports`), and how both stand together
//! (`customer_aggregate`).
//!
//! `policy` resolves the levels of a policy. `posture` judges devices and organizations: its rules are pure, and it keeps what
//! they say in rows of its own, so that reading the aggregate costs by organizations and not by reports.

/// Workflow actions on backups.
pub mod actions {
    pub mod store;
}
pub mod config;
pub mod customer_aggregate;
mod facts;
pub mod job_reports;
pub mod policy;
pub mod posture;
pub mod repair {
    pub mod store;
}
/// What ran, or did not.
pub mod runs {
    pub mod store;
}
mod stored_values;
