//! Combinations of filters over more tickets than one request may look at.

use kernel::args;
use kernel::base::Actor;
use serde_json::Value;

use super::TICKETS;
use crate::support::{Server, Tenancy, over_http};

/// More than the budget of one request.
const MANY: i64 = 24_000;

/// Tickets by direct SQL. Every second is a problem with the tag `even`, every third of priority high with the tag
/// `third`; one in a thousand has the tag `rare`; each has a word of its own. Nothing is both `even` and of the type task.
const TICKETS_SQL: &str = "WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
    INSERT INTO tickets (tenant_id, id, number, subject, type, status, priority, tags, device_ids, source, sla_pauses,
        comment_count, version, created_at, updated_at, custom_fields)
    SELECT $1, 'tkt_01jd8z6v2m' || substr(CAST(10000000000000000 + i AS TEXT), 2), i, 'host' || CAST(i AS TEXT) || ' down',
        CASE WHEN i % 2 = 0 THEN 'problem' ELSE 'task' END, 'open', CASE WHEN i % 3 = 0 THEN 2 ELSE 1 END,
        CASE WHEN i % 1000 = 0 THEN '[\"even\",\"rare\"]' WHEN i % 2 = 0 THEN '[\"even\"]' ELSE '[]' END, '[]', 'api', '[]',
        0, 1, 1800000000000 + i, 1800000000000 + i, '{}' FROM n";
const TERMS_SQL: &str = "INSERT INTO ticket_terms (tenant_id, term, number)
    SELECT tenant_id, 's:open', number FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, '+p:' || CASE WHEN priority = 2 THEN 'high' ELSE 'medium' END, number
        FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, '+t:' || type, number FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, '+a:none', number FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, '+o:none', number FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, '+w:down', number FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, '+w:host' || CAST(number AS TEXT), number FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, '+g:even', number FROM tickets WHERE tenant_id = $1 AND number % 2 = 0
    UNION ALL SELECT tenant_id, '+g:rare', number FROM tickets WHERE tenant_id = $1 AND number % 1000 = 0";
const CLOCK_SQL: &str =
    "UPDATE tenant_clocks SET ticket_number = $2, last_at = 1800000000000 + $2 WHERE tenant_id = $1";

async fn loaded(server: &Server) -> Tenancy {
    let acme = server.tenant("acme").await;
    let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
    let load = db.write(async |tx| {
        tx.tick().await?;
        tx.exec(TICKETS_SQL, args![MANY]).await?;
        tx.exec(TERMS_SQL, args![]).await?;
        tx.exec(CLOCK_SQL, args![MANY]).await
    });
    load.await.expect("the tickets are loaded");
    acme
}

fn numbers(page: &Value) -> Vec<i64> {
    page["data"].as_array().unwrap().iter().map(|ticket| ticket["number"].as_i64().unwrap()).collect()
}

over_http! {
    /// Together, because to load them takes longer than to ask.
    async fn what_an_index_can_answer_is_answered_and_the_rest_refused(server: Server) {
        let acme = loaded(&server).await;
        what_no_index_can_answer_is_refused_and_names_a_filter(&server, &acme).await;
        the_most_selective_filter_answers(&server, &acme).await;
        the_beginning_of_many_words_finds_what_few_have(&server, &acme).await;
        each_filter_alone_and_each_order_alone_is_answered(&server, &acme).await;
    }
}

async fn what_no_index_can_answer_is_refused_and_names_a_filter(server: &Server, acme: &Tenancy) {
    for (query, suggestion) in [
        ("tag=even&type=task&sort=updated_at", "organization_id"),
        ("tag=even&type=task&organization_id=none&assignee_id=none&sort=priority", "created_since"),
        ("tag=even&type=task&sort=-priority", "organization_id"),
        ("q=host&type=change,task&tag=odd,even&sort=due_at", "a longer word in q"),
    ] {
        let answer = server.get(format!("{TICKETS}?{query}")).cookie(&acme.admin).await;
        let problem = answer.problem("query_too_broad");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.ends_with(&format!("Add a filter: {suggestion}.")), "{query}: {detail}");
    }
}

async fn the_most_selective_filter_answers(server: &Server, acme: &Tenancy) {
    let rare: Vec<i64> = (1..=24).rev().map(|thousand| thousand * 1_000).collect();
    let third: Vec<i64> = rare.iter().copied().filter(|number| number % 3 == 0).collect();
    let all_filters = "status=open&type=problem&tag=rare&priority=high&q=do&assignee_id=none";
    for (query, wanted) in [
        ("tag=rare", &rare),
        // Neither of them is rare, but in the order of numbers they pass each other by.
        ("tag=even&type=task", &Vec::new()),
        ("tag=rare&status=open", &rare),
        ("status=open&type=problem&tag=rare", &rare),
        ("status=open&type=problem&tag=rare&priority=high", &third),
        (all_filters, &third),
        ("tag=rare&sort=-updated_at", &rare),
        ("tag=rare&sort=-due_at&priority=high", &third),
    ] {
        let page = server.get(format!("{TICKETS}?{query}")).cookie(&acme.admin).await.ok(200);
        assert_eq!(&numbers(&page), wanted, "{query}");
    }
    // Dense enough that any walk fills the page.
    let page = server.get(format!("{TICKETS}?tag=even&priority=high&limit=3")).cookie(&acme.admin).await.ok(200);
    assert_eq!(numbers(&page), [24_000, 23_994, 23_988]);
}

async fn the_beginning_of_many_words_finds_what_few_have(server: &Server, acme: &Tenancy) {
    // 1,111 words start so, and as many tickets have them.
    let page = server.get(format!("{TICKETS}?q=host12&limit=2")).cookie(&acme.admin).await.ok(200);
    assert_eq!(numbers(&page), [12_999, 12_998]);
    let page = server.get(format!("{TICKETS}?q=host&limit=2")).cookie(&acme.admin).await.ok(200);
    assert_eq!(numbers(&page), [24_000, 23_999]);
    let page = server.get(format!("{TICKETS}?q=host239+do&tag=rare")).cookie(&acme.admin).await.ok(200);
    assert_eq!(numbers(&page), [] as [i64; 0]);
}

async fn each_filter_alone_and_each_order_alone_is_answered(server: &Server, acme: &Tenancy) {
    for query in [
        "status=open",
        "status=closed",
        "priority=high",
        "type=change",
        "assignee_id=none",
        "organization_id=none",
        "tag=even",
        "tag=nothing",
        "number=17",
        "external_id=none",
        "created_since=2027-01-15T08:00:20Z",
        "updated_since=2027-01-15T08:00:20Z",
        "q=down",
        "q=d",
        "q=nothing",
        "sort=created_at",
        "sort=-created_at",
        "sort=updated_at",
        "sort=-updated_at",
        "sort=priority",
        "sort=-priority",
        "sort=due_at",
        "sort=-due_at",
        "device_id=dev_01jd8z6v2mfkpb7h3q9xw5t4ra",
    ] {
        server.get(format!("{TICKETS}?{query}")).cookie(&acme.admin).await.ok(200);
    }
}
