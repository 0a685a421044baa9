//! Scheduled runs: when one is missed, and what takes that back.

use tenant_control::features::devices::Type;

use super::*;

/// Every night at ten.
fn nightly(zone: &str) -> Value {
    json!({"schedule": {"cron": "0 22 * * *", "timezone": zone}, "rpo_hours": {"server": 50, "workstation": 72}})
}

/// A good run that took so long.
fn ran(device: &str, ended: Timestamp, minutes: i64) -> Value {
    with(&backup(device, "success", ended), &json!({"started_at": ended.plus_ms(-minutes * MINUTE_MS)}))
}

impl Customer {
    /// Days with missed runs, and how many.
    async fn missed(&self) -> Vec<String> {
        let days = busy_days(&self.row().await).into_iter().filter(|(_, counts)| counts[3] > 0);
        days.map(|(date, counts)| format!("{} {}", &date[5..], counts[3])).collect()
    }

    async fn judge_until(&self, moment: &str) {
        self.server.judge_until(at(moment)).await;
    }

    /// Tells of a run that ended then, as soon as it has.
    async fn run_until(&self, ended: &str, minutes: i64) {
        self.judge_until(ended).await;
        self.report(&ran(&self.device, at(ended), minutes)).await;
    }
}

over_http! {
    async fn a_run_that_does_not_come_is_missed_four_hours_later(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&nightly("UTC")).await;
        own.back_up("success").await;
        own.judge_until("2026-01-16T01:59:59.999Z").await;
        assert_eq!(own.missed().await, Vec::<String>::new());
        own.judge_until("2026-01-16T02:00:00Z").await;
        let row = own.row().await;
        assert_eq!((own.missed().await, counts(&row["jobs_24h"])), (vec!["01-15 1".to_owned()], [1, 0, 0, 1]));
        let since = json!("2026-01-15T22:00:00.000Z");
        assert_eq!(reason(&row, "missed_run"), &json!({"code": "missed_run", "severity": "warning", "device_id": own.device, "device_name": "web01", "since": since, "detail": null}));
        assert_eq!(grades(&row)[0], "warning");
        own.judge_until("2026-01-17T02:00:00Z").await;
        assert_eq!(reason(&own.row().await, "missed_run")["since"], since, "of the oldest since the last run");
        own.run_until("2026-01-17T22:10:00Z", 9).await;
        let row = own.row().await;
        assert_eq!((grades(&row)[0], own.missed().await), ("ok", vec!["01-15 1".to_owned(), "01-16 1".to_owned()]));
        assert_eq!(own.server.kinds_of(&own.acme, "backup.job.failed").await, Vec::<String>::new());
    }

    async fn a_run_that_is_under_way_within_the_window_counts_whatever_became_of_it(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&nightly("UTC")).await;
        own.back_up("success").await;
        // Ends as the window opens, an hour early; begins before it closes; covers all of it; fails.
        own.run_until("2026-01-15T21:00:00Z", 60).await;
        own.run_until("2026-01-17T03:00:00Z", 61).await;
        own.run_until("2026-01-18T06:00:00Z", 12 * 60).await;
        own.judge_until("2026-01-18T23:00:00Z").await;
        own.back_up("failed").await;
        own.judge_until("2026-01-19T12:00:00Z").await;
        assert_eq!(own.missed().await, Vec::<String>::new());
        // One that ends too early, and one that begins as the window closes.
        own.run_until("2026-01-19T20:59:59.999Z", 60).await;
        own.run_until("2026-01-20T03:00:00Z", 60).await;
        assert_eq!(own.missed().await, ["01-19 1"]);
        assert_eq!(reasons(&own.row().await).iter().filter(|one| one.starts_with("missed")).count(), 0, "it ran since");
    }

    async fn a_run_that_takes_long_is_waited_for(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&nightly("UTC")).await;
        own.run_until("2026-01-16T04:00:00Z", 6 * 60).await;
        // It begins at ten every night, and is reported when it ends.
        own.run_until("2026-01-17T06:30:00Z", 8 * 60 + 30).await;
        assert_eq!((own.missed().await, own.server.grade_events(&own.acme).await.len()), (Vec::<String>::new(), 1));
        // Half as long again as the last one: until 10:45.
        own.judge_until("2026-01-18T10:44:59.999Z").await;
        assert_eq!(own.missed().await, Vec::<String>::new());
        own.judge_until("2026-01-18T10:45:00Z").await;
        assert_eq!(own.missed().await, ["01-17 1"]);
    }

    async fn of_two_moments_that_are_near_each_has_a_window_of_its_own(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"schedule": {"cron": "0 22,23 * * *", "timezone": "UTC"}, "rpo_hours": {"server": 50, "workstation": 72}})).await;
        own.back_up("success").await;
        // Too late for ten, and too early for eleven, whose window opens a quarter of an hour before.
        own.run_until("2026-01-15T22:44:59Z", 10).await;
        own.judge_until("2026-01-16T12:00:00Z").await;
        assert_eq!(own.missed().await, ["01-15 2"]);
        own.run_until("2026-01-16T22:10:00Z", 9).await;
        own.run_until("2026-01-16T22:45:00Z", 9).await;
        own.judge_until("2026-01-17T12:00:00Z").await;
        assert_eq!(own.missed().await, ["01-15 2"]);
    }

    async fn a_late_report_takes_the_missed_run_away(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&nightly("UTC")).await;
        own.back_up("success").await;
        own.judge_until("2026-01-19T12:00:00Z").await;
        assert_eq!(own.missed().await, ["01-15 1", "01-16 1", "01-17 1", "01-18 1"]);
        // Out of order; verifications and other devices' runs change nothing.
        own.report(&job(&own.device, "verify", "success", at("2026-01-16T22:10:00Z"))).await;
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.report(&ran(&other, at("2026-01-19T11:00:00Z"), 10)).await;
        own.report(&ran(&own.device, at("2026-01-17T22:10:00Z"), 9)).await;
        assert_eq!(own.missed().await, ["01-15 1", "01-16 1", "01-18 1"]);
        assert_eq!(reason(&own.row().await, "missed_run")["since"], "2026-01-18T22:00:00.000Z");
        own.report(&ran(&own.device, at("2026-01-15T22:10:00Z"), 9)).await;
        assert_eq!(own.missed().await, ["01-16 1", "01-18 1"]);
        assert_eq!(counts(&own.row().await["jobs_24h"]), [1, 0, 0, 1]);
        own.report(&ran(&own.device, at("2026-01-18T22:10:00Z"), 9)).await;
        let row = own.row().await;
        assert_eq!((own.missed().await, counts(&row["jobs_24h"]), grades(&row)[0]), (vec!["01-16 1".to_owned()], [2, 0, 0, 0], "ok"));
        own.judge_until("2026-01-19T23:00:00Z").await;
        assert_eq!(counts(&own.row().await["jobs_24h"]), [1, 0, 0, 0], "nothing is counted twice, nothing stays: that of db01");
    }

    async fn weeks_of_nights_have_a_run_each(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&nightly("Europe/Berlin")).await;
        own.back_up("success").await;
        let mut night = at("2026-01-15T21:12:00Z");
        for n in 0..42 {
            if n % 10 != 9 {
                own.server.judge_until(night).await;
                own.report(&ran(&own.device, night, 11)).await;
            }
            night = night.plus_ms(DAY_MS);
        }
        own.judge_until("2026-02-26T12:00:00Z").await;
        let row = own.row().await;
        assert_eq!((row["days"][0]["date"].as_str(), busy_days(&row).len()), (Some("2026-01-30"), 27));
        assert_eq!(own.missed().await, ["02-03 1", "02-13 1", "02-23 1"]);
        let told = own.server.grade_events(&own.acme).await;
        let mut protection: Vec<&str> = told.iter().map(|(_, grades)| grades[0].as_str()).collect();
        protection.dedup();
        assert_eq!(protection, ["ok", "warning", "ok", "warning", "ok", "warning", "ok", "warning", "ok"], "each missed night once: {told:#?}");
    }

    async fn the_hour_that_is_skipped_in_spring_has_a_run_all_the_same(setup: Setup) {
        let own = Customer::open(setup).await;
        own.judge_until("2026-03-27T12:00:00Z").await;
        // On 29 March 2026 there is no half past two in Berlin: it runs as the clocks jump, at 01:00 UTC.
        own.set(&json!({"schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, "rpo_hours": {"server": 100, "workstation": 100}})).await;
        own.back_up("success").await;
        own.run_until("2026-03-28T01:40:00Z", 9).await;
        own.judge_until("2026-03-29T04:59:59.999Z").await;
        assert_eq!(own.missed().await, Vec::<String>::new());
        own.judge_until("2026-03-29T05:00:00Z").await;
        assert_eq!(reason(&own.row().await, "missed_run")["since"], "2026-03-29T01:00:00.000Z");
        assert_eq!(own.missed().await, ["03-29 1"]);
        own.report(&ran(&own.device, at("2026-03-29T01:10:00Z"), 9)).await;
        own.run_until("2026-03-30T00:40:00Z", 9).await;
        own.judge_until("2026-03-30T20:00:00Z").await;
        let row = own.row().await;
        assert_eq!((own.missed().await, grades(&row)[0]), (Vec::new(), "ok"));
        let days: Vec<(String, i64)> = busy_days(&row).into_iter().map(|(date, counts)| (date, counts[0])).collect();
        let day = |date: &str| (date.to_owned(), 1);
        assert_eq!(days, ["2026-03-27", "2026-03-28", "2026-03-29", "2026-03-30"].map(day));
    }

    async fn the_hour_that_comes_twice_in_autumn_has_one_run(setup: Setup) {
        let own = Customer::open(setup).await;
        own.judge_until("2026-10-23T12:00:00Z").await;
        // On 25 October 2026 half past two comes twice in Berlin: at 00:30 and 01:30 UTC.
        own.set(&json!({"schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, "rpo_hours": {"server": 100, "workstation": 100}})).await;
        own.back_up("success").await;
        own.judge_until("2026-10-26T12:00:00Z").await;
        assert_eq!(own.missed().await, ["10-24 1", "10-25 1", "10-26 1"]);
        own.report(&ran(&own.device, at("2026-10-25T01:40:00Z"), 9)).await;
        assert_eq!(own.missed().await, ["10-24 1", "10-26 1"], "the second half past two is within its four hours");
        // The day has 25 hours, and both its ends are its own.
        own.report(&ran(&own.device, at("2026-10-24T22:00:00Z"), 1)).await;
        own.report(&ran(&own.device, at("2026-10-25T22:59:59.999Z"), 1)).await;
        own.report(&ran(&own.device, at("2026-10-25T23:00:00Z"), 1)).await;
        let row = own.row().await;
        let of = |date: &str| counts(row["days"].as_array().unwrap().iter().find(|day| day["date"] == date).unwrap());
        assert_eq!((of("2026-10-25"), of("2026-10-26")), ([3, 0, 0, 0], [1, 0, 0, 1]));
    }

    async fn workstations_that_are_off_at_the_weekend_miss_nothing(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&nightly("UTC")).await;
        // A Friday evening to a Monday morning is 62 hours, within 72.
        let friday = at("2026-01-16T18:00:00Z");
        let kinds = [Type::Workstation, Type::Laptop, Type::Mobile];
        let mut own_devices = Vec::new();
        own.server.judge_until(friday).await;
        own.server.delete_device(&own.acme, &own.device).await;
        for kind in kinds {
            let id = own.server.machine_of(&own.acme, &format!("{kind:?}"), Some(&own.organization), kind).await;
            own.report(&backup(&id, "success", friday)).await;
            own_devices.push(id);
        }
        own.judge_until("2026-01-19T08:00:00Z").await;
        let row = own.row().await;
        assert_eq!((own.missed().await, grades(&row)[0], &row["devices"]["protected"]), (Vec::new(), "ok", &json!(3)));
        own.report(&backup(&own_devices[0], "success", own.server.now())).await;
        own.judge_until("2026-01-19T18:00:00.001Z").await;
        assert_eq!(reasons(&own.row().await).iter().filter(|one| *one == "rpo_missed warning").count(), 2);
    }

    async fn runs_are_judged_from_the_first_report_and_from_when_the_schedule_was_set(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&nightly("UTC")).await;
        own.judge_until("2026-01-18T12:00:00Z").await;
        assert_eq!(own.missed().await, Vec::<String>::new(), "nothing was reported yet");
        // Its first report comes late: from its end on.
        own.report(&ran(&own.device, at("2026-01-16T23:00:00Z"), 10)).await;
        assert_eq!(own.missed().await, ["01-17 1"]);
        // In the middle of what was missed, another schedule: from now on.
        own.set(&json!({"schedule": {"cron": "0 6,18 * * *", "timezone": "UTC"}, "rpo_hours": {"server": 60, "workstation": 72}})).await;
        let row = own.row().await;
        assert_eq!((own.missed().await, reasons(&row).contains(&"missed_run warning".to_owned())), (vec!["01-17 1".to_owned()], false));
        own.judge_until("2026-01-18T21:59:59.999Z").await;
        assert_eq!(own.missed().await, ["01-17 1"]);
        own.judge_until("2026-01-18T22:00:00Z").await;
        assert_eq!(own.missed().await, ["01-17 1", "01-18 1"]);
        assert_eq!(reason(&own.row().await, "missed_run")["since"], "2026-01-18T18:00:00.000Z");
        // A late report of before the change takes what it covers away, and the reason stays that of the schedule of now.
        own.report(&ran(&own.device, at("2026-01-16T23:30:00Z"), 10)).await;
        assert_eq!(reason(&own.row().await, "missed_run")["since"], "2026-01-18T18:00:00.000Z");
        own.report(&ran(&own.device, at("2026-01-17T22:10:00Z"), 10)).await;
        assert_eq!(own.missed().await, ["01-18 1"]);
        own.set(&json!({})).await;
        own.judge_until("2026-01-20T00:00:00Z").await;
        assert_eq!(own.missed().await, ["01-18 1"], "without a schedule nothing is missed");
    }

    async fn a_schedule_of_the_device_is_its_own(setup: Setup) {
        let own = Customer::open(setup).await;
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.server.set_policy(&own.acme, "", &nightly("UTC")).await;
        let hourly = json!({"schedule": {"cron": "0 * * * *", "timezone": "UTC"}});
        own.server.set_policy(&own.acme, &format!("device_id={other}"), &hourly).await;
        own.back_up("success").await;
        own.report(&backup(&other, "success", own.server.now())).await;
        own.judge_until("2026-01-15T13:29:59.999Z").await;
        assert_eq!(own.missed().await, ["01-15 2"], "half of the time to the next: 11:00 and 12:00");
        own.judge_until("2026-01-15T13:30:00Z").await;
        assert_eq!(own.missed().await, ["01-15 3"]);
        assert_eq!(reason(&own.row().await, "missed_run")["device_id"], json!(other));
        own.server.set_policy(&own.acme, &format!("device_id={other}"), &json!({"enabled": false})).await;
        own.judge_until("2026-01-15T23:30:00Z").await;
        assert_eq!(own.missed().await, ["01-15 3"]);
    }

    async fn a_missed_run_stays_with_the_organization_that_missed_it(setup: Setup) {
        let own = Customer::open(setup).await;
        let elsewhere = organization(&own.server, &own.acme, "initech").await;
        own.server.set_policy(&own.acme, "", &nightly("UTC")).await;
        own.back_up("success").await;
        own.judge_until("2026-01-16T12:00:00Z").await;
        let to = elsewhere.parse().unwrap();
        own.server.edit_device(&own.acme, &own.device, move |full| full.device.organization_id = Some(to)).await;
        own.server.judge_backups().await;
        assert_eq!(own.missed().await, ["01-15 1"]);
        // It comes after all, when the device is elsewhere: where it was missed it is missed no more.
        own.report(&ran(&own.device, at("2026-01-15T22:10:00Z"), 9)).await;
        assert_eq!(own.missed().await, Vec::<String>::new());
        assert_eq!(counts(&own.row().await["jobs_24h"])[3], 0);
        let row = own.server.posture(&own.acme, Some(&elsewhere)).await;
        assert_eq!((busy_days(&row), counts(&row["jobs_24h"])), (vec![("2026-01-15".to_owned(), [1, 0, 0, 0])], [1, 0, 0, 0]));
    }
}
