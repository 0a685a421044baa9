//! A handle to the records: of one tenant, or of the system.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::args;
use crate::base::{Actor, Clock, Error, Result, TenantId, Timestamp, World};

use super::handle::{Handle, Lane, Purpose, Reach};
use super::job::{AnyJob, Job, Made, any_job};
use super::maintenance::MaintenancePermit;
use super::postgres::Session;
use super::row::{EachRow, take_only};
use super::tx::Tx;
use super::{Args, Backend, Engine, FromRow, Row, Select, Store, dialect};

/// How long a caller waits for maintenance before it fails with 503.
const MAINTENANCE_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest time after which SQLite tries again to take the lock.
const MAKE_WAY: Duration = Duration::from_millis(100);

/// A handle to the records of one tenant, or to all on behalf of the system.
///
/// On a tenant's handle every statement must use `$1`, which the handle binds to the tenant; the caller's arguments
/// are `$2` and on. On the system's handle they start at `$1`. Reads cannot change anything, on either engine.
#[derive(Clone)]
pub struct Db {
    store: Store,
    handle: Arc<Handle>,
}

impl Db {
    pub(super) fn new(store: Store, reach: Reach, actor: Actor) -> Self {
        let (world, followers) = (store.world().clone(), store.followers());
        Db { store, handle: Arc::new(Handle { reach, job: false, actor, world, followers }) }
    }

    /// A handle for background jobs: their writes do not queue with the tenant's requests.
    pub(super) fn for_job(store: Store, tenant: TenantId) -> Self {
        let (world, reach) = (store.world().clone(), Reach::Tenant(tenant, tenant.to_string()));
        let (actor, followers) = (Actor::system(), store.followers());
        Db { store, handle: Arc::new(Handle { reach, job: true, actor, world, followers }) }
    }

    pub fn tenant_id(&self) -> Option<TenantId> {
        self.handle.tenant_id()
    }

    /// The purpose of a system handle; none on a tenant's handle.
    pub fn purpose(&self) -> Option<Purpose> {
        match self.handle.reach {
            Reach::System(purpose) => Some(purpose),
            Reach::Tenant(..) => None,
        }
    }

    pub fn actor(&self) -> &Actor {
        &self.handle.actor
    }

    pub fn world(&self) -> &World {
        &self.handle.world
    }

    pub fn engine(&self) -> Engine {
        self.store.engine()
    }

    /// Pauses a command that writes much beside a running server: on SQLite the server polls for the lock, and must find it
    /// free.
    pub async fn make_way(&self) {
        if self.engine() == Engine::Sqlite {
            tokio::time::sleep(MAKE_WAY).await;
        }
    }

    /// Waits until no other maintenance job of this tenant runs in this process, and on SQLite none at all: other writes
    /// would wait for all queued ones, and on PostgreSQL each would hold a connection while it waits for the tenant's clock.
    /// The permit is held until the write is committed, even if the caller is gone.
    pub async fn acquire_maintenance_permit(&self) -> Result<MaintenancePermit> {
        let turns = &self.store.0.maintenance_turns;
        // The tenant's permit comes first, so that a tenant has at most one job in the queue for the shared one.
        let lane = self.tenant_id().map_or(Lane::System, Lane::Tenant);
        let of_tenant = turns.take(lane, MAINTENANCE_WAIT_MAX).await?;
        let mut of_all = None;
        if self.engine() == Engine::Sqlite && lane != Lane::System {
            of_all = Some(turns.take(Lane::System, MAINTENANCE_WAIT_MAX).await?);
        }
        Ok(MaintenancePermit::new(of_tenant, of_all))
    }

    /// The database's time: its own where it has a clock, because the clock of a command's machine may be wrong.
    pub async fn database_now(&self) -> Result<Timestamp> {
        match (self.store.backend(), &self.world().clock) {
            (Backend::Sqlite(_), _) | (Backend::Postgres(_), Clock::Manual(_)) => Ok(self.world().now()),
            (Backend::Postgres(postgres), _) => {
                let mut session = Session::for_reading(&postgres.pool).await?;
                session.ask_unbound(&self.handle, dialect::POSTGRES_CLOCK, args![]).await
            }
        }
    }

    /// The value to bind for `database_time!`: none where the database has a clock of its own.
    pub fn given_time(&self) -> Option<Timestamp> {
        self.handle.given_time(self.engine())
    }

    /// By how many milliseconds this node's clock is ahead of the database's, less the uncertainty of the round trip. Zero
    /// on SQLite.
    pub async fn clock_ahead_ms(&self) -> Result<i64> {
        let asked_at = self.world().now();
        let told = self.database_now().await?;
        let answered_at = self.world().now();
        // The database read its clock between the request and the answer, so a time between them is no difference.
        Ok((asked_at.as_millis() - told.as_millis()).max(0) + (answered_at.as_millis() - told.as_millis()).min(0))
    }

