//! `admin clock`: tenants' clocks that ran ahead of the time, and setting one back.

use clap::Subcommand;
use kernel::auth::{TenantClock, list_clocks, operate, repair_clock};
use kernel::base::{Result, Timestamp};
use kernel::store::Purpose;
use serde_json::json;

use super::admin::{Common, Of, tenant};
use super::store;
use crate::features::{api_keys, tickets};

#[derive(Subcommand)]
pub enum ClockCommand {
    /// List where the clock of each tenant stands
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Set a clock back that ran ahead, with the times of tickets and keys that lie in the future
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
            let db = operate(&store, &tenant);
            let repaired = db.write(async move |tx| {
                let (from, now) = repair_clock(tx).await?;
                if from.is_none() {
                    return Ok((None, now, 0, 0));
                }
                let keys = api_keys::store::bring_back(tx, now).await?;
                Ok((from, now, keys, tickets::store::bring_back(tx, now).await?))
            });
            let (from, now, keys, tickets) = repaired.await?;
            let report = json!({"tenant": tenant.slug, "from": from, "to": now, "api_keys": keys, "tickets": tickets});
            common.output.print(&report, |_| said(&tenant.slug, from, now, keys, tickets))
        }
    }
}

fn said(slug: &str, from: Option<Timestamp>, now: Timestamp, keys: u64, tickets: u64) -> String {
    match from {
        None => format!("The clock of {slug} is not so far ahead that it needs repair."),
        Some(from) => format!(
            "The clock of {slug} stood at {from} and was set to {now}, with {tickets} tickets and {keys} keys.\n\
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
