//! What adding a provider takes, and what comes of it.

use super::*;

const RECORD: [&str; 15] = [
    "created_at",
    "created_by",
    "credentials_hint",
    "enabled",
    "id",
    "kind",
    "last_sync_at",
    "last_sync_error",
    "last_verified_at",
    "name",
    "regions",
    "status",
    "updated_at",
    "verification",
    "version",
];

/// The pointers at which a new provider of Hetzner with these fields is refused.
async fn refused(server: &Server, tenancy: &Tenancy, fields: &Value) -> Vec<String> {
    let body = json!({"name": "Production", "kind": "hetzner", "credentials": {"token": "a-token-of-some-length"}});
    sorted(post(server, tenancy, &with(&body, fields)).await.pointers())
}

over_http! {
    async fn a_record_has_every_field_and_no_credentials(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let token = clouds.hetzner.token("acme", Rights::All);
        let body = json!({
            "name": " Production ", "kind": "hetzner", "regions": ["nbg1", "fsn1", "nbg1"], "credentials": {"token": token},
        });
        let answer = post(&server, &acme, &body).await;
        let made = answer.ok(201);
        assert_eq!((answer.header("location"), answer.header("etag")), (one_provider(&made).as_str(), "\"1\""));
        let mut names: Vec<&str> = made.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, RECORD);
        let now = server.now().to_string();
        for (field, value) in [
            ("name", json!("Production")),
            ("kind", json!("hetzner")),
            ("regions", json!(["fsn1", "nbg1"])),
            ("enabled", json!(true)),
            ("status", json!("unverified")),
            ("credentials_hint", json!(format!("…{}", &token[token.len() - 4..]))),
            ("last_verified_at", json!(null)),
            ("verification", json!(null)),
            ("last_sync_at", json!(null)),
            ("last_sync_error", json!(null)),
            ("version", json!(1)),
            ("created_at", json!(now)),
            ("updated_at", json!(now)),
        ] {
            assert_eq!(made[field], value, "{field}");
        }
        assert!(id_of(&made).starts_with("prv_") && id_of(&made).len() == 30, "{made}");
        assert_eq!(server.read_provider(&acme, &made).await, made);
        let trail = trail(&server, &acme, &made).await;
        assert_eq!((trail.len(), &trail[0]["action"]), (1, &json!("cloud_provider.create")), "{trail:?}");
        assert_eq!(clouds.hetzner.total(), 0, "the answer does not wait for the cloud");
    }

    async fn regions_have_defaults_of_their_kind(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let body = without(&provider_body(stub, "a-token-of-some-length"), &["regions"]);
            let regions = post(&server, &acme, &body).await.ok(201)["regions"].clone();
            let regions = regions.as_array().unwrap();
            assert!(regions.len() > 3 && regions.contains(&json!(stub.region())), "{regions:?}");
        }
        let keys = json!({"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "wJalrXUtnFEMI/K7MDENG"});
        let aws = json!({"name": "Amazon", "kind": "aws", "credentials": keys});
        let made = post(&server, &acme, &aws).await.ok(201);
        assert_eq!((&made["regions"], &made["credentials_hint"]), (&json!(["us-east-1"]), &json!("AKIA…MPLE")));
    }

    async fn what_is_wrong_is_named_where_it_stands_and_all_at_once(setup: Setup) {
        let (server, _clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let many: Vec<String> = (0..31).map(|n| format!("region-{n}")).collect();
        for (fields, pointers) in [
            (json!({"name": " "}), &["/name"][..]),
            (json!({"name": "x".repeat(201)}), &["/name"]),
            (json!({"kind": 5}), &["/kind"]),
            (json!({"kind": null}), &["/kind"]),
            (json!({"credentials": null}), &["/credentials"]),
            (json!({"credentials": "token"}), &["/credentials"]),
            (json!({"credentials": {}}), &["/credentials/token"]),
            (json!({"credentials": {"token": ""}}), &["/credentials/token"]),
            (json!({"credentials": {"token": 7}}), &["/credentials/token"]),
            (json!({"credentials": {"token": "two words"}}), &["/credentials/token"]),
            (json!({"credentials": {"token": "line\nbreak"}}), &["/credentials/token"]),
            (json!({"credentials": {"token": "x", "secret": "y"}}), &["/credentials/secret"]),
            (json!({"regions": []}), &["/regions"]),
            (json!({"regions": null}), &["/regions"]),
            (json!({"regions": "fsn1"}), &["/regions"]),
            (json!({"regions": many}), &["/regions"]),
            (json!({"regions": ["fsn1", "FSN1", "evil.example/", "", "a b"]}), &["/regions/1", "/regions/2", "/regions/3", "/regions/4"]),
            (json!({"enabled": null}), &["/enabled"]),
            (json!({"enabled": "true"}), &["/enabled"]),
            (json!({"id": "prv_1", "status": "active", "version": 1}), &["/id", "/status", "/version"]),
            (json!({"name": "", "credentials": {"x": 1}, "regions": [1], "enabled": 1}),
                &["/credentials/token", "/credentials/x", "/enabled", "/name", "/regions/0"]),
        ] {
            assert_eq!(refused(&server, &acme, &fields).await, pointers, "{fields}");
        }
        let nothing = post(&server, &acme, &json!({})).await;
        assert_eq!(sorted(nothing.pointers()), ["/credentials", "/kind", "/name"]);
        let short = json!({"name": "Amazon", "kind": "aws", "credentials": {"access_key_id": "short", "external_id": "x1"}});
        let pointers = sorted(post(&server, &acme, &short).await.pointers());
        assert_eq!(pointers, ["/credentials/access_key_id", "/credentials/external_id", "/credentials/secret_access_key"]);
        for (body, pointers) in [
            (json!({"action": "destroy", "id": "prv_01jd8z6v2mfkpb7h3q9xw5t4ra"}), &["/action"][..]),
            (json!({"action": "verify"}), &["/id"]),
            (json!({"action": "sync", "id": 5, "force": true}), &["/force", "/id"]),
        ] {
            assert_eq!(sorted(post(&server, &acme, &body).await.pointers()), pointers, "{body}");
        }
        assert_eq!(server.get(PROVIDERS).cookie(&acme.admin).await.ok(200)["data"], json!([]), "nothing was added");
    }

    async fn a_kind_that_is_not_offered_is_refused_with_the_list(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let (made, _) = make(&server, &acme, &clouds.hetzner).await;
        for kind in ["azure", "AWS", "", "hetzner ", "libvirt"] {
            let body = json!({"name": "Other", "kind": kind, "credentials": {"anything": true}});
            for answer in [post(&server, &acme, &body).await, put(&server, &acme, &made, &body).await] {
                let problem = answer.ok(422);
                assert_eq!(problem["code"], "provider_unsupported", "{kind}: {problem}");
                assert_eq!(problem["type"], format!("{}/documentation/errors/#provider_unsupported", answer.base_url));
                let errors = problem["errors"].as_array().expect("errors");
                assert_eq!((errors.len(), &errors[0]["pointer"]), (1, &json!("/kind")), "{problem}");
                let detail = errors[0]["detail"].as_str().unwrap();
                for offered in ["aws", "hetzner", "digitalocean"] {
                    assert!(detail.contains(offered), "{detail}");
                }
            }
        }
    }

    async fn a_repeated_request_makes_no_second_one(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let token = clouds.hetzner.token("acme", Rights::All);
        let body = provider_body(&clouds.hetzner, &token);
        let send = || server.post(PROVIDERS).cookie(&acme.admin).idempotency_key("k").json(&body);
        let (first, second) = (send().await, send().await);
        assert_eq!((first.ok(201), second.header("idempotency-replayed")), (second.ok(201), "true"));
        let changed = with(&body, &json!({"name": "Other"}));
        let other = server.post(PROVIDERS).cookie(&acme.admin).idempotency_key("k").json(&changed);
        other.await.problem("idempotency_key_reused");
        let list = server.get(PROVIDERS).cookie(&acme.admin).await.ok(200);
        assert_eq!(list["data"].as_array().unwrap().len(), 1);
    }

    async fn a_repeated_verification_answers_as_the_first_and_asks_the_cloud_once(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let (made, _) = make(&server, &acme, &clouds.hetzner).await;
        let body = json!({"action": "verify", "id": made["id"]});
        let send = || server.post(PROVIDERS).cookie(&acme.admin).idempotency_key("k").json(&body);
        let (first, second) = (send().await, send().await);
        assert_eq!((first.ok(200), second.header("idempotency-replayed")), (second.ok(200), "true"));
        assert_eq!(clouds.hetzner.count(Asked::ListOne), 1, "a replay does nothing again");
    }

    async fn a_tenant_has_so_many_and_no_more(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let mut last = json!(null);
        for _ in 0..500 {
            last = make(&server, &acme, &clouds.digitalocean).await.0;
        }
        let body = provider_body(&clouds.digitalocean, "a-token-of-some-length");
        post(&server, &acme, &body).await.problem("limit_reached");
        server.delete(one_provider(&last)).cookie(&acme.admin).await.is(204);
        post(&server, &acme, &body).await.is(201);
        post(&server, &other, &body).await.is(201);
    }
}
