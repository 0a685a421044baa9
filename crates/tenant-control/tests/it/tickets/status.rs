//! Where a status can go, what a refused change takes along, and when a ticket was resolved and closed.

use kernel::base::MINUTE_MS;

use super::*;

const LIVE: [&str; 4] = ["open", "in_progress", "pending", "on_hold"];

/// The contract's transitions.
fn may_follow(from: &str, to: &str) -> bool {
    match from {
        "resolved" => ["closed", "open"].contains(&to),
        "closed" | "cancelled" => to == "open",
        _ => LIVE.contains(&to) || ["resolved", "cancelled"].contains(&to),
    }
}

/// A new ticket that has this status.
async fn ticket_that_is(server: &Server, tenancy: &Tenancy, status: &str) -> Value {
    let mut ticket = make(server, tenancy, &json!({"tags": ["kept"]})).await;
    let way = match status {
        "new" => vec![],
        "closed" => vec!["resolved", "closed"],
        status => vec![status],
    };
    for status in way {
        ticket = changed(server, tenancy, &ticket, &json!({"status": status})).await;
    }
    ticket
}

over_http! {
    async fn every_pair_of_statuses_is_as_the_contract_says(server: Server) {
        let acme = server.tenant("acme").await;
        for from in STATUSES {
            for to in STATUSES {
                let ticket = ticket_that_is(&server, &acme, from).await;
                let answer = patch(&server, &acme, &ticket, &json!({"status": to})).await;
                if from == to {
                    assert_eq!(answer.ok(200), ticket, "{from} to {to} changes nothing");
                } else if may_follow(from, to) {
                    assert_eq!(answer.status, 200, "{from} to {to}: {}", answer.json());
                    assert_eq!(answer.json()["status"], to);
                    assert_eq!(answer.json()["version"], ticket["version"].as_i64().unwrap() + 1);
                } else {
                    assert_eq!(answer.status, 409, "{from} to {to}: {}", answer.json());
                    let detail = answer.problem("invalid_transition")["detail"].as_str().unwrap().to_owned();
                    for status in STATUSES.iter().filter(|status| may_follow(from, status) && **status != from) {
                        assert!(detail.contains(status), "{from} can become {status}, which {detail:?} does not say");
                    }
                    let others = STATUSES.iter().filter(|status| !may_follow(from, status) && ![from, to].contains(*status));
                    for status in others {
                        let said = detail.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *status);
                        assert!(!said, "{from} cannot become {status}, which {detail:?} says");
                    }
                }
            }
        }
    }

    async fn a_refused_change_takes_nothing_along(server: Server) {
        let acme = server.tenant("acme").await;
        for (from, to) in [("new", "closed"), ("open", "new"), ("resolved", "pending"), ("closed", "resolved"), ("cancelled", "new")] {
            let ticket = ticket_that_is(&server, &acme, from).await;
            let (before, told) = (read(&server, &acme, &ticket).await, events(&server, &acme).await.len());
            let audited = trail(&server, &acme, &ticket).await.len();
            server.advance(MINUTE_MS);
            let body = json!({
                "status": to, "subject": "Taken along", "priority": "critical", "tags": [], "external_id": "X1",
                "custom_fields": {"a": 1}, "comment": {"body": "Taken along"},
            });
            patch(&server, &acme, &ticket, &body).await.problem("invalid_transition");
            assert_eq!(read(&server, &acme, &ticket).await, before, "{from} to {to}");
            assert_eq!(events(&server, &acme).await.len(), told, "{from} to {to}");
            assert_eq!(trail(&server, &acme, &ticket).await.len(), audited, "{from} to {to}");
            for query in ["q=taken", "priority=critical", "external_id=X1"] {
                assert_eq!(numbers(&server, &acme, query).await, [0_i64; 0], "{from} to {to}: {query}");
            }
        }
    }

    async fn other_fields_go_with_a_status_that_may(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = ticket_that_is(&server, &acme, "closed").await;
        let body = json!({"status": "open", "subject": "Again", "comment": {"body": "It burns again."}});
        let now = changed(&server, &acme, &ticket, &body).await;
        assert_eq!((&now["status"], &now["subject"], &now["comment_count"]), (&json!("open"), &json!("Again"), &json!(1)));
        assert_eq!(now["version"], ticket["version"].as_i64().unwrap() + 1, "one change");
    }

    async fn a_ticket_tells_when_it_was_resolved_and_closed_until_it_is_reopened(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        let (mut resolved_at, mut closed_at) = (Value::Null, Value::Null);
        for status in [
            "open", "resolved", "open", "pending", "resolved", "closed", "open", "cancelled", "open", "on_hold", "cancelled", "open",
            "in_progress", "resolved", "closed",
        ] {
            server.advance(MINUTE_MS);
            let now = changed(&server, &acme, &ticket, &json!({"status": status})).await;
            match status {
                "resolved" => resolved_at = json!(server.now().to_string()),
                "closed" => closed_at = json!(server.now().to_string()),
                "cancelled" => {}
                _ => (resolved_at, closed_at) = (Value::Null, Value::Null),
            }
            assert_eq!((&now["resolved_at"], &now["closed_at"]), (&resolved_at, &closed_at), "{status}: {now}");
            let shown = read(&server, &acme, &ticket).await;
            assert_eq!((&shown["resolved_at"], &shown["closed_at"]), (&resolved_at, &closed_at), "{status}");
        }
        server.advance(MINUTE_MS);
        let now = changed(&server, &acme, &ticket, &json!({"team": "A", "status": "closed"})).await;
        assert_eq!((&now["resolved_at"], &now["closed_at"]), (&resolved_at, &closed_at), "closed as it was");
    }

    async fn a_status_is_found_as_soon_as_it_is_set_and_no_longer(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({"tags": ["a"]})).await;
        let mut last = "new";
        for status in ["open", "in_progress", "pending", "on_hold", "resolved", "closed", "open", "cancelled"] {
            changed(&server, &acme, &ticket, &json!({"status": status})).await;
            for (query, found) in [
                (format!("status={status}"), true),
                (format!("status={last}"), false),
                (format!("status={last},{status}&tag=a"), true),
                ("tag=a".to_owned(), true),
                ("q=fire&priority=medium".to_owned(), true),
                (format!("tag=a&status={last}"), false),
            ] {
                let expected: &[i64] = if found { &[1] } else { &[] };
                assert_eq!(numbers(&server, &acme, &query).await, expected, "{query} after {last} became {status}");
            }
            last = status;
        }
    }
}
