//! Tenant Control: one binary that serves the API, and the command line around it.

pub mod cookie;
pub mod features;
pub mod router;
