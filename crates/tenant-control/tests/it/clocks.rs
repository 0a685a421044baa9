//! Machines whose time is wrong: what they must not do to a tenant, and how it is mended.

mod repair;

use kernel::auth::{Role, create_signin_link, list_clocks};
use kernel::base::{Actor, Code, DAY_MS, Env, HOUR_MS, MINUTE_MS, Result, WallClock};
use kernel::store::Purpose;
use serde_json::json;
use tenant_control::cli::clock;
use tenant_control::features;
use tenant_control::features::users::{NewUser, create_user};
use tenant_control::features::{api_keys, webhooks};

use crate::support::people::{KEYS, SESSION};
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::tickets::TICKETS;
use crate::webhooks::{DELIVERIES, endpoint, open};

/// As far as one was seen to be.
const AHEAD_MS: i64 = 120 * DAY_MS;

/// What `admin clock repair` does.
async fn repair(server: &Server, tenancy: &Tenancy) -> Option<(String, u64)> {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let repaired = clock::repair_clock(&db, 28 * DAY_MS).await.unwrap();
    repaired.from.map(|stood| (stood.to_string(), repaired.tickets))
}

/// A node on the same database whose machine is far ahead of the time.
async fn ahead(server: &Server) -> Server {
    server.second_node_with(Env { clock: WallClock::Skewed(AHEAD_MS), ..Env::default() }).await
}

#[track_caller]
fn is_refused(done: Result<()>) {
    assert_eq!(done.map_err(|error| error.code()), Err(Code::Unavailable));
}

async fn count(server: &Server, sql: &str) -> i64 {
    server.app.store.system(Purpose::Cli).get_one(sql, kernel::args![]).await.expect("a count")
}

/// Tables of what such a node takes for old.
const OLD_TO_IT: [&str; 9] = [
    "sessions",
    "signin_links",
    "api_key_secrets",
    "idempotency_records",
    "events",
    "audit_entries",
    "rate_usage",
    "deliveries",
    "delivery_attempts",
];

async fn rows(server: &Server) -> Vec<(&'static str, i64)> {
    let mut rows = Vec::new();
    for table in OLD_TO_IT {
        rows.push((table, count(server, &format!("SELECT COUNT(*) FROM {table}")).await));
    }
    rows
}

/// Something in each of those tables, all of it new.
async fn fill(server: &Server, tenancy: &Tenancy, receiver: &Receiver) {
    let new = NewUser { email: "ann@acme.test".to_owned(), name: None, role: Role::Viewer, platform_operator: false };
    let ann = create_user(&server.app.store, &tenancy.tenant, new).await.unwrap();
    create_signin_link(&server.app.store, tenancy.tenant.id, ann.id).await.unwrap();
    endpoint(server, tenancy, &receiver.url("/hook"), &["*"]).await;
    // By the clock that is ahead it expires within days, which would be told.
    let body = json!({"name": "Key", "scopes": ["*"], "expires_days": 125});
    let made = server.post(KEYS).cookie(&tenancy.admin).idempotency_key("once").json(&body).await.ok(201);
    let rotation = json!({"rotate": {"overlap_hours": 48}});
    let key = format!("{KEYS}?id={}", made["id"].as_str().unwrap());
    server.put(key).cookie(&tenancy.admin).json(&rotation).await.is(200);
    server.sender.run_due().await.unwrap();
    kernel::jobs::exchange_rate_counts(&server.app).await.unwrap();
}

