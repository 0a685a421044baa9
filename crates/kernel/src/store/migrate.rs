//! Migrates a database to the schema of this binary.
//!
//! Migrations are plain SQL, the same names for both engines, applied in order under a lock and in one transaction.
//! A text is never edited after it was applied anywhere: its checksum is kept and compared. Migrations that this
//! binary does not know are fine, because a newer node may run beside it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::{Error, Result, World, sha256};

use super::postgres::batch;
use super::postgres_fault::fault as postgres_fault;
use super::postgres_pool::{Object, Pool, no_connection};
use super::sqlite::{self, Patience, fault as sqlite_fault};
use super::{Engine, FromRow, Row, dialect};

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

const NOTE: &str = "INSERT INTO schema_migrations (name, checksum, applied_at) VALUES ($1, $2, $3)";
const APPLIED: &str = "SELECT name, checksum FROM schema_migrations";

impl Migration {
    fn text(&self, engine: Engine) -> &'static str {
        match engine {
            Engine::Sqlite => self.sqlite,
            Engine::Postgres => self.postgres,
        }
    }

    fn checksum(&self, engine: Engine) -> String {
        sha256(self.text(engine).as_bytes()).iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The migrations that are not applied yet; fails if the text of an applied one has changed.
fn pending(
    engine: Engine,
    migrations: Migrations,
    applied: &HashMap<String, String>,
) -> Result<Vec<&'static Migration>> {
    let mut pending = Vec::new();
    for migration in migrations {
        match applied.get(migration.name) {
            None => pending.push(migration),
            Some(checksum) if *checksum == migration.checksum(engine) => {}
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

fn names(migrations: &[&Migration]) -> Vec<String> {
    migrations.iter().map(|migration| migration.name.to_owned()).collect()
}

/// Migrates on a separate connection: rebuilding a table needs foreign keys switched off, which the writer never does.
pub(super) async fn migrate_sqlite(
    path: PathBuf,
    tell_wait: Option<fn(&Path)>,
    world: World,
    migrations: Migrations,
) -> Result<Vec<String>> {
    let work = move || {
        let connection = sqlite::open(&path, LOCK_WAIT_MAX)?;
        // Without pending migrations the lock is not needed.
        if lacking(&connection, migrations)?.is_empty() {
            return Ok(Vec::new());
        }
        connection.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA synchronous = FULL;").map_err(sqlite_fault)?;
        let patience = Patience { path, wait_max: LOCK_WAIT_MAX, tell: tell_wait };
        patience.begin(&connection, dialect::SQLITE_MIGRATION_BEGIN).map_err(|error| patience.fault(error))?;
        connection.execute_batch(dialect::migrations_table(Engine::Sqlite)).map_err(sqlite_fault)?;
        let pending = pending(Engine::Sqlite, migrations, &applied_sqlite(&connection)?)?;
        for migration in &pending {
            connection
                .execute_batch(migration.sqlite)
                .map_err(|error| Error::internal(format!("the migration {} failed: {error}", migration.name)))?;
            let note = (migration.name, migration.checksum(Engine::Sqlite), world.now());
            connection.execute(NOTE, note).map_err(sqlite_fault)?;
        }
        // The check reads every row with a foreign key, so it runs only after a migration.
        if !pending.is_empty() {
            let broken: i64 = connection
                .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
                .map_err(sqlite_fault)?;
            if broken > 0 {
                return Err(Error::internal(format!("the migrations would break {broken} foreign keys")));
            }
        }
        // An error above drops the connection, and with it the transaction.
        connection.execute_batch("COMMIT").map_err(sqlite_fault)?;
        Ok(names(&pending))
    };
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}

pub(super) async fn pending_sqlite(path: PathBuf, migrations: Migrations) -> Result<Vec<String>> {
    let work = move || {
        let connection = sqlite::open_reader(&path, LOCK_WAIT_MAX)?.connection;
        Ok(names(&lacking(&connection, migrations)?))
    };
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}

/// The pending migrations, also of a database that has no table of migrations yet.
fn lacking(connection: &rusqlite::Connection, migrations: Migrations) -> Result<Vec<&'static Migration>> {
    let exists = dialect::migrations_table_exists(Engine::Sqlite);
    let exists: i64 = connection.query_row(exists, [], |row| row.get(0)).map_err(sqlite_fault)?;
    let applied = if exists == 0 { HashMap::new() } else { applied_sqlite(connection)? };
    pending(Engine::Sqlite, migrations, &applied)
}

fn applied_sqlite(connection: &rusqlite::Connection) -> Result<HashMap<String, String>> {
    let mut statement = connection.prepare(APPLIED).map_err(sqlite_fault)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sqlite_fault)?;
    rows.collect::<rusqlite::Result<_>>().map_err(sqlite_fault)
}

/// Migrates on a connection that is dropped afterwards in any case, because its settings differ from the pool's.
pub(super) async fn migrate_postgres(pool: &Pool, world: &World, migrations: Migrations) -> Result<Vec<String>> {
    let client = Object::take(pool.get().await.map_err(no_connection)?);
    batch(&client, dialect::POSTGRES_BEGIN).await?;
    batch(&client, dialect::POSTGRES_MIGRATION_LOCK).await?;
    batch(&client, dialect::migrations_table(Engine::Postgres)).await?;
    let pending = pending(Engine::Postgres, migrations, &applied_postgres(&client).await?)?;
    for migration in &pending {
        batch(&client, migration.postgres)
            .await
            .map_err(|error| Error::internal(format!("the migration {} failed: {error}", migration.name)))?;
        let checksum = migration.checksum(Engine::Postgres);
        client.execute(NOTE, &[&migration.name, &checksum, &world.now()]).await.map_err(postgres_fault)?;
    }
    batch(&client, dialect::POSTGRES_COMMIT).await?;
    Ok(names(&pending))
}

pub(super) async fn pending_postgres(pool: &Pool, migrations: Migrations) -> Result<Vec<String>> {
    let client = pool.get().await.map_err(no_connection)?;
    let exists = dialect::migrations_table_exists(Engine::Postgres);
    let exists = client.query_one(exists, &[]).await.map_err(postgres_fault)?;
    let applied =
        if i64::from_row(&Row::postgres(&exists))? == 0 { HashMap::new() } else { applied_postgres(&client).await? };
    Ok(names(&pending(Engine::Postgres, migrations, &applied)?))
}

async fn applied_postgres(client: &tokio_postgres::Client) -> Result<HashMap<String, String>> {
    let rows = client.query(APPLIED, &[]).await.map_err(postgres_fault)?;
    rows.iter().map(|row| <(String, String)>::from_row(&Row::postgres(row))).collect()
}
