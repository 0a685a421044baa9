//! Replacing an organization.

use super::*;

over_http! {
    async fn a_replacement_keeps_the_slug_and_returns_the_rest_to_its_default(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({
            "name": "Globex", "slug": "globex", "external_id": "crm-1", "domains": ["globex.example"], "tags": ["gold"],
            "custom_fields": {"seats": 40}, "archived": true,
        });
        let made = make(&server, &acme, &body).await;
        server.advance(1_000);
        let now = changed(&server, &acme, &made, &json!({"name": "Globex Inc."})).await;
        let expected = json!({
            "id": made["id"], "name": "Globex Inc.", "slug": "globex", "external_id": null, "domains": [], "tags": [],
            "custom_fields": {}, "archived": false, "version": 2, "created_at": made["created_at"],
            "updated_at": server.now().to_string(),
        });
        assert_eq!(now, expected);
        assert_eq!(read(&server, &acme, &made).await, now);
        let moved = changed(&server, &acme, &made, &json!({"name": "Globex Inc.", "slug": "globex-inc"})).await;
        assert_eq!((&moved["slug"], &moved["version"]), (&json!("globex-inc"), &json!(3)));
        // The old one is free.
        make(&server, &acme, &json!({"name": "Another", "slug": "globex"})).await;
    }

    async fn a_change_is_told_and_audited_with_what_changed(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, &json!({"name": "Globex", "tags": ["gold"]})).await;
        server.advance(1_000);
        let long = "x".repeat(2_000);
        let body = json!({"name": "Globex Inc.", "tags": ["gold"], "custom_fields": {"note": long}});
        let now = changed(&server, &acme, &made, &body).await;
        let changes = json!({
            "name": {"from": "Globex", "to": "Globex Inc."}, "custom_fields": {"from": {}, "to": {"note": long}},
        });
        let told = server.events_of(&acme, "organization.updated").await;
        assert_eq!(told.len(), 1);
        let mut data = told[0]["data"].clone();
        assert_eq!(data.as_object_mut().unwrap().remove("changes"), Some(changes));
        assert_eq!(data, now);
        let trail = trail(&server, &acme, &made).await;
        assert_eq!(trail[1]["action"], "organization.update");
        let brief = json!({
            "name": {"from": "Globex", "to": "Globex Inc."}, "custom_fields": {"from": {}, "to": {"truncated": true}},
        });
        assert_eq!(trail[1]["changes"], brief);
    }

    async fn a_change_that_changes_nothing_is_none(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Globex", "external_id": "crm-1", "domains": ["globex.example"], "custom_fields": {"a": 1, "b": 2}});
        let made = make(&server, &acme, &body).await;
        server.advance(1_000);
        let same = json!({
            "name": " Globex ", "slug": "globex", "external_id": "crm-1", "domains": ["GLOBEX.example", "globex.example"],
            "custom_fields": {"b": 2, "a": 1}, "archived": false,
        });
        for body in [&body, &same] {
            assert_eq!(changed(&server, &acme, &made, body).await, made, "{body}");
        }
        assert_eq!(server.kinds_of(&acme, "organization.").await, ["organization.created"]);
        assert_eq!(trail(&server, &acme, &made).await.len(), 1);
    }

    async fn what_another_has_cannot_be_taken(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, &json!({"name": "Globex", "external_id": "crm-1"})).await;
        let made = make(&server, &acme, &json!({"name": "Initech", "external_id": "crm-2"})).await;
        for body in [json!({"name": "Initech", "slug": "globex"}), json!({"name": "Initech", "external_id": "crm-1"})] {
            put(&server, &acme, &made, &body).await.problem("conflict");
        }
        assert_eq!(read(&server, &acme, &made).await, made);
        assert_eq!(put(&server, &acme, &made, &json!({"slug": "x"})).await.pointers(), ["/name"]);
    }

    async fn only_the_version_that_was_seen_is_changed(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, &json!({"name": "Globex"})).await;
        let with = |etag: &'static str, name: &str| {
            let body = json!({"name": name});
            server.put(one(&made)).cookie(&acme.admin).header("if-match", etag).json(&body)
        };
        with("\"1\"", "Globex Inc.").await.is(200);
        with("\"1\"", "Lost").await.problem("version_mismatch");
        with("\"2\"", "Globex").await.is(200);
        with("*", "Globex Inc.").await.is(200);
        let gone = server.delete(one(&made)).cookie(&acme.admin).header("if-match", "\"3\"").await;
        gone.problem("version_mismatch");
        server.delete(one(&made)).cookie(&acme.admin).header("if-match", "\"4\"").await.is(204);
    }
}
