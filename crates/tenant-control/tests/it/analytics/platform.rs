//! The figures of all tenants, for platform operators alone.

use kernel::base::{DAY_MS, MINUTE_MS};

use super::*;
use crate::support::people::KEYS;
use crate::tickets::make;

over_http! {
    async fn only_a_platform_operator_and_keys_that_they_made_may_read_them(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let answer = server.get(PLATFORM).cookie(&acme.admin).await;
        assert_eq!((answer.status, &answer.json()["required_scope"]), (403, &json!("platform:read")));
        let all = server.key(&acme, &["*"]).await;
        server.get(PLATFORM).key(&all.plain).await.is(403);
        let body = json!({"name": "Key", "scopes": ["platform:read"]});
        server.post(KEYS).cookie(&acme.admin).json(&body).await.is(403);
        let operator = server.tenant_of_operator("platform").await;
        server.get(PLATFORM).cookie(&operator.admin).await.is(200);
        let key = server.key_with(&operator, &body).await;
        server.get(PLATFORM).key(&key.plain).await.is(200);
    }

    async fn figures_of_all_tenants_add_up(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant_of_operator("acme").await, server.tenant("globex").await);
        server.go_to(at("2026-01-20T12:00:00Z"));
        make(&server, &acme, &json!({})).await;
        server.fold().await;
        server.go_to(at("2026-02-20T12:00:00Z"));
        for (tenancy, tickets) in [(&acme, 1), (&globex, 3)] {
            for _ in 0..tickets {
                make(&server, tenancy, &json!({"priority": "high"})).await;
            }
            server.machine(tenancy, "web01", None).await;
        }
        server.fold().await;
        server.advance(DAY_MS);
        kernel::jobs::announce_keys(&server.app, "node-a", &[]).await.unwrap();
        server.fold().await;
        let figures = server.get(format!("{PLATFORM}?since=2026-02-20T00:00:00Z&until=2026-02-21T00:00:00Z")).cookie(&acme.admin).await.ok(200);
        assert_eq!(figures["tenants"], json!({"total": 2, "active": 2}));
        let tickets = &figures["tickets"]["totals"];
        assert_eq!((&tickets["created"], &tickets["open"], &tickets["by_priority"]["high"]), (&json!(4), &json!(5), &json!(4)));
        assert_eq!(tickets.get("by_organization"), None);
        assert_eq!(figures["api_usage"]["totals"].get("by_key"), None);
        assert_eq!(figures["api_usage"]["totals"]["by_route"][0]["route"], "POST /api/psa/tickets");
        let top: Vec<(&str, i64, i64)> = figures["top_tenants"].as_array().unwrap().iter()
            .map(|row| (row["slug"].as_str().unwrap(), row["tickets"].as_i64().unwrap(), row["devices"].as_i64().unwrap())).collect();
        assert_eq!(top, [("globex", 3, 1), ("acme", 1, 1)]);
        assert_eq!(figures["growth"], json!({"tenants": 0.0, "tickets": null, "devices": null}));
        let node = &figures["nodes"][0];
        assert_eq!((&node["version"], &node["status"]), (&json!(env!("CARGO_PKG_VERSION")), &json!("running")), "{figures}");
        server.advance(2 * MINUTE_MS);
        // The month before had one ticket.
        let figures = server.get(format!("{PLATFORM}?since=2026-01-22T00:00:00Z&until=2026-02-21T00:00:00Z&include=tickets")).cookie(&acme.admin).await.ok(200);
        assert_eq!(figures["growth"]["tickets"], 300.0);
        assert_eq!(figures["nodes"][0]["status"], "lost");
        assert_eq!(figures.get("devices"), None);
        let csv = server.get(format!("{PLATFORM}?format=csv&include=tickets")).cookie(&acme.admin).await;
        assert_eq!(csv.status, 200);
    }

    /// A range that no hour ends at has its tenants and routes, too.
    async fn parts_of_an_hour_have_their_tenants(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant_of_operator("acme").await;
        server.go_to(at("2026-02-20T12:07:00Z"));
        let begin = server.now();
        make(&server, &acme, &json!({})).await;
        server.advance(2 * MINUTE_MS);
        server.fold().await;
        server.advance(MINUTE_MS);
        let query = |since: Timestamp, until: Timestamp| format!("{PLATFORM}?since={since}&until={until}&include=api_usage");
        for (since, until, requests) in [(0, 1, 1), (1, 2, 0), (-20, 2, 1)] {
            let (since, until) = (begin.plus_ms(since * MINUTE_MS), begin.plus_ms(until * MINUTE_MS));
            let figures = server.get(query(since, until)).cookie(&acme.admin).await.ok(200);
            assert_eq!(figures["tenants"]["active"], requests, "{since}");
            assert_eq!(figures["top_tenants"].pointer("/0/tickets"), (requests > 0).then_some(&json!(1)), "{since}");
            assert_eq!(figures["api_usage"]["totals"]["requests"], requests, "{since}");
        }
        // Until now, without an end of its own.
        let figures = server.get(PLATFORM).cookie(&acme.admin).await.ok(200);
        assert_eq!((&figures["tenants"]["active"], &figures["top_tenants"][0]["tickets"]), (&json!(1), &json!(1)));
    }
}
