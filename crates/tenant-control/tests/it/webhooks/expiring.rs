//! `api_key.expiring`, and that whatever can be subscribed to fires.

use std::collections::BTreeSet;

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};
use serde_json::{Value, json};
use tenant_control::features::api_keys::jobs::announce_expiry;

use super::EVENTS;
use super::drive::{act, hook, id, patient, run};
use crate::organizations::{self, ORGANIZATIONS};
use crate::support::backups;
use crate::support::clouds::{Asked, add_clouds};
use crate::support::devices::{Agent, only_device, reported};
use crate::support::people::KEYS;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows;
use crate::support::{Key, Server, Setup, Tenancy, over_http};
use crate::tickets::TICKETS;
use crate::users::USERS;

async fn announce(server: &Server) {
    announce_expiry(&server.app).await.expect("telling of keys that expire");
    run(server).await;
}

async fn key_for(server: &Server, tenancy: &Tenancy, days: i64) -> Key {
    server.key_with(tenancy, &json!({"name": "Key", "scopes": ["tickets:read"], "expires_days": days})).await
}

/// The keys that were told of, in order.
fn told(receiver: &Receiver) -> Vec<Value> {
    receiver.received().iter().map(|request| request.json()["data"]["id"].clone()).collect()
}

over_http! {
    async fn the_end_of_a_key_is_told_once_7_days_before(setup: Setup) {
        let server = patient(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["api_key.expiring"]})).await;
        let key = key_for(&server, &acme, 30).await;
        key_for(&server, &acme, 60).await;
        key_for(&server, &globex, 30).await;
        announce(&server).await;
        server.advance(23 * DAY_MS - 1);
        announce(&server).await;
        assert_eq!(receiver.count(), 0, "not earlier");
        server.advance(1);
        announce(&server).await;
        announce(&server).await;
        assert_eq!(told(&receiver), [json!(key.id)]);
        let body = receiver.received()[0].json();
        assert_eq!(body["type"], "api_key.expiring");
        let record = server.get(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.ok(200);
        assert_eq!(body["data"], record, "the record as it is shown");
        assert_eq!((&record["version"], &record["updated_at"]), (&key.record["version"], &key.record["updated_at"]));
        server.advance(10 * DAY_MS);
        announce(&server).await;
        assert_eq!(told(&receiver), [json!(key.id)], "not when it has ended either");
    }

    async fn a_new_end_is_told_again_and_the_same_is_not(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["api_key.expiring"]})).await;
        let key = key_for(&server, &acme, 10).await;
        server.advance(4 * DAY_MS);
        announce(&server).await;
        let target = format!("{KEYS}?id={}", key.id);
        let put = async |body: Value| server.put(&target).cookie(&acme.admin).json(&body).await.ok(200);
        put(json!({"name": "Renamed", "scopes": ["tickets:read"]})).await;
        put(json!({"rotate": {}})).await;
        announce(&server).await;
        assert_eq!(receiver.count(), 1, "the end is the same");
        put(json!({"name": "Renamed", "scopes": ["tickets:read"], "expires_days": 30})).await;
        announce(&server).await;
        server.advance(22 * DAY_MS);
        announce(&server).await;
        assert_eq!(receiver.count(), 1);
        server.advance(DAY_MS);
        announce(&server).await;
        announce(&server).await;
        assert_eq!(receiver.count(), 2);
    }

    async fn a_key_that_is_revoked_or_has_ended_is_not_told_of(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["api_key.expiring"]})).await;
        let revoked = key_for(&server, &acme, 20).await;
        key_for(&server, &acme, 14).await;
        server.delete(format!("{KEYS}?id={}", revoked.id)).cookie(&acme.admin).await.is(204);
        server.advance(15 * DAY_MS);
        announce(&server).await;
        assert_eq!(receiver.count(), 0);
    }

    async fn a_key_that_was_made_with_less_than_7_days_is_not_told_of(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["api_key.expiring"]})).await;
        let short = key_for(&server, &acme, 6).await;
        let week = key_for(&server, &acme, 7).await;
        announce(&server).await;
        server.advance(5 * DAY_MS);
        announce(&server).await;
        assert_eq!(told(&receiver), [json!(week.id)], "7 days are not less than 7");
        let longer = json!({"name": "Key", "scopes": ["tickets:read"], "expires_days": 30});
        server.put(format!("{KEYS}?id={}", short.id)).cookie(&acme.admin).json(&longer).await.is(200);
        server.advance(23 * DAY_MS);
        announce(&server).await;
        assert_eq!(told(&receiver), [json!(week.id), json!(short.id)], "with a longer life it is like any other");
    }

    async fn nodes_that_tell_at_once_tell_once(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["api_key.expiring"]})).await;
        for _ in 0..20 {
            key_for(&server, &acme, 7).await;
        }
        let tell = || announce_expiry(&server.app);
        let (one, two, three) = tokio::join!(tell(), tell(), tell());
        one.and(two).and(three).unwrap();
        run(&server).await;
        let ids: BTreeSet<String> = told(&receiver).iter().map(ToString::to_string).collect();
        assert_eq!((receiver.count(), ids.len()), (20, 20));
    }

    async fn whatever_can_be_subscribed_to_fires_and_is_as_the_catalogue_says(setup: Setup) {
        let mut setup = setup;
        let clouds = add_clouds(&mut setup, |_| ()).await;
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let all = hook(&server, &acme, &receiver.url("/all"), &json!({"events": ["*", "webhook.test"]})).await;
        let key = key_for(&server, &acme, 30).await;
        server.put(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).json(&json!({"rotate": {}})).await.is(200);
        server.advance(23 * DAY_MS + HOUR_MS);
        announce(&server).await;
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        receiver.on("/gone", [Behaviour::Answer(410)]);
        let gone = hook(&server, &acme, &receiver.url("/gone"), &json!({"events": ["api_key.created"]})).await;
        for hook in [&all, &gone] {
            act(&server, &acme, &json!({"action": "test", "webhook_id": id(hook)})).await.is(202);
        }
        let ticket = server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "Printer"})).await.ok(201);
        let change = json!({"status": "open", "comment": {"body": "Seen."}});
        server.patch(format!("{TICKETS}?id={}", id(&ticket))).cookie(&acme.admin).json(&change).await.is(200);
        let emit = workflows::step("tell", "event.emit", json!({"name": "told", "data": {"by": "a workflow"}}));
        let asks = workflows::manual([emit, workflows::approval("asked")]);
        for word in ["approve", "reject", "cancel"] {
            let asked = server.run(&acme, &asks).await;
            server.tell_run(&acme, &asked, word).await.is(200);
            server.work().await;
        }
        let (agent, ingest) = (Agent::named("web01"), server.ingest_key(&acme).await);
        for memory_mib in [1_024, 2_048] {
            reported(&server, &ingest, &Agent { memory_mib, ..agent.clone() }.fusion()).await;
        }
        server.advance(2 * DAY_MS);
        server.look_at_devices().await;
        server.delete_device(&acme, id(&only_device(&server, &acme.admin).await)).await;
        let customer = organizations::make(&server, &acme, &json!({"name": "Globex"})).await;
        let one = format!("{ORGANIZATIONS}?id={}", id(&customer));
        server.put(&one).cookie(&acme.admin).json(&json!({"name": "Globex Inc."})).await.is(200);
        server.delete(&one).cookie(&acme.admin).await.is(204);
        let provider = server.connect(&acme, &clouds.hetzner, "acme").await;
        server.order(&acme, &clouds.hetzner, &provider).await;
        server.cloud_work_for(MINUTE_MS).await;
        clouds.hetzner.on(Asked::Create, [clouds.hetzner.refusal(403, "resource_limit_exceeded", "server limit reached")]);
        server.order(&acme, &clouds.hetzner, &provider).await;
        server.cloud_work().await;
        clouds.hetzner.set_away(true);
        server.tell_provider(&acme, &provider, "verify").await.is(200);
        server.set_policy(&acme, "", &json!({"alert_after_failures": 2})).await;
        let machine = server.machine(&acme, "backed-up", None).await;
        let key = server.ingest_key(&acme).await;
        server.report(&key, &backups::backup(&machine, "failed", server.now())).await;
        let person = json!({"email": "ann@acme.test", "name": "Ann", "role": "viewer"});
        let person = server.post(USERS).cookie(&acme.admin).json(&person).await.ok(201);
        let one = format!("{USERS}?id={}", id(&person));
        let renamed = json!({"email": "ann@acme.test", "name": "Anna", "role": "viewer"});
        server.put(&one).cookie(&acme.admin).json(&renamed).await.is(200);
        server.delete(&one).cookie(&acme.admin).await.is(204);
        run(&server).await;
        let bodies: Vec<Value> = receiver.received_on("/all").iter().map(|request| request.json()).collect();
        let catalogue = server.get(EVENTS).cookie(&acme.admin).await.ok(200);
        for kind in catalogue["data"].as_array().unwrap() {
            let schema = jsonschema::validator_for(&kind["schema"]).unwrap();
            assert!(schema.is_valid(&kind["example"]), "{kind}");
            let name = kind["type"].as_str().unwrap();
            // Those that tenants name themselves are one entry.
            let is_of_kind = |body: &&Value| match name.strip_suffix('*') {
                Some(start) => body["type"].as_str().unwrap().starts_with(start),
                None => body["type"] == name,
            };
            let fired: Vec<&Value> = bodies.iter().filter(is_of_kind).collect();
            assert!(!fired.is_empty(), "{name} never fires");
            for body in fired {
                let errors: Vec<String> = schema.iter_errors(body).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{name}: {errors:?} in {body}");
                assert_eq!(body["tenant_id"], json!(acme.tenant.id));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_tell_once() {
    let server = patient(Setup::postgres().await).await;
    let other = server.second_node().await;
    let acme = server.tenant("acme").await;
    let receiver = Receiver::start().await;
    hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["api_key.expiring"]})).await;
    for _ in 0..20 {
        key_for(&server, &acme, 7).await;
    }
    let (one, two) = tokio::join!(announce_expiry(&server.app), announce_expiry(&other.app));
    one.and(two).unwrap();
    run(&server).await;
    assert_eq!(receiver.count(), 20);
}
