//! A handle to the records: of one tenant, or of the system.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::args;
use crate::base::{Actor, Env, Error, Result, TenantId, Timestamp, WallClock, run_blocking};

use super::database::{Store, StoreBackend};
use super::handle::{FairnessKey, HandleContext, HandleReach, Purpose};
use super::maintenance::MaintenancePermit;
use super::postgres::PostgresSession;
use super::row::{RowCallback, set_only_row};
use super::tx::Tx;
use super::write_fn::{BoxedWrite, WriteFn, WriteOutput, box_write};
use super::{Args, DatabaseEngine, FromRow, Row, Select, dialect};

/// How long a caller waits for maintenance before it fails with 503.
const MAINTENANCE_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest time after which SQLite tries again to take the lock.
const YIELD_TIME: Duration = Duration::from_millis(100);

/// A handle to the records of one tenant, or to all on behalf of the system.
///
/// On a tenant's handle every statement must use `$1`, which the handle binds to the tenant; the caller's arguments
/// are `$2` and on. On the system's handle they start at `$1`. Reads cannot change anything, on either engine.
#[derive(Clone)]
pub struct Db {
    store: Store,
    handle: Arc<HandleContext>,
}

impl Db {
    pub(super) fn new(store: Store, reach: HandleReach, actor: Actor) -> Self {
        let (env, followers) = (store.env().clone(), store.followers());
        Db { store, handle: Arc::new(HandleContext { reach, is_job: false, actor, env, followers }) }
    }

    /// A handle for background jobs: their writes do not queue with the tenant's requests.
    pub(super) fn for_job(store: Store, tenant: TenantId) -> Self {
        let (env, reach) = (store.env().clone(), HandleReach::Tenant(tenant, tenant.to_string()));
        let (actor, followers) = (Actor::for_system(), store.followers());
        Db { store, handle: Arc::new(HandleContext { reach, is_job: true, actor, env, followers }) }
    }

    pub fn tenant_id(&self) -> Option<TenantId> {
        self.handle.tenant_id()
    }

    pub fn actor(&self) -> &Actor {
        &self.handle.actor
    }

    pub fn env(&self) -> &Env {
        &self.handle.env
    }

    pub fn engine(&self) -> DatabaseEngine {
        self.store.engine()
    }

    /// Pauses a command that writes much beside a running server: on SQLite the server polls for the lock, and must find it
    /// free.
    pub async fn yield_write_lock(&self) {
        if self.engine() == DatabaseEngine::Sqlite {
            tokio::time::sleep(YIELD_TIME).await;
        }
    }

    /// Waits until this process runs no other maintenance write of the tenant, and on SQLite no maintenance write at all.
    /// Without the permit, the writes of requests on SQLite would wait for all queued maintenance writes, and on PostgreSQL
    /// each write would hold a connection while it waits for the tenant's clock. The permit is held until the write is
    /// committed, even if the caller is gone.
    pub async fn acquire_maintenance_permit(&self) -> Result<MaintenancePermit> {
        let key = self.tenant_id().map_or(FairnessKey::System, FairnessKey::Tenant);
        self.store.maintenance_limiter().acquire(key, MAINTENANCE_WAIT_MAX).await.map(MaintenancePermit)
    }

    /// The database's time: its own where it has a clock, because the clock of a command's machine may be wrong.
    pub async fn database_now(&self) -> Result<Timestamp> {
        match (self.store.backend(), &self.env().clock) {
            (StoreBackend::Sqlite(_), _) | (StoreBackend::Postgres(_), WallClock::Manual(_)) => Ok(self.env().now()),
            (StoreBackend::Postgres(postgres), _) => {
                let mut session = PostgresSession::for_reading(&postgres.pool).await?;
                session.query_unbound(&self.handle, dialect::POSTGRES_CLOCK, args![]).await
            }
        }
    }

    /// The value to bind for `database_time!`: none where the database has a clock of its own.
    pub fn clock_override(&self) -> Option<Timestamp> {
        self.handle.clock_override(self.engine())
    }

