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
mod cursor;
mod db;
pub mod delta;
mod dialect;
mod follow;
mod handle;
mod job;
mod maintenance;
mod migrate;
mod news;
mod options;
mod params;
mod postgres;
mod postgres_fault;
mod postgres_pool;
mod postgres_send;
mod postgres_tls;
mod postgres_url;
pub mod refer;
mod row;
mod select;
mod self_check;
mod sqlite;
mod sqlite_group;
mod sqlite_queue;
mod sqlite_readers;
mod sqlite_writer;
mod steps;
mod turns;
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
use crate::base::{Actor, Error, Result, TenantId, World};

use handle::{Handle, Reach};
use news::News;
use options::Location;
use postgres::Session;
use postgres_pool::Pool;
use sqlite_readers::Readers;
use sqlite_writer::Writer;
use turns::Turns;

pub use arms::Arms;
pub use clock::{CLOCK_AHEAD_MAX_MS, STATEMENTS, Tick};
#[doc(hidden)]
pub use columns::Text;
pub use cursor::CursorKey;
pub use db::Db;
pub use follow::{Bind, Follower, Followers, Happening};
pub(crate) use handle::Lane;
pub use handle::Purpose;
pub use job::Job;
pub use maintenance::MaintenancePermit;
pub use migrate::{Migration, Migrations};
pub use options::{Options, PostgresOptions, Synchronous};
pub use params::{Args, Param};
pub use row::{Column, FromRow, Row};
pub use select::{Compare, Direction, Select};
pub use self_check::{CLOCK_SKEW_MAX_MS, Check};
pub use steps::STEP_ROWS;
pub use turns::TenantTurns;
pub use tx::{Ahead, Tx};
pub use values::Value;
pub use walk::{ARMS_MAX, Arm, Passed, Walk};

/// Scans that may run at once on SQLite: few, because each keeps a core and the disk busy.
const SCANNERS: usize = 2;

const PING: &str = "SELECT CAST(1 AS BIGINT)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

/// An open database. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    backend: Backend,
    world: World,
    news: News,
    followers: Option<Followers>,
    maintenance_turns: TenantTurns,
    /// The SQL texts of executed lists, recorded once a test has asked for them.
    lists_asked: OnceLock<Mutex<BTreeSet<String>>>,
}

enum Backend {
    Sqlite(Box<Sqlite>),
    Postgres(Postgres),
}

struct Sqlite {
    path: PathBuf,
    writer: Writer,
    readers: Readers,
    scanners: Readers,
    scan_turns: Arc<Semaphore>,
    scan_turns_of_tenants: TenantTurns,
    wait_max: Duration,
    tell_wait: Option<fn(&Path)>,
}

struct Postgres {
    pool: Pool,
    turns: Turns,
    wait_max: Duration,
}

