//! What is told of tickets: the record itself, what changed, and what was said.

use kernel::base::MINUTE_MS;

use super::super::webhooks::{endpoint, open};
use super::*;
use crate::support::receiver::Receiver;

/// What `data` has besides the ticket.
fn beside(event: &Value, ticket: &Value) -> Value {
    let names: Vec<&str> = ticket.as_object().unwrap().keys().map(String::as_str).collect();
    without(&event["data"], &names)
}

over_http! {
    async fn a_new_ticket_is_told_as_it_is(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["tickets:*"]).await;
        let bare = make(&server, &acme, &json!({})).await;
        let body = json!({
            "subject": "Ü 🔥", "description": "A\nB", "tags": ["x"], "custom_fields": {"a": {"b": [1.5, null]}},
            "requester": {"name": "Sam"}, "external_id": "X1", "due_at": "2026-02-01T12:00:00Z", "priority": "critical",
        });
        let full = server.post(TICKETS).key(&key.plain).json(&body).await.ok(201);
        let told = events(&server, &acme).await;
        assert_eq!(told.len(), 2, "{told:#?}");
        for (event, ticket) in told.iter().zip([&bare, &full]) {
            assert_eq!((&event["type"], &event["data"]), (&json!("ticket.created"), ticket));
            assert_eq!(event["tenant_id"], json!(acme.tenant.id.to_string()));
            assert_eq!(event["timestamp"], ticket["created_at"]);
        }
    }

    async fn a_change_is_told_with_what_changed(server: Server) {
        let acme = server.tenant("acme").await;
        let mut ticket = make(&server, &acme, &json!({"tags": ["x"], "custom_fields": {"a": 1}})).await;
        let (assignee, _) = person(&server, &acme, Role::Technician).await;
        let bodies = [
            json!({"status": "open"}),
            json!({"subject": "Printer out of ink", "priority": "low", "type": "task"}),
            json!({"assignee_id": assignee, "team": "A", "category": null}),
            json!({"tags": ["y"], "custom_fields": {"b": 2}, "requester": {"name": "Sam"}}),
            json!({"status": "resolved", "due_at": "2026-02-01T12:00:00Z"}),
            json!({"status": "closed", "subject": "Printer out of ink"}),
            json!({"status": "open"}),
            json!({"assignee_id": null, "due_at": null}),
        ];
        let mut expected = Vec::new();
        for body in &bodies {
            server.advance(MINUTE_MS);
            let now = changed(&server, &acme, &ticket, body).await;
            expected.push(with(&now, &json!({"changes": difference(&ticket, &now)})));
            ticket = now;
        }
        let told = events(&server, &acme).await;
        assert_eq!(told.len(), 1 + bodies.len());
        for ((event, data), body) in told[1..].iter().zip(&expected).zip(&bodies) {
            assert_eq!((&event["type"], &event["data"]), (&json!("ticket.updated"), data), "{body}");
            for field in body.as_object().unwrap().keys().filter(|field| data["changes"].get(*field).is_some()) {
                assert_eq!(data["changes"][field]["to"], data[field], "{field}");
            }
        }
        assert_eq!(told[1]["data"]["changes"], json!({"status": {"from": "new", "to": "open"}}));
        let sequences: Vec<i64> = told.iter().map(|event| event["sequence"].as_i64().unwrap()).collect();
        assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "{sequences:?}");
    }

    async fn a_comment_alone_is_told_as_a_comment_only(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        for comment in [
            json!({"body": "Among us.", "public": false}),
            json!({"body": "Hello."}),
            json!({"body": "Hello again.", "public": true}),
        ] {
            server.advance(MINUTE_MS);
            let before = events(&server, &acme).await.len();
            // To say the status again does not make it a change.
            let now = changed(&server, &acme, &ticket, &json!({"comment": comment, "status": "new"})).await;
            let told = events(&server, &acme).await.split_off(before);
            assert_eq!(told.len(), 1, "{comment}: {told:#?}");
            assert_eq!(told[0]["type"], "ticket.commented", "{comment}");
            let said = read(&server, &acme, &ticket).await["comments"].as_array().unwrap().last().unwrap().clone();
            assert_eq!(told[0]["data"], with(&now, &json!({"comment": said})), "{comment}");
            assert_eq!(said["body"], comment["body"]);
            assert_eq!(beside(&told[0], &now), json!({"comment": said}));
        }
    }

    async fn a_change_with_a_comment_is_told_as_both(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        server.advance(MINUTE_MS);
        let body = json!({"status": "in_progress", "team": "A", "comment": {"body": "On my way.", "public": false}});
        let now = changed(&server, &acme, &ticket, &body).await;
        let said = read(&server, &acme, &ticket).await["comments"][0].clone();
        let mut told = events(&server, &acme).await.split_off(1);
        told.sort_by_key(|event| event["type"].to_string());
        assert_eq!(told.len(), 2, "{told:#?}");
        assert_eq!((&told[0]["type"], &told[0]["data"]), (&json!("ticket.commented"), &with(&now, &json!({"comment": said}))));
        assert_eq!(told[1]["type"], "ticket.updated");
        assert_eq!(told[1]["data"], with(&now, &json!({"changes": difference(&ticket, &now)})));
        assert_ne!(told[0]["id"], told[1]["id"]);
        // The first response is a change, too, and goes with the others.
        server.advance(MINUTE_MS);
        let both = changed(&server, &acme, &ticket, &json!({"status": "open", "comment": {"body": "Hello."}})).await;
        let told = events(&server, &acme).await.split_off(3);
        let updated = told.iter().find(|event| event["type"] == "ticket.updated").expect("an update");
        assert_eq!(updated["data"], with(&both, &json!({"changes": difference(&now, &both)})));
        assert_eq!(told.len(), 2, "{told:#?}");
    }

    async fn what_was_refused_or_changed_nothing_is_not_told(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let ticket = make(&server, &acme, &json!({"external_id": "X1", "tags": ["a"]})).await;
        post(&server, &acme, &json!({})).await.is(422);
        post(&server, &acme, &json!({"subject": "A", "external_id": "X1"})).await.is(409);
        post(&server, &acme, &json!({"subject": "A", "organization_id": NOWHERE})).await.is(422);
        patch(&server, &acme, &ticket, &json!({"comment": {"body": ""}, "team": "A"})).await.is(422);
        patch(&server, &acme, &ticket, &json!({"comment": {"body": "A"}, "status": "closed"})).await.is(409);
        server.patch(one(&ticket)).cookie(&acme.admin).header("if-match", "\"9\"").json(&json!({"team": "A"})).await.is(412);
        server.patch(one(&ticket)).cookie(&globex.admin).json(&json!({"team": "A"})).await.is(404);
        patch(&server, &acme, &ticket, &json!({"tags": ["a"], "external_id": "X1"})).await.is(200);
        assert_eq!(kinds(&server, &acme).await, ["ticket.created"]);
        assert_eq!(kinds(&server, &globex).await, [""; 0]);
    }

    async fn an_endpoint_gets_what_it_has_subscribed_to(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for (path, events) in [("/all", "ticket.*"), ("/updated", "ticket.updated"), ("/commented", "ticket.commented")] {
            endpoint(&server, &acme, &receiver.url(path), &[events]).await;
        }
        let ticket = make(&server, &acme, &json!({})).await;
        let open = changed(&server, &acme, &ticket, &json!({"status": "open"})).await;
        let commented = changed(&server, &acme, &ticket, &json!({"comment": {"body": "Hello."}})).await;
        server.sender.run_due().await.unwrap();
        let mut received: Vec<(String, i64, Value)> = receiver.received().iter().map(|request| {
            let body = request.json();
            (body["type"].as_str().unwrap().to_owned(), body["sequence"].as_i64().unwrap(), body["data"].clone())
        }).collect();
        received.sort_by_key(|(_, sequence, _)| *sequence);
        let kinds: Vec<&str> = received.iter().map(|(kind, _, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["ticket.created", "ticket.updated", "ticket.updated", "ticket.commented", "ticket.commented"]);
        assert_eq!(received[0].2, ticket);
        assert_eq!(received[1].2, with(&open, &json!({"changes": {"status": {"from": "new", "to": "open"}}})));
        assert_eq!(without(&received[3].2, &["comment"]), commented);
    }

    async fn a_very_long_change_is_accepted_and_told_within_the_bound(server: Server) {
        let acme = server.tenant("acme").await;
        let text = |letter: &str| letter.repeat(64 * 1024 / letter.len());
        let ticket = make(&server, &acme, &json!({"description": text("\"")})).await;
        for letter in ["\\", "\u{1}", "\u{2}", "ü"] {
            let body = json!({"description": text(letter), "comment": {"body": text("\u{3}")}});
            assert_eq!(changed(&server, &acme, &ticket, &body).await["description"], text(letter), "{letter:?}");
        }
        let told = events(&server, &acme).await;
        assert_eq!(told.len(), 9);
        for event in &told {
            assert!(event.to_string().len() <= 256 * 1024, "{} is {} bytes", event["type"], event.to_string().len());
            assert_eq!(event["data"]["id"], ticket["id"]);
        }
        let shown = read(&server, &acme, &ticket).await;
        assert_eq!((&shown["comment_count"], shown["comments"].as_array().unwrap().len()), (&json!(4), 4));
        assert_eq!(shown["history"].as_array().unwrap().len(), 5);
    }
}
