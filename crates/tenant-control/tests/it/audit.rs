//! `/api/admin/audit`: who did what to which record, when, from where, with which credential.

use kernel::auth::Role;
use kernel::base::MINUTE_MS;
use serde_json::{Value, json};
use tenant_control::features::users::{NewUser, UserUpdate, delete_user, find_user, update_user};

use crate::support::people::{AUDIT, KEYS, SESSION};
use crate::support::{Key, Server, Tenancy, over_http};

/// The entries of a list, as the admin sees them.
async fn entries(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<Value> {
    let page = server.get(format!("{AUDIT}?{query}")).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().expect("data").clone()
}

fn actions(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["action"].as_str().expect("an action")).collect()
}

fn one(key: &Key) -> String {
    format!("{KEYS}?id={}", key.id)
}

over_http! {
    async fn every_deed_leaves_one_entry_with_all_that_is_known_of_it(setup: Setup) {
        let mut setup = setup;
        setup.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let me = server.get(SESSION).cookie(&acme.admin).await.ok(200)["actor"].clone();
        let key = server.key_with(&acme, &json!({"name": "Robot", "scopes": ["*"]})).await;
        let child = json!({"name": "Key", "scopes": ["tickets:read"]});
        let record = server.post(KEYS).key(&key.plain).json(&child).await.ok(201);
        let target = Key { id: record["id"].as_str().unwrap().to_owned(), plain: String::new(), record };
        let from = |n: u8| format!("198.51.100.{n}");
        server.advance(MINUTE_MS);
        let body =
            json!({"name": "Renamed", "scopes": ["tickets:read", "cloud:read"], "allowed_cidrs": ["10.0.0.0/8"]});
        let put = server
            .put(one(&target))
            .cookie(&acme.admin)
            .header("x-request-id", "r1")
            .header("x-forwarded-for", from(1))
            .json(&body)
            .await;
        put.is(200);
        server.advance(MINUTE_MS);
        let rotate = json!({"rotate": {}});
        let put = server
            .put(one(&target))
            .key(&key.plain)
            .header("x-request-id", "r2")
            .header("x-forwarded-for", from(2))
            .json(&rotate)
            .await;
        put.is(200);
        server.advance(MINUTE_MS);
        server
            .delete(one(&target))
            .key(&key.plain)
            .header("x-request-id", "r3")
            .header("x-forwarded-for", from(3))
            .await
            .is(204);

        let found = entries(&server, &acme, &format!("target_id={}", target.id)).await;
        assert_eq!(
            actions(&found),
            ["api_key.revoke", "api_key.rotate", "api_key.update", "api_key.create"],
            "newest first"
        );
        let mut update = found[2].clone();
        let (id, session) = (update["id"].take(), update["credential"]["id"].take());
        assert!(
            id.as_str().unwrap().starts_with("aud_") && session.as_str().unwrap().starts_with("ses_"),
            "{id} {session}"
        );
        let wanted = json!({
            "id": null,
            "at": server.now().plus_ms(-2 * MINUTE_MS).to_string(),
            "actor": {"type": "user", "id": me["id"], "name": me["name"]},
            "action": "api_key.update",
            "target": {"type": "api_key", "id": target.id},
            "address": from(1),
            "credential": {"type": "session", "id": null},
            "request_id": "r1",
            "changes": {
                "name": {"from": "Key", "to": "Renamed"},
                "scopes": {"from": ["tickets:read"], "to": ["tickets:read", "cloud:read"]},
                "allowed_cidrs": {"from": [], "to": ["10.0.0.0/8"]},
            },
        });
        assert_eq!(update, wanted);
        for (entry, n) in [(&found[1], 2), (&found[0], 3)] {
            assert_eq!(entry["actor"], json!({"type": "api_key", "id": key.id, "name": "Robot"}));
            assert_eq!(entry["credential"], json!({"type": "api_key", "id": key.id}));
            assert_eq!((&entry["address"], &entry["request_id"]), (&json!(from(n)), &json!(format!("r{n}"))));
        }
    }

    async fn what_the_operator_does_is_there_too(server: Server) {
        let acme = server.tenant("acme").await;
        let store = &server.app.store;
        let new = NewUser {
            email: "ann@acme.test".to_owned(),
            name: None,
            role: Role::Viewer,
            platform_operator: false,
        };
        let cookie = server.session(&acme.tenant, new).await;
        server.delete(SESSION).cookie(&cookie).await.is(204);
        let ann = find_user(store, &acme.tenant, "ann@acme.test").await.unwrap().unwrap();
        server.advance(MINUTE_MS);
        let change = UserUpdate { role: Some(Role::Technician), ..UserUpdate::default() };
        update_user(store, &acme.tenant, ann.id, change).await.unwrap();
        server.advance(MINUTE_MS);
        delete_user(store, &acme.tenant, &ann).await.unwrap();

        let found = entries(&server, &acme, &format!("target_id={}", ann.id)).await;
        assert_eq!(actions(&found), ["user.disable", "user.update", "user.create"]);
        for entry in &found {
            assert_eq!(entry["actor"], json!({"type": "operator", "id": null, "name": "operator"}));
            assert_eq!(
                (&entry["address"], &entry["credential"], &entry["request_id"]),
                (&Value::Null, &Value::Null, &Value::Null)
            );
        }
        assert_eq!(found[1]["changes"], json!({"role": {"from": "viewer", "to": "technician"}}));
        let sessions = entries(&server, &acme, "action=session.delete").await;
        assert_eq!(
            (&sessions[0]["actor"]["id"], &sessions[0]["target"]["type"]),
            (&json!(ann.id.to_string()), &json!("session"))
        );
        assert_eq!(
            entries(&server, &acme, "action=tenant.create").await[0]["target"]["id"],
            acme.tenant.id.to_string()
        );
        assert_eq!(entries(&server, &acme, "action=session.create").await.len(), 2);
    }

    async fn what_was_refused_or_replayed_leaves_no_entry(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["api_keys:write"]).await;
        let before = entries(&server, &acme, "").await.len();
        let body = json!({"name": "Key", "scopes": ["*"]});
        server.post(KEYS).key(&key.plain).json(&body).await.problem("insufficient_scope");
        server
            .put(one(&key))
            .cookie(&acme.admin)
            .header("if-match", "\"9\"")
            .json(&body)
            .await
            .problem("version_mismatch");
        server.delete(format!("{KEYS}?id=x")).cookie(&acme.admin).await.problem("not_found");
        assert_eq!(entries(&server, &acme, "").await.len(), before);
        for _ in 0..3 {
            server.post(KEYS).cookie(&acme.admin).idempotency_key("once").json(&body).await.is(201);
        }
        assert_eq!(entries(&server, &acme, "").await.len(), before + 1);
    }

    async fn filters_narrow_by_actor_action_target_and_time(server: Server) {
        let acme = server.tenant("acme").await;
        let me = server.get(SESSION).cookie(&acme.admin).await.ok(200)["actor"]["id"].as_str().unwrap().to_owned();
        server.advance(MINUTE_MS);
        let first = server.key(&acme, &["*"]).await;
        server.advance(MINUTE_MS);
        let middle = server.now();
        let second = server.post(KEYS).key(&first.plain).json(&json!({"name": "Key", "scopes": ["*"]})).await.ok(201);
        let second = second["id"].as_str().unwrap();
        server.advance(MINUTE_MS);
        server.delete(format!("{KEYS}?id={second}")).cookie(&acme.admin).await.is(204);

        let (id, end) = (&first.id, server.now());
        let (create, revoke) = ("api_key.create", "api_key.revoke");
        for (query, wanted) in [
            (format!("actor_id={me}"), vec![revoke, create]),
            (format!("actor_id={id}"), vec![create]),
            (format!("actor_id={id},{me}"), vec![revoke, create, create]),
            ("actor_id=key_00000000000000000000000000".to_owned(), vec![]),
            (format!("action={revoke}"), vec![revoke]),
            (format!("action={create},{revoke}"), vec![revoke, create, create]),
            ("action=no.such".to_owned(), vec![]),
            (format!("target_id={second}"), vec![revoke, create]),
            (format!("target_id={second},{id}"), vec![revoke, create, create]),
            (format!("target_id={second}&actor_id={me}"), vec![revoke]),
            (format!("since={middle}"), vec![revoke, create]),
            (format!("since={}", middle.plus_ms(1)), vec![revoke]),
            (format!("since={middle}&until={end}"), vec![create]),
            (format!("since={middle}&until={}", end.plus_ms(1)), vec![revoke, create]),
            (format!("action={create}&until={middle}"), vec![create]),
            (format!("since={end}&until={middle}"), vec![]),
            ("since=2026-01-15T12:02:00%2B02:00".to_owned(), vec![revoke, create]),
        ] {
            assert_eq!(actions(&entries(&server, &acme, &query).await), wanted, "{query}");
        }
        for query in [
            "actor_id=",
            "actor_id=bob",
            "action=",
            "action=A%20b",
            "action=new",
            "action=api_key.create,new",
            "action=api_key.",
            "action=.create",
            "action=api_key..create",
            "target_id=%27",
            "since=today",
            "until=2026-01-15",
            "since=1",
        ] {
            server.get(format!("{AUDIT}?{query}")).cookie(&acme.admin).await.problem("invalid_parameter");
        }
        server.get(format!("{AUDIT}?id=x")).cookie(&acme.admin).await.problem("unknown_parameter");
    }

    async fn paging_shows_every_entry_once(server: Server) {
        let acme = server.tenant("acme").await;
        for _ in 0..7 {
            // All in one millisecond: the order must still be a whole one.
            server.key(&acme, &["*"]).await;
        }
        let all = entries(&server, &acme, "action=api_key.create").await;
        let (mut found, mut query) = (Vec::new(), "action=api_key.create&limit=2".to_owned());
        loop {
            let page = server.get(format!("{AUDIT}?{query}")).cookie(&acme.admin).await.ok(200);
            found.extend(page["data"].as_array().unwrap().clone());
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            query = format!("action=api_key.create&limit=2&cursor={cursor}");
        }
        assert_eq!((found.len(), &found), (7, &all));
    }

    async fn a_tenant_sees_its_own_trail_alone(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let key = server.key(&acme, &["*"]).await;
        let theirs = entries(&server, &other, "").await;
        let mut found = actions(&theirs);
        found.sort_unstable();
        assert_eq!(found, ["session.create", "tenant.create", "user.create"]);
        for query in [format!("target_id={}", key.id), format!("actor_id={}", key.id)] {
            assert_eq!(entries(&server, &other, &query).await, Vec::<Value>::new());
        }
    }

    async fn the_trail_is_the_admins(server: Server) {
        let acme = server.tenant("acme").await;
        for role in [Role::Technician, Role::Viewer] {
            let cookie = server.user(&acme.tenant, role).await;
            let refused = server.get(AUDIT).cookie(&cookie).await.problem("insufficient_scope");
            assert_eq!(refused["required_scope"], "audit:read");
        }
        let every_other = [
            "api_keys:*",
            "webhooks:*",
            "organizations:*",
            "users:*",
            "tickets:*",
            "workflows:*",
            "search:*",
            "inventory:*",
            "cloud:*",
            "backup:*",
            "analytics:*",
        ];
        server.get(AUDIT).key(&server.key(&acme, &every_other).await.plain).await.problem("insufficient_scope");
        server.get(AUDIT).key(&server.key(&acme, &["audit:read"]).await.plain).await.is(200);
    }
}
