//! Customers and technicians with more tickets than one request may look at: their lists are never refused.

use kernel::args;
use kernel::base::{Actor, Timestamp};
use tenant_control::features::tickets::find;

use super::{NOBODY as TECHNICIAN, NOWHERE as CUSTOMER, TICKETS};
use crate::support::{Server, Tenancy, over_http};

/// More than one request may look at, and more than that twice over.
const MANY: i64 = 10_200;
const TWICE: i64 = 2 * MANY;

/// By direct SQL: so many tickets of nobody, then so many of one customer and one technician. The higher a number, the
/// earlier it changed, ten of them in a millisecond. Those of nobody are low, dated and open, and come before the others
/// in the order of priorities and of dates; the others are new, each tenth open, and each tenth closed.
const TICKETS_SQL: &str =
    "WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $3)
    INSERT INTO tickets (tenant_id, id, number, subject, type, status, priority, organization_id, assignee_id, tags,
        device_ids, source, sla_pauses, comment_count, version, created_at, updated_at, sequence, custom_fields, due_at)
    SELECT $1, 'tkt_01jd8z6v2m' || substr(CAST(10000000000000000 + i AS TEXT), 2), i, 'x', 'task',
        CASE WHEN i <= $2 OR i % 10 = 1 THEN 'open' WHEN i % 10 = 3 THEN 'closed' ELSE 'new' END,
        CASE WHEN i <= $2 THEN 0 ELSE 3 END, CASE WHEN i > $2 THEN CAST($4 AS TEXT) END,
        CASE WHEN i > $2 THEN CAST($5 AS TEXT) END, '[]', '[]', 'api', '[]', 0, 1, 1800000000000 + i,
        1800000100000 + (CAST($3 AS BIGINT) - i) / 10, CAST($3 AS BIGINT) - i + 1, '{}',
        CASE WHEN i <= $2 THEN 1700000000000 + i END
    FROM n";
const TERMS_SQL: &str = "INSERT INTO ticket_terms (tenant_id, term, number)
    SELECT tenant_id, 's:' || status, number FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, CASE WHEN status = 'closed' THEN '-o:' ELSE '+o:' END || COALESCE(organization_id, 'none'),
        number FROM tickets WHERE tenant_id = $1
    UNION ALL SELECT tenant_id, CASE WHEN status = 'closed' THEN '-a:' ELSE '+a:' END || COALESCE(assignee_id, 'none'),
        number FROM tickets WHERE tenant_id = $1";
const CLOCK_SQL: &str =
    "UPDATE tenant_clocks SET ticket_number = $2, sequence = $2, last_at = 1800000200000 WHERE tenant_id = $1";

async fn loaded(server: &Server, others: i64, own: i64) -> Tenancy {
    let acme = server.tenant("acme").await;
    let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
    let load = db.write(async move |tx| {
        tx.tick().await?;
        tx.exec(TICKETS_SQL, args![others, others + own, CUSTOMER, TECHNICIAN]).await?;
        tx.exec(TERMS_SQL, args![]).await?;
        tx.exec(CLOCK_SQL, args![others + own]).await
    });
    load.await.expect("the tickets are loaded");
    acme
}

async fn page(server: &Server, acme: &Tenancy, query: &str) -> (Vec<i64>, Option<String>) {
    let answer = server.get(format!("{TICKETS}?{query}")).cookie(&acme.admin).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.json());
    let page = answer.json();
    let numbers = page["data"].as_array().unwrap().iter().map(|ticket| ticket["number"].as_i64().unwrap());
    (numbers.collect(), page["next_cursor"].as_str().map(str::to_owned))
}

/// Two pages, the second by its cursor.
async fn check(server: &Server, acme: &Tenancy, query: &str, expected: &[i64]) {
    let query = format!("{query}&limit=10");
    let (first, cursor) = page(server, acme, &query).await;
    assert_eq!(first, expected[..10], "{query}");
    let (second, _) = page(server, acme, &format!("{query}&cursor={}", cursor.expect("a second page"))).await;
    assert_eq!(second, expected[10..20], "{query}, its second page");
}

