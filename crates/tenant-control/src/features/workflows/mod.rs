//! Workflows: definitions, and runs of them.

pub mod expression;
mod pattern;
pub mod schedule;
pub mod schema;
pub mod template;
