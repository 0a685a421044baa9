//! The integration tests: one binary, over HTTP as a client would, every test with its own database, on both engines.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod abuse;
mod access;
mod api_keys;
mod audit;
mod bodies;
mod cli;
mod clocks;
mod conventions;
mod faults_database;
mod faults_disk;
mod faults_kill;
mod faults_nodes;
mod faults_shutdown;
mod faults_webhooks;
mod housekeeping;
mod idempotency;
mod limits;
mod lists;
mod logs;
mod openapi;
mod order;
mod outbound;
mod pages;
mod plans;
mod receiver;
mod records;
mod schema;
mod session;
mod store;
mod support;
mod tickets;
mod tidy;
mod tls;
mod webhooks;
