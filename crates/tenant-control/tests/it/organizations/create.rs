//! What making an organization takes, and what comes of it.

use kernel::args;
use kernel::base::Actor;

use super::*;
use crate::tickets::nested;

/// Organizations of a tenant.
const MAX: usize = 10_000;

/// The pointers at which a new organization with these fields is refused.
async fn refused(server: &Server, tenancy: &Tenancy, fields: &Value) -> Vec<String> {
    let mut body = json!({"name": "Globex"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    post(server, tenancy, &body).await.pointers()
}

over_http! {
    async fn a_record_has_every_field_and_comes_back_as_it_was_made(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({
            "name": " Globex Inc. ", "slug": "globex", "external_id": " crm, 4711 ",
            "domains": ["Globex.Example", "globex.test", "globex.example"], "tags": ["gold", " gold ", "emea"],
            "custom_fields": {"contract": {"ends": "2027-12-31"}, "seats": 40},
        });
        let answer = post(&server, &acme, &body).await;
        let made = answer.ok(201);
        assert_eq!(answer.header("location"), one(&made));
        assert_eq!(answer.header("etag"), "\"1\"");
        let mut names: Vec<&str> = made.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, RECORD);
        let now = server.now().to_string();
        for (field, value) in [
            ("name", json!("Globex Inc.")),
            ("slug", json!("globex")),
            ("external_id", json!("crm, 4711")),
            ("domains", json!(["globex.example", "globex.test"])),
            ("tags", json!(["gold", "emea"])),
            ("custom_fields", body["custom_fields"].clone()),
            ("archived", json!(false)),
            ("version", json!(1)),
            ("created_at", json!(now)),
            ("updated_at", json!(now)),
        ] {
            assert_eq!(made[field], value, "{field}");
        }
        assert!(id_of(&made).starts_with("org_") && id_of(&made).len() == 30, "{made}");
        assert_eq!(read(&server, &acme, &made).await, made);
        assert_eq!(walk(&server, &acme, "").await, std::slice::from_ref(&made));
        let told = server.events_of(&acme, "organization.").await;
        assert_eq!(told.len(), 1);
        assert_eq!((&told[0]["type"], &told[0]["data"]), (&json!("organization.created"), &made));
        let trail = trail(&server, &acme, &made).await;
        assert_eq!(trail.len(), 1, "{trail:?}");
        assert_eq!(trail[0]["action"], "organization.create");
        let least = make(&server, &acme, &json!({"name": "Initech"})).await;
        let defaults = json!({"external_id": null, "domains": [], "tags": [], "custom_fields": {}, "archived": false});
        for (field, value) in defaults.as_object().unwrap() {
            assert_eq!(&least[field], value, "{field}");
        }
        let hidden = make(&server, &acme, &json!({"name": "Hidden", "external_id": null, "archived": true})).await;
        assert_eq!((&hidden["archived"], &hidden["external_id"]), (&json!(true), &Value::Null));
    }

    async fn a_slug_is_made_from_the_name_and_numbered_where_it_is_taken(server: Server) {
        let acme = server.tenant("acme").await;
        let long = "a".repeat(200);
        for (name, slug) in [
            ("Globex Inc.", "globex-inc".to_owned()),
            ("globex inc", "globex-inc-2".to_owned()),
            ("GLOBEX  (Inc)", "globex-inc-3".to_owned()),
            ("Müller & Söhne", "muller-sohne".to_owned()),
            ("日本", "organization".to_owned()),
            ("!", "organization-2".to_owned()),
            (&long, "a".repeat(63)),
            (&long, format!("{}-2", "a".repeat(61))),
        ] {
            assert_eq!(make(&server, &acme, &json!({"name": name})).await["slug"], slug, "{name}");
        }
        make(&server, &acme, &json!({"name": "Taken", "slug": "initech"})).await;
        make(&server, &acme, &json!({"name": "Taken", "slug": "initech-3"})).await;
        for slug in ["initech-2", "initech-4"] {
            assert_eq!(make(&server, &acme, &json!({"name": "Initech"})).await["slug"], slug);
        }
        // What one tenant has another does not see.
        let other = server.tenant("other").await;
        assert_eq!(make(&server, &other, &json!({"name": "Initech"})).await["slug"], "initech");
    }

    async fn a_slug_or_an_external_id_that_is_taken_is_a_conflict(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let body = json!({"name": "Globex", "slug": "globex", "external_id": "crm-1"});
        make(&server, &acme, &body).await;
        for taken in [
            json!({"name": "A", "slug": "globex"}),
            json!({"name": "A", "external_id": "crm-1"}),
            json!({"name": "A", "slug": "free", "external_id": " crm-1 "}),
        ] {
            post(&server, &acme, &taken).await.problem("conflict");
        }
        make(&server, &acme, &json!({"name": "A", "slug": "free", "external_id": "CRM-1"})).await;
        make(&server, &other, &body).await;
        assert_eq!(walk(&server, &acme, "").await.len(), 2, "what was refused has left nothing");
        assert_eq!(server.kinds_of(&acme, "organization.").await, ["organization.created"; 2]);
    }

    async fn what_is_wrong_is_named_where_it_stands_and_all_at_once(server: Server) {
        let acme = server.tenant("acme").await;
        for (fields, pointers) in [
            (json!({"name": " "}), &["/name"][..]),
            (json!({"name": null}), &["/name"]),
            (json!({"name": "x".repeat(201)}), &["/name"]),
            (json!({"slug": ""}), &["/slug"]),
            (json!({"slug": null}), &["/slug"]),
            (json!({"slug": "Globex"}), &["/slug"]),
            (json!({"slug": "-a"}), &["/slug"]),
            (json!({"slug": "a-"}), &["/slug"]),
            (json!({"slug": "a".repeat(64)}), &["/slug"]),
            (json!({"external_id": ""}), &["/external_id"]),
            (json!({"external_id": "a\u{7}b"}), &["/external_id"]),
            (json!({"external_id": 4711}), &["/external_id"]),
            (json!({"domains": ["a.example", "nonsense", "192.0.2.1", "-a.example"]}), &["/domains/1", "/domains/2", "/domains/3"]),
            (json!({"domains": null}), &["/domains"]),
            (json!({"domains": "a.example"}), &["/domains"]),
            (json!({"domains": (0..21).map(|n| format!("{n}.example")).collect::<Vec<_>>()}), &["/domains"]),
            (json!({"tags": ["a,b", " "]}), &["/tags/0", "/tags/1"]),
            (json!({"tags": (0..51).map(|n| n.to_string()).collect::<Vec<_>>()}), &["/tags"]),
            (json!({"custom_fields": []}), &["/custom_fields"]),
            (json!({"custom_fields": nested(6)}), &["/custom_fields"]),
            (json!({"custom_fields": {"a": "x".repeat(16 << 10)}}), &["/custom_fields"]),
            (json!({"archived": null}), &["/archived"]),
            (json!({"archived": "true"}), &["/archived"]),
            (json!({"id": "org_1", "version": 1}), &["/id", "/version"]),
            (json!({"name": "", "slug": "A", "archived": 1}), &["/name", "/slug", "/archived"]),
        ] {
            assert_eq!(refused(&server, &acme, &fields).await, pointers, "{fields}");
        }
        assert_eq!(post(&server, &acme, &json!({})).await.pointers(), ["/name"]);
        assert_eq!(walk(&server, &acme, "").await, Vec::<Value>::new());
        // The most that is allowed.
        let domains: Vec<String> = (0..20).map(|n| format!("{n}.example")).collect();
        let tags: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let most = json!({
            "name": "x".repeat(200), "slug": "a".repeat(63), "external_id": "x".repeat(200), "domains": domains, "tags": tags,
            "custom_fields": nested(5),
        });
        let made = make(&server, &acme, &most).await;
        assert_eq!((&made["domains"], &made["tags"]), (&most["domains"], &most["tags"]));
    }

    async fn a_repeated_request_makes_no_second_one(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Globex"});
        let send = || server.post(ORGANIZATIONS).cookie(&acme.admin).idempotency_key("k").json(&body);
        let (first, second) = (send().await, send().await);
        assert_eq!((first.ok(201), second.header("idempotency-replayed")), (second.ok(201), "true"));
        let other = server.post(ORGANIZATIONS).cookie(&acme.admin).idempotency_key("k").json(&json!({"name": "Other"}));
        other.await.problem("idempotency_key_reused");
        assert_eq!(slugs(&walk(&server, &acme, "").await), ["globex"]);
        assert_eq!(server.kinds_of(&acme, "organization.").await, ["organization.created"]);
    }

    async fn a_tenant_has_so_many_and_no_more(server: Server) {
        let acme = server.tenant("acme").await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let fill = format!(
            "WITH RECURSIVE made (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM made WHERE n < {})
            INSERT INTO organizations (tenant_id, id, slug, name, version, created_at, updated_at)
            SELECT CAST($1 AS TEXT), 'org_' || n, 's' || n, 'x', 1, 1, 1 FROM made",
            MAX - 1
        );
        db.write(async move |tx| tx.exec(&fill, args![]).await).await.expect("they are there");
        let last = make(&server, &acme, &json!({"name": "Last"})).await;
        post(&server, &acme, &json!({"name": "One more"})).await.problem("limit_reached");
        changed(&server, &acme, &last, &json!({"name": "Still the last", "archived": true})).await;
        post(&server, &acme, &json!({"name": "One more"})).await.problem("limit_reached");
        delete(&server, &acme, &last).await.is(204);
        make(&server, &acme, &json!({"name": "One more"})).await;
        let other = server.tenant("other").await;
        make(&server, &other, &json!({"name": "Of another"})).await;
    }
}
