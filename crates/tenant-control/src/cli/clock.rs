//! `admin clock`: tenants' clocks that ran ahead of the time, and setting one back.
//!
//! A repair takes out of the future what a clock that was ahead has put there, and only what does harm there. It goes table by
//! table, some rows at a time, and sets the clock back at the very end: if it is interrupted, the clock still stands where it
//! stood, `list` and `doctor` still say so, and the next repair goes on. Nothing is moved to later than it was.
//!
//! What becomes of each time of the schema; a test asks for those that are missing here:
//!
//! | table | times | become |
//! |---|---|---|
//! | `sessions` | created_at last_seen_at expires_at | the session ends if it was seen in the future |
//! | `signin_links` | expires_at | the link ends if it is good for longer than one made now |
//! | `api_key_uses` | last_used_at | now at most: a later use is only noted when it is later |
//! | `api_keys` | created_at updated_at revoked_at | now at most |
//! | `api_keys` | expires_at | of a key made in the future as long from now; of any that was changed there a year from now at most |
//! | `api_key_secrets` | valid_until | beyond the longest overlap: as long from now as from the key's last change |
//! | `idempotency_records` | expires_at | a day from now at most |
//! | `events` | at | now at most, in their order: what is kept and what is recovered goes by it |
//! | `tickets` | created_at updated_at first_responded_at resolved_at closed_at | now at most |
//! | `tickets` | sla_paused_at sla_pauses sla_counted_until | now at most |
//! | `tickets` | first_response_due_at first_response_risk_at resolution_due_at resolution_risk_at | counted anew from those |
//! | `tickets` | due_at | stays: it is what somebody has asked for |
//! | `webhooks` | created_at updated_at deleted_at | now at most |
//! | `webhook_secrets` | valid_until | as that of keys |
//! | `webhook_states` | last_success_at last_failure_at failing_since | now at most |
//! | `webhook_states` | paused_until | none, if beyond the longest wait of a retry |
//! | `deliveries` | next_attempt_at | now, if beyond the longest wait of a retry |
//! | `workflows` | created_at updated_at deleted_at | now at most |
//! | `workflows` | next_run_at | the next moment of its schedule from now |
//! | `workflow_runs` | deadline_at | as far from now as a run may last at most |
//! | `workflow_runs` | ended_at | now at most: what is kept goes by it |
//! | `steps` | next_at | now, if beyond the time of a run |
//! | `devices` | created_at updated_at first_seen_at deleted_at | now at most |
//! | `device_reports` | last_seen_at inventory_at check_at | now at most; whether it is silent is looked at anew |
//! | `organizations` `users` | created_at updated_at | now at most: who follows changes goes by it |
//! | `lanes` | due_at not_before | now, if beyond the longest wait of a retry |
//! | `lanes` | leased_until | the length of a lease from now at most |
//! | `change_readers` | seen_at | stays: it is noted anew every few seconds |
//! | `tenant_clocks` | last_at | now, last of all |
//! | `audit_entries` | at | stays: a trail is not rewritten |
//! | `ticket_comments` | created_at | stays: only shown, in the order of their numbers |
//! | `ticket_changes` | at | stays, likewise |
//! | `deliveries` | succeeded_at created_at | stays: only shown; their order is that of their ids |
//! | `delivery_attempts` | at | stays: only shown |
//! | `webhook_recoveries` | since until started_at finished_at | stays: only shown; it works by numbers |
//! | `workflow_runs` | created_at updated_at started_at | stays: only shown; their order is that of their ids |
//! | `workflow_revisions` | saved_at | stays: only shown, and a revision is kept for longer |
//! | `steps` | ready_at started_at ended_at deadline_at | stays: only shown; a run ends by its own time |
//! | `devices` | last_boot_at patch_last_installed_at | stays: what was reported |
//! | `device_changes` | at | stays: only shown, in the order of their versions |
//! | `device_identities` | added_at | stays: only compared with each other |
//! | `tenants` | created_at updated_at | stays: only shown |
//! | `users` | last_signed_in_at | stays: only shown |
//! | `user_identities` | created_at | stays: nobody reads it |
//! | `sso_flows` | expires_at used_at | stays: what finishes one is in a browser that forgets it in ten minutes |
//! | `sso_used_states` | expires_at | stays: the sign-on itself is in a browser that forgets it in ten minutes |
//! | `sso_providers` | created_at updated_at | stays: only shown |
//! | `sso_domains` | created_at verified_at | stays: only shown; that it is verified, no clock decides |
//! | `sla_targets` | updated_at | stays: only shown |
//! | `ingest_keys` | created_at revoked_at | stays: only shown; whether it is revoked, no clock decides |
//! | `rate_usage` | window_start | stays: of no tenant, and nobody counts a minute that is not now |
//! | `schema_migrations` | applied_at | stays: of no tenant |
//! | `service_notes` | noted_at | stays: of no tenant |
//!
//! A wait or an end that is wrong by less than the longest there can be cannot be told from a right one, and stays.

