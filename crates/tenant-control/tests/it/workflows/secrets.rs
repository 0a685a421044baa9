//! Values of headers are sealed, shown nowhere, and kept for the place alone that they were given for.

use std::collections::BTreeMap;

use kernel::base::Actor;
use kernel::store::{Purpose, Select};
use tenant_control::features::workflows::store;

use super::*;
use crate::support::over_http;
use crate::support::people::AUDIT;
use crate::webhooks::{EVENTS, open};

const MASK: &str = "********";

fn request(url: &str, headers: Value) -> Value {
    let mut step = json!({"id": "call", "uses": "http.request", "with": {"method": "POST", "url": url}});
    step["with"]["headers"] = headers;
    step
}

fn calling(url: &str, headers: Value) -> Value {
    manual(json!([request(url, headers)]))
}

/// The headers of a step as whoever runs it gets them.
async fn headers_of(server: &Server, tenancy: &Tenancy, workflow: &Value, step: &str) -> BTreeMap<String, String> {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let (id, revision) = (id_of(workflow).parse().unwrap(), workflow["revision"].as_i64().unwrap());
    let kept = store::get_revision(&db, &server.app.secrets, id, revision).await.unwrap();
    let step = kept.definition.steps.iter().find(|one| one.id == step).expect("the step");
    serde_json::from_value(step.with["headers"].clone()).unwrap()
}

fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const URL: &str = "https://api.example.org/v1/things";

