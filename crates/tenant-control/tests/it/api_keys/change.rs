//! PUT replaces a key's name, scopes, networks and end.

use kernel::base::{DAY_MS, HOUR_MS};

use super::*;
use crate::support::people::AUDIT;

async fn read(server: &Server, tenancy: &Tenancy, key: &Key) -> Value {
    server.get(one(key)).cookie(&tenancy.admin).await.ok(200)
}

over_http! {
    async fn put_replaces_and_the_key_feels_it_at_once(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["api_keys:read"]).await;
        server.get(KEYS).key(&key.plain).await.is(200);
        server.advance(HOUR_MS);
        let body =
            json!({"name": " Renamed ", "scopes": ["audit:read"], "allowed_cidrs": ["127.0.0.0/8"], "expires_days": 7});
        let answer = server.put(one(&key)).cookie(&acme.admin).json(&body).await;
        let changed = answer.ok(200);
        assert_eq!(answer.header("etag"), "\"2\"");
        let mut wanted = key.record.clone();
        wanted.as_object_mut().unwrap().remove("key");
        for (field, value) in [
            ("name", json!("Renamed")),
            ("scopes", json!(["audit:read"])),
            ("allowed_cidrs", json!(["127.0.0.0/8"])),
            ("expires_at", json!(server.now().plus_ms(7 * DAY_MS).to_string())),
            ("version", json!(2)),
            ("updated_at", json!(server.now().to_string())),
        ] {
            wanted[field] = value;
        }
        assert_eq!(changed, wanted, "prefix, id, maker and creation stay");
        assert_eq!(read(&server, &acme, &key).await, changed);
        let refused = server.get(KEYS).key(&key.plain).await.problem("insufficient_scope");
        assert_eq!(refused["required_scope"], "api_keys:read");
        server.get(AUDIT).key(&key.plain).await.is(200);
    }

    async fn put_needs_name_and_scopes_and_refuses_what_cannot_be_set(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        for (body, pointers) in [
            (json!({}), vec!["/name", "/scopes"]),
            (json!({"name": "x"}), vec!["/scopes"]),
            (json!({"scopes": ["*"], "expires_days": 5}), vec!["/name"]),
            (json!({"name": "x", "scopes": ["*"], "expires_days": null}), vec!["/expires_days"]),
            (json!({"name": "x", "scopes": ["*"], "expires_at": "2026-02-01T00:00:00Z"}), vec!["/expires_at"]),
            (json!({"name": "x", "scopes": ["*"], "id": key.id}), vec!["/id"]),
            (json!({"name": "x", "scopes": ["*"], "version": 1}), vec!["/version"]),
            (json!({"name": "x", "scopes": ["*"], "status": "revoked"}), vec!["/status"]),
        ] {
            let answer = server.put(one(&key)).cookie(&acme.admin).json(&body).await;
            assert_eq!(answer.pointers(), pointers, "{body}");
        }
        server
            .put(KEYS)
            .cookie(&acme.admin)
            .json(&json!({"name": "x", "scopes": ["*"]}))
            .await
            .problem("missing_parameter");
        assert_eq!(read(&server, &acme, &key).await["version"], 1);
    }

    async fn an_omitted_list_of_networks_and_an_omitted_end_stay(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Key", "scopes": ["*"], "expires_days": 10, "allowed_cidrs": ["127.0.0.0/8"]});
        let key = server.key_with(&acme, &body).await;
        server.advance(HOUR_MS);
        let put = async |body: Value| server.put(one(&key)).cookie(&acme.admin).json(&body).await.ok(200);
        let renamed = put(json!({"name": "Renamed", "scopes": ["*"]})).await;
        assert_eq!(renamed["allowed_cidrs"], json!(["127.0.0.0/8"]));
        assert_eq!(renamed["expires_at"], key.record["expires_at"]);
        let opened = put(json!({"name": "Renamed", "scopes": ["*"], "allowed_cidrs": []})).await;
        assert_eq!((&opened["allowed_cidrs"], &opened["version"]), (&json!([]), &json!(3)));
    }

    async fn a_change_that_changes_nothing_keeps_the_version_and_leaves_no_trace(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Key", "scopes": ["*"], "allowed_cidrs": ["10.0.0.0/8"]});
        let key = server.key_with(&acme, &body).await;
        let before = read(&server, &acme, &key).await;
        server.advance(HOUR_MS);
        let answer = server.put(one(&key)).cookie(&acme.admin).json(&body).await;
        assert_eq!(answer.ok(200), before);
        assert_eq!(answer.header("etag"), "\"1\"");
        let audit = server.get(format!("{AUDIT}?target_id={}&action=api_key.update", key.id)).cookie(&acme.admin).await;
        assert_eq!(audit.ok(200)["data"], json!([]));
    }

    async fn days_count_from_now_also_for_a_key_that_has_expired(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Key", "scopes": ["*"], "expires_days": 1})).await;
        server.advance(2 * DAY_MS);
        let acme = Tenancy { admin: server.user(&acme.tenant, kernel::auth::Role::Admin).await, ..acme };
        let renamed =
            server.put(one(&key)).cookie(&acme.admin).json(&json!({"name": "Old", "scopes": ["*"]})).await.ok(200);
        assert_eq!((&renamed["status"], &renamed["expires_at"]), (&json!("expired"), &key.record["expires_at"]));
        let body = json!({"name": "Old", "scopes": ["*"], "expires_days": 1});
        let revived = server.put(one(&key)).cookie(&acme.admin).json(&body).await.ok(200);
        assert_eq!(
            (&revived["status"], &revived["expires_at"]),
            (&json!("active"), &json!(server.now().plus_ms(DAY_MS).to_string()))
        );
        server.get(SESSION).key(&key.plain).await.is(200);
    }

    async fn if_match_is_honoured_by_every_change(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        let (replace, rotate) = (json!({"name": "New", "scopes": ["*"]}), json!({"rotate": {}}));
        for body in [&replace, &rotate] {
            server
                .put(one(&key))
                .cookie(&acme.admin)
                .header("if-match", "\"2\"")
                .json(body)
                .await
                .problem("version_mismatch");
        }
        server.delete(one(&key)).cookie(&acme.admin).header("if-match", "\"2\"").await.problem("version_mismatch");
        server.put(one(&key)).cookie(&acme.admin).header("if-match", "\"1\"").json(&replace).await.is(200);
        server.put(one(&key)).cookie(&acme.admin).header("if-match", "\"2\"").json(&rotate).await.is(200);
        server.delete(one(&key)).cookie(&acme.admin).header("if-match", "\"3\"").await.is(204);
    }
}
