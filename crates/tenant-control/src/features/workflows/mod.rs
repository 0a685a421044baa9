//! Workflows: definitions, and runs of them.

pub mod expression;
pub mod schedule;
pub mod schema;
pub mod template;
