//! What is taken from a key is taken from the keys it has made.

use super::makers::{body, child, line, read};
use super::*;
use crate::support::people::AUDIT;
use crate::webhooks::EVENTS;

fn reaching(scopes: &[&str], networks: &[&str]) -> Value {
    json!({"name": "Made", "scopes": scopes, "allowed_cidrs": networks})
}

async fn put(server: &Server, tenancy: &Tenancy, key: &Key, body: &Value) -> Value {
    server.put(one(key)).cookie(&tenancy.admin).json(body).await.ok(200)
}

/// The entries of the trail about a key that was changed or revoked: action and changes, the oldest first.
async fn trail(server: &Server, tenancy: &Tenancy, key: &Key) -> Vec<(String, Value)> {
    let path = format!("{AUDIT}?target_id={}&action=api_key.update,api_key.revoke", key.id);
    let audit = server.get(path).cookie(&tenancy.admin).await.ok(200);
    let entries = audit["data"].as_array().unwrap().iter().rev();
    entries.map(|entry| (entry["action"].as_str().unwrap().to_owned(), entry["changes"].clone())).collect()
}

over_http! {
    async fn scopes_that_a_maker_loses_are_lost_by_all_that_it_made(server: Server) {
        let acme = server.tenant("acme").await;
        let [first, second, third] = line(&server, &acme, 30).await;
        let few = child(&server, &third, reaching(&["api_keys:read"], &[])).await;
        let scopes = json!(["api_keys:*", "tickets:read"]);
        // They are remembered from here on, and must be forgotten before the answer.
        for key in [&first, &second, &third, &few] {
            server.get(SESSION).key(&key.plain).await.is(200);
        }
        put(&server, &acme, &first, &reaching(&["api_keys:*", "tickets:read"], &[])).await;
        for key in [&first, &second, &third] {
            assert_eq!(server.get(SESSION).key(&key.plain).await.ok(200)["scopes"], scopes);
            assert_eq!(read(&server, &acme, key).await["version"], 2);
            let changes = json!({"scopes": {"from": ["*"], "to": scopes}});
            assert_eq!(trail(&server, &acme, key).await, [("api_key.update".to_owned(), changes)], "one entry");
        }
        assert_eq!(read(&server, &acme, &few).await["version"], 1, "it has lost nothing");
        // What is given back to the maker is not given to the others.
        put(&server, &acme, &first, &reaching(&["*"], &[])).await;
        assert_eq!(read(&server, &acme, &second).await["scopes"], scopes);
    }

    async fn networks_that_a_maker_loses_are_lost_by_all_that_it_made(server: Server) {
        let acme = server.tenant("acme").await;
        let own = ["127.0.0.0/8", "10.0.0.0/8", "2001:db8::/32"];
        let maker = server.key_with(&acme, &reaching(&["*"], &own)).await;
        let inherited = child(&server, &maker, body()).await;
        let inner = child(&server, &inherited, reaching(&["*"], &["10.1.2.0/24", "127.0.0.1/32"])).await;
        let elsewhere = child(&server, &inherited, reaching(&["*"], &["10.2.0.0/16"])).await;
        let opened = child(&server, &maker, body()).await;
        put(&server, &acme, &opened, &reaching(&["*"], &[])).await;
        let less = ["127.0.0.0/8", "10.1.0.0/16", "2001:db8:7::/48"];
        put(&server, &acme, &maker, &reaching(&["*"], &less)).await;
        for (key, networks) in [
            (&inherited, json!(less)),
            (&inner, json!(["10.1.2.0/24", "127.0.0.1/32"])),
            (&opened, json!(less)),
        ] {
            assert_eq!(read(&server, &acme, key).await["allowed_cidrs"], networks);
            server.get(SESSION).key(&key.plain).await.is(200);
        }
        assert_eq!(read(&server, &acme, &elsewhere).await["status"], "revoked", "no network is left of it");
        // Opening the maker opens nothing else.
        put(&server, &acme, &maker, &reaching(&["*"], &[])).await;
        assert_eq!(read(&server, &acme, &inherited).await["allowed_cidrs"], json!(less));
        // A maker without a list that gets one.
        put(&server, &acme, &maker, &reaching(&["*"], &["10.0.0.0/8"])).await;
        assert_eq!(read(&server, &acme, &inherited).await["allowed_cidrs"], json!(["10.1.0.0/16"]));
        server.get(SESSION).key(&inherited.plain).await.problem("address_not_allowed");
    }

    async fn a_key_that_nothing_is_left_of_is_revoked_with_all_that_it_made(server: Server) {
        let acme = server.tenant("acme").await;
        let maker = server.key(&acme, &["api_keys:*", "tickets:*"]).await;
        let tickets = child(&server, &maker, reaching(&["api_keys:write", "tickets:*"], &[])).await;
        let lost = child(&server, &tickets, reaching(&["tickets:read"], &[])).await;
        let emptied = child(&server, &maker, reaching(&["tickets:write"], &[])).await;
        let below = [child(&server, &tickets, reaching(&["tickets:write"], &[])).await, lost];
        put(&server, &acme, &maker, &reaching(&["api_keys:*"], &[])).await;
        let told = server.get(format!("{EVENTS}?view=feed&types=api_key.revoked")).cookie(&acme.admin).await.ok(200);
        let told = told["data"].as_array().unwrap();
        assert_eq!(server.get(SESSION).key(&tickets.plain).await.ok(200)["scopes"], json!(["api_keys:write"]));
        for key in below.iter().chain([&emptied]) {
            server.get(SESSION).key(&key.plain).await.problem("unauthenticated");
            assert_eq!(read(&server, &acme, key).await["status"], "revoked");
            assert_eq!(trail(&server, &acme, key).await, [("api_key.revoke".to_owned(), Value::Null)]);
            assert_eq!(told.iter().filter(|event| event["data"]["id"] == key.id).count(), 1, "one event each");
        }
        // One that lives on was given more by a person than its maker has; with that one it goes.
        let middle = child(&server, &maker, reaching(&["api_keys:read", "api_keys:write"], &[])).await;
        let wide = child(&server, &middle, reaching(&["api_keys:read"], &[])).await;
        put(&server, &acme, &wide, &reaching(&["api_keys:read", "search:read"], &[])).await;
        put(&server, &acme, &maker, &reaching(&["search:read"], &[])).await;
        for key in [&middle, &wide] {
            assert_eq!(read(&server, &acme, key).await["status"], "revoked");
        }
    }

    async fn what_a_change_takes_in_several_ways_is_one_change_of_each(server: Server) {
        let acme = server.tenant("acme").await;
        let [first, second, _] = line(&server, &acme, 30).await;
        let mut less = reaching(&["api_keys:*"], &["127.0.0.0/8"]);
        less["expires_days"] = json!(3);
        let now = put(&server, &acme, &first, &less).await;
        let changed = read(&server, &acme, &second).await;
        for field in ["scopes", "allowed_cidrs", "expires_at", "version"] {
            assert_eq!(changed[field], now[field], "{field}");
        }
        let entries = trail(&server, &acme, &second).await;
        assert_eq!(entries.len(), 1);
        assert_eq!(fields(&entries[0].1), ["allowed_cidrs", "expires_at", "scopes"]);
    }

    async fn an_ancestor_narrows_as_a_person_does(server: Server) {
        let acme = server.tenant("acme").await;
        let [first, second, third] = line(&server, &acme, 30).await;
        let less = reaching(&["tickets:read"], &["127.0.0.0/8"]);
        server.put(one(&second)).key(&first.plain).json(&less).await.is(200);
        let changed = read(&server, &acme, &third).await;
        assert_eq!((&changed["scopes"], &changed["allowed_cidrs"]), (&less["scopes"], &less["allowed_cidrs"]));
    }

    async fn a_key_that_had_expired_comes_back_within_its_makers_networks(server: Server) {
        let acme = server.tenant("acme").await;
        let maker = server.key_with(&acme, &reaching(&["*"], &["127.0.0.0/8", "10.0.0.0/8"])).await;
        let mut short = body();
        short["expires_days"] = json!(1);
        let made = child(&server, &maker, short.clone()).await;
        server.advance(2 * kernel::base::DAY_MS);
        let acme = Tenancy { admin: server.user(&acme.tenant, kernel::auth::Role::Admin).await, ..acme };
        put(&server, &acme, &maker, &reaching(&["*"], &["10.1.0.0/16"])).await;
        let revived = put(&server, &acme, &made, &short).await;
        assert_eq!((&revived["status"], &revived["allowed_cidrs"]), (&json!("active"), &json!(["10.1.0.0/16"])));
    }

    async fn a_key_made_while_its_maker_is_narrowed_holds_no_more_than_it(server: Server) {
        let acme = server.tenant("acme").await;
        let less = reaching(&["api_keys:*"], &["127.0.0.0/8"]);
        for _ in 0..20 {
            let maker = server.key(&acme, &["*"]).await;
            let held = server.hold_writes(acme.tenant.id).await;
            let narrow = async { server.put(one(&maker)).cookie(&acme.admin).json(&less).await };
            let make = async { server.post(KEYS).key(&maker.plain).json(&body()).await };
            let release = async { drop(held) };
            let (narrowed, made, ()) = tokio::join!(narrow, make, release);
            narrowed.is(200);
            if made.status == 201 {
                let me = server.get(SESSION).key(made.json()["key"].as_str().unwrap()).await.ok(200);
                assert_eq!(me["scopes"], less["scopes"]);
            } else {
                made.problem("insufficient_scope");
            }
            server.delete(one(&maker)).cookie(&acme.admin).await.is(204);
        }
    }
}
