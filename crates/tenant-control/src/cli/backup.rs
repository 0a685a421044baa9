//! `backup` and `restore` of the embedded store. PostgreSQL has tools of its own, which these commands name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kernel::base::{Error, Result, World};
use kernel::store::{Options, Store};
use serde_json::json;

use super::EXIT_USAGE;
use super::output::{Output, fail, warn};
use super::store::{DataLock, open_as_it_is};
use crate::config::StoreArgs;

#[derive(Args)]
pub struct BackupArgs {
    /// The file to write; it must not exist yet
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct RestoreArgs {
    /// The backup to put in place
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Replace a store that exists; it is kept beside the new one
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: Output,
}

pub async fn backup(args: &BackupArgs) -> Result<ExitCode> {
    if args.store.database_url.is_some() {
        return Ok(use_tools(&format!("pg_dump --format=custom --file={} \"$TENANT_CONTROL_DATABASE_URL\"", args.to.display())));
    }
    if !args.store.database_file().exists() {
        return Err(Error::internal(format!("there is no embedded store in {}", args.store.data_dir.display())));
    }
    if args.to.exists() {
        return Err(Error::internal(format!("{} exists already; a backup never replaces a file", args.to.display())));
    }
    let store = open_as_it_is(&args.store).await?;
    store.backup_to(&args.to).await?;
    store.close().await;
    let bytes = fs::metadata(&args.to).map_err(Error::internal)?.len();
    let secrets = args.store.secrets_path();
    let done = json!({ "path": args.to, "size_bytes": bytes, "secrets_included": false });
    args.output.print(&done, |_| {
        format!("{} written, {bytes} bytes.\nThe secrets are not in it: keep {} apart, or no key will work after a restore.", args.to.display(), secrets.display())
    })?;
    Ok(ExitCode::SUCCESS)
}

pub async fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    if args.store.database_url.is_some() {
        return Ok(use_tools(&format!("pg_restore --clean --if-exists --dbname=\"$TENANT_CONTROL_DATABASE_URL\" {}", args.from.display())));
    }
    let _lock = DataLock::take(&args.store)?;
    let target = args.store.database_file();
    if target.exists() && !args.force {
        return Err(Error::internal(format!("{} exists; give --force to replace it (it is kept beside the new one)", target.display())));
    }
    let incoming = target.with_extension("db.incoming");
    check(&args.from, &incoming).await?;
    let kept = set_aside(&target)?;
    rename(&incoming, &target)?;
    sync_dir(&args.store.data_dir)?;
    let done = json!({ "path": target, "previous": kept, "secrets_included": false });
    args.output.print(&done, |_| {
        let kept = kept.as_ref().map(|path| format!("\nThe store before is {}.", path.display())).unwrap_or_default();
        format!("{} restored.{kept}\nThe secrets were not in the backup: {} must be those of its time.", target.display(), args.store.secrets_path().display())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Copies the backup beside the store and proves that it is whole before anything is replaced.
async fn check(from: &Path, incoming: &Path) -> Result<()> {
    let copied = fs::copy(from, incoming).and_then(|_| fs::File::open(incoming)?.sync_all());
    copied.map_err(|error| Error::internal(format!("{}: {error}", from.display())))?;
    let store = Store::open(Options::sqlite(incoming.to_owned()), World::default()).await?;
    let checked = store.self_check().await;
    let pending = store.pending_migrations().await;
    store.close().await;
    let failure = match (checked, pending) {
        (Err(error), _) | (_, Err(error)) => error.to_string(),
        (Ok(checks), Ok(_)) => match checks.into_iter().find(|check| check.problem.is_some()) {
            None => return Ok(()),
            Some(check) => format!("{}: {}", check.name, check.problem.unwrap_or_default()),
        },
    };
    remove_with_log(incoming);
    Err(Error::internal(format!("{} is not a whole backup: {failure}", from.display())))
}

/// Moves the present store out of the way, with its write-ahead log.
fn set_aside(target: &Path) -> Result<Option<PathBuf>> {
    if !target.exists() {
        remove_with_log(target);
        return Ok(None);
    }
    let stamp = World::default().now().as_millis();
    let kept = target.with_extension(format!("db.before-restore-{stamp}"));
    for suffix in ["-wal", "-shm"] {
        let (from, to) = (with_suffix(target, suffix), with_suffix(&kept, suffix));
        if from.exists() {
            rename(&from, &to)?;
        }
    }
    rename(target, &kept)?;
    Ok(Some(kept))
}

fn remove_with_log(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(with_suffix(path, suffix));
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(suffix);
    text.into()
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Error::internal(format!("{} to {}: {error}", from.display(), to.display())))
}

fn sync_dir(path: &Path) -> Result<()> {
    fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(Error::internal)
}

fn use_tools(command: &str) -> ExitCode {
    fail("this store is on PostgreSQL, which has its own tools");
    warn(&format!("hint: {command}"));
    warn("hint: the secrets file is not in the database; keep a copy of it apart");
    ExitCode::from(EXIT_USAGE)
}
