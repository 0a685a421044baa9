//! How connections to PostgreSQL are made, and proved to be what the store relies on.
//!
//! The store keeps prepared statements and the tenant's name on a connection. A pooler in transaction mode gives every
//! transaction another backend: statements would be missing, or another node's of the same name, and row-level security
//! would look for the tenant's name where it is not. So every connection is proved beside a second one before it is used:
//! two of them never have the same backend, and each keeps its own, unless there is such a pooler between. The backend
//! is compared at every checkout, too, by the statement that names the tenant.
//!
//! The second one, the witness, does nothing else and is kept: a server that has place for one more connection need not
//! have it for two. A connection of the pool would not do: in a transaction it keeps its backend at such a pooler, too,
//! and proves nothing. What could not be proved is closed, and whoever needed it is told that the database is away.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{self, PoolError, TimeoutType, Timeouts};
use deadpool_postgres::{ClientWrapper, ManagerConfig, Metrics, RecyclingMethod, Runtime};
use tokio::sync::Mutex;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::base::{Error, Result};

use super::{Options, PostgresOptions, dialect, postgres_url};

pub(super) type Pool = managed::Pool<Manager>;
pub(super) type Object = managed::Object<Manager>;

/// How long to make a connection may take, with all that is asked of it.
const CREATE_MAX: Duration = Duration::from_secs(8);

/// The same for the first one, before which nobody is served: a server that is restarted beside a database that has too
/// much to do waits rather than ends. One that is not there says so at once.
const FIRST_MAX: Duration = Duration::from_secs(30);

/// How long to wait for what a witness says that was kept: of the time above, so that one that fell silent leaves time
/// for another.
const KEPT_WAIT_MAX: Duration = Duration::from_millis(2_500);

/// A connection and the backend behind it.
pub(super) struct Connection {
    client: ClientWrapper,
    pub backend: i32,
}

impl Deref for Connection {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.client
    }
}

/// Makes connections, each proved beside the witness.
pub(super) struct Manager {
    driver: deadpool_postgres::Manager,
    /// Shared, so that connections that are made at once are proved at once.
    witness: Mutex<Option<Arc<ClientWrapper>>>,
}

/// The first connection of a pool.
pub(super) async fn first(pool: &Pool) -> Result<Object> {
    let patient = Timeouts { create: Some(FIRST_MAX), ..pool.timeouts() };
    pool.timeout_get(&patient).await.map_err(no_connection)
}

/// Opens the pool. It has no connection yet.
pub(super) fn build(postgres: &PostgresOptions, options: &Options) -> Result<Pool> {
    let (config, tls) = postgres_url::parse(&postgres.url)?;
    // A round trip for every checkout would halve the throughput. A connection that the server has closed is seen
    // without one, and a server that fell silent is noticed by the TCP timeouts of postgres_url.
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let driver = deadpool_postgres::Manager::from_config(config, tls, recycling);
    Pool::builder(Manager { driver, witness: Mutex::new(None) })
        .max_size(postgres.pool_max.max(1))
        .wait_timeout(Some(options.wait_max))
        .create_timeout(Some(CREATE_MAX))
        .recycle_timeout(Some(options.wait_max))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(Error::internal)
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = Error;

    async fn create(&self) -> Result<Connection> {
        let client = managed::Manager::create(&self.driver).await.map_err(Error::unavailable)?;
        let backend = self.prove(&client).await?;
        // Only now: at a pooler they would stay on a backend that others use.
        client.batch_execute(dialect::POSTGRES_SETTINGS).await.map_err(Error::unavailable)?;
        Ok(Connection { client, backend })
    }

    async fn recycle(&self, connection: &mut Connection, metrics: &Metrics) -> managed::RecycleResult<Error> {
        let recycled = managed::Manager::recycle(&self.driver, &mut connection.client, metrics).await;
        recycled.map_err(|error| managed::RecycleError::message(error.to_string()))
    }

    fn detach(&self, connection: &mut Connection) {
        managed::Manager::detach(&self.driver, &mut connection.client);
    }
}

