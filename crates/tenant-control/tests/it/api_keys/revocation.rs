//! DELETE revokes: at once, for good, and the record stays readable.

use std::time::{Duration, Instant};

use kernel::base::{DAY_MS, MINUTE_MS};

use super::*;

/// The ids that a list shows, in its order.
async fn listed(server: &Server, admin: &str, query: &str) -> Vec<String> {
    let page = server.get(format!("{KEYS}{query}")).cookie(admin).await.ok(200);
    let rows = page["data"].as_array().expect("data").iter();
    rows.map(|row| row["id"].as_str().expect("an id").to_owned()).collect()
}

over_http! {
    async fn a_revoked_key_is_refused_from_then_on(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        let rotated = server.put(one(&key)).cookie(&acme.admin).json(&json!({"rotate": {}})).await.ok(200);
        let new = rotated["key"].as_str().unwrap();
        for plain in [&key.plain, new] {
            server.get(SESSION).key(plain).await.is(200);
        }
        let answer = server.delete(one(&key)).cookie(&acme.admin).await;
        assert!(answer.is(204).body.is_empty());
        for plain in [&key.plain, new] {
            server.get(SESSION).key(plain).await.problem("unauthenticated");
        }
    }

    async fn a_revoked_key_can_be_read_but_not_changed(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        server.advance(MINUTE_MS);
        server.delete(one(&key)).cookie(&acme.admin).await.is(204);
        let mut wanted = key.record.clone();
        wanted.as_object_mut().unwrap().remove("key");
        wanted["status"] = json!("revoked");
        wanted["version"] = json!(2);
        wanted["updated_at"] = json!(server.now().to_string());
        assert_eq!(server.get(one(&key)).cookie(&acme.admin).await.ok(200), wanted);
        for body in
            [json!({"name": "New", "scopes": ["*"]}), json!({"name": "Key", "scopes": ["*"]}), json!({"rotate": {}})]
        {
            server.put(one(&key)).cookie(&acme.admin).json(&body).await.problem("conflict");
        }
        server.delete(one(&key)).cookie(&acme.admin).await.problem("conflict");
        assert_eq!(server.get(one(&key)).cookie(&acme.admin).await.ok(200), wanted, "and nothing moved");
    }

    async fn delete_needs_the_id_of_a_key(server: Server) {
        let acme = server.tenant("acme").await;
        server.delete(KEYS).cookie(&acme.admin).await.problem("missing_parameter");
        server
            .delete(format!("{KEYS}?id=key_0000000000000000000000000a"))
            .cookie(&acme.admin)
            .await
            .problem("not_found");
    }

    async fn the_list_hides_revoked_keys_unless_asked(server: Server) {
        let acme = server.tenant("acme").await;
        let mut keys = Vec::new();
        for (name, days) in [("expired", 1), ("active", 90), ("revoked", 90), ("expired, then revoked", 1)] {
            server.advance(1);
            keys.push(server.key_with(&acme, &json!({"name": name, "scopes": ["*"], "expires_days": days})).await);
        }
        server.advance(DAY_MS);
        let admin = server.user(&acme.tenant, kernel::auth::Role::Admin).await;
        for key in &keys[2..] {
            server.delete(one(key)).cookie(&admin).await.is(204);
        }
        let (expired, active, revoked, both) = (&keys[0].id, &keys[1].id, &keys[2].id, &keys[3].id);
        for (query, wanted) in [
            ("", vec![active, expired]),
            ("?status=active", vec![active]),
            ("?status=expired", vec![expired]),
            ("?status=revoked", vec![both, revoked]),
            ("?status=active,expired", vec![active, expired]),
            ("?status=active,revoked", vec![both, revoked, active]),
            ("?status=revoked,expired", vec![both, revoked, expired]),
            ("?status=active,expired,revoked", vec![both, revoked, active, expired]),
            ("?status=active,active", vec![active]),
        ] {
            assert_eq!(listed(&server, &admin, query).await.iter().collect::<Vec<_>>(), wanted, "{query}");
        }
        for query in
            ["?status=", "?status=deleted", "?status=active,", "?status=Active", "?status=active&status=deleted"]
        {
            server.get(format!("{KEYS}{query}")).cookie(&admin).await.problem("invalid_parameter");
        }
    }

    async fn a_filter_holds_on_every_page(server: Server) {
        let acme = server.tenant("acme").await;
        let mut wanted = Vec::new();
        for n in 0..9 {
            server.advance(n % 2);
            let key = server.key(&acme, &["*"]).await;
            if n % 3 == 0 {
                server.delete(one(&key)).cookie(&acme.admin).await.is(204);
                wanted.insert(0, key.id);
            }
        }
        let (mut found, mut next) = (Vec::new(), format!("{KEYS}?status=revoked&limit=1"));
        loop {
            let page = server.get(next).cookie(&acme.admin).await.ok(200);
            found.extend(page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            next = format!("{KEYS}?status=revoked&limit=1&cursor={cursor}");
        }
        assert_eq!(found, wanted);
    }

    async fn every_node_refuses_a_revoked_key_within_a_second(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(kernel::http::RatePolicy::Read, 1_000_000);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let other = server.second_node().await;
        let key = server.key(&acme, &["*"]).await;
        other.get(SESSION).key(&key.plain).await.is(200);
        server.delete(one(&key)).cookie(&acme.admin).await.is(204);
        let revoked = Instant::now();
        // Asking all the time keeps the other node's memory of the key as fresh as it can be. What counts is when it was
        // asked: an answer may be late.
        loop {
            let asked = revoked.elapsed();
            let answer = other.get(SESSION).key(&key.plain).await;
            if answer.status != 200 {
                break drop(answer.problem("unauthenticated"));
            }
            assert!(asked < Duration::from_secs(1), "still accepted after {asked:?}");
        }
    }

    async fn requests_that_race_a_revocation_are_refused_once_it_is_answered(server: Server) {
        let acme = server.tenant("acme").await;
        for _ in 0..10 {
            let key = server.key(&acme, &["*"]).await;
            let busy = async {
                // Keeps a cached credential alive right up to the revocation.
                while server.get(SESSION).key(&key.plain).await.status == 200 {}
            };
            let revoke = async {
                server.delete(one(&key)).cookie(&acme.admin).await.is(204);
                server.get(SESSION).key(&key.plain).await.problem("unauthenticated");
            };
            tokio::join!(busy, revoke);
        }
    }
}
