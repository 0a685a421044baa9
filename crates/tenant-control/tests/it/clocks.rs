//! Machines whose time is wrong: what they must not do to a tenant, and how it is mended.

use kernel::auth::{list_clocks, repair_clock};
use kernel::base::{Actor, Clock, DAY_MS, MINUTE_MS, World};
use kernel::store::Purpose;
use serde_json::json;
use tenant_control::features::{api_keys, tickets as feature};

use crate::support::people::{KEYS, SESSION};
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::tickets::TICKETS;

/// As far as one was seen to be.
const AHEAD_MS: i64 = 120 * DAY_MS;

/// What `admin clock repair` does.
async fn repair(server: &Server, tenancy: &Tenancy) -> Option<(String, u64)> {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::operator());
    let repaired = db.write(async move |tx| {
        let (Some(stood), now) = repair_clock(tx).await? else { return Ok(None) };
        api_keys::store::bring_back(tx, now).await?;
        Ok(Some((stood.to_string(), feature::store::bring_back(tx, now).await?)))
    });
    repaired.await.unwrap()
}

over_http! {
    async fn a_clock_far_ahead_of_the_time_takes_no_writes_until_it_is_repaired(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let key = server.key(&acme, &["*"]).await;
        let ticket = json!({"subject": "Printer"});
        // A little is what clocks differ by.
        server.set_clock(acme.tenant.id, server.now().plus(10 * MINUTE_MS)).await;
        server.post(TICKETS).key(&key.plain).json(&ticket).await.is(201);
        server.set_clock(acme.tenant.id, server.now().plus(AHEAD_MS)).await;
        let refused = server.post(TICKETS).key(&key.plain).json(&ticket).await;
        refused.problem("unavailable");
        assert!(refused.headers.contains_key("retry-after"));
        server.get(TICKETS).key(&key.plain).await.is(200);
        server.post(TICKETS).cookie(&globex.admin).json(&ticket).await.is(201);
        let clocks = list_clocks(&server.app.store.system(Purpose::Cli)).await.unwrap();
        let stuck: Vec<&str> = clocks.iter().filter(|clock| clock.is_stuck()).map(|clock| clock.tenant.as_str()).collect();
        assert_eq!((stuck, clocks.len()), (vec!["acme"], 2));
        let stood = server.now().plus(AHEAD_MS).to_string();
        assert_eq!(repair(&server, &acme).await.map(|repaired| repaired.0), Some(stood));
        assert_eq!(repair(&server, &acme).await, None);
        let made = server.post(TICKETS).key(&key.plain).json(&ticket).await.ok(201);
        assert_eq!(made["created_at"], server.now().to_string());
    }

    async fn what_was_made_in_the_future_is_brought_back(server: Server) {
        let acme = server.tenant("acme").await;
        let old = server.key_with(&acme, &json!({"name": "Old", "scopes": ["*"], "expires_days": 365})).await;
        let before = server.post(TICKETS).key(&old.plain).json(&json!({"subject": "Before"})).await.ok(201);
        server.advance(AHEAD_MS);
        let early = server.post(TICKETS).key(&old.plain).json(&json!({"subject": "Early"})).await.ok(201);
        let place = format!("{TICKETS}?id={}", before["id"].as_str().unwrap());
        server.patch(place).key(&old.plain).json(&json!({"status": "open"})).await.is(200);
        let session = server.user(&acme.tenant, kernel::auth::Role::Admin).await;
        let key = json!({"name": "Early", "scopes": ["*"], "expires_days": 10});
        let key = server.post(KEYS).cookie(&session).json(&key).await.ok(201);
        let since = server.now().plus(-AHEAD_MS);
        server.advance(-AHEAD_MS);
        assert_eq!(repair(&server, &acme).await.map(|repaired| repaired.1), Some(2), "both tickets");
        // The command is another process: on PostgreSQL this one may remember for half a second.
        server.app.credentials.forget(acme.tenant.id);
        server.advance(1);
        let after = server.post(TICKETS).key(&old.plain).json(&json!({"subject": "After"})).await.ok(201);
        // Whoever goes on from the last time it has seen misses nothing, and the order of creation is that of numbers.
        let delta = server.get(format!("{TICKETS}?updated_since={since}")).key(&old.plain).await.ok(200);
        let seen: Vec<&str> = delta["data"].as_array().unwrap().iter().map(|row| row["subject"].as_str().unwrap()).collect();
        assert_eq!(seen.len(), 3);
        assert_eq!(seen.last(), Some(&"After"));
        let newest = server.get(TICKETS).key(&old.plain).await.ok(200);
        let order: Vec<_> = newest["data"].as_array().unwrap().iter().map(|row| row["id"].clone()).collect();
        assert_eq!(order, [&after, &early, &before].map(|ticket| ticket["id"].clone()));
        // A session and a key that began in the future do not live until then.
        server.get(SESSION).cookie(&session).await.problem("unauthenticated");
        let key = server.get(format!("{KEYS}?id={}", key["id"].as_str().unwrap())).cookie(&acme.admin).await.ok(200);
        assert_eq!(key["expires_at"], server.now().plus(10 * DAY_MS - 1).to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_with_a_wrong_clock_writes_nothing_and_harms_nobody() {
    let server = Setup::postgres().await.in_real_time().start().await;
    let acme = server.tenant("acme").await;
    let key = server.key_with(&acme, &json!({"name": "Year", "scopes": ["*"], "expires_days": 365})).await;
    let wrong = World { clock: Clock::Wrong(AHEAD_MS), ..World::default() };
    let wrong = server.second_node_with(wrong).await;
    let ticket = json!({"subject": "Printer"});
    wrong.get(TICKETS).key(&key.plain).await.is(200);
    wrong.post(TICKETS).key(&key.plain).json(&ticket).await.problem("unavailable");
    server.post(TICKETS).key(&key.plain).json(&ticket).await.is(201);
    let clocks = list_clocks(&server.app.store.system(Purpose::Cli)).await.unwrap();
    assert!(clocks.iter().all(|clock| clock.ahead_ms < MINUTE_MS), "{clocks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_embedded_store_has_no_time_but_its_own() {
    let server = Setup::sqlite().await.in_wrong_time(AHEAD_MS).start().await;
    let acme = server.tenant("acme").await;
    server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "Printer"})).await.is(201);
}
