//! What an endpoint answered counts for the endpoint as it was when it was asked, and for no later one.

use kernel::base::{MINUTE_MS, SECOND_MS};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::WEBHOOKS;
use super::drive::{change, delivery, hook, id, look, patient, publish_many, publish_one, run, run_for, run_next};
use crate::support::over_http;
use crate::support::receiver::{Behaviour, Gate, Receiver};

fn is_fresh(record: &Value) {
    assert_eq!((&record["status"], &record["consecutive_failures"]), (&json!("enabled"), &json!(0)), "{record}");
    let backlog = &record["backlog"];
    assert!(backlog["paused_until"].is_null() && backlog["paused_reason"].is_null(), "{record}");
}

over_http! {
    async fn a_410_of_the_old_url_does_not_switch_off_an_endpoint_that_has_moved(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/old", [Behaviour::HoldThen(gate.clone(), 410)]);
        let hook = hook(&server, &acme, &receiver.url("/old"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        let sender = server.sender.clone();
        let sending = tokio::spawn(async move { sender.run_due().await });
        receiver.wait_for_on("/old", 1).await;
        change(&server, &acme, &hook, &json!({"url": receiver.url("/new")})).await;
        gate.open();
        sending.await.unwrap().unwrap();
        is_fresh(&look(&server, &acme, &hook).await);
        let waiting = delivery(&server, &acme, &hook, &event).await;
        assert_eq!((&waiting["status"], &waiting["attempts"][0]["status_code"]), (&json!("pending"), &json!(410)));
        run_next(&server).await.expect("it is tried again");
        let done = delivery(&server, &acme, &hook, &event).await;
        assert_eq!((&done["status"], done["attempts"].as_array().unwrap().len()), (&json!("succeeded"), 2));
        assert_eq!((receiver.count_on("/old"), receiver.count_on("/new")), (1, 1));
    }

    async fn a_failure_of_an_older_version_is_not_held_against_the_endpoint(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for (path, rotates) in [("/url", false), ("/secret", true)] {
            let gate = Gate::closed();
            receiver.on(path, [Behaviour::HoldThen(gate.clone(), 500), Behaviour::Answer(204)]);
            let hook = hook(&server, &acme, &receiver.url(path), &json!({})).await;
            let event = publish_one(&server, &acme, "rec_1").await;
            let sender = server.sender.clone();
            let sending = tokio::spawn(async move { sender.run_due().await });
            receiver.wait_for_on(path, 1).await;
            if rotates {
                let rotation = json!({"rotate_secret": {}});
                server.put(format!("{WEBHOOKS}?id={}", id(&hook))).cookie(&acme.admin).json(&rotation).await.is(200);
            } else {
                change(&server, &acme, &hook, &json!({"url": receiver.url("/else")})).await;
            }
            gate.open();
            sending.await.unwrap().unwrap();
            let record = look(&server, &acme, &hook).await;
            is_fresh(&record);
            assert!(record["last_failure_at"].is_null(), "{record}");
            let noted = delivery(&server, &acme, &hook, &event).await;
            assert_eq!(noted["attempts"][0]["status_code"], 500, "the attempt itself is noted");
            run_for(&server, MINUTE_MS).await;
            assert_eq!(delivery(&server, &acme, &hook, &event).await["status"], "succeeded");
            assert!(look(&server, &acme, &hook).await["last_success_at"].is_string());
        }
    }

    async fn a_pause_that_the_old_url_was_given_is_not_noted_of_the_new_one(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/old", [Behaviour::HoldThen(gate.clone(), 500)]);
        let hook = hook(&server, &acme, &receiver.url("/old"), &json!({"rate_limit_per_second": 1})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        let sender = server.sender.clone();
        let sending = tokio::spawn(async move { sender.run_due().await });
        receiver.wait_for_on("/old", 1).await;
        change(&server, &acme, &hook, &json!({"url": receiver.url("/new")})).await;
        gate.open();
        // The lane is given back while its next token is still to come.
        sending.await.unwrap().unwrap();
        is_fresh(&look(&server, &acme, &hook).await);
        run_for(&server, MINUTE_MS).await;
        assert_eq!(delivery(&server, &acme, &hook, &event).await["status"], "succeeded");
        assert_eq!((receiver.count_on("/old"), receiver.count_on("/new")), (1, 1));
    }

    async fn time_that_the_old_url_has_asked_for_does_not_hold_the_new_one_back(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/old", [Behaviour::RetryAfter { status: 429, seconds: 600 }]);
        let hook = hook(&server, &acme, &receiver.url("/old"), &json!({})).await;
        publish_many(&server, &acme, 5).await;
        run(&server).await;
        let asked = receiver.count_on("/old");
        assert!((1..5).contains(&asked), "{asked}");
        assert_eq!(look(&server, &acme, &hook).await["backlog"]["paused_reason"], "retry_after");
        is_fresh(&change(&server, &acme, &hook, &json!({"url": receiver.url("/new")})).await);
        run(&server).await;
        assert!(receiver.count_on("/new") >= 5 - asked, "all that the old one was not asked to take");
        publish_one(&server, &acme, "rec_new").await;
        run(&server).await;
        assert!(receiver.count_on("/new") >= 6 - asked);
        is_fresh(&look(&server, &acme, &hook).await);
        run_for(&server, 11 * MINUTE_MS).await;
        assert_eq!((receiver.count_on("/old"), receiver.count_on("/new")), (asked, 6), "and in the end everything");
    }

    async fn time_that_the_old_url_asks_for_too_late_does_not_hold_the_new_one_back(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let (receiver, old) = (Receiver::start().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
        let hook = hook(&server, &acme, &format!("http://{}/", old.local_addr().unwrap()), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        let sender = server.sender.clone();
        let sending = tokio::spawn(async move { sender.run_due().await });
        let (mut asked, _) = old.accept().await.unwrap();
        // It is asked for before it is answered.
        assert!(asked.read(&mut [0; 1024]).await.unwrap() > 0);
        change(&server, &acme, &hook, &json!({"url": receiver.url("/new")})).await;
        asked.write_all(b"HTTP/1.1 429 Later\r\nretry-after: 600\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        sending.await.unwrap().unwrap();
        is_fresh(&look(&server, &acme, &hook).await);
        assert_eq!(delivery(&server, &acme, &hook, &event).await["attempts"][0]["status_code"], 429);
        publish_one(&server, &acme, "rec_2").await;
        run(&server).await;
        assert!(receiver.count_on("/new") >= 1, "at once");
        run_for(&server, 11 * MINUTE_MS).await;
        assert_eq!(delivery(&server, &acme, &hook, &event).await["status"], "succeeded");
    }

    async fn another_url_is_a_new_start(setup: Setup) {
        let mut setup = setup;
        setup.sending.auto_disable_ms = MINUTE_MS;
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for path in ["/old", "/new"] {
            receiver.on(path, [Behaviour::Answer(500)]);
        }
        let hook = hook(&server, &acme, &receiver.url("/old"), &json!({})).await;
        publish_many(&server, &acme, 60).await;
        run(&server).await;
        let record = look(&server, &acme, &hook).await;
        assert_eq!(record["backlog"]["paused_reason"], "failing", "{record}");
        server.advance(50 * SECOND_MS);
        let moved = change(&server, &acme, &hook, &json!({"url": receiver.url("/new")})).await;
        is_fresh(&moved);
        run(&server).await;
        assert!(receiver.count_on("/new") > 1, "what waited is not held back for the sake of the old place");
        server.advance(20 * SECOND_MS);
        run(&server).await;
        assert_eq!(look(&server, &acme, &hook).await["status"], "enabled", "only 20 s of failures there");
        let before = look(&server, &acme, &hook).await;
        let renamed = change(&server, &acme, &hook, &json!({"name": "Renamed"})).await;
        assert_eq!(renamed["consecutive_failures"], before["consecutive_failures"], "a new name is no new start");
        run_for(&server, 3 * MINUTE_MS).await;
        assert_eq!(look(&server, &acme, &hook).await["status"], "auto_disabled");
    }
}
