//! Follows the secrets file while the server runs, so that a new sealing key needs no restart.

use std::sync::Mutex;

use super::SealedColumnStatements;
use super::checks::{list_retired_keys, register_secrets};
use super::nodes::{NodeName, list_running_nodes, save_keyring, save_node};
use crate::base::{Code, Keyring, Result, Secrets, SecretsSource, lock_unpoisoned, run_blocking, sha256};
use crate::store::Db;

/// Reads the secrets file again when it has changed. A file that cannot be used changes nothing.
pub struct SecretsReloader {
    source: SecretsSource,
    /// Those of the running server.
    secrets: Secrets,
    name: NodeName,
    /// The hash of the text that was read last, or why it could not be read: each is dealt with and logged once.
    seen: Mutex<Option<SeenFile>>,
    /// Why the changed file is not used yet, as it was logged.
    waits_for: Mutex<Option<String>>,
}

#[derive(Clone, PartialEq, Eq)]
enum SeenFile {
    Text([u8; 32]),
    Unreadable(String),
}

/// What became of a changed file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adoption {
    Adopted,
    /// It has the same keys, or cannot be used.
    Ignored,
    /// The next call tries again.
    Waits,
}

impl SecretsReloader {
    pub fn new(source: SecretsSource, secrets: Secrets, name: NodeName) -> Self {
        SecretsReloader { source, secrets, name, seen: Mutex::new(None), waits_for: Mutex::new(None) }
    }

    /// Returns whether other sealing keys are in use from now on. Only a database that does not answer is an error: then the
    /// next call tries again.
    pub async fn reload_changed(&self, system: &Db, columns: &[SealedColumnStatements]) -> Result<bool> {
        let SecretsSource::File(_) = &self.source else { return Ok(false) };
        let source = self.source.clone();
        let read = run_blocking(move || source.read_text()).await;
        let (file, text) = match read {
            Ok(Some(text)) => (SeenFile::Text(sha256(text.as_bytes())), Some(text)),
            Ok(None) => (SeenFile::Unreadable("the file is gone".to_owned()), None),
            Err(error) => (SeenFile::Unreadable(error.cause_chain().unwrap_or_default()), None),
        };
        if lock_unpoisoned(&self.seen).as_ref() == Some(&file) {
            return Ok(false);
        }
        let adoption = match (&file, text) {
            (SeenFile::Unreadable(reason), _) => {
                tracing::error!(reason, "the secrets file cannot be read; the keys read before stay in use");
                Adoption::Ignored
            }
            (SeenFile::Text(_), text) => self.adopt_text(system, columns, &text.unwrap_or_default()).await?,
        };
        if adoption != Adoption::Waits {
            *lock_unpoisoned(&self.seen) = Some(file);
            *lock_unpoisoned(&self.waits_for) = None;
        }
        Ok(adoption == Adoption::Adopted)
    }

    async fn adopt_text(&self, system: &Db, columns: &[SealedColumnStatements], text: &str) -> Result<Adoption> {
        let checked = match Secrets::parse(text) {
            Ok(changed) => register_secrets(system, &changed, columns).await.map(|()| changed),
            Err(error) => Err(error),
        };
        let changed = match checked {
            Ok(changed) => changed,
            Err(error) if error.code() == Code::Unavailable => return Err(error),
            Err(error) => {
                tracing::error!(%error, "the secrets file was changed and is not used; the keys read before stay in use");
                return Ok(Adoption::Ignored);
            }
        };
        let (before, now) = (self.secrets.keyring(), changed.keyring());
        if (before.key_ids(), before.primary_id()) == (now.key_ids(), now.primary_id()) {
            return Ok(Adoption::Ignored);
        }
        if before.primary_id() != now.primary_id()
            && let Some(obstacle) = announce_primary(system, &self.name, (&before, &now)).await?
        {
            self.log_obstacle(obstacle);
            return Ok(Adoption::Waits);
        }
        self.secrets.adopt_keyring(&changed);
        save_node(system, &self.name, &self.secrets).await?;
        tracing::info!(keys = ?now.key_ids(), primary = now.primary_id(), "sealing keys read from the secrets file");
        Ok(Adoption::Adopted)
    }

    fn log_obstacle(&self, obstacle: String) {
        let mut waits_for = lock_unpoisoned(&self.waits_for);
        if waits_for.as_ref() != Some(&obstacle) {
            tracing::warn!(obstacle, "the secrets file was changed and waits; the keys read before stay in use");
            *waits_for = Some(obstacle);
        }
    }
}

/// Saves that this node seals with another key before it does, and looks then whether it may: a command that removes the key,
/// and a node that starts without it, either see this or are seen. Returns why it must not seal with the key yet.
pub async fn announce_primary(
    system: &Db,
    name: &NodeName,
    (current, changed): (&Keyring, &Keyring),
) -> Result<Option<String>> {
    let primary_id = changed.primary_id();
    if let Some(obstacle) = find_sealing_obstacle(system, primary_id).await? {
        return Ok(Some(obstacle));
    }
    save_keyring(system, name, changed).await?;
    system.env().faults.check_outside_tx("keyring.primary.announced").await?;
    let obstacle = find_sealing_obstacle(system, primary_id).await?;
    if obstacle.is_some() {
        save_keyring(system, name, current).await?;
    }
    Ok(obstacle)
}

/// Why no node may seal with a key now.
pub async fn find_sealing_obstacle(system: &Db, id: u32) -> Result<Option<String>> {
    if list_retired_keys(system).await?.contains(&id) {
        return Ok(Some(format!("key {id} was removed")));
    }
    let nodes = list_running_nodes(system).await?;
    let without: Vec<&str> =
        nodes.iter().filter(|node| !node.key_ids.contains(&id)).map(|node| node.host.as_str()).collect();
    Ok((!without.is_empty()).then(|| format!("without key {id}: {}", without.join("; "))))
}
