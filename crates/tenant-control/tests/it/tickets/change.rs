//! PATCH: a merge patch, what it keeps and clears, and in which order a request is refused.

use kernel::base::{MINUTE_MS, SECOND_MS};

use super::*;

/// A ticket with everything set.
async fn full(server: &Server, acme: &Tenancy) -> Value {
    let (assignee, _) = person(server, acme, Role::Technician).await;
    let body = json!({
        "description": "Third floor.", "type": "problem", "priority": "high",
        "organization_id": organization(server, acme, "initech").await,
        "requester": {"name": "Sam", "email": "sam@acme.test"}, "assignee_id": assignee, "team": "Second line",
        "category": "Hardware", "tags": ["printer", "fire"], "custom_fields": {"floor": 3, "of": {"a": 1, "b": [1, 2]}},
        "external_id": "X1", "due_at": "2026-02-01T12:00:00.000Z",
    });
    make(server, acme, &body).await
}

/// Without what every change moves.
fn still(ticket: &Value) -> Value {
    without(ticket, &["version", "updated_at", "comments", "history"])
}

over_http! {
    async fn what_is_left_out_stays_and_what_is_given_is_set(server: Server) {
        let acme = server.tenant("acme").await;
        let mut ticket = full(&server, &acme).await;
        let (other, _) = person(&server, &acme, Role::Viewer).await;
        let elsewhere = organization(&server, &acme, "hooli").await;
        for (field, value) in [
            ("subject", json!("Printer out of ink")),
            ("description", json!("Fourth floor.")),
            ("type", json!("change")),
            ("status", json!("open")),
            ("priority", json!("low")),
            ("organization_id", json!(elsewhere)),
            ("requester", json!({"name": "Kim", "email": "kim@acme.test"})),
            ("assignee_id", json!(other)),
            ("team", json!("First line")),
            ("category", json!("Software")),
            ("tags", json!(["fire", "ink"])),
            ("custom_fields", json!({"floor": 4, "of": {"a": 2, "b": [2]}})),
            ("external_id", json!("X2")),
            ("due_at", json!("2026-02-01T12:00:00.001Z")),
        ] {
            server.advance(SECOND_MS);
            let now = changed(&server, &acme, &ticket, &json!({field: value})).await;
            let expected = with(&ticket, &json!({
                field: value, "version": ticket["version"].as_i64().unwrap() + 1, "updated_at": server.now().to_string(),
            }));
            assert_eq!(now, expected, "{field}");
            assert_eq!(without(&read(&server, &acme, &now).await, &["comments", "history"]), now, "{field}");
            ticket = now;
        }
    }

    async fn null_clears(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = full(&server, &acme).await;
        let empty = json!({"tags": [], "custom_fields": {}, "device_ids": []});
        let fields = ["description", "organization_id", "requester", "assignee_id", "team", "category", "tags",
            "custom_fields", "device_ids", "external_id", "due_at"];
        let mut expected = still(&ticket);
        for field in fields {
            let now = changed(&server, &acme, &ticket, &json!({field: null})).await;
            expected[field] = empty.get(field).cloned().unwrap_or_default();
            assert_eq!(still(&now), expected, "{field}");
        }
        let version = read(&server, &acme, &ticket).await["version"].clone();
        let nulls: Value = fields.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
        assert_eq!(changed(&server, &acme, &ticket, &nulls).await["version"], version, "nothing is left to clear");
    }

    async fn custom_fields_and_requester_are_merged_and_lists_replaced(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({
            "custom_fields": {"a": 1, "b": {"c": {"d": 1, "e": 2}, "f": [1, {"g": 1}]}, "h": "x"},
            "requester": {"name": "Sam", "email": "sam@acme.test"}, "tags": ["one", "two"],
        })).await;
        // RFC 7396, step by step: what is sent, and what is there then.
        for (field, sent, kept) in [
            ("custom_fields", json!({}), json!({"a": 1, "b": {"c": {"d": 1, "e": 2}, "f": [1, {"g": 1}]}, "h": "x"})),
            ("custom_fields", json!({"a": null, "missing": null, "i": true}), json!({"b": {"c": {"d": 1, "e": 2}, "f": [1, {"g": 1}]}, "h": "x", "i": true})),
            ("custom_fields", json!({"b": {"c": {"d": null, "j": {"k": null}}}}), json!({"b": {"c": {"e": 2, "j": {}}, "f": [1, {"g": 1}]}, "h": "x", "i": true})),
            ("custom_fields", json!({"b": {"f": [{"g": null}]}, "h": {"l": 1}}), json!({"b": {"c": {"e": 2, "j": {}}, "f": [{"g": null}]}, "h": {"l": 1}, "i": true})),
            ("custom_fields", json!({"b": "flat", "h": null, "i": null}), json!({"b": "flat"})),
            ("requester", json!({}), json!({"name": "Sam", "email": "sam@acme.test"})),
            ("requester", json!({"name": "Kim"}), json!({"name": "Kim", "email": "sam@acme.test"})),
            ("requester", json!({"email": null}), json!({"name": "Kim", "email": null})),
            ("requester", json!({"email": "kim@acme.test", "name": null}), json!({"name": null, "email": "kim@acme.test"})),
            ("tags", json!(["three"]), json!(["three"])),
            ("tags", json!([]), json!([])),
        ] {
            let now = changed(&server, &acme, &ticket, &json!({field: sent})).await;
            assert_eq!(now[field], kept, "{sent}");
            assert_eq!(read(&server, &acme, &ticket).await[field], kept, "{sent}");
        }
    }

    async fn bounds_hold_for_what_comes_out_of_a_merge(server: Server) {
        let acme = server.tenant("acme").await;
        let fields: Value = (0..50).map(|n| (format!("f{n}"), json!(n))).collect();
        let wide = make(&server, &acme, &json!({"custom_fields": fields})).await;
        let deep = make(&server, &acme, &json!({"custom_fields": nested(5)})).await;
        let large = make(&server, &acme, &json!({"custom_fields": {"a": "x".repeat(10_000)}})).await;
        for (ticket, refused, accepted) in [
            (&wide, json!({"one more": 1}), json!({"one more": 1, "f0": null})),
            (&deep, json!({"in": {"in": {"in": {"in": {"in": {}}}}}}), json!({"in": {"in": {"in": {"in": {"x": 1}}}}})),
            (&large, json!({"b": "x".repeat(7_000)}), json!({"b": "x".repeat(7_000), "a": null})),
        ] {
            let answer = patch(&server, &acme, ticket, &json!({"custom_fields": refused, "team": "Taken along"})).await;
            assert_eq!(answer.pointers(), ["/custom_fields"]);
            assert_eq!(still(&read(&server, &acme, ticket).await), still(ticket), "a refused change has no effect");
            changed(&server, &acme, ticket, &json!({"custom_fields": accepted})).await;
        }
    }

    async fn a_change_that_changes_nothing_is_none(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = full(&server, &acme).await;
        let before = read(&server, &acme, &ticket).await;
        server.advance(MINUTE_MS);
        let read_only = ["id", "number", "source", "first_response_due_at", "first_responded_at", "resolution_due_at",
            "resolved_at", "closed_at", "sla_state", "comment_count", "version", "created_at", "updated_at"];
        for body in [
            json!({}),
            without(&ticket, &read_only),
            json!({"status": "new", "subject": "  Printer on fire "}),
            json!({"due_at": "2026-02-01T13:00:00+01:00"}),
            json!({"custom_fields": {"missing": null}, "requester": {}}),
            json!({"custom_fields": {"of": {"b": [1, 2]}}, "device_ids": null}),
        ] {
            assert_eq!(changed(&server, &acme, &ticket, &body).await, ticket, "{body}");
            patch_if(&server, &acme, &ticket, "\"2\"", &body).await.problem("version_mismatch");
        }
        assert_eq!(read(&server, &acme, &ticket).await, before);
        assert_eq!(kinds(&server, &acme).await, ["ticket.created"]);
        assert_eq!(trail(&server, &acme, &ticket).await.len(), 1);
        assert_eq!(numbers(&server, &acme, &format!("updated_since={}", server.now())).await, [0_i64; 0]);
    }

    async fn if_match_keeps_two_writers_apart(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        let body = |team: &str| json!({"team": team, "comment": {"body": team}});
        patch_if(&server, &acme, &ticket, "\"1\"", &body("A")).await.is(200);
        for tag in ["\"1\"", "W/\"2\"", "2", "\"3\"", ""] {
            patch_if(&server, &acme, &ticket, tag, &body("B")).await.problem("version_mismatch");
        }
        let now = read(&server, &acme, &ticket).await;
        assert_eq!((&now["team"], &now["comment_count"], &now["version"]), (&json!("A"), &json!(1), &json!(2)));
        patch_if(&server, &acme, &ticket, "\"1\", \"2\"", &body("B")).await.is(200);
        patch_if(&server, &acme, &ticket, "*", &body("C")).await.is(200);
        assert_eq!(read(&server, &acme, &ticket).await["version"], 4);
    }

    async fn fields_are_refused_before_a_missing_ticket_and_that_before_its_version_and_that_before_a_conflict(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, &json!({"external_id": "X1"})).await;
        let ticket = make(&server, &acme, &json!({})).await;
        let missing = json!({"id": "tkt_01jd8z6v2mfkpb7h3q9xw5t4ra"});
        let stale = "\"7\"";
        for bad in [
            json!({"subject": ""}),
            json!({"assignee_id": NOBODY, "status": "closed"}),
            json!({"organization_id": NOWHERE, "external_id": "X1"}),
            json!({"nonsense": 1}),
            json!({"comment": {}}),
        ] {
            for at in [&missing, &ticket] {
                let answer = patch_if(&server, &acme, at, stale, &bad).await;
                assert_eq!(answer.status, 422, "{bad} of {}: {}", at["id"], answer.json());
            }
        }
        for conflicting in [json!({"status": "closed"}), json!({"external_id": "X1"})] {
            patch_if(&server, &acme, &missing, stale, &conflicting).await.problem("not_found");
            patch_if(&server, &acme, &ticket, stale, &conflicting).await.problem("version_mismatch");
            patch_if(&server, &acme, &ticket, "\"1\"", &conflicting).await.is(409);
        }
        // The query comes before the body.
        let odd = server.patch(format!("{}&x=1", one(&ticket))).cookie(&acme.admin).json(&json!({"subject": ""}));
        odd.await.problem("unknown_parameter");
        assert_eq!(still(&read(&server, &acme, &ticket).await), still(&ticket));
    }

    async fn custom_fields_that_can_never_fit_are_refused_before_a_missing_ticket(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        let missing = json!({"id": "tkt_01jd8z6v2mfkpb7h3q9xw5t4ra"});
        for at in [&missing, &ticket] {
            let answer = patch_if(&server, &acme, at, "\"7\"", &json!({"custom_fields": nested(6)})).await;
            assert_eq!(answer.pointers(), ["/custom_fields"], "{}", at["id"]);
        }
    }

    async fn another_order_of_tags_and_of_keys(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({"tags": ["b", "a"], "custom_fields": {"x": {"b": 1, "a": 2}}})).await;
        assert_eq!(ticket["tags"], json!(["b", "a"]), "as they were given");
        let same = changed(&server, &acme, &ticket, &json!({"custom_fields": {"x": {"a": 2, "b": 1}}})).await;
        assert_eq!(same, ticket, "keys have no order");
        let turned = changed(&server, &acme, &ticket, &json!({"tags": ["a", "b"]})).await;
        assert_eq!((&turned["tags"], &turned["version"]), (&json!(["a", "b"]), &json!(2)), "a list has one");
    }
}

async fn patch_if(server: &Server, tenancy: &Tenancy, ticket: &Value, tag: &str, body: &Value) -> Answer {
    server.patch(one(ticket)).cookie(&tenancy.admin).header("if-match", tag).json(body).await
}
