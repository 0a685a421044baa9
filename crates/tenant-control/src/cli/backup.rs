//! `backup` and `restore` of the embedded store. For PostgreSQL, these commands print the `pg_dump` or `pg_restore` to run.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kernel::auth::find_tenant;
use kernel::base::{Env, Error, Result};
use kernel::startup::{delete_server_notes, find_base_url};
use kernel::store::{Purpose, Store, StoreOptions, changes};
use serde_json::json;

use super::output::{EXIT_USAGE, Output, print_error, print_line, print_warning};
use super::store::{DataLock, open_existing};
use crate::config::StoreArgs;
use crate::migrations::MIGRATIONS;
use crate::shell::quote_word;

#[derive(Args)]
pub struct BackupArgs {
    /// The file to write; it must not exist yet
    #[arg(value_name = "FILE", required_unless_present = "to")]
    file: Option<PathBuf>,
    /// The same, by name
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    to: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct RestoreArgs {
    /// The backup to put in place
    #[arg(value_name = "FILE", required_unless_present = "from")]
    file: Option<PathBuf>,
    /// The same, by name
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    from: Option<PathBuf>,
    /// Replace a store that exists; it is kept beside the new one
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: Output,
}

pub async fn run_backup(args: &BackupArgs) -> Result<ExitCode> {
    let to = chosen_file(args.file.as_ref(), args.to.as_ref())?;
    if args.store.database_url.is_some() {
        return Ok(use_tools(&dump_command(&args.store, to), &args.store));
    }
    let store = open_existing(&args.store).await?;
    if to.exists() {
        return Err(Error::internal(format!("{} exists already; a backup never replaces a file", to.display())));
    }
    store.backup_to(to).await?;
    store.close().await;
    let bytes = fs::metadata(to).map_err(Error::internal)?.len();
    let secrets = args.store.secrets_path();
    let done = json!({ "path": to, "size_bytes": bytes, "secrets_included": false });
    args.output.print_value(&done, |_| {
        format!("{} written, {bytes} bytes.\nThe secrets are not in it: keep {} apart, or no key will work after a restore.", to.display(), secrets.display())
    })?;
    Ok(ExitCode::SUCCESS)
}

pub async fn run_restore(args: &RestoreArgs) -> Result<ExitCode> {
    let from = chosen_file(args.file.as_ref(), args.from.as_ref())?;
    if args.store.database_url.is_some() {
        let from = quote_word(&from.to_string_lossy());
        let command = format!("pg_restore --clean --if-exists --dbname={} {from}", args.store.database_word());
        return Ok(use_tools(&command, &args.store));
    }
    let (target, folder) = (args.store.database_file(), &args.store.data_dir);
    let _lock = acquire_lock(&args.store)?;
    if target.exists() && !args.force {
        return Err(Error::internal(format!(
            "{} exists; give --force to replace it (it is kept beside the new one)",
            target.display()
        )));
    }
    let incoming = target.with_extension("db.incoming");
    stage_backup(from, &incoming).await?;
    // Whoever restores, often root, must not lock the server's user out.
    if !target.exists() {
        adopt_owner(folder, &incoming);
    } else if let Err(error) = copy_owner(&target, &incoming) {
        remove_with_log(&incoming);
        let detail =
            format!("cannot give it the owner of {}: {error}; restore as root or as that user", target.display());
        return Err(Error::internal(detail));
    }
    let previous = set_aside(&target)?;
    rename_file(&incoming, &target)?;
    sync_dir(folder)?;
    let done = json!({ "path": target, "previous": previous, "secrets_included": false });
    args.output.print_value(&done, |_| {
        let previous =
            previous.as_ref().map(|path| format!("\nThe store before is {}.", path.display())).unwrap_or_default();
        format!(
            "{} restored.{previous}\nIf its original still runs, or you only want to look: `{}` sends nothing.\n\
             The secrets were not in the backup: {} must be those of its time.",
            target.display(),
            args.store.command_line("serve --hold-outgoing"),
            args.store.secrets_path().display()
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn chosen_file<'a>(path: Option<&'a PathBuf>, name: Option<&'a PathBuf>) -> Result<&'a PathBuf> {
    path.or(name).ok_or_else(|| Error::internal("name the file"))
}

/// Locks the data directory. A lock file that did not exist gets the owner of the directory.
fn acquire_lock(args: &StoreArgs) -> Result<DataLock> {
    let is_new = !DataLock::path(args).exists();
    let lock = DataLock::acquire(args)?;
    if is_new {
        adopt_owner(&args.data_dir, &DataLock::path(args));
    }
    Ok(lock)
}

/// Gives a file the owner, the group and the permissions of the one that it replaces.
fn copy_owner(replaced: &Path, file: &Path) -> std::io::Result<()> {
    let (model, own) = (fs::metadata(replaced)?, fs::metadata(file)?);
    if (model.uid(), model.gid()) != (own.uid(), own.gid()) {
        chown(file, Some(model.uid()), Some(model.gid()))?;
    }
    fs::set_permissions(file, model.permissions())
}

/// Gives a new file the owner and the group of its directory, if this user can.
fn adopt_owner(folder: &Path, file: &Path) {
    if let Ok(model) = fs::metadata(folder) {
        let _ = chown(file, Some(model.uid()), Some(model.gid()));
    }
}

/// Copies the backup beside the store and checks that it is complete before anything is replaced.
async fn stage_backup(from: &Path, incoming: &Path) -> Result<()> {
    remove_with_log(incoming);
    copy_with_log(from, incoming).map_err(|error| Error::internal(format!("{}: {error}", from.display())))?;
    let Err(problem) = prove_whole(incoming).await else { return Ok(()) };
    remove_with_log(incoming);
    Err(Error::internal(format!("{} is not a whole backup: {problem}", from.display())))
}

/// Checks the integrity of the copy, and removes from it what its server has noted and the positions of its change readers.
async fn prove_whole(incoming: &Path) -> Result<(), String> {
    let text = |error: Error| error.cause_chain().unwrap_or_else(|| error.to_string());
    if is_cut_off(incoming).map_err(|error| error.to_string())? {
        return Err("it ends in the middle of a page".to_owned());
    }
    let store = Store::open(StoreOptions::sqlite(incoming.to_owned()), Env::default()).await.map_err(text)?;
    let checked = store.self_check().await;
    let pending = store.pending_migrations(MIGRATIONS).await;
    // An empty file is a valid database too, but not one of this service.
    let all = store.system(Purpose::Cli);
    let ours = find_tenant(&all, "").await;
    // A backup of an early release has no table for notes of its server.
    let cleared = match find_base_url(&store).await {
        Ok(Some(_)) => delete_server_notes(&store).await,
        Ok(None) | Err(_) => Ok(()),
    };
    // Such a backup has no table of change readers either.
    let cleared = match (cleared, changes::has_readers(&all).await) {
        (Ok(()), Ok(true)) => changes::delete_all_readers(&all).await,
        (cleared, _) => cleared,
    };
    store.close().await;
    let checks = checked.map_err(text)?;
    if let Some(check) = checks.into_iter().find(|check| check.problem.is_some()) {
        return Err(format!("{}: {}", check.name, check.problem.unwrap_or_default()));
    }
    pending.map_err(text)?;
    cleared.map_err(text)?;
    ours.map(drop).map_err(|_| "it holds no store of this service".to_owned())
}

/// SQLite reads the missing part of the last page as zeros, without an error.
fn is_cut_off(path: &Path) -> std::io::Result<bool> {
    let mut header = [0; 18];
    let mut file = fs::File::open(path)?;
    if file.read_exact(&mut header).is_err() {
        // The file is too short for a header: opening it reports the error.
        return Ok(false);
    }
    // The value 1 means 65,536, which does not fit into 16 bits.
    let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
        0 => return Ok(false),
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    Ok(file.metadata()?.len() % page_bytes != 0)
}

/// A store that was set aside may have its newest writes in a write-ahead log beside it.
fn copy_with_log(from: &Path, to: &Path) -> std::io::Result<()> {
    copy_private(from, to)?;
    let log = with_suffix(from, "-wal");
    if log.exists() { copy_private(&log, &with_suffix(to, "-wal")) } else { Ok(()) }
}

/// The copy is readable by its owner only, whatever the permissions of the backup are.
fn copy_private(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut source = fs::File::open(from)?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut copy = options.open(to)?;
    std::io::copy(&mut source, &mut copy)?;
    copy.sync_all()
}

/// Renames the present store and its write-ahead log.
fn set_aside(target: &Path) -> Result<Option<PathBuf>> {
    if !target.exists() {
        remove_with_log(target);
        return Ok(None);
    }
    let stamp = Env::default().now().as_millis();
    let previous = target.with_extension(format!("db.before-restore-{stamp}"));
    for suffix in ["-wal", "-shm"] {
        let (from, to) = (with_suffix(target, suffix), with_suffix(&previous, suffix));
        if from.exists() {
            rename_file(&from, &to)?;
        }
    }
    rename_file(target, &previous)?;
    Ok(Some(previous))
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

fn rename_file(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Error::internal(format!("{} to {}: {error}", from.display(), to.display())))
}

fn sync_dir(path: &Path) -> Result<()> {
    fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(Error::internal)
}

/// The service's own role sees all tenants only with this option; without it, `pg_dump` refuses.
fn dump_command(args: &StoreArgs, to: &Path) -> String {
    let (show_all, to) = ("PGOPTIONS='-c tc.tenant=*'", quote_word(&to.to_string_lossy()));
    format!("{show_all} pg_dump --enable-row-security --format=custom --file={to} {}", args.database_word())
}

/// Prints the command to stdout, so that it can be piped, and the reason to stderr.
fn use_tools(command: &str, args: &StoreArgs) -> ExitCode {
    print_error("this store is on PostgreSQL: back it up with pg_dump and restore it with pg_restore");
    print_warning("hint: the secrets file is not in the database; keep a copy of it apart");
    if args.hides_database_url() {
        print_warning(
            "hint: set TENANT_CONTROL_DATABASE_URL to the URL first; it has a password, which is not printed",
        );
    }
    print_line(command);
    ExitCode::from(EXIT_USAGE)
}
