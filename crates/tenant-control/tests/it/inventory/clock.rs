//! What time alone changes: silence, and the end of a warranty. Each is told once, however many look at it.

use std::future::IntoFuture;

use futures_util::future::join_all;
use kernel::base::{DAY_MS, HOUR_MS};
use serde_json::{Value, json};

use crate::support::devices::{
    Agent, Body, FUSION, IngestKey, device_event_kinds, device_events, devices, only_device, report, reported,
};
use crate::support::{Server, Setup, Tenancy, over_http};

use super::{all, each, id, patient};

const OFFLINE_MS: i64 = 36 * HOUR_MS;
const STALE_MS: i64 = 30 * DAY_MS;

async fn last_told(server: &Server, tenancy: &Tenancy) -> (Value, Value) {
    let last = device_events(server, tenancy).await.pop().expect("an event");
    (last["type"].clone(), last["data"]["changes"].clone())
}

over_http! {
    async fn a_device_goes_offline_then_stale_and_comes_back(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        let begun = server.now();
        let wait_until = |after_ms: i64| server.advance(begun.plus_ms(after_ms).as_millis() - server.now().as_millis());
        let status = async || {
            server.look_at_devices().await;
            server.look_at_devices().await;
            let device = only_device(&server, &acme.admin).await;
            let field = |name: &str| device[name].as_str().unwrap().to_owned();
            (field("status"), field("health"), device["version"].as_i64().unwrap())
        };
        let is = |status: &str, health: &str, version: i64| (status.to_owned(), health.to_owned(), version);
        wait_until(OFFLINE_MS - 1);
        assert_eq!(status().await, is("online", "healthy", 1));
        wait_until(OFFLINE_MS);
        assert_eq!(status().await, is("offline", "healthy", 2));
        let told = device_events(&server, &acme).await;
        assert_eq!((told.len(), &told[1]["type"]), (2, &json!("device.offline")));
        assert_eq!((&told[1]["data"]["status"], &told[1]["data"]["last_seen_at"]), (&json!("offline"), &json!(begun)));
        wait_until(STALE_MS - 1);
        assert_eq!(status().await, is("offline", "healthy", 2));
        wait_until(STALE_MS);
        assert_eq!(status().await, is("stale", "needs_attention", 3));
        let (kind, changes) = last_told(&server, &acme).await;
        assert_eq!(kind, "device.updated");
        assert_eq!(changes["status"], json!({"from": "offline", "to": "stale"}));
        wait_until(100 * DAY_MS);
        assert_eq!(status().await, is("stale", "needs_attention", 3));
        reported(&server, &key, &agent.prolog(FUSION)).await;
        assert_eq!(status().await, is("online", "healthy", 4));
        let (kind, changes) = last_told(&server, &acme).await;
        assert_eq!((kind, &changes["status"]), (json!("device.updated"), &json!({"from": "stale", "to": "online"})));
        wait_until(100 * DAY_MS + OFFLINE_MS);
        assert_eq!(status().await, is("offline", "healthy", 5));
        let kinds = device_event_kinds(&server, &acme).await;
        assert_eq!(kinds, ["device.created", "device.offline", "device.updated", "device.updated", "device.offline"]);
        let history = only_device(&server, &acme.admin).await["history"].clone();
        let statuses: Vec<&Value> = history.as_array().unwrap().iter().map(|change| &change["changes"]["status"]["to"]).collect();
        assert_eq!(statuses, ["online", "offline", "stale", "online", "offline"]);
    }

    async fn a_device_that_nobody_looked_at_for_weeks_is_stale_at_once(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &Agent::named("web01").fusion()).await;
        server.advance(STALE_MS);
        server.look_at_devices().await;
        assert_eq!(only_device(&server, &acme.admin).await["status"], "stale");
        let kinds = device_event_kinds(&server, &acme).await;
        assert_eq!(kinds, ["device.created", "device.offline"], "whoever waits for its silence is told");
    }

    async fn every_sign_of_life_puts_the_silence_off(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        let signs: [Body; 5] = [agent.fusion(), agent.prolog(FUSION), agent.contact(), agent.partial(&["drives"]), agent.glpi()];
        for sign in &signs {
            reported(&server, &key, sign).await;
            server.advance(OFFLINE_MS - 1);
            server.look_at_devices().await;
            assert_eq!(only_device(&server, &acme.admin).await["status"], "online");
        }
        server.advance(1);
        server.look_at_devices().await;
        assert_eq!(only_device(&server, &acme.admin).await["status"], "offline");
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created", "device.offline"]);
    }

    async fn a_warranty_ends_with_its_last_day(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        let device = only_device(&server, &acme.admin).await;
        let end = |full: &mut tenant_control::features::devices::FullDevice| {
            full.device.warranty.end_date = Some("2026-01-31".to_owned());
        };
        server.edit_device(&acme, id(&device), end).await;
        // From the morning of the 15th to the last moment of the 31st, heard of every day.
        for _ in 0..16 {
            server.advance(DAY_MS);
            reported(&server, &key, &agent.prolog(FUSION)).await;
            server.look_at_devices().await;
        }
        server.advance(14 * HOUR_MS - 1);
        server.look_at_devices().await;
        let last_day = only_device(&server, &acme.admin).await;
        assert_eq!((&last_day["warranty"]["status"], &last_day["health"]), (&json!("active"), &json!("healthy")));
        server.advance(1);
        server.look_at_devices().await;
        server.look_at_devices().await;
        let over = only_device(&server, &acme.admin).await;
        assert_eq!(over["warranty"], json!({"start_date": null, "end_date": "2026-01-31", "status": "expired"}));
        assert_eq!((&over["health"], &over["status"], &over["version"]), (&json!("needs_attention"), &json!("online"), &json!(3)));
        let kinds = device_event_kinds(&server, &acme).await;
        assert_eq!(kinds, ["device.created", "device.updated", "device.updated"], "set, and ended once");
        for (query, found) in [("health=needs_attention", 1), ("health=healthy", 0)] {
            assert_eq!(devices(&server, &acme.admin, query).await.len(), found, "{query}");
        }
    }

    async fn many_devices_of_many_tenants_are_looked_at_in_one_round(setup: Setup) {
        let server = patient(setup).await;
        let mut tenancies = Vec::new();
        for slug in ["acme", "globex", "initech"] {
            let tenancy = server.tenant(slug).await;
            let key = server.ingest_key(&tenancy).await;
            for n in 0..3 {
                reported(&server, &key, &Agent::named(&format!("host-{n}")).fusion()).await;
            }
            tenancies.push(tenancy);
        }
        server.advance(OFFLINE_MS);
        server.look_at_devices().await;
        for tenancy in &tenancies {
            assert_eq!(each(&all(&server, tenancy).await, "status"), ["offline"; 3]);
            assert_eq!(device_events(&server, tenancy).await.len(), 6);
        }
    }

    async fn a_deleted_device_is_not_looked_at(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &Agent::named("web01").fusion()).await;
        let device = only_device(&server, &acme.admin).await;
        server.delete_device(&acme, id(&device)).await;
        server.advance(STALE_MS);
        server.look_at_devices().await;
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created", "device.deleted"]);
    }

    async fn those_who_look_at_once_tell_once(setup: Setup) {
        let server = patient(setup).await;
        tell_once(&[&server, &server, &server]).await;
    }

    async fn a_report_at_the_moment_of_the_look_leaves_the_device_online(setup: Setup) {
        let server = patient(setup).await;
        report_and_look(&server, &server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_that_look_at_once_tell_once() {
    let server = patient(Setup::postgres().await).await;
    let other = server.second_node().await;
    tell_once(&[&server, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_report_on_one_node_while_another_looks_leaves_the_device_online() {
    let server = patient(Setup::postgres().await).await;
    let other = server.second_node().await;
    report_and_look(&server, &other).await;
}

const HOSTS: usize = 8;

async fn hosts(server: &Server) -> (Tenancy, IngestKey) {
    let acme = server.tenant("acme").await;
    let key = server.ingest_key(&acme).await;
    for n in 0..HOSTS {
        reported(server, &key, &Agent::named(&format!("host-{n}")).fusion()).await;
    }
    (acme, key)
}

async fn tell_once(nodes: &[&Server]) {
    let server = nodes[0];
    let (acme, _) = hosts(server).await;
    for (after_ms, told) in [(OFFLINE_MS, 2 * HOSTS), (STALE_MS - OFFLINE_MS, 3 * HOSTS)] {
        server.advance(after_ms);
        join_all(nodes.iter().map(|node| node.look_at_devices())).await;
        assert_eq!(device_events(server, &acme).await.len(), told);
    }
    assert_eq!(each(&all(server, &acme).await, "version"), [&json!(3); HOSTS]);
}

/// Reports of every kind come while somebody finds their devices silent.
async fn report_and_look(reporting: &Server, looking: &Server) {
    let (acme, key) = hosts(reporting).await;
    for round in 1..=2 {
        reporting.advance(OFFLINE_MS);
        let body = |n: usize| {
            let agent = Agent::named(&format!("host-{n}"));
            [agent.fusion(), agent.prolog(FUSION), agent.glpi(), agent.contact()][n % 4].clone()
        };
        let calls = join_all((0..HOSTS).map(|n| report(reporting, &key, &body(n)).into_future()));
        let (answers, ()) = tokio::join!(calls, looking.look_at_devices());
        for answer in answers {
            answer.is(200);
        }
        looking.look_at_devices().await;
        assert_eq!(each(&all(reporting, &acme).await, "status"), ["online"; HOSTS], "in round {round}");
    }
    // Whoever was found silent was told of, and of its return as well.
    let mut left = 0_i64;
    for kind in device_event_kinds(reporting, &acme).await {
        left += match kind.as_str() {
            "device.offline" => 1,
            "device.updated" => -1,
            _ => 0,
        };
    }
    assert_eq!(left, 0);
}
