//! Runs that the calendar starts: once each, by the clocks of their place, and once for all that were missed.

use kernel::base::{DAY_MS, MINUTE_MS, SECOND_MS, Timestamp};
use serde_json::{Value, json};

use crate::support::workflows::{Step, assert_ended, manual, on_schedule, open, step, time, wait};
use crate::support::{Server, Tenancy, over_http};

fn tick() -> Step {
    step("tick", "event.emit", json!({"name": "tick", "data": {}}))
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).expect("a time")
}

/// The moments for which a workflow was started, as they are written without their date's year and seconds.
async fn fired(server: &Server, tenancy: &Tenancy, workflow: &Value) -> Vec<String> {
    let runs = server.runs_of(tenancy, workflow).await;
    runs.iter().map(|run| run["trigger"]["scheduled_for"].as_str().expect("a time")[5..16].to_owned()).collect()
}

/// What a schedule does in a zone from one moment to another.
async fn fires(server: &Server, tenancy: &Tenancy, cron: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    server.advance_to(at(from));
    let workflow = server.workflow(tenancy, &on_schedule(cron, zone, [tick()])).await;
    server.work_for(at(to).as_millis() - server.now().as_millis()).await;
    let fired = fired(server, tenancy, &workflow).await;
    server.delete_workflow(tenancy, &workflow).await;
    fired
}

