//! `admin keyring`: shows the sealing keys, and replaces one by another while the servers run.
//!
//! A new key is added to the secrets file, and the file copied to every node, before anything is sealed with the key. A command
//! changes the secrets file that it finds, and no other.

use clap::Subcommand;
use kernel::base::{Error, Result, Secrets};
use kernel::keyring::changes::{AddedKey, KeyringChanges, NewPrimary, RemovedKey, list_hosts};
use kernel::keyring::status::{KeyStatus, KeyringStatus, read_status};
use kernel::keyring::unopened::{UnopenedValues, find_unopened};
use kernel::store::{Db, Purpose, Store};
use serde::Serialize;
use serde_json::json;

use super::args::CommonArgs;
use super::store;
use crate::features;

#[derive(Subcommand)]
pub enum KeyringCommand {
    /// Show each sealing key, what is sealed with it, and which servers have it
    Status {
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Add a new key to the secrets file; nothing is sealed with it until `rotate`
    Add {
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Seal with the newest key from now on, and rewrap what other keys have sealed
    Rotate {
        /// Another key than the newest
        #[arg(long, value_name = "ID")]
        to: Option<u32>,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Remove a key that nothing is sealed with any more
    Remove {
        #[arg(long, value_name = "ID")]
        id: u32,
        #[command(flatten)]
        common: CommonArgs,
    },
}

pub async fn run(command: KeyringCommand) -> Result<()> {
    match command {
        KeyringCommand::Status { common } => run_status(&common).await,
        KeyringCommand::Add { common } => run_add(&common).await,
        KeyringCommand::Rotate { to, common } => run_rotate(&common, to).await,
        KeyringCommand::Remove { id, common } => run_remove(&common, id).await,
    }
}

/// What `status` prints.
#[derive(Serialize)]
pub struct KeyringReport {
    #[serde(flatten)]
    status: KeyringStatus,
    /// Values that do not open.
    pub unopened: Vec<UnopenedValues>,
}

/// Reads the status, and opens every value that does not expire.
pub async fn read_report(system: &Db, secrets: &Secrets) -> Result<KeyringReport> {
    let columns = &features::install().sealed_columns;
    let status = read_status(system, &secrets.keyring(), columns).await?;
    Ok(KeyringReport { status, unopened: find_unopened(system, secrets, columns).await? })
}

async fn run_status(common: &CommonArgs) -> Result<()> {
    let (store, secrets) = open_keyring(common).await?;
    let report = read_report(&system_of(&store), &secrets).await?;
    common.output.print_value(&report, format_report)
}

/// Opens without requiring that the secrets have every key: a command may be needed because one is missing.
async fn open_keyring(common: &CommonArgs) -> Result<(Store, Secrets)> {
    let store = store::open_store(&common.store).await?;
    let secrets = common.store.secrets_source().load_secrets()?.ok_or_else(|| {
        let path = common.store.secrets_path();
        Error::internal(format!("{} is not there; `serve` makes it at the first start", path.display()))
    })?;
    Ok((store, secrets))
}

fn system_of(store: &Store) -> Db {
    store.system(Purpose::Cli)
}

/// Makes a change in the secrets file of this node.
async fn change_keyring<T>(
    common: &CommonArgs,
    change: impl AsyncFnOnce(KeyringChanges<'_>) -> Result<T>,
) -> Result<T> {
    let (store, _) = open_keyring(common).await?;
    let (source, columns) = (common.store.secrets_source(), &features::install().sealed_columns);
    let command_line = |command: &str| common.store.command_line(command);
    let changes = KeyringChanges { system: system_of(&store), source: &source, columns, command_line: &command_line };
    change(changes).await
}

async fn run_add(common: &CommonArgs) -> Result<()> {
    let AddedKey { id, primary_id } = change_keyring(common, async |changes| changes.add_key().await).await?;
    common.output.print_value(&json!({ "id": id, "primary_id": primary_id }), |_| {
        format!(
            "Key {id} was added to {}. Key {primary_id} still seals.\n\
             1. Copy the file to every other node, and to where you keep its backup. Servers read it within seconds.\n\
             2. `{}` shows which servers have it.\n\
             3. `{}` seals with it from then on.",
            common.store.secrets_path().display(),
            common.store.command_line("admin keyring status"),
            common.store.command_line(&format!("admin keyring rotate --to {id}"))
        )
    })
}

async fn run_rotate(common: &CommonArgs, to: Option<u32>) -> Result<()> {
    let rotated = change_keyring(common, async |changes| changes.rotate_to(to).await).await?;
    let NewPrimary { id, previous_id } = rotated;
    common.output.print_value(&json!({ "primary_id": id, "previous_id": previous_id }), |_| {
        format!(
            "Key {id} seals from now on, where this file is read: {}.\n\
             1. Copy the file to every other node, and to where you keep its backup. Servers read it within seconds.\n\
             2. When all servers seal with key {id}, one of them rewraps what was sealed before. `{}` shows what is left.\n\
             3. When nothing is left, `{}` removes the old key.",
            common.store.secrets_path().display(),
            common.store.command_line("admin keyring status"),
            common.store.command_line(&format!("admin keyring remove --id {previous_id}"))
        )
    })
}

async fn run_remove(common: &CommonArgs, id: u32) -> Result<()> {
    let RemovedKey { id, primary_id } = change_keyring(common, async |changes| changes.remove_key(id).await).await?;
    common.output.print_value(&json!({ "removed_id": id, "primary_id": primary_id }), |_| {
        format!(
            "Key {id} was removed. Copy {} to every other node and to where you keep its backup.\n\
             A backup of the store from before needs the secrets file of its time.",
            common.store.secrets_path().display()
        )
    })
}

fn format_report(report: &KeyringReport) -> String {
    let status = &report.status;
    let mut lines: Vec<String> = status.keys.iter().map(|key| format_key(status, key)).collect();
    for node in &status.nodes {
        let ids: Vec<String> = node.key_ids.iter().map(ToString::to_string).collect();
        lines.push(format!("{}  has keys {}  seals with key {}", node.host, ids.join(", "), node.primary_id));
    }
    lines.push(describe_rotation(status));
    lines.extend(report.describe_unopened());
    lines.join("\n")
}

fn format_key(status: &KeyringStatus, key: &KeyStatus) -> String {
    let usage = status.describe_usage(key.id);
    let place = match (key.in_secrets, key.is_primary) {
        (true, _) if key.is_retired => "removed, and still in the secrets file",
        (true, true) => "primary",
        (true, false) => "in the secrets file",
        (false, _) if usage.is_empty() => "not in the secrets file",
        (false, _) => "MISSING in the secrets file",
    };
    format!("key {}  {place}  {}", key.id, if usage.is_empty() { "seals nothing" } else { &usage })
}

impl KeyringReport {
    pub fn describe_rotation(&self) -> String {
        describe_rotation(&self.status)
    }

    /// The values that do not open, a line for each column.
    pub fn describe_unopened(&self) -> Vec<String> {
        let line = |unopened: &UnopenedValues| {
            let UnopenedValues { column, values, first } = unopened;
            let found =
                format!("version {} of {} in {}: {}", first.version, first.record_id, first.tenant_id, first.reason);
            match values {
                1 => format!("1 value of {column} does NOT open: {found}"),
                _ => format!("{values} values of {column} do NOT open, the first of them {found}"),
            }
        };
        self.unopened.iter().map(line).collect()
    }
}

/// How far a rotation has come, in one sentence.
fn describe_rotation(status: &KeyringStatus) -> String {
    let KeyringStatus { primary_id, sealed_with_primary, left_to_rewrap, left_to_expire, malformed, .. } = status;
    let mut parts = Vec::new();
    let behind = status.nodes_behind();
    if !behind.is_empty() {
        parts.push(format!("not yet sealing with key {primary_id}: {}", list_hosts(&behind)));
    }
    if *left_to_rewrap > 0 {
        let all = left_to_rewrap + sealed_with_primary;
        let who = match (status.nodes.is_empty(), behind.is_empty()) {
            (true, _) => "by a server; none is running",
            (false, true) => "by a running server",
            (false, false) => "once all servers seal with the primary key",
        };
        parts.push(format!("{left_to_rewrap} of {all} values are left to rewrap, {who}"));
    }
    if *left_to_expire > 0 {
        parts.push(format!("{left_to_expire} values of other keys expire by themselves"));
    }
    if *malformed > 0 {
        parts.push(format!("{malformed} values are malformed, and no key opens them"));
    }
    match parts.len() {
        0 => format!("everything is sealed with key {primary_id}"),
        _ => parts.join("; "),
    }
}
