//! What the tests of sending share: events of their own, endpoints, the log, and time that passes.

use std::collections::BTreeMap;

use kernel::base::{Actor, DAY_MS, Timestamp};
use kernel::events::{self, EventKind, PublishedEvent};
use kernel::jobs::lanes;
use serde_json::{Value, json};
use tenant_control::features::webhooks::WEBHOOK_LANE;

use super::{DELIVERIES, WEBHOOKS, open};
use crate::support::{Answer, Server, Setup, Tenancy};

/// A kind that only tests publish; `*` gets it.
pub const LOAD: EventKind<Value> = EventKind::new("custom.load", "A test's own event.");

/// A server that may send to this machine, and whose sessions outlast the days that pass in a test.
pub async fn patient(mut setup: Setup) -> Server {
    setup.settings.session_idle_ms = 1_000 * DAY_MS;
    setup.settings.session_absolute_ms = 1_000 * DAY_MS;
    open(setup).await
}

/// A server that may send to this machine, and for which time passes by itself.
pub async fn open_in_real_time(setup: Setup) -> Server {
    open(setup.in_real_time()).await
}

/// Publishes events of these records in one transaction, in this order.
pub async fn publish(server: &Server, tenancy: &Tenancy, records: &[&str]) -> Vec<PublishedEvent> {
    let records: Vec<String> = records.iter().map(|&record| record.to_owned()).collect();
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    db.write(async move |tx| {
        let mut published = Vec::with_capacity(records.len());
        for record in &records {
            published.push(events::publish(tx, &LOAD, record, &json!({"id": record})).await?);
        }
        Ok(published)
    })
    .await
    .expect("events")
}

/// Publishes an event of one record.
pub async fn publish_one(server: &Server, tenancy: &Tenancy, record: &str) -> PublishedEvent {
    publish(server, tenancy, &[record]).await[0]
}

/// Publishes so many events, each of a record of its own.
pub async fn publish_many(server: &Server, tenancy: &Tenancy, count: usize) -> Vec<PublishedEvent> {
    let records: Vec<String> = (0..count).map(|number| format!("rec_{number}")).collect();
    publish(server, tenancy, &records.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// A new endpoint that wants everything, with `more` fields.
pub async fn hook(server: &Server, tenancy: &Tenancy, url: &str, more: &Value) -> Value {
    let mut body = json!({"name": "Hook", "url": url, "events": ["*"]});
    merge(&mut body, more);
    server.post(WEBHOOKS).cookie(&tenancy.admin).json(&body).await.ok(201)
}

fn merge(body: &mut Value, more: &Value) {
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
}

pub fn id(record: &Value) -> &str {
    record["id"].as_str().expect("an id")
}

/// Replaces an endpoint by itself with `changes`.
pub async fn change(server: &Server, tenancy: &Tenancy, hook: &Value, changes: &Value) -> Value {
    let now = look(server, tenancy, hook).await;
    let kept = ["name", "url", "events", "enabled", "rate_limit_per_second", "ordered"];
    let mut body: Value = kept.iter().map(|name| ((*name).to_owned(), now[name].clone())).collect();
    merge(&mut body, changes);
    server.put(format!("{WEBHOOKS}?id={}", id(hook))).cookie(&tenancy.admin).json(&body).await.ok(200)
}

pub async fn remove(server: &Server, tenancy: &Tenancy, hook: &Value) {
    server.delete(format!("{WEBHOOKS}?id={}", id(hook))).cookie(&tenancy.admin).await.is(204);
}

/// The endpoint as it is now.
pub async fn look(server: &Server, tenancy: &Tenancy, hook: &Value) -> Value {
    server.get(format!("{WEBHOOKS}?id={}", id(hook))).cookie(&tenancy.admin).await.ok(200)
}

/// Every delivery to an endpoint, oldest first.
pub async fn log(server: &Server, tenancy: &Tenancy, hook: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    let mut more = String::new();
    loop {
        let target = format!("{DELIVERIES}?webhook_id={}&limit=200{more}", id(hook));
        let page = server.get(target).cookie(&tenancy.admin).await.ok(200);
        all.extend(page["data"].as_array().expect("deliveries").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(cursor) => more = format!("&cursor={cursor}"),
            None => break,
        }
    }
    all.reverse();
    all
}

/// The delivery of one event to an endpoint.
pub async fn delivery(server: &Server, tenancy: &Tenancy, hook: &Value, event: &PublishedEvent) -> Value {
    let target = format!("{DELIVERIES}?webhook_id={}&event_id={}", id(hook), event.id);
    let page = server.get(target).cookie(&tenancy.admin).await.ok(200);
    let found = page["data"].as_array().expect("deliveries");
    assert_eq!(found.len(), 1, "one delivery for an event and an endpoint: {page}");
    found[0].clone()
}

/// How many deliveries to an endpoint there are of each status, with its reason where it was skipped.
pub async fn tally(server: &Server, tenancy: &Tenancy, hook: &Value) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for delivery in log(server, tenancy, hook).await {
        let status = delivery["status"].as_str().expect("a status");
        let name = delivery["skipped_reason"].as_str().map_or(status.to_owned(), |why| format!("{status} {why}"));
        *tally.entry(name).or_default() += 1;
    }
    tally
}

pub fn counts(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Asks for a resend, a recovery or a test.
pub async fn act(server: &Server, tenancy: &Tenancy, body: &Value) -> Answer {
    server.post(DELIVERIES).cookie(&tenancy.admin).json(body).await
}

/// Sends what is due at this moment.
pub async fn run(server: &Server) {
    server.sender.run_due().await.expect("sending");
}

/// Goes on to when something is due next, if anything ever is, and sends it.
pub async fn run_next(server: &Server) -> Option<Timestamp> {
    let due = lanes::find_next_due(&server.app.store, WEBHOOK_LANE).await.expect("the lanes")?;
    advance_to(server, due);
    run(server).await;
    Some(due)
}

/// Lets time pass, sending whatever comes due on the way.
pub async fn run_for(server: &Server, ms: i64) {
    let end = server.now().plus_ms(ms);
    while let Some(due) = lanes::find_next_due(&server.app.store, WEBHOOK_LANE).await.expect("the lanes") {
        if due > end {
            break;
        }
        advance_to(server, due);
        run(server).await;
    }
    advance_to(server, end);
}

fn advance_to(server: &Server, at: Timestamp) {
    server.advance((at.as_millis() - server.now().as_millis()).max(0));
}
