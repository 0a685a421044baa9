//! `doctor`: finds what would stop the server or surprise its operator.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use kernel::auth::list_clocks;
use kernel::base::{Result, SecretsSource, World};
use kernel::outbound::Outbound;
use kernel::store::{Check, Purpose, Store};
use serde_json::json;

use super::output::Output;
use crate::config::{OutboundArgs, StoreArgs};
use crate::migrations::MIGRATIONS;
use people::sso::list_vouched_elsewhere;
use search::health::health;

#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    outbound: OutboundArgs,
    #[command(flatten)]
    output: Output,
}

pub async fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let mut checks = vec![data_dir(&args.store), secrets_file(&args.store), outbound(&args.outbound)];
    if args.store.database_url.is_some() || args.store.database_file().exists() {
        match Store::open(args.store.options(), World::default()).await {
            Ok(store) => {
                checks.extend(database(&args.store, &store).await);
                store.close().await;
            }
            Err(error) => checks.push(Check::failed("database", error.cause().unwrap_or_else(|| error.to_string()))),
        }
    } else {
        checks.push(Check::fine("database", "not made yet; `serve` makes it"));
    }
    let healthy = checks.iter().all(|check| check.problem.is_none());
    let list: Vec<_> = checks.iter().map(|check| json!({ "name": check.name, "ok": check.problem.is_none(), "detail": check.problem.as_ref().unwrap_or(&check.detail) })).collect();
    args.output.print(&json!({ "ok": healthy, "checks": list }), |_| {
        let line = |check: &Check| match &check.problem {
            None => format!("ok    {}: {}", check.name, check.detail),
            Some(problem) => format!("FAIL  {}: {problem}", check.name),
        };
        checks.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn database(args: &StoreArgs, store: &Store) -> Vec<Check> {
    let mut checks = match store.self_check().await {
        Ok(checks) => checks,
        Err(error) => return vec![Check::failed("database", error.cause().unwrap_or_else(|| error.to_string()))],
    };
    match store.pending_migrations(MIGRATIONS).await {
        Ok(pending) if pending.is_empty() => {
            checks.push(Check::fine("schema", "up to date"));
            checks.push(tenants_clocks(store).await);
            checks.push(search_index(args, store).await);
            checks.push(vouching(store).await);
            let secrets = kernel::startup::check_secrets(store, &args.secrets()).await;
            checks.push(match secrets {
                Ok(()) => Check::fine("secrets", "those of the database"),
                Err(error) => Check::failed("secrets", error.cause().unwrap_or_else(|| error.to_string())),
            });
        }
        Ok(pending) => checks.push(Check::failed(
            "schema",
            format!("not up to date: {}; `serve` or `migrate` applies them", pending.join(", ")),
        )),
        Err(error) => checks.push(Check::failed("schema", error.to_string())),
    }
    checks
}

/// A tenant's clock that is far ahead of the wall clock blocks all writes of the tenant.
async fn tenants_clocks(store: &Store) -> Check {
    const NAME: &str = "tenants' clocks";
    let clocks = match list_clocks(&store.system(Purpose::Cli)).await {
        Ok(clocks) => clocks,
        Err(error) => return Check::failed(NAME, error.to_string()),
    };
    let stuck = clocks.iter().filter(|clock| clock.is_stuck());
    let stuck: Vec<String> = stuck.map(|clock| format!("{} stands at {}", clock.tenant, clock.last_at)).collect();
    if stuck.is_empty() {
        return Check::fine(NAME, "none is ahead of the time");
    }
    let problem = format!(
        "{}; a machine's time was wrong: set it right, then `tenant-control admin clock repair --tenant SLUG`",
        stuck.join(", ")
    );
    Check::failed(NAME, problem)
}

/// Lists users who sign in at another identity provider than their address leads to. It never fails: that may be intended.
async fn vouching(store: &Store) -> Check {
    const NAME: &str = "single sign-on";
    const SHOWN_MAX: usize = 5;
    let found = match list_vouched_elsewhere(&store.system(Purpose::Cli), SHOWN_MAX as i64 + 1).await {
        Ok(found) => found,
        Err(error) => return Check::failed(NAME, error.to_string()),
    };
    if found.is_empty() {
        return Check::fine(NAME, "everybody signs in where their address leads to");
    }
    let shown: Vec<String> = found.iter().take(SHOWN_MAX).map(|(slug, email)| format!("{email} ({slug})")).collect();
    let more = if found.len() > SHOWN_MAX { " and others" } else { "" };
    let detail = format!(
        "{}{more} sign in at another provider than their domain leads to; if you did not intend that, `tenant-control admin \
         user unlink` them from it, and look at what they did in the audit trail",
        shown.join(", ")
    );
    Check::fine(NAME, detail)
}

/// Checks the search index in this data directory.
async fn search_index(args: &StoreArgs, store: &Store) -> Check {
    const NAME: &str = "search index";
    match health(&args.search_folder(), &store.system(Purpose::Cli)).await {
        Ok(Ok(detail)) => Check::fine(NAME, detail),
        Ok(Err(problem)) => Check::failed(NAME, problem),
        Err(error) => Check::failed(NAME, error.cause().unwrap_or_else(|| error.to_string())),
    }
}

fn data_dir(args: &StoreArgs) -> Check {
    private("data directory", &args.data_dir, "700")
}

fn secrets_file(args: &StoreArgs) -> Check {
    match args.secrets() {
        SecretsSource::Text(_) => Check::fine("secrets file", "given from outside"),
        SecretsSource::File(path) => private("secrets file", &path, "600"),
    }
}

/// Shows which networks webhooks may reach: an allowed network is open to the endpoints of every tenant.
fn outbound(args: &OutboundArgs) -> Check {
    match Outbound::new(args.settings()) {
        Err(error) => Check::failed("webhook targets", error.cause().unwrap_or_else(|| error.to_string())),
        Ok(outbound) if outbound.allowed().is_empty() => Check::fine("webhook targets", "public addresses only"),
        Ok(outbound) => {
            let networks: Vec<String> = outbound.allowed().iter().map(ToString::to_string).collect();
            let detail = format!("public addresses, and for every tenant also {}", networks.join(", "));
            Check::fine("webhook targets", detail)
        }
    }
}

/// Checks that only the owner can read the path.
fn private(name: &'static str, path: &Path, mode: &str) -> Check {
    let place = path.display();
    if !path.exists() {
        Check::fine(name, format!("{place} is not made yet; `serve` makes it"))
    } else if open_to_others(path) {
        Check::failed(name, format!("{place} can be read by others; chmod {mode} it"))
    } else {
        Check::fine(name, place.to_string())
    }
}

#[cfg(unix)]
fn open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn open_to_others(_: &Path) -> bool {
    false
}
