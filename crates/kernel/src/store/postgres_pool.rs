//! Connects to PostgreSQL, and proves that each connection has a backend of its own.
//!
//! The store keeps prepared statements and the tenant's name on a connection. A pooler in transaction mode gives every
//! transaction another backend: statements would be missing, or be another node's of the same name, and row-level security
//! would not find the tenant's name. So every connection is compared with a second one before it is used: without such a
//! pooler two connections never share a backend, and each keeps its own. The statement that sets the tenant compares the
//! backend at every checkout, too.
//!
//! The second connection, the witness, does nothing else and is kept, because a server with room for one more connection
//! need not have room for two. A pooled connection cannot be the witness: inside a transaction it keeps its backend at such
//! a pooler, too, and proves nothing. A connection without proof is closed, and the caller gets "unavailable".

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{self, PoolError, TimeoutType, Timeouts};
use deadpool_postgres::{ClientWrapper, ManagerConfig, Metrics, RecyclingMethod, Runtime};
use tokio::sync::Mutex;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::base::{Error, Result};

use super::{PostgresOptions, StoreOptions, dialect, postgres_url};

pub(super) type Pool = managed::Pool<PoolManager>;
pub(super) type PooledClient = managed::Object<PoolManager>;

/// How long connecting may take, including the proof and the settings.
const CREATE_MAX: Duration = Duration::from_secs(8);

/// The same for the first connection, before any request is served: a server that is restarted beside an overloaded database
/// waits instead of exiting. A database that is not running refuses at once.
const FIRST_MAX: Duration = Duration::from_secs(30);

/// How long to wait for the kept witness. It is part of the time above, so that time for a new witness remains if the kept
/// one does not answer.
const WITNESS_WAIT_MAX: Duration = Duration::from_millis(2_500);

/// A connection and the backend behind it.
pub(super) struct PooledConnection {
    client: ClientWrapper,
    pub backend: i32,
}

impl Deref for PooledConnection {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.client
    }
}

/// Creates connections, each proved against the witness.
pub(super) struct PoolManager {
    driver: deadpool_postgres::Manager,
    /// Shared, so that connections created at once are proved at once.
    witness: Mutex<Option<Arc<ClientWrapper>>>,
}

/// The first connection of a pool.
pub(super) async fn get_first(pool: &Pool) -> Result<PooledClient> {
    let timeouts = Timeouts { create: Some(FIRST_MAX), ..pool.timeouts() };
    pool.timeout_get(&timeouts).await.map_err(map_pool_error)
}

/// Opens the pool. It has no connection yet.
pub(super) fn build_pool(postgres: &PostgresOptions, options: &StoreOptions) -> Result<Pool> {
    let (config, tls) = postgres_url::parse(&postgres.url)?;
    // A round trip for every checkout would halve the throughput. A connection that the server has closed is detected
    // without one, and a server that does not answer by the TCP timeouts of postgres_url.
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let driver = deadpool_postgres::Manager::from_config(config, tls, recycling);
    Pool::builder(PoolManager { driver, witness: Mutex::new(None) })
        .max_size(postgres.pool_max.max(1))
        .wait_timeout(Some(options.wait_max))
        .create_timeout(Some(CREATE_MAX))
        .recycle_timeout(Some(options.wait_max))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(Error::internal)
}

impl managed::Manager for PoolManager {
    type Type = PooledConnection;
    type Error = Error;

    async fn create(&self) -> Result<PooledConnection> {
        let client = managed::Manager::create(&self.driver).await.map_err(Error::unavailable)?;
        let backend = self.prove_backend(&client).await?;
        // Only after the proof: with a pooler the settings would stay on a backend that others use.
        client.batch_execute(dialect::POSTGRES_SETTINGS).await.map_err(Error::unavailable)?;
        Ok(PooledConnection { client, backend })
    }

    async fn recycle(&self, connection: &mut PooledConnection, metrics: &Metrics) -> managed::RecycleResult<Error> {
        let recycled = managed::Manager::recycle(&self.driver, &mut connection.client, metrics).await;
        recycled.map_err(|error| managed::RecycleError::message(error.to_string()))
    }

