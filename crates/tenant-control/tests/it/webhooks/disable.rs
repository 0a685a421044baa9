//! Endpoints that are switched off, by whom or what ever.

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};
use serde_json::{Value, json};

use super::drive::{
    act, change, counts, delivery, hook, id, log, look, patient, publish_many, publish_one, remove, run, run_for,
    run_next, tally,
};
use super::{DELIVERIES, WEBHOOKS};
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::{Server, Tenancy, over_http};

/// An endpoint that is told of other endpoints only.
async fn watcher(server: &Server, tenancy: &Tenancy, receiver: &Receiver) -> Value {
    hook(server, tenancy, &receiver.url("/watch"), &json!({"events": ["webhook.*"]})).await
}

#[track_caller]
fn is_off(record: &Value, reason: &str) {
    assert_eq!(record["status"], "auto_disabled", "{record}");
    assert_eq!((&record["disabled_reason"], &record["enabled"]), (&json!(reason), &json!(false)));
}

over_http! {
    async fn an_endpoint_that_is_gone_is_switched_off_at_once(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(204), Behaviour::Answer(410)]);
        let watch = watcher(&server, &acme, &receiver).await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_one(&server, &acme, "rec_first").await;
        run(&server).await;
        let events = publish_many(&server, &acme, 40).await;
        run(&server).await;
        let record = look(&server, &acme, &hook).await;
        is_off(&record, "gone");
        assert_eq!(record["version"], 2, "a change of the record, not an observation");
        let asked = receiver.count_on("/hook") - 1;
        assert!((1..=8).contains(&asked), "{asked} attempts; only those under way at the 410 are due to chance");
        let expected = [("failed", asked), ("skipped auto_disabled", 40 - asked), ("succeeded", 1)];
        let mut tally = tally(&server, &acme, &hook).await;
        // It also wants to know of itself, but is off by then.
        let own = delivery_of_kind(&server, &acme, &hook, "webhook.auto_disabled").await;
        assert_eq!((own.len(), &own[0]["skipped_reason"]), (1, &json!("auto_disabled")));
        *tally.get_mut("skipped auto_disabled").unwrap() -= 1;
        assert_eq!(tally, counts(&expected));
        let told = receiver.received_on("/watch");
        assert_eq!(told.len(), 1, "told once");
        let told = told[0].json();
        assert_eq!((&told["type"], &told["data"]["id"]), (&json!("webhook.auto_disabled"), &hook["id"]));
        is_off(&told["data"], "gone");
        assert!(told["data"].get("secret").is_none());
        let late = publish_one(&server, &acme, "rec_late").await;
        run_for(&server, 30 * DAY_MS).await;
        let late = delivery(&server, &acme, &hook, &late).await;
        assert_eq!((&late["status"], &late["skipped_reason"]), (&json!("skipped"), &json!("auto_disabled")));
        assert!(late["next_attempt_at"].is_null() && late["waiting_for"].is_null());
        assert_eq!((receiver.count_on("/hook"), receiver.count_on("/watch")), (asked + 1, 1));
        assert_eq!(events.len(), 40);
        assert_eq!(look(&server, &acme, &watch).await["status"], "enabled");
    }

    async fn an_endpoint_that_says_so_and_breaks_off_is_gone_too(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::BreakOff { status: 410, seconds: 1, drips: false }]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        is_off(&look(&server, &acme, &hook).await, "gone");
        let delivery = delivery(&server, &acme, &hook, &event).await;
        assert_eq!((&delivery["status"], &delivery["attempts"][0]["status_code"]), (&json!("failed"), &json!(410)));
    }

    async fn five_days_of_only_failures_switch_an_endpoint_off_and_not_less(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        watcher(&server, &acme, &receiver).await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let start = server.now();
        // Far apart at first, and by the hour where it matters.
        let hours: Vec<i64> = (0..116).step_by(4).chain(116..=122).collect();
        for (hour, next) in hours.iter().zip(&hours[1..]) {
            publish_one(&server, &acme, "rec_1").await;
            run(&server).await;
            let record = look(&server, &acme, &hook).await;
            if server.now() < start.plus_ms(5 * DAY_MS) {
                assert_eq!(record["status"], "enabled", "after {hour} hours");
            }
            if record["status"] != "enabled" {
                break;
            }
            run_for(&server, (next - hour) * HOUR_MS).await;
        }
        is_off(&look(&server, &acme, &hook).await, "failing");
        let passed = server.now().as_millis() - start.as_millis();
        assert!((5 * DAY_MS..5 * DAY_MS + 2 * HOUR_MS).contains(&passed), "{passed}");
        run(&server).await;
        assert_eq!(receiver.count_on("/watch"), 1);
        let left = tally(&server, &acme, &hook).await;
        assert!(!left.contains_key("pending") && left["skipped auto_disabled"] > 0 && left["failed"] > 0, "{left:?}");
        let before = receiver.count_on("/hook");
        run_for(&server, 10 * DAY_MS).await;
        assert_eq!(receiver.count_on("/hook"), before);
    }

    async fn a_success_in_between_starts_the_five_days_anew(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        for day in 0..12 {
            publish_one(&server, &acme, "rec_1").await;
            run(&server).await;
            assert_eq!(look(&server, &acme, &hook).await["status"], "enabled", "day {day}");
            if day % 4 == 3 {
                receiver.on("/hook", [Behaviour::Answer(200), Behaviour::Answer(500)]);
                publish_one(&server, &acme, "rec_1").await;
                run_for(&server, 2 * MINUTE_MS).await;
                assert!(look(&server, &acme, &hook).await["last_success_at"].is_string());
            }
            run_for(&server, DAY_MS).await;
        }
        assert_eq!(look(&server, &acme, &hook).await["status"], "enabled");
    }

    async fn how_long_only_failures_are_borne_is_a_setting(setup: Setup) {
        let mut setup = setup;
        setup.sending.auto_disable_ms = MINUTE_MS;
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        run_next(&server).await;
        assert_eq!(look(&server, &acme, &hook).await["status"], "enabled");
        run_next(&server).await;
        is_off(&look(&server, &acme, &hook).await, "failing");
    }

    async fn what_waits_and_what_comes_while_an_endpoint_is_disabled_is_skipped_for_good(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_many(&server, &acme, 30).await;
        run(&server).await;
        let sent = receiver.count();
        let record = change(&server, &acme, &hook, &json!({"enabled": false})).await;
        assert_eq!((&record["status"], &record["disabled_reason"]), (&json!("disabled"), &json!("manual")));
        publish_many(&server, &acme, 5).await;
        run(&server).await;
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("skipped disabled", 35)]));
        assert_eq!(look(&server, &acme, &hook).await["backlog"]["pending"], 0);
        receiver.on("/hook", [Behaviour::Answer(204)]);
        let record = change(&server, &acme, &hook, &json!({"enabled": true})).await;
        assert_eq!((&record["status"], &record["disabled_reason"]), (&json!("enabled"), &json!(null)));
        assert_eq!(record["consecutive_failures"], 0, "a new start");
        run_for(&server, 10 * DAY_MS).await;
        assert_eq!(receiver.count(), sent, "enabling sends nothing");
        publish_one(&server, &acme, "rec_new").await;
        run(&server).await;
        assert_eq!((receiver.count(), tally(&server, &acme, &hook).await["succeeded"]), (sent + 1, 1));
    }

    async fn off_and_on_again_in_a_moment_skips_what_waited_and_sends_what_comes_after(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for ordered in [false, true] {
            let path = format!("/{ordered}");
            receiver.on(&path, [Behaviour::Answer(500), Behaviour::Answer(204)]);
            let hook = hook(&server, &acme, &receiver.url(&path), &json!({"ordered": ordered})).await;
            publish_one(&server, &acme, "rec_1").await;
            run(&server).await;
            change(&server, &acme, &hook, &json!({"enabled": false})).await;
            change(&server, &acme, &hook, &json!({"enabled": true})).await;
            let after = publish_one(&server, &acme, "rec_1").await;
            run(&server).await;
            run_for(&server, DAY_MS).await;
            let expected = counts(&[("skipped disabled", 1), ("succeeded", 1)]);
            assert_eq!(tally(&server, &acme, &hook).await, expected, "ordered: {ordered}");
            assert_eq!(delivery(&server, &acme, &hook, &after).await["status"], "succeeded");
            remove(&server, &acme, &hook).await;
        }
    }

    async fn enabling_what_was_switched_off_gives_it_five_new_days(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(410), Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        is_off(&look(&server, &acme, &hook).await, "gone");
        let same = change(&server, &acme, &hook, &json!({"name": "Renamed"})).await;
        is_off(&same, "gone");
        run_for(&server, 6 * DAY_MS).await;
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        run_for(&server, 4 * DAY_MS).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        assert_eq!(look(&server, &acme, &hook).await["status"], "enabled");
        change(&server, &acme, &hook, &json!({"enabled": false})).await;
        assert_eq!(look(&server, &acme, &hook).await["disabled_reason"], "manual");
    }

    async fn an_endpoint_that_is_made_disabled_skips_until_it_is_enabled(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("skipped disabled", 1)]));
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        run(&server).await;
        assert_eq!(receiver.count(), 0);
    }

    async fn deleting_skips_what_waits_and_the_log_stays(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(204), Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        publish_many(&server, &acme, 30).await;
        run(&server).await;
        let sent = receiver.count();
        remove(&server, &acme, &hook).await;
        publish_one(&server, &acme, "rec_2").await;
        run_for(&server, 10 * DAY_MS).await;
        assert_eq!(receiver.count(), sent);
        let log = log(&server, &acme, &hook).await;
        assert_eq!(log.len(), 31, "nothing new");
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("skipped deleted", 30), ("succeeded", 1)]));
        let done = log.iter().find(|delivery| delivery["status"] == "succeeded").unwrap();
        let one = server.get(format!("{DELIVERIES}?id={}", id(done))).cookie(&acme.admin).await.ok(200);
        assert_eq!(one["attempts"][0]["status_code"], 204);
        act(&server, &acme, &json!({"action": "resend", "delivery_id": done["id"]})).await.problem("conflict");
        server.get(format!("{WEBHOOKS}?id={}", id(&hook))).cookie(&acme.admin).await.problem("not_found");
        for action in ["test", "recover"] {
            let mut body = json!({"action": action, "webhook_id": hook["id"]});
            if action == "recover" {
                body["since"] = json!("2026-01-01T00:00:00Z");
            }
            act(&server, &acme, &body).await.problem("not_found");
        }
    }
}

async fn delivery_of_kind(server: &Server, tenancy: &Tenancy, hook: &Value, kind: &str) -> Vec<Value> {
    let target = format!("{DELIVERIES}?webhook_id={}&event_type={kind}", id(hook));
    let page = server.get(target).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().unwrap().clone()
}
