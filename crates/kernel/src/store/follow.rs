//! Whoever follows events: what else is written in the transaction that publishes one.
//!
//! Some make all they need of an event there and then; others let themselves be woken, and read behind the commits
//! (`events/follow.rs`). The product declares its followers when it opens the store. The kernel knows neither them nor their tables, and works
//! without any. A follower is statements and not a function over the transaction, so that they are sent together with
//! what nobody waits for: following costs no round trip of its own.

use crate::base::{EventId, Timestamp};

use super::Value;

/// What a follower is told of an event that has just been written.
#[derive(Clone, Copy, Debug)]
pub struct Happening<'a> {
    pub id: EventId,
    pub sequence: i64,
    pub kind: &'a str,
    /// Whose order counts.
    pub record: &'a str,
    /// By the tenant's clock.
    pub at: Timestamp,
    /// By this node's: what is due is due by it. The tenant's is at least as late, and ahead of it for as long as another
    /// node once was.
    pub now: Timestamp,
}

/// Somebody who follows events.
#[derive(Clone, Copy, Debug)]
pub struct Follower {
    /// Under which it is known, and under which it keeps how far it has read if it reads behind the commits.
    pub name: &'static str,
    /// Finds a row when the statements have anything to do; asked where that costs less than they do.
    pub only_if: Option<(&'static str, Bind)>,
    /// They run after each event is written, in this order and in its transaction.
    pub statements: &'static [(&'static str, Bind)],
}

/// What a follower's statement binds of an event, behind the tenant, which is `$1`.
pub type Bind = fn(&Happening<'_>) -> Vec<Value>;

/// All that follow; none is fine.
pub type Followers = &'static [Follower];