    fn detach(&self, connection: &mut PooledConnection) {
        managed::Manager::detach(&self.driver, &mut connection.client);
    }
}

impl PoolManager {
    /// Proves that a new connection has a backend of its own, and returns the backend. Without proof the connection is not
    /// used, and the next checkout tries again.
    async fn prove_backend(&self, new: &Client) -> Result<i32> {
        let current = self.witness.lock().await.clone();
        let mut ownership = None;
        if let Some(witness) = &current {
            ownership =
                tokio::time::timeout(WITNESS_WAIT_MAX, compare_backends(new, witness)).await.ok().and_then(Result::ok);
        }
        // The kept witness may have been closed meanwhile; one that fails is replaced.
        if ownership.is_none() {
            let witness = self.replace_witness(current.as_ref()).await?;
            ownership = compare_backends(new, &witness).await.ok();
        }
        match ownership {
            Some(BackendOwnership::Own(number)) => Ok(number),
            Some(BackendOwnership::Shared) => Err(pooler_error()),
            None => Err(unproved_error()),
        }
    }

    /// Replaces the failed witness; the first of several callers connects for all.
    async fn replace_witness(&self, failed: Option<&Arc<ClientWrapper>>) -> Result<Arc<ClientWrapper>> {
        let mut current = self.witness.lock().await;
        if let Some(witness) =
            current.as_ref().filter(|witness| failed.is_none_or(|failed| !Arc::ptr_eq(failed, witness)))
        {
            return Ok(witness.clone());
        }
        *current = None;
        let witness = Arc::new(self.connect_witness().await?);
        *current = Some(witness.clone());
        Ok(witness)
    }

    async fn connect_witness(&self) -> Result<ClientWrapper> {
        let mut witness = managed::Manager::create(&self.driver).await.map_err(|_| unproved_error())?;
        managed::Manager::detach(&self.driver, &mut witness);
        Ok(witness)
    }

    /// Closes the witness; the pool closes only its own connections.
    pub async fn close_witness(&self) {
        drop(self.witness.lock().await.take());
    }
}

/// Whether a new connection has a backend of its own.
enum BackendOwnership {
    Own(i32),
    Shared,
}

/// A backend is shared if two connections have the same one, or if a connection's backend changes. A pooler that reuses the
/// last backend gives the first two queries the same one, a round-robin pooler gives the next two different ones, and the
/// rest are for a pooler that is busy with other clients.
async fn compare_backends(new: &Client, witness: &Client) -> Result<BackendOwnership> {
    let (mine, theirs) = (query_backend(new).await?, query_backend(witness).await?);
    let again = [
        query_backend(new).await?,
        query_backend(new).await?,
        query_backend(witness).await?,
        query_backend(new).await?,
    ];
    let own = mine != theirs && again == [mine, mine, theirs, mine];
    Ok(if own { BackendOwnership::Own(mine) } else { BackendOwnership::Shared })
}

/// Uses a simple query, which needs no prepared statement.
async fn query_backend(client: &Client) -> Result<i32> {
    let answer = client.simple_query(dialect::POSTGRES_BACKEND).await.map_err(Error::unavailable)?;
    let pid = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    pid.and_then(|text| text.parse().ok()).ok_or_else(|| Error::internal("the backend did not return its process id"))
}

/// Says what to change: `serve` and `doctor` print it at the start, and later failures log it.
pub(super) fn pooler_error() -> Error {
    Error::unavailable(
        "between this server and PostgreSQL there is a pooler that shares connections between clients (transaction or \
         statement mode), where prepared statements and the tenant's name do not stay with their connection; use \
         pool_mode = session for this database and user, or connect to PostgreSQL directly",
    )
}

fn unproved_error() -> Error {
    Error::unavailable("PostgreSQL gave no second connection, by which a pooler in transaction mode would be noticed")
}

/// Maps the pool's failure to give a connection.
pub(super) fn map_pool_error(error: PoolError<Error>) -> Error {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(TimeoutType::Create) => {
            Error::unavailable("PostgreSQL took too long to give a connection and another to prove it by")
        }
        other => Error::unavailable(other.to_string()),
    }
}
