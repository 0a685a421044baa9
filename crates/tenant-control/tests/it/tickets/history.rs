//! The history of a ticket: who changed what, from what, to what, and when.

use kernel::base::MINUTE_MS;

use super::*;

fn history(ticket: &Value) -> &[Value] {
    ticket["history"].as_array().expect("a history")
}

over_http! {
    async fn a_history_starts_with_the_creation(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Robot", "scopes": ["tickets:*"]})).await;
        let robot = json!({"type": "api_key", "id": key.id, "name": "Robot"});
        let by_key = server.post(TICKETS).key(&key.plain).json(&json!({"subject": "A"})).await.ok(201);
        let by_user = make(&server, &acme, &json!({})).await;
        for (ticket, actor) in [(by_key, robot), (by_user, who(&server, &acme.admin).await)] {
            server.advance(MINUTE_MS);
            changed(&server, &acme, &ticket, &json!({"status": "open"})).await;
            let shown = read(&server, &acme, &ticket).await;
            assert_eq!(history(&shown).len(), 2, "{shown}");
            let first = &history(&shown)[0];
            assert_eq!((&first["at"], &first["actor"]), (&ticket["created_at"], &actor));
            assert_eq!(first["changes"]["status"], json!({"from": null, "to": "new"}));
            let mut fields: Vec<&String> = first.as_object().unwrap().keys().collect();
            fields.sort_unstable();
            assert_eq!(fields, ["actor", "at", "changes"]);
        }
    }

    async fn each_change_is_told_with_who_what_from_and_to(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Robot", "scopes": ["tickets:*"]})).await;
        let robot = json!({"type": "api_key", "id": key.id, "name": "Robot"});
        let (assignee, technician) = person(&server, &acme, Role::Technician).await;
        let elsewhere = organization(&server, &acme, "initech").await;
        let mut ticket = make(&server, &acme, &json!({"custom_fields": {"a": 1, "b": {"c": 2}}, "tags": ["x"]})).await;
        let mut expected = Vec::new();
        let bodies = [
            json!({"subject": "Printer out of ink"}),
            json!({"description": "A\nB"}),
            json!({"type": "task", "priority": "critical", "team": "A"}),
            json!({"status": "in_progress", "assignee_id": assignee}),
            json!({"organization_id": elsewhere, "requester": {"name": "Sam"}}),
            json!({"requester": {"email": "sam@acme.test"}, "category": "C"}),
            json!({"tags": ["y", "x"], "custom_fields": {"a": null, "b": {"d": [1]}}}),
            json!({"external_id": "X1", "due_at": "2026-02-01T12:00:00Z", "team": "A"}),
            json!({"external_id": null, "due_at": null, "description": null, "organization_id": null}),
            json!({"status": "resolved"}),
            json!({"status": "closed"}),
            json!({"status": "open", "subject": "Printer on fire"}),
            json!({"status": "cancelled", "comment": {"body": "Gone.", "public": false}}),
        ];
        for (turn, body) in bodies.iter().enumerate() {
            server.advance(MINUTE_MS);
            let by_key = turn % 2 == 0;
            let call = server.patch(one(&ticket)).json(body);
            let answer = if by_key { call.key(&key.plain).await } else { call.cookie(&technician).await };
            let now = answer.ok(200);
            let actor = if by_key { robot.clone() } else { who(&server, &technician).await };
            let changes = difference(&ticket, &now);
            assert!(!changes.as_object().unwrap().is_empty(), "{body}");
            expected.push(json!({"at": server.now().to_string(), "actor": actor, "changes": changes}));
            ticket = now;
        }
        let shown = read(&server, &acme, &ticket).await;
        assert_eq!(history(&shown)[1..], expected, "oldest first, each field before and after");
        let resolved = &history(&shown)[10]["changes"];
        assert_eq!(resolved["status"], json!({"from": "in_progress", "to": "resolved"}));
        assert_eq!(resolved["resolved_at"]["from"], Value::Null);
    }

    async fn nothing_is_told_of_what_did_not_happen(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({"external_id": "X1"})).await;
        make(&server, &acme, &json!({"external_id": "X2"})).await;
        let before = read(&server, &acme, &ticket).await;
        patch(&server, &acme, &ticket, &json!({})).await.is(200);
        patch(&server, &acme, &ticket, &json!({"status": "new"})).await.is(200);
        patch(&server, &acme, &ticket, &json!({"subject": ""})).await.is(422);
        patch(&server, &acme, &ticket, &json!({"team": "A", "external_id": "X2"})).await.problem("conflict");
        patch(&server, &acme, &ticket, &json!({"team": "A", "status": "closed"})).await.problem("invalid_transition");
        assert_eq!(history(&read(&server, &acme, &ticket).await), history(&before));
    }

    async fn a_comment_is_no_change_of_a_field_but_for_the_first_response(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        for public in [false, false] {
            changed(&server, &acme, &ticket, &json!({"comment": {"body": "A", "public": public}})).await;
        }
        assert_eq!(history(&read(&server, &acme, &ticket).await).len(), 1);
        server.advance(MINUTE_MS);
        for _ in 0..2 {
            changed(&server, &acme, &ticket, &json!({"comment": {"body": "B"}})).await;
        }
        let shown = read(&server, &acme, &ticket).await;
        for entry in &history(&shown)[1..] {
            let fields: Vec<&String> = entry["changes"].as_object().unwrap().keys().collect();
            assert_eq!(fields, ["first_responded_at"], "{shown}");
        }
        assert!(history(&shown).len() <= 2, "{shown}");
    }

    async fn a_history_belongs_to_its_ticket_and_tenant(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let tickets = [
            (&acme, make(&server, &acme, &json!({})).await),
            (&acme, make(&server, &acme, &json!({})).await),
            (&globex, make(&server, &globex, &json!({})).await),
        ];
        for (tenancy, ticket) in &tickets {
            changed(&server, tenancy, ticket, &json!({"team": ticket["id"]})).await;
        }
        for (tenancy, ticket) in &tickets {
            let shown = read(&server, tenancy, ticket).await;
            assert_eq!(history(&shown).len(), 2);
            assert_eq!(history(&shown)[1]["changes"], json!({"team": {"from": null, "to": ticket["id"]}}));
            assert_eq!(history(&shown)[1]["actor"], who(&server, &tenancy.admin).await);
        }
    }

    async fn the_trail_tells_of_changes_and_comments(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        for body in [
            json!({"status": "open", "team": "A"}),
            json!({"comment": {"body": "Alone.", "public": false}}),
            json!({"priority": "low", "comment": {"body": "Both.", "public": false}}),
            json!({}),
        ] {
            server.advance(MINUTE_MS);
            changed(&server, &acme, &ticket, &body).await;
        }
        let entries = trail(&server, &acme, &ticket).await;
        let mut actions: Vec<&str> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
        // Both of one request have one moment, and their order says nothing.
        actions[3..].sort_unstable();
        assert_eq!(actions, ["ticket.create", "ticket.update", "ticket.comment", "ticket.comment", "ticket.update"]);
        let me = who(&server, &acme.admin).await;
        for entry in &entries {
            assert_eq!(entry["target"], json!({"type": "ticket", "id": ticket["id"]}));
            assert_eq!(entry["actor"], me);
            assert!(!entry.to_string().contains("Alone."), "what was said stands in the ticket: {entry}");
        }
        let changes = json!({"status": {"from": "new", "to": "open"}, "team": {"from": null, "to": "A"}});
        assert_eq!(entries[1]["changes"], changes);
    }
}
