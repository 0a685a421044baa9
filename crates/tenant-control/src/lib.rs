//! Tenant Control: one binary that serves the API, and the command line around it.

pub mod cli;
pub mod config;
pub mod features;
pub mod migrations;
pub mod router;
mod shell;

/// Every SQL statement of the features and the kernel, so that a test can prepare each on both engines.
pub fn all_statements() -> Vec<(&'static str, &'static str)> {
    [kernel::statements(), features::install().statements()].concat()
}
