//! When a delivery is tried again, and when it is given up.

use std::time::Duration;

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use serde_json::json;

use super::WEBHOOKS;
use super::drive::{delivery, hook, log, look, patient, publish_one, run, run_next};
use crate::support::over_http;
use crate::support::receiver::{Behaviour, Receiver};

/// The contract's waits between attempts.
const WAITS_MS: [i64; 9] = [
    5 * SECOND_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    5 * HOUR_MS,
    10 * HOUR_MS,
    14 * HOUR_MS,
    20 * HOUR_MS,
    24 * HOUR_MS,
];

#[track_caller]
fn within_a_fifth(waited_ms: i64, planned_ms: i64) {
    assert!((planned_ms * 8 / 10..=planned_ms * 12 / 10).contains(&waited_ms), "{waited_ms} for {planned_ms}");
}

fn answer_with(status: u16, header: (&str, &str), body: Vec<u8>) -> Behaviour {
    Behaviour::AnswerWith { status, headers: vec![(header.0.to_owned(), header.1.to_owned())], body }
}

over_http! {
    async fn a_delivery_that_only_fails_is_tried_ten_times_over_days_and_given_up(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        let mut attempts: Vec<Timestamp> = vec![server.now()];
        loop {
            let waiting = delivery(&server, &acme, &hook, &event).await;
            if waiting["status"] != "pending" {
                break;
            }
            let due = run_next(&server).await.expect("a pending delivery is due at some time");
            assert_eq!(waiting["next_attempt_at"], due.to_string());
            assert_eq!(waiting["waiting_for"], "retry");
            attempts.push(due);
            assert!(attempts.len() < 20, "without an end");
        }
        let waits: Vec<i64> = attempts.windows(2).map(|pair| pair[1].as_millis() - pair[0].as_millis()).collect();
        assert_eq!(waits.len(), WAITS_MS.len(), "{waits:?}");
        waits.iter().zip(WAITS_MS).for_each(|(waited, planned)| within_a_fifth(*waited, planned));
        let given_up = delivery(&server, &acme, &hook, &event).await;
        assert_eq!(given_up["status"], "failed");
        assert!(given_up["next_attempt_at"].is_null() && given_up["waiting_for"].is_null(), "{given_up}");
        let noted = given_up["attempts"].as_array().unwrap().iter();
        let noted: Vec<&str> = noted.map(|one| one["at"].as_str().unwrap()).collect();
        assert_eq!(noted, attempts.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(run_next(&server).await, None, "nothing is left to do");
        let received = receiver.received();
        assert_eq!(received.len(), 10);
        for (request, at) in received.iter().zip(&attempts) {
            assert_eq!(request.webhook_id(), event.id.to_string());
            assert_eq!(request.body, received[0].body);
            assert_eq!(request.headers["webhook-timestamp"], (at.as_millis() / 1_000).to_string());
        }
        let record = look(&server, &acme, &hook).await;
        assert_eq!((&record["status"], &record["consecutive_failures"]), (&json!("enabled"), &json!(10)));
    }

    async fn a_success_ends_the_attempts_whenever_it_comes(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for failures in [0, 1, 5, 9] {
            let path = format!("/after/{failures}");
            let script = std::iter::repeat_n(Behaviour::Answer(503), failures);
            receiver.on(&path, script.chain([Behaviour::Answer(200), Behaviour::Answer(500)]));
            hook(&server, &acme, &receiver.url(&path), &json!({"name": failures.to_string()})).await;
        }
        let event = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        while run_next(&server).await.is_some() {}
        let all = server.get(WEBHOOKS).cookie(&acme.admin).await.ok(200);
        for record in all["data"].as_array().unwrap() {
            let failures: usize = record["name"].as_str().unwrap().parse().unwrap();
            assert_eq!(receiver.count_on(&format!("/after/{failures}")), failures + 1);
            let delivery = delivery(&server, &acme, record, &event).await;
            let attempts = delivery["attempts"].as_array().unwrap();
            assert_eq!((&delivery["status"], attempts.len()), (&json!("succeeded"), failures + 1), "{delivery}");
            assert!(delivery["next_attempt_at"].is_null());
            let last = attempts.last().unwrap();
            assert!(last["error"].is_null() && last["status_code"] == 200, "{last}");
            assert_eq!((&record["consecutive_failures"], &record["last_success_at"]), (&json!(0), &last["at"]));
            assert_eq!(record["version"], 1, "only observed");
            assert_eq!(record["updated_at"], record["created_at"]);
        }
    }

    async fn what_the_endpoint_asks_for_counts_when_it_is_later_than_the_schedule(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let busy = |value: &str| answer_with(503, ("retry-after", value), vec![]);
        let script = [
            ("60", Ok(MINUTE_MS)),
            ("1", Err(5 * MINUTE_MS)),
            ("Thu, 15 Jan 2026 10:00:01 GMT", Err(30 * MINUTE_MS)),
            ("Thu, 15 Jan 2026 22:00:00 GMT", Ok(0)),
            ("soon", Err(5 * HOUR_MS)),
            ("2592000", Ok(DAY_MS)),
            ("-5", Err(14 * HOUR_MS)),
            ("99999999999999999999", Err(20 * HOUR_MS)),
        ];
        receiver.on("/hook", script.map(|(value, _)| busy(value)));
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        for (value, wanted) in script {
            let before = server.now().as_millis();
            let due = run_next(&server).await.expect("another attempt").as_millis();
            match wanted {
                Ok(0) => assert_eq!(server.now().to_string(), "2026-01-15T22:00:00.000Z", "{value}"),
                Ok(asked) => assert_eq!(due - before, asked, "{value}"),
                // A number beyond all numbers may count as the longest wait there is.
                Err(_) if value.len() > 10 && due - before == DAY_MS => {}
                Err(planned) => within_a_fifth(due - before, planned),
            }
        }
        assert_eq!(delivery(&server, &acme, &hook, &event).await["attempts"].as_array().unwrap().len(), 9);
    }

    async fn a_busy_endpoint_that_asks_for_time_gets_it(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [answer_with(429, ("retry-after", "7200"), vec![]), Behaviour::Answer(204)]);
        hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        let before = server.now();
        assert_eq!(run_next(&server).await, Some(before.plus_ms(2 * HOUR_MS)));
        assert_eq!(receiver.count(), 2);
    }

    async fn schedule_and_time_out_are_settings(setup: Setup) {
        let mut setup = setup;
        setup.sending.schedule_ms = vec![SECOND_MS, 100 * SECOND_MS];
        setup.sending.timeout = Duration::from_millis(400);
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Hang]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let start = server.now();
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        let first = run_next(&server).await.unwrap();
        within_a_fifth(first.as_millis() - start.as_millis(), SECOND_MS);
        let second = run_next(&server).await.unwrap();
        within_a_fifth(second.as_millis() - first.as_millis(), 100 * SECOND_MS);
        assert_eq!(run_next(&server).await, None);
        let log = log(&server, &acme, &hook).await;
        assert_eq!((&log[0]["status"], receiver.count()), (&json!("failed"), 3));
        for attempt in log[0]["attempts"].as_array().unwrap() {
            assert!((350..10_000).contains(&attempt["duration_ms"].as_i64().unwrap()), "{attempt}");
        }
    }
}
