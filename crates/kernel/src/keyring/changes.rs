//! Changes of the sealing keys in a secrets file, as `admin keyring` makes them beside running servers.
//!
//! A change is made while the file is locked, and from what the file and the database say then. A command that is killed between
//! two steps, or meets a full disk, loses nothing, and can be repeated:
//!
//! - A new key gets its id in the database first, so that two nodes never give one id to two keys. Then it is in the file, on
//!   disk. Nothing is sealed with it until it is made primary.
//! - A key is made primary in the file alone, and all running servers have it before. They read it there (`reload`).
//! - A key is retired in the database first, after which no server begins to seal with it. Then its uses are counted once more,
//!   and it leaves the file only if there are none.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::SealedColumnStatements;
use super::checks::{
    SecretsProblem, find_problem, insert_checks, insert_key_check, register_secrets, restore_key, retire_key,
};
use super::nodes::KeyringNode;
use super::status::{KeyringStatus, read_status};
use crate::base::{Error, KeyringChange, LockedSecretsFile, Result, Secrets, SecretsSource};
use crate::store::Db;

/// Running servers read a changed file every two seconds.
const RELOAD_WAIT_MAX: Duration = Duration::from_secs(6);
/// A key has settled after ten seconds.
const SETTLE_WAIT_MAX: Duration = Duration::from_secs(12);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A command holds the lock for a few statements, each of which may wait for the database.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);
const LOCK_EVERY: Duration = Duration::from_millis(20);

/// Makes changes in one secrets file.
pub struct KeyringChanges<'a> {
    pub system: Db,
    pub source: &'a SecretsSource,
    pub columns: &'a [SealedColumnStatements],
    /// The line of a command such as `admin keyring status`, for people to paste.
    pub command_line: &'a (dyn Fn(&str) -> String + Sync),
}

/// A key that was added, and the one that seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedKey {
    pub id: u32,
    pub primary_id: u32,
}

/// The key that seals from now on, and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPrimary {
    pub id: u32,
    pub previous_id: u32,
}

/// A key that was removed, and the one that seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedKey {
    pub id: u32,
    pub primary_id: u32,
}

