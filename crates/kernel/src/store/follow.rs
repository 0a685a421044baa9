//! Followers of events: the statements that run in the transaction that publishes an event.
//!
//! Some followers do all their work in that transaction. Others only insert a wake there, and read the events after the
//! commit (`events/follow.rs`). The product declares its followers when it opens the store; the kernel knows neither them
//! nor their tables, and works without any. A follower is a list of statements and not a function over the transaction, so
//! that its statements are deferred with others and cost no round trip of their own.

use crate::base::{EventId, Timestamp};

use super::Value;

/// An event that was just written, as a follower's statements bind it.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    pub id: EventId,
    pub sequence: i64,
    pub kind: &'a str,
    /// The id of the record by which deliveries are ordered.
    pub record: &'a str,
    /// The time by the tenant's clock.
    pub at: Timestamp,
    /// The time by this node's clock, for due times. The tenant's clock is never behind it, and is ahead of it after a write
    /// of a node whose clock was ahead.
    pub now: Timestamp,
}

/// A feature that turns published events into work of its own.
#[derive(Clone, Copy, Debug)]
pub struct Follower {
    /// Its name, under which its feed position is saved if it reads after the commit.
    pub name: &'static str,
    /// If this query finds no row, the statements are skipped. SQLite only; on PostgreSQL they always run.
    pub only_if: Option<(&'static str, EventBinder)>,
    /// Run in this order after each event is written, in its transaction.
    pub statements: &'static [(&'static str, EventBinder)],
}

/// Returns the values that a follower's statement binds from `$2` on; `$1` is the tenant.
pub type EventBinder = fn(&NewEvent<'_>) -> Vec<Value>;

/// All followers of a product; may be empty.
pub type Followers = &'static [Follower];
