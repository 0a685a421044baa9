//! What operators are told of the sealing keys, and what keeps a key from sealing or from being removed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::checks::{SecretCheck, list_checks};
use super::nodes::{KeyringNode, list_running_nodes};
use super::{KeyUsage, SealedColumnStatements, count_sealed_values, describe_usage};
use crate::base::{Keyring, Result, SECOND_MS, Timestamp};
use crate::store::Db;

/// A transaction that sealed a value before its node changed keys has ended after so long: no statement waits longer for a
/// lock.
const SETTLED_MS: i64 = 10 * SECOND_MS;

/// The sealing keys of this secrets file and of the database, and what uses them.
#[derive(Clone, Debug, Serialize)]
pub struct KeyringStatus {
    /// The key with which this secrets file seals.
    pub primary_id: u32,
    pub keys: Vec<KeyStatus>,
    /// Values that are rewrapped, as far as the primary has sealed them.
    pub sealed_with_primary: i64,
    /// Values of other keys than the primary, which a running server rewraps.
    pub left_to_rewrap: i64,
    /// Values of other keys than the primary, which expire by themselves.
    pub left_to_expire: i64,
    /// Values that no key opens.
    pub malformed: i64,
    pub nodes: Vec<KeyringNode>,
    #[serde(skip)]
    usage: Vec<KeyUsage>,
    #[serde(skip)]
    now: Timestamp,
    /// The highest id that ever was, also of a removed key.
    #[serde(skip)]
    last_id: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyStatus {
    pub id: u32,
    pub is_primary: bool,
    pub in_secrets: bool,
    /// Whether it was removed: then no server seals with it, though the file may still have it.
    pub is_retired: bool,
    /// How many values it has sealed, by column.
    pub values: BTreeMap<&'static str, i64>,
}

/// Reads the status for the keyring of a secrets file.
pub async fn read_status(system: &Db, keyring: &Keyring, columns: &[SealedColumnStatements]) -> Result<KeyringStatus> {
    let (checks, usage) = (list_checks(system).await?, count_sealed_values(system, columns).await?);
    let (nodes, now) = (list_running_nodes(system).await?, system.database_now().await?);
    let primary_id = keyring.primary_id();
    let registered = checks.iter().filter(|check| !check.is_retired()).filter_map(SecretCheck::key_id);
    let mut ids: BTreeSet<u32> = registered.chain(keyring.key_ids()).collect();
    ids.extend(usage.iter().filter_map(|used| used.key_id));
    let of_key = |id: u32| usage.iter().filter(move |used| used.key_id == Some(id));
    let is_retired = |id: u32| checks.iter().any(|check| check.is_retired() && check.key_id() == Some(id));
    let keys = ids.iter().map(|id| KeyStatus {
        id: *id,
        is_primary: *id == primary_id,
        in_secrets: keyring.has_key(*id),
        is_retired: is_retired(*id),
        values: of_key(*id).map(|used| (used.column, used.values)).collect(),
    });
    let keys: Vec<KeyStatus> = keys.collect();
    let count = |is_counted: &dyn Fn(&KeyUsage) -> bool| -> i64 {
        usage.iter().filter(|used| is_counted(used)).map(|used| used.values).sum()
    };
    let is_old = |used: &KeyUsage| used.key_id.is_some_and(|id| id != primary_id);
    let sealed_with_primary = count(&|used| used.key_id == Some(primary_id) && used.is_rewrapped);
    let left_to_rewrap = count(&|used| is_old(used) && used.is_rewrapped);
    let left_to_expire = count(&|used| is_old(used) && !used.is_rewrapped);
    let malformed = count(&|used| used.key_id.is_none());
    let known = checks.iter().filter_map(SecretCheck::key_id).chain(ids);
    let last_id = known.max().unwrap_or_default();
    Ok(KeyringStatus {
        primary_id,
        keys,
        sealed_with_primary,
        left_to_rewrap,
        left_to_expire,
        malformed,
        nodes,
        usage,
        now,
        last_id,
    })
}

impl KeyringStatus {
    /// The id for a new key. No id is used twice, so that a value never names another key than the one that sealed it.
    pub fn next_id(&self) -> u32 {
        self.last_id.saturating_add(1)
    }

    pub fn find_key(&self, id: u32) -> Option<&KeyStatus> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// The running nodes that have a key.
    pub fn nodes_with(&self, id: u32) -> Vec<&KeyringNode> {
        self.nodes.iter().filter(|node| node.key_ids.contains(&id)).collect()
    }

    /// The running nodes that could not open what a key seals.
    pub fn nodes_without(&self, id: u32) -> Vec<&KeyringNode> {
        self.nodes.iter().filter(|node| !node.key_ids.contains(&id)).collect()
    }

    /// The running nodes that seal with another key than this secrets file.
    pub fn nodes_behind(&self) -> Vec<&KeyringNode> {
        self.nodes.iter().filter(|node| node.primary_id != self.primary_id).collect()
    }

    /// The columns and the number of values that a key has sealed, in words. Empty if there are none.
    pub fn describe_usage(&self, id: u32) -> String {
        describe_usage(&self.usage, id)
    }

    /// Whether a node has begun to seal with its key so recently that a value of the key before may still be committed.
    pub fn is_settling(&self) -> bool {
        self.nodes.iter().any(|node| node.primary_since.plus_ms(SETTLED_MS) > self.now)
    }

    /// Why a key cannot be removed, and what to do. None if nothing uses it.
    pub fn find_removal_obstacle(&self, id: u32) -> Option<String> {
        if id == self.primary_id {
            return Some(format!("key {id} is the primary: values are sealed with it; make another one primary first"));
        }
        if let Some(node) = self.nodes.iter().find(|node| node.primary_id == id) {
            return Some(format!("{} still seals with key {id}: copy the secrets file there first", node.host));
        }
        let usage = self.describe_usage(id);
        if self.usage.iter().any(|used| used.key_id == Some(id) && used.is_rewrapped) {
            return Some(format!(
                "values are still sealed with key {id} ({usage}), and would be lost; a running server rewraps them once \
                 every node seals with key {}",
                self.primary_id
            ));
        }
        (!usage.is_empty()).then(|| {
            format!("values are still sealed with key {id} ({usage}); they expire by themselves, within a day or as sessions end")
        })
    }
}
