//! Workflows when the process is killed, again and again: every run that was acknowledged comes to its right end, what it does
//! inside the platform is done once, and what it sends is sent at least once under the same name.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::load::Api;
use crate::support::postgres::fresh_database;
use crate::support::process::{Launch, say, until};
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::WORKFLOWS;

const RUNS_OF_CYCLE: usize = 24;
const WAIT_MAX: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_on_the_embedded_store_finishes_what_its_workflows_began() {
    let folder = TempDir::new().unwrap();
    kill_again_and_again("embedded store", &Launch::on_folder(folder.path()), 5).await;
}

/// Once: what a killed node had is taken up when its lease has ended, which takes longer than all the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_on_postgres_finishes_what_its_workflows_began() {
    let (folder, database) = (TempDir::new().unwrap(), fresh_database().await);
    kill_again_and_again("PostgreSQL", &Launch::on_database(&database.url, folder.path()), 1).await;
}

fn definition(url: &str) -> Value {
    let told = json!({"run": "${{ run.id }}", "ticket": "${{ steps.make.output.number }}"});
    let comment = json!({"ticket_id": "${{ steps.make.output.id }}", "body": "Told.", "public": false});
    json!({
        "action": "create", "name": "Work", "on": {"manual": {}},
        "steps": [
            {"id": "make", "uses": "ticket.create", "with": {"subject": "Made", "tags": ["${{ run.id }}"]}},
            {"id": "tell", "uses": "http.request", "needs": ["make"], "retry": {"max": 10, "backoff_seconds": 1},
                "with": {"method": "POST", "url": url, "body": told}},
            {"id": "comment", "uses": "ticket.comment", "needs": ["make", "tell"], "with": comment},
        ],
    })
}

async fn kill_again_and_again(store: &str, launch: &Launch, kills: usize) {
    let receiver = Receiver::start().await;
    // Some fail, so that retries are under way as well.
    receiver.on_each("/told", |nth, _| match nth % 9 {
        4 => Behaviour::Answer(503),
        7 => Behaviour::Reset,
        _ => Behaviour::Answer(204),
    });
    let launch = launch.clone().flag("--webhook-allow-cidr", "127.0.0.0/8");
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    let made = server.api(&cookie).post(WORKFLOWS, &definition(&receiver.url("/told"))).await.unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let workflow = made.text("id");
    let mut acknowledged: Vec<String> = Vec::new();
    for cycle in 0..kills {
        let before = receiver.count();
        acknowledged.extend(start_runs(&server.api(&cookie), &workflow).await);
        // In the middle of it, a little further each time.
        receiver.wait_for_on("/told", before + 1 + cycle * 4).await;
        server.kill();
        server = launch.start().await;
    }
    let api = server.api(&cookie);
    for run in &acknowledged {
        let run = until("a run is over", WAIT_MAX, async || {
            let run = api.get(&format!("{WORKFLOWS}?run_id={run}")).await.ok()?.body;
            (!run["ended_at"].is_null()).then_some(run)
        })
        .await;
        assert_eq!(run["status"], "succeeded", "{run:#}");
    }
    let sent = sent(&receiver);
    for run in &acknowledged {
        let tickets = api.get(&format!("/api/psa/tickets?tag={run}")).await.unwrap().body;
        let tickets = tickets["data"].as_array().unwrap();
        assert_eq!(tickets.len(), 1, "{run}: {tickets:?}");
        assert_eq!(tickets[0]["comment_count"], 1, "{run}");
        let bodies = sent.get(&format!("{run}.tell")).unwrap_or_else(|| panic!("{run} told nobody"));
        assert_eq!(bodies.len(), 1, "{run}: the same each time");
    }
    let requests = receiver.count();
    say(&format!("{store}: {kills} kills, {} runs in {requests} requests, each done once", acknowledged.len()));
}

async fn start_runs(api: &Api, workflow: &str) -> Vec<String> {
    let mut calls = JoinSet::new();
    for _ in 0..RUNS_OF_CYCLE {
        let (api, body) = (api.clone(), json!({"workflow_id": workflow}));
        calls.spawn(async move { api.post(WORKFLOWS, &body).await.unwrap() });
    }
    // A database that is starved may refuse some, which are promised nothing.
    let (begun, refused): (Vec<_>, Vec<_>) =
        calls.join_all().await.into_iter().partition(|answer| answer.status == 202);
    assert!(begun.len() > RUNS_OF_CYCLE / 2 && refused.iter().all(|answer| answer.status == 503), "{}", begun.len());
    begun.iter().map(|answer| answer.text("id")).collect()
}

/// The bodies that were sent under each name.
fn sent(receiver: &Receiver) -> HashMap<String, HashSet<Vec<u8>>> {
    receiver.received_on("/told").iter().fold(HashMap::new(), |mut sent, one| {
        let name = one.headers.get("idempotency-key").expect("a key").clone();
        sent.entry(name).or_default().insert(one.body.clone());
        sent
    })
}
