//! An open database: its backend, and everything that needs no handle to records.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, broadcast};

use crate::base::{Actor, Env, Error, Result, TenantId, run_blocking};

use super::commit_notifier::CommitNotifier;
use super::engine::DatabaseEngine;
use super::follow::Followers;
use super::handle::{FairnessKey, HandleContext, HandleReach};
use super::migrate::Migrations;
use super::options::{DatabaseLocation, StoreOptions};
use super::postgres::{self, PostgresSession};
use super::postgres_pool::Pool;
use super::sqlite_readers::ReaderPool;
use super::sqlite_writer::SqliteWriter;
use super::tenant_limiter::{ConnectionLimiter, TenantLimiter};
use super::tx::Tx;
use super::{backup, migrate, sqlite};

/// Scans that may run at once on SQLite: few, because each keeps a core and the disk busy.
const SCANNERS: usize = 2;

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

pub(super) enum StoreBackend {
    Sqlite(Box<SqliteBackend>),
    Postgres(PostgresBackend),
}

pub(super) struct SqliteBackend {
    pub path: PathBuf,
    pub writer: SqliteWriter,
    pub readers: ReaderPool,
    pub scanners: ReaderPool,
    pub scan_permits: Arc<Semaphore>,
    pub tenant_scan_limiter: TenantLimiter,
    pub wait_max: Duration,
    pub on_lock_wait: Option<fn(&Path)>,
}

pub(super) struct PostgresBackend {
    pub pool: Pool,
    pub limiter: ConnectionLimiter,
    pub wait_max: Duration,
}

impl Store {
    /// Connects to the database, without migrating it.
    pub fn open(options: StoreOptions, env: Env) -> BoxFuture<'static, Result<Store>> {
        Box::pin(async move {
            let (notifier, followers) = (CommitNotifier::default(), options.followers);
            // One write of a tenant; on SQLite, whose writer they share, one of all.
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
                    let open = run_blocking(move || open_sqlite(path, &options, env, notifier));
                    StoreBackend::Sqlite(Box::new(open.await?))
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

    /// Whether the database has the schema of this service, of whatever version. An empty one has not.
    pub async fn has_schema(&self) -> Result<bool> {
        match self.backend() {
            StoreBackend::Sqlite(sqlite) => migrate::has_schema_sqlite(sqlite.path.clone()).await,
            StoreBackend::Postgres(postgres) => migrate::has_schema_postgres(&postgres.pool).await,
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

    pub(super) fn followers(&self) -> Option<Followers> {
        self.0.followers
    }

    /// Receives the id of each tenant whose events this process has committed. It is a hint only: commits of other nodes are
    /// missing, and a slow receiver misses some.
    pub fn subscribe_commits(&self) -> broadcast::Receiver<TenantId> {
        self.0.notifier.subscribe_commits()
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

    pub(super) fn record_list(&self, text: &str) {
        if let Some(executed) = self.0.executed_lists.get() {
            executed.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
        }
    }

    pub(super) fn commit_notifier(&self) -> &CommitNotifier {
        &self.0.notifier
    }

    pub(super) fn maintenance_limiter(&self) -> &TenantLimiter {
        &self.0.maintenance_limiter
    }

    pub(super) fn backend(&self) -> &StoreBackend {
        &self.0.backend
    }
}

fn open_sqlite(path: PathBuf, options: &StoreOptions, env: Env, notifier: CommitNotifier) -> Result<SqliteBackend> {
    let connection = sqlite::open_writer(&path, options)?;
    let readers = ReaderPool::open_all(&path, options.reader_count, options.wait_max)?;
    let scanners = ReaderPool::open_all(&path, SCANNERS, options.wait_max)?;
    let followers = options.followers;
    let idle = HandleContext { reach: HandleReach::System, is_job: false, actor: Actor::for_system(), env, followers };
    let writer = SqliteWriter::start_thread(Tx::on_sqlite(connection, Arc::new(idle)), options, notifier)?;
    let scan_permits = Arc::new(Semaphore::new(SCANNERS));
    // No tenant may hold all permits.
    let tenant_scan_limiter = TenantLimiter::new(SCANNERS - 1);
    let StoreOptions { wait_max, on_lock_wait, .. } = *options;
    Ok(SqliteBackend { path, writer, readers, scanners, scan_permits, tenant_scan_limiter, wait_max, on_lock_wait })
}
