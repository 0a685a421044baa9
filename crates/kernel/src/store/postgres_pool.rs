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

use super::{Options, PostgresOptions, dialect, postgres_url};

pub(super) type Pool = managed::Pool<Manager>;
pub(super) type Object = managed::Object<Manager>;

/// How long connecting may take, including the proof and the settings.
const CREATE_MAX: Duration = Duration::from_secs(8);

/// The same for the first connection, before any request is served: a server that is restarted beside an overloaded database
/// waits instead of exiting. A database that is not running refuses at once.
const FIRST_MAX: Duration = Duration::from_secs(30);

/// How long to wait for the kept witness. It is part of the time above, so that time for a new witness remains if the kept
/// one does not answer.
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

/// Creates connections, each proved against the witness.
pub(super) struct Manager {
    driver: deadpool_postgres::Manager,
    /// Shared, so that connections created at once are proved at once.
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
    // A round trip for every checkout would halve the throughput. A connection that the server has closed is detected
    // without one, and a server that does not answer by the TCP timeouts of postgres_url.
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
        // Only after the proof: with a pooler the settings would stay on a backend that others use.
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
    /// Proves that a new connection has a backend of its own, and returns the backend. Without proof the connection is not
    /// used, and the next checkout tries again.
    async fn prove(&self, new: &Client) -> Result<i32> {
        let kept = self.witness.lock().await.clone();
        let mut found = None;
        if let Some(witness) = &kept {
            found = tokio::time::timeout(KEPT_WAIT_MAX, compare(new, witness)).await.ok().and_then(Result::ok);
        }
        // The kept witness may have been closed meanwhile; one that fails is replaced.
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

    /// Replaces the failed witness; the first of several callers connects for all.
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

    /// Closes the witness; the pool closes only its own connections.
    pub async fn close(&self) {
        drop(self.witness.lock().await.take());
    }
}

/// Whether a new connection has a backend of its own.
enum Backend {
    Own(i32),
    Shared,
}

/// A backend is shared if two connections have the same one, or if a connection's backend changes. A pooler that reuses the
/// last backend gives the first two queries the same one, a round-robin pooler gives the next two different ones, and the
/// rest are for a pooler that is busy with other clients.
async fn compare(new: &Client, witness: &Client) -> Result<Backend> {
    let (mine, theirs) = (backend(new).await?, backend(witness).await?);
    let again = [backend(new).await?, backend(new).await?, backend(witness).await?, backend(new).await?];
    let own = mine != theirs && again == [mine, mine, theirs, mine];
    Ok(if own { Backend::Own(mine) } else { Backend::Shared })
}

/// Uses a simple query, which needs no prepared statement.
async fn backend(client: &Client) -> Result<i32> {
    let answer = client.simple_query(dialect::POSTGRES_BACKEND).await.map_err(Error::unavailable)?;
    let told = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    told.and_then(|text| text.parse().ok()).ok_or_else(|| Error::internal("the backend did not tell its number"))
}

/// Says what to change: `serve` and `doctor` print it at the start, and later failures log it.
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

/// Maps the pool's failure to give a connection.
pub(super) fn no_connection(error: PoolError<Error>) -> Error {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(TimeoutType::Create) => {
            Error::unavailable("PostgreSQL took too long to give a connection and another to prove it by")
        }
        other => Error::unavailable(other.to_string()),
    }
}
