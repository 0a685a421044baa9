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
pub mod changes;
mod clock;
mod columns;
mod commit_notifier;
mod cursor;
mod db;
pub mod delta;
mod dialect;
mod fill;
mod follow;
mod handle;
mod job;
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
mod select;
mod self_check;
mod sqlite;
mod sqlite_group;
mod sqlite_queue;
mod sqlite_readers;
mod sqlite_writer;
mod steps;
mod tenant_limiter;
mod tx;
mod values;
mod walk;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, broadcast};

use crate::args;
use crate::base::{Actor, Env, Error, Result, TenantId};

use commit_notifier::CommitNotifier;
use handle::{HandleContext, HandleReach};
use options::DatabaseLocation;
use postgres::PostgresSession;
use postgres_pool::Pool;
use sqlite_readers::ReaderPool;
use sqlite_writer::SqliteWriter;
use tenant_limiter::ConnectionLimiter;

pub use arms::ArmSql;
pub use clock::{CLOCK_AHEAD_MAX_MS, STATEMENTS, Tick};
#[doc(hidden)]
pub use columns::Text;
pub use cursor::{ChangeKey, CursorKey, ListKey};
pub use db::Db;
pub use fill::{ListStep, RowBudget, fill_page, find_smallest_set, pair_rows};
pub use follow::{EventBinder, Follower, Followers, NewEvent};
pub use handle::{FairnessKey, Purpose};
pub use job::WriteJob;
pub use maintenance::MaintenancePermit;
pub use migrate::{Migration, Migrations};
pub use options::{PostgresOptions, SqliteSynchronous, StoreOptions};
pub use params::{Args, Param};
pub use postings::{PostingStep, Postings, prefix_end};
pub use row::{Column, FromRow, Row};
pub use select::{Compare, Select, SortDirection};
pub use self_check::{CLOCK_SKEW_MAX_MS, SelfCheckItem};
pub use steps::STEP_ROWS;
pub use tenant_limiter::{TenantLimiter, TenantPermit};
pub use tx::{PendingRows, Tx};
pub use values::Value;
pub use walk::{ARMS_MAX, Arm, IndexWalk};

/// Scans that may run at once on SQLite: few, because each keeps a core and the disk busy.
const SCANNERS: usize = 2;

const PING: &str = "SELECT CAST(1 AS BIGINT)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseEngine {
    Sqlite,
    Postgres,
}

/// An open database. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<StoreInner>);

struct StoreInner {
    backend: StoreBackend,
    env: Env,
    notifier: CommitNotifier,
    followers: Option<Followers>,
    maintenance_limiter: TenantLimiter,
    /// The SQL texts of executed lists, recorded from the first call of [`Store::executed_lists`] on.
    executed_lists: OnceLock<Mutex<BTreeSet<String>>>,
}

enum StoreBackend {
    Sqlite(Box<SqliteBackend>),
    Postgres(PostgresBackend),
}

struct SqliteBackend {
    path: PathBuf,
    writer: SqliteWriter,
    readers: ReaderPool,
    scanners: ReaderPool,
    scan_permits: Arc<Semaphore>,
    tenant_scan_limiter: TenantLimiter,
    wait_max: Duration,
    on_lock_wait: Option<fn(&Path)>,
}

struct PostgresBackend {
    pool: Pool,
    limiter: ConnectionLimiter,
    wait_max: Duration,
}

