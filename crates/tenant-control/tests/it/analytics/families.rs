//! Each family counts what happened to its records.

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};

use super::*;
use crate::asset_inventory::{add, with};
use crate::support::backups::{backup, targets};
use crate::support::clouds;
use crate::support::devices::IngestKey;
use crate::support::receiver::Receiver;
use crate::support::workflows::{self, approval, manual, ticket};
use crate::webhooks::endpoint;

over_http! {
    async fn devices_are_counted_by_how_they_stood(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        server.go_to(at("2026-02-02T09:00:00Z"));
        let seen = server.now();
        let fresh = |name: &str| with(name, |full| full.device.last_seen_at = Some(seen));
        let web = add(&server, &acme, fresh("web01")).await;
        add(&server, &acme, fresh("web02")).await;
        server.advance(HOUR_MS);
        server.look_at_devices().await;
        server.advance(DAY_MS);
        server.delete_device(&acme, &web).await;
        server.advance(60 * DAY_MS);
        server.look_at_devices().await;
        let shown = server.get("/api/rmm/reports/asset-inventory?view=summary").cookie(&acme.admin).await.ok(200);
        let figures = server.figures(&acme, "since=2026-02-01T00:00:00Z&include=devices").await;
        let totals = &figures["devices"]["totals"];
        assert_eq!((&totals["added"], &totals["removed"], &totals["total"]), (&json!(2), &json!(1), &json!(1)));
        assert_eq!(totals["total"], shown["total"]);
        for status in ["online", "offline", "stale"] {
            let counted = shown["status"].as_array().unwrap().iter().find(|row| row["value"] == status);
            let expected = counted.map_or(0, |row| row["count"].as_i64().unwrap());
            assert_eq!(totals[status], expected, "{status}: {shown}");
        }
        assert_eq!(column(&figures["devices"], "/total")[..4], [0, 2, 1, 1].map(Value::from));
    }

    async fn backups_count_when_they_ended_and_missed_ones_until_they_come(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let key: IngestKey = server.ingest_key(&acme).await;
        let device = server.machine(&acme, "web01", None).await;
        let policy = json!({"schedule": {"cron": "0 22 * * *", "timezone": "UTC"}, "targets": targets()});
        server.put("/api/backup/config").cookie(&acme.admin).json(&policy).await.ok(200);
        server.judge_until(at("2026-02-02T22:30:00Z")).await;
        server.report(&key, &backup(&device, "success", server.now())).await;
        server.judge_until(at("2026-02-04T12:00:00Z")).await;
        let query = "since=2026-02-02T00:00:00Z&until=2026-02-05T00:00:00Z&include=backups";
        let figures = server.figures(&acme, query).await;
        assert_eq!(column(&figures["backups"], "/success"), [1, 0, 0].map(Value::from));
        assert_eq!(column(&figures["backups"], "/missed"), [0, 1, 0].map(Value::from));
        assert_eq!(column(&figures["backups"], "/coverage_percent"), [json!(100.0), json!(100.0), json!(0.0)]);
        // The run of the second evening is told late.
        server.report(&key, &backup(&device, "warning", at("2026-02-03T22:20:00Z"))).await;
        let figures = server.figures(&acme, query).await;
        assert_eq!(column(&figures["backups"], "/missed"), [0, 0, 0].map(Value::from));
        assert_eq!(column(&figures["backups"], "/warning"), [0, 1, 0].map(Value::from));
        assert_eq!(figures["backups"]["totals"]["coverage_percent"], 100.0);
        let row = server.posture(&acme, None).await;
        assert_eq!(row["coverage_percent"], 100.0);
    }

    async fn runs_of_workflows_are_counted_by_how_they_ended(setup: Setup) {
        let server = workflows::open(setup).await;
        let acme = server.tenant("acme").await;
        let good = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        let waiting = server.workflow(&acme, &manual([approval("ask")])).await;
        server.post_run(&acme, &good, &json!({"dry_run": true})).await;
        server.start_run(&acme, &good, &json!({})).await;
        let cancelled = server.start_run(&acme, &waiting, &json!({})).await;
        let rejected = server.start_run(&acme, &waiting, &json!({})).await;
        server.work().await;
        server.advance(MINUTE_MS);
        server.tell_run(&acme, &cancelled, "cancel").await.is(200);
        server.tell_step(&acme, &rejected, &json!({"action": "reject", "step_id": "ask"})).await.is(200);
        server.work().await;
        server.advance(1);
        let figures = server.figures(&acme, "include=workflows").await;
        let totals = &figures["workflows"]["totals"];
        let expected = json!({
            "runs": 3, "succeeded": 1, "failed": 1, "cancelled": 1, "duration_seconds": {"p50": 60.0, "p90": 60.0}
        });
        assert_eq!(totals, &expected);
    }

    async fn deliveries_are_counted_once_and_with_their_lag(setup: Setup) {
        let server = crate::webhooks::open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        endpoint(&server, &acme, &receiver.url("/hook"), &["api_key.*"]).await;
        server.key(&acme, &["tickets:read"]).await;
        server.advance(2_000);
        server.key(&acme, &["tickets:read"]).await;
        server.advance(1_000);
        server.sender.run_due().await.unwrap();
        server.advance(1);
        let figures = server.figures(&acme, "include=webhooks").await;
        let expected = json!({"delivered": 2, "failed": 0, "lag_ms": {"p50": 1_000.0, "p99": 3_000.0}});
        assert_eq!(figures["webhooks"]["totals"], expected);
        // What is sent again an hour later is delivered, and was not late.
        server.advance(HOUR_MS);
        let sent = server.get("/api/admin/webhooks/deliveries").cookie(&acme.admin).await.ok(200);
        let resend = json!({"action": "resend", "delivery_id": sent["data"][0]["id"]});
        server.post("/api/admin/webhooks/deliveries").cookie(&acme.admin).json(&resend).await.is(202);
        server.sender.run_due().await.unwrap();
        server.advance(1);
        let figures = server.figures(&acme, "include=webhooks").await;
        let expected = json!({"delivered": 3, "failed": 0, "lag_ms": {"p50": 1_000.0, "p99": 3_000.0}});
        assert_eq!(figures["webhooks"]["totals"], expected);
    }

    async fn machines_are_counted_by_state_and_by_what_they_cost(setup: Setup) {
        let (server, clouds) = clouds::open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        let (first, _) = (stub.add("acme", "web-1"), stub.add("acme", "web-2"));
        stub.change(first, |machine| "off".clone_into(&mut machine.state));
        server.connect(&acme, stub, "acme").await;
        let connected = server.now();
        server.advance(10 * HOUR_MS);
        let figures = server.figures(&acme, &format!("since={}&include=vms", connected.plus_ms(-HOUR_MS))).await;
        let totals = &figures["vms"]["totals"];
        let states = |name: &str| totals["by_state"][name].as_i64().unwrap();
        assert_eq!((&totals["total"], states("running"), states("stopped")), (&json!(2), 1, 1));
        // 3.79 a month of 730 hours, for two machines and ten hours.
        assert_eq!(totals["spend"]["currency"], "EUR");
        let amount = totals["spend"]["amount"].as_f64().unwrap();
        assert!((amount - 2.0 * 10.0 * 3.79 / 730.0).abs() < 0.001, "{totals}");
        // Within a quarter of an hour, too.
        for (first, minutes) in [(7, 1_u32), (7, 16), (8, 60 * 9 - 7)] {
            let since = connected.plus_ms(first * MINUTE_MS);
            let until = since.plus_ms(i64::from(minutes) * MINUTE_MS);
            let figures = server.figures(&acme, &format!("since={since}&until={until}&include=vms")).await;
            let hours = f64::from(minutes) / 60.0;
            let amount = figures["vms"]["totals"]["spend"]["amount"].as_f64().unwrap_or_default();
            assert!((amount - 2.0 * hours * 3.79 / 730.0).abs() < 0.000_2, "{amount} of {hours} hours");
        }
        let before = format!("since={}&until={}&include=vms", connected.plus_ms(-HOUR_MS), connected.plus_ms(-1));
        assert_eq!(server.figures(&acme, &before).await["vms"]["totals"]["spend"], Value::Null);
        let daily: f64 = column(&figures["vms"], "/spend").iter().filter_map(|spend| spend["amount"].as_f64()).sum();
        assert!((amount - daily).abs() < 0.001, "{figures}");
    }
}
