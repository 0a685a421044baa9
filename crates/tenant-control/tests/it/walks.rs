//! Lists with filters over more rows than one request looks at: nothing is left out, nothing comes twice, and no page is
//! larger than it may be.

use kernel::args;
use kernel::base::Actor;
use serde_json::Value;

use crate::support::people::AUDIT;
use crate::support::{Server, Tenancy, over_http};
use crate::webhooks::{DELIVERIES, endpoint};

/// More than one request looks at.
const MANY: i64 = 24_000;

const A: &str = "usr_01jd8z6v2mfkpb7h3q9xw5t4ra";
const B: &str = "usr_01jd8z6v2mfkpb7h3q9xw5t4rb";
const RECORD: &str = "tkt_01jd8z6v2mfkpb7h3q9xw5t4ra";

/// The trail of one record, by A but for one entry in 8,000, which is by B; every other entry is of the action `test.even`, all
/// others of `test.odd`, but for one in 8,000, which is by A and of `test.rare`.
const TRAIL_SQL: &str = "WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
    INSERT INTO audit_entries (tenant_id, id, at, actor_type, actor_id, actor_name, action, target_type, target_id)
    SELECT $1, 'aud_01jd8z6v2m' || substr(CAST(10000000000000000 + i AS TEXT), 2), 1800000000000 + i / 10, 'user',
        CASE WHEN i % 8000 = 4001 THEN CAST($4 AS TEXT) ELSE CAST($3 AS TEXT) END, 'x',
        CASE WHEN i % 8000 = 7001 THEN 'test.rare' WHEN i % 2 = 0 THEN 'test.even' ELSE 'test.odd' END, 'ticket',
        CAST($5 AS TEXT) FROM n";

async fn trail(server: &Server) -> Tenancy {
    let acme = server.tenant("acme").await;
    let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
    db.write(async |tx| tx.exec(TRAIL_SQL, args![MANY, A, B, RECORD]).await).await.expect("the trail is loaded");
    acme
}

/// Every row of a list, and how many rows each page had.
async fn all(server: &Server, tenancy: &Tenancy, path: &str, query: &str) -> (Vec<Value>, Vec<usize>) {
    let (mut rows, mut pages, mut more) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = server.get(format!("{path}?{query}{more}")).cookie(&tenancy.admin).await.ok(200);
        let data = page["data"].as_array().unwrap();
        rows.extend(data.iter().cloned());
        pages.push(data.len());
        assert_eq!(page["has_more"].as_bool().unwrap(), page["next_cursor"].is_string());
        let Some(cursor) = page["next_cursor"].as_str() else { return (rows, pages) };
        more = format!("&cursor={cursor}");
    }
}

fn places(rows: &[Value]) -> Vec<i64> {
    rows.iter().map(|row| row["id"].as_str().unwrap()[14..].parse().unwrap()).collect()
}

over_http! {
    async fn a_rare_entry_of_a_busy_record_is_found_in_bounded_steps(server: Server) {
        let acme = trail(&server).await;
        let (rows, pages) = all(&server, &acme, AUDIT, &format!("target_id={RECORD}&actor_id={B}")).await;
        assert_eq!(places(&rows), [20_001, 12_001, 4_001]);
        assert!((7..=10).contains(&pages.len()), "{pages:?}: a request looks at some of the rows, and not at few");
        let (rows, pages) = all(&server, &acme, AUDIT, &format!("target_id={RECORD}&actor_id={B}&action=test.even")).await;
        assert_eq!((rows.len(), pages.len() > 1), (0, true));
    }

    async fn a_pair_with_an_index_is_found_at_once(server: Server) {
        let acme = trail(&server).await;
        let (rows, pages) = all(&server, &acme, AUDIT, &format!("actor_id={A}&action=test.rare")).await;
        assert_eq!((places(&rows), pages), (vec![23_001, 15_001, 7_001], vec![3]));
        let (rows, pages) = all(&server, &acme, AUDIT, &format!("actor_id={A}&action=test.nothing")).await;
        assert_eq!((rows.len(), pages), (0, vec![0]));
    }

    async fn values_are_merged_in_order_at_any_size_of_page(server: Server) {
        let acme = trail(&server).await;
        let wanted: Vec<i64> = (1..=MANY).rev().collect();
        for query in [format!("actor_id={A},{B}"), "action=test.odd,test.even,test.odd".to_owned(), format!("target_id={RECORD}")] {
            let (rows, _) = all(&server, &acme, AUDIT, &format!("{query}&limit=200&until=2027-01-15T08:00:00.100Z")).await;
            assert_eq!(places(&rows), &wanted[23_001..], "{query}");
        }
        // A page ends in the middle of a millisecond, and of what one actor did.
        let query = format!("actor_id={B},{A}&action=test.odd,test.even&until=2027-01-15T08:00:00.030Z&limit=7");
        let (rows, pages) = all(&server, &acme, AUDIT, &query).await;
        assert_eq!(places(&rows), &wanted[23_701..]);
        assert_eq!(pages.len(), 299_usize.div_ceil(7));
    }
}

/// A delivery for every event and endpoint: to the first all of `test.a` succeed; to the second those of `test.b` fail.
const DELIVERIES_SQL: &str = "WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
    INSERT INTO deliveries (tenant_id, id, webhook_id, event_sequence, event_id, event_type, status, generation, tries, attempts,
        created_at)
    SELECT $1, 'dlv_01jd8z6v2m' || substr(CAST(10000000000000000 + i AS TEXT), 2),
        CASE WHEN i % 2 = 0 THEN CAST($3 AS TEXT) ELSE CAST($4 AS TEXT) END, i,
        'evt_01jd8z6v2m' || substr(CAST(10000000000000000 + i AS TEXT), 2),
        CASE WHEN i % 2 = 0 OR i = 5 THEN 'test.a' ELSE 'test.b' END,
        CASE WHEN i % 2 = 0 AND i <> 8 THEN 'succeeded' ELSE 'failed' END, 0, 1, 0, 1800000000000 + i FROM n";

