//! Nobody can give, take over or widen what they do not hold themselves.

use kernel::auth::Role;
use tenant_control::features::users::{NewUser, UserUpdate, find_user, update_user};

use super::makers::child;
use super::*;

/// A key that may manage keys, with these scopes besides.
async fn manager(server: &Server, tenancy: &Tenancy, scopes: &[&str]) -> Key {
    let scopes = [&["api_keys:read", "api_keys:write"], scopes].concat();
    server.key(tenancy, &scopes).await
}

fn with(scopes: &[&str]) -> Value {
    json!({"name": "Key", "scopes": scopes})
}

/// Asserts the refusal and tells which scope it names.
#[track_caller]
fn refused(answer: &Answer) -> String {
    answer.problem("insufficient_scope")["required_scope"].as_str().expect("required_scope").to_owned()
}

over_http! {
    async fn nobody_can_grant_what_they_do_not_hold(server: Server) {
        let acme = server.tenant("acme").await;
        let key = manager(&server, &acme, &["tickets:read", "cloud:*"]).await;
        let target = child(&server, &key, with(&["tickets:read"])).await;
        for (scopes, missing) in [
            (vec!["tickets:write"], "tickets:write"),
            (vec!["tickets:*"], "tickets:write"),
            (vec!["tickets:read", "audit:read"], "audit:read"),
            (vec!["*"], "webhooks:read"),
            (vec!["platform:read"], "platform:read"),
        ] {
            assert_eq!(refused(&server.post(KEYS).key(&key.plain).json(&with(&scopes)).await), missing, "{scopes:?}");
            assert_eq!(
                refused(&server.put(one(&target)).key(&key.plain).json(&with(&scopes)).await),
                missing,
                "{scopes:?}"
            );
        }
        for scopes in [vec!["tickets:read"], vec!["cloud:read", "cloud:write", "cloud:*"], vec!["api_keys:*"]] {
            server.post(KEYS).key(&key.plain).json(&with(&scopes)).await.is(201);
            server.put(one(&target)).key(&key.plain).json(&with(&scopes)).await.is(200);
        }
    }

    async fn write_does_not_include_read_and_read_not_write(server: Server) {
        let acme = server.tenant("acme").await;
        let writer = server.key(&acme, &["api_keys:write"]).await;
        let reader = server.key(&acme, &["api_keys:read"]).await;
        assert_eq!(refused(&server.get(KEYS).key(&writer.plain).await), "api_keys:read");
        assert_eq!(refused(&server.get(one(&reader)).key(&writer.plain).await), "api_keys:read");
        assert_eq!(
            refused(&server.post(KEYS).key(&writer.plain).json(&with(&["api_keys:read"])).await),
            "api_keys:read"
        );
        server.post(KEYS).key(&writer.plain).json(&with(&["api_keys:write"])).await.is(201);
        server.get(KEYS).key(&reader.plain).await.is(200);
        let put = server.put(one(&writer)).key(&reader.plain).json(&with(&["api_keys:read"])).await;
        let rotate = server.put(one(&reader)).key(&reader.plain).json(&json!({"rotate": {}})).await;
        let delete = server.delete(one(&writer)).key(&reader.plain).await;
        let create = server.post(KEYS).key(&reader.plain).json(&with(&["api_keys:read"])).await;
        for answer in [put, rotate, delete, create] {
            assert_eq!(refused(&answer), "api_keys:write");
        }
    }

    async fn a_key_that_holds_more_can_be_revoked_but_not_changed_or_rotated(server: Server) {
        let acme = server.tenant("acme").await;
        let key = manager(&server, &acme, &["tickets:read"]).await;
        let strong = server.key(&acme, &["tickets:*"]).await;
        for body in [with(&["tickets:read"]), json!({"rotate": {}})] {
            assert_eq!(refused(&server.put(one(&strong)).key(&key.plain).json(&body).await), "tickets:write");
        }
        server.get(SESSION).key(&strong.plain).await.is(200);
        assert_eq!(server.get(one(&strong)).key(&key.plain).await.ok(200)["version"], 1);
        server.delete(one(&strong)).key(&key.plain).await.is(204);
    }

    async fn a_key_cannot_change_itself_but_by_rotating(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        for body in
            [with(&["*"]), with(&["tickets:read"]), json!({"name": "Key", "scopes": ["*"], "expires_days": 365})]
        {
            server.put(one(&key)).key(&key.plain).json(&body).await.problem("insufficient_scope");
        }
        assert_eq!(server.get(one(&key)).key(&key.plain).await.ok(200)["version"], 1);
        server.put(one(&key)).key(&key.plain).json(&json!({"rotate": {}})).await.is(200);
    }

    async fn keys_that_a_key_makes_or_changes_stay_within_its_networks(server: Server) {
        let acme = server.tenant("acme").await;
        let own = ["127.0.0.0/8", "10.0.0.0/8"];
        let key = server.key_with(&acme, &json!({"name": "Bound", "scopes": ["*"], "allowed_cidrs": own})).await;
        let target = child(&server, &key, with(&["tickets:read"])).await;
        let body = |networks: Value| json!({"name": "Key", "scopes": ["tickets:read"], "allowed_cidrs": networks});
        for (networks, pointers) in [
            (json!(["10.1.0.0/16", "11.0.0.0/8"]), vec!["/allowed_cidrs/1"]),
            (json!(["0.0.0.0/0"]), vec!["/allowed_cidrs/0"]),
            (json!(["8.0.0.0/6", "127.0.0.1", "::/0"]), vec!["/allowed_cidrs/0", "/allowed_cidrs/2"]),
            (json!([]), vec!["/allowed_cidrs"]),
        ] {
            assert_eq!(server.post(KEYS).key(&key.plain).json(&body(networks.clone())).await.pointers(), pointers);
            assert_eq!(server.put(one(&target)).key(&key.plain).json(&body(networks)).await.pointers(), pointers);
        }
        let within = json!(["10.1.0.0/16", "127.0.0.1/32", "10.0.0.0/8"]);
        let made = server.post(KEYS).key(&key.plain).json(&body(within.clone())).await.ok(201);
        assert_eq!(made["allowed_cidrs"], within);
        let inherited = server.post(KEYS).key(&key.plain).json(&with(&["tickets:read"])).await.ok(201);
        assert_eq!(inherited["allowed_cidrs"], json!(own), "omitted inherits");
        // A person may open what the key has made. Whatever the key changes of it, it is within its own again.
        for (opened, kept) in [(json!([]), json!(own)), (json!(["10.1.0.0/16", "11.0.0.0/8"]), json!(["10.1.0.0/16"]))] {
            server.put(one(&target)).cookie(&acme.admin).json(&body(opened)).await.is(200);
            let changed = server.put(one(&target)).key(&key.plain).json(&with(&["tickets:read"])).await.ok(200);
            assert_eq!(changed["allowed_cidrs"], kept, "omitted stays, as far as it is within");
        }
        server.put(one(&target)).cookie(&acme.admin).json(&body(json!(["11.0.0.0/8"]))).await.is(200);
        let refused = server.put(one(&target)).key(&key.plain).json(&with(&["tickets:read"])).await;
        assert_eq!(refused.pointers(), ["/allowed_cidrs"], "nothing of it is within");
    }

    async fn a_key_with_networks_cannot_take_over_one_that_works_elsewhere(server: Server) {
        let acme = server.tenant("acme").await;
        let bound = |networks: Value| json!({"name": "Key", "scopes": ["*"], "allowed_cidrs": networks});
        let key = server.key_with(&acme, &bound(json!(["127.0.0.0/8"]))).await;
        let inside = child(&server, &key, bound(json!(["127.0.0.1/32"]))).await;
        let rotate = json!({"rotate": {}});
        server.put(one(&inside)).key(&key.plain).json(&rotate).await.is(200);
        server.put(one(&key)).key(&key.plain).json(&rotate).await.is(200);
        for networks in [json!([]), json!(["127.0.0.0/8", "10.0.0.0/8"])] {
            server.put(one(&inside)).cookie(&acme.admin).json(&bound(networks)).await.is(200);
            // The answer would be a key that works where this one does not.
            server.put(one(&inside)).key(&key.plain).json(&rotate).await.problem("address_not_allowed");
        }
    }

    async fn only_admins_manage_keys(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["tickets:read"]).await;
        for role in [Role::Technician, Role::Viewer] {
            let cookie = server.user(&acme.tenant, role).await;
            assert_eq!(refused(&server.get(KEYS).cookie(&cookie).await), "api_keys:read");
            assert_eq!(refused(&server.get(one(&key)).cookie(&cookie).await), "api_keys:read");
            assert_eq!(
                refused(&server.post(KEYS).cookie(&cookie).json(&with(&["tickets:read"])).await),
                "api_keys:write"
            );
            assert_eq!(
                refused(&server.put(one(&key)).cookie(&cookie).json(&with(&["tickets:read"])).await),
                "api_keys:write"
            );
            assert_eq!(refused(&server.delete(one(&key)).cookie(&cookie).await), "api_keys:write");
        }
    }

    async fn platform_read_comes_only_from_an_operator_in_person_and_ends_with_the_office(server: Server) {
        let acme = server.tenant("acme").await;
        let scopes = ["*", "platform:read"];
        assert_eq!(refused(&server.post(KEYS).cookie(&acme.admin).json(&with(&scopes)).await), "platform:read");

        let email = "operator@acme.test".to_owned();
        let new = NewUser { email: email.clone(), name: None, role: Role::Admin, platform_operator: true };
        let operator = Tenancy { admin: server.session(&acme.tenant, new).await, tenant: acme.tenant.clone() };
        let key = server.key(&operator, &scopes).await;
        let held = async || server.get(SESSION).key(&key.plain).await.ok(200)["scopes"].clone();
        assert_eq!(held().await, json!(scopes));
        assert_eq!(
            server.get(SESSION).key(&server.key(&operator, &["*"]).await.plain).await.ok(200)["scopes"],
            json!(["*"])
        );

        // Neither that key nor an admin without the office can pass it on or take it over.
        assert_eq!(refused(&server.post(KEYS).key(&key.plain).json(&with(&["platform:read"])).await), "platform:read");
        let plain = server.key(&acme, &["*"]).await;
        assert_eq!(refused(&server.put(one(&plain)).key(&key.plain).json(&with(&scopes)).await), "platform:read");
        assert_eq!(refused(&server.put(one(&plain)).cookie(&acme.admin).json(&with(&scopes)).await), "platform:read");
        for body in [with(&["*"]), json!({"rotate": {}})] {
            assert_eq!(refused(&server.put(one(&key)).cookie(&acme.admin).json(&body).await), "platform:read");
        }

        let change = async |platform_operator: bool| {
            let user = find_user(&server.app.store, &acme.tenant, &email).await.unwrap().unwrap();
            let change = UserUpdate { platform_operator: Some(platform_operator), ..UserUpdate::default() };
            update_user(&server.app.store, &acme.tenant, user.id, change).await.unwrap();
            // The command line is another process: on PostgreSQL this one may remember for half a second.
            server.app.credentials.invalidate_tenant(acme.tenant.id);
        };
        change(false).await;
        assert_eq!(held().await, json!(["*"]), "no longer an operator");
        change(true).await;
        assert_eq!(held().await, json!(scopes));
    }

    async fn a_key_of_someone_else_gains_nothing_by_an_operators_grant(server: Server) {
        let acme = server.tenant("acme").await;
        let new =
            NewUser { email: "operator@acme.test".to_owned(), name: None, role: Role::Admin, platform_operator: true };
        let operator = server.session(&acme.tenant, new).await;
        let key = server.key(&acme, &["*"]).await;
        server.put(one(&key)).cookie(&operator).json(&with(&["*", "platform:read"])).await;
        assert_eq!(
            server.get(SESSION).key(&key.plain).await.ok(200)["scopes"],
            json!(["*"]),
            "its maker is no operator"
        );
    }
}
