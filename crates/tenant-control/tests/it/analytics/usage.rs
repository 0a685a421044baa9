//! What requests and searches are metered as, on one node and on two.

use kernel::base::{DAY_MS, SECOND_MS};

use super::*;
use crate::support::search::Indexed;
use crate::tickets::{TICKETS, make};

/// The row of a list whose field has this value.
fn row<'a>(list: &'a Value, field: &str, value: &Value) -> &'a Value {
    list.as_array().expect("a list").iter().find(|row| &row[field] == value).unwrap_or(&Value::Null)
}

over_http! {
    async fn requests_are_counted_by_key_and_by_route(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        server.advance(SECOND_MS);
        let key = server.key(&acme, &["tickets:read"]).await;
        for _ in 0..3 {
            server.get(TICKETS).key(&key.plain).await.is(200);
        }
        server.post(TICKETS).key(&key.plain).json(&json!({"subject": "A"})).await.is(403);
        server.get(format!("{TICKETS}?id=tkt_01jd8z6v2mfkpb7h3q9xw5t4ra")).key(&key.plain).await.is(404);
        // No caller, no tenant: counted nowhere.
        server.get(TICKETS).await.is(401);
        server.get("/api/openapi.json").await.is(200);
        server.advance(SECOND_MS);
        let figures = server.figures(&acme, "include=api_usage").await;
        let totals = &figures["api_usage"]["totals"];
        let by_key = row(&totals["by_key"], "key_id", &json!(key.id));
        assert_eq!((&by_key["requests"], &by_key["errors"], &by_key["throttled"]), (&json!(5), &json!(2), &json!(0)));
        // The session has made the key.
        assert_eq!(row(&totals["by_key"], "key_id", &Value::Null)["requests"], 1);
        assert_eq!((&totals["requests"], &totals["errors"]), (&json!(6), &json!(2)));
        let by_route = row(&totals["by_route"], "route", &json!("GET /api/psa/tickets"));
        assert_eq!((&by_route["requests"], &by_route["errors"]), (&json!(4), &json!(1)));
        assert!(by_route["latency_ms"]["p50"].as_f64().unwrap() > 0.0, "{by_route}");
        assert_eq!(row(&totals["by_route"], "route", &json!("POST /api/psa/tickets"))["requests"], 1);
    }

    async fn throttled_requests_are_requests_and_no_errors(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(kernel::http::RatePolicy::Read, 2);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["tickets:read", "analytics:read"]).await;
        for status in [200, 200, 429, 429, 429] {
            server.get(TICKETS).key(&key.plain).await.is(status);
        }
        server.fold().await;
        server.advance(60 * SECOND_MS);
        let figures = server.figures(&acme, "include=api_usage").await;
        let by_key = row(&figures["api_usage"]["totals"]["by_key"], "key_id", &json!(key.id));
        assert_eq!((&by_key["requests"], &by_key["errors"], &by_key["throttled"]), (&json!(5), &json!(0), &json!(3)));
    }

    async fn two_nodes_lose_nothing_and_count_nothing_twice(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let other = server.second_node().await;
        let key = server.key(&acme, &["tickets:*"]).await;
        server.fold().await;
        for round in 0..5 {
            for node in [&server, &other] {
                node.post(TICKETS).key(&key.plain).json(&json!({"subject": "A"})).await.is(201);
                node.get(TICKETS).key(&key.plain).await.is(200);
            }
            server.advance(SECOND_MS * round);
            tokio::join!(server.fold(), other.fold());
        }
        server.advance(SECOND_MS);
        let figures = other.figures(&acme, "include=api_usage,tickets").await;
        assert_eq!(figures["tickets"]["totals"]["created"], 10);
        assert_eq!(row(&figures["api_usage"]["totals"]["by_key"], "key_id", &json!(key.id))["requests"], 20);
        assert_eq!(figures["tickets"]["totals"], server.figures(&acme, "include=tickets").await["tickets"]["totals"]);
    }

    /// In India hours begin at half past those of UTC. Requests by the half hour are known for two days.
    async fn ranges_that_follow_each_other_add_up(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        for (moment, requests) in [("2026-02-02T09:10:00Z", 1), ("2026-02-02T09:50:00Z", 2), ("2026-02-02T10:40:00Z", 4)] {
            server.go_to(at(moment));
            for _ in 0..requests {
                make(&server, &acme, &json!({})).await;
            }
            server.fold().await;
        }
        let count = async |since: &str, until: &str| {
            let range = format!("since=2026-02-02T{since}:00Z&until=2026-02-02T{until}:00Z");
            let figures = server.figures(&acme, &format!("{range}&include=api_usage")).await;
            let totals = &figures["api_usage"]["totals"];
            let route = row(&totals["by_route"], "route", &json!("POST /api/psa/tickets"));
            (totals["requests"].as_i64().unwrap(), route["requests"].as_i64().unwrap_or_default())
        };
        for (days, middle) in [(1, 2), (3, 3)] {
            server.advance(days * DAY_MS);
            let retention = &tenant_control::features::install().retention;
            kernel::jobs::delete_expired(&server.app, retention).await.unwrap();
            let parts = [count("08:30", "09:30").await, count("09:30", "10:30").await, count("10:30", "11:30").await];
            assert_eq!(parts.map(|(requests, _)| requests), [1, 2, 4], "{days}");
            assert_eq!(parts[1].1, middle, "{days}");
            assert_eq!(parts.iter().map(|(_, of_route)| of_route).sum::<i64>(), 7, "{days}");
        }
    }

    async fn searches_are_counted_with_those_that_find_nothing(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        make(&server, &acme, &json!({"subject": "Printer"})).await;
        let index = Indexed::of(&server).await;
        index.catch_up().await;
        for q in ["printer", "printer", "zebra"] {
            server.get(format!("/api/search?q={q}")).cookie(&acme.admin).await.is(200);
        }
        server.advance(SECOND_MS);
        let totals = server.figures(&acme, "include=searches").await["searches"]["totals"].clone();
        assert_eq!((&totals["count"], &totals["without_result"]), (&json!(3), &json!(1)));
        assert!(totals["latency_ms"]["p99"].as_f64().unwrap() > 0.0, "{totals}");
    }
}

