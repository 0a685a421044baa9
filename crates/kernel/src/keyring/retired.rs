//! What a running node does when its primary key was removed, because it was out of reach while that was done: it must not go
//! on sealing with a key that other nodes no longer have.

use std::collections::BTreeSet;

use super::checks::list_retired_keys;
use super::nodes::{KeyringNode, NodeName, list_running_nodes, save_node};
use super::reload::announce_primary;
use crate::base::{Keyring, Result, Secrets};
use crate::store::Db;

/// Seals with the key of the other nodes instead, if this one has it, and else not at all. Values are opened in any case. Returns
/// whether something has changed.
pub async fn leave_retired_primary(system: &Db, name: &NodeName, secrets: &Secrets) -> Result<bool> {
    let (keyring, retired) = (secrets.keyring(), list_retired_keys(system).await?);
    let primary_id = keyring.primary_id();
    if !retired.contains(&primary_id) {
        // The removal was undone, if there was one.
        return if keyring.can_seal() { Ok(false) } else { begin_to_seal(system, name, secrets, primary_id).await };
    }
    let nodes = list_running_nodes(system).await?;
    let others: Vec<KeyringNode> = nodes.into_iter().filter(|node| node.node != name.node).collect();
    if let Some(id) = find_substitute(&keyring, &retired, &others)
        && begin_to_seal(system, name, secrets, id).await?
    {
        tracing::error!(
            removed = primary_id,
            primary = id,
            "the primary sealing key of this server was removed, and it seals with another one now; copy the secrets file from another node"
        );
    } else if keyring.can_seal() {
        secrets.set_primary(None);
        tracing::error!(
            removed = primary_id,
            "the primary sealing key of this server was removed; it seals nothing until you copy the secrets file from another node"
        );
    } else {
        return Ok(false);
    }
    save_node(system, name, secrets).await?;
    Ok(true)
}

/// Seals with a key from now on, once it is announced like every other primary: it may be removed in turn, or a node without it
/// may start. Returns false if the node must not.
async fn begin_to_seal(system: &Db, name: &NodeName, secrets: &Secrets, id: u32) -> Result<bool> {
    let keyring = secrets.keyring();
    let Some(changed) = keyring.with_primary(Some(id)) else { return Ok(false) };
    let obstacle = announce_primary(system, name, (&keyring, &changed)).await?;
    Ok(obstacle.is_none() && secrets.set_primary(Some(id)))
}

/// A key of this node that all others have: one that they seal with, else the newest.
fn find_substitute(keyring: &Keyring, retired: &BTreeSet<u32>, others: &[KeyringNode]) -> Option<u32> {
    let is_everywhere = |id: &u32| others.iter().all(|node| node.key_ids.contains(id));
    let candidates = keyring.key_ids().into_iter().filter(|id| !retired.contains(id)).filter(is_everywhere);
    candidates.max_by_key(|id| (others.iter().any(|node| node.primary_id == *id), *id))
}
