//! Migrates a database to the schema of this binary.
//!
//! Migrations are plain SQL, the same names for both engines, applied in order under a lock and in one transaction.
//! A text is never edited after it was applied anywhere: its checksum is kept and compared. Migrations that this
//! binary does not know are fine, because a newer node may run beside it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::{Env, Error, Result, run_blocking, sha256};

use super::postgres::execute_batch;
use super::postgres_fault::map_postgres_error;
use super::postgres_pool::{Pool, PooledClient, map_pool_error};
use super::sqlite::{self, LockWait, map_sqlite_error};
use super::{DatabaseEngine, FromRow, Row, dialect};

/// How long to wait for another node that is migrating; `dialect.rs` sets the same for PostgreSQL.
const LOCK_WAIT_MAX: Duration = Duration::from_mins(2);

/// One step of the schema. The product lists them all, in the order in which they are applied.
#[derive(Debug)]
pub struct Migration {
    pub name: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// All migrations of a binary.
pub type Migrations = &'static [Migration];

const INSERT_MIGRATION: &str = "INSERT INTO schema_migrations (name, checksum, applied_at) VALUES ($1, $2, $3)";
const LIST_APPLIED: &str = "SELECT name, checksum FROM schema_migrations";

impl Migration {
    fn sql_for(&self, engine: DatabaseEngine) -> &'static str {
        match engine {
            DatabaseEngine::Sqlite => self.sqlite,
            DatabaseEngine::Postgres => self.postgres,
        }
    }

    fn checksum_for(&self, engine: DatabaseEngine) -> String {
        sha256(self.sql_for(engine).as_bytes()).iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The migrations that are not applied yet; fails if the text of an applied one has changed.
fn select_pending(
    engine: DatabaseEngine,
    migrations: Migrations,
    applied: &HashMap<String, String>,
) -> Result<Vec<&'static Migration>> {
    let mut pending = Vec::new();
    for migration in migrations {
        match applied.get(migration.name) {
            None => pending.push(migration),
            Some(checksum) if *checksum == migration.checksum_for(engine) => {}
            Some(_) => {
                return Err(Error::internal(format!(
                    "the migration {} was edited after this database had applied it; restore its text, and put the \
                     change into a new migration",
                    migration.name
                )));
            }
        }
    }
    Ok(pending)
}

fn migration_names(migrations: &[&Migration]) -> Vec<String> {
    migrations.iter().map(|migration| migration.name.to_owned()).collect()
}

/// Migrates on a separate connection: rebuilding a table needs foreign keys switched off, which the writer never does.
pub(super) async fn migrate_sqlite(
    path: PathBuf,
    on_wait: Option<fn(&Path)>,
    env: Env,
    migrations: Migrations,
) -> Result<Vec<String>> {
    let work = move || {
        let connection = sqlite::open_connection(&path, LOCK_WAIT_MAX)?;
        // Without pending migrations the lock is not needed.
        if load_pending_sqlite(&connection, migrations)?.is_empty() {
            return Ok(Vec::new());
        }
        connection.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA synchronous = FULL;").map_err(map_sqlite_error)?;
        let lock_wait = LockWait { path, wait_max: LOCK_WAIT_MAX, on_wait };
        lock_wait
            .begin_transaction(&connection, dialect::SQLITE_MIGRATION_BEGIN)
            .map_err(|error| lock_wait.map_error(error))?;
        connection.execute_batch(dialect::migrations_table(DatabaseEngine::Sqlite)).map_err(map_sqlite_error)?;
        let pending = select_pending(DatabaseEngine::Sqlite, migrations, &load_applied_sqlite(&connection)?)?;
        for migration in &pending {
            connection
                .execute_batch(migration.sqlite)
                .map_err(|error| Error::internal(format!("the migration {} failed: {error}", migration.name)))?;
            let values = (migration.name, migration.checksum_for(DatabaseEngine::Sqlite), env.now());
            connection.execute(INSERT_MIGRATION, values).map_err(map_sqlite_error)?;
        }
        // The check reads every row with a foreign key, so it runs only after a migration.
        if !pending.is_empty() {
            let broken: i64 = connection
                .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
                .map_err(map_sqlite_error)?;
            if broken > 0 {
                return Err(Error::internal(format!("the migrations would break {broken} foreign keys")));
            }
        }
        // An error above drops the connection, and with it the transaction.
        connection.execute_batch("COMMIT").map_err(map_sqlite_error)?;
        Ok(migration_names(&pending))
    };
    run_blocking(work).await
}

pub(super) async fn list_pending_sqlite(path: PathBuf, migrations: Migrations) -> Result<Vec<String>> {
    let work = move || {
        let connection = sqlite::open_reader(&path, LOCK_WAIT_MAX)?.connection;
        Ok(migration_names(&load_pending_sqlite(&connection, migrations)?))
    };
    run_blocking(work).await
}

/// Whether a migration was ever applied to the database.
pub(super) async fn has_schema_sqlite(path: PathBuf) -> Result<bool> {
    run_blocking(move || has_migrations_table(&sqlite::open_reader(&path, LOCK_WAIT_MAX)?.connection)).await
}

fn has_migrations_table(connection: &rusqlite::Connection) -> Result<bool> {
    let exists = dialect::migrations_table_exists(DatabaseEngine::Sqlite);
    let count: i64 = connection.query_row(exists, [], |row| row.get(0)).map_err(map_sqlite_error)?;
    Ok(count > 0)
}

/// The pending migrations, also of a database that has no table of migrations yet.
fn load_pending_sqlite(connection: &rusqlite::Connection, migrations: Migrations) -> Result<Vec<&'static Migration>> {
    let applied = if has_migrations_table(connection)? { load_applied_sqlite(connection)? } else { HashMap::new() };
    select_pending(DatabaseEngine::Sqlite, migrations, &applied)
}

