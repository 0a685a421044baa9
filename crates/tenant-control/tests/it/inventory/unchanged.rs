//! The same again: it is noted that the device is there, and nothing else happens.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use kernel::args;
use kernel::base::{Actor, HOUR_MS, sha256};
use serde_json::{Value, json};

use crate::support::devices::{
    Agent, Body, Codec, FUSION, GLPI, device, device_event_kinds, device_events, devices, only_device, reported,
};
use crate::support::{Server, over_http};

use super::{all, id, patient};

const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";

/// A device without when it was last heard of.
fn but_seen(device: &Value) -> Value {
    let mut device = device.clone();
    for field in ["last_seen_at", "inventory_at"] {
        assert!(device.as_object_mut().unwrap().remove(field).is_some());
    }
    device
}

/// The agent ran again, later.
fn again(agent: &Agent) -> Agent {
    Agent { log_date: "2026-01-16 11:11:11".to_owned(), ..agent.clone() }
}

/// And what else it tells is different, of which nothing is kept.
fn busy(agent: &Agent) -> Agent {
    let mut agent = again(agent);
    "<ENVS><KEY>OTHER</KEY><VAL>value</VAL></ENVS><PROCESSES><CMD>other</CMD></PROCESSES>"
        .clone_into(&mut agent.more_xml);
    agent
}