use clap::Subcommand;
use kernel::auth::{TenantClock, bring_credentials_back, find_stuck_clock, list_clocks, operate, set_clock_back};
use kernel::base::{Error, Result, Timestamp};
use kernel::events;
use kernel::http::shorten_stored_answers;
use kernel::store::{Db, Purpose};
use serde::Serialize;

use super::admin::{Common, Of, tenant};
use super::store;
use crate::features::{api_keys, devices, organizations, tickets, users, webhooks, workflows};

#[derive(Subcommand)]
pub enum ClockCommand {
    /// List where the clock of each tenant stands
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Set a clock back that ran ahead, with what was counted from it; run again, it goes on after an interruption
    Repair {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        common: Common,
    },
}

pub async fn run(command: ClockCommand) -> Result<()> {
    match command {
        ClockCommand::List { common } => {
            let store = store::open(&common.store).await?;
            let all = list_clocks(&store.system(Purpose::Cli)).await?;
            common.output.print(&all, |all| all.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        ClockCommand::Repair { of, common } => {
            let store = store::open(&common.store).await?;
            let tenant = tenant(&store, &of).await?;
            let repaired = repair(&operate(&store, &tenant)).await.map_err(|error| interrupted(&error))?;
            common.output.print(&Report { tenant: &tenant.slug, repaired }, said)
        }
    }
}

/// What a repair has come to, as programs read it.
#[derive(Serialize)]
struct Report<'a> {
    tenant: &'a str,
    #[serde(flatten)]
    repaired: Repaired,
}

/// What was brought back by a repair, and from when to when the clock was set.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// None if the clock was not so far ahead that it needs repair.
    pub from: Option<Timestamp>,
    pub to: Timestamp,
    pub api_keys: u64,
    pub tickets: u64,
    pub devices: u64,
    pub deliveries: u64,
    pub workflow_steps: u64,
}

/// Repairs the clock of a tenant, if it is so far ahead that nothing can be written. Credentials come first, because somebody
/// may use them for longer than was meant, and the clock last.
pub async fn repair(db: &Db) -> Result<Repaired> {
    let Some((stood, now)) = find_stuck_clock(db).await? else {
        return Ok(Repaired {
            from: None,
            to: db.database_now().await?,
            api_keys: 0,
            tickets: 0,
            devices: 0,
            deliveries: 0,
            workflow_steps: 0,
        });
    };
    bring_credentials_back(db, now).await?;
    let api_keys = api_keys::store::bring_back(db, now).await?;
    shorten_stored_answers(db, now).await?;
    events::bring_back(db, now).await?;
    let tickets = tickets::store::bring_back(db, now).await?;
    let devices = devices::bring_back(db, now).await?;
    organizations::bring_back(db, now).await?;
    users::bring_back(db, now).await?;
    let deliveries = webhooks::repair::store::bring_back(db, now).await?;
    let run_max_ms = workflows::Settings::default().run_max_ms;
    let workflow_steps = workflows::repair::store::bring_back(db, now, run_max_ms).await?;
    let to = set_clock_back(db).await?;
    Ok(Repaired { from: Some(stood), to, api_keys, tickets, devices, deliveries, workflow_steps })
}

/// What was done before it failed stays done.
fn interrupted(error: &Error) -> Error {
    let reason = error.cause().unwrap_or_else(|| error.detail().to_owned());
    Error::unavailable(format!("{reason}; the clock is not set back yet: run the same command again, and it goes on"))
}

fn said(report: &Report<'_>) -> String {
    let Report { tenant, repaired: Repaired { from, to, api_keys, tickets, devices, deliveries, workflow_steps } } =
        report;
    match from {
        None => format!("The clock of {tenant} is not so far ahead that it needs repair."),
        Some(from) => format!(
            "The clock of {tenant} stood at {from} and was set to {to}, with {tickets} tickets, {devices} devices, \
             {api_keys} keys, {deliveries} deliveries and {workflow_steps} steps of workflows.\n\
             Sessions that began in the future have ended."
        ),
    }
}

/// A clock in one line.
fn line(clock: &TenantClock) -> String {
    let ahead = match clock.ahead_ms {
        0 => String::new(),
        ahead_ms if clock.is_stuck() => format!("  AHEAD by {} s: nothing can be written", ahead_ms / 1_000),
        ahead_ms => format!("  ahead by {ahead_ms} ms"),
    };
    format!("{}  {}{ahead}", clock.last_at, clock.tenant)
}
