//! Keys that make keys: none outlives its maker, by time or by revocation. What else is taken from them is in `narrowing.rs`.

use kernel::auth::Role;
use kernel::base::{DAY_MS, MINUTE_MS};
use tenant_control::features::users::{delete_user, find_user};

use super::*;
use crate::support::people::AUDIT;

/// A key made with another key.
pub(super) async fn child(server: &Server, maker: &Key, body: Value) -> Key {
    let record = server.post(KEYS).key(&maker.plain).json(&body).await.ok(201);
    let text = |name: &str| record[name].as_str().expect("a text").to_owned();
    Key { id: text("id"), plain: text("key"), record }
}

pub(super) fn body() -> Value {
    json!({"name": "Made", "scopes": ["*"]})
}

fn lasting(days: i64) -> Value {
    json!({"name": "Made", "scopes": ["*"], "expires_days": days})
}

/// A line of keys, each made by the one before; the first by the admin.
pub(super) async fn line(server: &Server, tenancy: &Tenancy, days: i64) -> [Key; 3] {
    let first = server.key_with(tenancy, &lasting(days)).await;
    let second = child(server, &first, body()).await;
    let third = child(server, &second, body()).await;
    [first, second, third]
}

pub(super) async fn read(server: &Server, tenancy: &Tenancy, key: &Key) -> Value {
    server.get(one(key)).cookie(&tenancy.admin).await.ok(200)
}

