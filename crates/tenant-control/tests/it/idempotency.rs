//! `Idempotency-Key`: a repeat replays, a crash makes no duplicate, and a stored secret is sealed.

use std::future::IntoFuture;

use futures_util::future::{join_all, select};
use kernel::args;
use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};
use kernel::http::RatePolicy;
use kernel::store::Purpose;
use serde_json::{Value, json};
use tenant_control::features;
use tenant_control::features::users::{NewUser, create_user};

use crate::support::call::Call;
use crate::support::people::KEYS;
use crate::support::{Answer, Server, Tenancy, over_http};
use crate::tickets::TICKETS;
use crate::webhooks::WEBHOOKS;

fn body() -> Value {
    json!({"name": "A", "scopes": ["search:read"]})
}

fn post<'a>(server: &'a Server, tenancy: &Tenancy, key: &str) -> Call<'a> {
    server.post(KEYS).cookie(&tenancy.admin).idempotency_key(key)
}

async fn count(server: &Server, tenancy: &Tenancy) -> usize {
    let page = server.get(format!("{KEYS}?limit=200")).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().unwrap().len()
}

fn replayed(answer: &Answer) -> bool {
    answer.is(201).header("idempotency-replayed") == "true"
}

over_http! {
    async fn a_repeat_replays_the_first_answer(server: Server) {
        let acme = server.tenant("acme").await;
        let first = post(&server, &acme, "k").json(&body()).await;
        assert!(!replayed(&first));
        server.advance(MINUTE_MS);
        let again = post(&server, &acme, "k").json(&body()).await;
        assert!(replayed(&again));
        assert_eq!(again.body, first.body, "byte for byte, the key included");
        for header in ["etag", "location", "content-type"] {
            assert_eq!(again.header(header), first.header(header), "{header}");
        }
        assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
        assert_eq!(count(&server, &acme).await, 1);
        let plain = first.json()["key"].as_str().unwrap().to_owned();
        server.get("/api/auth/session").key(&plain).await.is(200);
    }

    async fn quotes_around_a_key_do_not_count(server: Server) {
        let acme = server.tenant("acme").await;
        assert!(!replayed(&post(&server, &acme, "\"one key\"").json(&body()).await));
        assert!(replayed(&post(&server, &acme, "one key").json(&body()).await));
        assert!(!replayed(&post(&server, &acme, "One key").json(&body()).await), "but case does");
    }

    async fn the_same_key_with_another_body_is_refused(server: Server) {
        let acme = server.tenant("acme").await;
        post(&server, &acme, "k").json(&body()).await.is(201);
        let other = json!({"name": "B", "scopes": ["search:read"]});
        post(&server, &acme, "k").json(&other).await.problem("idempotency_key_reused");
        // The same body means the same bytes.
        let spaced = format!(" {}", body());
        post(&server, &acme, "k").header("content-type", "application/json").body(spaced).await.problem("idempotency_key_reused");
        assert_eq!(count(&server, &acme).await, 1);
    }

    async fn a_key_has_1_to_255_characters(server: Server) {
        let acme = server.tenant("acme").await;
        for good in ["k", &"k".repeat(255), &format!("\"{}\"", "k".repeat(254)), "!~", "a,b;c=d"] {
            post(&server, &acme, good).json(&body()).await.is(201);
        }
        let made = count(&server, &acme).await;
        for bad in ["", " ", "\"\"", &"k".repeat(256), "ü", "a\tb"] {
            let answer = post(&server, &acme, bad).json(&body()).await;
            assert_eq!(answer.status, 400, "{bad:?}");
            answer.problem("invalid_header");
        }
        post(&server, &acme, "a").idempotency_key("b").json(&body()).await.problem("invalid_header");
        assert_eq!(count(&server, &acme).await, made);
    }

    async fn a_key_of_255_characters_may_stand_in_quotes(server: Server) {
        let acme = server.tenant("acme").await;
        let key = "k".repeat(255);
        assert!(!replayed(&post(&server, &acme, &key).json(&body()).await));
        assert!(replayed(&post(&server, &acme, &format!("\"{key}\"")).json(&body()).await));
    }

    async fn a_patch_is_replayed_and_comments_once(server: Server) {
        let acme = server.tenant("acme").await;
        let make = async || server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "A"})).await.ok(201);
        let (ticket, other) = (make().await, make().await);
        let patch = |ticket: &Value, key: &str| {
            let target = format!("{TICKETS}?id={}", ticket["id"].as_str().unwrap());
            server.patch(target).cookie(&acme.admin).idempotency_key(key)
        };
        let said = json!({"status": "open", "comment": {"body": "Once."}});
        let first = patch(&ticket, "k").header("if-match", "\"1\"").json(&said).await;
        assert_eq!(first.is(200).header("idempotency-replayed"), "");
        server.advance(MINUTE_MS);
        for key in ["k", "\"k\""] {
            // The version has moved since, and still it is the same request.
            let again = patch(&ticket, key).header("if-match", "\"1\"").json(&said).await;
            assert_eq!(again.is(200).header("idempotency-replayed"), "true");
            assert_eq!((&again.body, again.header("etag")), (&first.body, first.header("etag")));
        }
        let target = format!("{TICKETS}?id={}", ticket["id"].as_str().unwrap());
        let now = server.get(target).cookie(&acme.admin).await.ok(200);
        assert_eq!((&now["comment_count"], &now["version"]), (&json!(1), &json!(2)));
        patch(&ticket, "k").json(&json!({"status": "open"})).await.problem("idempotency_key_reused");
        patch(&other, "k").json(&said).await.problem("idempotency_key_reused");
        // However the query is spelt.
        let spelt = format!("{TICKETS}?%69d={}", ticket["id"].as_str().unwrap().replace('_', "%5F"));
        let again = server.patch(spelt).cookie(&acme.admin).idempotency_key("k").json(&said).await;
        assert_eq!(again.is(200).header("idempotency-replayed"), "true");
        // Another route, and another actor.
        let made = server.post(TICKETS).cookie(&acme.admin).idempotency_key("k").json(&json!({"subject": "B"})).await;
        assert_eq!(made.is(201).header("idempotency-replayed"), "");
        let key = server.key(&acme, &["tickets:write"]).await;
        let target = format!("{TICKETS}?id={}", other["id"].as_str().unwrap());
        let by_key = server.patch(target).key(&key.plain).idempotency_key("k").json(&said).await;
        assert_eq!(by_key.is(200).header("idempotency-replayed"), "");
    }

    async fn a_refused_patch_frees_its_key(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "A"})).await.ok(201);
        let target = format!("{TICKETS}?id={}", ticket["id"].as_str().unwrap());
        let patch = || server.patch(&target).cookie(&acme.admin).idempotency_key("k");
        patch().json(&json!({"status": "closed"})).await.problem("invalid_transition");
        patch().json(&json!({"subject": ""})).await.problem("invalid_fields");
        patch().header("if-match", "\"9\"").json(&json!({"team": "A"})).await.problem("version_mismatch");
        let nobody = "/api/psa/tickets?id=tkt_01jd8z6v2mfkpb7h3q9xw5t4ra";
        server.patch(nobody).cookie(&acme.admin).idempotency_key("k").json(&json!({"team": "A"})).await.problem("not_found");
        assert_eq!(patch().json(&json!({"team": "B"})).await.ok(200)["team"], "B");
    }

    async fn every_change_refuses_a_malformed_key_and_takes_a_good_one(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["search:read"]).await;
        let hook = json!({"name": "A", "url": "https://hooks.example.com/in", "events": ["webhook.auto_disabled"]});
        let made = server.post(WEBHOOKS).cookie(&acme.admin).json(&hook).await.ok(201);
        let ticket = server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "A"})).await.ok(201);
        let (keys, hooks) = (format!("{KEYS}?id={}", key.id), format!("{WEBHOOKS}?id={}", made["id"].as_str().unwrap()));
        let tickets = format!("{TICKETS}?id={}", ticket["id"].as_str().unwrap());
        let calls = || {
            [
                server.patch(&tickets).json(&json!({"team": "A"})),
                server.put(&keys).json(&body()),
                server.put(&hooks).json(&hook),
                server.delete(&keys),
                server.delete(&hooks),
                server.delete("/api/auth/session"),
            ]
        };
        for call in calls() {
            call.cookie(&acme.admin).idempotency_key(" ").await.problem("invalid_header");
        }
        for call in calls() {
            assert!(call.cookie(&acme.admin).idempotency_key("k").await.status < 300);
        }
    }

    async fn a_key_belongs_to_its_actor_and_tenant(server: Server) {
        let acme = server.tenant("acme").await;
        let globex = server.tenant("globex").await;
        let colleague = Tenancy { tenant: acme.tenant.clone(), admin: server.user(&acme.tenant, kernel::auth::Role::Admin).await };
        let automaton = server.key(&acme, &["*"]).await;
        assert!(!replayed(&post(&server, &acme, "k").json(&body()).await));
        assert!(!replayed(&post(&server, &colleague, "k").json(&body()).await));
        assert!(!replayed(&post(&server, &globex, "k").json(&body()).await));
        let by_key = || server.post(KEYS).key(&automaton.plain).idempotency_key("k").json(&body());
        assert!(!replayed(&by_key().await));
        assert!(replayed(&by_key().await));
    }

    async fn another_session_of_the_same_user_may_repeat(server: Server) {
        let acme = server.tenant("acme").await;
        let new = NewUser { email: "a@acme.test".to_owned(), name: None, role: kernel::auth::Role::Admin, platform_operator: false };
        let user = create_user(&server.app.store, &acme.tenant, new).await.unwrap();
        for expected in [false, true] {
            let made = kernel::auth::create_session(&server.app.store, acme.tenant.id, user.id, HOUR_MS).await.unwrap();
            let cookie = format!("session={}", made.0.expose_secret());
            let answer = server.post(KEYS).cookie(&cookie).idempotency_key("k").json(&body()).await;
            assert_eq!(replayed(&answer), expected);
        }
    }

    async fn a_refusal_frees_the_key(server: Server) {
        let acme = server.tenant("acme").await;
        let technician = server.user(&acme.tenant, kernel::auth::Role::Technician).await;
        post(&server, &acme, "k").json(&json!({"name": "A"})).await.problem("invalid_fields");
        server.post(KEYS).cookie(&technician).idempotency_key("k").json(&body()).await.problem("insufficient_scope");
        for _ in 0..100 {
            server.key(&acme, &["search:read"]).await;
        }
        post(&server, &acme, "k").json(&body()).await.problem("limit_reached");
        let page = server.get(KEYS).cookie(&acme.admin).await.ok(200);
        let target = format!("{KEYS}?id={}", page["data"][0]["id"].as_str().unwrap());
        server.delete(target).cookie(&acme.admin).await.is(204);
        assert!(!replayed(&post(&server, &acme, "k").json(&json!({"name": "Another", "scopes": ["search:read"]})).await));
    }

    async fn an_answer_is_kept_for_24_hours(setup: Setup) {
        let mut setup = setup;
        setup.settings.session_idle_ms = 10 * DAY_MS;
        setup.settings.session_absolute_ms = 10 * DAY_MS;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let first = post(&server, &acme, "k").json(&body()).await;
        assert!(!replayed(&first));
        server.advance(DAY_MS - 1);
        kernel::jobs::delete_expired(&server.app, &features::install().retention).await.unwrap();
        assert!(replayed(&post(&server, &acme, "k").json(&body()).await));
        server.advance(1);
        let anew = post(&server, &acme, "k").json(&body()).await;
        assert!(!replayed(&anew), "forgotten, also before it is cleaned away");
        assert_ne!(anew.json()["id"], first.json()["id"]);
        assert!(replayed(&post(&server, &acme, "k").json(&body()).await), "and kept again");
        server.advance(2 * DAY_MS);
        kernel::jobs::delete_expired(&server.app, &features::install().retention).await.unwrap();
        let rows: i64 = server.app.store.system(Purpose::Cli).get_one("SELECT COUNT(*) FROM idempotency_records", args![]).await.unwrap();
        assert_eq!(rows, 0);
    }

    async fn a_stored_answer_is_sealed(server: Server) {
        let acme = server.tenant("acme").await;
        let made = post(&server, &acme, "k").json(&json!({"name": "Findable", "scopes": ["search:read"]})).await.ok(201);
        let db = server.app.store.system(Purpose::Cli);
        let sql = "SELECT body, headers, body_hash FROM idempotency_records";
        let (stored, headers, hash): (Vec<u8>, String, Vec<u8>) = db.get_one(sql, args![]).await.unwrap();
        let plain = made["key"].as_str().unwrap();
        for (column, bytes) in [("body", &stored), ("headers", &headers.into_bytes()), ("body_hash", &hash)] {
            for secret in [plain, &plain[13..], "Findable"] {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{column} holds {secret} in clear");
            }
        }
    }

    async fn without_the_header_every_request_counts(server: Server) {
        let acme = server.tenant("acme").await;
        for _ in 0..2 {
            let answer = server.post(KEYS).cookie(&acme.admin).json(&body()).await;
            assert!(!replayed(&answer));
        }
        assert_eq!(count(&server, &acme).await, 2);
    }

    async fn while_the_first_is_running_a_repeat_is_told_so(server: Server) {
        let acme = server.tenant("acme").await;
        let held = server.hold_writes(acme.tenant.id).await;
        let call = || post(&server, &acme, "k").json(&body()).into_future();
        // Whichever comes second is answered at once; the other waits for the held clock.
        let (early, late) = select(call(), call()).await.factor_first();
        early.problem("idempotency_in_progress");
        drop(held);
        assert!(!replayed(&late.await));
        assert!(replayed(&call().await));
        assert_eq!(count(&server, &acme).await, 1);
    }

    async fn two_hundred_at_once_make_one(server: Server) {
        let acme = server.tenant("acme").await;
        let calls = (0..200).map(|_| post(&server, &acme, "k").json(&body()).into_future());
        let mut made = 0;
        let mut bodies = Vec::new();
        for answer in join_all(calls).await {
            if answer.status == 409 {
                answer.problem("idempotency_in_progress");
                continue;
            }
            made += usize::from(!replayed(&answer));
            bodies.push(answer.body);
        }
        assert_eq!(made, 1);
        assert!(bodies.iter().all(|body| *body == bodies[0]));
        assert_eq!(count(&server, &acme).await, 1);
    }

    async fn a_client_that_goes_away_gets_the_answer_later(setup: Setup) {
        let mut setup = setup;
        // It asks as often as the machine lets it.
        setup.settings.rate_table.set(RatePolicy::Write, 10_000_000);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let held = server.hold_writes(acme.tenant.id).await;
        let call = || post(&server, &acme, "k").json(&body()).into_future();
        let (early, late) = select(call(), call()).await.factor_first();
        early.problem("idempotency_in_progress");
        drop(late);
        drop(held);
        // Until the abandoned one has finished a repeat is told that it is running, and then it is replayed.
        let answer = loop {
            let answer = call().await;
            if answer.status != 409 {
                break answer;
            }
        };
        assert!(replayed(&answer) || count(&server, &acme).await == 1);
        assert_eq!(count(&server, &acme).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_at_once_make_one() {
    let server = Server::postgres().await;
    let second = server.second_node().await;
    let acme = server.tenant("acme").await;
    let nodes = [&server, &second];
    let calls = (0..100).map(|n| post(nodes[n % 2], &acme, "k").json(&body()).into_future());
    let answers = join_all(calls).await;
    let made = answers.iter().filter(|answer| answer.status == 201 && !replayed(answer)).count();
    assert_eq!(made, 1);
    assert!(answers.iter().all(|answer| answer.status == 201 || answer.problem("idempotency_in_progress").is_object()));
    assert_eq!(count(&server, &acme).await, 1);
    assert!(
        replayed(&post(&second, &acme, "k").json(&body()).await),
        "the other node replays what the first has stored"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn while_the_first_runs_on_one_node_the_other_tells_so() {
    let server = Server::postgres().await;
    let second = server.second_node().await;
    let acme = server.tenant("acme").await;
    let held = server.hold_writes(acme.tenant.id).await;
    let call = |node| post(node, &acme, "k").json(&body()).into_future();
    let (early, late) = select(call(&server), call(&second)).await.factor_first();
    early.problem("idempotency_in_progress");
    drop(held);
    assert!(!replayed(&late.await));
    assert_eq!(count(&server, &acme).await, 1);
}
