//! Deliveries when processes die and freeze, and when receivers are hostile: late or twice, but never lost.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::cluster::Cluster;
use crate::support::load::{Api, Load, Note, Revocation, settle};
use crate::support::postgres::fresh_database;
use crate::support::process::{Launch, Process, say, until};
use crate::support::receiver::{Behaviour, Gate, Received, Receiver};
use crate::support::workflows::WORKFLOWS;
use crate::webhooks::{DELIVERIES, WEBHOOKS};

const WRITERS: usize = 8;
const KILLS: usize = 4;
const WAIT_MAX: Duration = Duration::from_mins(2);

/// Retries within a test's patience.
fn sending(launch: Launch, timeout_seconds: u64) -> Launch {
    let schedule = ["100ms"; 40].join(",");
    launch
        .flag("--webhook-allow-cidr", "127.0.0.0/8")
        .flag("--webhook-schedule", &schedule)
        .flag("--webhook-timeout", &timeout_seconds.to_string())
}

async fn make_endpoint(api: &Api, url: &str, events: &str) -> String {
    let body = json!({"name": "Hook", "url": url, "events": [events]});
    let made = api.post(WEBHOOKS, &body).await.unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    made.text("id")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_on_the_embedded_store_loses_no_event() {
    let folder = TempDir::new().unwrap();
    kill_again_and_again("embedded store", &sending(Launch::on_folder(folder.path()), 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_on_postgres_loses_no_event() {
    let (folder, database) = (TempDir::new().unwrap(), fresh_database().await);
    kill_again_and_again("PostgreSQL", &sending(Launch::on_database(&database.url, folder.path()), 1)).await;
}

async fn kill_again_and_again(store: &str, launch: &Launch) {
    let receiver = Receiver::start().await;
    // Every third request fails, so that retries are under way as well.
    receiver.on_each("/hook", |nth, _| match nth % 6 {
        2 => Behaviour::Answer(503),
        5 => Behaviour::Reset,
        _ => Behaviour::Answer(204),
    });
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    make_endpoint(&server.api(&cookie), &receiver.url("/hook"), "*").await;
    let mut ledger: Vec<Note> = Vec::new();
    for cycle in 0..KILLS {
        let load = Load::start(&server.api(&cookie), &format!("cycle{cycle}"), WRITERS);
        load.progress(WRITERS + cycle * 37 % 60, WAIT_MAX).await;
        server.kill();
        let (mut notes, seen) = load.finish().await;
        assert_eq!(seen.wrong, Vec::<String>::new());
        server = launch.start().await;
        settle(&server.api(&cookie), &mut notes).await;
        ledger.append(&mut notes);
    }
    let mut wanted: HashSet<(String, String)> = HashSet::new();
    for note in &ledger {
        assert_eq!(note.revocation, Revocation::Acknowledged);
        for kind in ["api_key.created", "api_key.revoked"] {
            wanted.insert((kind.to_owned(), note.id.clone().unwrap()));
        }
    }
    until("every acknowledged change is told", WAIT_MAX, async || {
        let told: HashSet<(String, String)> = told(&receiver.received_on("/hook")).into_keys().collect();
        wanted.is_subset(&told).then_some(())
    })
    .await;
    let received = receiver.received_on("/hook");
    let told = told(&received);
    for (what, ids) in &told {
        assert_eq!(ids.len(), 1, "{what:?} has more than one event");
    }
    let bodies: HashMap<String, HashSet<Vec<u8>>> = received.iter().fold(HashMap::new(), |mut bodies, one| {
        bodies.entry(one.webhook_id().to_owned()).or_insert_with(HashSet::new).insert(one.body.clone());
        bodies
    });
    assert!(bodies.values().all(|bodies| bodies.len() == 1), "an event was sent with different bodies");
    say(&format!(
        "{store}: {KILLS} kills, {} events in {} requests, none lost",
        wanted.len(),
        receiver.received_on("/hook").len()
    ));
}

/// What was told, by kind and record, and under which ids.
fn told(received: &[Received]) -> HashMap<(String, String), HashSet<String>> {
    let mut told: HashMap<(String, String), HashSet<String>> = HashMap::new();
    for one in received {
        let body = one.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let what = (text(&body["type"]), text(&body["data"]["id"]));
        told.entry(what).or_default().insert(one.webhook_id().to_owned());
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_node_is_taken_over_and_its_late_writes_are_refused() {
    let database = fresh_database().await;
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let launch = sending(Launch::on_database(&database.url, folders[0].path()), 60);
    let frozen = launch.start().await;
    let cookie = launch.sign_in();
    let api = frozen.api(&cookie);
    let receiver = Receiver::start().await;
    let gate = Gate::closed();
    // The first requests are held until after the freeze, and then answered to nobody.
    let held = gate.clone();
    receiver
        .on_each("/hook", move |nth, _| if nth < 2 { Behaviour::Hold(held.clone()) } else { Behaviour::Answer(204) });
    let webhook = make_endpoint(&api, &receiver.url("/hook"), "*").await;
    for number in 0..20 {
        assert_eq!(api.create_key(&format!("key{number}")).await.unwrap().status, 201);
    }
    receiver.wait_for_on("/hook", 2).await;
    frozen.freeze().await;

    let second = sending(Launch::on_database(&database.url, folders[1].path()), 60);
    let other = second.secrets_file(&launch.own_secrets_file()).start().await;
    let api = other.api(&cookie);
    until("the other node has sent everything", WAIT_MAX, async || {
        let log = log(&api, &webhook).await;
        log.iter().all(|one| one["status"] == "succeeded").then_some(())
    })
    .await;
    let before = log(&api, &webhook).await;
    gate.open();
    frozen.thaw();
    answers(&frozen, &cookie).await;
    // It has had its answers by now; one more event shows that the lane still works.
    let seen = receiver.count_on("/hook");
    assert_eq!(api.create_key("after").await.unwrap().status, 201);
    receiver.wait_for_on("/hook", seen + 1).await;
    let after = until("the new event is noted", WAIT_MAX, async || {
        let log = log(&api, &webhook).await;
        (log.len() == 21 && log.iter().all(|one| one["status"] == "succeeded")).then_some(log)
    })
    .await;
    // What the frozen node had under way was noted once, by the node that took over.
    assert_eq!(after[1..], before[..]);
    assert!(before.iter().all(|one| one["attempts"].as_array().unwrap().len() == 1), "{before:#?}");
    let sent: HashSet<String> = receiver.received_on("/hook").iter().map(|one| one.webhook_id().to_owned()).collect();
    assert_eq!(sent.len(), 21);
}

/// Waits until a thawed process has caught up: it answers, and it has looked at its lanes.
async fn answers(process: &Process, cookie: &str) {
    let api = process.api(cookie);
    for _ in 0..3 {
        until("the thawed node answers", WAIT_MAX, async || (api.status("/readyz").await == Some(200)).then_some(()))
            .await;
        assert_eq!(api.get(WEBHOOKS).await.unwrap().status, 200);
    }
}

async fn log(api: &Api, webhook: &str) -> Vec<Value> {
    let page = api.get(&format!("{DELIVERIES}?webhook_id={webhook}&limit=200")).await.unwrap();
    assert_eq!(page.status, 200, "{}", page.body);
    page.body["data"].as_array().unwrap().clone()
}

/// A run that asks somebody, waits a little and makes a ticket.
async fn start_run(api: &Api, url: &str) -> String {
    let steps = json!([
        {"id": "call", "uses": "http.request", "with": {"method": "POST", "url": url}},
        {"id": "pause", "uses": "wait", "needs": ["call"], "with": {"seconds": 1}},
        {"id": "make", "uses": "ticket.create", "needs": ["pause"], "with": {"subject": "Made"}},
    ]);
    let definition = json!({"action": "create", "name": "Work", "on": {"manual": {}}, "steps": steps});
    let workflow = api.post(WORKFLOWS, &definition).await.unwrap();
    assert_eq!(workflow.status, 201, "{}", workflow.body);
    let run = api.post(WORKFLOWS, &json!({"workflow_id": workflow.text("id")})).await.unwrap();
    assert_eq!(run.status, 202, "{}", run.body);
    run.text("id")
}

/// What an endpoint has answered is remembered until it can be written down, and so is what a step of a workflow was.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_while_the_database_is_away_is_noted_when_it_is_back() {
    let (folder, cluster) = (TempDir::new().unwrap(), Cluster::start().await);
    let launch = sending(Launch::on_database(&cluster.url(), folder.path()), 60);
    let server = launch.start().await;
    let api = server.api(&launch.sign_in());
    let receiver = Receiver::start().await;
    let gate = Gate::closed();
    for path in ["/hook", "/call"] {
        receiver.on(path, [Behaviour::Hold(gate.clone())]);
    }
    let run = start_run(&api, &receiver.url("/call")).await;
    receiver.wait_for_on("/call", 1).await;
    let webhook = make_endpoint(&api, &receiver.url("/hook"), "api_key.*").await;
    for number in 0..2 {
        assert_eq!(api.create_key(&format!("key{number}")).await.unwrap().status, 201);
    }
    receiver.wait_for_on("/hook", 2).await;
    cluster.stop_at_once();
    gate.open();
    for what in ["deliveries", "steps"] {
        until("the answers could not be noted", WAIT_MAX, async || {
            server.stderr().contains(&format!("what became of {what} could not be noted")).then_some(())
        })
        .await;
    }
    cluster.start_again().unwrap();
    let noted = until("the answers are noted", WAIT_MAX, async || {
        let page =
            api.get(&format!("{DELIVERIES}?webhook_id={webhook}")).await.ok().filter(|page| page.status == 200)?;
        let log = page.body["data"].as_array()?.clone();
        log.iter().all(|one| one["status"] == "succeeded").then_some(log)
    })
    .await;
    assert_eq!(noted.len(), 2);
    assert!(noted.iter().all(|one| one["attempts"].as_array().unwrap().len() == 1), "{noted:#?}");
    assert_eq!(api.create_key("after").await.unwrap().status, 201);
    receiver.wait_for_acknowledged("/hook", 3).await;
    assert_eq!(receiver.count_on("/hook"), 3, "nothing was sent again");
    let run = until("the run is over", WAIT_MAX, async || {
        let run = api.get(&format!("{WORKFLOWS}?run_id={run}")).await.ok()?.body;
        (!run["ended_at"].is_null()).then_some(run)
    })
    .await;
    assert_eq!((&run["status"], receiver.count_on("/call")), (&json!("succeeded"), 1), "{run:#}");
}
