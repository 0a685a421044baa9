//! The check values of the secrets in the database, and whether the secrets of a node are those of the installation.

use std::collections::BTreeSet;
use std::fmt;

use super::nodes::list_running_nodes;
use super::{SealedColumnStatements, count_durable_values, count_sealed_values, describe_usage};
use crate::base::{Error, Result, Secrets, Timestamp, constant_time_eq, key_check_name, parse_key_check_name};
use crate::store::{Db, FromRow, Row};

crate::statements! {
    LIST_CHECKS = "SELECT name, value, retired_at FROM secret_checks ORDER BY name";
    INSERT_CHECK = "INSERT INTO secret_checks (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    RETIRE_CHECK = "UPDATE secret_checks SET retired_at = $2 WHERE name = $1 AND retired_at IS NULL";
    RESTORE_CHECK = "UPDATE secret_checks SET retired_at = NULL WHERE name = $1";
}

/// The check value of one secret.
pub struct SecretCheck {
    pub name: String,
    value: Vec<u8>,
    /// When the key was removed.
    retired_at: Option<Timestamp>,
}

impl FromRow for SecretCheck {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(SecretCheck { name: row.get(0)?, value: row.get(1)?, retired_at: row.get(2)? })
    }
}

impl SecretCheck {
    /// The id of the sealing key; none if it is the check value of another secret.
    pub fn key_id(&self) -> Option<u32> {
        parse_key_check_name(&self.name)
    }

    pub fn is_retired(&self) -> bool {
        self.retired_at.is_some()
    }
}

/// As many as there ever were secrets.
pub async fn list_checks(system: &Db) -> Result<Vec<SecretCheck>> {
    system.list(LIST_CHECKS, crate::args![]).await
}

/// The ids of the keys that were removed.
pub async fn list_retired_keys(system: &Db) -> Result<BTreeSet<u32>> {
    let checks = list_checks(system).await?;
    Ok(checks.iter().filter(|check| check.is_retired()).filter_map(SecretCheck::key_id).collect())
}

/// Saves the check values that the database does not have yet.
pub async fn insert_checks(system: &Db, secrets: &Secrets) -> Result<()> {
    let checks = secrets.check_values();
    system
        .write(async move |tx| {
            for (name, value) in checks {
                tx.exec(INSERT_CHECK, crate::args![name, value]).await?;
            }
            Ok(())
        })
        .await
}

/// Saves the check value of a new key. Returns false if its id is taken.
pub async fn insert_key_check(system: &Db, secrets: &Secrets, id: u32) -> Result<bool> {
    let name = key_check_name(id);
    let Some((name, value)) = secrets.check_values().into_iter().find(|(found, _)| *found == name) else {
        return Err(Error::internal(format!("key {id} is not among the secrets")));
    };
    Ok(system.write(async move |tx| tx.exec(INSERT_CHECK, crate::args![name, value]).await).await? == 1)
}

/// Marks a sealing key as removed: no node seals with it any more. Returns false if it was removed before.
pub async fn retire_key(system: &Db, id: u32) -> Result<bool> {
    let (name, now) = (key_check_name(id), system.database_now().await?);
    Ok(system.write(async move |tx| tx.exec(RETIRE_CHECK, crate::args![name, now]).await).await? == 1)
}

/// Undoes [`retire_key`].
pub async fn restore_key(system: &Db, id: u32) -> Result<()> {
    let name = key_check_name(id);
    system.write(async move |tx| tx.exec(RESTORE_CHECK, crate::args![name]).await).await.map(drop)
}

/// Why a node must not work with its secrets. `Display` says what to do.
#[derive(Debug, PartialEq, Eq)]
pub enum SecretsProblem {
    /// This secret is another than that of the database.
    Mismatch(String),
    /// Keys that the installation uses are not in the secrets.
    MissingKeys(Vec<MissingKey>),
    /// The secrets would seal with a key that was removed.
    RetiredPrimary(u32),
}

/// A key that a node needs and does not have.
#[derive(Debug, PartialEq, Eq)]
pub struct MissingKey {
    pub id: u32,
    /// What is sealed with it; empty if only a running node seals with it.
    pub usage: String,
    /// The running nodes that have it.
    pub hosts: Vec<String>,
}

