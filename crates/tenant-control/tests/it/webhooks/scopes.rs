//! Nobody has sent to them what they may not read: subscribing needs `read` of each family.

use kernel::auth::Role;

use super::create::{count, create, input_with, one, read, without_secret};
use super::*;
use crate::support::Answer;

/// What `*` needs.
const FAMILIES: [&str; 9] =
    ["tickets", "workflows", "inventory", "cloud", "backup", "api_keys", "webhooks", "organizations", "users"];

/// The scope that each family of events needs, as the contract has it.
const READS: [(&str, &str); 11] = [
    ("ticket", "tickets:read"),
    ("workflow", "workflows:read"),
    ("custom", "workflows:read"),
    ("device", "inventory:read"),
    ("cloud", "cloud:read"),
    ("vm", "cloud:read"),
    ("backup", "backup:read"),
    ("api_key", "api_keys:read"),
    ("webhook", "webhooks:read"),
    ("organization", "organizations:read"),
    ("user", "users:read"),
];

fn subscribed(events: &[&str]) -> Value {
    input_with("events", events)
}

/// A key that may write webhooks, and these.
async fn writer(server: &Server, tenancy: &Tenancy, scopes: &[&str]) -> String {
    server.key(tenancy, &[&["webhooks:write"], scopes].concat()).await.plain
}

#[track_caller]
fn needs(answer: &Answer, scope: &str) {
    assert_eq!(answer.problem("insufficient_scope")["required_scope"], scope);
}

