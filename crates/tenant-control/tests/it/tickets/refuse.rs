//! What a body must not say of a ticket: every bad field is named at once, and nothing comes of a refused request.

use super::*;

/// Asserts that POST and PATCH both refuse each of these bodies, with these pointers and no others.
async fn refuse(server: &Server, tenancy: &Tenancy, ticket: &Value, cases: &[(Value, &[&str])]) {
    for (body, pointers) in cases {
        let whole = with(&json!({"subject": "A"}), body);
        for answer in [post(server, tenancy, &whole).await, patch(server, tenancy, ticket, body).await] {
            let shown: String = body.to_string().chars().take(200).collect();
            assert_eq!(answer.status, 422, "{} {shown}: {}", answer.method, answer.json());
            let mut named = answer.pointers();
            named.sort_unstable();
            assert_eq!(named, *pointers, "{} {shown}", answer.method);
        }
    }
}

/// A tenant with a ticket, which is as it was in the end, and the only one.
async fn scene(server: &Server) -> (Tenancy, Value) {
    let acme = server.tenant("acme").await;
    make(server, &acme, &json!({"tags": ["kept"], "custom_fields": {"kept": true}})).await;
    let ticket = list(server, &acme, "").await[0].clone();
    (acme, ticket)
}

async fn nothing_came_of_it(server: &Server, tenancy: &Tenancy, ticket: &Value) {
    assert_eq!(list(server, tenancy, "").await, std::slice::from_ref(ticket));
    assert_eq!(kinds(server, tenancy).await, ["ticket.created"]);
    assert_eq!(trail(server, tenancy, ticket).await.len(), 1);
    let now = read(server, tenancy, ticket).await;
    assert_eq!((now["history"].as_array().unwrap().len(), &now["comments"]), (1, &json!([])));
    assert_eq!(make(server, tenancy, &json!({})).await["number"], 2, "no number is lost");
}

