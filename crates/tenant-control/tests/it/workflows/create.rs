//! POST with `create`: what a definition may say, and that what is wrong with it is told at once and where it stands.

use kernel::base::MINUTE_MS;
use serde_json::Map;

use super::*;
use crate::support::over_http;
use crate::support::people::SESSION;
use crate::tickets::generous;

/// All that can be given.
fn whole() -> Value {
    json!({
        "action": "create", "name": "Escalate", "enabled": false,
        "on": {"event": {"types": ["ticket.created", "custom.deploy.finished", "workflow.*"], "if": "event.data.priority == 'critical'"}},
        "input_schema": {"type": "object", "properties": {"minutes": {"type": "integer"}}},
        "steps": [
            {"id": "ask", "uses": "approval", "with": {"message": "Call ${{ event.data.subject }}?"}, "timeout_seconds": 3600},
            {"id": "note", "uses": "ticket.comment", "needs": ["ask"], "if": "steps.ask.output.approved",
                "with": {"ticket_id": "${{ event.data.id }}", "body": "Approved by ${{ steps.ask.output.by.name }}.", "public": false},
                "retry": {"max": 3, "backoff_seconds": 30, "on_status": [404]}, "on_error": "continue"},
            {"id": "tell", "uses": "event.emit", "needs": ["ask", "note"], "with": {"name": "escalated", "data": {"at": "${{ now }}"}}}
        ]
    })
}