over_http! {
    async fn a_clock_far_ahead_of_the_time_takes_no_writes_until_it_is_repaired(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let key = server.key(&acme, &["*"]).await;
        let ticket = json!({"subject": "Printer"});
        // A little is what clocks differ by.
        server.set_clock(acme.tenant.id, server.now().plus_ms(10 * MINUTE_MS)).await;
        server.post(TICKETS).key(&key.plain).json(&ticket).await.is(201);
        server.set_clock(acme.tenant.id, server.now().plus_ms(AHEAD_MS)).await;
        let refused = server.post(TICKETS).key(&key.plain).json(&ticket).await;
        refused.problem("unavailable");
        assert!(refused.headers.contains_key("retry-after"));
        server.get(TICKETS).key(&key.plain).await.is(200);
        server.post(TICKETS).cookie(&globex.admin).json(&ticket).await.is(201);
        let clocks = list_clocks(&server.app.store.system(Purpose::Cli)).await.unwrap();
        let stuck: Vec<&str> = clocks.iter().filter(|clock| clock.is_stuck()).map(|clock| clock.tenant.as_str()).collect();
        assert_eq!((stuck, clocks.len()), (vec!["acme"], 2));
        let stood = server.now().plus_ms(AHEAD_MS).to_string();
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
        let since = server.now().plus_ms(-AHEAD_MS);
        server.advance(-AHEAD_MS);
        assert_eq!(repair(&server, &acme).await.map(|repaired| repaired.1), Some(2), "both tickets");
        // The command is another process: on PostgreSQL this one may remember for half a second.
        server.app.credentials.invalidate_tenant(acme.tenant.id);
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
        assert_eq!(key["expires_at"], server.now().plus_ms(10 * DAY_MS - 1).to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_with_a_wrong_clock_writes_nothing_and_harms_nobody() {
    let server = Setup::postgres().await.in_real_time().start().await;
    let acme = server.tenant("acme").await;
    let key = server.key_with(&acme, &json!({"name": "Year", "scopes": ["*"], "expires_days": 365})).await;
    let wrong = ahead(&server).await;
    let ticket = json!({"subject": "Printer"});
    wrong.get(TICKETS).key(&key.plain).await.is(200);
    wrong.post(TICKETS).key(&key.plain).json(&ticket).await.problem("unavailable");
    server.post(TICKETS).key(&key.plain).json(&ticket).await.is(201);
    let clocks = list_clocks(&server.app.store.system(Purpose::Cli)).await.unwrap();
    assert!(clocks.iter().all(|clock| clock.ahead_ms < MINUTE_MS), "{clocks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_with_a_wrong_clock_removes_notes_and_tells_nothing() {
    let mut setup = Setup::postgres().await.in_real_time();
    setup.settings.audit_retention_ms = DAY_MS;
    let server = open(setup).await;
    let (acme, receiver) = (server.tenant("acme").await, Receiver::start().await);
    let key = server.key_with(&acme, &json!({"name": "Year", "scopes": ["*"], "expires_days": 365})).await;
    fill(&server, &acme, &receiver).await;
    let before = rows(&server).await;
    assert!(before.iter().all(|(_, count)| *count > 0), "{before:?}");
    let (wrong, sent_before) = (ahead(&server).await, receiver.count());
    // It has seen a use to note, and a session that has ended long ago by its clock.
    wrong.get(SESSION).key(&key.plain).await.is(200);
    wrong.get(SESSION).cookie(&acme.admin).await.problem("session_expired");
    is_refused(kernel::jobs::delete_expired(&wrong.app, &features::install().retention).await);
    is_refused(webhooks::jobs::clean_deliveries(&wrong.app, 90 * DAY_MS).await);
    is_refused(kernel::jobs::save_last_uses(&wrong.app).await);
    is_refused(kernel::jobs::exchange_rate_counts(&wrong.app).await);
    api_keys::jobs::announce_expiry(&wrong.app).await.unwrap();
    assert_eq!(rows(&server).await, before);
    assert_eq!(count(&server, "SELECT COUNT(*) FROM api_keys WHERE expiry_announced").await, 0);
    assert_eq!(
        count(&server, "SELECT COUNT(*) FROM api_key_uses").await,
        0,
        "a use in the future hides all later ones"
    );
    server.get(SESSION).cookie(&acme.admin).await.is(200);
    server.sender.run_due().await.unwrap();
    assert_eq!(receiver.count(), sent_before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_with_a_wrong_clock_sends_nothing_early_and_holds_nothing_back() {
    let mut setup = Setup::postgres().await.in_real_time();
    setup.sending.schedule_ms = vec![HOUR_MS];
    let server = open(setup).await;
    let (acme, receiver) = (server.tenant("acme").await, Receiver::start().await);
    receiver.on("/hook", [Behaviour::Answer(500), Behaviour::Answer(204)]);
    let hook = endpoint(&server, &acme, &receiver.url("/hook"), &["api_key.*"]).await;
    server.key(&acme, &["*"]).await;
    server.sender.run_due().await.unwrap();
    let wrong = ahead(&server).await;
    // By its clock the hour that the first waits for is over.
    is_refused(wrong.sender.run_due().await);
    assert_eq!(receiver.count(), 1, "nothing is sent early");
    server.key(&acme, &["*"]).await;
    is_refused(wrong.sender.run_due().await);
    assert_eq!(receiver.count(), 1, "without a lease it sends nothing");
    server.sender.run_due().await.unwrap();
    assert_eq!(receiver.count(), 2, "and what is due is nobody's but the next node's");
    let log = format!("{DELIVERIES}?webhook_id={}", hook["id"].as_str().unwrap());
    let log = server.get(log).cookie(&acme.admin).await.ok(200);
    let state = |at: usize| (log["data"][at]["status"].as_str(), log["data"][at]["attempts"].as_array().unwrap().len());
    assert_eq!([state(0), state(1)], [(Some("succeeded"), 1), (Some("pending"), 1)], "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_embedded_store_has_no_time_but_its_own() {
    let server = Setup::sqlite().await.in_wrong_time(AHEAD_MS).start().await;
    let acme = server.tenant("acme").await;
    server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "Printer"})).await.is(201);
}