const ATTEMPTS_SQL: &str =
    "WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $3)
    INSERT INTO delivery_attempts (tenant_id, delivery_id, number, at, status_code, response_body, duration_ms, timings)
    SELECT $1, d.id, n.i, 1800000000000 + n.i, 500, $4, 1, '{}' FROM n CROSS JOIN deliveries d
    WHERE d.tenant_id = $1 AND d.id < $2";

async fn log(server: &Server, count: i64) -> (Tenancy, [String; 2]) {
    let acme = server.tenant("acme").await;
    let mut hooks = Vec::new();
    for _ in 0..2 {
        let hook = endpoint(server, &acme, "https://hooks.example.com/in", &["ticket.*"]).await;
        hooks.push(hook["id"].as_str().unwrap().to_owned());
    }
    let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
    let (first, second) = (hooks[0].clone(), hooks[1].clone());
    db.write(async move |tx| tx.exec(DELIVERIES_SQL, args![count, first, second]).await).await.expect("it is loaded");
    (acme, hooks.try_into().unwrap())
}

over_http! {
    async fn rare_deliveries_of_a_pair_are_found(server: Server) {
        let (acme, [first, second]) = log(&server, MANY).await;
        for (query, wanted) in [
            (format!("webhook_id={first}&status=failed"), vec![8]),
            (format!("webhook_id={second}&event_type=test.a"), vec![5]),
            ("event_type=test.nothing".to_owned(), vec![]),
            ("status=skipped,pending,delivering".to_owned(), vec![]),
            (format!("webhook_id={first}&event_type=test.b"), vec![]),
        ] {
            let (rows, pages) = all(&server, &acme, DELIVERIES, &query).await;
            assert_eq!((places(&rows), pages.len()), (wanted, 1), "{query}");
        }
        // Two large sets with little in common, and no index of both.
        for (query, wanted) in
            [("event_type=test.a&status=failed".to_owned(), vec![8, 5]), (format!("webhook_id={second}&status=succeeded"), vec![])]
        {
            let (rows, pages) = all(&server, &acme, DELIVERIES, &query).await;
            assert_eq!(places(&rows), wanted, "{query}");
            assert!((4..=6).contains(&pages.len()), "{query}: {pages:?}");
        }
    }

    async fn deliveries_of_several_values_are_merged_in_order(server: Server) {
        let (acme, [first, second]) = log(&server, 999).await;
        for (query, wanted) in [
            ("event_type=test.b,test.a,test.b&limit=200".to_owned(), (1..1_000).rev().collect::<Vec<_>>()),
            (format!("webhook_id={second},{first}&limit=77"), (1..1_000).rev().collect()),
            ("status=failed,pending&limit=50".to_owned(), (1..1_000).rev().filter(|n| n % 2 == 1 || *n == 8).collect()),
            (
                format!("webhook_id={first},{second}&event_type=test.a&limit=9"),
                (1..1_000).rev().filter(|n| n % 2 == 0 || *n == 5).collect(),
            ),
        ] {
            assert_eq!(places(&all(&server, &acme, DELIVERIES, &query).await.0), wanted, "{query}");
        }
    }

    async fn a_page_of_long_answers_ends_before_its_limit(server: Server) {
        let (acme, _) = log(&server, 12).await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let until = "dlv_01jd8z6v2m0000000000000012";
        let load = db.write(async move |tx| {
            tx.exec(ATTEMPTS_SQL, args![until, 120_i64, "x".repeat(4_096)]).await?;
            tx.exec("UPDATE deliveries SET attempts = 120 WHERE tenant_id = $1 AND id < $2", args![until]).await
        });
        load.await.expect("the attempts are loaded");
        let first = server.get(format!("{DELIVERIES}?limit=200")).cookie(&acme.admin).await;
        assert!((800_000..1_100_000).contains(&first.body.len()), "{}", first.body.len());
        let (rows, pages) = all(&server, &acme, DELIVERIES, "limit=200").await;
        assert_eq!(places(&rows), (1..=12).rev().collect::<Vec<_>>());
        assert_eq!(pages.iter().max(), Some(&3), "{pages:?}");
        let attempts = rows[5]["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 100, "the newest");
        assert_eq!(attempts[0]["at"], "2027-01-15T08:00:00.021Z", "oldest first");
        assert_eq!(attempts[99]["at"], "2027-01-15T08:00:00.120Z");
        let one = server.get(format!("{DELIVERIES}?id={}", rows[5]["id"].as_str().unwrap())).cookie(&acme.admin).await;
        assert_eq!(one.ok(200), rows[5]);
    }

    async fn a_page_of_long_changes_ends_before_its_limit(server: Server) {
        let acme = trail(&server).await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let changes = serde_json::json!({"name": {"from": "x".repeat(60_000), "to": null}}).to_string();
        let sql = "UPDATE audit_entries SET changes = $2 WHERE tenant_id = $1 AND at >= 1800000002397";
        db.write(async move |tx| tx.exec(sql, args![changes]).await).await.expect("the changes are written");
        let query = format!("target_id={RECORD}&limit=200&since=2027-01-15T08:00:02.397Z");
        let (rows, pages) = all(&server, &acme, AUDIT, &query).await;
        assert_eq!(places(&rows), (23_970..=24_000).rev().collect::<Vec<_>>());
        assert_eq!(pages, [17, 14]);
    }
}