    /// By how many milliseconds this node's clock is ahead of the database's, less the uncertainty of the round trip. Zero
    /// on SQLite.
    pub async fn clock_ahead_ms(&self) -> Result<i64> {
        let sent_at = self.env().now();
        let database_time = self.database_now().await?;
        let received_at = self.env().now();
        // The database read its clock between the request and the answer, so a time between them is no difference.
        Ok((sent_at.as_millis() - database_time.as_millis()).max(0)
            + (received_at.as_millis() - database_time.as_millis()).min(0))
    }

    /// Runs `write` as one transaction. Returns when all of its changes are on disk, or none.
    ///
    /// The write runs to its end even if the caller stops waiting. It may await only its transaction, and should be
    /// short: on SQLite all other writes wait for it. "Unavailable" can mean that the outcome of a commit is unknown; it is
    /// never retried here.
    pub async fn write<R: Send + 'static>(
        &self,
        write: impl for<'t> WriteFn<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
    ) -> Result<R> {
        downcast_output(self.run_write(box_write(write), None).await?)
    }

    /// Like [`Db::write`], for a maintenance write that changes many pages. On SQLite it is not part of a group commit: inside
    /// a savepoint, each statement that changes several rows reads the list of all pages that the write has changed so far.
    pub async fn write_in_own_commit<R: Send + 'static>(
        &self,
        permit: MaintenancePermit,
        write: impl for<'t> WriteFn<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
    ) -> Result<R> {
        downcast_output(self.run_write(box_write(write), Some(permit)).await?)
    }

    fn run_write(&self, write: BoxedWrite, permit: Option<MaintenancePermit>) -> BoxFuture<'_, Result<WriteOutput>> {
        match self.store.backend() {
            StoreBackend::Sqlite(sqlite) => Box::pin(sqlite.writer.run_write(self.handle.clone(), write, permit)),
            StoreBackend::Postgres(postgres) => Box::pin(async move {
                let write_permit = postgres.limiter.acquire_write(self.fairness_key(), postgres.wait_max).await?;
                let tx = Tx::on_postgres(PostgresSession::for_writing(&postgres.pool).await?, self.handle.clone());
                // Spawned, so that a caller that goes away cannot stop it between BEGIN and COMMIT.
                let notifier = self.store.commit_notifier().clone();
                let write = async move {
                    let _permits = (write_permit, permit);
                    tx.run_to_commit(write, &notifier).await
                };
                tokio::spawn(write).await.map_err(Error::unavailable)?
            }),
        }
    }

    /// The one row of a query; no row is "not found".
    pub async fn get_one<T: FromRow>(&self, sql: &str, args: Args<'_>) -> Result<T> {
        self.find(sql, args).await?.ok_or_else(Error::not_found)
    }

    pub async fn find<T: FromRow>(&self, sql: &str, args: Args<'_>) -> Result<Option<T>> {
        let mut found = None;
        self.query_each(sql, args, &mut |row| set_only_row(&mut found, row, sql)).await?;
        Ok(found)
    }

    /// All rows of a query, so the statement needs a LIMIT.
    pub async fn list<T: FromRow>(&self, sql: &str, args: Args<'_>) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.query_each(sql, args, &mut |row| T::from_row(row).map(|row| found.push(row))).await?;
        Ok(found)
    }

    /// Calls `each` for all rows of a query, which adds them up instead of keeping them.
    pub async fn visit(
        &self,
        sql: &str,
        args: Args<'_>,
        mut each: impl FnMut(&Row<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        self.query_each(sql, args, &mut each).await
    }

    async fn query_each(&self, sql: &str, args: Args<'_>, each: RowCallback<'_>) -> Result<()> {
        self.env().statements.add_one();
        match self.store.backend() {
            StoreBackend::Sqlite(lite) => {
                let guard = lite.readers.acquire_reader(self.handle.fairness_key()).await?;
                guard.read_with(|reader| reader.query_each(self.handle.bound_tenant(), sql, args, each))
            }
            StoreBackend::Postgres(postgres) => {
                let _permit = postgres.limiter.acquire_read(self.handle.fairness_key(), postgres.wait_max).await?;
                PostgresSession::for_reading(&postgres.pool).await?.query_each(&self.handle, sql, args, each).await
            }
        }
    }

    pub async fn select<T: FromRow>(&self, select: &Select) -> Result<Vec<T>> {
        let finished = select.to_statement();
        self.handle.check_select(finished.for_tenant)?;
        self.store.record_list(&finished.text);
        self.list(&finished.text, &finished.to_params()).await
    }

    /// Whose share of a [`super::TenantLimiter`] this handle uses.
    pub fn fairness_key(&self) -> FairnessKey {
        self.handle.fairness_key()
    }

    /// Like [`Db::select`], for a query that may read many rows: on SQLite it runs on blocking threads, with connections of
    /// its own.
    pub async fn scan<T: FromRow + 'static>(&self, select: &Select) -> Result<Vec<T>> {
        let finished = select.to_statement();
        self.handle.check_select(finished.for_tenant)?;
        self.store.record_list(&finished.text);
        match self.store.backend() {
            StoreBackend::Sqlite(lite) => {
                self.env().statements.add_one();
                // It waits here and not on a blocking thread, of which there are few.
                let mut tenant_permit = None;
                if self.tenant_id().is_some() {
                    tenant_permit =
                        Some(lite.tenant_scan_limiter.acquire(self.handle.fairness_key(), lite.wait_max).await?);
                }
                let permit = tokio::time::timeout(lite.wait_max, lite.scan_permits.clone().acquire_owned());
                let permit =
                    permit.await.map_err(|_| Error::unavailable("no connection to scan with became free in time"))?;
                let (store, handle) = (self.store.clone(), self.handle.clone());
                let work = move || {
                    let _permits = (tenant_permit, permit);
                    let StoreBackend::Sqlite(lite) = store.backend() else {
                        return Err(Error::internal("the engine has changed"));
                    };
                    let guard = lite.scanners.try_acquire_reader()?;
                    let mut found = Vec::new();
                    let mut each = |row: &Row<'_>| T::from_row(row).map(|row| found.push(row));
                    guard.read_with(|reader| {
                        reader.query_each(handle.bound_tenant(), &finished.text, &finished.to_params(), &mut each)
                    })?;
                    Ok(found)
                };
                run_blocking(work).await
            }
            StoreBackend::Postgres(_) => self.list(&finished.text, &finished.to_params()).await,
        }
    }

    /// See [`Store::explain_select`].
    pub(super) async fn explain_select(&self, select: &Select) -> Result<Vec<String>> {
        let finished = select.to_statement();
        let text = format!("{}{}", dialect::explain_prefix(self.engine()), finished.text);
        match self.engine() {
            DatabaseEngine::Sqlite => {
                let steps: Vec<(i64, i64, i64, String)> = self.list(&text, &finished.to_params()).await?;
                Ok(steps.into_iter().map(|(.., step)| step).collect())
            }
            DatabaseEngine::Postgres => self.list(&text, &finished.to_params()).await,
        }
    }
}

/// The only ways to a handle.
impl Store {
    /// A handle across all tenants, for the service's own work.
    pub fn system(&self, _: Purpose) -> Db {
        Db::new(self.clone(), HandleReach::System, Actor::for_system())
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

    /// The query plan of a list, for the tests that no list reads rows that it does not show.
    #[doc(hidden)]
    pub async fn explain_select(&self, db: &Db, select: &Select) -> Result<Vec<String>> {
        db.explain_select(select).await
    }
}

fn downcast_output<R: 'static>(output: WriteOutput) -> Result<R> {
    output.downcast().map(|output| *output).map_err(|_| Error::internal("a write returned a value of another type"))
}
