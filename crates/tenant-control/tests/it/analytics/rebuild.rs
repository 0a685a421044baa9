//! Figures that are added up again: those of the platform too, and as the records have it.

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};
use kernel::store::Purpose;
use tenant_control::features::rebuild::store::{RebuildReport, rebuild_figures};

use super::*;
use crate::tickets::{changed, make, organization};

async fn rebuild(server: &Server) -> RebuildReport {
    rebuild_figures(&server.app.store).await.expect("figures are added up again")
}

async fn spoil(server: &Server, sql: &'static str) {
    let system = server.app.store.system(Purpose::Cli);
    system.write(async move |tx| tx.exec(sql, kernel::args![]).await).await.expect("the store is spoilt");
}

async fn clean(server: &Server) {
    let retention = &tenant_control::features::install().retention;
    kernel::jobs::delete_expired(&server.app, retention).await.expect("what is expired is deleted");
}

over_http! {
    async fn the_sums_of_the_platform_are_those_of_its_tenants(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant_of_operator("acme").await, server.tenant("globex").await);
        for tenancy in [&acme, &globex] {
            server.advance(DAY_MS + HOUR_MS);
            make(&server, tenancy, &json!({"priority": "high"})).await;
            server.machine(tenancy, "web01", None).await;
            server.fold().await;
        }
        server.advance(2 * MINUTE_MS);
        let query = format!("{PLATFORM}?since=2026-01-01T00:00:00Z&until={}&interval=hour", server.now());
        let read = async || {
            let mut figures = server.get(&query).cookie(&acme.admin).await.ok(200);
            // Reading them is a request, too.
            figures["api_usage"] = Value::Null;
            figures["top_tenants"].as_array_mut().unwrap().iter_mut().for_each(|row| row["requests"] = Value::Null);
            figures
        };
        let expected = read().await;
        assert_eq!(expected["tickets"]["totals"]["open"], 2);
        for sql in ["DELETE FROM rollups WHERE tenant_id = ''", "DELETE FROM cohorts WHERE tenant_id = ''", "DELETE FROM rollups WHERE grain = 60"] {
            spoil(&server, sql).await;
            assert_ne!(read().await, expected, "{sql}");
            assert_eq!(rebuild(&server).await.corrected, 0, "{sql}");
            assert_eq!(read().await, expected, "{sql}");
        }
    }

    /// As a node of a version without facts would have done it.
    async fn what_no_fact_tells_is_counted_by_the_records(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        make(&server, &acme, &json!({})).await;
        server.machine(&acme, "web01", None).await;
        make(&server, &globex, &json!({})).await;
        server.advance(HOUR_MS);
        let tickets = "UPDATE tickets SET status = 'closed' WHERE tenant_id = (SELECT id FROM tenants WHERE slug = 'acme')";
        for sql in [tickets, "UPDATE devices SET status = 'offline'"] {
            spoil(&server, sql).await;
        }
        let levels = async |tenancy: &Tenancy| {
            let figures = server.figures(tenancy, "include=tickets,devices").await;
            let devices = &figures["devices"]["totals"];
            [&figures["tickets"]["totals"]["open"], &devices["online"], &devices["offline"]].map(|level| level.as_i64().unwrap())
        };
        assert_eq!(levels(&acme).await, [1, 1, 0]);
        assert_eq!(rebuild(&server).await.corrected, 1);
        server.advance(1);
        assert_eq!((levels(&acme).await, levels(&globex).await), ([0, 0, 1], [1, 0, 0]));
        assert_eq!(rebuild(&server).await.corrected, 0);
    }

    /// The hours of keys and routes are not kept for good, and the days that were made of them are.
    async fn days_of_routes_are_there_when_their_hours_are_gone(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant_of_operator("acme").await;
        make(&server, &acme, &json!({})).await;
        server.fold().await;
        let day = server.now();
        server.advance(420 * DAY_MS);
        clean(&server).await;
        let range = format!("since={}&until={}&include=api_usage", day.plus_ms(-DAY_MS), day.plus_ms(5 * DAY_MS));
        let made = |figures: &Value| {
            let routes = figures["api_usage"]["totals"]["by_route"].as_array().unwrap().clone();
            routes.into_iter().find(|row| row["route"] == "POST /api/psa/tickets").map(|row| row["requests"].clone())
        };
        for rebuilt in [false, true] {
            if rebuilt {
                rebuild(&server).await;
            }
            assert_eq!(made(&server.figures(&acme, &range).await), Some(json!(1)), "{rebuilt}");
            let platform = server.get(format!("{PLATFORM}?{range}")).cookie(&acme.admin).await.ok(200);
            assert_eq!(made(&platform), Some(json!(1)), "{rebuilt}");
            assert_eq!(platform["tenants"]["active"], 1, "{rebuilt}");
        }
    }

    /// One row that is damaged is not the end of everybody's figures.
    async fn what_cannot_be_read_stops_nobody(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        make(&server, &acme, &json!({})).await;
        server.fold().await;
        make(&server, &acme, &json!({})).await;
        make(&server, &globex, &json!({})).await;
        for sql in [
            "UPDATE rollups SET summary = $1",
            "UPDATE cohorts SET body = $1",
            "UPDATE facts_queue SET body = $1 WHERE id = (SELECT MIN(id) FROM facts_queue)",
        ] {
            let system = server.app.store.system(Purpose::Cli);
            let damage = async move |tx: &mut kernel::store::Tx| tx.exec(sql, kernel::args![vec![255_u8]]).await;
            system.write(damage).await.expect("the store is damaged");
        }
        server.fold().await;
        rebuild(&server).await;
        server.advance(1);
        for (tenancy, open) in [(&acme, 2), (&globex, 1)] {
            assert_eq!(server.figures(tenancy, "include=tickets").await["tickets"]["totals"]["open"], open);
        }
    }

    /// The facts of that time are gone, and the sums of its day are what is left.
    async fn how_tickets_stood_long_ago_is_known_by_the_day(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let globex = organization(&server, &acme, "globex").await;
        server.go_to(at("2026-02-02T09:07:00Z"));
        let ticket = make(&server, &acme, &json!({"organization_id": globex})).await;
        server.advance(3 * DAY_MS);
        changed(&server, &acme, &ticket, &json!({"status": "resolved"})).await;
        server.fold().await;
        server.advance(500 * DAY_MS);
        clean(&server).await;
        for (until, new, resolved) in [("2026-02-02T23:00:00Z", 1, 0), ("2026-02-03T23:00:00Z", 1, 0), ("2026-02-06T23:00:00Z", 0, 1)] {
            let query = format!("since=2026-02-01T23:00:00Z&until={until}&include=tickets&timezone=Europe/Berlin");
            let totals = server.figures(&acme, &query).await["tickets"]["totals"].clone();
            assert_eq!(totals["created"], 1, "{until}");
            assert_eq!((&totals["by_status"]["new"], &totals["by_status"]["resolved"]), (&json!(new), &json!(resolved)), "{until}");
        }
    }
}
