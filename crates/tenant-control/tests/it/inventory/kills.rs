//! `kill -9` while machines report: what was acknowledged is there, and who reports again is no second device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::devices::{Agent, Body, DEVICES, INGEST, IngestKey};
use crate::support::postgres::fresh_database;
use crate::support::process::{Launch, Process};

const MACHINES: usize = 60;
const CALLERS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_on_the_embedded_store_has_every_device_once() {
    let folder = TempDir::new().unwrap();
    kill_and_report_again(&Launch::on_folder(folder.path()), &[7, 19]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_on_postgres_has_every_device_once() {
    let (folder, database) = (TempDir::new().unwrap(), fresh_database().await);
    kill_and_report_again(&Launch::on_database(&database.url, folder.path()), &[19]).await;
}

fn machine(cycle: usize, n: usize) -> Body {
    let mut agent = Agent::named(&format!("host-{n}"));
    // Each time something is new, so that each report is a change.
    agent.memory_mib = 1_024 * (1 + i64::try_from(cycle).unwrap());
    agent.fusion()
}

struct Callers {
    url: String,
    key: IngestKey,
    client: reqwest::Client,
    next: AtomicUsize,
    acknowledged: AtomicUsize,
}

impl Callers {
    fn new(server: &Process, key: &IngestKey) -> Arc<Callers> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("http://{}{INGEST}", server.address());
        Arc::new(Callers {
            url,
            key: key.clone(),
            client,
            next: AtomicUsize::new(0),
            acknowledged: AtomicUsize::new(0),
        })
    }

    /// Whether the report was acknowledged; nothing if nobody answered.
    async fn report(&self, body: &Body) -> Option<bool> {
        let call = self.client.post(&self.url).header("authorization", self.key.basic());
        let call = call.header("content-type", body.media_type()).body(body.codec.pack(&body.plain));
        Some(call.send().await.ok()?.status() == 200)
    }

    /// Reports of machines that nobody else has taken, until all are or the server is gone. Returns those acknowledged.
    async fn work(self: Arc<Self>, cycle: usize) -> Vec<usize> {
        let mut done = Vec::new();
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= MACHINES {
                return done;
            }
            match self.report(&machine(cycle, n)).await {
                Some(true) => done.push(n),
                Some(false) => panic!("a refusal"),
                None => return done,
            }
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Kills the process each time so many reports are acknowledged.
async fn kill_and_report_again(launch: &Launch, kills: &[usize]) {
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    let made = launch.run(&["admin", "ingest-key", "create", "--tenant", "default"]);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let key = IngestKey { id: text("id"), secret: text("secret") };
    for (cycle, progress) in kills.iter().copied().enumerate() {
        let callers = Callers::new(&server, &key);
        let mut working = JoinSet::new();
        for _ in 0..CALLERS {
            working.spawn(callers.clone().work(cycle));
        }
        while callers.acknowledged.load(Ordering::Relaxed) < progress {
            tokio::task::yield_now().await;
        }
        server.kill();
        let acknowledged: Vec<usize> = working.join_all().await.into_iter().flatten().collect();
        server = launch.start().await;
        let found = list(&server, &cookie).await;
        for n in &acknowledged {
            let (name, memory) = (format!("host-{n}"), (1_024_i64 * (1 + i64::try_from(cycle).unwrap())) << 20);
            let same: Vec<&Value> = found.iter().filter(|device| device["hostname"] == *name).collect();
            assert_eq!(same.len(), 1, "{name}");
            assert_eq!(same[0]["memory_bytes"], memory, "{name} was acknowledged");
        }
        assert!(acknowledged.len() < MACHINES, "nothing was under way: the test shows nothing");
        // Every agent comes again at its next hour.
        let callers = Callers::new(&server, &key);
        assert_eq!(callers.clone().work(cycle).await.len(), MACHINES);
        let found = list(&server, &cookie).await;
        let mut names: Vec<&str> = found.iter().map(|device| device["hostname"].as_str().unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((found.len(), names.len()), (MACHINES, MACHINES), "each once");
        assert!(found.iter().all(|device| device["version"].as_u64() == Some(cycle as u64 + 1)), "each change once");
    }
}

async fn list(server: &Process, cookie: &str) -> Vec<Value> {
    let url = format!("http://{}{DEVICES}?limit=200", server.address());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let page: Value = client.get(url).header("cookie", cookie).send().await.unwrap().json().await.unwrap();
    page["data"].as_array().unwrap_or_else(|| panic!("{page}")).clone()
}