impl fmt::Display for SecretsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretsProblem::Mismatch(name) => write!(
                f,
                "the secrets of this node are not those of the database ({name} differs); every node needs the same secrets file"
            ),
            SecretsProblem::MissingKeys(missing) => {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                f.write_str(&missing.join("; "))
            }
            SecretsProblem::RetiredPrimary(id) => write!(
                f,
                "the secrets of this node seal with key {id}, which was removed: copy the secrets file from another node, or \
                 make another of its keys primary with `admin keyring rotate`"
            ),
        }
    }
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingKey { id, usage, hosts } = self;
        write!(f, "sealing key {id} is not in the secrets of this node, ")?;
        if usage.is_empty() {
            return write!(f, "and a running node seals with it: copy the secrets file from {}", hosts.join(" or "));
        }
        write!(f, "and values are sealed with it ({usage}): copy the secrets file from ")?;
        match hosts.as_slice() {
            [] => f.write_str("a node that has the key, or from your backup")?,
            hosts => write!(f, "{}", hosts.join(" or "))?,
        }
        f.write_str("; without the key these values are lost")
    }
}

impl From<SecretsProblem> for Error {
    fn from(problem: SecretsProblem) -> Self {
        Error::internal(problem.to_string())
    }
}

/// What is wrong with the secrets of a node. Every key that has sealed something, or with which a running node seals, must be
/// among them. A key that was only added is not missed: its file may still be on its way, or lost before anybody used it.
pub async fn find_problem(
    system: &Db,
    secrets: &Secrets,
    columns: &[SealedColumnStatements],
) -> Result<Option<SecretsProblem>> {
    let checks = list_checks(system).await?;
    if let Some(name) = find_mismatch(secrets, &checks) {
        return Ok(Some(SecretsProblem::Mismatch(name)));
    }
    let keyring = secrets.keyring();
    let used = count_durable_values(system, columns).await?;
    let is_missing = |id: &u32| !keyring.has_key(*id);
    let registered = checks.iter().filter(|check| !check.is_retired()).filter_map(SecretCheck::key_id);
    let unregistered = used.iter().filter_map(|used| used.key_id);
    let mut missing: Vec<u32> = registered.chain(unregistered).filter(is_missing).collect();
    missing.sort_unstable();
    missing.dedup();
    let needed = if missing.is_empty() { Vec::new() } else { list_needed_keys(system, columns, &missing).await? };
    if !needed.is_empty() {
        return Ok(Some(SecretsProblem::MissingKeys(needed)));
    }
    let primary = keyring.primary_id();
    let is_retired = checks.iter().any(|check| check.is_retired() && check.key_id() == Some(primary));
    Ok(is_retired.then_some(SecretsProblem::RetiredPrimary(primary)))
}

/// Those of the missing keys that have sealed something, or with which a running node seals.
async fn list_needed_keys(system: &Db, columns: &[SealedColumnStatements], missing: &[u32]) -> Result<Vec<MissingKey>> {
    let (usage, nodes) = (count_sealed_values(system, columns).await?, list_running_nodes(system).await?);
    let is_needed = |key: &MissingKey| !key.usage.is_empty() || nodes.iter().any(|node| node.primary_id == key.id);
    let of_key = |id: &u32| {
        let hosts = nodes.iter().filter(|node| node.key_ids.contains(id)).map(|node| node.host.clone());
        MissingKey { id: *id, usage: describe_usage(&usage, *id), hosts: hosts.collect() }
    };
    Ok(missing.iter().map(of_key).filter(is_needed).collect())
}

/// The name of the first secret whose check value differs from the database's.
fn find_mismatch(secrets: &Secrets, checks: &[SecretCheck]) -> Option<String> {
    let differs = |(name, value): &(String, Vec<u8>)| {
        checks.iter().any(|check| check.name == *name && !constant_time_eq(&check.value, value))
    };
    secrets.check_values().into_iter().find(differs).map(|(name, _)| name)
}

/// Checks the secrets of a node, saves the check values of new keys, and checks again: another node may have saved others at
/// the same moment.
pub async fn register_secrets(system: &Db, secrets: &Secrets, columns: &[SealedColumnStatements]) -> Result<()> {
    refuse_problem(system, secrets, columns).await?;
    insert_checks(system, secrets).await?;
    refuse_problem(system, secrets, columns).await
}

async fn refuse_problem(system: &Db, secrets: &Secrets, columns: &[SealedColumnStatements]) -> Result<()> {
    match find_problem(system, secrets, columns).await? {
        None => Ok(()),
        Some(problem) => Err(problem.into()),
    }
}
