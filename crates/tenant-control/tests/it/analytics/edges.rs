//! Ranges to the millisecond, past ends, and what is late.

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};

use super::*;
use crate::tickets::{changed, make, organization};

over_http! {
    async fn a_range_includes_its_beginning_and_not_its_end(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let moment = at("2026-01-16T12:07:03.123Z");
        server.go_to(moment);
        make(&server, &acme, &json!({})).await;
        server.advance(3 * DAY_MS);
        for (since, until, created) in [(0, 1, 1), (1, 2, 0), (-1, 0, 0), (-1, 1, 1), (0, DAY_MS, 1), (1, DAY_MS, 0)] {
            let (since, until) = (moment.plus_ms(since), moment.plus_ms(until));
            let figures = server.figures(&acme, &format!("since={since}&until={until}&include=tickets")).await;
            let totals = &figures["tickets"]["totals"];
            assert_eq!((&figures["since"], &figures["until"]), (&json!(since), &json!(until)));
            assert_eq!(totals["created"], created, "{since} {until}");
            assert_eq!((&totals["by_status"]["new"], &totals["by_priority"]["medium"]), (&json!(created), &json!(created)), "{since} {until}");
            // A bucket is whole, whatever the range.
            assert_eq!(figures["tickets"]["series"][0]["created"], 1, "{since} {until}");
            assert_eq!(figures["tickets"]["series"][0]["start"], "2026-01-16T00:00:00.000Z");
        }
    }

    async fn a_past_end_shows_how_things_stood_then(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let globex = organization(&server, &acme, "globex").await;
        server.go_to(at("2026-02-02T09:00:00Z"));
        let printer = make(&server, &acme, &json!({"organization_id": globex})).await;
        server.advance(HOUR_MS);
        let mouse = make(&server, &acme, &json!({"priority": "high"})).await;
        server.advance(DAY_MS + 7 * MINUTE_MS);
        changed(&server, &acme, &printer, &json!({"status": "resolved"})).await;
        server.advance(10 * DAY_MS);
        changed(&server, &acme, &mouse, &json!({"status": "resolved", "priority": "low", "organization_id": globex})).await;
        server.advance(40 * DAY_MS);
        let stood = async |until: &str| {
            let figures = server.figures(&acme, &format!("since=2026-02-02T00:00:00Z&until={until}&include=tickets")).await;
            let totals = &figures["tickets"]["totals"];
            let status = |name: &str| totals["by_status"][name].as_i64().unwrap();
            let priority = |name: &str| totals["by_priority"][name].as_i64().unwrap();
            let of = |id: Value| {
                let rows = totals["by_organization"].as_array().unwrap();
                rows.iter().find(|row| row["organization_id"] == id).map_or((0, 0), |row| (row["created"].as_i64().unwrap(), row["open"].as_i64().unwrap()))
            };
            (totals["open"].as_i64().unwrap(), status("new"), status("resolved"), priority("high"), priority("low"), of(json!(globex)), of(Value::Null))
        };
        assert_eq!(stood("2026-02-02T09:30:00Z").await, (1, 1, 0, 0, 0, (1, 1), (0, 0)));
        assert_eq!(stood("2026-02-03T10:06:59.999Z").await, (2, 2, 0, 1, 0, (1, 1), (1, 1)));
        assert_eq!(stood("2026-02-03T10:07:00.001Z").await, (1, 1, 1, 1, 0, (1, 0), (1, 1)));
        assert_eq!(stood("2026-02-10T00:00:00Z").await, (1, 1, 1, 1, 0, (1, 0), (1, 1)));
        assert_eq!(stood("2026-03-10T00:00:00Z").await, (0, 0, 2, 0, 1, (2, 0), (0, 0)));
        assert_eq!(stood("2030-01-01T00:00:00Z").await, (0, 0, 2, 0, 1, (2, 0), (0, 0)));
    }

    async fn the_series_is_whole_and_filled_with_zeros(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        server.go_to(at("2026-02-02T09:00:00Z"));
        make(&server, &acme, &json!({})).await;
        server.advance(2 * DAY_MS);
        let figures = server.figures(&acme, "include=tickets").await;
        let starts = column(&figures["tickets"], "/start");
        assert_eq!((starts.len(), &starts[0], &starts[30]), (31, &json!("2026-01-05T00:00:00.000Z"), &json!("2026-02-04T00:00:00.000Z")));
        assert_eq!(sum(&figures["tickets"], "/created"), 1);
        assert_eq!(column(&figures["tickets"], "/backlog")[27..], [0, 1, 1, 1].map(Value::from));
        assert_eq!(figures["tickets"]["series"][0]["first_response_seconds"], json!({"p50": null, "p90": null}));
        assert_eq!(figures["tickets"]["totals"]["sla_met_percent"], Value::Null);
        let week = server.figures(&acme, "since=2026-02-04T00:00:00Z&interval=week&include=tickets").await;
        assert_eq!(column(&week["tickets"], "/start"), [json!("2026-02-02T00:00:00.000Z")]);
        assert_eq!(week["tickets"]["series"][0]["created"], 1);
        assert_eq!(week["tickets"]["totals"]["created"], 0);
    }

    async fn a_tenant_has_its_own_figures_alone(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        make(&server, &acme, &json!({})).await;
        server.advance(1);
        for (tenancy, created) in [(&acme, 1), (&globex, 0)] {
            let figures = server.figures(tenancy, "include=tickets,api_usage").await;
            assert_eq!(figures["tickets"]["totals"]["created"], created);
            assert_eq!(figures["api_usage"]["totals"]["requests"].as_i64().unwrap() > 0, created == 1);
        }
    }
}