over_http! {
    async fn a_key_cannot_outlive_the_key_that_made_it(server: Server) {
        let acme = server.tenant("acme").await;
        let maker = server.key_with(&acme, &lasting(30)).await;
        server.advance(MINUTE_MS);
        // "As long as mine" may be asked for a minute later.
        let same = child(&server, &maker, lasting(30)).await;
        assert_eq!(same.record["expires_at"], maker.record["expires_at"]);
        assert_eq!(child(&server, &maker, body()).await.record["expires_at"], maker.record["expires_at"]);
        let shorter = child(&server, &maker, lasting(29)).await;
        assert_eq!(shorter.record["expires_at"], server.now().plus_ms(29 * DAY_MS).to_string());
        server.advance(1);
        for days in [30, 31, 365] {
            assert_eq!(server.post(KEYS).key(&maker.plain).json(&lasting(days)).await.pointers(), ["/expires_days"]);
        }
        let created_by = json!({"type": "api_key", "id": maker.id, "name": "Made"});
        assert_eq!(same.record["created_by"], created_by);
    }

    async fn without_days_a_key_gets_90_or_what_its_maker_has_left(server: Server) {
        let acme = server.tenant("acme").await;
        let long = server.key_with(&acme, &lasting(365)).await;
        let short = server.key_with(&acme, &lasting(5)).await;
        server.advance(DAY_MS);
        assert_eq!(
            child(&server, &long, body()).await.record["expires_at"],
            server.now().plus_ms(90 * DAY_MS).to_string()
        );
        assert_eq!(child(&server, &short, body()).await.record["expires_at"], short.record["expires_at"]);
    }

    async fn nobody_can_lengthen_a_key_beyond_its_maker(server: Server) {
        let acme = server.tenant("acme").await;
        let [maker, made, _] = line(&server, &acme, 30).await;
        for days in [31, 365] {
            assert_eq!(
                server.put(one(&made)).cookie(&acme.admin).json(&lasting(days)).await.pointers(),
                ["/expires_days"]
            );
            assert_eq!(
                server.put(one(&made)).key(&maker.plain).json(&lasting(days)).await.pointers(),
                ["/expires_days"]
            );
        }
        // A longer life of the maker makes room, and gives nothing by itself.
        server.put(one(&maker)).cookie(&acme.admin).json(&lasting(100)).await.is(200);
        assert_eq!(read(&server, &acme, &made).await["expires_at"], maker.record["expires_at"]);
        server.put(one(&made)).cookie(&acme.admin).json(&lasting(100)).await.is(200);
    }

    async fn shortening_a_maker_shortens_what_it_made(server: Server) {
        let acme = server.tenant("acme").await;
        let [first, second, third] = line(&server, &acme, 30).await;
        let early = child(&server, &second, lasting(2)).await;
        let end = server.now().plus_ms(3 * DAY_MS).to_string();
        server.put(one(&first)).cookie(&acme.admin).json(&lasting(3)).await.is(200);
        for key in [&first, &second, &third] {
            let now = read(&server, &acme, key).await;
            assert_eq!((&now["expires_at"], &now["version"]), (&json!(end), &json!(2)), "{now}");
        }
        let untouched = read(&server, &acme, &early).await;
        assert_eq!((&untouched["expires_at"], &untouched["version"]), (&early.record["expires_at"], &json!(1)));
        let audit = server.get(format!("{AUDIT}?action=api_key.update")).cookie(&acme.admin).await.ok(200);
        let entries = audit["data"].as_array().unwrap();
        assert_eq!(entries.len(), 3, "one each: {audit}");
        for key in [&first, &second, &third] {
            let entry = entries.iter().find(|entry| entry["target"]["id"] == key.id).expect("an entry");
            assert_eq!(entry["changes"], json!({"expires_at": {"from": key.record["expires_at"], "to": end}}));
        }
        server.advance(3 * DAY_MS);
        server.get(SESSION).key(&third.plain).await.problem("key_expired");
    }

    async fn revoking_a_key_revokes_all_that_it_made(server: Server) {
        let acme = server.tenant("acme").await;
        let [first, second, third] = line(&server, &acme, 30).await;
        let [sibling, ..] = line(&server, &acme, 30).await;
        server.get(SESSION).key(&third.plain).await.is(200);
        server.delete(one(&second)).cookie(&acme.admin).await.is(204);
        for gone in [&second, &third] {
            server.get(SESSION).key(&gone.plain).await.problem("unauthenticated");
            assert_eq!(read(&server, &acme, gone).await["status"], "revoked");
        }
        for alive in [&first, &sibling] {
            server.get(SESSION).key(&alive.plain).await.is(200);
        }
        let audit = server.get(format!("{AUDIT}?action=api_key.revoke")).cookie(&acme.admin).await.ok(200);
        let mut revoked: Vec<&str> =
            audit["data"].as_array().unwrap().iter().map(|row| row["target"]["id"].as_str().unwrap()).collect();
        revoked.sort_unstable();
        let mut wanted = [second.id.as_str(), third.id.as_str()];
        wanted.sort_unstable();
        assert_eq!(revoked, wanted, "one entry each");
        // What was revoked already is not revoked again.
        server.delete(one(&first)).cookie(&acme.admin).await.is(204);
        assert_eq!(read(&server, &acme, &third).await["version"], 2);
    }

    async fn a_key_can_revoke_itself_and_its_maker_with_all_that_follows(server: Server) {
        let acme = server.tenant("acme").await;
        let [first, second, third] = line(&server, &acme, 30).await;
        server.delete(one(&third)).key(&third.plain).await.is(204);
        server.delete(one(&first)).key(&second.plain).await.is(204);
        for key in [&first, &second, &third] {
            server.get(SESSION).key(&key.plain).await.problem("unauthenticated");
        }
    }

    async fn keys_of_a_removed_user_stay_until_revoked(server: Server) {
        let acme = server.tenant("acme").await;
        let admin = Tenancy { admin: server.user(&acme.tenant, Role::Admin).await, tenant: acme.tenant.clone() };
        let key = server.key(&admin, &["*"]).await;
        let me = server.get(SESSION).cookie(&admin.admin).await.ok(200);
        let user = find_user(&server.app.store, &acme.tenant, me["actor"]["email"].as_str().unwrap())
            .await
            .unwrap();
        delete_user(&server.app.store, &acme.tenant, &user.unwrap()).await.unwrap();
        server.app.credentials.invalidate_tenant(acme.tenant.id);
        server.get(SESSION).cookie(&admin.admin).await.problem("unauthenticated");
        server.get(SESSION).key(&key.plain).await.is(200);
        assert_eq!(read(&server, &acme, &key).await["created_by"]["name"], me["actor"]["name"]);
    }

    async fn a_key_made_while_its_maker_is_revoked_does_not_survive_it(server: Server) {
        let acme = server.tenant("acme").await;
        for _ in 0..20 {
            let maker = server.key_with(&acme, &lasting(30)).await;
            let held = server.hold_writes(acme.tenant.id).await;
            let revoke = async { server.delete(one(&maker)).cookie(&acme.admin).await };
            let make = async { server.post(KEYS).key(&maker.plain).json(&body()).await };
            let release = async { drop(held) };
            let (revoked, made, ()) = tokio::join!(revoke, make, release);
            revoked.is(204);
            if made.status == 201 {
                server.get(SESSION).key(made.json()["key"].as_str().unwrap()).await.problem("unauthenticated");
            } else {
                made.problem("unauthenticated");
            }
        }
    }

    async fn a_key_made_while_its_maker_is_shortened_does_not_outlive_it(server: Server) {
        let acme = server.tenant("acme").await;
        for _ in 0..20 {
            let maker = server.key_with(&acme, &lasting(30)).await;
            let held = server.hold_writes(acme.tenant.id).await;
            let shorten = async { server.put(one(&maker)).cookie(&acme.admin).json(&lasting(1)).await };
            let make = async { server.post(KEYS).key(&maker.plain).json(&body()).await };
            let release = async { drop(held) };
            let (shortened, made, ()) = tokio::join!(shorten, make, release);
            let end = shortened.ok(200)["expires_at"].clone();
            let made = made.ok(201);
            let now =
                server.get(format!("{KEYS}?id={}", made["id"].as_str().unwrap())).cookie(&acme.admin).await.ok(200);
            assert_eq!(now["expires_at"], end);
            server.delete(one(&maker)).cookie(&acme.admin).await.is(204);
        }
    }

    async fn a_repeated_request_is_replayed_although_the_maker_has_less_time_by_then(server: Server) {
        let acme = server.tenant("acme").await;
        let maker = server.key_with(&acme, &lasting(30)).await;
        let make = || server.post(KEYS).key(&maker.plain).idempotency_key("once").json(&lasting(30));
        let first = make().await.ok(201);
        server.advance(5 * MINUTE_MS);
        let again = make().await;
        assert_eq!(again.ok(201), first);
        assert_eq!(again.header("idempotency-replayed"), "true");
    }
}