over_http! {
    async fn a_value_of_the_wrong_type_is_named(server: Server) {
        let (acme, ticket) = scene(&server).await;
        let (text, list, object) = (json!("text"), json!(["text"]), json!({"name": "text"}));
        let (number, truth) = (json!(7), json!(true));
        for (field, wrong) in [
            ("subject", [&number, &truth, &list, &object]),
            ("description", [&number, &truth, &list, &object]),
            ("type", [&number, &truth, &list, &object]),
            ("status", [&number, &truth, &list, &object]),
            ("priority", [&number, &truth, &list, &object]),
            ("organization_id", [&number, &truth, &list, &object]),
            ("requester", [&number, &truth, &list, &text]),
            ("assignee_id", [&number, &truth, &list, &object]),
            ("team", [&number, &truth, &list, &object]),
            ("category", [&number, &truth, &list, &object]),
            ("tags", [&number, &truth, &text, &object]),
            ("custom_fields", [&number, &truth, &text, &list]),
            ("device_ids", [&number, &truth, &text, &object]),
            ("external_id", [&number, &truth, &list, &object]),
            ("due_at", [&number, &truth, &list, &object]),
        ] {
            let pointer = format!("/{field}");
            for value in wrong {
                refuse(&server, &acme, &ticket, &[(json!({field: value}), &[&pointer])]).await;
            }
        }
        for field in ["subject", "type", "status", "priority"] {
            refuse(&server, &acme, &ticket, &[(json!({field: null}), &[&format!("/{field}")])]).await;
        }
        refuse(&server, &acme, &ticket, &[
            (json!({"tags": [1, "good", null, ["x"], {}]}), &["/tags/0", "/tags/2", "/tags/3", "/tags/4"]),
            (json!({"device_ids": [1, null]}), &["/device_ids/0", "/device_ids/1"]),
            (json!({"requester": {"name": 1, "email": ["a@b.test"]}}), &["/requester/email", "/requester/name"]),
        ]).await;
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn a_word_is_one_of_the_few_and_spelt_so(server: Server) {
        let (acme, ticket) = scene(&server).await;
        for (field, words) in [
            ("type", ["", "Incident", "INCIDENT", "incident ", "request", "service-request", "ticket"]),
            ("status", ["", "New", "NEW", "new ", "in progress", "in-progress", "done"]),
            ("priority", ["", "Low", "HIGH", " high", "urgent", "1", "normal"]),
        ] {
            for word in words {
                refuse(&server, &acme, &ticket, &[(json!({field: word}), &[&format!("/{field}")])]).await;
            }
        }
        for status in &STATUSES[1..] {
            let answer = post(&server, &acme, &json!({"subject": "A", "status": status})).await;
            assert_eq!(answer.pointers(), ["/status"], "a ticket cannot start as {status}");
        }
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn a_name_is_neither_blank_nor_long_nor_has_it_control_characters(server: Server) {
        let (acme, ticket) = scene(&server).await;
        let long = "ü".repeat(201);
        for text in ["", " \t\n", &long, "a\nb", "a\u{0}b", "a\u{7f}b", "a\u{85}b", "\u{1b}[31m", "a\tb", "a\u{202e}b", "\u{200b}"] {
            refuse(&server, &acme, &ticket, &[
                (json!({"subject": text}), &["/subject"]),
                (json!({"team": text}), &["/team"]),
                (json!({"category": text}), &["/category"]),
                (json!({"external_id": text}), &["/external_id"]),
                (json!({"tags": ["good", text]}), &["/tags/1"]),
                (json!({"requester": {"name": text, "email": "a@b.test"}}), &["/requester/name"]),
            ]).await;
        }
        refuse(&server, &acme, &ticket, &[
            (json!({"description": "a\u{0}b"}), &["/description"]),
            (json!({"description": "x".repeat(64 * 1024 + 1)}), &["/description"]),
            (json!({"description": "ü".repeat(32 * 1024 + 1)}), &["/description"]),
        ]).await;
        assert_eq!(post(&server, &acme, &json!({})).await.pointers(), ["/subject"], "the one field that is required");
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn addresses_and_times_are_what_they_say(server: Server) {
        let (acme, ticket) = scene(&server).await;
        let long = format!("{}@acme.test", "a".repeat(300));
        for email in [
            "", "nonsense", "@acme.test", "sam@", "a@b@c.test", "sam o@acme.test", "sam\n@acme.test", "s\u{0}@a.test",
            "sam@a..test", "sam@acme.test.", "sam@-a.test", "s\u{200b}am@a.test", &long,
        ] {
            refuse(&server, &acme, &ticket, &[(json!({"requester": {"email": email}}), &["/requester/email"])]).await;
        }
        for time in [
            "", "tomorrow", "2026-02-01", "2026-02-01T12:00:00", "2026-02-30T12:00:00Z", "2026-13-01T12:00:00Z",
            "2026-02-01T25:00:00Z", "1768471200", "2026-02-01T12:00:00 Z",
        ] {
            refuse(&server, &acme, &ticket, &[(json!({"due_at": time}), &["/due_at"])]).await;
        }
        refuse(&server, &acme, &ticket, &[(json!({"requester": {"name": "Sam", "phone": "1"}}), &["/requester/phone"])]).await;
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn lists_and_custom_fields_are_bounded(server: Server) {
        let (acme, ticket) = scene(&server).await;
        let many: Vec<String> = (0..51).map(|n| format!("tag {n}")).collect();
        let fields: Value = (0..51).map(|n| (format!("field {n}"), json!(n))).collect();
        let spread: Value = (0..40).map(|n| (format!("field {n}"), json!("x".repeat(500)))).collect();
        refuse(&server, &acme, &ticket, &[
            (json!({"tags": many}), &["/tags"]),
            (json!({"custom_fields": fields}), &["/custom_fields"]),
            (json!({"custom_fields": nested(6)}), &["/custom_fields"]),
            (json!({"custom_fields": {"in": [[[[[1]]]]]}}), &["/custom_fields"]),
            (json!({"custom_fields": {"in": [{"in": [{"in": [1]}]}]}}), &["/custom_fields"]),
            (json!({"custom_fields": {"k": "x".repeat(16 * 1024)}}), &["/custom_fields"]),
            (json!({"custom_fields": spread}), &["/custom_fields"]),
        ]).await;
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn what_the_server_says_cannot_be_said(server: Server) {
        let (acme, ticket) = scene(&server).await;
        for field in [
            "id", "number", "source", "first_response_due_at", "first_responded_at", "resolution_due_at", "resolved_at",
            "closed_at", "sla_state", "comment_count", "version", "created_at", "updated_at", "comments", "history",
            "created_by", "tenant_id", "nonsense", "Subject",
        ] {
            // The very value that it has is refused, too.
            let value = ticket.get(field).cloned().unwrap_or_default();
            refuse(&server, &acme, &ticket, &[(json!({field: value}), &[&format!("/{field}")])]).await;
        }
        let answer = post(&server, &acme, &json!({"subject": "A", "comment": {"body": "B"}})).await;
        assert_eq!(answer.pointers(), ["/comment"], "only a ticket that exists can be commented on");
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn an_unknown_organization_assignee_or_device_is_named(server: Server) {
        let (acme, ticket) = scene(&server).await;
        let globex = server.tenant("globex").await;
        let (foreigner, _) = person(&server, &globex, Role::Admin).await;
        let foreign = organization(&server, &globex, "initech").await;
        let own = organization(&server, &acme, "initech").await;
        let (user, _) = person(&server, &acme, Role::Viewer).await;
        let key = server.key(&acme, &["*"]).await.id;
        for (field, ids) in [
            ("organization_id", [NOWHERE, &foreign, &user, "initech", "", &own.to_uppercase(), "org_\u{0}"]),
            ("assignee_id", [NOBODY, &foreigner, &own, "The viewer", "", &user.to_uppercase(), &key]),
            ("device_ids", [NOTHING, &own, &user, "nonsense", "", "dev_00000000000000000000000000", "dev_"]),
        ] {
            for id in ids {
                let (value, pointer) = match field {
                    "device_ids" => (json!([id]), "/device_ids/0".to_owned()),
                    _ => (json!(id), format!("/{field}")),
                };
                refuse(&server, &acme, &ticket, &[(json!({field: value}), &[&pointer])]).await;
            }
        }
        let all = json!({"organization_id": foreign, "assignee_id": foreigner, "device_ids": [NOTHING, "x"]});
        let pointers: &[&str] = &["/assignee_id", "/device_ids/0", "/device_ids/1", "/organization_id"];
        refuse(&server, &acme, &ticket, &[(all, pointers)]).await;
        // Good for one field is not good for another.
        let mixed = json!({"organization_id": own, "assignee_id": own, "device_ids": [own, user]});
        refuse(&server, &acme, &ticket, &[(mixed, &["/assignee_id", "/device_ids/0", "/device_ids/1"])]).await;
        let mixed = json!({"organization_id": user, "assignee_id": user});
        refuse(&server, &acme, &ticket, &[(mixed, &["/organization_id"])]).await;
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn all_that_is_wrong_is_named_at_once(server: Server) {
        let (acme, ticket) = scene(&server).await;
        let own = organization(&server, &acme, "initech").await;
        let (user, _) = person(&server, &acme, Role::Viewer).await;
        let bad = json!({
            "subject": " ", "description": 1, "type": "x", "status": "x", "priority": "x", "organization_id": NOWHERE,
            "requester": {"name": "", "email": "x", "phone": 1}, "assignee_id": "nobody", "team": "a\u{0}", "category": 1,
            "tags": ["", "good", 2], "custom_fields": 1, "device_ids": [NOTHING, 1], "external_id": "", "due_at": "x",
            "number": 7, "nonsense": {"a/b": 1}, "a/b~c": 1,
        });
        let pointers: &[&str] = &[
            "/assignee_id", "/a~1b~0c", "/category", "/custom_fields", "/description", "/device_ids/0", "/device_ids/1",
            "/due_at", "/external_id", "/nonsense", "/number", "/organization_id", "/priority", "/requester/email",
            "/requester/name", "/requester/phone", "/status", "/subject", "/tags/0", "/tags/2", "/team", "/type",
        ];
        refuse(&server, &acme, &ticket, &[
            (bad, pointers),
            (json!({"organization_id": NOWHERE, "assignee_id": user, "due_at": 1}), &["/due_at", "/organization_id"]),
            (json!({"organization_id": own, "assignee_id": NOBODY, "number": 1}), &["/assignee_id", "/number"]),
            (json!({"organization_id": own, "assignee_id": user, "number": 1}), &["/number"]),
        ]).await;
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn a_bad_comment_is_named_with_the_rest(server: Server) {
        let (acme, ticket) = scene(&server).await;
        for (body, pointers) in [
            (json!({"comment": "text"}), vec!["/comment"]),
            (json!({"comment": ["text"]}), vec!["/comment"]),
            (json!({"comment": {}}), vec!["/comment/body"]),
            (json!({"comment": {"public": true}}), vec!["/comment/body"]),
            (json!({"comment": {"body": ""}}), vec!["/comment/body"]),
            (json!({"comment": {"body": " \n\t"}}), vec!["/comment/body"]),
            (json!({"comment": {"body": "a\u{0}b"}}), vec!["/comment/body"]),
            (json!({"comment": {"body": null}}), vec!["/comment/body"]),
            (json!({"comment": {"body": "x".repeat(64 * 1024 + 1)}}), vec!["/comment/body"]),
            (json!({"comment": {"body": 1, "public": "yes", "author": "me"}}), vec!["/comment/author", "/comment/body", "/comment/public"]),
            (json!({"comment": {"body": "A", "public": null}}), vec!["/comment/public"]),
            (json!({"comment": {"body": "A", "id": "cmt_x", "created_at": "now"}}), vec!["/comment/created_at", "/comment/id"]),
            (json!({"comment": {"body": "A"}, "assignee_id": NOBODY}), vec!["/assignee_id"]),
            (json!({"comment": {"body": ""}, "assignee_id": NOBODY, "team": 1}), vec!["/assignee_id", "/comment/body", "/team"]),
        ] {
            let mut named = patch(&server, &acme, &ticket, &body).await.pointers();
            named.sort_unstable();
            let shown: String = body.to_string().chars().take(200).collect();
            assert_eq!(named, pointers, "{shown}");
        }
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn a_patch_with_custom_fields_that_can_never_fit_is_named_with_the_rest(server: Server) {
        let (acme, ticket) = scene(&server).await;
        let many: Value = (0..51).map(|n| (format!("field {n}"), json!(n))).collect();
        for fields in [nested(6), many, json!({"k": "x".repeat(17_000)})] {
            for (other, pointer) in [(json!({"subject": ""}), "/subject"), (json!({"assignee_id": NOBODY}), "/assignee_id")] {
                let mut named = patch(&server, &acme, &ticket, &with(&other, &json!({"custom_fields": fields}))).await.pointers();
                named.sort_unstable();
                let mut expected = ["/custom_fields", pointer];
                expected.sort_unstable();
                assert_eq!(named, expected);
            }
        }
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn a_time_is_one_of_rfc_3339(server: Server) {
        let (acme, ticket) = scene(&server).await;
        let mut accepted = Vec::new();
        for time in [
            "20260201T120000Z", "2026-02-01T12Z", "2026-02-01T12:00Z", "2026-02-01T120000Z", "2026-02-01T12:00:00+01",
            "2026-02-01T12:00:00+0100", "2026-02-01T12:00:00+01:00:30", "2026-02-01T12:00:00,5Z", "2026-02-01T12:00:00Z[UTC]",
            "2026-02-01T12:00:00Z[u-ca=hebrew]", "+002026-02-01T12:00:00Z", "2026-W05-7T12:00:00Z", "2026-02-01T24:00:00Z",
        ] {
            for answer in [
                post(&server, &acme, &json!({"subject": "A", "due_at": time})).await,
                patch(&server, &acme, &ticket, &json!({"due_at": time})).await,
                server.get(format!("{TICKETS}?updated_since={}", time.replace('+', "%2B"))).cookie(&acme.admin).await,
            ] {
                if answer.status < 300 {
                    accepted.push(format!("{} {time} is {}", answer.method, answer.json()["due_at"]));
                }
            }
        }
        assert!(accepted.is_empty(), "{accepted:#?}");
        nothing_came_of_it(&server, &acme, &ticket).await;
    }

    async fn a_year_before_the_first_is_no_time(server: Server) {
        let (acme, ticket) = scene(&server).await;
        for time in ["-000001-01-01T00:00:00Z", "-009999-01-02T02:00:00Z"] {
            refuse(&server, &acme, &ticket, &[(json!({"due_at": time}), &["/due_at"])]).await;
        }
        nothing_came_of_it(&server, &acme, &ticket).await;
    }
}