over_http! {
    async fn a_schedule_fires_once_at_each_of_its_moments(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let start = server.now();
        let workflow = server.workflow(&acme, &on_schedule("* * * * *", "UTC", [tick()])).await;
        assert_eq!(time(&workflow["next_run_at"]), start.plus_ms(MINUTE_MS), "not the moment at which it was made");
        server.work_for(30 * MINUTE_MS).await;
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!(runs.len(), 30);
        for (place, run) in (1..).zip(&runs) {
            let moment = start.plus_ms(place * MINUTE_MS);
            assert_eq!((time(&run["trigger"]["scheduled_for"]), time(&run["created_at"])), (moment, moment));
            assert_eq!(
                (&run["trigger"]["type"], &run["trigger"]["late"], &run["trigger"]["by"]),
                (&json!("schedule"), &json!(false), &json!(null))
            );
            assert_eq!((&run["status"], &run["input"]), (&json!("succeeded"), &json!({})));
        }
        assert_eq!(server.events_of(&acme, "custom.tick").await.len(), 30);
        let now = server.read_workflow(&acme, &workflow).await;
        assert_eq!(time(&now["next_run_at"]), start.plus_ms(31 * MINUTE_MS));
        assert_eq!(
            (&now["version"], &now["updated_at"]),
            (&workflow["version"], &workflow["updated_at"]),
            "nobody changed it"
        );
    }

    async fn a_schedule_goes_by_the_clocks_of_its_place(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let daily =
            fires(&server, &acme, "30 9 * * 1-5", "Europe/Berlin", "2026-01-15T10:00:00Z", "2026-01-20T00:00:00Z")
                .await;
        assert_eq!(daily, ["01-16T08:30", "01-19T08:30"], "not on the weekend");
        let summer =
            fires(&server, &acme, "30 9 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-30T00:00:00Z").await;
        assert_eq!(summer, ["03-28T08:30", "03-29T07:30"]);
    }

    async fn a_time_that_a_day_does_not_have_is_the_first_moment_after_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (from, to) = ("2026-03-07T12:00:00Z", "2026-03-09T12:00:00Z");
        let fixed = fires(&server, &acme, "30 2 * * *", "America/New_York", from, to).await;
        assert_eq!(fixed, ["03-08T07:00", "03-09T06:30"]);
    }

    async fn what_fires_all_the_time_fires_through_a_lost_hour_as_if_nothing_were(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (from, to) = ("2026-03-08T06:10:00Z", "2026-03-08T08:05:00Z");
        let often = fires(&server, &acme, "*/30 * * * *", "America/New_York", from, to).await;
        assert_eq!(often, ["03-08T06:30", "03-08T07:00", "03-08T07:30", "03-08T08:00"]);
    }

    async fn a_time_that_a_day_has_twice_is_the_first_of_them(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (from, to) = ("2026-10-31T12:00:00Z", "2026-11-02T12:00:00Z");
        let fixed = fires(&server, &acme, "30 1 * * *", "America/New_York", from, to).await;
        assert_eq!(fixed, ["11-01T05:30", "11-02T06:30"]);
    }

    async fn what_fires_all_the_time_fires_in_both_of_two_hours(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (from, to) = ("2026-11-01T04:45:00Z", "2026-11-01T07:05:00Z");
        let often = fires(&server, &acme, "*/30 * * * *", "America/New_York", from, to).await;
        assert_eq!(often, ["11-01T05:00", "11-01T05:30", "11-01T06:00", "11-01T06:30", "11-01T07:00"]);
    }

    async fn a_place_that_changes_its_clocks_by_half_an_hour_is_served_as_well(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (from, to) = ("2026-10-02T16:00:00Z", "2026-10-04T16:00:00Z");
        let fixed = fires(&server, &acme, "15 2 * * *", "Australia/Lord_Howe", from, to).await;
        assert_eq!(fixed, ["10-03T15:30", "10-04T15:15"]);
    }

    async fn what_was_missed_is_made_up_for_once(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let start = server.now();
        let workflow = server.workflow(&acme, &on_schedule("0 * * * *", "UTC", [tick()])).await;
        server.advance(7 * DAY_MS + 10 * MINUTE_MS);
        server.work().await;
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!(runs.len(), 1, "{runs:#?}");
        assert_eq!(runs[0]["trigger"]["late"], true);
        let moment = time(&runs[0]["trigger"]["scheduled_for"]);
        assert!(moment > start && moment <= server.now(), "{moment}");
        let now = server.read_workflow(&acme, &workflow).await;
        assert_eq!(
            time(&now["next_run_at"]),
            start.plus_ms(7 * DAY_MS + 60 * MINUTE_MS),
            "after now, not after what was missed"
        );
        server.work_for(50 * MINUTE_MS).await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!((runs.len(), &runs[1]["trigger"]["late"]), (2, &json!(false)));
    }

    async fn more_than_a_minute_is_late(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &on_schedule("*/10 * * * *", "UTC", [tick()])).await;
        server.advance(10 * MINUTE_MS + 60 * SECOND_MS);
        server.work().await;
        server.advance(10 * MINUTE_MS + SECOND_MS);
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        let late: Vec<&Value> = runs.iter().map(|run| &run["trigger"]["late"]).collect();
        assert_eq!(late, [false, true]);
    }

    async fn a_schedule_counts_from_when_it_is_enabled(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &on_schedule("0 * * * *", "UTC", [tick()])).await;
        let off = server.change_workflow(&acme, &workflow, &json!({"enabled": false})).await;
        assert_eq!(off["next_run_at"], json!(null));
        server.work_for(3 * 60 * MINUTE_MS + MINUTE_MS).await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 0);
        let on = server.change_workflow(&acme, &workflow, &json!({"enabled": true})).await;
        assert_eq!(time(&on["next_run_at"]), server.now().plus_ms(59 * MINUTE_MS));
        server.work().await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 0, "what was missed meanwhile does not count");
        server.work_for(59 * MINUTE_MS).await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!((runs.len(), &runs[0]["trigger"]["late"]), (1, &json!(false)));
    }

    async fn another_schedule_takes_the_place_of_the_first(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let start = server.now();
        let workflow = server.workflow(&acme, &on_schedule("30 * * * *", "UTC", [tick()])).await;
        let changed = json!({"on": {"schedule": {"cron": "45 * * * *", "timezone": "UTC"}}});
        let changed = server.change_workflow(&acme, &workflow, &changed).await;
        assert_eq!(time(&changed["next_run_at"]), start.plus_ms(45 * MINUTE_MS));
        server.work_for(90 * MINUTE_MS).await;
        assert_eq!(fired(&server, &acme, &workflow).await, ["01-15T10:45"]);
        let by_hand = manual([tick()]);
        // A merge patch: what it is no longer started by has to be said.
        let changed = json!({"on": {"schedule": null, "manual": by_hand["on"]["manual"]}});
        assert_eq!(server.change_workflow(&acme, &workflow, &changed).await["next_run_at"], json!(null));
        server.work_for(2 * 60 * MINUTE_MS).await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 1);
    }

    async fn one_that_is_gone_fires_no_more(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &on_schedule("* * * * *", "UTC", [tick()])).await;
        server.work_for(2 * MINUTE_MS).await;
        server.delete_workflow(&acme, &workflow).await;
        server.work_for(10 * MINUTE_MS).await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 2);
    }

    async fn a_scheduled_workflow_can_be_run_by_hand(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let definition =
            on_schedule("0 0 * * *", "UTC", [tick().when("event == null && run.trigger.type == 'manual'")]);
        let run = server.run(&acme, &definition).await;
        assert_ended(&run, "succeeded: tick succeeded");
        assert_eq!((&run["trigger"]["type"], &run["trigger"]["scheduled_for"]), (&json!("manual"), &json!(null)));
    }

    async fn a_run_does_not_hold_up_the_next_of_its_schedule(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let steps = [wait("long", 150), tick().needs(&["long"])];
        let workflow = server.workflow(&acme, &on_schedule("* * * * *", "UTC", steps)).await;
        server.work_for(4 * MINUTE_MS).await;
        let runs = server.runs_of(&acme, &workflow).await;
        let states: Vec<&Value> = runs.iter().map(|run| &run["status"]).collect();
        assert_eq!(states, ["succeeded", "waiting", "waiting", "waiting"]);
    }
}
