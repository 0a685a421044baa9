//! The background jobs of the features; the kernel has its own.

use std::time::Duration;

use kernel::jobs::{ServerNode, run_every};

use crate::features::{api_keys, devices, fold, pages, posture, vms, webhooks, workflows};

const ANNOUNCE_EVERY: Duration = Duration::from_secs(20);
const CLEAN_EVERY: Duration = Duration::from_mins(10);
const MEASURE_EVERY: Duration = Duration::from_secs(15);
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Figures are at most two seconds late: a second for what is metered, and one more until it is added up.
const METER_EVERY: Duration = Duration::from_secs(1);
const FOLD_EVERY: Duration = Duration::from_millis(500);
const INDEX_EVERY: Duration = Duration::from_secs(2);

/// Runs all jobs until it is dropped.
pub async fn run(node: ServerNode, delivery_retention_ms: i64, run_retention_ms: i64) {
    tokio::join!(
        run_every(&node, ANNOUNCE_EVERY, "announcing expiring API keys", |node| async move {
            api_keys::jobs::announce_expiry(&node).await
        }),
        run_every(&node, CHECK_EVERY, "checking silent devices", |node| async move {
            devices::clock::store::check_due_devices(&node, node.settings.feature_settings()).await
        }),
        run_every(&node, CHECK_EVERY, "judging backups", |node| async move {
            posture::clock::store::judge_due_backups(&node).await
        }),
        run_every(&node, METER_EVERY, "writing what is metered", |node| async move {
            fold::store::write_usage(&node).await
        }),
        run_every(&node, FOLD_EVERY, "adding up figures", |node| async move { fold::store::fold_facts(&node).await }),
        run_every(&node, INDEX_EVERY, "indexing the software of devices", |node| async move {
            devices::software::store::index_tenants(&node).await
        }),
        run_every(&node, CHECK_EVERY, "measuring the queues", |node| async move { pages::measure_queue(&node).await }),
        run_every(&node, CLEAN_EVERY, "cleaning the log of deliveries", move |node| async move {
            webhooks::jobs::clean_deliveries(&node, delivery_retention_ms).await
        }),
        run_every(&node, CLEAN_EVERY, "cleaning the history of workflows", move |node| async move {
            workflows::jobs::clean_history(&node, run_retention_ms).await
        }),
        run_every(&node, CLEAN_EVERY, "forgetting ended machines", |node| async move {
            vms::ended::store::forget_ended_machines(&node).await
        }),
        run_every(&node, MEASURE_EVERY, "measuring the queue of figures", |node| async move {
            fold::store::measure_queue(&node).await
        }),
        run_every(&node, MEASURE_EVERY, "measuring the queue of workflows", |node| async move {
            workflows::jobs::measure_queue(&node).await
        }),
        run_every(&node, MEASURE_EVERY, "measuring the queue of deliveries", |node| async move {
            webhooks::jobs::measure_queue(&node).await
        }),
    );
}
