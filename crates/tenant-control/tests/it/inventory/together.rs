//! Reports of one machine that come at the same time, also on two nodes: one device, and every change told once.

use std::future::IntoFuture;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::devices::{Agent, Body, IngestKey, device_events, only_device, report};
use crate::support::{Server, over_http};

use super::{all, each};

const CALLERS: usize = 16;
const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";

over_http! {
    async fn callers_at_once_with_one_new_machine_make_one_device(server: Server) {
        one_device(&[&server]).await;
    }

    async fn agents_at_once_on_one_new_machine_make_one_device(server: Server) {
        many_agents(&[&server]).await;
    }

    async fn many_new_machines_at_once_are_as_many_devices(server: Server) {
        many_machines(&[&server]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_at_once_on_two_nodes_make_one_device() {
    let server = Server::postgres().await;
    let other = server.second_node().await;
    one_device(&[&server, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn agents_at_once_on_two_nodes_make_one_device() {
    let server = Server::postgres().await;
    let other = server.second_node().await;
    many_agents(&[&server, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_new_machines_at_once_on_two_nodes_are_as_many_devices() {
    let server = Server::postgres().await;
    let other = server.second_node().await;
    many_machines(&[&server, &other]).await;
}

/// Sends all of them at once, each to another node than its neighbours.
async fn at_once(nodes: &[&Server], key: &IngestKey, bodies: &[Body]) {
    let calls = bodies.iter().enumerate().map(|(n, body)| report(nodes[n % nodes.len()], key, body).into_future());
    for answer in join_all(calls).await {
        answer.is(200);
    }
}

/// The very same, and then each with another change.
async fn one_device(nodes: &[&Server]) {
    let server = nodes[0];
    let acme = server.tenant("acme").await;
    let key = server.ingest_key(&acme).await;
    let mut agent = Agent::named("web01");
    at_once(nodes, &key, &vec![agent.fusion(); CALLERS]).await;
    let device = only_device(server, &acme.admin).await;
    assert_eq!(device["version"], 1, "it was the same each time");
    let mut change = |n: usize| {
        agent.memory_mib = 1_024 + i64::try_from(n).unwrap();
        agent.glpi()
    };
    let bodies: Vec<Body> = (0..CALLERS).map(&mut change).collect();
    at_once(nodes, &key, &bodies).await;
    let device = only_device(server, &acme.admin).await;
    assert_eq!(device["version"], json!(1 + CALLERS));
    // Each change goes on from where the one before has led to.
    let events = device_events(server, &acme).await;
    assert_eq!(events.len(), 1 + CALLERS);
    let changes: Vec<&Value> = events[1..].iter().map(|event| &event["data"]["changes"]["memory_bytes"]).collect();
    for pair in changes.windows(2) {
        assert_eq!(pair[0]["to"], pair[1]["from"]);
    }
    assert_eq!(changes[CALLERS - 1]["to"], device["memory_bytes"]);
    let told: Vec<&Value> = events[1..].iter().map(|event| &event["data"]["version"]).collect();
    let versions: Vec<Value> = (2..2 + CALLERS).map(|version| json!(version)).collect();
    assert_eq!(told, versions.iter().collect::<Vec<_>>());
    let history = device["history"].as_array().unwrap();
    let kept: Vec<&Value> = history[1..].iter().map(|change| &change["changes"]["memory_bytes"]).collect();
    assert_eq!(kept, changes);
}

/// Three agents of one machine that are started at once: all that they share is the machine.
async fn many_agents(nodes: &[&Server]) {
    let server = nodes[0];
    let acme = server.tenant("acme").await;
    let key = server.ingest_key(&acme).await;
    let agent = Agent::named("web01").uuid("4c4c4544-0042-3310-8051-b4c04f4e3132");
    let installed = |n: usize| {
        let agent = agent.clone().device_id(&format!("installation {n}"));
        [agent.fusion(), agent.ocs(), agent.glpi(), agent.glpi().agent_id(AGENT_ID)][n % 4].clone()
    };
    let bodies: Vec<Body> = (0..12).map(installed).collect();
    at_once(nodes, &key, &bodies).await;
    at_once(nodes, &key, &bodies).await;
    let found = all(server, &acme).await;
    assert_eq!(found.len(), 1, "{:?}", each(&found, "agent"));
    let kinds: Vec<Value> = device_events(server, &acme).await.into_iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "device.created").count(), 1);
}

async fn many_machines(nodes: &[&Server]) {
    let server = nodes[0];
    let acme = server.tenant("acme").await;
    let key = server.ingest_key(&acme).await;
    let bodies: Vec<Body> = (0..CALLERS).map(|n| Agent::named(&format!("host-{n}")).fusion()).collect();
    let twice: Vec<Body> = bodies.iter().chain(&bodies).cloned().collect();
    at_once(nodes, &key, &twice).await;
    let found = all(server, &acme).await;
    assert_eq!(found.len(), CALLERS);
    assert_eq!(each(&found, "version"), [&json!(1); CALLERS]);
    assert_eq!(device_events(server, &acme).await.len(), CALLERS);
}
