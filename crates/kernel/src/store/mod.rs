//! The store: one SQL text for two engines, with the tenant bound by the handle.
//!
//! A [`Db`] is a handle to the records of one tenant, or of the system. It reads, and it writes with an async closure
//! over a [`Tx`]. On SQLite all writes go through one thread with group commit; on PostgreSQL each write has a pooled
//! connection. Differences in SQL are in `dialect.rs` only.
//!
//! Architecture invariant: code outside this module sees no connection, no driver type and not which engine is used.
//! Deliberately left out: an object mapper, retries (a client that gets 503 repeats), and nested transactions.

mod arms;
mod backup;
mod batches;
pub mod changes;
mod clock;
mod columns;
mod commit_notifier;
mod cursor;
mod database;
mod db;
pub mod delta;
mod dialect;
mod engine;
mod facts;
mod fill;
mod follow;
mod handle;
mod health;
mod json;
mod maintenance;
mod migrate;
mod options;
mod params;
mod postgres;
mod postgres_fault;
mod postgres_pool;
mod postgres_send;
mod postgres_tls;
mod postgres_url;
mod postings;
pub mod references;
mod row;
mod run_write;
mod select;
mod self_check;
mod sqlite;
mod sqlite_group;
mod sqlite_queue;
mod sqlite_readers;
mod sqlite_writer;
mod tenant_limiter;
mod tick;
mod tx;
mod values;
mod walk;
mod write_fn;

pub use arms::ArmSql;
pub use batches::BATCH_ROWS;
pub use clock::{CLOCK_AHEAD_MAX_MS, STATEMENTS};
#[doc(hidden)]
pub use columns::Text;
pub use cursor::{ChangeKey, CursorKey, ListKey};
pub use database::Store;
pub use db::Db;
pub use engine::DatabaseEngine;
pub use facts::{FactRetention, STATEMENTS as FACT_STATEMENTS, insert_facts};
pub use fill::{ListStep, RowBudget, fill_page, find_smallest_set, pair_rows};
pub use follow::{EventBinder, Follower, Followers, NewEvent};
pub use handle::{FairnessKey, Purpose};
pub use json::{from_json, from_optional_json, to_json};
pub use maintenance::MaintenancePermit;
pub use migrate::{Migration, Migrations};
pub use options::{PostgresOptions, SqliteSynchronous, StoreOptions};
pub use params::{Args, Param};
pub use postings::{PostingStep, Postings, prefix_end};
pub use row::{Column, FromRow, Row};
pub use select::{Compare, Select, SortDirection};
pub use self_check::{CLOCK_SKEW_MAX_MS, SelfCheckItem};
pub use tenant_limiter::{TenantLimiter, TenantPermit};
pub use tick::Tick;
pub use tx::{PendingRows, Tx};
pub use values::Value;
pub use walk::{ARMS_MAX, Arm, IndexWalk};
pub use write_fn::WriteFn;
