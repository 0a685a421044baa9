//! A history that is imported: what is long over is neither overdue at once nor an alarm.

use super::*;

/// Nothing is too old, so that only verification and restore tests are seen.
const PATIENT: &str = r#"{"rpo_hours": {"server": 8784, "workstation": 8784}, "verification": {"every_days": 30, "restore_test_every_days": 90},
    "retention": {"keep_last": 0, "hourly": 0, "daily": 0, "weekly": 0, "monthly": 0, "yearly": 3}}"#;

over_http! {
    async fn an_imported_history_is_verified_and_restored_in_time_from_its_first_report_on(setup: Setup) {
        let own = Customer::open(setup).await;
        let policy: Value = serde_json::from_str(PATIENT).expect("a policy");
        own.set(&with(&policy, &json!({"targets": targets()}))).await;
        own.server.judge_for(DAY_MS).await;
        let start = own.server.now();
        for days in [300, 200, 100, 1] {
            for target in TARGETS {
                let report = backup(&own.device, "success", start.plus_ms(-days * DAY_MS));
                own.report(&with(&report, &json!({"target": target, "external_id": format!("{target} {days}")}))).await;
            }
        }
        for kind in ["verify", "restore_test"] {
            own.report(&job(&own.device, kind, "success", start.plus_ms(-200 * DAY_MS))).await;
        }
        let row = own.row().await;
        assert_eq!((grades(&row), reasons(&row)), (["ok"; 3], Vec::new()), "{row:#}");
        for (days, code) in [(30, "verification_overdue"), (90, "restore_test_overdue")] {
            let due = start.plus_ms(days * DAY_MS);
            own.server.judge_until(due).await;
            let all = reasons(&own.row().await);
            assert!(!all.contains(&format!("{code} warning")), "{all:?}");
            own.server.judge_for(1).await;
            assert_eq!(reason(&own.row().await, code)["since"], json!(due));
        }
    }

    async fn failures_that_are_long_over_wake_nobody(setup: Setup) {
        let own = Customer::open(setup).await;
        let now = own.server.now();
        for (age_ms, kind, published) in [
            (300 * DAY_MS, "backup", 0), (7 * DAY_MS + 1, "backup", 0), (7 * DAY_MS + 1, "prune", 0), (7 * DAY_MS, "backup", 1), (0, "verify", 2),
        ] {
            own.report(&job(&own.device, kind, "failed", now.plus_ms(-age_ms))).await;
            let events = own.server.kinds_of(&own.acme, "backup.job.failed").await;
            assert_eq!(events.len(), published, "{kind} {age_ms} ms ago");
        }
        assert_eq!(own.row().await["max_consecutive_failures"], 2, "they count all the same, but for what was forgotten");
    }
}
