//! The background jobs of the features; the kernel has its own.

use std::time::Duration;

use kernel::jobs::{Node, every};

use crate::features::{api_keys, devices, pages, webhooks, workflows};

const ANNOUNCE_EVERY: Duration = Duration::from_secs(20);
const CLEAN_EVERY: Duration = Duration::from_mins(10);
const MEASURE_EVERY: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_secs(5);
const INDEX_EVERY: Duration = Duration::from_secs(2);

/// Runs all jobs until it is dropped.
pub async fn run(node: Node, delivery_retention_ms: i64, run_retention_ms: i64) {
    tokio::join!(
        every(&node, ANNOUNCE_EVERY, "telling of keys that expire", |node| async move {
            api_keys::jobs::announce_expiry(&node).await
        }),
        every(&node, LOOK_EVERY, "looking at devices that are silent", |node| async move {
            devices::clock::store::look(&node, node.settings.of_feature()).await
        }),
        every(&node, INDEX_EVERY, "indexing the software of devices", |node| async move {
            devices::software::store::index_tenants(&node).await
        }),
        every(&node, LOOK_EVERY, "measuring what waits", |node| async move { pages::measure(&node).await }),
        every(&node, CLEAN_EVERY, "cleaning the log of deliveries", move |node| async move {
            webhooks::jobs::clean(&node, delivery_retention_ms).await
        }),
        every(&node, CLEAN_EVERY, "cleaning the history of workflows", move |node| async move {
            workflows::jobs::clean(&node, run_retention_ms).await
        }),
        every(&node, MEASURE_EVERY, "measuring the queue of workflows", |node| async move {
            workflows::jobs::measure(&node).await
        }),
        every(&node, MEASURE_EVERY, "measuring the queue of deliveries", |node| async move {
            webhooks::jobs::measure(&node).await
        }),
    );
}
