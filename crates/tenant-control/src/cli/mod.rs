//! The command line: `serve`, `admin …`, `migrate`, `backup`, `restore`, `doctor`.

mod admin;
mod analytics;
mod args;
mod backup;
pub mod clock;
mod device;
mod doctor;
mod ingest_key;
mod jobs;
mod keyring;
mod log;
mod metrics;
mod organization;
mod output;
mod serve;
mod session;
mod sso;
mod store;
mod user;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use kernel::base::Error;

use crate::config::{self, ServeArgs, StoreArgs};
use output::{EXIT_USAGE, Output, print_error};

#[derive(Parser)]
#[command(name = "tenant-control", version, about, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Serve the API; the default when no command is given
    Serve(Box<ServeArgs>),
    /// Tenants, users and sessions, directly on the store, beside a running server
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    /// Bring the database to this version's schema
    Migrate(MigrateArgs),
    /// Copy the embedded store to a file, consistently, while the server runs
    Backup(backup::BackupArgs),
    /// Put a backup in place of the embedded store
    Restore(backup::RestoreArgs),
    /// Check that everything the server needs is in order
    Doctor(doctor::DoctorArgs),
}

#[derive(clap::Args)]
struct MigrateArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs a command line and returns its exit code: 0, 1 for a failure, 2 for wrong usage. It takes no generic argument,
/// because generic code is compiled in the calling crate, and with it everything that this function awaits.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = match config::with_file(with_default_command(arguments), &Cli::command()) {
        Ok(arguments) => arguments,
        Err(problem) => {
            print_error(&problem);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // clap prints help to stdout and errors to stderr, with the right exit code for each.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE));
        }
    };
    if let CliCommand::Serve(args) = &cli.command
        && let Err(problem) = args.check_settings()
    {
        print_error(&problem);
        return ExitCode::from(EXIT_USAGE);
    }
    let runtime = match build_runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_error(&format!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(run_command(cli.command));
    log::flush_log();
    // A blocking task that is still running must not keep the process alive.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(error) => {
            print_error(&explain_error(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run_command(command: CliCommand) -> Result<ExitCode, Error> {
    match command {
        CliCommand::Serve(args) => serve::run(*args).await?,
        CliCommand::Admin(command) => admin::run(command).await?,
        CliCommand::Migrate(args) => store::run_migrate(&args.store, &args.output).await?,
        CliCommand::Backup(args) => return backup::run_backup(&args).await,
        CliCommand::Restore(args) => return backup::run_restore(&args).await,
        CliCommand::Doctor(args) => return doctor::run(&args).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Inserts `serve` if no command is given.
fn with_default_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let first = arguments.get(1).and_then(|argument| argument.to_str());
    let is_own = |text: &str| ["-h", "--help", "-V", "--version"].contains(&text) || !text.starts_with('-');
    if !first.is_some_and(is_own) {
        let at = arguments.len().min(1);
        arguments.insert(at, "serve".into());
    }
    arguments
}

/// The error text for a person at a terminal: the fields if there are any, else the cause, else the detail.
fn explain_error(error: &Error) -> String {
    let mut text = error.cause_chain().unwrap_or_else(|| error.detail().to_owned());
    if !error.fields().is_empty() {
        let fields = error
            .fields()
            .iter()
            .map(|field| format!("--{}: {}", field.pointer.trim_start_matches('/').replace('_', "-"), field.detail));
        text = fields.collect::<Vec<_>>().join("\n");
    }
    text
}

/// Tasks that a runtime thread polls before it checks for I/O events. The default is 61; but rendering a large page takes
/// milliseconds, and 61 of them would delay every other request by most of a second.
const EVENT_INTERVAL: u32 = 8;

fn build_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().event_interval(EVENT_INTERVAL).build()
}
