//! PUT: what stays, what is verified again, and what cannot be changed.

use super::*;

over_http! {
    async fn a_replacement_without_credentials_keeps_them(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let provider = server.connect(&acme, stub, "acme").await;
            server.advance(1_000);
            let asked = stub.count(Asked::ListOne);
            let body = json!({"name": "Renamed", "kind": stub.kind(), "regions": [stub.region()]});
            let answer = put(&server, &acme, &provider, &body).await;
            let renamed = answer.ok(200);
            assert_eq!(answer.header("etag"), "\"2\"");
            let expected = json!({"name": "Renamed", "version": 2, "updated_at": server.now().to_string()});
            assert_eq!(renamed, with(&provider, &expected));
            server.cloud_work().await;
            assert_eq!(stub.count(Asked::ListOne), asked, "a name needs no verification");
            let report = server.tell_provider(&acme, &provider, "verify").await.ok(200);
            assert_eq!(report["status"], "active", "the credentials are still there");
            let trail = trail(&server, &acme, &provider).await;
            assert_eq!(trail[1]["action"], "cloud_provider.update");
            assert_eq!(trail[1]["changes"], json!({"name": {"from": "Production", "to": "Renamed"}}));
        }
    }

    async fn a_replacement_that_changes_nothing_keeps_the_version(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let token = clouds.digitalocean.token("acme", Rights::All);
        let body = provider_body(&clouds.digitalocean, &token);
        let provider = server.connect_by(&acme, &body).await;
        server.advance(1_000);
        let asked = clouds.digitalocean.total();
        assert_eq!(put(&server, &acme, &provider, &without(&body, &["credentials"])).await.ok(200), provider);
        server.cloud_work().await;
        assert_eq!(clouds.digitalocean.total(), asked);
        // Given credentials are verified at once, also those that were there: what they may do may have changed in the cloud.
        assert_eq!(put(&server, &acme, &provider, &body).await.ok(200), provider);
        server.cloud_work().await;
        assert!(clouds.digitalocean.total() > asked);
        assert_eq!(trail(&server, &acme, &provider).await.len(), 1);
        assert_eq!(server.kinds_of(&acme, "cloud.").await, ["cloud.provider.verified"]);
    }

    async fn new_credentials_are_verified_and_used_at_once(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let provider = server.connect(&acme, stub, "acme").await;
            stub.add("next", "of-the-next-account");
            let next = stub.token("next", Rights::All);
            let changed = put(&server, &acme, &provider, &provider_body(stub, &next)).await.ok(200);
            assert_eq!((&changed["status"], &changed["version"]), (&json!("unverified"), &json!(2)));
            assert_ne!(changed["credentials_hint"], provider["credentials_hint"]);
            server.cloud_work().await;
            let now = server.read_provider(&acme, &provider).await;
            assert_eq!((&now["status"], &now["version"]), (&json!("active"), &json!(2)));
            assert_eq!(stub.calls(Asked::ListOne).last().unwrap().token, next);
            assert_eq!(stub.calls(Asked::List).last().unwrap().token, next, "it is synced at once, too");
            let query = format!("provider_id={}", id_of(&provider));
            assert_eq!(server.vm_names(&acme, &query).await, ["of-the-next-account"]);
            // Bad ones are told as soon.
            let bad = put(&server, &acme, &provider, &provider_body(stub, "a-token-that-is-refused")).await.ok(200);
            server.cloud_work().await;
            let now = server.read_provider(&acme, &bad).await;
            assert_eq!((&now["status"], &now["verification"]["identity"]), (&json!("invalid"), &json!(null)));
        }
    }

    async fn the_kind_cannot_be_changed(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let (made, _) = make(&server, &acme, &clouds.hetzner).await;
        let token = clouds.digitalocean.token("acme", Rights::All);
        for body in [
            provider_body(&clouds.digitalocean, &token),
            without(&provider_body(&clouds.digitalocean, &token), &["credentials"]),
        ] {
            assert_eq!(put(&server, &acme, &made, &body).await.pointers(), ["/kind"]);
        }
        assert_eq!(server.read_provider(&acme, &made).await, made);
    }

    async fn only_the_version_that_was_read_is_replaced(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let (made, token) = make(&server, &acme, &clouds.hetzner).await;
        let body = with(&provider_body(&clouds.hetzner, &token), &json!({"name": "Second"}));
        let send = |tag: &str| server.put(one_provider(&made)).cookie(&acme.admin).header("if-match", tag).json(&body);
        send("\"2\"").await.problem("version_mismatch");
        send("\"1\"").await.is(200);
        send("\"1\"").await.problem("version_mismatch");
        let delete = |tag: &str| server.delete(one_provider(&made)).cookie(&acme.admin).header("if-match", tag);
        delete("\"1\"").await.problem("version_mismatch");
        delete("\"2\"").await.is(204);
    }

    async fn a_replacement_needs_what_is_required_and_the_rest_returns_to_its_default(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let token = clouds.hetzner.token("acme", Rights::All);
        let body = with(&provider_body(&clouds.hetzner, &token), &json!({"enabled": false}));
        let made = post(&server, &acme, &body).await.ok(201);
        assert_eq!(sorted(put(&server, &acme, &made, &json!({})).await.pointers()), ["/kind", "/name"]);
        let least = put(&server, &acme, &made, &json!({"name": "Least", "kind": "hetzner"})).await.ok(200);
        assert_eq!(least["enabled"], true);
        assert_eq!(least["regions"], made["regions"], "regions stay, as credentials do");
        assert_eq!(least["credentials_hint"], made["credentials_hint"]);
        let null = put(&server, &acme, &made, &json!({"name": "Least", "kind": "hetzner", "credentials": null})).await;
        assert_eq!(null.pointers(), ["/credentials"]);
    }

    async fn a_region_that_is_no_longer_listed_takes_its_machines_with_it(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        stub.add("acme", "in-fsn1");
        let moved = stub.add("acme", "in-nbg1");
        stub.change(moved, |machine| "nbg1".clone_into(&mut machine.region));
        let token = stub.token("acme", Rights::All);
        let both = with(&provider_body(stub, &token), &json!({"regions": ["fsn1", "nbg1"]}));
        let provider = server.connect_by(&acme, &both).await;
        assert_eq!(server.vm_names(&acme, "").await, ["in-fsn1", "in-nbg1"]);
        server.advance(1_000);
        let since = server.now();
        put(&server, &acme, &provider, &provider_body(stub, &token)).await.is(200);
        assert_eq!(server.vm_names(&acme, "").await, ["in-fsn1"], "before any sync");
        server.cloud_work_for(3_600_000).await;
        assert_eq!(server.vm_names(&acme, "").await, ["in-fsn1"]);
        let changes = server.list_vms(&acme, &format!("updated_since={since}")).await;
        assert_eq!((changes.len(), &changes[0]["name"]), (1, &json!("in-nbg1")), "{changes:#?}");
        assert_eq!(changes[0]["deleted_at"], since.to_string());
        // Listed again, it is the same machine.
        put(&server, &acme, &provider, &both).await.is(200);
        server.cloud_work().await;
        assert_eq!(server.vm_names(&acme, "").await, ["in-fsn1", "in-nbg1"]);
        assert_eq!(server.list_vms(&acme, "region=nbg1").await[0]["id"], changes[0]["id"]);
    }
}