/// Keys of one day beyond the first thousand are counted together, and of those the most used are listed.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_keys_does_not_grow_the_figures() {
    let server = open(Setup::sqlite().await).await;
    let acme = server.tenant("acme").await;
    for number in 0..1_500 {
        server.app.usage.add_usage(acme.tenant.id, server.now(), |usage| {
            let figures = usage.group_mut(figures::cells::KEY, &format!("key_{number}"));
            figures.add_count(figures::cells::REQUESTS, 1);
        });
        if number % 150 == 149 {
            server.fold().await;
        }
    }
    let busy = "key_7";
    server.app.usage.add_usage(acme.tenant.id, server.now(), |usage| {
        usage.group_mut(figures::cells::KEY, busy).add_count(figures::cells::REQUESTS, 500);
    });
    server.advance(SECOND_MS);
    let totals = server.figures(&acme, "include=api_usage").await["api_usage"]["totals"].clone();
    let by_key = totals["by_key"].as_array().unwrap();
    assert_eq!((&by_key[0]["key_id"], &by_key[0]["requests"]), (&json!(busy), &json!(501)));
    let flood = |row: &&Value| row["key_id"].as_str().is_some_and(|id| id.starts_with("key_") && id.len() < 10);
    let listed = by_key.iter().filter(flood);
    assert!((199..=200).contains(&listed.clone().count()), "{}", by_key.len());
    let counted: i64 = listed
        .chain(by_key.iter().filter(|row| row["key_id"] == "other"))
        .filter_map(|row| row["requests"].as_i64())
        .sum();
    assert_eq!(counted, 2_000);
    let system = server.app.store.system(kernel::store::Purpose::Cli);
    let stored: i64 = system
        .get_one("SELECT COUNT(*) FROM rollups WHERE dimension = 1 AND grain = 1440", kernel::args![])
        .await
        .unwrap();
    // With that of sessions, and `other`.
    assert!((1_000..=1_002).contains(&stored), "{stored}");
}
