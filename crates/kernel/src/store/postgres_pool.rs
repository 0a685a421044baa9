//! How connections to PostgreSQL are made, and proved to be what the store relies on.
//!
//! The store keeps prepared statements and the tenant's name on a connection. A pooler in transaction mode gives every
//! transaction another backend: statements would be missing, or another node's of the same name, and row-level security
//! would look for the tenant's name where it is not. So whenever a connection is made, a second one is made beside it:
//! two of them never have the same backend, and each keeps its own, unless there is such a pooler between. The backend
//! is compared at every checkout, too, by the statement that names the tenant.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::managed;
use deadpool_postgres::{ClientWrapper, ManagerConfig, Metrics, RecyclingMethod, Runtime};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::base::{Error, Result};

use super::{Options, PostgresOptions, dialect, postgres_url};

pub(super) type Pool = managed::Pool<Manager>;
pub(super) type Object = managed::Object<Manager>;

/// How long to make a connection may take, with all that is asked of it.
const CREATE_MAX: Duration = Duration::from_secs(5);

/// How long to wait for the second connection, and for what it says. Once one connection has been proved, a server that
/// has no place for another second is no reason to do without the first.
const WITNESS_WAIT_MAX: Duration = Duration::from_secs(1);

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

/// Makes connections, and remembers whether one has been proved.
pub(super) struct Manager(deadpool_postgres::Manager, AtomicBool);

/// Opens the pool. It has no connection yet.
pub(super) fn build(postgres: &PostgresOptions, options: &Options) -> Result<Pool> {
    let (config, tls) = postgres_url::parse(&postgres.url)?;
    // A round trip for every checkout would halve the throughput. A connection that the server has closed is seen
    // without one, and a server that fell silent is noticed by the TCP timeouts of postgres_url.
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager(deadpool_postgres::Manager::from_config(config, tls, recycling), AtomicBool::new(false));
    Pool::builder(manager)
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
        let client = managed::Manager::create(&self.0).await.map_err(Error::unavailable)?;
        let backend = self.prove(&client).await?;
        // Only now: at a pooler they would stay on a backend that others use.
        client.batch_execute(dialect::POSTGRES_SETTINGS).await.map_err(Error::unavailable)?;
        Ok(Connection { client, backend })
    }

    async fn recycle(&self, connection: &mut Connection, metrics: &Metrics) -> managed::RecycleResult<Error> {
        let recycled = managed::Manager::recycle(&self.0, &mut connection.client, metrics).await;
        recycled.map_err(|error| managed::RecycleError::message(error.to_string()))
    }

    fn detach(&self, connection: &mut Connection) {
        managed::Manager::detach(&self.0, &mut connection.client);
    }
}

impl Manager {
    /// The backend of a new connection, which must have one to itself.
    async fn prove(&self, new: &Client) -> Result<i32> {
        match self.shares(new).await {
            Some(true) => return Err(pooled()),
            Some(false) => self.1.store(true, Ordering::Relaxed),
            None if self.1.load(Ordering::Relaxed) => {}
            None => {
                let reason =
                    "PostgreSQL gave no second connection, by which a pooler in transaction mode would be noticed";
                return Err(Error::unavailable(reason));
            }
        }
        backend(new).await
    }

    /// Whether the backend of a new connection is also another's; none when nothing was found out.
    async fn shares(&self, new: &Client) -> Option<bool> {
        let witness = tokio::time::timeout(WITNESS_WAIT_MAX, managed::Manager::create(&self.0)).await;
        let mut witness = witness.ok()?.ok()?;
        managed::Manager::detach(&self.0, &mut witness);
        tokio::time::timeout(WITNESS_WAIT_MAX, share(new, &witness)).await.ok()?.ok()
    }
}

/// Whether two connections have one backend, or one of them changes its own. A pooler that takes the backend that was used
/// last answers the first two alike, one that takes them in turn answers the next two differently, and the rest are for one
/// that is busy with others.
async fn share(new: &Client, witness: &Client) -> Result<bool> {
    let (mine, theirs) = (backend(new).await?, backend(witness).await?);
    let again = [backend(new).await?, backend(new).await?, backend(witness).await?, backend(new).await?];
    Ok(mine == theirs || again != [mine, mine, theirs, mine])
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

/// What it means when the pool gives no connection.
pub(super) fn no_connection(error: managed::PoolError<Error>) -> Error {
    match error {
        managed::PoolError::Backend(error) => error,
        other => Error::unavailable(other.to_string()),
    }
}