over_http! {
    async fn values_are_masked_in_every_answer_and_nowhere_in_clear(setup: Setup) {
        let mut setup = setup;
        setup.settings.news_wait_max = std::time::Duration::ZERO;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let body = calling(URL, json!({"Authorization": "Bearer hide-this-one", "X-Trace": "hide-this-${{ run.id }}"}));
        let made = server.post(WORKFLOWS).cookie(&acme.admin).idempotency_key("k").json(&body).await.ok(201);
        let masked = json!({"Authorization": MASK, "X-Trace": MASK});
        assert_eq!(made["steps"][0]["with"]["headers"], masked);
        assert_eq!(read(&server, &acme, &made).await, made);
        server.start_run(&acme, &made, &json!({})).await;
        let other = json!({"steps": [request(URL, json!({"Authorization": "hide-this-two", "X-Trace": MASK}))]});
        let changed = change(&server, &acme, &made, &other).await.ok(200);
        assert_eq!((&changed["steps"][0]["with"]["headers"], &changed["revision"]), (&masked, &json!(2)));
        for path in [WORKFLOWS, &one(&made), AUDIT, &format!("{EVENTS}?view=feed")] {
            let answer = server.get(path).cookie(&acme.admin).await;
            assert!(!String::from_utf8(answer.is(200).body.clone()).unwrap().contains("hide-this"), "{path}");
        }
        let told = json!({"from": MASK, "to": "******** (new)"});
        let trail = trail(&server, &acme, &made).await;
        assert!(trail.iter().any(|entry| entry["changes"]["headers"] == told), "that they changed is told: {trail:?}");
        let db = server.app.store.system(Purpose::Cli);
        for sql in ["SELECT definition FROM workflow_revisions WHERE 1 = 1", "SELECT COALESCE(changes, '') FROM audit_entries WHERE 1 = 1",
            "SELECT headers FROM idempotency_records WHERE 1 = 1"]
        {
            let rows: Vec<String> = db.select(&Select::for_system(sql).limit(100)).await.unwrap();
            assert!(!rows.is_empty() && rows.iter().all(|row| !row.contains("hide-this")), "{sql}");
        }
        for sql in ["SELECT headers FROM workflow_revisions WHERE 1 = 1", "SELECT body FROM idempotency_records WHERE 1 = 1"] {
            let rows: Vec<Vec<u8>> = db.select(&Select::for_system(sql).limit(100)).await.unwrap();
            let shows = |row: &Vec<u8>| row.windows(9).any(|part| part == b"hide-this");
            assert!(!rows.is_empty() && !rows.iter().any(shows), "{sql}");
        }
        // They are there, each revision's own.
        let first = of(&[("Authorization", "Bearer hide-this-one"), ("X-Trace", "hide-this-${{ run.id }}")]);
        assert_eq!(headers_of(&server, &acme, &made, "call").await, first);
        let second = of(&[("Authorization", "hide-this-two"), ("X-Trace", "hide-this-${{ run.id }}")]);
        assert_eq!(headers_of(&server, &acme, &changed, "call").await, second);
    }

    async fn a_mask_keeps_what_is_stored_for_the_same_step_and_place(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &calling(URL, json!({"X-A": "one", "X-B": "two"}))).await.ok(201);
        // What GET shows can be sent back as it is.
        let same = change(&server, &acme, &made, &json!({"steps": made["steps"]})).await.ok(200);
        assert_eq!(same, made);
        let renamed = change(&server, &acme, &made, &json!({"name": "Other"})).await.ok(200);
        assert_eq!(headers_of(&server, &acme, &renamed, "call").await, of(&[("X-A", "one"), ("X-B", "two")]));
        // Another path, a default port and another spelling are the same place; names do not depend on case.
        for url in ["https://API.example.org:443/other?x=1", "https://api.example.org/${{ input.path }}"] {
            let patch = json!({"steps": [request(url, json!({"x-a": MASK, "X-C": "three"}))]});
            let changed = change(&server, &acme, &made, &patch).await.ok(200);
            assert_eq!(headers_of(&server, &acme, &changed, "call").await, of(&[("x-a", "one"), ("X-C", "three")]), "{url}");
        }
        let at = |name: &str, code: &str| (format!("/steps/0/with/headers/{name}"), code.to_owned());
        for url in ["https://evil.example.org/", "http://api.example.org/", "https://api.example.org:8443/", "https://api.example.org.evil.org/"] {
            let patch = json!({"steps": [request(url, json!({"x-a": MASK, "X-D": "new"}))]});
            assert_eq!(faults(&change(&server, &acme, &made, &patch).await), [at("x-a", "url_moved")], "{url}");
        }
        let nothing = json!({"steps": [request(URL, json!({"X-B": MASK}))]});
        assert_eq!(faults(&change(&server, &acme, &made, &nothing).await), [at("X-B", "nothing_to_keep")], "it was dropped");
        let mut other = request(URL, json!({"x-a": MASK}));
        other["id"] = json!("other");
        assert_eq!(faults(&change(&server, &acme, &made, &json!({"steps": [other]})).await), [at("x-a", "nothing_to_keep")]);
        assert_eq!(faults(&create(&server, &acme, &calling(URL, json!({"X-A": MASK}))).await), [at("X-A", "nothing_to_keep")]);
    }

    async fn a_place_that_an_expression_decides_has_no_headers(server: Server) {
        let acme = server.tenant("acme").await;
        for url in ["${{ input.url }}", "https://${{ input.host }}/", "https://api.example.org${{ input.rest }}", "https://api.example.org:${{ input.port }}/",
            "${{ input.scheme }}://api.example.org/"]
        {
            let answer = create(&server, &acme, &calling(url, json!({"X-A": "${{ input.token }}"}))).await;
            assert_eq!(faults(&answer), [("/steps/0/with/url".to_owned(), "templated_host".to_owned())], "{url}");
            create(&server, &acme, &calling(url, json!({}))).await.is(201);
        }
        create(&server, &acme, &calling("https://api.example.org/${{ input.path }}?q=${{ input.q }}", json!({"X-A": "1"}))).await.is(201);
        // All of them as one expression could not be sealed.
        let answer = create(&server, &acme, &calling(URL, json!("${{ input.headers }}"))).await;
        assert_eq!(faults(&answer), [("/steps/0/with/headers".to_owned(), "wrong_type".to_owned())]);
    }

    async fn headers_are_judged_as_those_of_webhooks(server: Server) {
        let acme = server.tenant("acme").await;
        // But for Content-Type, since the body is the tenant's own.
        let headers = json!({"Host": "${{ input.x }}", "Content-Type": "text/xml", "Content-Length": "1", "Idempotency-Key": "mine", "X A": "${{ input.x }}", "X-Fine": "${{ input.x }}",
            "X-Bad": "a\nb"});
        let mut found = faults(&create(&server, &acme, &calling(URL, headers)).await);
        found.sort_unstable();
        let at = |name: &str, code: &str| (format!("/steps/0/with/headers/{name}"), code.to_owned());
        let expected = [at("Content-Length", "header_not_allowed"), at("Host", "header_not_allowed"), at("Idempotency-Key", "header_not_allowed"),
            at("X A", "invalid_header"), at("X-Bad", "invalid_header")];
        assert_eq!(found, expected);
    }

    async fn a_request_to_inside_is_refused_when_it_is_saved(setup: Setup) {
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        for url in ["http://127.0.0.1/", "http://[::1]:8080/x", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1/${{ input.path }}",
            "http://[::ffff:127.0.0.1]/", "http://localhost/"]
        {
            let answer = create(&server, &acme, &calling(url, json!({}))).await.is(422).json();
            assert_eq!((&answer["code"], &answer["errors"][0]["pointer"]), (&json!("target_not_allowed"), &json!("/steps/0/with/url")), "{url}");
        }
        assert_eq!(server.get(WORKFLOWS).cookie(&acme.admin).await.ok(200)["data"], json!([]));
    }

    async fn what_a_deleted_workflow_had_is_gone(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &calling(URL, json!({"X-A": "one"}))).await.ok(201);
        server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        server.work().await;
        assert_eq!(headers_of(&server, &acme, &made, "call").await, of(&[("X-A", MASK)]));
    }

    async fn a_sealed_value_opens_for_no_other_revision(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &calling(URL, json!({"X-A": "one"}))).await.ok(201);
        server.start_run(&acme, &made, &json!({})).await;
        let changed = change(&server, &acme, &made, &json!({"name": "Other"})).await.ok(200);
        let db = server.app.store.system(Purpose::Cli);
        let sql = "UPDATE workflow_revisions SET headers = (SELECT r.headers FROM workflow_revisions r WHERE r.revision = 1) WHERE revision = 2";
        db.write(async move |tx| tx.exec(sql, kernel::args![]).await).await.unwrap();
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let id = id_of(&changed).parse().unwrap();
        assert!(store::get_revision(&db, &server.app.secrets, id, 1).await.is_ok());
        assert!(store::get_revision(&db, &server.app.secrets, id, 2).await.is_err());
    }
}
