//! PUT with `rotate` alone: a new key under the same id, and the old one for a while.

use kernel::base::HOUR_MS;
use tenant_control::features;

use super::*;

/// Rotates as the admin and returns the key with its new text.
async fn rotate(server: &Server, tenancy: &Tenancy, key: &Key, rotation: Value) -> Key {
    let record = server.put(one(key)).cookie(&tenancy.admin).json(&json!({"rotate": rotation})).await.ok(200);
    Key { id: key.id.clone(), plain: record["key"].as_str().expect("the new key").to_owned(), record }
}

async fn works(server: &Server, key: &Key) -> bool {
    let answer = server.get(SESSION).key(&key.plain).await;
    if answer.status != 200 {
        answer.problem("unauthenticated");
    }
    answer.status == 200
}

over_http! {
    async fn a_rotated_key_keeps_its_record_and_gets_a_new_text(server: Server) {
        let acme = server.tenant("acme").await;
        let old = server.key(&acme, &["*"]).await;
        server.advance(HOUR_MS);
        let new = rotate(&server, &acme, &old, json!({"overlap_hours": 24})).await;
        assert!(is_well_formed(&new.plain), "{}", new.plain);
        let mut wanted = old.record.clone();
        wanted["key"] = json!(new.plain);
        wanted["prefix"] = json!(new.plain[..12]);
        wanted["last_four"] = json!(new.plain[new.plain.len() - 4..]);
        wanted["version"] = json!(2);
        wanted["updated_at"] = json!(server.now().to_string());
        assert_eq!(new.record, wanted);
        assert_ne!(new.record["prefix"], old.record["prefix"]);
        let read = server.get(one(&old)).cookie(&acme.admin).await.ok(200);
        assert!(read.get("key").is_none(), "shown once");
        assert_eq!(read["prefix"], new.record["prefix"]);
    }

    async fn the_old_key_works_until_its_overlap_ends(server: Server) {
        let acme = server.tenant("acme").await;
        for (rotation, hours) in
            [(json!({"overlap_hours": 1}), 1), (json!({"overlap_hours": 168}), 168), (json!({}), 24)]
        {
            let acme = Tenancy {
                admin: server.user(&acme.tenant, kernel::auth::Role::Admin).await,
                tenant: acme.tenant.clone(),
            };
            let old = server.key(&acme, &["*"]).await;
            let new = rotate(&server, &acme, &old, rotation).await;
            server.advance(hours * HOUR_MS - 1);
            assert!(works(&server, &old).await && works(&server, &new).await, "within {hours} h");
            server.advance(1);
            assert!(!works(&server, &old).await && works(&server, &new).await, "after {hours} h");
            kernel::jobs::delete_expired(&server.app, &features::install().retention).await.unwrap();
            assert!(!works(&server, &old).await && works(&server, &new).await, "after cleaning");
        }
    }

    async fn without_an_overlap_the_old_key_ends_at_once(server: Server) {
        let acme = server.tenant("acme").await;
        let old = server.key(&acme, &["*"]).await;
        assert!(works(&server, &old).await);
        let new = rotate(&server, &acme, &old, json!({"overlap_hours": 0})).await;
        assert!(!works(&server, &old).await && works(&server, &new).await);
    }

    async fn a_second_rotation_ends_the_first_overlap(server: Server) {
        let acme = server.tenant("acme").await;
        let first = server.key(&acme, &["*"]).await;
        let second = rotate(&server, &acme, &first, json!({"overlap_hours": 168})).await;
        let third = rotate(&server, &acme, &second, json!({"overlap_hours": 2})).await;
        assert!(!works(&server, &first).await && works(&server, &second).await && works(&server, &third).await);
        server.advance(2 * HOUR_MS);
        assert!(!works(&server, &second).await && works(&server, &third).await);
    }

    async fn an_overlap_does_not_outlast_the_key_itself(server: Server) {
        let acme = server.tenant("acme").await;
        let old = server.key_with(&acme, &json!({"name": "Day", "scopes": ["*"], "expires_days": 1})).await;
        let new = rotate(&server, &acme, &old, json!({"overlap_hours": 168})).await;
        server.advance(24 * HOUR_MS);
        for key in [&old, &new] {
            server.get(SESSION).key(&key.plain).await.problem("key_expired");
        }
    }

    async fn rotate_is_alone_in_the_body_and_has_bounds(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        for (body, pointers) in [
            (json!({"rotate": {"overlap_hours": -1}}), vec!["/rotate/overlap_hours"]),
            (json!({"rotate": {"overlap_hours": 169}}), vec!["/rotate/overlap_hours"]),
            (json!({"rotate": {"overlap_hours": "1"}}), vec!["/rotate/overlap_hours"]),
            (json!({"rotate": {"overlap_hours": 0.5}}), vec!["/rotate/overlap_hours"]),
            (json!({"rotate": {"overlap_hours": null}}), vec!["/rotate/overlap_hours"]),
            (json!({"rotate": {"hours": 1}}), vec!["/rotate/hours"]),
            (json!({"rotate": null}), vec!["/rotate"]),
            (json!({"rotate": true}), vec!["/rotate"]),
            (json!({"rotate": 24}), vec!["/rotate"]),
        ] {
            let answer = server.put(one(&key)).cookie(&acme.admin).json(&body).await;
            assert_eq!(answer.pointers(), pointers, "{body}");
        }
        for body in [
            json!({"rotate": {}, "name": "x", "scopes": ["*"]}),
            json!({"rotate": {}, "name": "x"}),
            json!({"rotate": {}, "x": 1}),
        ] {
            let pointers = server.put(one(&key)).cookie(&acme.admin).json(&body).await.pointers();
            assert!(pointers.contains(&"/rotate".to_owned()), "{body}: {pointers:?}");
        }
        let refused = server.post(KEYS).cookie(&acme.admin).json(&json!({"rotate": {}})).await.pointers();
        assert!(refused.contains(&"/rotate".to_owned()), "POST does not rotate: {refused:?}");
        assert!(works(&server, &key).await, "nothing was rotated");
    }

    async fn a_key_can_rotate_itself(server: Server) {
        let acme = server.tenant("acme").await;
        let old = server.key(&acme, &["api_keys:write"]).await;
        let answer = server.put(one(&old)).key(&old.plain).json(&json!({"rotate": {"overlap_hours": 0}})).await.ok(200);
        assert!(!works(&server, &old).await);
        server.get(SESSION).key(answer["key"].as_str().unwrap()).await.is(200);
    }
}