fn load_applied_sqlite(connection: &rusqlite::Connection) -> Result<HashMap<String, String>> {
    let mut statement = connection.prepare(LIST_APPLIED).map_err(map_sqlite_error)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(map_sqlite_error)?;
    rows.collect::<rusqlite::Result<_>>().map_err(map_sqlite_error)
}

/// Migrates on a connection that is dropped afterwards in any case, because its settings differ from the pool's.
pub(super) async fn migrate_postgres(pool: &Pool, env: &Env, migrations: Migrations) -> Result<Vec<String>> {
    let client = PooledClient::take(pool.get().await.map_err(map_pool_error)?);
    execute_batch(&client, dialect::POSTGRES_BEGIN).await?;
    execute_batch(&client, dialect::POSTGRES_MIGRATION_LOCK).await?;
    execute_batch(&client, dialect::migrations_table(DatabaseEngine::Postgres)).await?;
    let pending = select_pending(DatabaseEngine::Postgres, migrations, &load_applied_postgres(&client).await?)?;
    for migration in &pending {
        execute_batch(&client, migration.postgres)
            .await
            .map_err(|error| Error::internal(format!("the migration {} failed: {error}", migration.name)))?;
        let checksum = migration.checksum_for(DatabaseEngine::Postgres);
        client
            .execute(INSERT_MIGRATION, &[&migration.name, &checksum, &env.now()])
            .await
            .map_err(map_postgres_error)?;
    }
    execute_batch(&client, dialect::POSTGRES_COMMIT).await?;
    Ok(migration_names(&pending))
}

pub(super) async fn list_pending_postgres(pool: &Pool, migrations: Migrations) -> Result<Vec<String>> {
    let mut applied = HashMap::new();
    if has_schema_postgres(pool).await? {
        let client = pool.get().await.map_err(map_pool_error)?;
        applied = load_applied_postgres(&client).await?;
    }
    Ok(migration_names(&select_pending(DatabaseEngine::Postgres, migrations, &applied)?))
}

/// Whether a migration was ever applied to the database.
pub(super) async fn has_schema_postgres(pool: &Pool) -> Result<bool> {
    let client = pool.get().await.map_err(map_pool_error)?;
    let exists = dialect::migrations_table_exists(DatabaseEngine::Postgres);
    let count = client.query_one(exists, &[]).await.map_err(map_postgres_error)?;
    Ok(i64::from_row(&Row::from_postgres(&count))? > 0)
}

async fn load_applied_postgres(client: &tokio_postgres::Client) -> Result<HashMap<String, String>> {
    let rows = client.query(LIST_APPLIED, &[]).await.map_err(map_postgres_error)?;
    rows.iter().map(|row| <(String, String)>::from_row(&Row::from_postgres(row))).collect()
}