over_http! {
    async fn each_kind_needs_read_of_its_family(server: Server) {
        let acme = server.tenant("acme").await;
        let catalogue = server.get(EVENTS).cookie(&acme.admin).await.ok(200);
        let kinds: Vec<&str> =
            catalogue["data"].as_array().unwrap().iter().map(|kind| kind["type"].as_str().unwrap()).collect();
        let all = FAMILIES.map(|family| format!("{family}:read"));
        let (mut seen, bare) = (Vec::new(), writer(&server, &acme, &[]).await);
        for kind in kinds {
            let (family, _) = kind.split_once('.').unwrap();
            let (_, scope) = *READS.iter().find(|(known, _)| *known == family).expect(family);
            if seen.contains(&family) {
                continue;
            }
            seen.push(family);
            let enough = writer(&server, &acme, &[scope]).await;
            let others: Vec<&str> = all.iter().map(String::as_str).filter(|other| *other != scope).collect();
            let others = writer(&server, &acme, &others).await;
            for events in [&[kind][..], &[&format!("{family}.*")], &[&format!("{family}.*"), kind]] {
                let made = server.post(WEBHOOKS).key(&enough).json(&subscribed(events)).await.ok(201);
                assert_eq!(made["created_by"]["type"], "api_key");
                for key in [&bare, &others] {
                    needs(&server.post(WEBHOOKS).key(key).json(&subscribed(events)).await, scope);
                }
            }
        }
        assert!(["ticket", "api_key", "webhook"].iter().all(|family| seen.contains(family)), "{seen:?}");
    }

    async fn write_is_not_read_and_one_of_two_is_not_enough(server: Server) {
        let acme = server.tenant("acme").await;
        let key = writer(&server, &acme, &["tickets:write", "api_keys:read"]).await;
        needs(&server.post(WEBHOOKS).key(&key).json(&subscribed(&["ticket.created"])).await, "tickets:read");
        needs(
            &server.post(WEBHOOKS).key(&key).json(&subscribed(&["api_key.*", "ticket.updated"])).await,
            "tickets:read",
        );
        needs(&server.post(WEBHOOKS).key(&key).json(&subscribed(&["webhook.test"])).await, "webhooks:read");
        server.post(WEBHOOKS).key(&key).json(&subscribed(&["api_key.*"])).await.is(201);
        assert_eq!(count(&server, &acme).await, 1, "what was refused is not there");
    }

    async fn everything_needs_every_family(server: Server) {
        let acme = server.tenant("acme").await;
        let all = FAMILIES.map(|family| format!("{family}:read"));
        for missing in &all {
            let held: Vec<&str> = all.iter().filter(|scope| *scope != missing).map(String::as_str).collect();
            let key = writer(&server, &acme, &held).await;
            needs(&server.post(WEBHOOKS).key(&key).json(&subscribed(&["*"])).await, missing);
            needs(&server.post(WEBHOOKS).key(&key).json(&subscribed(&["*", "webhook.test"])).await, missing);
        }
        let held: Vec<&str> = all.iter().map(String::as_str).collect();
        let families: Vec<String> = FAMILIES.iter().map(|family| format!("{family}:*")).collect();
        let families: Vec<&str> = families.iter().map(String::as_str).collect();
        for scopes in [&held[..], &families, &["*"]] {
            let key = writer(&server, &acme, scopes).await;
            server.post(WEBHOOKS).key(&key).json(&subscribed(&["*"])).await.is(201);
        }
        create(&server, &acme, &subscribed(&["*"])).await.is(201);
    }

    async fn put_needs_what_post_does(server: Server) {
        let acme = server.tenant("acme").await;
        let hook = create(&server, &acme, &subscribed(&["ticket.*"])).await.ok(201);
        let key = writer(&server, &acme, &["api_keys:read"]).await;
        let put = |body: Value| server.put(one(&hook)).key(&key).json(&body);
        needs(&put(subscribed(&["*"])).await, "webhooks:read");
        needs(&put(subscribed(&["api_key.*", "ticket.created"])).await, "tickets:read");
        // Also where the events stay: another address for them is another reader of them.
        let mut moved = subscribed(&["ticket.*"]);
        moved["url"] = json!("https://other.example.org/");
        needs(&put(moved).await, "tickets:read");
        // And where they go: what waits for the endpoint is still of the events it had.
        needs(&put(subscribed(&["api_key.*"])).await, "tickets:read");
        assert_eq!(read(&server, &acme, &hook).await, without_secret(hook.clone()));
        let key = writer(&server, &acme, &["api_keys:read", "tickets:read"]).await;
        let put = server.put(one(&hook)).key(&key).json(&subscribed(&["api_key.*"])).await;
        assert_eq!(put.ok(200)["events"], json!(["api_key.*"]));
    }

    async fn what_an_endpoint_got_before_is_not_sent_again_to_its_next_reader(server: Server) {
        let acme = server.tenant("acme").await;
        let hook = create(&server, &acme, &subscribed(&["api_key.*"])).await.ok(201);
        let made = server.key(&acme, &["tickets:read"]).await;
        let log = server.get(format!("{DELIVERIES}?event_type=api_key.created")).cookie(&acme.admin).await.ok(200);
        assert!(!made.id.is_empty());
        let resend = json!({"action": "resend", "delivery_id": log["data"][0]["id"]});
        // Its own events may be sent again by whoever may write webhooks.
        let key = writer(&server, &acme, &["tickets:read"]).await;
        server.post(DELIVERIES).key(&key).json(&resend).await.is(202);
        server.put(one(&hook)).cookie(&acme.admin).json(&subscribed(&["ticket.*"])).await.is(200);
        needs(&server.post(DELIVERIES).key(&key).json(&resend).await, "api_keys:read");
        server.post(DELIVERIES).cookie(&acme.admin).json(&resend).await.is(202);
    }

    async fn whoever_rotates_a_secret_may_read_what_it_signs(server: Server) {
        let acme = server.tenant("acme").await;
        let hook = create(&server, &acme, &subscribed(&["ticket.*", "api_key.created"])).await.ok(201);
        let rotate = async |scopes: &[&str]| {
            let key = writer(&server, &acme, scopes).await;
            server.put(one(&hook)).key(&key).json(&json!({"rotate_secret": {"overlap_hours": 0}})).await
        };
        needs(&rotate(&["tickets:write"]).await, "api_keys:read");
        needs(&rotate(&["api_keys:read"]).await, "tickets:read");
        assert_eq!(read(&server, &acme, &hook).await["version"], 1);
        assert!(rotate(&["api_keys:read", "tickets:read"]).await.ok(200)["secret"].is_string());
        // Taking it away needs no more than webhooks:write.
        let key = writer(&server, &acme, &[]).await;
        server.delete(one(&hook)).key(&key).await.is(204);
    }

    async fn without_webhooks_write_nothing_changes(server: Server) {
        let acme = server.tenant("acme").await;
        let hook = create(&server, &acme, &subscribed(&["ticket.*"])).await.ok(201);
        let key = server.key(&acme, &["webhooks:read", "tickets:*", "api_keys:*"]).await.plain;
        server.get(one(&hook)).key(&key).await.is(200);
        let body = subscribed(&["ticket.*"]);
        needs(&server.post(WEBHOOKS).key(&key).json(&body).await, "webhooks:write");
        needs(&server.put(one(&hook)).key(&key).json(&body).await, "webhooks:write");
        needs(&server.put(one(&hook)).key(&key).json(&json!({"rotate_secret": {}})).await, "webhooks:write");
        needs(&server.delete(one(&hook)).key(&key).await, "webhooks:write");
        let blind = writer(&server, &acme, &["tickets:read"]).await;
        for path in [WEBHOOKS, DELIVERIES, EVENTS] {
            needs(&server.get(path).key(&blind).await, "webhooks:read");
        }
        for role in [Role::Technician, Role::Viewer] {
            let cookie = server.user(&acme.tenant, role).await;
            needs(&server.post(WEBHOOKS).cookie(&cookie).json(&body).await, "webhooks:write");
            needs(&server.get(WEBHOOKS).cookie(&cookie).await, "webhooks:read");
        }
    }
}