    /// Runs `job` as one transaction. Returns when all of its changes are on disk, or none.
    ///
    /// The job runs to its end even if the caller stops waiting. It may await only its transaction, and should be
    /// short: on SQLite all other writes wait for it. "Unavailable" can mean that the outcome of a commit is unknown; it is
    /// never retried here.
    pub async fn write<R: Send + 'static>(
        &self,
        job: impl for<'t> Job<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
    ) -> Result<R> {
        downcast(self.run(any_job(job), None).await?)
    }

    /// Like [`Db::write`], for a maintenance job that changes many pages. On SQLite it is not part of a group commit: inside
    /// a savepoint, each statement that changes several rows reads the list of all pages that the job has changed so far.
    pub async fn write_in_own_commit<R: Send + 'static>(
        &self,
        permit: MaintenancePermit,
        job: impl for<'t> Job<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
    ) -> Result<R> {
        downcast(self.run(any_job(job), Some(permit)).await?)
    }

    fn run(&self, job: AnyJob, permit: Option<MaintenancePermit>) -> BoxFuture<'_, Result<Made>> {
        match self.store.backend() {
            Backend::Sqlite(sqlite) => Box::pin(sqlite.writer.write(self.handle.clone(), job, permit)),
            Backend::Postgres(postgres) => Box::pin(async move {
                let (mut turn, mut job_turn) = (None, None);
                match self.tenant_id() {
                    Some(tenant) if self.handle.job => job_turn = Some(postgres.turns.take_for_job(tenant).await?),
                    Some(tenant) => turn = Some(postgres.turns.take(tenant, postgres.wait_max).await?),
                    None => {}
                }
                let tx = Tx::postgres(Session::for_writing(&postgres.pool).await?, self.handle.clone());
                // Spawned, so that a caller that goes away cannot stop it between BEGIN and COMMIT.
                let news = self.store.news_of_writes().clone();
                let write = async move {
                    let _turns = (turn, job_turn, permit);
                    tx.run_to_commit(job, &news).await
                };
                tokio::spawn(write).await.map_err(Error::unavailable)?
            }),
        }
    }

    /// The one row of a query; no row is "not found".
    pub async fn one<T: FromRow>(&self, sql: &str, args: Args<'_>) -> Result<T> {
        self.find(sql, args).await?.ok_or_else(Error::not_found)
    }

    pub async fn find<T: FromRow>(&self, sql: &str, args: Args<'_>) -> Result<Option<T>> {
        let mut found = None;
        self.ask(sql, args, &mut |row| take_only(&mut found, row, sql)).await?;
        Ok(found)
    }

    /// All rows of a query, so the statement needs a LIMIT.
    pub async fn list<T: FromRow>(&self, sql: &str, args: Args<'_>) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.ask(sql, args, &mut |row| T::from_row(row).map(|row| found.push(row))).await?;
        Ok(found)
    }

    async fn ask(&self, sql: &str, args: Args<'_>, each: EachRow<'_>) -> Result<()> {
        self.world().statements.note();
        match self.store.backend() {
            Backend::Sqlite(lite) => {
                let lent = lite.readers.lend(self.handle.lane()).await?;
                lent.read(|reader| reader.ask(self.handle.bound(), sql, args, each))
            }
            Backend::Postgres(postgres) => {
                let _turn = postgres.turns.take_to_read(self.handle.lane(), postgres.wait_max).await?;
                Session::for_reading(&postgres.pool).await?.ask_each(&self.handle, sql, args, each).await
            }
        }
    }

    pub async fn select<T: FromRow>(&self, select: &Select) -> Result<Vec<T>> {
        let finished = select.finish();
        self.handle.check_select(finished.tenant)?;
        self.store.note_list(&finished.text);
        self.list(&finished.text, &finished.params()).await
    }

    pub(super) fn lane(&self) -> Lane {
        self.handle.lane()
    }

    /// Like [`Db::select`], for a query that may read many rows: on SQLite it runs on blocking threads, with connections of
    /// its own.
    pub async fn scan<T: FromRow + 'static>(&self, select: &Select) -> Result<Vec<T>> {
        let finished = select.finish();
        self.handle.check_select(finished.tenant)?;
        self.store.note_list(&finished.text);
        match self.store.backend() {
            Backend::Sqlite(lite) => {
                self.world().statements.note();
                // It waits here and not on a blocking thread, of which there are few.
                let mut of_tenant = None;
                if self.tenant_id().is_some() {
                    of_tenant = Some(lite.scan_turns_of_tenants.take(self.handle.lane(), lite.wait_max).await?);
                }
                let turn = tokio::time::timeout(lite.wait_max, lite.scan_turns.clone().acquire_owned());
                let turn =
                    turn.await.map_err(|_| Error::unavailable("no connection to scan with became free in time"))?;
                let (store, handle) = (self.store.clone(), self.handle.clone());
                let work = move || {
                    let _turns = (of_tenant, turn);
                    let Backend::Sqlite(lite) = store.backend() else {
                        return Err(Error::internal("the engine has changed"));
                    };
                    let lent = lite.scanners.lend_now()?;
                    let mut found = Vec::new();
                    let mut each = |row: &Row<'_>| T::from_row(row).map(|row| found.push(row));
                    lent.read(|reader| reader.ask(handle.bound(), &finished.text, &finished.params(), &mut each))?;
                    Ok(found)
                };
                tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
            }
            Backend::Postgres(_) => self.list(&finished.text, &finished.params()).await,
        }
    }

    /// See [`Store::explain_select`].
    pub(super) async fn explain(&self, select: &Select) -> Result<Vec<String>> {
        let finished = select.finish();
        let text = format!("{}{}", dialect::explain(self.engine()), finished.text);
        match self.engine() {
            Engine::Sqlite => {
                let steps: Vec<(i64, i64, i64, String)> = self.list(&text, &finished.params()).await?;
                Ok(steps.into_iter().map(|(.., step)| step).collect())
            }
            Engine::Postgres => self.list(&text, &finished.params()).await,
        }
    }
}

fn downcast<R: 'static>(made: Made) -> Result<R> {
    made.downcast().map(|made| *made).map_err(|_| Error::internal("a write has made something else"))
}
