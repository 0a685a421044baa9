//! Which sealing keys each running node has, as the nodes save it themselves.

use std::cmp::Reverse;

use serde::Serialize;

use crate::base::{Error, HOUR_MS, Keyring, MINUTE_MS, Result, Secrets, Timestamp};
use crate::store::{Db, FromRow, Row, to_json};

crate::statements! {
    SAVE_NODE = "INSERT INTO keyring_nodes (node, host, key_ids, primary_id, primary_since, seen_at, version, started_at)
        VALUES ($1, $2, $3, $4, $5, $5, $6, $5)
        ON CONFLICT (node) DO UPDATE SET host = $2, key_ids = $3, primary_id = $4, seen_at = $5, version = $6,
            primary_since = CASE WHEN keyring_nodes.primary_id = $4 THEN keyring_nodes.primary_since ELSE $5 END";
    DELETE_STALE_NODES = "DELETE FROM keyring_nodes WHERE seen_at < $1";
    DELETE_NODE = "DELETE FROM keyring_nodes WHERE node = $1";
    LIST_NODES = "SELECT node, host, key_ids, primary_id, primary_since, seen_at, version, started_at FROM keyring_nodes
        WHERE seen_at >= $1 ORDER BY node LIMIT $2";
}

/// A node that has saved its keys so recently is running. Nodes do so every 15 s, and a database that is away for a moment
/// must not make them look stopped.
pub const RUNNING_MS: i64 = MINUTE_MS;
/// Rows of nodes that were killed are kept no longer.
const STALE_MS: i64 = HOUR_MS;
/// More nodes than anybody runs.
const NODES_MAX: i64 = 1_000;

/// How a node is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// The name of the process, new at every start.
    pub node: String,
    /// The host and the address, for people.
    pub host: String,
}

/// What a running node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyringNode {
    /// See [`NodeName`].
    pub node: String,
    pub host: String,
    pub key_ids: Vec<u32>,
    /// The key that it seals with.
    pub primary_id: u32,
    pub primary_since: Timestamp,
    pub seen_at: Timestamp,
    /// Of the program; none of a node of before this was saved.
    pub version: Option<String>,
    pub started_at: Option<Timestamp>,
}

impl FromRow for KeyringNode {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let primary_id: i64 = row.get(3)?;
        Ok(KeyringNode {
            node: row.get(0)?,
            host: row.get(1)?,
            key_ids: row.get_json(2)?,
            primary_id: u32::try_from(primary_id).map_err(Error::internal)?,
            primary_since: row.get(4)?,
            seen_at: row.get(5)?,
            version: row.get(6)?,
            started_at: row.get(7)?,
        })
    }
}

/// Saves what a node has, and that it runs.
pub async fn save_node(system: &Db, name: &NodeName, secrets: &Secrets) -> Result<()> {
    save_keyring(system, name, &secrets.keyring()).await
}

/// Saves what a node has or is about to have, and that it runs.
pub async fn save_keyring(system: &Db, name: &NodeName, keyring: &Keyring) -> Result<()> {
    let (NodeName { node, host }, key_ids) = (name.clone(), to_json(&keyring.key_ids())?);
    let (primary_id, now) = (i64::from(keyring.primary_id()), system.database_now().await?);
    let stale = now.plus_ms(-STALE_MS);
    system
        .write(async move |tx| {
            let version = env!("CARGO_PKG_VERSION");
            tx.exec(SAVE_NODE, crate::args![node, host, key_ids, primary_id, now, version]).await?;
            tx.exec(DELETE_STALE_NODES, crate::args![stale]).await
        })
        .await
        .map(drop)
}

/// Forgets a node that stops.
pub async fn delete_node(system: &Db, node: &str) -> Result<()> {
    let node = node.to_owned();
    system.write(async move |tx| tx.exec(DELETE_NODE, crate::args![node]).await).await.map(drop)
}

/// The running nodes, in the order of their names. One that was killed stays among them for a minute.
pub async fn list_running_nodes(system: &Db) -> Result<Vec<KeyringNode>> {
    let since = system.database_now().await?.plus_ms(-RUNNING_MS);
    system.list(LIST_NODES, crate::args![since, NODES_MAX]).await
}

/// The nodes that were seen within the last hour, also those that were killed meanwhile.
pub async fn list_known_nodes(system: &Db) -> Result<Vec<KeyringNode>> {
    let since = system.database_now().await?.plus_ms(-STALE_MS);
    system.list(LIST_NODES, crate::args![since, NODES_MAX]).await
}

/// Whether this node rewraps now: all running nodes seal with the same key, so none is given a value that it cannot open, and
/// no two do the same work. A node that alone has an old key does it, as the others could not; else the first of them.
pub async fn may_rewrap(system: &Db, node: &str, primary_id: u32) -> Result<bool> {
    let running = list_running_nodes(system).await?;
    let chosen = running.iter().min_by_key(|other| (Reverse(other.key_ids.len()), &other.node));
    let is_chosen = chosen.is_some_and(|chosen| chosen.node == node);
    Ok(is_chosen && running.iter().all(|other| other.primary_id == primary_id))
}
