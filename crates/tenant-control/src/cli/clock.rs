//! `admin clock`: lists tenants' clocks, and repairs one that ran ahead of the wall clock.
//!
//! A repair clamps the future timestamps that a clock that was ahead has left, but only those that do harm. It works table
//! by table, some rows at a time, and sets the clock back last: after an interruption the clock is unchanged, `list` and
//! `doctor` still report it, and the next repair continues. No timestamp is moved to a later time.
//!
//! What a repair does with each timestamp of the schema; a test fails if one is missing here:
//!
//! | table | times | become |
//! |---|---|---|
//! | `sessions` | created_at last_seen_at expires_at | the session ends if it was seen in the future |
//! | `signin_links` | expires_at | the link ends if it is good for longer than one made now |
//! | `api_key_uses` | last_used_at | now at most: a use is only saved if it is later than the stored one |
//! | `api_keys` | created_at updated_at revoked_at | now at most |
//! | `api_keys` | expires_at | of a key created in the future: its lifetime from now; of one changed there: a year at most |
//! | `api_key_secrets` | valid_until | if beyond the longest overlap: as long from now as from the key's last change |
//! | `idempotency_records` | expires_at | a day from now at most |
//! | `events` | at | now at most, in order: retention and recoveries use it |
//! | `tickets` | created_at updated_at first_responded_at resolved_at closed_at | now at most |
//! | `tickets` | sla_paused_at sla_pauses sla_counted_until | now at most |
//! | `tickets` | first_response_due_at first_response_risk_at resolution_due_at resolution_risk_at | recomputed from those |
//! | `tickets` | due_at | stays: a user has set it |
//! | `webhooks` | created_at updated_at deleted_at | now at most |
//! | `webhook_secrets` | valid_until | like `api_key_secrets` |
//! | `webhook_states` | last_success_at last_failure_at failing_since | now at most |
//! | `webhook_states` | paused_until | none, if beyond the longest wait of a retry |
//! | `deliveries` | next_attempt_at | now, if beyond the longest wait of a retry |
//! | `workflows` | created_at updated_at deleted_at | now at most |
//! | `workflows` | next_run_at | the next time of its schedule from now |
//! | `workflow_runs` | deadline_at | the longest duration of a run from now at most |
//! | `workflow_runs` | ended_at | now at most: retention uses it |
//! | `steps` | next_at | now, if beyond the longest duration of a run |
//! | `devices` | created_at updated_at first_seen_at deleted_at | now at most |
//! | `device_reports` | last_seen_at inventory_at check_at | now at most; whether the device is offline is checked again |
//! | `organizations` `users` `vms` | created_at updated_at | now at most: readers of changes use it |
//! | `lanes` | due_at not_before | now, if beyond the longest wait of a retry |
//! | `lanes` | leased_until | the length of a lease from now at most |
//! | `change_readers` | seen_at | stays: it is written again every few seconds |
//! | `tenant_clocks` | last_at | now, last of all |
//! | `facts_queue` `facts` | at born_at expires_at | stays: what is counted at a future time is in how things stand now |
//! | `cohorts` | changed_at | stays, as the facts that it sums |
//! | `fact_backfills` | at | stays: it is gone when the server starts |
//! | `audit_entries` | at | stays: a trail is not rewritten |
//! | `ticket_comments` | created_at | stays: only shown; comments are ordered by number |
//! | `ticket_changes` | at | stays, likewise |
//! | `deliveries` | succeeded_at created_at | stays: only shown; deliveries are ordered by id |
//! | `delivery_attempts` | at | stays: only shown |
//! | `webhook_recoveries` | since until started_at finished_at | stays: only shown; a recovery works by sequence |
//! | `workflow_runs` | created_at updated_at started_at | stays: only shown; runs are ordered by id |
//! | `workflow_revisions` | saved_at | stays: only shown, and a revision is kept for longer |
//! | `steps` | ready_at started_at ended_at deadline_at | stays: only shown; the run's own deadline ends it |
//! | `devices` | last_boot_at patch_last_installed_at | stays: reported by the agent |
//! | `device_changes` | at | stays: only shown; changes are ordered by version |
//! | `device_identities` | added_at | stays: only compared with each other |
//! | `tenants` | created_at updated_at | stays: only shown |
//! | `users` | last_signed_in_at | stays: only shown |
//! | `user_identities` | created_at | stays: never read |
//! | `sso_flows` | expires_at used_at | stays: a flow needs a browser cookie, which expires in ten minutes |
//! | `sso_used_states` | expires_at | stays: a flow needs a browser cookie, which expires in ten minutes |
//! | `sso_providers` | created_at updated_at | stays: only shown |
//! | `sso_domains` | created_at verified_at | stays: only shown; verification does not depend on the time |
//! | `sla_targets` | updated_at | stays: only shown |
//! | `ingest_keys` | created_at revoked_at | stays: only shown; revocation does not depend on the time |
//! | `vms` | first_seen_at missing_since terminated_at deleted_at | stays: only shown, or when it leaves a list |
//! | `vms` | last_seen_at | stays: shown, and in the future nothing is concluded from it |
//! | `vm_operations` | next_at | now, if beyond the longest wait |
//! | `cloud_providers` | verify_at | likewise |
//! | `cloud_regions` | sync_at | likewise |
//! | `vm_operations` | accepted_at first_sent_at submitted_at created_at ended_at | stays: only shown, or how long an order may take |
//! | `cloud_providers` | created_at updated_at deleted_at last_verified_at | stays: only shown |
//! | `cloud_regions` | last_sync_at | stays: only shown |
//! | `backup_devices` | known_since last_success_at verified_at next_at | now at most, and judged again |
//! | `backup_postures` | next_at | now at most, and judged again |
//! | `backup_runs` | started_at ended_at | now at most: they are counted by day |
//! | `backup_runs` | received_at | stays: it is kept for longer |
//! | `backup_configs` | created_at updated_at | stays: only shown |
//! | `rate_usage` | window_start | stays: belongs to no tenant, and only the current minute is counted |
//! | `schema_migrations` | applied_at | stays: belongs to no tenant |
//! | `service_notes` | noted_at | stays: belongs to no tenant |
//! | `keyring_nodes` | primary_since seen_at started_at | stays: belongs to no tenant, and is written again every few seconds |
//! | `secret_checks` | retired_at | stays: belongs to no tenant, and only whether it is set matters |
//!
//! A wait or an expiry that is wrong but within the longest valid one cannot be recognized as wrong, and stays.