impl Store {
    /// Connects to the database, without migrating it.
    pub fn open(options: StoreOptions, env: Env) -> BoxFuture<'static, Result<Store>> {
        Box::pin(async move {
            let (notifier, followers) = (CommitNotifier::default(), options.followers);
            // One job of a tenant; on SQLite, whose writer they share, one of all.
            let maintenance_limiter = match options.location {
                DatabaseLocation::Sqlite(_) => TenantLimiter::with_total(1, 1),
                DatabaseLocation::Postgres(_) => TenantLimiter::new(1),
            };
            let backend = match &options.location {
                DatabaseLocation::Postgres(postgres) => {
                    let pool = postgres::open_pool(postgres, &options).await?;
                    let limiter = ConnectionLimiter::new(postgres.pool_max);
                    StoreBackend::Postgres(PostgresBackend { pool, limiter, wait_max: options.wait_max })
                }
                DatabaseLocation::Sqlite(path) => {
                    let (path, env, notifier) = (path.clone(), env.clone(), notifier.clone());
                    let open = tokio::task::spawn_blocking(move || open_sqlite(path, &options, env, notifier));
                    StoreBackend::Sqlite(Box::new(open.await.map_err(Error::internal)??))
                }
            };
            Ok(Store(Arc::new(StoreInner {
                backend,
                env,
                notifier,
                followers,
                maintenance_limiter,
                executed_lists: OnceLock::new(),
            })))
        })
    }

    /// Applies the pending migrations under a lock, and returns their names.
    pub fn migrate(&self, migrations: Migrations) -> BoxFuture<'_, Result<Vec<String>>> {
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => {
                let (path, env) = (sqlite.path.clone(), self.env().clone());
                Box::pin(migrate::migrate_sqlite(path, sqlite.on_lock_wait, env, migrations))
            }
            StoreBackend::Postgres(postgres) => {
                Box::pin(migrate::migrate_postgres(&postgres.pool, self.env(), migrations))
            }
        }
    }

    /// The names of the migrations that are not applied yet.
    pub async fn pending_migrations(&self, migrations: Migrations) -> Result<Vec<String>> {
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => migrate::list_pending_sqlite(sqlite.path.clone(), migrations).await,
            StoreBackend::Postgres(postgres) => migrate::list_pending_postgres(&postgres.pool, migrations).await,
        }
    }

    pub fn engine(&self) -> DatabaseEngine {
        match self.backend() {
            StoreBackend::Sqlite(_) => DatabaseEngine::Sqlite,
            StoreBackend::Postgres(_) => DatabaseEngine::Postgres,
        }
    }

    pub fn env(&self) -> &Env {
        &self.0.env
    }

    fn followers(&self) -> Option<Followers> {
        self.0.followers
    }

    /// Receives the id of each tenant whose events this process has committed. It is a hint only: commits of other nodes are
    /// missing, and a slow receiver misses some.
    pub fn subscribe_commits(&self) -> broadcast::Receiver<TenantId> {
        self.0.notifier.subscribe_commits()
    }

    /// A handle across all tenants, for the service's own work.
    pub fn system(&self, purpose: Purpose) -> Db {
        Db::new(self.clone(), HandleReach::System(purpose), Actor::for_system())
    }

    /// A handle to one tenant's records. Only `kernel/auth` creates it, after its checks.
    pub(crate) fn tenant(&self, tenant: TenantId, actor: Actor) -> Db {
        Db::new(self.clone(), HandleReach::Tenant(tenant, tenant.to_string()), actor)
    }

    /// A handle to one tenant's records for background jobs. Only `kernel/jobs` creates it.
    pub(crate) fn tenant_job(&self, tenant: TenantId) -> Db {
        Db::for_job(self.clone(), tenant)
    }

    #[doc(hidden)]
    pub fn tenant_for_test(&self, tenant: TenantId, actor: Actor) -> Db {
        self.tenant(tenant, actor)
    }

    /// Checks by a real round trip that reads work.
    pub async fn ping_read(&self) -> Result<()> {
        self.system(Purpose::Health).get_one::<i64>(PING, args![]).await.map(drop)
    }

    /// Checks that reads and writes work. After a failed write to disk it tries a write itself, so that an instance without
    /// traffic notices that there is space again.
    pub async fn ping(&self) -> Result<()> {
        let failing = match self.backend() {
            StoreBackend::Sqlite(sqlite) => sqlite.writer.is_failing(),
            StoreBackend::Postgres(_) => false,
        };
        self.ping_with_probe(failing).await
    }

    /// Like [`Store::ping`]; `probing` always tries a write to disk. The health endpoint does not, because anybody may call
    /// it and all tenants share the disk.
    async fn ping_with_probe(&self, probing: bool) -> Result<()> {
        self.ping_read().await?;
        let health = self.system(Purpose::Health);
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => {
                if probing {
                    let path = sqlite.path.clone();
                    let probe = tokio::task::spawn_blocking(move || sqlite::probe_disk(&path));
                    probe.await.map_err(Error::internal)??;
                }
                health.write(async move |tx: &mut Tx| if probing { tx.probe_write() } else { Ok(()) }).await?;
                if probing {
                    sqlite.writer.mark_recovered();
                }
                Ok(())
            }
            // A standby serves reads but refuses to begin a transaction that writes.
            StoreBackend::Postgres(_) => {
                health.write(async |tx| tx.get_one::<i64>(PING, args![]).await).await.map(drop)
            }
        }
    }

    /// Waits until the writer thread has failed. After that this process cannot write any more and must be restarted.
    pub async fn wait_until_broken(&self) {
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => sqlite.writer.wait_until_ended().await,
            StoreBackend::Postgres(_) => std::future::pending().await,
        }
    }

    /// Refuses further writes, finishes those in flight and closes the connections.
    pub async fn close(&self) {
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => {
                // The readers first: an open reader delays the writer's last checkpoint.
                sqlite.readers.close();
                sqlite.scanners.close();
                sqlite.writer.close().await;
            }
            StoreBackend::Postgres(postgres) => {
                postgres.pool.close();
                postgres.pool.manager().close_witness().await;
            }
        }
    }

    /// Copies the database to `path` while it is in use; see `backup.rs`.
    pub async fn backup_to(&self, path: &Path) -> Result<()> {
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => {
                let tag = self.env().random.base62_text(12);
                backup::backup_sqlite(sqlite.path.clone(), path.to_owned(), tag).await
            }
            StoreBackend::Postgres(_) => Err(Error::internal("a PostgreSQL database is backed up with pg_dump")),
        }
    }

    /// Prepares a statement without running it, for the test that does so with every statement.
    pub async fn prepare_check(&self, sql: &str) -> Result<()> {
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => {
                let guard = sqlite.readers.acquire_reader(FairnessKey::System).await?;
                guard.read_with(|reader| reader.prepare_check(sql))
            }
            StoreBackend::Postgres(postgres) => {
                PostgresSession::for_reading(&postgres.pool).await?.prepare_check(sql).await
            }
        }
    }

    /// The SQL texts of all [`Select`]s executed since the first call of this, for the test of their query plans.
    #[doc(hidden)]
    pub fn executed_lists(&self) -> BTreeSet<String> {
        let executed = self.0.executed_lists.get_or_init(Mutex::default);
        executed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The query plan of a list, for the tests that no list reads rows that it does not show.
    #[doc(hidden)]
    pub async fn explain_select(&self, db: &Db, select: &Select) -> Result<Vec<String>> {
        db.explain_select(select).await
    }

    fn record_list(&self, text: &str) {
        if let Some(executed) = self.0.executed_lists.get() {
            executed.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
        }
    }

    fn commit_notifier(&self) -> &CommitNotifier {
        &self.0.notifier
    }

    fn backend(&self) -> &StoreBackend {
        &self.0.backend
    }
}

fn open_sqlite(path: PathBuf, options: &StoreOptions, env: Env, notifier: CommitNotifier) -> Result<SqliteBackend> {
    let connection = sqlite::open_writer(&path, options)?;
    let readers = ReaderPool::open_all(&path, options.reader_count, options.wait_max)?;
    let scanners = ReaderPool::open_all(&path, SCANNERS, options.wait_max)?;
    let followers = options.followers;
    let idle = HandleContext {
        reach: HandleReach::System(Purpose::Startup),
        is_job: false,
        actor: Actor::for_system(),
        env,
        followers,
    };
    let writer = SqliteWriter::start_thread(Tx::on_sqlite(connection, Arc::new(idle)), options, notifier)?;
    let scan_permits = Arc::new(Semaphore::new(SCANNERS));
    // No tenant may hold all permits.
    let tenant_scan_limiter = TenantLimiter::new(SCANNERS - 1);
    let StoreOptions { wait_max, on_lock_wait, .. } = *options;
    Ok(SqliteBackend { path, writer, readers, scanners, scan_permits, tenant_scan_limiter, wait_max, on_lock_wait })
}
