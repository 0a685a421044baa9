//! Where the database is, and the limits of access to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Followers, postgres_url};
use crate::base::Result;

/// Writes that may wait for the SQLite writer. At 20,000 writes per second this is 50 ms of work: a longer queue
/// would only make answers late that the client has stopped waiting for.
const QUEUE_MAX: usize = 1_024;

/// How long a request waits for a connection before it fails with 503: longer than any healthy statement.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How long SQLite's writer adds writes to a group: the longest wait of one that arrives just after the group began, besides
/// the commit itself.
const GROUP_TIME: Duration = Duration::from_millis(3);

/// Connections to PostgreSQL per node: its throughput peaks at a few per core, and its default limit is 100.
const POOL_MAX: usize = 16;

/// How to open a [`super::Store`].
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub(super) location: DatabaseLocation,
    pub(super) queue_max: usize,
    pub(super) reader_count: usize,
    pub(super) wait_max: Duration,
    pub(super) group_time: Duration,
    pub(super) synchronous: SqliteSynchronous,
    pub(super) on_lock_wait: Option<fn(&Path)>,
    pub(super) followers: Option<Followers>,
}

#[derive(Clone, Debug)]
pub(super) enum DatabaseLocation {
    Sqlite(PathBuf),
    Postgres(PostgresOptions),
}

impl StoreOptions {
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        StoreOptions::new(DatabaseLocation::Sqlite(path.into()))
    }

    pub fn postgres(options: PostgresOptions) -> Self {
        StoreOptions::new(DatabaseLocation::Postgres(options))
    }

    fn new(location: DatabaseLocation) -> Self {
        // Reads run inline, so no more of them run at once than there are worker threads.
        let reader_count = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 32);
        StoreOptions {
            location,
            queue_max: QUEUE_MAX,
            reader_count,
            wait_max: WAIT_MAX,
            group_time: GROUP_TIME,
            synchronous: SqliteSynchronous::Full,
            on_lock_wait: None,
            followers: None,
        }
    }

    /// Declares the followers of events; the list may be empty. Without this call publishing fails, because an event would
    /// be lost to followers that were left out by mistake.
    #[must_use]
    pub fn followed_by(mut self, followers: Followers) -> Self {
        self.followers = Some(followers);
        self
    }

    /// How many writes may wait for the SQLite writer before further ones are refused.
    #[must_use]
    pub fn queue_max(mut self, queue_max: usize) -> Self {
        self.queue_max = queue_max.max(1);
        self
    }

    /// How many connections read from SQLite.
    #[must_use]
    pub fn reader_count(mut self, readers: usize) -> Self {
        self.reader_count = readers.max(1);
        self
    }

    /// How many connections each node keeps to PostgreSQL.
    #[must_use]
    pub fn pool_max(mut self, pool_max: usize) -> Self {
        if let DatabaseLocation::Postgres(postgres) = &mut self.location {
            postgres.pool_max = pool_max;
        }
        self
    }

    /// How long a request waits for a connection, and SQLite for another process to release its lock.
    #[must_use]
    pub fn wait_max(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// Called with the path of SQLite's file when another process has held the write lock for a while.
    #[must_use]
    pub fn on_lock_wait(mut self, callback: fn(&Path)) -> Self {
        self.on_lock_wait = Some(callback);
        self
    }

    /// For tests of which writes share a group.
    #[doc(hidden)]
    #[must_use]
    pub fn group_time(mut self, group_time: Duration) -> Self {
        self.group_time = group_time;
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn with_synchronous(mut self, synchronous: SqliteSynchronous) -> Self {
        self.synchronous = synchronous;
        self
    }
}

/// Whether SQLite waits for the disk before it acknowledges a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqliteSynchronous {
    Full,
    /// Loses acknowledged writes at a power cut. It exists so that the power-cut test can prove that it detects this.
    Off,
}

/// How to reach PostgreSQL.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database`, with libpq's `sslmode` and `sslrootcert` as parameters.
    pub url: String,
    /// Accepts a role that bypasses row-level security.
    pub allow_superuser: bool,
    pub pool_max: usize,
}

impl PostgresOptions {
    pub fn new(url: impl Into<String>) -> Self {
        PostgresOptions { url: url.into(), allow_superuser: false, pool_max: POOL_MAX }
    }

    /// The database as a URL without password and parameters, for messages.
    pub fn describe_database(&self) -> Result<String> {
        postgres_url::describe(&self.url)
    }

    /// Whether the URL holds a password, or cannot be parsed and may hold one.
    pub fn has_password(&self) -> bool {
        postgres_url::has_password(&self.url)
    }
}

/// Without the URL, which holds the password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("url", &"[redacted]")
            .field("allow_superuser", &self.allow_superuser)
            .field("pool_max", &self.pool_max)
            .finish()
    }
}