use clap::Subcommand;
use kernel::auth::{TenantClock, clamp_future_credentials, find_stuck_clock, list_clocks, reset_clock};
use kernel::base::{DAY_MS, Error, Result, Timestamp};
use kernel::events;
use kernel::http::shorten_stored_answers;
use kernel::store::{Db, Purpose};
use serde::Serialize;

use super::args::{CommonArgs, TenantArgs, open_tenant};
use super::store;
use crate::features::workflows::WorkflowSettings;
use crate::features::{api_keys, devices, organizations, tickets, users, webhooks, workflows};

#[derive(Subcommand)]
pub enum ClockCommand {
    /// List where the clock of each tenant stands
    List {
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Set back a clock that ran ahead, and the times taken from it; if interrupted, run it again
    Repair {
        #[command(flatten)]
        of: TenantArgs,
        /// How long a run of a workflow may last, as the server is told [default: 28]
        #[arg(long, value_name = "DAYS", env = "TENANT_CONTROL_WORKFLOW_RUN_DAYS",
              value_parser = clap::value_parser!(i64).range(1..=3650))]
        workflow_run_days: Option<i64>,
    },
}

pub async fn run(command: ClockCommand) -> Result<()> {
    match command {
        ClockCommand::List { common } => {
            let store = store::open_store(&common.store).await?;
            let all = list_clocks(&store.system(Purpose::Cli)).await?;
            common.output.print_list(&all, format_clock)
        }
        ClockCommand::Repair { of, workflow_run_days } => {
            let (_, tenant, db) = open_tenant(&of).await?;
            let run_max_ms = workflow_run_days.map_or(WorkflowSettings::default().run_max_ms, |days| days * DAY_MS);
            let repaired = repair_clock(&db, run_max_ms).await.map_err(|error| interrupted_error(&error))?;
            of.output().print_value(&ClockRepairReport { tenant: &tenant.slug, repaired }, format_report)
        }
    }
}