over_http! {
    async fn what_customers_and_technicians_have_is_listed_in_each_order_of_times(server: Server) {
        let others = 100;
        let last = others + TWICE;
        let acme = loaded(&server, others, TWICE).await;
        // What changed since is the lower half, and both halves are more than may be looked at.
        let ages = (last - others - MANY) / 10;
        let since = Timestamp::from_millis(1_800_000_100_000 + ages);
        let own: Vec<i64> = (others + 1..=last).collect();
        for (owner, numbers) in [
            (format!("organization_id={CUSTOMER}"), &own),
            (format!("assignee_id={TECHNICIAN}"), &own),
            (format!("organization_id={CUSTOMER},org_01jd8z6v2mfkpb7h3q9xw5t4rb"), &own),
            (format!("assignee_id=none,{TECHNICIAN}"), &(1..=last).collect()),
        ] {
            let changed: Vec<i64> = numbers.iter().copied().filter(|number| (last - number) / 10 >= ages).collect();
            let down: Vec<i64> = numbers.iter().rev().copied().collect();
            let changed_down: Vec<i64> = changed.iter().rev().copied().collect();
            for (query, expected) in [
                ("sort=created_at".to_owned(), numbers),
                ("sort=-created_at".to_owned(), &down),
                // The highest number changed first.
                ("sort=updated_at".to_owned(), &down),
                ("sort=-updated_at".to_owned(), numbers),
                (format!("updated_since={since}"), &changed_down),
                (format!("updated_since={since}&sort=-updated_at"), &changed),
                (format!("updated_since={since}&sort=created_at"), &changed),
                (format!("updated_since={since}&sort=-created_at"), &changed_down),
            ] {
                check(&server, &acme, &format!("{owner}&{query}"), expected).await;
            }
        }
    }

    async fn what_of_theirs_is_not_done_is_listed_in_any_order(server: Server) {
        let acme = loaded(&server, MANY, 2 * MANY).await;
        let open: Vec<i64> = (MANY + 1..=3 * MANY).filter(|number| number % 10 == 1).collect();
        for owner in [format!("organization_id={CUSTOMER}"), format!("assignee_id={TECHNICIAN}")] {
            for sort in ["created_at", "updated_at", "priority", "due_at"] {
                for (sort, down) in [(sort.to_owned(), false), (format!("-{sort}"), true)] {
                    let mut expected = open.clone();
                    // The higher number changed first.
                    if down != sort.ends_with("updated_at") {
                        expected.reverse();
                    }
                    check(&server, &acme, &format!("{owner}&status=open&sort={sort}"), &expected).await;
                }
            }
        }
    }

    async fn the_changes_of_a_customer_are_followed_to_the_end(server: Server) {
        let acme = loaded(&server, 500, 1_000).await;
        let (mut seen, mut more) = (Vec::new(), String::new());
        loop {
            let query = format!("organization_id={CUSTOMER}&updated_since=2000-01-01T00:00:00Z&limit=60{more}");
            let (numbers, cursor) = page(&server, &acme, &query).await;
            seen.extend(numbers);
            let Some(cursor) = cursor else { break };
            more = format!("&cursor={cursor}");
        }
        assert_eq!(seen, (501..=1_500).rev().collect::<Vec<i64>>(), "each once, in the order of changes");
    }

    /// Whether or not the database has counted what is in its tables.
    async fn every_walk_goes_along_an_index_in_its_order(server: Server) {
        let acme = loaded(&server, 1_000, 1_000).await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        for (index, walk) in find::store::all_walks() {
            let plan = server.app.store.explain_select(&db, &walk).await.unwrap().join("\n");
            let bad = ["SCAN", "TEMP B-TREE", "Sort", "Seq Scan", "Bitmap"].iter().find(|bad| plan.contains(**bad));
            assert_eq!(bad, None, "{walk:?}: {plan}");
            let wanted = index.map_or_else(|| " ".to_owned(), |index| format!(" {index} "));
            assert!(plan.to_uppercase().contains("INDEX") && plan.contains(&wanted), "{index:?} {walk:?}: {plan}");
        }
    }
}
