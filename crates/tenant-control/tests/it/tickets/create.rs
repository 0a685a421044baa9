//! POST: what a new ticket looks like, how it is numbered, and what may be said of it.

use kernel::base::MINUTE_MS;
use tenant_control::features::users::{delete_user, list_users};

use super::*;

/// Every field of a ticket, with what it is when nothing but the subject is given.
fn bare(server: &Server) -> Value {
    let now = server.now().to_string();
    json!({
        "number": 1, "subject": "Printer on fire", "description": null, "type": "incident", "status": "new",
        "priority": "medium", "organization_id": null, "requester": null, "assignee_id": null, "team": null,
        "category": null, "tags": [], "custom_fields": {}, "device_ids": [], "external_id": null, "source": "ui",
        "due_at": null, "first_response_due_at": null, "first_responded_at": null, "resolution_due_at": null,
        "resolved_at": null, "closed_at": null, "sla_state": "none", "comment_count": 0, "version": 1,
        "created_at": now, "updated_at": now,
    })
}

over_http! {
    async fn a_subject_is_enough_and_every_field_is_shown(server: Server) {
        let acme = server.tenant("acme").await;
        let answer = post(&server, &acme, &json!({"subject": "Printer on fire"})).await;
        let made = answer.ok(201);
        assert!(id_of(&made).starts_with("tkt_") && id_of(&made).len() == 30, "{made}");
        assert_eq!(without(&made, &["id"]), bare(&server), "these fields and no other");
        assert_eq!(answer.header("location"), one(&made));
        assert_eq!(answer.header("etag"), "\"1\"");
        assert_eq!(answer.header("cache-control"), "no-store");
        let found = server.get(answer.header("location")).cookie(&acme.admin).await;
        assert_eq!(found.header("etag"), "\"1\"");
        assert_eq!(without(&found.ok(200), &["comments", "history"]), made);
        assert_eq!((&found.json()["comments"], found.json()["history"].as_array().unwrap().len()), (&json!([]), 1));
        let listed = server.get(TICKETS).cookie(&acme.admin).await.ok(200);
        assert_eq!(listed, json!({"data": [made], "has_more": false, "next_cursor": null}));
    }

    async fn every_field_that_can_be_given_is_kept(server: Server) {
        let acme = server.tenant("acme").await;
        let (assignee, _) = person(&server, &acme, Role::Technician).await;
        let body = json!({
            "subject": "Drucker in Flammen 🔥", "description": "Line one.\n\tLine two, <b>\"quoted\"</b> \\ ünïcödé",
            "type": "service_request", "status": "new", "priority": "critical",
            "organization_id": organization(&server, &acme, "globex").await,
            "requester": {"name": "Sam O'Neil", "email": "sam@globex.test"}, "assignee_id": assignee,
            "team": "Second line", "category": "Hardware / Printer", "tags": ["printer", "Größe L", "a'b\"c%_"],
            "custom_fields": {"": 1, "ключ": [1, -2.5, true, null, "\u{1F525}", {"deep": []}], "a/b~c": {"x": "y"}, "n": 9_007_199_254_740_991_i64},
            "device_ids": [], "external_id": "JIRA-1 ü", "due_at": "2026-02-01T12:00:00.250Z",
        });
        let key = server.key(&acme, &["tickets:*"]).await;
        let made = server.post(TICKETS).key(&key.plain).json(&body).await.ok(201);
        let expected = with(&with(&bare(&server), &body), &json!({"id": made["id"], "source": "api"}));
        assert_eq!(made, expected);
        assert_eq!(without(&read(&server, &acme, &made).await, &["comments", "history"]), expected);
        assert_eq!(list(&server, &acme, "").await, [expected]);
    }

    async fn null_is_the_same_as_left_out(server: Server) {
        let acme = server.tenant("acme").await;
        let nulls = json!({
            "subject": "Printer on fire", "description": null, "organization_id": null, "requester": null,
            "assignee_id": null, "team": null, "category": null, "external_id": null, "due_at": null,
        });
        let made = post(&server, &acme, &nulls).await.ok(201);
        assert_eq!(without(&made, &["id"]), bare(&server));
        let half = make(&server, &acme, &json!({"requester": {"name": "Sam"}})).await;
        assert_eq!(half["requester"], json!({"name": "Sam", "email": null}));
        let half = make(&server, &acme, &json!({"requester": {"email": "sam@acme.test", "name": null}})).await;
        assert_eq!(half["requester"], json!({"name": null, "email": "sam@acme.test"}));
    }

    async fn names_are_trimmed_and_have_1_to_200_characters(server: Server) {
        let acme = server.tenant("acme").await;
        let long = "ü".repeat(200);
        for field in ["subject", "team", "category", "external_id"] {
            for (text, kept) in [("  Ann \n", "Ann"), ("x", "x"), (&*long, &*long), ("a  b", "a  b")] {
                let made = make(&server, &acme, &json!({field: text})).await;
                assert_eq!(made[field], kept, "{field}");
                changed(&server, &acme, &made, &json!({"external_id": null})).await;
            }
        }
        let made = make(&server, &acme, &json!({"tags": [" printer\t"], "requester": {"name": " Sam "}})).await;
        assert_eq!((&made["tags"], &made["requester"]["name"]), (&json!(["printer"]), &json!("Sam")));
    }

    async fn what_just_fits_is_kept_whole(server: Server) {
        let acme = server.tenant("acme").await;
        let tags: Vec<String> = (0..50).map(|n| format!("tag {n}")).collect();
        let fields: Value = (0..50).map(|n| (format!("field {n}"), json!(n))).collect();
        // Sixteen KiB of JSON, with the eight characters around the text.
        let large = json!({"k": "x".repeat(16 * 1024 - 8)});
        let lists = json!({"in": [[[[1, 2]]]]});
        for (field, value) in [
            ("tags", json!(tags)),
            ("custom_fields", fields),
            ("custom_fields", nested(5)),
            ("custom_fields", lists),
            ("custom_fields", large),
            ("description", json!("x".repeat(64 * 1024))),
            ("description", json!("ü".repeat(32 * 1024))),
            ("description", json!("")),
            ("description", json!("\u{1}\"\\".repeat(20_000))),
            ("due_at", json!("1969-12-31T23:59:59.999Z")),
            ("due_at", json!("9999-12-30T21:59:59.999Z")),
            ("custom_fields", json!({"nul\u{0}": "a\u{0}b", "\u{1}": "\u{85}"})),
        ] {
            let made = make(&server, &acme, &json!({field: value})).await;
            assert_eq!(made[field], value, "{field}");
            assert_eq!(read(&server, &acme, &made).await[field], value, "{field}");
        }
    }

    async fn a_time_of_any_offset_is_shown_in_utc(server: Server) {
        let acme = server.tenant("acme").await;
        for (given, shown) in [
            ("2026-02-01T12:00:00Z", "2026-02-01T12:00:00.000Z"),
            ("2026-02-01T12:00:00.5+01:00", "2026-02-01T11:00:00.500Z"),
            ("2026-02-28T23:30:00-05:30", "2026-03-01T05:00:00.000Z"),
        ] {
            assert_eq!(make(&server, &acme, &json!({"due_at": given})).await["due_at"], shown, "{given}");
        }
    }

    async fn numbers_count_up_in_each_tenant_and_a_refusal_takes_none(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        for number in 1..=4 {
            let body = json!({"external_id": format!("X{number}")});
            assert_eq!(make(&server, &acme, &body).await["number"], number);
            post(&server, &acme, &json!({"subject": ""})).await.problem("invalid_fields");
            post(&server, &acme, &json!({"subject": "A", "assignee_id": NOBODY})).await.problem("invalid_fields");
            post(&server, &acme, &json!({"subject": "A", "external_id": "X1"})).await.problem("conflict");
            if number % 2 == 0 {
                assert_eq!(make(&server, &globex, &body).await["number"], number / 2);
            }
        }
        assert_eq!(numbers(&server, &acme, "").await, [4, 3, 2, 1]);
        assert_eq!(kinds(&server, &acme).await, ["ticket.created"; 4]);
    }

    async fn the_source_is_who_made_it(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["tickets:write"]).await;
        let (_, technician) = person(&server, &acme, Role::Technician).await;
        let body = json!({"subject": "A"});
        let made = server.post(TICKETS).key(&key.plain).json(&body).await.ok(201);
        assert_eq!(made["source"], "api");
        assert_eq!(server.post(TICKETS).header("x-api-key", &key.plain).json(&body).await.ok(201)["source"], "api");
        assert_eq!(server.post(TICKETS).cookie(&technician).json(&body).await.ok(201)["source"], "ui");
        let later = changed(&server, &acme, &made, &json!({"subject": "B"})).await;
        assert_eq!(later["source"], "api", "whoever changes it");
    }

    async fn an_external_id_is_unique_in_its_tenant(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let first = make(&server, &acme, &json!({"external_id": "X1"})).await;
        let body = json!({"subject": "Another", "external_id": "X1"});
        for text in ["X1", " X1 "] {
            post(&server, &acme, &with(&body, &json!({"external_id": text}))).await.problem("conflict");
        }
        make(&server, &globex, &body).await;
        make(&server, &acme, &json!({"external_id": "x1"})).await;
        make(&server, &acme, &json!({})).await;
        make(&server, &acme, &json!({})).await;
        changed(&server, &acme, &first, &json!({"external_id": null})).await;
        let second = make(&server, &acme, &body).await;
        patch(&server, &acme, &first, &json!({"external_id": "X1", "team": "A"})).await.problem("conflict");
        assert_eq!(read(&server, &acme, &first).await["team"], Value::Null, "a refused change has no effect");
        changed(&server, &acme, &second, &json!({"external_id": "X2"})).await;
        changed(&server, &acme, &first, &json!({"external_id": "X1"})).await;
        // To say again what is so is no conflict with itself.
        changed(&server, &acme, &first, &json!({"external_id": "X1", "team": "A"})).await;
        assert_eq!(numbers(&server, &acme, "external_id=X1").await, [1]);
    }

    async fn a_repeat_with_the_same_idempotency_key_makes_no_second_ticket(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"subject": "A", "external_id": "X1"});
        let call = || server.post(TICKETS).cookie(&acme.admin).idempotency_key("k");
        let first = call().json(&body).await;
        assert_eq!(first.is(201).header("idempotency-replayed"), "");
        changed(&server, &acme, &first.json(), &json!({"status": "open"})).await;
        server.advance(MINUTE_MS);
        let again = call().json(&body).await;
        assert_eq!(again.is(201).header("idempotency-replayed"), "true");
        assert_eq!(again.body, first.body, "byte for byte");
        for header in ["etag", "location"] {
            assert_eq!(again.header(header), first.header(header), "{header}");
        }
        call().json(&json!({"subject": "B"})).await.problem("idempotency_key_reused");
        assert_eq!(numbers(&server, &acme, "").await, [1]);
        assert_eq!(kinds(&server, &acme).await, ["ticket.created", "ticket.updated"]);
        // A refusal frees its key.
        let other = || server.post(TICKETS).cookie(&acme.admin).idempotency_key("other");
        other().json(&body).await.problem("conflict");
        other().json(&json!({"subject": ""})).await.problem("invalid_fields");
        assert_eq!(other().json(&json!({"subject": "B"})).await.ok(201)["number"], 2);
    }

    async fn a_new_ticket_is_audited(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Robot", "scopes": ["tickets:*"]})).await;
        let made = server.post(TICKETS).key(&key.plain).header("x-request-id", "r1").json(&json!({"subject": "A"})).await.ok(201);
        let entries = trail(&server, &acme, &made).await;
        assert_eq!(entries.len(), 1, "{entries:#?}");
        assert_eq!(entries[0]["action"], "ticket.create");
        assert_eq!(entries[0]["target"], json!({"type": "ticket", "id": made["id"]}));
        assert_eq!(entries[0]["actor"], json!({"type": "api_key", "id": key.id, "name": "Robot"}));
        assert_eq!((&entries[0]["request_id"], &entries[0]["at"]), (&json!("r1"), &made["created_at"]));
    }

    async fn the_last_moment_of_the_year_9999_is_a_time(server: Server) {
        let acme = server.tenant("acme").await;
        let last = "9999-12-31T23:59:59.999Z";
        for query in ["created_since", "updated_since"] {
            assert_eq!(numbers(&server, &acme, &format!("{query}={last}")).await, [0_i64; 0], "{query}");
        }
        assert_eq!(make(&server, &acme, &json!({"due_at": last})).await["due_at"], last);
    }

    async fn a_ticket_keeps_an_assignee_who_is_gone(server: Server) {
        let acme = server.tenant("acme").await;
        let (assignee, _) = person(&server, &acme, Role::Technician).await;
        let body = json!({"subject": "A", "assignee_id": assignee});
        let call = || server.post(TICKETS).cookie(&acme.admin).idempotency_key("k").json(&body);
        let ticket = call().await.ok(201);
        let users = list_users(&server.app.store, &acme.tenant).await.unwrap();
        let gone = users.iter().find(|user| user.id.to_string() == assignee).unwrap();
        delete_user(&server.app.store, &acme.tenant, gone).await.unwrap();
        let now = changed(&server, &acme, &ticket, &json!({"status": "open"})).await;
        assert_eq!(now["assignee_id"], json!(assignee));
        assert_eq!(numbers(&server, &acme, &format!("assignee_id={assignee}")).await, [1]);
        assert_eq!(post(&server, &acme, &body).await.pointers(), ["/assignee_id"]);
        let again = call().await;
        assert_eq!((again.ok(201), again.header("idempotency-replayed")), (ticket.clone(), "true"));
        assert_eq!(changed(&server, &acme, &ticket, &json!({"assignee_id": null})).await["assignee_id"], Value::Null);
    }
}
