//! The log is taken away from under a running server: its reader goes, stalls, or its disk is full.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::process::{Launch, Process, until};

/// What the contract gives a process to end in.
const EXIT_MAX: Duration = Duration::from_secs(25);
const WAIT_MAX: Duration = Duration::from_mins(1);

fn launch(folder: &TempDir) -> Launch {
    Launch::on_folder(folder.path()).logging("info")
}

/// Every request is answered and every write is there, whatever becomes of its line.
async fn works(launch: &Launch, server: &Process, requests: usize) {
    let api = server.api(&launch.sign_in());
    for n in 0..requests {
        assert_eq!(api.status("/healthz").await, Some(200), "request {n}");
    }
    for n in 0..3 {
        let made = api.create_key(&format!("key {n}")).await;
        assert_eq!(made.expect("an answer").status, 201, "key {n}");
        assert_eq!(api.keys(&format!("key {n}")).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_gone_costs_lines_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let launch = launch(&folder).flag("--metrics-listen", "127.0.0.1:0").flag("--log-format", "json");
    let (mut server, log) = launch.spawn_logging_to(Stdio::piped());
    let mut log = BufReader::new(log.unwrap()).lines();
    let metrics = log.find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line.unwrap()).expect("a line of JSON");
        Some(format!("http://{}/metrics", line.get("bound")?.as_str()?))
    });
    drop(log);
    server.serves().await;
    works(&launch, &server, 20).await;
    let metrics = metrics.expect("the address of the metrics");
    until("lost lines are counted", WAIT_MAX, async || {
        let text = reqwest::get(&metrics).await.ok()?.text().await.ok()?;
        let count = text.lines().find_map(|line| line.strip_prefix("log_lines_dropped_total "))?;
        (count.parse::<u64>().expect("a number") > 20).then_some(())
    })
    .await;
    server.terminate();
    assert_eq!(server.exit(EXIT_MAX).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_log_does_not_keep_a_server_from_starting() {
    let folder = TempDir::new().unwrap();
    let launch = launch(&folder);
    let full = OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
    let (mut server, _) = launch.spawn_logging_to(full.into());
    server.serves().await;
    works(&launch, &server, 20).await;
    server.terminate();
    assert_eq!(server.exit(EXIT_MAX).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stalls_delays_neither_requests_nor_the_end() {
    let folder = TempDir::new().unwrap();
    let launch = launch(&folder);
    let (mut server, log) = launch.spawn_logging_to(Stdio::piped());
    server.serves().await;
    // A pipe holds 64 KiB, which is less than 400 lines.
    works(&launch, &server, 600).await;
    server.terminate();
    assert_eq!(server.exit(EXIT_MAX).await.code(), Some(0));
    drop(log);
}
