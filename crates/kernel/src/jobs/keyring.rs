//! Keeps the sealing keys of a running node: reads a changed secrets file, saves for others which keys this node has, and
//! rewraps values when the primary key has changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{ServerNode, run_every};
use crate::base::{HOUR_MS, Result, SecretsSource, Timestamp, lock_unpoisoned};
use crate::keyring::SealedColumnStatements;
use crate::keyring::checks::find_problem;
use crate::keyring::nodes::{NodeName, delete_node, may_rewrap, save_node};
use crate::keyring::reload::{SecretsReloader, find_sealing_obstacle};
use crate::keyring::retired::leave_retired_primary;
use crate::keyring::rewrap::{RewrapReport, rewrap_values};
use crate::store::Purpose;

/// An operator who has changed the file waits for this.
const RELOAD_EVERY: Duration = Duration::from_secs(2);
/// Four times before others take the node for stopped.
const SAVE_NODE_EVERY: Duration = Duration::from_secs(15);
const REWRAP_EVERY: Duration = Duration::from_secs(5);
/// How long a pass that found nothing to do counts: values that others have restored meanwhile wait for the next.
const FINISHED_MS: i64 = HOUR_MS;

/// A node as its sealing keys are kept.
struct KeyringKeeper {
    reloader: SecretsReloader,
    name: NodeName,
    columns: &'static [SealedColumnStatements],
    /// The key for which the last pass found nothing to do, and when.
    finished: Mutex<Option<(u32, Timestamp)>>,
}

/// Runs until it is dropped. `host` is how people know this node.
pub async fn keep_keyring(
    node: ServerNode,
    source: SecretsSource,
    host: String,
    columns: &'static [SealedColumnStatements],
) {
    let name = NodeName { node: node.node.clone(), host };
    let reloader = SecretsReloader::new(source, node.secrets.clone(), name.clone());
    let keeper = Arc::new(KeyringKeeper { reloader, name, columns, finished: Mutex::new(None) });
    let (reloading, saving, rewrapping) = (keeper.clone(), keeper.clone(), keeper);
    tokio::join!(
        run_every(&node, RELOAD_EVERY, "reading the secrets file", move |node| {
            let keeper = reloading.clone();
            async move { keeper.reload_secrets(&node).await }
        }),
        run_every(&node, SAVE_NODE_EVERY, "saving which sealing keys this node has", move |node| {
            let keeper = saving.clone();
            async move { keeper.save_keys(&node).await }
        }),
        run_every(&node, REWRAP_EVERY, "rewrapping sealed values", move |node| {
            let keeper = rewrapping.clone();
            async move { keeper.rewrap_round(&node).await }
        }),
    );
}

/// Saves which keys this node has before it serves, and checks them once more: a node that begins to seal with another key at
/// this moment either sees that this one lacks it, or is seen here.
pub async fn announce_keys(node: &ServerNode, host: &str, columns: &[SealedColumnStatements]) -> Result<()> {
    let system = node.store.system(Purpose::Housekeeping);
    let name = NodeName { node: node.node.clone(), host: host.to_owned() };
    // Not fatal: with a full disk, the server can still answer reads.
    if let Err(error) = save_node(&system, &name, &node.secrets).await {
        tracing::warn!(%error, "failed to save which sealing keys this node has");
        return Ok(());
    }
    if let Some(problem) = find_problem(&system, &node.secrets, columns).await? {
        forget_keys(node).await?;
        return Err(problem.into());
    }
    if let Some(obstacle) = find_sealing_obstacle(&system, node.secrets.keyring().primary_id()).await? {
        tracing::warn!(obstacle, "other servers cannot open what this one seals; copy the secrets file there");
    }
    Ok(())
}

/// Forgets the keys of a node that stops, so that nobody waits for it.
pub async fn forget_keys(node: &ServerNode) -> Result<()> {
    delete_node(&node.store.system(Purpose::Housekeeping), &node.node).await
}

impl KeyringKeeper {
    async fn reload_secrets(&self, node: &ServerNode) -> Result<()> {
        let system = node.store.system(Purpose::Housekeeping);
        if self.reloader.reload_changed(&system, self.columns).await? {
            // A key that was missing may be back.
            *lock_unpoisoned(&self.finished) = None;
        }
        leave_retired_primary(&system, &self.name, &node.secrets).await.map(drop)
    }

    async fn save_keys(&self, node: &ServerNode) -> Result<()> {
        save_node(&node.store.system(Purpose::Housekeeping), &self.name, &node.secrets).await
    }

    async fn rewrap_round(&self, node: &ServerNode) -> Result<()> {
        let (primary_id, now) = (node.secrets.keyring().primary_id(), node.env.now());
        let is_finished = |(id, at): (u32, Timestamp)| id == primary_id && at.plus_ms(FINISHED_MS) > now;
        if lock_unpoisoned(&self.finished).is_some_and(is_finished) {
            return Ok(());
        }
        let system = node.store.system(Purpose::Housekeeping);
        if !may_rewrap(&system, &node.node, primary_id).await? {
            return Ok(());
        }
        let RewrapReport { rewrapped, outrun, failed } = rewrap_values(&system, &node.secrets, self.columns).await?;
        if rewrapped > 0 {
            tracing::info!(primary = primary_id, rewrapped, outrun, failed, "sealed values rewrapped");
        }
        // A value that a node has sealed with its former key may be committed after a pass, so one more follows.
        if rewrapped == 0 && outrun == 0 {
            *lock_unpoisoned(&self.finished) = Some((primary_id, now));
        }
        Ok(())
    }
}
