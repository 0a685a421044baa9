//! `/internal/ingest/inventory`: what agents say, what they are answered, and what becomes of it.

mod agents;
mod changes;
mod clock;
mod clones;
mod counters;
mod fleet;
mod hostile;
pub mod imports;
mod kills;
mod matching;
mod merging;
mod organizations;
mod partials;
mod recorded;
mod refused;
mod scans;
mod secrets;
mod software;
mod together;
mod told;
mod unchanged;
mod wild;

use kernel::base::DAY_MS;
use serde_json::Value;

use crate::support::devices::{Body, IngestKey, devices, reported};
use crate::support::{Server, Setup, Tenancy};

/// A server whose sessions outlast the weeks that pass in a test.
async fn patient(mut setup: Setup) -> Server {
    setup.settings.session_idle_ms = 1_000 * DAY_MS;
    setup.settings.session_absolute_ms = 1_000 * DAY_MS;
    setup.start().await
}

/// Every device of a tenant, the oldest first.
async fn all(server: &Server, tenancy: &Tenancy) -> Vec<Value> {
    let mut all = devices(server, &tenancy.admin, "").await;
    all.reverse();
    all
}

/// A tenant with a key of its own, and its devices after these reports, the oldest first.
async fn after(server: &Server, slug: &str, bodies: &[&Body]) -> Vec<Value> {
    let tenancy = server.tenant(slug).await;
    let key = server.ingest_key(&tenancy).await;
    send(server, &key, bodies).await;
    all(server, &tenancy).await
}

async fn send(server: &Server, key: &IngestKey, bodies: &[&Body]) {
    for body in bodies {
        reported(server, key, body).await;
    }
}

fn id(device: &Value) -> &str {
    device["id"].as_str().expect("an id")
}

/// One field of each.
fn each<'a>(devices: &'a [Value], field: &str) -> Vec<&'a Value> {
    devices.iter().map(|device| &device[field]).collect()
}