impl KeyringChanges<'_> {
    /// Adds a new key, which does not seal yet.
    pub async fn add_key(&self) -> Result<AddedKey> {
        let (file, secrets) = self.lock_secrets().await?;
        register_secrets(&self.system, &secrets, self.columns).await?;
        let status = self.read_status_of(&secrets).await?;
        if let Some(elsewhere) = status.keys.iter().find(|key| !key.in_secrets) {
            return Err(self.refuse_added_elsewhere(&status, elsewhere.id));
        }
        let (id, primary_id) = (status.next_id(), status.primary_id);
        let Some(mut file) = file else {
            let rotate = (self.command_line)("admin keyring rotate");
            return Err(change_by_hand(&format!(
                "append {{\"id\": {id}, \"key\": \"…\"}} to \"sealing_keys\", with the output of `openssl rand -base64 32` as \
                 the key, set \"primary\": {primary_id}, and restart every server with the new text; then `{rotate}`"
            )));
        };
        let text = file.change_text(KeyringChange::AddKey(id), &self.system.env().random)?;
        if !insert_key_check(&self.system, &Secrets::parse(&text)?, id).await? {
            return Err(self.refuse_added_elsewhere(&self.read_status_of(&secrets).await?, id));
        }
        self.system.env().faults.check_outside_tx("keyring.add.registered").await?;
        if let Err(error) = file.replace_text(text) {
            // Otherwise the id would stay that of a key which nobody has.
            if !file.has_key_on_disk(id) {
                retire_key(&self.system, id).await?;
            }
            return Err(error);
        }
        Ok(AddedKey { id, primary_id })
    }

    /// Makes a key primary, or the newest.
    pub async fn rotate_to(&self, to: Option<u32>) -> Result<NewPrimary> {
        // Before the file is locked: a server needs seconds to read a file that was just copied to its node.
        let (id, _) = self.choose_primary(&self.load_secrets()?, to).await?;
        self.wait_while(RELOAD_WAIT_MAX, |status| !status.nodes_without(id).is_empty()).await?;
        let (file, secrets) = self.lock_secrets().await?;
        match find_problem(&self.system, &secrets, self.columns).await? {
            // Another primary is what such a file needs.
            None | Some(SecretsProblem::RetiredPrimary(_)) => insert_checks(&self.system, &secrets).await?,
            Some(problem) => return Err(problem.into()),
        }
        let (id, status) = self.choose_primary(&secrets, to).await?;
        let without = status.nodes_without(id);
        if !without.is_empty() {
            return Err(Error::internal(format!(
                "these servers do not have key {id} yet, and could not open what is sealed with it: {}. Copy the secrets file \
                 there; it is read within seconds. A server that was killed is forgotten after a minute",
                list_hosts(&without)
            )));
        }
        let Some(mut file) = file else {
            return Err(change_by_hand(&format!("set \"primary\": {id}, and restart every server with the new text")));
        };
        file.replace_text(file.change_text(KeyringChange::SetPrimary(id), &self.system.env().random)?)?;
        Ok(NewPrimary { id, previous_id: status.primary_id })
    }

    async fn choose_primary(&self, secrets: &Secrets, to: Option<u32>) -> Result<(u32, KeyringStatus)> {
        let status = self.read_status_of(secrets).await?;
        let is_retired = |id: u32| status.find_key(id).is_some_and(|key| key.is_retired);
        let ids = secrets.keyring().key_ids();
        let newest = || ids.iter().rev().copied().find(|id| !is_retired(*id));
        let add = || (self.command_line)("admin keyring add");
        let Some(id) = to.or_else(newest) else {
            return Err(Error::internal(format!("all keys of the secrets file were removed; `{}` makes one", add())));
        };
        if !ids.contains(&id) {
            return Err(self.refuse_unknown(id));
        }
        if is_retired(id) {
            let detail =
                format!("key {id} was removed, and no server seals with it again; `{}` makes a new one", add());
            return Err(Error::internal(detail));
        }
        if id == status.primary_id {
            return Err(Error::internal(format!("key {id} is the primary already; `{}` makes a new one", add())));
        }
        Ok((id, status))
    }

    /// Removes a key that nothing uses.
    pub async fn remove_key(&self, id: u32) -> Result<RemovedKey> {
        let status = self.read_status_of(&self.load_secrets()?).await?;
        if status.find_key(id).is_none() {
            return Err(self.refuse_unknown(id));
        }
        self.check_removal(&status, id)?;
        self.wait_while(SETTLE_WAIT_MAX, KeyringStatus::is_settling).await?;
        let (file, secrets) = self.lock_secrets().await?;
        let status = self.read_status_of(&secrets).await?;
        self.check_removal(&status, id)?;
        if status.is_settling() {
            return Err(Error::internal("a server has changed its key a moment ago; try again in ten seconds"));
        }
        let is_new = retire_key(&self.system, id).await?;
        self.system.env().faults.check_outside_tx("keyring.remove.retired").await?;
        // A server may have begun to seal with the key before it was retired; it has saved that first.
        if let Err(refused) = self.check_removal(&self.read_status_of(&secrets).await?, id) {
            if is_new {
                restore_key(&self.system, id).await?;
            }
            return Err(refused);
        }
        let removed = RemovedKey { id, primary_id: status.primary_id };
        if !secrets.keyring().has_key(id) {
            return Ok(removed);
        }
        let Some(mut file) = file else {
            return Err(change_by_hand(&format!(
                "nothing uses key {id} any more: take it out of \"sealing_keys\", and restart every server with the new text"
            )));
        };
        file.replace_text(file.change_text(KeyringChange::RemoveKey(id), &self.system.env().random)?)?;
        Ok(removed)
    }

    fn check_removal(&self, status: &KeyringStatus, id: u32) -> Result<()> {
        let Some(obstacle) = status.find_removal_obstacle(id) else { return Ok(()) };
        let shown = (self.command_line)("admin keyring status");
        Err(Error::internal(format!("{obstacle}. `{shown}` shows what is left")))
    }

    fn refuse_unknown(&self, id: u32) -> Error {
        let shown = (self.command_line)("admin keyring status");
        Error::internal(format!("there is no key {id}; `{shown}` shows them"))
    }

    /// A second key beside one that is elsewhere would be lost with the next copy of the file.
    fn refuse_added_elsewhere(&self, status: &KeyringStatus, id: u32) -> Error {
        let hosts: Vec<&str> = status.nodes_with(id).into_iter().map(|node| node.host.as_str()).collect();
        let from = if hosts.is_empty() { "the node that has it".to_owned() } else { hosts.join(" or ") };
        let remove = (self.command_line)(&format!("admin keyring remove --id {id}"));
        Error::internal(format!(
            "key {id} was added on another node or by a command that was killed, and is not in this secrets file: copy the \
             secrets file from {from}, then repeat this. If no node has the key, give it up with `{remove}`"
        ))
    }

    fn load_secrets(&self) -> Result<Secrets> {
        self.source.load_secrets()?.ok_or_else(|| Error::internal("the secrets file is gone"))
    }

    /// The secrets as they are now, and the locked file; none if they are given as a text.
    async fn lock_secrets(&self) -> Result<(Option<LockedSecretsFile>, Secrets)> {
        let SecretsSource::File(_) = self.source else { return Ok((None, self.load_secrets()?)) };
        let started = Instant::now();
        loop {
            if let Some(file) = self.source.try_lock_file()? {
                let secrets = file.parse_secrets()?;
                return Ok((Some(file), secrets));
            }
            if started.elapsed() > LOCK_WAIT_MAX {
                return Err(Error::internal("another command is changing the secrets file; try again in a moment"));
            }
            sleep(LOCK_EVERY).await;
        }
    }

    async fn read_status_of(&self, secrets: &Secrets) -> Result<KeyringStatus> {
        read_status(&self.system, &secrets.keyring(), self.columns).await
    }

    /// Reads the status until the command need not wait any more, or for as long as it may.
    async fn wait_while(&self, max: Duration, waits: impl Fn(&KeyringStatus) -> bool) -> Result<()> {
        let started = Instant::now();
        while waits(&self.read_status_of(&self.load_secrets()?).await?) && started.elapsed() < max {
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// The refusal for secrets that are given in the environment, with what to do there.
fn change_by_hand(what: &str) -> Error {
    Error::internal(format!("the secrets are given in TENANT_CONTROL_SECRETS, which no command can change: {what}"))
}

/// Nodes for people, with when they were seen.
pub fn list_hosts(nodes: &[&KeyringNode]) -> String {
    let host = |node: &&KeyringNode| format!("{}, last seen at {}", node.host, node.seen_at);
    nodes.iter().map(host).collect::<Vec<_>>().join("; ")
}
