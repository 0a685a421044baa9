//! The order of checks: each request here breaks two neighbouring rules, and the earlier one answers.
//!
//! 503 shed → 404/405 of the route → 400 ambiguous_credentials → 401 → 429 → 403 (csrf, address, scope) → 400 query →
//! body 415, 413, 400, 422 → idempotency → 404 record → 412 → 409.

use kernel::auth::Role;
use kernel::http::{BODY_BYTES_MAX, RatePolicy};
use serde_json::json;

use crate::support::over_http;
use crate::support::people::{KEYS, SESSION};

const NOWHERE: &str = "key_01jd8z6v2mfkpb7h3q9xw5t4ra";

fn one(id: &str) -> String {
    format!("{KEYS}?id={id}")
}

over_http! {
    async fn shedding_comes_before_the_route(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 0;
        let server = setup.start().await;
        server.get("/api/nowhere").await.problem("unavailable");
        server.call(reqwest::Method::PATCH, KEYS).await.problem("unavailable");
        server.get(KEYS).header("x-api-key", "a").header("cookie", "session=b").await.problem("unavailable");
    }

    async fn the_route_comes_before_the_credentials(server: Server) {
        server.get("/api/nowhere").key("a").header("x-api-key", "b").await.problem("not_found");
        let answer = server.call(reqwest::Method::PATCH, KEYS).key("a").header("x-api-key", "b").await;
        answer.problem("method_not_allowed");
    }

    async fn two_credentials_come_before_a_bad_one(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await.plain;
        let calls = [
            server.get(KEYS).key("bad").header("x-api-key", "bad"),
            server.get(KEYS).key(&key).header("x-api-key", &key),
            server.get(KEYS).key(&key).key(&key),
            server.get(KEYS).key(&key).cookie(&acme.admin),
            server.get(KEYS).header("x-api-key", "bad").cookie(&acme.admin),
            server.get(KEYS).cookie(&format!("{}; {}", acme.admin, acme.admin)),
            server.get(KEYS).cookie(&acme.admin).cookie("session=b"),
        ];
        for call in calls {
            call.await.problem("ambiguous_credentials");
        }
        // Other cookies are no credentials.
        server.get(KEYS).cookie(&format!("theme=dark; {}; a=b", acme.admin)).await.is(200);
    }

    async fn a_bad_credential_comes_before_its_used_up_budget(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Read, 1);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        server.get(KEYS).key(&key.plain).await.is(200);
        server.get(KEYS).key(&key.plain).await.problem("rate_limited");
        server.delete(one(&key.id)).cookie(&acme.admin).await.is(204);
        server.get(KEYS).key(&key.plain).await.problem("unauthenticated");
    }

    async fn a_used_up_budget_comes_before_what_is_forbidden(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Read, 1);
        setup.settings.rate_table.set(RatePolicy::Write, 3);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Elsewhere", "scopes": ["api_keys:read"], "allowed_cidrs": ["192.0.2.0/24"]});
        let elsewhere = server.key_with(&acme, &body).await;
        let powerless = server.key(&acme, &["search:read"]).await;
        let cross_site = || server.delete(one(NOWHERE)).cookie(&acme.admin).header("sec-fetch-site", "cross-site");
        cross_site().await.problem("csrf_rejected");
        cross_site().await.problem("rate_limited");
        server.get(KEYS).key(&elsewhere.plain).await.problem("address_not_allowed");
        server.get(KEYS).key(&elsewhere.plain).await.problem("rate_limited");
        server.get(KEYS).key(&powerless.plain).await.problem("insufficient_scope");
        server.get(KEYS).key(&powerless.plain).await.problem("rate_limited");
    }

    async fn the_site_and_the_address_come_before_the_scope(server: Server) {
        let acme = server.tenant("acme").await;
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        let answer = server.delete(one(NOWHERE)).cookie(&viewer).header("sec-fetch-site", "cross-site").await;
        answer.problem("csrf_rejected");
        let body = json!({"name": "Elsewhere", "scopes": ["search:read"], "allowed_cidrs": ["192.0.2.0/24"]});
        let elsewhere = server.key_with(&acme, &body).await;
        server.get(KEYS).key(&elsewhere.plain).await.problem("address_not_allowed");
    }

    async fn the_scope_comes_before_the_query(server: Server) {
        let acme = server.tenant("acme").await;
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        server.get(format!("{KEYS}?nonsense=1")).cookie(&viewer).await.problem("insufficient_scope");
        server.put(KEYS).cookie(&viewer).await.problem("insufficient_scope");
        let key = server.key(&acme, &["*"]).await.plain;
        server.delete(format!("{SESSION}?nonsense=1")).key(&key).await.problem("insufficient_scope");
        server.get(format!("{KEYS}?id={NOWHERE}")).cookie(&viewer).await.problem("insufficient_scope");
    }

    async fn the_query_comes_before_the_body(server: Server) {
        let acme = server.tenant("acme").await;
        let bodiless = |target: &str| server.post(target).cookie(&acme.admin).header("content-type", "text/plain").body("x");
        bodiless(&format!("{KEYS}?nonsense=1")).await.problem("unknown_parameter");
        let put = |target: String| server.put(target).cookie(&acme.admin).header("content-type", "text/plain").body("x");
        put(KEYS.to_owned()).await.problem("missing_parameter");
        put(format!("{KEYS}?id={NOWHERE}&id={NOWHERE}")).await.problem("invalid_parameter");
        put(format!("{KEYS}?nonsense=1")).await.problem("unknown_parameter");
    }

    async fn the_type_comes_before_the_size_and_the_size_before_the_syntax(server: Server) {
        let acme = server.tenant("acme").await;
        let large = vec![b'{'; BODY_BYTES_MAX + 1];
        let typed = |kind: &str| server.post(KEYS).cookie(&acme.admin).header("content-type", kind);
        typed("text/plain").body(large.clone()).await.problem("unsupported_media_type");
        typed("application/json").body(large).await.problem("payload_too_large");
        typed("application/json").body(r#"{"name": 1, "nonsense": "#).await.problem("malformed_json");
    }

    async fn the_fields_come_before_idempotency(server: Server) {
        let acme = server.tenant("acme").await;
        let post = |key: &str| server.post(KEYS).cookie(&acme.admin).idempotency_key(key);
        post("k").json(&json!({"name": "A", "scopes": ["*"]})).await.is(201);
        post("k").json(&json!({"name": "A"})).await.problem("invalid_fields");
        post(&"k".repeat(300)).json(&json!({"name": "A"})).await.problem("invalid_fields");
        post(&"k".repeat(300)).json(&json!({"name": "A", "scopes": ["*"]})).await.problem("invalid_header");
    }

    async fn idempotency_comes_before_the_state(server: Server) {
        let acme = server.tenant("acme").await;
        let body = |n: usize| json!({"name": format!("Key {n}"), "scopes": ["search:read"]});
        let post = |key: &str, n: usize| server.post(KEYS).cookie(&acme.admin).idempotency_key(key).json(&body(n));
        for n in 0..100 {
            post(&format!("k{n}"), n).await.is(201);
        }
        post("new", 0).await.problem("limit_reached");
        post("k0", 1).await.problem("idempotency_key_reused");
        assert_eq!(post("k0", 0).await.is(201).header("idempotency-replayed"), "true");
    }

    async fn the_body_comes_before_the_record(server: Server) {
        let acme = server.tenant("acme").await;
        // A malformed id is the same as one that no record has.
        for id in [NOWHERE, "nonsense", ""] {
            let put = || server.put(one(id)).cookie(&acme.admin).header("if-match", "\"9\"");
            put().header("content-type", "text/plain").body("x").await.problem("unsupported_media_type");
            put().header("content-type", "application/json").body("{").await.problem("malformed_json");
            put().json(&json!({"name": ""})).await.problem("invalid_fields");
            put().json(&json!({"name": "A", "scopes": ["*"]})).await.problem("not_found");
            put().json(&json!({"rotate": {}})).await.problem("not_found");
            server.delete(one(id)).cookie(&acme.admin).header("if-match", "\"9\"").await.problem("not_found");
        }
    }

    async fn the_version_comes_before_the_state(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["search:read"]).await;
        server.delete(one(&key.id)).cookie(&acme.admin).await.is(204);
        let body = json!({"name": "A", "scopes": ["search:read"]});
        for (tag, code) in [("\"1\"", "version_mismatch"), ("\"2\"", "conflict"), ("*", "conflict")] {
            let put = || server.put(one(&key.id)).cookie(&acme.admin).header("if-match", tag);
            put().json(&body).await.problem(code);
            put().json(&json!({"rotate": {}})).await.problem(code);
            server.delete(one(&key.id)).cookie(&acme.admin).header("if-match", tag).await.problem(code);
        }
    }
}
