//! `/api/admin/webhooks`: endpoints, and what is sent to them.

mod answers;
mod backlog;
mod breaker;
mod catalogue;
mod change;
mod create;
mod crowds;
mod disable;
mod drive;
mod expiring;
mod feed;
mod feed_choice;
mod feed_crowd;
mod feed_kept;
mod headers;
mod held_back;
mod hold;
mod hostile;
mod lanes;
mod large;
mod leases;
mod log_filters;
mod moved;
mod names;
mod order;
mod rate;
mod recover;
mod resend;
mod retention;
mod schedule;
mod scopes;
mod secrets;
mod targets;
mod turns;
mod wakes;

use serde_json::{Value, json};

use crate::support::people::KEYS;
use crate::support::receiver::Receiver;
use crate::support::{Server, Setup, Tenancy, over_http};

pub const WEBHOOKS: &str = "/api/admin/webhooks";
pub const DELIVERIES: &str = "/api/admin/webhooks/deliveries";
pub const EVENTS: &str = "/api/admin/webhooks/events";

/// A server that may send to this machine.
pub async fn open(mut setup: Setup) -> Server {
    setup.settings.outbound.allow = vec!["127.0.0.0/8".parse().unwrap()];
    setup.start().await
}

/// A new endpoint, with its secret.
pub async fn endpoint(server: &Server, tenancy: &Tenancy, url: &str, events: &[&str]) -> Value {
    let body = json!({"name": "Hook", "url": url, "events": events});
    server.post(WEBHOOKS).cookie(&tenancy.admin).json(&body).await.ok(201)
}

over_http! {
    async fn an_event_is_delivered_once_and_noted(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = endpoint(&server, &acme, &receiver.url("/hook"), &["api_key.*"]).await;
        let key = server.key(&acme, &["tickets:read"]).await;
        server.sender.run_due().await.unwrap();
        let received = receiver.received();
        assert_eq!(received.len(), 1);
        let body = received[0].json();
        assert_eq!((&body["type"], &body["data"]["id"]), (&json!("api_key.created"), &json!(key.id)));
        assert_eq!(body["id"], received[0].webhook_id());
        assert!(!body.to_string().contains(&key.plain));
        let log = server.get(format!("{DELIVERIES}?webhook_id={}", hook["id"].as_str().unwrap())).cookie(&acme.admin).await.ok(200);
        assert_eq!(log["data"][0]["status"], "succeeded", "{log}");
        assert_eq!(log["data"][0]["attempts"][0]["status_code"], 204);
        let record = server.get(format!("{WEBHOOKS}?id={}", hook["id"].as_str().unwrap())).cookie(&acme.admin).await.ok(200);
        assert_eq!(record["last_success_at"], log["data"][0]["attempts"][0]["at"]);
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        server.sender.run_due().await.unwrap();
        assert_eq!(receiver.received()[1].json()["type"], "api_key.revoked");
    }
}
