//! An event that is larger than a delivery may be is shortened, and still is what the catalogue says.

use serde_json::{Value, json};

use super::catalogue::{fits, validator};
use super::drive::{LOAD, hook, id, patient};
use super::{EVENTS, open};
use crate::support::receiver::Receiver;
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::TICKETS;

const BODY_BYTES_MAX: usize = 256 * 1024;

fn long(letter: &str) -> String {
    letter.repeat(64 * 1024 / letter.len())
}

/// What was delivered, held against the catalogue.
async fn delivered(server: &Server, tenancy: &Tenancy, receiver: &Receiver) -> Vec<Value> {
    server.sender.run_due().await.unwrap();
    let catalogue = server.get(EVENTS).cookie(&tenancy.admin).await.ok(200);
    let mut bodies = Vec::new();
    for request in receiver.received() {
        assert!(request.body.len() <= BODY_BYTES_MAX, "{} bytes", request.body.len());
        let body = request.json();
        let kind = catalogue["data"].as_array().unwrap().iter().find(|kind| kind["type"] == body["type"]).unwrap();
        fits(&validator(&kind["schema"]), &body);
        let truncated = &kind["schema"]["properties"]["data"]["allOf"][1]["properties"]["truncated"];
        assert_eq!(truncated["type"], "boolean", "documented: {}", kind["schema"]["properties"]["data"]);
        bodies.push(body);
    }
    bodies.sort_by_key(|body| body["sequence"].as_i64());
    bodies
}

over_http! {
    async fn a_change_that_does_not_fit_is_shortened_and_fits_the_catalogue(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["ticket.*"]})).await;
        let new = json!({"subject": "Printer", "description": long("\""), "tags": ["a", "b"], "external_id": "x-1"});
        let ticket = server.post(TICKETS).cookie(&acme.admin).json(&new).await.ok(201);
        let change = json!({"description": long("\u{1}"), "comment": {"body": long("\\")}, "priority": "high"});
        let one = format!("{TICKETS}?id={}", id(&ticket));
        let changed = server.patch(&one).cookie(&acme.admin).json(&change).await.ok(200);
        let bodies = delivered(&server, &acme, &receiver).await;
        let kinds: Vec<&str> = bodies.iter().map(|body| body["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ticket.created", "ticket.updated", "ticket.commented"]);
        assert_eq!(bodies[0]["data"], ticket, "what fits is told as it is");
        for body in &bodies[1..] {
            let data = &body["data"];
            assert_eq!(data["truncated"], true);
            for field in ["id", "number", "subject", "status", "priority", "tags", "external_id", "version", "updated_at"] {
                assert_eq!(data[field], changed[field], "{field}");
            }
            let description = data["description"].as_str().unwrap();
            let (kept, whole) = (description.strip_suffix('…').expect("a sign that it goes on"), long("\u{1}"));
            assert!(kept.len() >= 1_024 && whole.starts_with(kept), "{} bytes", kept.len());
        }
        assert_eq!(bodies[1]["data"]["changes"]["priority"], json!({"from": "medium", "to": "high"}));
        assert!(bodies[1]["data"]["changes"]["description"]["from"].as_str().unwrap().starts_with("\"\"\""));
        assert!(bodies[2]["data"]["comment"]["body"].as_str().unwrap().starts_with("\\\\\\"));
    }

    async fn lists_are_shortened_where_texts_are_not_enough(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, kernel::base::Actor::for_system());
        let record = |items: usize| json!({"id": "rec_1", "name": "N", "items": vec![json!({"k": "v".repeat(100)}); items]});
        let names: Value = (0..4_000).map(|n| (format!("{n:080}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
        let records = [record(3), record(4_000), json!({"id": "rec_1", "map": names})];
        for record in records.clone() {
            let published = db.write(async move |tx| kernel::events::publish(tx, &LOAD, "rec_1", &record).await);
            published.await.unwrap();
        }
        server.sender.run_due().await.unwrap();
        let mut bodies: Vec<Value> = receiver.received().iter().map(|request| request.json()).collect();
        bodies.sort_by_key(|body| body["sequence"].as_i64());
        assert_eq!(bodies[0]["data"], records[0]);
        let cut = &bodies[1]["data"];
        assert_eq!((&cut["truncated"], &cut["id"], &cut["name"]), (&json!(true), &json!("rec_1"), &json!("N")));
        let kept = cut["items"].as_array().unwrap();
        assert!((1..4_000).contains(&kept.len()) && kept[0] == records[0]["items"][0], "{}", kept.len());
        assert_eq!(bodies[2]["data"], json!({"id": "rec_1", "truncated": true}), "the last resort");
        assert!(receiver.received().iter().all(|request| request.body.len() <= BODY_BYTES_MAX));
    }
}