over_http! {
    async fn the_same_inventory_moves_nothing_but_when_it_came(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        let ways: [(&str, Body, Body); 7] = [
            ("fusion", agent.fusion(), agent.fusion()),
            ("the day alone", agent.fusion(), again(&agent).fusion()),
            ("what is dropped", agent.fusion(), busy(&agent).fusion()),
            ("ocs", agent.ocs(), again(&agent).ocs()),
            ("glpi", agent.glpi(), again(&agent).glpi()),
            ("with an agent id", agent.glpi().agent_id(AGENT_ID), again(&agent).glpi().agent_id(AGENT_ID)),
            ("in another codec", agent.glpi(), agent.glpi().packed(Codec::Gzip)),
        ];
        for (what, first, second) in ways {
            reported(&server, &key, &first).await;
            let before = only_device(&server, &acme.admin).await;
            let told = device_events(&server, &acme).await.len();
            for _ in 0..2 {
                server.advance(60_000);
                reported(&server, &key, &second).await;
                let after = only_device(&server, &acme.admin).await;
                let now = json!(server.now());
                assert_eq!((&after["last_seen_at"], &after["inventory_at"]), (&now, &now), "{what}");
                assert_eq!(but_seen(&after), but_seen(&before), "{what}");
            }
            assert_eq!(device_events(&server, &acme).await.len(), told, "{what}");
            let since = before["updated_at"].as_str().unwrap();
            let changed = devices(&server, &acme.admin, &format!("updated_since={since}")).await;
            assert_eq!(changed.len(), 1, "{what}");
            assert_eq!(changed[0]["updated_at"], before["updated_at"], "{what}");
        }
    }

    async fn the_same_machine_in_other_words_is_no_change_either(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        let before = only_device(&server, &acme.admin).await;
        let mut other = agent.clone().software(&[("openssl", "3.0.16"), ("bash", "5.2.15")]);
        other.more_xml = String::from("<PRINTERS><NAME>Laser</NAME></PRINTERS>");
        // Agents count the time of the boot back, and are seconds off.
        "2026-01-15 07:59:52".clone_into(&mut other.boot_time);
        server.advance(60_000);
        reported(&server, &key, &other.fusion()).await;
        let after = only_device(&server, &acme.admin).await;
        assert_eq!(but_seen(&after), but_seen(&before));
        assert_eq!(after["inventory_at"], json!(server.now()));
    }

    async fn a_question_tells_that_the_device_is_there_and_not_what_it_is(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        for question in [agent.prolog(FUSION), agent.contact(), agent.contact().agent_id(AGENT_ID)] {
            reported(&server, &key, &question).await;
        }
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new(), "a question makes no device");
        reported(&server, &key, &agent.glpi().agent_id(AGENT_ID)).await;
        let before = only_device(&server, &acme.admin).await;
        let moved = agent.clone().device_id("another installation");
        for question in [agent.prolog(FUSION), agent.contact(), moved.contact().agent_id(AGENT_ID)] {
            server.advance(60_000);
            reported(&server, &key, &question).await;
            let after = only_device(&server, &acme.admin).await;
            assert_eq!(after["last_seen_at"], json!(server.now()));
            assert_eq!(after["inventory_at"], before["inventory_at"]);
            assert_eq!(but_seen(&after), but_seen(&before));
        }
        server.advance(60_000);
        reported(&server, &key, &moved.contact()).await;
        assert_ne!(only_device(&server, &acme.admin).await["last_seen_at"], json!(server.now()), "nobody knows who that is");
    }

    async fn after_a_partial_inventory_the_last_whole_one_is_news(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let whole = Agent::named("web01");
        let changed = whole.clone().software(&[("bash", "5.3")]);
        for _ in 0..2 {
            reported(&server, &key, &whole.glpi()).await;
            let versions = software(&only_device(&server, &acme.admin).await);
            assert_eq!(versions, ["bash 5.2.15", "openssl 3.0.16"]);
            reported(&server, &key, &changed.partial(&["softwares"])).await;
            assert_eq!(software(&only_device(&server, &acme.admin).await), ["bash 5.3"]);
        }
        // And the same partial one again is no change.
        let before = only_device(&server, &acme.admin).await;
        server.advance(60_000);
        reported(&server, &key, &changed.partial(&["softwares"])).await;
        let after = only_device(&server, &acme.admin).await;
        assert_eq!(but_seen(&after), but_seen(&before));
        assert_eq!(after["inventory_at"], json!(server.now()));
    }

    async fn an_older_inventory_that_comes_again_is_news(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let (old, mut new) = (Agent::named("web01"), Agent::named("web01"));
        new.memory_mib = 32_768;
        for agent in [&old, &new, &old, &new] {
            reported(&server, &key, &agent.fusion()).await;
            let device = only_device(&server, &acme.admin).await;
            assert_eq!(device["memory_bytes"], agent.memory_mib << 20);
        }
        assert_eq!(device_event_kinds(&server, &acme).await.len(), 4);
    }

    async fn what_an_older_reader_took_for_the_same_is_read_again(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01");
        agent.software = (0..20).map(|n| (format!("package-{n}"), "1".to_owned())).collect();
        // Without what moves from one run to the next, all of the body counts.
        let mut report = agent.json();
        report["content"].as_object_mut().unwrap().remove("accesslog");
        report["content"]["operatingsystem"].as_object_mut().unwrap().remove("boot_time");
        let plain = report.to_string();
        let body = Body::new(GLPI, plain.clone());
        reported(&server, &key, &body).await;
        let told = only_device(&server, &acme.admin).await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let stored: String = db.get_one("SELECT digest FROM device_reports WHERE tenant_id = $1", args![]).await.unwrap();
        // As digests were before they told which reader they are of.
        let older = BASE64.encode(sha256(format!("\n\n{plain}").as_bytes()));
        for (digest, is_read) in [(stored, false), (older, true)] {
            server.edit_device(&acme, id(&told), |full| full.device.memory_bytes = Some(1)).await;
            let sql = "UPDATE device_reports SET digest = $2 WHERE tenant_id = $1";
            db.write(async move |tx| tx.exec(sql, args![digest]).await).await.unwrap();
            reported(&server, &key, &body).await;
            let device = only_device(&server, &acme.admin).await;
            let expected = if is_read { told["memory_bytes"].clone() } else { json!(1) };
            assert_eq!(device["memory_bytes"], expected);
        }
    }

    async fn a_device_that_was_offline_comes_back_by_whatever_is_heard_of_it(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        let mut versions = 1;
        for sign in [agent.fusion(), busy(&agent).fusion(), agent.prolog(FUSION), agent.contact(), agent.glpi()] {
            server.advance(37 * HOUR_MS);
            server.look_at_devices().await;
            let silent = only_device(&server, &acme.admin).await;
            assert_eq!((&silent["status"], &silent["version"]), (&json!("offline"), &json!(versions + 1)));
            reported(&server, &key, &sign).await;
            let back = device(&server, &acme.admin, id(&silent)).await;
            assert_eq!((&back["status"], &back["version"]), (&json!("online"), &json!(versions + 2)));
            assert_eq!((&back["last_seen_at"], &back["updated_at"]), (&json!(server.now()), &json!(server.now())));
            let told = device_events(&server, &acme).await.pop().unwrap();
            assert_eq!(told["type"], "device.updated");
            assert_eq!(told["data"]["changes"]["status"], json!({"from": "offline", "to": "online"}));
            versions += 2;
        }
        let kinds = device_event_kinds(&server, &acme).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "device.offline").count(), 5);
        assert_eq!(kinds.len(), 11);
    }
}

/// A write of the tenant is under way and takes its time: what changes nothing does not wait for it. In the embedded store
/// there is one writer at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_again_waits_for_nobody() {
    let server = Server::postgres().await;
    let acme = server.tenant("acme").await;
    let key = server.ingest_key(&acme).await;
    let agent = Agent::named("web01");
    reported(&server, &key, &agent.fusion()).await;
    let held = server.hold_writes(acme.tenant.id).await;
    for same in [agent.fusion(), again(&agent).fusion(), agent.prolog(FUSION), agent.contact()] {
        let sent = tokio::time::timeout(Duration::from_secs(30), reported(&server, &key, &same));
        sent.await.expect("an answer, though the tenant's clock is held");
    }
    drop(held);
}

fn software(device: &Value) -> Vec<String> {
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let name = |one: &Value| format!("{} {}", text(one, "name"), text(one, "version"));
    device["software"].as_array().unwrap().iter().map(name).collect()
}
