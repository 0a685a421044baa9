//! What is told of a change: events, the audit trail, and what is found.

use kernel::auth::create_signin_link;

use super::*;
use crate::support::people::AUDIT;
use crate::support::search::Indexed;

async fn audited(server: &Server, tenancy: &Tenancy, user: &Value) -> Vec<Value> {
    let page = server.get(format!("{AUDIT}?target_id={}", id_of(user))).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().expect("data").clone()
}

over_http! {
    async fn events_tell_of_the_record_and_of_what_changed(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, "ann@acme.test", "viewer").await;
        let renamed = put(&server, &acme.admin, &made, &but(&made, "name", "Anna")).await.ok(200);
        put(&server, &acme.admin, &made, &but(&renamed, "name", "Anna")).await.is(200);
        for _ in 0..2 {
            server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        }
        let disabled = read(&server, &acme.admin, &made).await;
        let enabled = put(&server, &acme.admin, &made, &but(&disabled, "status", "active")).await.ok(200);
        let both = json!({"email": "ann@acme.test", "name": "Ann", "role": "technician", "status": "disabled"});
        let last = put(&server, &acme.admin, &made, &both).await.ok(200);
        let updated = |user: &Value, changes: Value| {
            let mut data = user.clone();
            data["changes"] = changes;
            data
        };
        let wanted = [
            ("user.created", made.clone()),
            ("user.updated", updated(&renamed, json!({"name": {"from": "Ann", "to": "Anna"}}))),
            ("user.disabled", disabled.clone()),
            ("user.updated", updated(&enabled, json!({"status": {"from": "disabled", "to": "active"}}))),
            (
                "user.updated",
                updated(&last, json!({
                    "name": {"from": "Anna", "to": "Ann"},
                    "role": {"from": "viewer", "to": "technician"},
                    "status": {"from": "active", "to": "disabled"},
                })),
            ),
            ("user.disabled", last.clone()),
        ];
        let told = server.events_of(&acme, "user.").await;
        let told: Vec<(&str, Value)> =
            told.iter().map(|event| (event["type"].as_str().unwrap(), event["data"].clone())).collect();
        assert_eq!(told, wanted);
        assert_eq!(last["version"], 5);
    }

    async fn the_trail_says_who_did_what(server: Server) {
        let acme = server.tenant("acme").await;
        let admin = me(&server, &acme.admin).await;
        let made = make(&server, &acme, "ann@acme.test", "viewer").await;
        put(&server, &acme.admin, &made, &but(&made, "email", "anna@acme.test")).await.is(200);
        let both = json!({"email": "anna@acme.test", "name": "Anna", "role": "viewer", "status": "disabled"});
        put(&server, &acme.admin, &made, &both).await.is(200);
        server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        let entries = audited(&server, &acme, &made).await;
        // All in one millisecond: the order of their ids is that of chance.
        let mut told: Vec<String> =
            entries.iter().map(|entry| format!("{} {}", entry["action"].as_str().unwrap(), entry["changes"])).collect();
        told.sort_unstable();
        let wanted = [
            "user.create null",
            r#"user.disable {"status":{"from":"active","to":"disabled"}}"#,
            r#"user.update {"email":{"from":"ann@acme.test","to":"anna@acme.test"}}"#,
            r#"user.update {"name":{"from":"Ann","to":"Anna"}}"#,
        ];
        assert_eq!(told, wanted);
        for entry in &entries {
            assert_eq!(entry["actor"]["id"], admin["id"]);
            assert_eq!(entry["target"], json!({"type": "user", "id": made["id"]}));
        }
    }

    async fn signing_in_is_seen_and_no_change(server: Server) {
        let acme = server.tenant("acme").await;
        let ann = make(&server, &acme, "ann@acme.test", "viewer").await;
        server.advance(1_000);
        let id: UserId = id_of(&ann).parse().unwrap();
        let token = create_signin_link(&server.app.store, acme.tenant.id, id).await.unwrap();
        server.redeem(&format!("/signin?token={}", token.expose_secret())).await.is(303);
        let seen = read(&server, &acme.admin, &ann).await;
        let mut wanted = ann.clone();
        wanted["last_signed_in_at"] = json!(server.now().to_string());
        assert_eq!(seen, wanted);
        assert_eq!(server.kinds_of(&acme, "user.").await, ["user.created"]);
        // And it stays when something else changes.
        let changed = put(&server, &acme.admin, &ann, &but(&ann, "name", "Anna")).await.ok(200);
        assert_eq!(changed["last_signed_in_at"], wanted["last_signed_in_at"]);
    }

    async fn people_are_found_as_they_are_called_now(server: Server) {
        let acme = server.tenant("acme").await;
        let indexed = Indexed::of(&server).await;
        let ann = make(&server, &acme, "zenobia@acme.test", "viewer").await;
        indexed.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "zenobia").await, ["Ann"]);
        put(&server, &acme.admin, &ann, &but(&ann, "name", "Wilhelmina")).await.is(200);
        indexed.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "wilhelmina").await, ["Wilhelmina"]);
        // Tickets go on to name whoever is disabled.
        server.delete(one(&ann)).cookie(&acme.admin).await.is(204);
        indexed.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "wilhelmina").await, ["Wilhelmina"]);
    }
}