impl Store {
    /// Connects to the database, without migrating it.
    pub fn open(options: Options, world: World) -> BoxFuture<'static, Result<Store>> {
        Box::pin(async move {
            let (news, followers) = (News::default(), options.followers);
            let backend = match &options.location {
                Location::Postgres(postgres) => {
                    let pool = postgres::open(postgres, &options).await?;
                    let turns = Turns::new(postgres.pool_max);
                    Backend::Postgres(Postgres { pool, turns, wait_max: options.wait_max })
                }
                Location::Sqlite(path) => {
                    let (path, world, news) = (path.clone(), world.clone(), news.clone());
                    let open = tokio::task::spawn_blocking(move || open_sqlite(path, &options, world, news));
                    Backend::Sqlite(Box::new(open.await.map_err(Error::internal)??))
                }
            };
            Ok(Store(Arc::new(Inner {
                backend,
                world,
                news,
                followers,
                maintenance_turns: TenantTurns::new(1),
                lists_asked: OnceLock::new(),
            })))
        })
    }

    /// Applies the pending migrations under a lock, and returns their names.
    pub fn migrate(&self, migrations: Migrations) -> BoxFuture<'_, Result<Vec<String>>> {
        match self.backend() {
            Backend::Sqlite(sqlite) => {
                let (path, world) = (sqlite.path.clone(), self.world().clone());
                Box::pin(migrate::migrate_sqlite(path, sqlite.tell_wait, world, migrations))
            }
            Backend::Postgres(postgres) => {
                Box::pin(migrate::migrate_postgres(&postgres.pool, self.world(), migrations))
            }
        }
    }

    /// The names of the migrations that are not applied yet.
    pub async fn pending_migrations(&self, migrations: Migrations) -> Result<Vec<String>> {
        match self.backend() {
            Backend::Sqlite(sqlite) => migrate::pending_sqlite(sqlite.path.clone(), migrations).await,
            Backend::Postgres(postgres) => migrate::pending_postgres(&postgres.pool, migrations).await,
        }
    }

    pub fn engine(&self) -> Engine {
        match self.backend() {
            Backend::Sqlite(_) => Engine::Sqlite,
            Backend::Postgres(_) => Engine::Postgres,
        }
    }

    pub fn world(&self) -> &World {
        &self.0.world
    }

    fn followers(&self) -> Option<Followers> {
        self.0.followers
    }

    /// Receives the id of each tenant whose events this process has committed. It is a hint only: commits of other nodes are
    /// missing, and a slow receiver misses some.
    pub fn news(&self) -> broadcast::Receiver<TenantId> {
        self.0.news.listen()
    }

    /// A handle across all tenants, for the service's own work.
    pub fn system(&self, purpose: Purpose) -> Db {
        Db::new(self.clone(), Reach::System(purpose), Actor::system())
    }

    /// A handle to one tenant's records. Only `kernel/auth` creates it, after its checks.
    pub(crate) fn tenant(&self, tenant: TenantId, actor: Actor) -> Db {
        Db::new(self.clone(), Reach::Tenant(tenant, tenant.to_string()), actor)
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
        self.system(Purpose::Health).one::<i64>(PING, args![]).await.map(drop)
    }

    /// Checks that reads and writes work. After a failed write to disk it tries a write itself, so that an instance without
    /// traffic notices that there is space again.
    pub async fn ping(&self) -> Result<()> {
        let failing = match self.backend() {
            Backend::Sqlite(sqlite) => sqlite.writer.failing(),
            Backend::Postgres(_) => false,
        };
        self.ping_writing(failing).await
    }

    /// Like [`Store::ping`]; `probing` always tries a write to disk. The health endpoint does not, because anybody may call
    /// it and all tenants share the disk.
    async fn ping_writing(&self, probing: bool) -> Result<()> {
        self.ping_read().await?;
        let health = self.system(Purpose::Health);
        match self.backend() {
            Backend::Sqlite(sqlite) => {
                if probing {
                    let path = sqlite.path.clone();
                    let probe = tokio::task::spawn_blocking(move || sqlite::probe_disk(&path));
                    probe.await.map_err(Error::internal)??;
                }
                health.write(async move |tx: &mut Tx| if probing { tx.probe() } else { Ok(()) }).await?;
                if probing {
                    sqlite.writer.recovered();
                }
                Ok(())
            }
            // A standby serves reads but refuses to begin a transaction that writes.
            Backend::Postgres(_) => health.write(async |tx| tx.one::<i64>(PING, args![]).await).await.map(drop),
        }
    }

    /// Waits until the writer thread has failed. After that this process cannot write any more and must be restarted.
    pub async fn broken(&self) {
        match self.backend() {
            Backend::Sqlite(sqlite) => sqlite.writer.ended().await,
            Backend::Postgres(_) => std::future::pending().await,
        }
    }

    /// Refuses further writes, finishes those under way and closes the connections.
    pub async fn close(&self) {
        match self.backend() {
            Backend::Sqlite(sqlite) => {
                // The readers first: an open reader delays the writer's last checkpoint.
                sqlite.readers.close();
                sqlite.scanners.close();
                sqlite.writer.close().await;
            }
            Backend::Postgres(postgres) => {
                postgres.pool.close();
                postgres.pool.manager().close().await;
            }
        }
    }

    /// Copies the database to `path` while it is in use; see `backup.rs`.
    pub async fn backup_to(&self, path: &Path) -> Result<()> {
        match self.backend() {
            Backend::Sqlite(sqlite) => {
                let tag = self.world().chance.base62(12);
                backup::backup_sqlite(sqlite.path.clone(), path.to_owned(), tag).await
            }
            Backend::Postgres(_) => Err(Error::internal("a PostgreSQL database is backed up with pg_dump")),
        }
    }

    /// Prepares a statement without running it, for the test that does so with every statement.
    pub async fn prepare_check(&self, sql: &str) -> Result<()> {
        match self.backend() {
            Backend::Sqlite(sqlite) => {
                let lent = sqlite.readers.lend(Lane::System).await?;
                lent.read(|reader| reader.check(sql))
            }
            Backend::Postgres(postgres) => Session::for_reading(&postgres.pool).await?.prepare_check(sql).await,
        }
    }

    /// The SQL texts of all [`Select`]s executed since the first call of this, for the test of their query plans.
    #[doc(hidden)]
    pub fn lists_asked(&self) -> BTreeSet<String> {
        let asked = self.0.lists_asked.get_or_init(Mutex::default);
        asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The query plan of a list, for the tests that no list reads rows that it does not show.
    #[doc(hidden)]
    pub async fn explain(&self, db: &Db, select: &Select) -> Result<Vec<String>> {
        db.explain(select).await
    }

    fn note_list(&self, text: &str) {
        if let Some(asked) = self.0.lists_asked.get() {
            asked.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
        }
    }

    fn news_of_writes(&self) -> &News {
        &self.0.news
    }

    fn backend(&self) -> &Backend {
        &self.0.backend
    }
}

fn open_sqlite(path: PathBuf, options: &Options, world: World, news: News) -> Result<Sqlite> {
    let connection = sqlite::open_writer(&path, options)?;
    let readers = Readers::open(&path, options.readers, options.wait_max)?;
    let scanners = Readers::open(&path, SCANNERS, options.wait_max)?;
    let followers = options.followers;
    let idle = Handle { reach: Reach::System(Purpose::Startup), job: false, actor: Actor::system(), world, followers };
    let writer = Writer::start(Tx::sqlite(connection, Arc::new(idle)), options, news)?;
    let scan_turns = Arc::new(Semaphore::new(SCANNERS));
    // No tenant may hold all permits.
    let scan_turns_of_tenants = TenantTurns::new(SCANNERS - 1);
    let Options { wait_max, tell_wait, .. } = *options;
    Ok(Sqlite { path, writer, readers, scanners, scan_turns, scan_turns_of_tenants, wait_max, tell_wait })
}