/// The JSON output of a repair.
#[derive(Serialize)]
struct ClockRepairReport<'a> {
    tenant: &'a str,
    #[serde(flatten)]
    repaired: ClockRepair,
}

/// How many records a repair changed, and from when to when the clock was set.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct ClockRepair {
    /// `None` if the clock was not so far ahead that it needed a repair.
    pub from: Option<Timestamp>,
    pub to: Timestamp,
    pub api_keys: u64,
    pub tickets: u64,
    pub devices: u64,
    pub deliveries: u64,
    pub workflow_steps: u64,
}

/// Repairs the clock of a tenant, if it is so far ahead that nothing can be written. Credentials come first, because they
/// could be used for longer than intended, and the clock last. `run_max_ms` is how long a run of a workflow may last.
pub async fn repair_clock(db: &Db, run_max_ms: i64) -> Result<ClockRepair> {
    let Some((last_at, now)) = find_stuck_clock(db).await? else {
        return Ok(ClockRepair {
            from: None,
            to: db.database_now().await?,
            api_keys: 0,
            tickets: 0,
            devices: 0,
            deliveries: 0,
            workflow_steps: 0,
        });
    };
    clamp_future_credentials(db, now).await?;
    let api_keys = api_keys::store::clamp_future_timestamps(db, now).await?;
    shorten_stored_answers(db, now).await?;
    events::clamp_future_timestamps(db, now).await?;
    let tickets = tickets::store::clamp_future_timestamps(db, now).await?;
    let devices = devices::clamp_future_timestamps(db, now).await?;
    organizations::clamp_future_timestamps(db, now).await?;
    users::clamp_future_timestamps(db, now).await?;
    cloud_fleet::repair::store::clamp_future_timestamps(db, now).await?;
    backups::repair::store::clamp_future_timestamps(db, now).await?;
    let deliveries = webhooks::repair::store::clamp_future_timestamps(db, now).await?;
    let workflow_steps = workflows::repair::store::clamp_future_timestamps(db, now, run_max_ms).await?;
    let to = reset_clock(db).await?;
    Ok(ClockRepair { from: Some(last_at), to, api_keys, tickets, devices, deliveries, workflow_steps })
}

/// The error of an interrupted repair; the steps already done stay done.
fn interrupted_error(error: &Error) -> Error {
    let reason = error.cause_chain().unwrap_or_else(|| error.detail().to_owned());
    Error::unavailable(format!("{reason}; the clock is not set back yet: run the same command again, and it goes on"))
}

fn format_report(report: &ClockRepairReport<'_>) -> String {
    let ClockRepairReport {
        tenant,
        repaired: ClockRepair { from, to, api_keys, tickets, devices, deliveries, workflow_steps },
    } = report;
    match from {
        None => format!("The clock of {tenant} is not so far ahead that it needs repair."),
        Some(from) => format!(
            "The clock of {tenant} stood at {from} and was set to {to}, with {tickets} tickets, {devices} devices, \
             {api_keys} keys, {deliveries} deliveries and {workflow_steps} steps of workflows.\n\
             Sessions that began in the future have ended."
        ),
    }
}

fn format_clock(clock: &TenantClock) -> String {
    let ahead = match clock.ahead_ms {
        0 => String::new(),
        ahead_ms if clock.is_stuck() => format!("  AHEAD by {} s: nothing can be written", ahead_ms / 1_000),
        ahead_ms => format!("  ahead by {ahead_ms} ms"),
    };
    format!("{}  {}{ahead}", clock.last_at, clock.tenant)
}
