//! PATCH of a definition: what changes, what stays, and what makes a new revision.

use kernel::args;
use kernel::base::Actor;

use super::*;
use crate::support::over_http;

/// What starts the workflow, and behind which event.
async fn triggers(server: &Server, tenancy: &Tenancy) -> Vec<(String, i64)> {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let sql = "SELECT pattern, after_sequence FROM workflow_triggers WHERE tenant_id = $1 ORDER BY pattern";
    db.list(sql, args![]).await.unwrap()
}

async fn number(server: &Server, tenancy: &Tenancy, sql: &str) -> Option<i64> {
    server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system()).find(sql, args![]).await.unwrap()
}

async fn sequence(server: &Server, tenancy: &Tenancy) -> i64 {
    number(server, tenancy, "SELECT sequence FROM tenant_clocks WHERE tenant_id = $1").await.unwrap()
}

async fn position(server: &Server, tenancy: &Tenancy) -> Option<i64> {
    number(server, tenancy, "SELECT position FROM followers WHERE tenant_id = $1 AND name = 'workflows'").await
}

over_http! {
    async fn a_change_is_a_new_revision(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &named("First")).await.ok(201);
        server.start_run(&acme, &made, &json!({})).await;
        let steps = json!([{"id": "a", "uses": "wait", "with": {"seconds": 1}, "retry": {"max": 2}}]);
        server.advance(1_000);
        let answer = change(&server, &acme, &made, &json!({"name": "Second", "steps": steps})).await;
        let changed = answer.ok(200);
        assert_eq!((&changed["revision"], &changed["version"], answer.header("etag")), (&json!(2), &json!(2), "\"2\""));
        assert_eq!((&changed["name"], changed["steps"].as_array().unwrap().len()), (&json!("Second"), 1));
        assert_eq!(changed["steps"][0]["retry"], json!({"max": 2, "backoff_seconds": 10, "on_status": []}), "with its defaults");
        assert_eq!((&changed["created_at"], &changed["updated_at"]), (&made["created_at"], &json!(server.now().to_string())));
        server.start_run(&acme, &made, &json!({})).await;
        let schema = json!({"type": "object", "default": null});
        assert_eq!(change(&server, &acme, &made, &json!({"input_schema": schema})).await.ok(200)["input_schema"], schema);
        let cleared = change(&server, &acme, &made, &json!({"input_schema": null})).await.ok(200);
        assert_eq!((&cleared["input_schema"], &cleared["revision"]), (&Value::Null, &json!(4)));
        // The old ones are as they were, as long as they have runs.
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let id = id_of(&made).parse().unwrap();
        for (revision, name, step) in [(1, "First", "pause"), (2, "Second", "a"), (4, "Second", "a")] {
            let kept = tenant_control::features::workflows::store::get_revision(&db, &server.app.secrets, id, revision).await.unwrap();
            assert_eq!((kept.definition.name.as_str(), kept.definition.steps[0].id.as_str()), (name, step));
            assert_eq!((kept.workflow_name.as_str(), json!(kept.saved_by)), ("Second", made["saved_by"].clone()));
        }
        let trail = trail(&server, &acme, &made).await;
        let told = json!({"name": {"from": "First", "to": "Second"}, "revision": {"from": 1, "to": 2}});
        let is_told = |entry: &Value| ["name", "revision"].iter().all(|field| entry["changes"][field] == told[field]);
        assert!(trail.iter().any(|entry| entry["action"] == "workflow.update" && is_told(entry)), "{trail:?}");
    }

    async fn changes_at_once_are_made_one_after_the_other(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &named("First")).await.ok(201);
        let patches: Vec<Value> = (0..6).map(|number| json!({"name": format!("Name {number}")})).collect();
        let changing = patches.iter().map(|patch| change(&server, &acme, &made, patch));
        for answer in futures_util::future::join_all(changing).await {
            answer.ok(200);
        }
        assert_eq!(read(&server, &acme, &made).await["revision"], 7);
        // Who names a version is told that it has moved.
        let stale = server.patch(one(&made)).cookie(&acme.admin).header("if-match", "\"1\"").json(&patches[0]).await;
        stale.problem("version_mismatch");
    }

    async fn enabling_is_no_revision(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &named("Work")).await.ok(201);
        let off = change(&server, &acme, &made, &json!({"enabled": false})).await.ok(200);
        assert_eq!((&off["enabled"], &off["revision"], &off["version"]), (&json!(false), &json!(1), &json!(2)));
        let on = change(&server, &acme, &made, &json!({"enabled": true})).await.ok(200);
        assert_eq!((&on["enabled"], &on["revision"], &on["version"]), (&json!(true), &json!(1), &json!(3)));
        let both = change(&server, &acme, &made, &json!({"enabled": false, "name": "Other"})).await.ok(200);
        assert_eq!((&both["enabled"], &both["revision"], &both["version"]), (&json!(false), &json!(2), &json!(4)));
        assert_eq!(actions(&server, &acme, &made).await, ["create", "disable", "disable", "enable", "update"]);
    }

    async fn a_patch_that_changes_nothing_keeps_version_and_revision(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &named("Work")).await.ok(201);
        let same = json!({"name": made["name"], "enabled": true, "on": made["on"], "input_schema": null, "steps": made["steps"]});
        for patch in [json!({}), json!({"enabled": true}), json!({"name": "Work"}), same] {
            assert_eq!(change(&server, &acme, &made, &patch).await.ok(200), made, "{patch}");
        }
        assert_eq!(trail(&server, &acme, &made).await.len(), 1);
    }

    async fn a_bad_patch_changes_nothing_and_says_what_is_wrong(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &named("Work")).await.ok(201);
        for (patch, pointer, code) in [
            (json!({"name": null}), "/name", "required"),
            (json!({"enabled": "yes"}), "/enabled", "wrong_type"),
            (json!({"on": {"manual": null}}), "/on", "required"),
            (json!({"on": {"event": {"if": "true"}}}), "/on/event/types", "required"),
            (json!({"on": {"event": {"types": ["*"]}, "schedule": {"cron": "* * * * *"}}}), "/on", "required"),
            (json!({"steps": []}), "/steps", "required"),
            (json!({"steps": [{"id": "a", "uses": "wait", "with": {"seconds": "${{ 1 + }}"}}]}), "/steps/0/with/seconds", "bad_expression"),
            (json!({"revision": 7}), "/revision", "unknown_field"),
            (json!({"action": "create"}), "/action", "invalid_value"),
            (json!({"action": "cancel"}), "/action", "unknown_field"),
        ] {
            let answer = change(&server, &acme, &made, &patch).await;
            assert_eq!(faults(&answer), [(pointer.to_owned(), code.to_owned())], "{patch}");
        }
        assert_eq!(read(&server, &acme, &made).await, made);
        server.patch(WORKFLOWS).cookie(&acme.admin).json(&json!({"name": "x"})).await.problem("missing_parameter");
        server.patch(format!("{WORKFLOWS}?id=wf_x")).cookie(&acme.admin).json(&json!({"name": "x"})).await.problem("not_found");
    }

    async fn a_change_is_made_to_the_version_that_was_seen(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &named("Work")).await.ok(201);
        let patch = |tag: &'static str, body: Value| server.patch(one(&made)).cookie(&acme.admin).header("if-match", tag).json(&body);
        patch("\"2\"", json!({"name": "Other"})).await.problem("version_mismatch");
        patch("\"2\"", json!({"enabled": false})).await.problem("version_mismatch");
        server.delete(one(&made)).cookie(&acme.admin).header("if-match", "\"2\"").await.problem("version_mismatch");
        assert_eq!(patch("\"1\"", json!({"name": "Other"})).await.ok(200)["version"], 2);
        server.delete(one(&made)).cookie(&acme.admin).header("if-match", "\"2\"").await.is(204);
    }

    async fn a_repeated_patch_is_done_once(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &named("Work")).await.ok(201);
        let other = create(&server, &acme, &named("Work")).await.ok(201);
        let patch = async |of: &Value| {
            server.patch(one(of)).cookie(&acme.admin).idempotency_key("k").json(&json!({"name": "Once"})).await
        };
        let first = patch(&made).await.ok(200);
        change(&server, &acme, &made, &json!({"name": "Later"})).await.is(200);
        assert_eq!(patch(&made).await.ok(200), first);
        assert_eq!(read(&server, &acme, &made).await["name"], "Later");
        patch(&other).await.problem("idempotency_key_reused");
        server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        assert_eq!(patch(&made).await.ok(200), first, "also when it is gone");
    }

    async fn events_count_from_when_it_was_enabled_and_changes_lose_none(server: Server) {
        let acme = server.tenant("acme").await;
        let on = |types: &[&str]| json!({"event": {"types": types}});
        assert_eq!(position(&server, &acme).await, None);
        let before = sequence(&server, &acme).await;
        let made = create(&server, &acme, &named_with("on", on(&["ticket.created", "api_key.*"]))).await.ok(201);
        let first = triggers(&server, &acme).await;
        assert_eq!(first.iter().map(|(pattern, _)| pattern.as_str()).collect::<Vec<_>>(), ["api_key.*", "ticket.created"]);
        assert!(first.iter().all(|(_, after)| *after >= before), "{first:?}");
        let followed = position(&server, &acme).await;
        assert_eq!(followed, Some(first[0].1), "from where there was somebody to start");
        // What it waits for already it goes on to wait for.
        change(&server, &acme, &made, &json!({"name": "Other", "on": on(&["ticket.created", "ticket.updated"])})).await.is(200);
        let second = triggers(&server, &acme).await;
        assert_eq!((&second[0], second[1].0.as_str()), (&first[1], "ticket.updated"));
        assert!(second[1].1 > first[1].1, "{second:?}");
        assert_eq!(position(&server, &acme).await, followed, "what nobody has looked at is still to be looked at");
        change(&server, &acme, &made, &json!({"enabled": false})).await.is(200);
        assert_eq!(triggers(&server, &acme).await, []);
        change(&server, &acme, &made, &json!({"enabled": true})).await.is(200);
        let third = triggers(&server, &acme).await;
        assert!(third.iter().all(|(_, after)| *after > second[1].1), "{third:?}");
        assert_eq!(position(&server, &acme).await, Some(third[0].1), "nobody waited for what was between");
        server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        assert_eq!(triggers(&server, &acme).await, []);
        let lane = "SELECT due_at FROM lanes WHERE tenant_id = $1 AND kind = 'workflow' AND key = 'all'";
        assert_eq!(number(&server, &acme, lane).await, Some(server.now().as_millis()), "somebody is to look");
    }
}
