//! What time alone changes, on whichever node.

use super::*;

over_http! {
    async fn a_stopped_feed_turns_ok_into_critical_once_on_one_of_two_nodes(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        own.do_everything().await;
        assert_eq!(grades(&own.row().await), ["ok"; 3]);
        let second = own.server.second_node().await;
        let told = own.server.grade_events(&own.acme).await;
        assert_eq!(told.last().map(|(_, grades)| grades[2].clone()), Some("ok".to_owned()));
        let before = told.len();
        for (hours, wanted) in [(25, "ok"), (2, "warning"), (24, "warning"), (2, "critical"), (48, "critical")] {
            own.server.advance(hours * HOUR_MS);
            // Both have the same clock and look at the same time.
            for _ in 0..2 {
                tokio::join!(own.server.judge_backups(), second.judge_backups());
            }
            for node in [&own.server, &second] {
                assert_eq!(grades(&node.posture(&own.acme, Some(&own.organization)).await)[0], wanted);
            }
        }
        let told = own.server.grade_events(&own.acme).await;
        let new: Vec<&str> = told[before..].iter().map(|(_, grades)| grades[0].as_str()).collect();
        assert_eq!(new, ["warning", "critical"], "each once");
    }

    async fn the_event_has_the_row_of_its_moment(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        own.do_everything().await;
        own.server.judge_for(26 * HOUR_MS + 1).await;
        let row = own.row().await;
        let events = own.server.events_of(&own.acme, "backup.posture.changed").await;
        assert_eq!(events.last().expect("an event")["data"], row);
        assert_eq!(grades(&row), ["warning", "warning", "warning"]);
        let other = own.server.tenant("other").await;
        assert_eq!(own.server.grade_events(&other).await, []);
    }

    async fn nothing_is_told_while_the_grades_stay(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        for _ in 0..10 {
            own.do_everything().await;
            own.server.judge_for(DAY_MS).await;
        }
        let told = own.server.grade_events(&own.acme).await;
        assert_eq!(told.last().map(|(_, grades)| grades.each_ref().map(String::as_str).to_owned()), Some(["ok"; 3]));
        // From unknown by the first reports, one at a time.
        assert!(told.len() <= 3, "{told:#?}");
    }

    async fn a_run_counts_for_24_hours_to_the_millisecond(setup: Setup) {
        let own = Customer::open(setup).await;
        let start = own.server.now();
        own.server.judge_for(2 * HOUR_MS).await;
        let ended = |minutes: i64| start.plus_ms(minutes * MINUTE_MS);
        for (minutes, status) in [(0, "success"), (30, "failed"), (30 + 24 * 60, "warning"), (90, "warning")] {
            let now = own.server.now();
            own.server.judge_until(if ended(minutes) > now { ended(minutes).plus_ms(-MINUTE_MS) } else { now }).await;
            own.report(&backup(&own.device, status, ended(minutes))).await;
        }
        for (at, wanted) in [
            (ended(30 + 24 * 60).plus_ms(-1), [0, 2, 1, 0]), (ended(30 + 24 * 60), [0, 2, 0, 0]), (ended(90 + 24 * 60).plus_ms(-1), [0, 2, 0, 0]),
            (ended(90 + 24 * 60), [0, 1, 0, 0]), (ended(30 + 48 * 60), [0, 0, 0, 0]),
        ] {
            own.server.judge_until(at).await;
            assert_eq!(counts(&own.row().await["jobs_24h"]), wanted, "{at}");
            assert_eq!(counts(&own.server.aggregate(&own.acme, "").await["totals"]["jobs_24h"]), wanted, "{at}");
        }
    }

    async fn a_report_of_yesterday_that_comes_today_is_not_of_the_last_24_hours(setup: Setup) {
        let own = Customer::open(setup).await;
        own.back_up("success").await;
        own.server.judge_for(23 * HOUR_MS).await;
        own.report(&backup(&own.device, "failed", own.server.now().plus_ms(-30 * HOUR_MS))).await;
        own.report(&backup(&own.device, "failed", own.server.now().plus_ms(-DAY_MS))).await;
        assert_eq!(counts(&own.row().await["jobs_24h"]), [1, 0, 0, 0]);
        own.server.judge_for(HOUR_MS).await;
        assert_eq!(counts(&own.row().await["jobs_24h"]), [0, 0, 0, 0]);
    }

    async fn the_strip_moves_at_midnight_and_forgets_after_28_days(setup: Setup) {
        let own = Customer::open(setup).await;
        own.back_up("warning").await;
        let day = |date: &str, counts| (date.to_owned(), counts);
        assert_eq!(busy_days(&own.row().await), [day("2026-01-15", [0, 1, 0, 0])]);
        own.server.judge_until(at("2026-02-11T23:59:59.999Z")).await;
        let row = own.row().await;
        assert_eq!((busy_days(&row), &row["days"][0]["date"]), (vec![day("2026-01-15", [0, 1, 0, 0])], &json!("2026-01-15")));
        own.server.advance(1);
        let row = own.row().await;
        assert_eq!((busy_days(&row), &row["days"][27]["date"]), (vec![], &json!("2026-02-12")));
        // A late report of a day that is still shown, and one of a day that is not.
        own.report(&backup(&own.device, "failed", at("2026-01-16T00:00:00Z"))).await;
        own.report(&backup(&own.device, "failed", at("2026-01-15T23:59:59.999Z"))).await;
        assert_eq!(busy_days(&own.row().await), [day("2026-01-16", [0, 0, 1, 0])]);
    }

    async fn the_strip_is_in_the_zone_of_the_schedule_and_counted_anew_when_that_changes(setup: Setup) {
        let own = Customer::open(setup).await;
        own.server.judge_until(at("2026-01-20T12:00:00Z")).await;
        for ended in ["2026-01-16T10:30:00Z", "2026-01-17T23:30:00Z", "2026-01-18T03:00:00Z"] {
            own.report(&backup(&own.device, "success", at(ended))).await;
        }
        let days = async || busy_days(&own.row().await).into_iter().map(|(date, counts)| format!("{} {}", &date[8..], counts[0])).collect::<Vec<_>>();
        assert_eq!(days().await, ["16 1", "17 1", "18 1"], "in UTC without a schedule");
        let in_zone = |zone: &str| json!({"schedule": {"cron": "0 22 * * *", "timezone": zone}});
        own.set(&in_zone("Europe/Berlin")).await;
        assert_eq!(days().await, ["16 1", "18 2"]);
        own.set(&in_zone("America/New_York")).await;
        assert_eq!(days().await, ["16 1", "17 2"]);
        own.set(&in_zone("Pacific/Kiritimati")).await;
        assert_eq!(days().await, ["17 1", "18 2"]);
        own.server.set_policy(&own.acme, "", &in_zone("Asia/Kathmandu")).await;
        own.set(&json!({})).await;
        assert_eq!(days().await, ["16 1", "18 2"], "also where it comes from the tenant");
        // A new one counts in the zone of now.
        own.report(&backup(&own.device, "success", at("2026-01-18T18:14:00Z"))).await;
        own.report(&backup(&own.device, "success", at("2026-01-18T18:15:00Z"))).await;
        assert_eq!(days().await, ["16 1", "18 3", "19 1"]);
    }

    async fn cleaning_reports_changes_nothing_that_is_shown(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets(), "schedule": {"cron": "0 22 * * *", "timezone": "Europe/Berlin"}})).await;
        own.do_everything().await;
        own.back_up_at_night_until(at("2026-03-01T12:00:00Z")).await;
        own.server.judge_until(at("2026-06-20T12:00:00Z")).await;
        let laggard = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.report(&backup(&laggard, "failed", own.server.now().plus_ms(-100 * DAY_MS))).await;
        let before = own.server.aggregate(&own.acme, "").await;
        let runs = own.runs().await;
        kernel::jobs::delete_expired(&own.server.app, &tenant_control::features::install().retention).await.expect("cleaning");
        assert!(own.runs().await < runs - 50, "{} of {runs}", own.runs().await);
        own.server.judge_backups().await;
        assert_eq!(own.server.aggregate(&own.acme, "").await, before);
        own.back_up("failed").await;
        own.server.judge_for(DAY_MS).await;
        let row = own.row().await;
        assert_eq!(&row["last_success_at"], &before["data"][0]["last_success_at"]);
    }

    async fn a_second_node_counts_a_report_at_the_same_moment(setup: Setup) {
        let own = Customer::open(setup).await;
        let second = own.server.second_node().await;
        let start = own.server.now();
        let send = async |n: i64| {
            let node = if n % 2 == 0 { &own.server } else { &second };
            node.report(&own.key, &backup(&own.device, "failed", start.plus_ms(-n * 1_000))).await
        };
        futures_util::future::join_all((0..64).map(send)).await;
        let row = own.row().await;
        assert_eq!((counts(&row["jobs_24h"]), &row["max_consecutive_failures"]), ([0, 0, 64, 0], &json!(64)));
        assert_eq!(busy_days(&row), [("2026-01-15".to_owned(), [0, 0, 64, 0])]);
        assert_eq!(own.server.kinds_of(&own.acme, "backup.job.failed").await.len(), 64);
    }
}

impl Customer {
    /// A good backup each night, a minute after the scheduled moment in Berlin.
    async fn back_up_at_night_until(&self, end: Timestamp) {
        let mut ended = at("2026-01-15T21:01:00Z");
        while ended < end {
            self.server.judge_until(ended).await;
            self.report(&backup(&self.device, "success", ended)).await;
            ended = ended.plus_ms(DAY_MS);
        }
    }

    /// How many runs are stored.
    async fn runs(&self) -> i64 {
        let system = self.server.app.store.system(kernel::store::Purpose::Cli);
        system.get_one("SELECT COUNT(*) FROM backup_runs", kernel::args![]).await.expect("a count")
    }
}