impl Manager {
    /// The backend of a new connection, which must have one to itself. What could not be found out is no proof: the
    /// connection is not used, and whoever needs one next tries again.
    async fn prove(&self, new: &Client) -> Result<i32> {
        let kept = self.witness.lock().await.clone();
        let mut found = None;
        if let Some(witness) = &kept {
            found = tokio::time::timeout(KEPT_WAIT_MAX, compare(new, witness)).await.ok().and_then(Result::ok);
        }
        // It may have been closed since, and one that fails is not asked again.
        if found.is_none() {
            let witness = self.next_witness(kept.as_ref()).await?;
            found = compare(new, &witness).await.ok();
        }
        match found {
            Some(Backend::Own(number)) => Ok(number),
            Some(Backend::Shared) => Err(pooled()),
            None => Err(unproved()),
        }
    }

    /// Another than the one that failed; whoever comes first makes it for all.
    async fn next_witness(&self, failed: Option<&Arc<ClientWrapper>>) -> Result<Arc<ClientWrapper>> {
        let mut kept = self.witness.lock().await;
        if let Some(witness) = kept.as_ref().filter(|witness| failed.is_none_or(|failed| !Arc::ptr_eq(failed, witness)))
        {
            return Ok(witness.clone());
        }
        *kept = None;
        let witness = Arc::new(self.make_witness().await?);
        *kept = Some(witness.clone());
        Ok(witness)
    }

    async fn make_witness(&self) -> Result<ClientWrapper> {
        let mut witness = managed::Manager::create(&self.driver).await.map_err(|_| unproved())?;
        managed::Manager::detach(&self.driver, &mut witness);
        Ok(witness)
    }

    /// The witness is not the pool's, which closes its own.
    pub async fn close(&self) {
        drop(self.witness.lock().await.take());
    }
}

/// Whose the backend of a new connection is.
enum Backend {
    Own(i32),
    Shared,
}

/// Shared is the backend of two connections, and of one that changes its own. A pooler that takes the backend that was
/// used last answers the first two alike, one that takes them in turn answers the next two differently, and the rest are
/// for one that is busy with others.
async fn compare(new: &Client, witness: &Client) -> Result<Backend> {
    let (mine, theirs) = (backend(new).await?, backend(witness).await?);
    let again = [backend(new).await?, backend(new).await?, backend(witness).await?, backend(new).await?];
    let own = mine != theirs && again == [mine, mine, theirs, mine];
    Ok(if own { Backend::Own(mine) } else { Backend::Shared })
}

/// Asked by a plain message: it needs nothing that was prepared.
async fn backend(client: &Client) -> Result<i32> {
    let answer = client.simple_query(dialect::POSTGRES_BACKEND).await.map_err(Error::unavailable)?;
    let told = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    told.and_then(|text| text.parse().ok()).ok_or_else(|| Error::internal("the backend did not tell its number"))
}

/// What to change, said at the start by `serve` and `doctor`, and in the log by whoever needs a connection later.
pub(super) fn pooled() -> Error {
    Error::unavailable(
        "between this server and PostgreSQL there is a pooler that shares connections between clients (transaction or \
         statement mode), where prepared statements and the tenant's name do not stay with their connection; use \
         pool_mode = session for this database and user, or connect to PostgreSQL directly",
    )
}

fn unproved() -> Error {
    Error::unavailable("PostgreSQL gave no second connection, by which a pooler in transaction mode would be noticed")
}

/// What it means when the pool gives no connection.
pub(super) fn no_connection(error: PoolError<Error>) -> Error {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(TimeoutType::Create) => {
            Error::unavailable("PostgreSQL took too long to give a connection and another to prove it by")
        }
        other => Error::unavailable(other.to_string()),
    }
}
