//! An account of the stub as a tenant of the server has it: a provider, which is synced when it is asked to.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use kernel::base::Timestamp;
use serde_json::{Value, json};

use super::stub::CloudStub;
use crate::harness::Outcome;
use crate::server::{Server, get, make_key_of, post};

pub const VMS_PATH: &str = "/api/cloud/vms";
const PROVIDERS_PATH: &str = "/api/cloud/providers";

/// The stub is one host for all regions, each of which has a bucket of its own at AWS.
const REQUESTS_VARIABLE: (&str, &str) = ("TENANT_CONTROL_TEST_CLOUD_REQUESTS_PER_SECOND", "1000");
/// So rarely that no sync begins by itself.
const SYNC_MINUTES: &str = "1440";
/// Longer than any sync that is worth measuring.
const SYNC_MAX: Duration = Duration::from_mins(3);
/// How often it is asked whether a sync has ended: a twentieth of what the shortest one can take. The answers
/// are asked for on the machine that is measured, so not more often.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// The most that a list shows.
pub const LISTED_MAX: usize = 200;

/// The release binary, which takes the stub for AWS.
pub fn start_server(data: &Path, stub: &CloudStub) -> Outcome<Server> {
    let endpoint = stub.endpoint();
    let more = ["--cloud-endpoint", endpoint.as_str(), "--cloud-sync-minutes", SYNC_MINUTES];
    Server::start_with_variables(data, &more, &[REQUESTS_VARIABLE])
}

pub struct BenchProvider {
    server: SocketAddr,
    pub id: String,
    /// The API key of its tenant.
    pub key: String,
}

impl BenchProvider {
    /// Makes a tenant and its provider, which is verified and synced at once.
    pub fn create(
        server: &Server,
        data: &Path,
        slug: &str,
        access_key_id: &str,
        regions: &[&str],
    ) -> Outcome<BenchProvider> {
        let key = make_key_of(server, data, slug)?;
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let body = json!({
            "name": "Bench", "kind": "aws", "regions": regions,
            "credentials": {"access_key_id": access_key_id, "secret_access_key": secret},
        });
        let made = post(server.address, PROVIDERS_PATH, &key, &body.to_string())?;
        if made.status != 201 {
            return Err(format!("no provider was made: {}", made.body).into());
        }
        let record: Value = serde_json::from_str(&made.body)?;
        let id = record["id"].as_str().ok_or("a provider without an id")?.to_owned();
        Ok(BenchProvider { server: server.address, id, key })
    }

    pub fn request_sync(&self) -> Outcome {
        let body = json!({"action": "sync", "id": self.id});
        let asked = post(self.server, PROVIDERS_PATH, &self.key, &body.to_string())?;
        if asked.status == 202 { Ok(()) } else { Err(format!("no sync was begun: {}", asked.body).into()) }
    }

    /// Waits until the last sync of every region has begun at this moment or later, and ended. Returns when that was seen.
    pub fn wait_for_sync(&self, since: Timestamp) -> Outcome<Instant> {
        let started = Instant::now();
        loop {
            let provider = self.read(&format!("{PROVIDERS_PATH}?id={}", self.id))?;
            let seen = Instant::now();
            let has_failed = matches!(provider["status"].as_str(), Some("degraded" | "invalid" | "error"));
            if has_failed || provider["last_sync_error"].is_string() {
                return Err(format!("the provider failed: {provider}").into());
            }
            if provider["last_sync_at"].as_str().and_then(Timestamp::parse).is_some_and(|at| at >= since) {
                return Ok(seen);
            }
            if started.elapsed() > SYNC_MAX {
                return Err(format!("the sync did not end: {provider}").into());
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// How many machines have this state, or any without one.
    pub fn count_machines(&self, state: Option<&str>) -> Outcome<usize> {
        let summary = self.read(&format!("{VMS_PATH}?view=summary"))?;
        let counts = summary["state"].as_array().ok_or("a summary without states")?;
        let of_state = counts.iter().filter(|count| state.is_none() || count["value"].as_str() == state);
        Ok(usize::try_from(of_state.filter_map(|count| count["count"].as_u64()).sum::<u64>())?)
    }

    /// How many machines have changed at this moment or later, up to [`LISTED_MAX`].
    pub fn count_changes(&self, since: Timestamp) -> Outcome<usize> {
        let page = self.read(&format!("{VMS_PATH}?updated_since={since}&limit={LISTED_MAX}"))?;
        Ok(page["data"].as_array().ok_or("a page without data")?.len())
    }

    fn read(&self, path: &str) -> Outcome<Value> {
        let answer = get(self.server, path, &format!("Authorization: Bearer {}\r\n", self.key))?;
        if answer.status != 200 {
            return Err(format!("{} {}: {path}", answer.status, answer.body).into());
        }
        Ok(serde_json::from_str(&answer.body)?)
    }
}
