//! `doctor`: finds what would stop the server or surprise its operator.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use kernel::auth::list_clocks;
use kernel::base::{Error, Result, SecretsSource};
use kernel::outbound::Outbound;
use kernel::store::{Purpose, SelfCheckItem, Store};
use people::sso::list_vouched_elsewhere;
use search::health::check_index_health;
use serde_json::json;

use super::keyring::{KeyringReport, read_report};
use super::output::Output;
use super::store::open_existing;
use crate::config::{OutboundArgs, StoreArgs};
use crate::features;
use crate::migrations::MIGRATIONS;

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
    let mut checks = vec![check_data_dir(&args.store), check_secrets_file(&args.store), check_outbound(&args.outbound)];
    match open_existing(&args.store).await {
        Ok(store) => {
            checks.extend(check_database(&args.store, &store).await);
            store.close().await;
        }
        Err(error) => checks.push(failed_check("database", &error)),
    }
    let healthy = checks.iter().all(|check| check.problem.is_none());
    let list: Vec<_> = checks.iter().map(|check| json!({ "name": check.name, "ok": check.problem.is_none(), "detail": check.problem.as_ref().unwrap_or(&check.detail) })).collect();
    args.output.print_value(&json!({ "ok": healthy, "checks": list }), |_| {
        let line = |check: &SelfCheckItem| match &check.problem {
            None => format!("ok    {}: {}", check.name, check.detail),
            Some(problem) => format!("FAIL  {}: {problem}", check.name),
        };
        checks.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn failed_check(name: &'static str, error: &Error) -> SelfCheckItem {
    SelfCheckItem::from_problem(name, error.cause_chain().unwrap_or_else(|| error.to_string()))
}

async fn check_database(args: &StoreArgs, store: &Store) -> Vec<SelfCheckItem> {
    let mut checks = match store.self_check().await {
        Ok(checks) => checks,
        Err(error) => return vec![failed_check("database", &error)],
    };
    match store.pending_migrations(MIGRATIONS).await {
        Ok(pending) if pending.is_empty() => {
            checks.push(SelfCheckItem::from_detail("schema", "up to date"));
            checks.push(check_tenant_clocks(args, store).await);
            checks.push(check_search_index(args, store).await);
            checks.push(check_sign_on(args, store).await);
            checks.push(check_hold(args, store).await);
            checks.extend(check_secrets(args, store).await);
        }
        Ok(pending) => checks.push(SelfCheckItem::from_problem(
            "schema",
            format!("not up to date: {}; `{}` applies them", pending.join(", "), args.command_line("migrate")),
        )),
        Err(error) => checks.push(SelfCheckItem::from_problem("schema", error.to_string())),
    }
    checks
}

/// A tenant's clock that is far ahead of the wall clock blocks all writes of the tenant.
async fn check_tenant_clocks(args: &StoreArgs, store: &Store) -> SelfCheckItem {
    const NAME: &str = "tenants' clocks";
    let clocks = match list_clocks(&store.system(Purpose::Cli)).await {
        Ok(clocks) => clocks,
        Err(error) => return SelfCheckItem::from_problem(NAME, error.to_string()),
    };
    let stuck = clocks.iter().filter(|clock| clock.is_stuck());
    let stuck: Vec<String> = stuck.map(|clock| format!("{} stands at {}", clock.tenant, clock.last_at)).collect();
    if stuck.is_empty() {
        return SelfCheckItem::from_detail(NAME, "none is ahead of the time");
    }
    let problem = format!(
        "{}; a machine's time was wrong: set it right, then `{}`",
        stuck.join(", "),
        args.command_line("admin clock repair --tenant SLUG")
    );
    SelfCheckItem::from_problem(NAME, problem)
}

/// Checks that the secrets are those of the database, with every key that is in use, and shows how far a rotation of the
/// sealing keys has come.
async fn check_secrets(args: &StoreArgs, store: &Store) -> Vec<SelfCheckItem> {
    let columns = &features::install().sealed_columns;
    let secrets = match kernel::startup::check_secrets(store, &args.secrets_source(), columns).await {
        Ok(secrets) => secrets,
        Err(error) => return vec![failed_check("secrets", &error)],
    };
    let mut checks = vec![SelfCheckItem::from_detail("secrets", "those of the database")];
    if let Some(secrets) = secrets {
        match read_report(&store.system(Purpose::Cli), &secrets).await {
            Ok(report) => {
                checks.push(SelfCheckItem::from_detail("sealing keys", report.describe_rotation()));
                checks.push(check_sealed_values(&report));
            }
            Err(error) => checks.push(failed_check("sealing keys", &error)),
        }
    }
    checks
}

/// Reports values that nobody can use any more.
fn check_sealed_values(report: &KeyringReport) -> SelfCheckItem {
    const NAME: &str = "sealed values";
    if report.unopened.is_empty() {
        return SelfCheckItem::from_detail(NAME, "all open");
    }
    let problem = format!(
        "{}; restore these rows from a backup, or have their tenants enter the secrets again",
        report.describe_unopened().join("; ")
    );
    SelfCheckItem::from_problem(NAME, problem)
}

/// Lists users who sign in at another identity provider than their address leads to. It never fails: that may be intended.
async fn check_sign_on(args: &StoreArgs, store: &Store) -> SelfCheckItem {
    const NAME: &str = "single sign-on";
    const SHOWN_MAX: usize = 5;
    let found = match list_vouched_elsewhere(&store.system(Purpose::Cli), SHOWN_MAX as i64 + 1).await {
        Ok(found) => found,
        Err(error) => return SelfCheckItem::from_problem(NAME, error.to_string()),
    };
    if found.is_empty() {
        return SelfCheckItem::from_detail(NAME, "everybody signs in where their address leads to");
    }
    let shown: Vec<String> = found.iter().take(SHOWN_MAX).map(|(slug, email)| format!("{email} ({slug})")).collect();
    let more = if found.len() > SHOWN_MAX { " and others" } else { "" };
    let detail = format!(
        "{}{more} sign in at another provider than that of their domain; if you did not intend that, unlink them (`{}`), \
         and check the audit trail for what they did",
        shown.join(", "),
        args.command_line("admin user unlink --tenant SLUG --email EMAIL")
    );
    SelfCheckItem::from_detail(NAME, detail)
}

/// Shows whether the server holds outgoing traffic. It never fails: that is what its operator wanted.
async fn check_hold(args: &StoreArgs, store: &Store) -> SelfCheckItem {
    const NAME: &str = "outgoing traffic";
    match kernel::startup::find_outgoing_hold(store).await {
        Ok(None) => SelfCheckItem::from_detail(NAME, "not held"),
        Ok(Some(since)) => {
            let serve = args.command_line("serve");
            let detail = format!(
                "held since {since}, because the server was started with --hold-outgoing: webhooks and requests of workflows \
                 wait; `{serve}` sends them"
            );
            SelfCheckItem::from_detail(NAME, detail)
        }
        Err(error) => failed_check(NAME, &error),
    }
}

/// Checks the search index in this data directory.
async fn check_search_index(args: &StoreArgs, store: &Store) -> SelfCheckItem {
    const NAME: &str = "search index";
    match check_index_health(&args.search_folder(), &store.system(Purpose::Cli)).await {
        Ok(Ok(detail)) => SelfCheckItem::from_detail(NAME, detail),
        Ok(Err(problem)) => SelfCheckItem::from_problem(NAME, problem),
        Err(error) => failed_check(NAME, &error),
    }
}

fn check_data_dir(args: &StoreArgs) -> SelfCheckItem {
    check_private_path("data directory", &args.data_dir, "700")
}

fn check_secrets_file(args: &StoreArgs) -> SelfCheckItem {
    match args.secrets_source() {
        SecretsSource::Text(_) => SelfCheckItem::from_detail("secrets file", "given from outside"),
        SecretsSource::File(path) if !path.exists() => {
            SelfCheckItem::from_detail("secrets file", format!("{} is not there", path.display()))
        }
        SecretsSource::File(path) => check_private_path("secrets file", &path, "600"),
    }
}

/// Shows which networks webhooks may reach: an allowed network is open to the endpoints of every tenant.
fn check_outbound(args: &OutboundArgs) -> SelfCheckItem {
    match Outbound::new(args.outbound_settings()) {
        Err(error) => failed_check("webhook targets", &error),
        Ok(outbound) if outbound.allowed_networks().is_empty() => {
            SelfCheckItem::from_detail("webhook targets", "public addresses only")
        }
        Ok(outbound) => {
            let networks: Vec<String> = outbound.allowed_networks().iter().map(ToString::to_string).collect();
            let detail = format!("public addresses, and for every tenant also {}", networks.join(", "));
            SelfCheckItem::from_detail("webhook targets", detail)
        }
    }
}

/// Checks that only the owner can read the path.
fn check_private_path(name: &'static str, path: &Path, mode: &str) -> SelfCheckItem {
    let shown_path = path.display();
    if !path.exists() {
        SelfCheckItem::from_detail(name, format!("{shown_path} is not made yet; `serve` makes it"))
    } else if open_to_others(path) {
        SelfCheckItem::from_problem(name, format!("{shown_path} can be read by others; chmod {mode} it"))
    } else {
        SelfCheckItem::from_detail(name, shown_path.to_string())
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