over_http! {
    async fn a_definition_is_kept_as_it_was_given(server: Server) {
        let acme = server.tenant("acme").await;
        let answer = create(&server, &acme, &whole()).await;
        let made = answer.ok(201);
        assert!(id_of(&made).starts_with("wf_") && id_of(&made).len() == 29, "{made}");
        assert_eq!((answer.header("location"), answer.header("etag")), (one(&made).as_str(), "\"1\""));
        let me = server.get(SESSION).cookie(&acme.admin).await.ok(200)["actor"].clone();
        let me = json!({"type": me["type"], "id": me["id"], "name": me["name"]});
        let now = json!(server.now().to_string());
        let given = whole();
        for (field, value) in [
            ("name", &given["name"]),
            ("enabled", &json!(false)),
            ("on", &given["on"]),
            ("input_schema", &given["input_schema"]),
            ("revision", &json!(1)),
            ("version", &json!(1)),
            ("next_run_at", &Value::Null),
            ("saved_by", &me),
            ("created_by", &me),
            ("created_at", &now),
            ("updated_at", &now),
        ] {
            assert_eq!(&made[field], value, "{field}");
        }
        // What was left out has its default, and what was given stays as it is.
        let defaults = json!({"with": {}, "if": null, "needs": [], "timeout_seconds": null,
            "retry": {"max": 0, "backoff_seconds": 10, "on_status": []}, "on_error": "fail", "on_skipped": "skip"});
        for (step, given) in made["steps"].as_array().unwrap().iter().zip(given["steps"].as_array().unwrap()) {
            let mut expected = defaults.as_object().unwrap().clone();
            expected.extend(given.as_object().unwrap().clone());
            assert_eq!(step, &Value::Object(expected));
        }
        assert_eq!(read(&server, &acme, &made).await, made);
        let list = server.get(WORKFLOWS).cookie(&acme.admin).await.ok(200);
        assert_eq!(list["data"], json!([made]));
        let trail = trail(&server, &acme, &made).await;
        assert_eq!((trail.len(), &trail[0]["action"]), (1, &json!("workflow.create")));
    }

    async fn each_bad_field_is_named_at_once(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({
            "action": "create", "name": " ", "enabled": 1, "on": {"event": {"types": ["ticket.nonsense"]}, "manual": {}}, "surplus": 1,
            "steps": [{"id": "A", "uses": 1, "with": [], "retry": {"max": 11, "backoff_seconds": 0}, "timeout_seconds": 0, "on_error": "stop",
                "needs": "b", "when": "true"}, 7]
        });
        let mut pointers = create(&server, &acme, &body).await.pointers();
        pointers.sort_unstable();
        let expected = ["/enabled", "/name", "/on", "/steps/0/id", "/steps/0/needs", "/steps/0/on_error", "/steps/0/retry/backoff_seconds",
            "/steps/0/retry/max", "/steps/0/timeout_seconds", "/steps/0/uses", "/steps/0/when", "/steps/0/with", "/steps/1", "/surplus"];
        assert_eq!(pointers, expected);
        // And once all is in shape, what it means.
        let body = json!({
            "action": "create", "name": "Bad", "on": {"event": {"types": ["*"], "if": "input.x == 1"}},
            "input_schema": {"properties": {"a": {"$ref": "#/$defs/a"}}},
            "steps": [
                {"id": "a", "uses": "device.delete", "needs": ["b", "c", "b"]},
                {"id": "b", "uses": "wait", "with": {"seconds": -1}, "if": "1 +", "needs": ["a"]},
                {"id": "b", "uses": "wait", "with": {"seconds": "${{ steps.a.output.x }}"}},
                {"id": "d", "uses": "ticket.create", "with": {"subject": "${{ steps.e.output }} ${{ nonsense(1) }}", "colour": "${{ input.c }}"}},
                {"id": "e", "uses": "approval", "with": {"message": "${{ other.x }}"}, "if": "steps.nobody.output == 1"},
            ]
        });
        let mut found = faults(&create(&server, &acme, &body).await);
        found.sort_unstable();
        let expected = [
            ("/input_schema/properties/a/$ref", "unsupported"),
            ("/on/event/if", "bad_expression"),
            ("/steps/0/needs", "cycle"),
            ("/steps/0/needs/1", "unknown_step"),
            ("/steps/0/needs/2", "duplicate_step"),
            ("/steps/0/uses", "unknown_action"),
            ("/steps/1/if", "bad_expression"),
            ("/steps/1/needs", "cycle"),
            ("/steps/1/with/seconds", "out_of_range"),
            ("/steps/2/id", "duplicate_step"),
            ("/steps/2/with/seconds", "missing_need"),
            ("/steps/3/with/subject", "bad_expression"),
            ("/steps/4/if", "unknown_step"),
            ("/steps/4/with/message", "bad_expression"),
        ];
        assert_eq!(found, expected.map(|(pointer, code)| (pointer.to_owned(), code.to_owned())));
        assert_eq!(server.get(WORKFLOWS).cookie(&acme.admin).await.ok(200)["data"], json!([]), "nothing of it is there");
    }

    async fn a_fault_of_an_expression_says_where(server: Server) {
        let acme = server.tenant("acme").await;
        let answer = create(&server, &acme, &named_with("on", json!({"event": {"types": ["*"], "if": "event.type ==\n  )"}}))).await;
        let problem = answer.problem("invalid_fields");
        let detail = problem["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.to_lowercase().contains("line 2, column 3"), "{detail}");
    }

    async fn steps_that_wait_for_each_other_are_refused_however_many(server: Server) {
        let acme = server.tenant("acme").await;
        for length in [1, 2, 50] {
            let step = |at: usize| json!({"id": format!("s{at}"), "uses": "wait", "with": {"seconds": 1},
                "needs": [format!("s{}", (at + 1) % length)]});
            let answer = create(&server, &acme, &manual((0..length).map(step).collect())).await;
            let expected: Vec<_> = (0..length).map(|at| (format!("/steps/{at}/needs"), "cycle".to_owned())).collect();
            assert_eq!(faults(&answer), expected);
        }
        // What only leads to a circle, or away from it, is not in it.
        let steps = json!([
            {"id": "before", "uses": "wait", "with": {"seconds": 1}},
            {"id": "a", "uses": "wait", "with": {"seconds": 1}, "needs": ["before", "b"]},
            {"id": "b", "uses": "wait", "with": {"seconds": 1}, "needs": ["a"]},
            {"id": "after", "uses": "wait", "with": {"seconds": 1}, "needs": ["b"]},
        ]);
        assert_eq!(create(&server, &acme, &manual(steps)).await.pointers(), ["/steps/1/needs", "/steps/2/needs"]);
        let chain = |at: usize| {
            let needs: Vec<String> = (0..at).map(|before| format!("s{before}")).collect();
            json!({"id": format!("s{at}"), "uses": "wait", "with": {"seconds": 1}, "needs": needs})
        };
        create(&server, &acme, &manual((0..50).map(chain).collect())).await.is(201);
        assert_eq!(create(&server, &acme, &manual((0..51).map(chain).collect())).await.pointers(), ["/steps"]);
        assert_eq!(create(&server, &acme, &manual(json!([]))).await.pointers(), ["/steps"]);
    }

    async fn there_are_items_only_where_a_step_has_them(server: Server) {
        let acme = server.tenant("acme").await;
        let steps = json!([{"id": "a", "uses": "ticket.create", "if": "index == 0", "with": {"subject": "${{ item }}"}}]);
        let answer = create(&server, &acme, &manual(steps)).await;
        let found = [("/steps/0/if", "bad_expression"), ("/steps/0/with/subject", "bad_expression")];
        assert_eq!(faults(&answer), found.map(|(pointer, code)| (pointer.to_owned(), code.to_owned())));
    }

    async fn a_workflow_starts_on_one_thing(server: Server) {
        let acme = server.tenant("acme").await;
        let on = async |on: Value| create(&server, &acme, &named_with("on", on)).await;
        for bad in [json!({}), json!({"manual": {}, "schedule": {"cron": "* * * * *"}}), json!("manual"), Value::Null] {
            assert_eq!(on(bad.clone()).await.pointers(), ["/on"], "{bad}");
        }
        for (bad, pointer, code) in [
            (json!({"manual": {"x": 1}}), "/on/manual/x", "unknown_field"),
            (json!({"event": {"types": []}}), "/on/event/types", "required"),
            (json!({"event": {"types": ["ticket.nonsense"]}}), "/on/event/types/0", "unknown_event"),
            (json!({"event": {"types": ["custom.Upper"]}}), "/on/event/types/0", "unknown_event"),
            (json!({"event": {"types": ["webhook.test"]}}), "/on/event/types", "unknown_event"),
            (json!({"event": {"types": ["*"], "if": "steps.pause.output == 1"}}), "/on/event/if", "bad_expression"),
            (json!({"event": {"types": ["*"], "if": 1}}), "/on/event/if", "wrong_type"),
            (json!({"schedule": {"cron": "0 0 30 2 *"}}), "/on/schedule/cron", "never_fires"),
            (json!({"schedule": {"timezone": "UTC"}}), "/on/schedule/cron", "required"),
        ] {
            assert_eq!(faults(&on(bad).await), [(pointer.to_owned(), code.to_owned())]);
        }
        for (bad, pointer) in [
            (json!({"schedule": {"cron": "61 * * * *"}}), "/on/schedule/cron"),
            (json!({"schedule": {"cron": "* * * * * *"}}), "/on/schedule/cron"),
            (json!({"schedule": {"cron": "@reboot"}}), "/on/schedule/cron"),
            (json!({"schedule": {"cron": "* * * * *", "timezone": "Mars/Olympus"}}), "/on/schedule/timezone"),
        ] {
            assert_eq!(on(bad).await.pointers(), [pointer]);
        }
        let both = on(json!({"schedule": {"cron": "61 * * * *", "timezone": "localtime"}})).await;
        assert_eq!(both.pointers(), ["/on/schedule/cron", "/on/schedule/timezone"], "all that is wrong at once");
        let made = on(json!({"event": {"types": ["ticket.*", "custom.x", "custom.*", "ticket.*"]}})).await.ok(201);
        assert_eq!(made["on"], json!({"event": {"types": ["ticket.*", "custom.x", "custom.*"], "if": null}}), "each once");
    }

    async fn a_schedule_shows_when_it_fires_next_while_it_is_enabled(server: Server) {
        let acme = server.tenant("acme").await;
        let body = named_with("on", json!({"schedule": {"cron": "*/5 * * * *"}}));
        let made = create(&server, &acme, &body).await.ok(201);
        assert_eq!(made["on"]["schedule"]["timezone"], "UTC");
        let five = 5 * MINUTE_MS;
        let next = |now: i64| json!(kernel::base::Timestamp::from_millis(now - now % five + five).to_string());
        assert_eq!(made["next_run_at"], next(server.now().as_millis()));
        let off = change(&server, &acme, &made, &json!({"enabled": false})).await.ok(200);
        assert_eq!((&off["next_run_at"], &off["revision"]), (&Value::Null, &json!(1)));
        server.advance(7 * five);
        let on = change(&server, &acme, &made, &json!({"enabled": true})).await.ok(200);
        assert_eq!(on["next_run_at"], next(server.now().as_millis()), "from now on");
        // A moment that has come is not passed over by a change of something else.
        server.advance(five);
        let renamed = change(&server, &acme, &made, &json!({"name": "Other"})).await.ok(200);
        assert_eq!(renamed["next_run_at"], on["next_run_at"]);
        let other = json!({"on": {"schedule": {"timezone": "Asia/Tokyo"}}});
        let other = change(&server, &acme, &made, &other).await.ok(200);
        assert_eq!(other["next_run_at"], next(server.now().as_millis()));
        assert_eq!(other["on"], json!({"schedule": {"cron": "*/5 * * * *", "timezone": "Asia/Tokyo"}}), "merged");
        let by_hand = change(&server, &acme, &made, &json!({"on": {"manual": {}}})).await.ok(200);
        assert_eq!((&by_hand["on"], &by_hand["next_run_at"]), (&json!({"manual": {}}), &Value::Null));
    }

    async fn what_the_ticket_route_refuses_is_refused_with_its_pointer(server: Server) {
        let acme = server.tenant("acme").await;
        let with = async |uses: &str, with: Value| {
            faults(&create(&server, &acme, &manual(json!([{"id": "a", "uses": uses, "with": with}]))).await)
        };
        let at = |field: &str, code: &str| (format!("/steps/0/with{field}"), code.to_owned());
        assert_eq!(with("ticket.create", json!({})).await, [at("/subject", "required")]);
        let bad = json!({"subject": " ", "priority": "urgent", "requester": {"email": "nobody"}, "tags": ["a,b"], "status": "open"});
        let mut found = with("ticket.create", bad).await;
        found.sort_unstable();
        let expected = [at("/priority", "invalid_value"), at("/requester/email", "invalid_email"), at("/status", "invalid_value"),
            at("/subject", "invalid_text"), at("/tags/0", "invalid_text")];
        assert_eq!(found, expected);
        // Records that it names must be there; what an expression names is looked up when the step acts.
        let unknown = json!({"subject": "x", "organization_id": "org_01jd8z6v2mfkpb7h3q9xw5t4ra", "assignee_id": "${{ input.who }}"});
        assert_eq!(with("ticket.create", unknown).await, [at("/organization_id", "unknown_reference")]);
        assert_eq!(with("ticket.update", json!({"comment": {"body": "x"}})).await,
            [at("/ticket_id", "required"), at("/comment", "unknown_field")]);
        assert_eq!(with("ticket.comment", json!({"ticket_id": "tkt_x", "body": ""})).await, [at("/body", "invalid_text")]);
        assert_eq!(with("event.emit", json!({"name": "Upper", "data": []})).await, [at("/name", "invalid_name"), at("/data", "wrong_type")]);
        assert_eq!(with("approval", json!({})).await, [at("/message", "required")]);
        assert_eq!(with("wait", json!({})).await, [at("/seconds", "required")]);
        assert_eq!(with("wait", json!({"seconds": 1, "until": "2026-12-01T00:00:00Z"})).await, [at("/until", "not_alone")]);
        assert_eq!(with("http.request", json!({"method": "BREW", "url": "ftp://x", "expect_status": [99]})).await,
            [at("/method", "invalid_value"), at("/url", "invalid_url"), at("/expect_status/0", "out_of_range")]);
    }

    async fn a_template_may_stand_where_a_constant_would_be_wrong(server: Server) {
        let acme = server.tenant("acme").await;
        let steps = json!([
            {"id": "a", "uses": "ticket.create", "with": {"subject": "${{ input.s }}", "priority": "${{ input.p }}", "tags": "${{ input.tags }}",
                "requester": {"email": "${{ input.mail }}"}, "due_at": "${{ now + duration('1h') }}", "organization_id": "${{ input.org }}",
                "custom_fields": "${{ input.fields }}"}},
            {"id": "b", "uses": "wait", "with": {"until": "${{ input.until }}"}},
            {"id": "c", "uses": "http.request", "with": {"method": "${{ input.method }}", "url": "${{ input.url }}", "expect_status": ["${{ input.status }}"]}},
            {"id": "d", "uses": "event.emit", "with": {"name": "${{ input.name }}", "data": "${{ input }}"}},
        ]);
        create(&server, &acme, &manual(steps)).await.is(201);
        // Its name does not depend on it.
        let steps = json!([{"id": "a", "uses": "ticket.create", "with": {"subject": "x", "colour": "${{ input.c }}"}}]);
        assert_eq!(faults(&create(&server, &acme, &manual(steps)).await), [("/steps/0/with/colour".to_owned(), "unknown_field".to_owned())]);
    }

    async fn an_action_of_a_module_that_is_not_there_is_unknown_and_not_in_the_document(server: Server) {
        let acme = server.tenant("acme").await;
        let step = &server.contract.document["components"]["schemas"]["WorkflowStepInput"]["properties"];
        let known: Vec<&str> = step["uses"]["enum"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let there = ["ticket.create", "ticket.update", "ticket.comment", "device.tag", "search.query", "event.emit", "http.request", "wait", "approval",
            "provider.verify", "vm.provision", "backup.set_config", "backup.check"];
        assert_eq!(known, there);
        for uses in ["device.delete", "provider.delete", "vm.delete", "backup.delete", "search.delete", "", "ticket"] {
            let answer = create(&server, &acme, &manual(json!([{"id": "a", "uses": uses}]))).await;
            let problem = answer.problem("invalid_fields");
            let error = &problem["errors"][0];
            assert_eq!((&error["pointer"], &error["code"]), (&json!("/steps/0/uses"), &json!("unknown_action")), "{uses}");
            assert!(there.iter().all(|name| error["detail"].as_str().unwrap().contains(name)), "{error}");
        }
    }

    async fn what_the_document_gives_as_an_example_of_an_action_is_accepted(server: Server) {
        let acme = server.tenant("acme").await;
        for action in &tenant_control::features::install().actions {
            let step = json!({"id": "a", "uses": action.name, "with": (action.example)()});
            create(&server, &acme, &manual(json!([step]))).await.is(201);
        }
        let example = &server.contract.document["components"]["schemas"]["WorkflowInput"]["examples"][0];
        create(&server, &acme, example).await.is(201);
    }

    async fn ids_of_steps_are_names_of_the_language(server: Server) {
        let acme = server.tenant("acme").await;
        let longest = "x".repeat(63);
        for id in ["a", "_", "a_1", "steps", "if", &longest] {
            create(&server, &acme, &manual(json!([{"id": id, "uses": "wait", "with": {"seconds": 1}}]))).await.is(201);
        }
        let too_long = "x".repeat(64);
        for id in ["", "A", "1a", "a-b", "a b", "ä", "in", "true", "false", "null", &too_long] {
            let answer = create(&server, &acme, &manual(json!([{"id": id, "uses": "wait", "with": {"seconds": 1}}]))).await;
            assert_eq!(answer.pointers(), ["/steps/0/id"], "{id}");
        }
    }

    async fn a_definition_is_bounded_in_size_and_in_expressions(server: Server) {
        let acme = server.tenant("acme").await;
        let comment = |body: String| json!([{"id": "a", "uses": "event.emit", "with": {"name": "x", "data": {"text": body}}}]);
        create(&server, &acme, &manual(comment("x".repeat(60 << 10)))).await.is(201);
        assert_eq!(create(&server, &acme, &manual(comment("x".repeat(130 << 10)))).await.pointers(), ["/steps"]);
        let step = |at: usize| {
            let data: Map<String, Value> = (0..51).map(|n| (format!("k{n}"), json!("${{ 1 }}"))).collect();
            json!({"id": format!("s{at}"), "uses": "event.emit", "with": {"name": "x", "data": data}})
        };
        create(&server, &acme, &manual((0..9).map(step).collect())).await.is(201);
        assert_eq!(create(&server, &acme, &manual((0..10).map(step).collect())).await.pointers(), ["/steps"]);
    }

    async fn the_limit_of_workflows(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let mut made = Value::Null;
        for _ in 0..200 {
            made = create(&server, &acme, &named("Work")).await.ok(201);
        }
        create(&server, &acme, &named("Work")).await.problem("limit_reached");
        server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        create(&server, &acme, &named("Work")).await.is(201);
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(format!("{WORKFLOWS}?limit=70{cursor}")).cookie(&acme.admin).await.ok(200);
            seen.extend(page["data"].as_array().unwrap().iter().map(|one| id_of(one).to_owned()));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen.len(), 200);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 200, "each once");
        assert!(!seen.contains(&id_of(&made).to_owned()));
    }

    async fn a_page_of_large_workflows_ends_before_its_limit(server: Server) {
        let acme = server.tenant("acme").await;
        let text = "x".repeat(60 << 10);
        let large = |id: &str| json!({"id": id, "uses": "event.emit", "with": {"name": "x", "data": {"text": text}}});
        let body = manual(json!([large("a"), large("b")]));
        for _ in 0..12 {
            create(&server, &acme, &body).await.is(201);
        }
        let first = server.get(WORKFLOWS).cookie(&acme.admin).await.ok(200);
        let shown = first["data"].as_array().unwrap().len();
        assert!((5..9).contains(&shown), "{shown}");
        let next = first["next_cursor"].as_str().unwrap();
        let rest = server.get(format!("{WORKFLOWS}?cursor={next}")).cookie(&acme.admin).await.ok(200);
        assert_eq!((rest["data"].as_array().unwrap().len() + shown, &rest["has_more"]), (12, &json!(false)));
    }

    async fn a_repeated_create_makes_one(server: Server) {
        let acme = server.tenant("acme").await;
        let post = async || server.post(WORKFLOWS).cookie(&acme.admin).idempotency_key("k").json(&named("Once")).await;
        let (first, second) = (post().await.ok(201), post().await);
        assert_eq!((second.ok(201), second.header("idempotency-replayed")), (first.clone(), "true"));
        server.delete(one(&first)).cookie(&acme.admin).await.is(204);
        server.get(one(&first)).cookie(&acme.admin).await.problem("not_found");
        server.delete(one(&first)).cookie(&acme.admin).await.problem("not_found");
        assert_eq!(post().await.ok(201), first, "the first answer, whatever holds by now");
        assert_eq!(actions(&server, &acme, &first).await, ["create", "delete"]);
    }
}
