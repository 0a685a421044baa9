//! Opens the store for a command or for the server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kernel::base::{Env, Error, OperatorName, Result, Secrets, create_private_dir};
use kernel::store::Store;
use serde_json::json;

use super::output::{Output, print_warning};
use crate::config::{self, StoreArgs};
use crate::features;
use crate::migrations::MIGRATIONS;

/// Opens an existing store for a command and migrates it. While it waits for another process, it says so on stderr.
pub async fn open_store(args: &StoreArgs) -> Result<Store> {
    migrate_store(open_existing(args).await?).await
}

/// Opens an existing store for a command without migrating it. A mistyped or forgotten place is refused: a store made there
/// would look like an empty one.
pub async fn open_existing(args: &StoreArgs) -> Result<Store> {
    // Opening an empty file would write to it.
    let has_bytes = |file: &Path| file.metadata().is_ok_and(|metadata| metadata.len() > 0);
    if args.database_url.is_none() && !has_bytes(&args.database_file()) {
        return Err(missing_store(args));
    }
    let store = connect(args).await?;
    if store.has_schema().await? {
        return Ok(store);
    }
    store.close().await;
    Err(missing_store(args))
}

/// The error of a command on a store that is not there.
pub fn missing_store(args: &StoreArgs) -> Error {
    Error::internal(format!(
        "there is no store in {}. Say where it is, as to the server: --data-dir, --database-url or --config (or \
         TENANT_CONTROL_DATA_DIR, TENANT_CONTROL_DATABASE_URL). `{}` makes a new one",
        args.describe_store(),
        args.command_line("serve")
    ))
}

/// Opens the store for the server and migrates it. The server writes only to its log.
pub async fn open_to_serve(args: &StoreArgs) -> Result<Store> {
    make_private_dir(&args.data_dir)?;
    migrate_store(Store::open(args.store_options(), Env::default()).await?).await
}

async fn migrate_store(store: Store) -> Result<Store> {
    for name in store.migrate(MIGRATIONS).await? {
        tracing::info!(name, "migration applied");
    }
    Ok(store)
}

/// Connects to the store for a command. A file that is missing is created, without a schema.
async fn connect(args: &StoreArgs) -> Result<Store> {
    let env = Env { operator: operator_name(), ..Env::default() };
    Store::open(args.store_options().on_lock_wait(print_wait), env).await
}

/// The server's secrets, for a command that hashes or seals: with others, nobody could check or open it.
pub async fn load_secrets(args: &StoreArgs, store: &Store) -> Result<Secrets> {
    kernel::startup::load_secrets(store, &args.secrets_source(), &features::install().sealed_columns).await
}

/// The operator's name for the audit trail: the user behind sudo, else the user of the operating system, by number if it has
/// no name. An operator could write anything to the store, so this distinguishes colleagues and proves nothing.
fn operator_name() -> OperatorName {
    let number = || OperatorName::parse(&format!("uid {}", fs::metadata("/proc/self").ok()?.uid()));
    let user = || whoami::username().ok().and_then(|name| OperatorName::parse(&name));
    let sudo = config::sudo_user().and_then(|name| OperatorName::parse(&name));
    sudo.or_else(user).or_else(number).unwrap_or_default()
}

fn print_wait(file: &Path) {
    print_warning(&format!("waiting for another process that writes to {}…", file.display()));
}

pub async fn run_migrate(args: &StoreArgs, output: &Output) -> Result<()> {
    make_private_dir(&args.data_dir)?;
    let store = connect(args).await?;
    let applied = store.migrate(MIGRATIONS).await?;
    store.close().await;
    output.print_value(&json!({ "applied": applied }), |_| match applied.len() {
        0 => "The schema is up to date.".to_owned(),
        n => format!("{n} applied: {}", applied.join(", ")),
    })
}

/// Creates the data directory with access for its owner only: it holds the data of all tenants, and the secrets.
fn make_private_dir(path: &Path) -> Result<()> {
    create_private_dir(path)
        .map_err(|error| Error::internal(format!("cannot make the data directory {}: {error}", path.display())))
}

/// Held while a server or a restore uses the embedded store; the operating system releases it when the process ends.
pub struct DataLock(#[expect(dead_code, reason = "the lock lives as long as the file is open")] fs::File);

impl DataLock {
    /// The file that is locked.
    pub fn path(args: &StoreArgs) -> PathBuf {
        args.data_dir.join("lock")
    }

    pub fn acquire(args: &StoreArgs) -> Result<Self> {
        make_private_dir(&args.data_dir)?;
        let path = DataLock::path(args);
        let failed = |error: &dyn std::fmt::Display| Error::internal(format!("{}: {error}", path.display()));
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| failed(&error))?;
        match file.try_lock() {
            Ok(()) => Ok(DataLock(file)),
            Err(fs::TryLockError::WouldBlock) => {
                let detail = format!(
                    "another server is running on the data directory {}; stop it first, or give --data-dir another place",
                    args.data_dir.display()
                );
                Err(Error::internal(detail))
            }
            Err(fs::TryLockError::Error(error)) => Err(failed(&error)),
        }
    }
}
