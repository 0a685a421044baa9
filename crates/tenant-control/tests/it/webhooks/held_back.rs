//! `Retry-After` of 429 and 503 holds the whole endpoint back.

use std::time::Duration;

use kernel::base::{DAY_MS, HOUR_MS, SECOND_MS};
use serde_json::json;

use super::drive::{act, change, hook, id, log, look, patient, publish_many, run, run_for};
use crate::support::over_http;
use crate::support::receiver::{Behaviour, Receiver};

/// What a healthy endpoint starts with; these are under way before the first answer.
const AT_ONCE: usize = 2;

over_http! {
    async fn nothing_is_sent_before_the_moment_that_was_asked_for(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for (path, status) in [("/429", 429), ("/503", 503)] {
            receiver.on(path, [Behaviour::RetryAfter { status, seconds: 60 }]);
            let hook = hook(&server, &acme, &receiver.url(path), &json!({})).await;
            let asked_at = server.now();
            publish_many(&server, &acme, 20).await;
            run(&server).await;
            let asked = receiver.count_on(path);
            assert!(asked <= AT_ONCE, "{asked}");
            let record = look(&server, &acme, &hook).await;
            assert_eq!(record["backlog"]["paused_until"], asked_at.plus_ms(60 * SECOND_MS).to_string(), "{record}");
            assert_eq!(record["backlog"]["paused_reason"], "retry_after");
            let waiting = log(&server, &acme, &hook).await;
            let untried = waiting.iter().filter(|delivery| delivery["attempts"] == json!([]));
            assert!(untried.clone().count() >= 18);
            for delivery in untried {
                assert_eq!(delivery["waiting_for"], "retry_after", "{delivery}");
                assert_eq!(delivery["next_attempt_at"], record["backlog"]["paused_until"]);
            }
            receiver.on(path, [Behaviour::Answer(204)]);
            run_for(&server, 30 * SECOND_MS).await;
            publish_many(&server, &acme, 5).await;
            act(&server, &acme, &json!({"action": "test", "webhook_id": id(&hook)})).await.is(202);
            run_for(&server, 30 * SECOND_MS - 1).await;
            assert_eq!(receiver.count_on(path), asked, "neither new events nor tests come before");
            run_for(&server, 1).await;
            assert!(receiver.count_on(path) > asked, "to the millisecond");
            run_for(&server, 10 * SECOND_MS).await;
            let left = log(&server, &acme, &hook).await;
            assert!(left.iter().all(|delivery| delivery["status"] == "succeeded"), "{left:?}");
        }
    }

    async fn an_answer_whose_body_breaks_off_holds_back_all_the_same(setup: Setup) {
        let mut setup = setup;
        setup.sending.timeout = Duration::from_millis(800);
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let cases = [("/429", 429, false, "connection_broken"), ("/503", 503, true, "timeout")];
        for (path, status, drips, broke) in cases {
            receiver.on(path, [Behaviour::BreakOff { status, seconds: 60, drips }]);
            let hook = hook(&server, &acme, &receiver.url(path), &json!({})).await;
            let asked_at = server.now();
            publish_many(&server, &acme, 20).await;
            run(&server).await;
            let asked = receiver.count_on(path);
            assert!(asked <= AT_ONCE, "{asked}");
            let record = look(&server, &acme, &hook).await;
            assert_eq!(record["backlog"]["paused_until"], asked_at.plus_ms(60 * SECOND_MS).to_string(), "{record}");
            assert_eq!(record["backlog"]["paused_reason"], "retry_after");
            let noted = log(&server, &acme, &hook).await;
            let tried: Vec<_> = noted.iter().filter(|delivery| delivery["attempts"] != json!([])).collect();
            assert_eq!(tried.len(), asked);
            for attempt in tried.iter().map(|delivery| &delivery["attempts"][0]) {
                let (error, answered) = (attempt["error"].as_str().unwrap(), format!("http_status: answered {status}"));
                assert!(error.starts_with(&answered) && error.contains(broke), "{attempt}");
                assert_eq!(attempt["status_code"], status, "{attempt}");
                assert!(attempt["response_body"].as_str().unwrap().starts_with("short"), "{attempt}");
            }
            receiver.on(path, [Behaviour::Answer(204)]);
            run_for(&server, 60 * SECOND_MS - 1).await;
            assert_eq!(receiver.count_on(path), asked);
            run_for(&server, 10 * SECOND_MS).await;
            let left = log(&server, &acme, &hook).await;
            assert!(left.iter().all(|delivery| delivery["status"] == "succeeded"), "{left:?}");
        }
    }

    async fn no_longer_than_a_day_and_not_by_other_answers(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/long", [Behaviour::RetryAfter { status: 429, seconds: 30 * 86_400 }, Behaviour::Answer(204)]);
        receiver.on("/other", [Behaviour::RetryAfter { status: 500, seconds: 3_600 }, Behaviour::Answer(204)]);
        let long = hook(&server, &acme, &receiver.url("/long"), &json!({"rate_limit_per_second": 1})).await;
        let other = hook(&server, &acme, &receiver.url("/other"), &json!({})).await;
        publish_many(&server, &acme, 3).await;
        run(&server).await;
        let record = look(&server, &acme, &long).await;
        assert_eq!(record["backlog"]["paused_until"], server.now().plus_ms(DAY_MS).to_string(), "{record}");
        assert_eq!(look(&server, &acme, &other).await["backlog"]["pending"], 1, "that one delivery waits alone");
        run_for(&server, DAY_MS - 1).await;
        assert_eq!((receiver.count_on("/long"), receiver.count_on("/other")), (1, 4));
        run_for(&server, HOUR_MS).await;
        assert_eq!(receiver.count_on("/long"), 4);
    }

    async fn another_node_and_another_url_know_of_it(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/busy", [Behaviour::RetryAfter { status: 503, seconds: 600 }]);
        let hook = hook(&server, &acme, &receiver.url("/busy"), &json!({})).await;
        publish_many(&server, &acme, 3).await;
        run(&server).await;
        let asked = receiver.count();
        // Woken, so that the lane is leased and what was noted is read again.
        change(&server, &acme, &hook, &json!({"name": "Renamed"})).await;
        run(&server).await;
        assert_eq!(receiver.count(), asked, "it is noted, not only remembered");
        assert_eq!(look(&server, &acme, &hook).await["backlog"]["paused_reason"], "retry_after");
        change(&server, &acme, &hook, &json!({"url": receiver.url("/idle")})).await;
        run_for(&server, 10 * SECOND_MS).await;
        assert!(receiver.count_on("/idle") >= 1, "it was the old place that asked for time");
    }
}
