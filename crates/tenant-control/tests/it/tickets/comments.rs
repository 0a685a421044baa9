//! Comments: who said what, in which order, to whom, and what counts as the first response.

use kernel::base::MINUTE_MS;

use super::*;

async fn say(server: &Server, tenancy: &Tenancy, ticket: &Value, comment: &Value) -> Value {
    changed(server, tenancy, ticket, &json!({"comment": comment})).await
}

over_http! {
    async fn a_comment_is_appended_with_its_author_and_is_public_unless_said(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Robot", "scopes": ["tickets:*"]})).await;
        let robot = json!({"type": "api_key", "id": key.id, "name": "Robot"});
        let (_, technician) = person(&server, &acme, Role::Technician).await;
        let ticket = make(&server, &acme, &json!({})).await;
        let said = [
            (json!({"body": "First.\n\tIndented, <b>bold</b> & \"quoted\" 🔥"}), true, false),
            (json!({"body": "Second.", "public": false}), false, true),
            (json!({"body": "Third.", "public": true}), true, false),
            (json!({"body": "Third.", "public": true}), true, true),
        ];
        let mut expected = Vec::new();
        for (count, (comment, public, by_key)) in said.iter().enumerate() {
            server.advance(MINUTE_MS);
            let call = server.patch(one(&ticket)).json(&json!({"comment": comment}));
            let answer = if *by_key { call.key(&key.plain).await } else { call.cookie(&technician).await };
            let now = answer.ok(200);
            assert_eq!(now["comment_count"], count + 1, "{comment}");
            assert_eq!((&now["version"], &now["updated_at"]), (&json!(count + 2), &json!(server.now().to_string())), "{comment}");
            assert_eq!(now.get("comments"), None, "a change answers with the ticket");
            let author = if *by_key { robot.clone() } else { who(&server, &technician).await };
            let created_at = server.now().to_string();
            expected.push(json!({"body": comment["body"], "public": public, "author": author, "created_at": created_at}));
        }
        let shown = read(&server, &acme, &ticket).await;
        let comments = shown["comments"].as_array().unwrap();
        assert_eq!(comments.iter().map(|comment| without(comment, &["id"])).collect::<Vec<_>>(), expected, "oldest first");
        let mut ids: Vec<&str> = comments.iter().map(id_of).collect();
        assert!(ids.iter().all(|id| id.starts_with("cmt_") && id.len() == 30), "{ids:?}");
        assert!(ids.is_sorted(), "{ids:?}");
        ids.dedup();
        assert_eq!((ids.len(), &shown["comment_count"]), (4, &json!(4)));
    }

    async fn many_comments_of_one_moment_stay_in_order(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        for n in 0..60 {
            say(&server, &acme, &ticket, &json!({"body": format!("Comment {n}"), "public": n % 2 == 0})).await;
        }
        let shown = read(&server, &acme, &ticket).await;
        let bodies: Vec<&str> = shown["comments"].as_array().unwrap().iter().map(|one| one["body"].as_str().unwrap()).collect();
        assert_eq!(bodies, (0..60).map(|n| format!("Comment {n}")).collect::<Vec<_>>());
        assert_eq!((&shown["comment_count"], &shown["version"]), (&json!(60), &json!(61)));
        assert_eq!(list(&server, &acme, "").await[0]["comment_count"], 60);
    }

    async fn the_first_public_comment_is_the_first_response_and_no_other(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["tickets:write"]).await;
        for by_key in [false, true] {
            let ticket = make(&server, &acme, &json!({})).await;
            let first = async |body: Value| {
                let call = server.patch(one(&ticket)).json(&body);
                let answer = if by_key { call.key(&key.plain).await } else { call.cookie(&acme.admin).await };
                answer.ok(200)["first_responded_at"].clone()
            };
            for silent in [
                json!({"comment": {"body": "Among us.", "public": false}}),
                json!({"status": "in_progress"}),
                json!({"assignee_id": who(&server, &acme.admin).await["id"]}),
                json!({"comment": {"body": "Among us again.", "public": false}, "team": "A"}),
            ] {
                server.advance(MINUTE_MS);
                assert_eq!(first(silent.clone()).await, Value::Null, "{silent}");
            }
            server.advance(MINUTE_MS);
            let at = json!(server.now().to_string());
            assert_eq!(first(json!({"comment": {"body": "Hello."}})).await, at);
            for later in [
                json!({"comment": {"body": "Hello again."}}),
                json!({"comment": {"body": "Among us.", "public": false}}),
                json!({"status": "resolved"}),
                json!({"status": "open", "comment": {"body": "Once more."}}),
            ] {
                server.advance(MINUTE_MS);
                assert_eq!(first(later.clone()).await, at, "{later}");
            }
            assert_eq!(read(&server, &acme, &ticket).await["first_responded_at"], at);
        }
    }

    async fn a_comment_can_be_made_whatever_the_status_and_is_never_a_repeat(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        for status in ["open", "pending", "resolved", "closed", "open", "cancelled"] {
            let before = changed(&server, &acme, &ticket, &json!({"status": status})).await;
            let now = say(&server, &acme, &ticket, &json!({"body": "The same."})).await;
            assert_eq!(now["status"], status, "a comment does not reopen");
            assert_eq!(now["comment_count"], before["comment_count"].as_i64().unwrap() + 1);
        }
    }

    async fn a_long_comment_is_kept_whole(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        for body in ["x".repeat(64 * 1024), "\"\\\u{1}".repeat(20_000), "ü🔥\r\n".repeat(5_000)] {
            say(&server, &acme, &ticket, &json!({"body": body})).await;
            let shown = read(&server, &acme, &ticket).await;
            assert_eq!(shown["comments"].as_array().unwrap().last().unwrap()["body"], body);
        }
    }

    async fn comments_belong_to_their_ticket_and_tenant(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let tickets = [
            (&acme, make(&server, &acme, &json!({})).await),
            (&acme, make(&server, &acme, &json!({})).await),
            (&globex, make(&server, &globex, &json!({})).await),
            (&globex, make(&server, &globex, &json!({})).await),
        ];
        for (tenancy, ticket) in &tickets {
            say(&server, tenancy, ticket, &json!({"body": ticket["id"]})).await;
        }
        for (tenancy, ticket) in &tickets {
            let shown = read(&server, tenancy, ticket).await;
            assert_eq!(shown["comments"].as_array().unwrap().len(), 1);
            assert_eq!(shown["comments"][0]["body"], ticket["id"]);
            assert_eq!(shown["comments"][0]["author"], who(&server, &tenancy.admin).await);
        }
    }
}
