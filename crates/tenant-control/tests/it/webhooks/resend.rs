//! Sending one delivery again, and tests.

use kernel::base::{DAY_MS, MINUTE_MS, SECOND_MS};
use kernel::jobs;
use serde_json::{Value, json};
use tenant_control::features;

use super::DELIVERIES;
use super::drive::{act, change, delivery, hook, id, log, look, patient, publish_one, run, run_for, run_next, tally};
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::{Server, Tenancy, over_http};

async fn resend(server: &Server, tenancy: &Tenancy, delivery: &Value) -> Value {
    act(server, tenancy, &json!({"action": "resend", "delivery_id": id(delivery)})).await.ok(202)
}

async fn send_test(server: &Server, tenancy: &Tenancy, hook: &Value) -> Value {
    act(server, tenancy, &json!({"action": "test", "webhook_id": id(hook)})).await.ok(202)
}

over_http! {
    async fn what_succeeded_is_sent_again_with_the_same_id_and_body(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        server.advance(MINUTE_MS);
        let done = delivery(&server, &acme, &hook, &event).await;
        let taken = resend(&server, &acme, &done).await;
        assert_eq!((&taken["id"], &taken["status"]), (&done["id"], &json!("pending")));
        assert_eq!(taken["attempts"], done["attempts"], "what was before stays in the log");
        run(&server).await;
        let received = receiver.received();
        assert_eq!(received.len(), 2);
        assert_eq!((received[0].webhook_id(), &received[0].body), (received[1].webhook_id(), &received[1].body));
        assert_ne!(received[0].headers["webhook-timestamp"], received[1].headers["webhook-timestamp"]);
        let again = delivery(&server, &acme, &hook, &event).await;
        assert_eq!((&again["status"], again["attempts"].as_array().unwrap().len()), (&json!("succeeded"), 2));
    }

    async fn a_resend_has_the_whole_schedule_before_it(setup: Setup) {
        let mut setup = setup;
        setup.sending.schedule_ms = vec![SECOND_MS, MINUTE_MS];
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        run_next(&server).await;
        let waiting = delivery(&server, &acme, &hook, &event).await;
        assert_eq!(waiting["status"], "pending");
        resend(&server, &acme, &waiting).await;
        run(&server).await;
        assert_eq!(receiver.count(), 3, "a pending one goes at once");
        while run_next(&server).await.is_some() {}
        assert_eq!(receiver.count(), 5, "and then as often as any other");
        let failed = delivery(&server, &acme, &hook, &event).await;
        assert_eq!(failed["status"], "failed");
        resend(&server, &acme, &failed).await;
        run(&server).await;
        while run_next(&server).await.is_some() {}
        let failed = delivery(&server, &acme, &hook, &event).await;
        assert_eq!((receiver.count(), failed["attempts"].as_array().unwrap().len()), (8, 8));
        receiver.on("/hook", [Behaviour::Answer(200)]);
        resend(&server, &acme, &failed).await;
        run(&server).await;
        assert_eq!(delivery(&server, &acme, &hook, &event).await["status"], "succeeded");
    }

    async fn what_was_skipped_is_sent_once_the_endpoint_is_enabled(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        let skipped = delivery(&server, &acme, &hook, &event).await;
        let body = json!({"action": "resend", "delivery_id": id(&skipped)});
        act(&server, &acme, &body).await.problem("conflict");
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        let taken = resend(&server, &acme, &skipped).await;
        assert!(taken["skipped_reason"].is_null());
        run(&server).await;
        let sent = delivery(&server, &acme, &hook, &event).await;
        assert_eq!((&sent["status"], &sent["skipped_reason"]), (&json!("succeeded"), &json!(null)));
        assert_eq!(receiver.received()[0].webhook_id(), event.id.to_string());
    }

    async fn a_resend_that_is_not_possible_is_refused(setup: Setup) {
        let server = patient(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        let done = delivery(&server, &acme, &hook, &event).await;
        let body = json!({"action": "resend", "delivery_id": id(&done)});
        act(&server, &globex, &body).await.problem("not_found");
        let unknown = json!({"action": "resend", "delivery_id": "dlv_01jd8z6v2mfkpb7h3q9xw50000"});
        act(&server, &acme, &unknown).await.problem("not_found");
        let pointers = act(&server, &acme, &json!({"action": "resend"})).await.pointers();
        assert_eq!(pointers, ["/delivery_id"]);
        server.advance(31 * DAY_MS);
        jobs::delete_expired(&server.app, &features::install().retention).await.unwrap();
        let refused = act(&server, &acme, &body).await.problem("conflict");
        assert!(refused["detail"].as_str().unwrap().contains("payload"), "{refused}");
        assert_eq!(receiver.count(), 1);
    }

    async fn a_retry_of_the_request_sends_once(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        let done = delivery(&server, &acme, &hook, &event).await;
        let resend = json!({"action": "resend", "delivery_id": id(&done)});
        let test = json!({"action": "test", "webhook_id": id(&hook)});
        for (key, body) in [("one", resend), ("two", test)] {
            let ask = || server.post(DELIVERIES).cookie(&acme.admin).idempotency_key(key).json(&body);
            let first = ask().await.ok(202);
            run(&server).await;
            let again = ask().await;
            assert_eq!((again.ok(202), again.header("idempotency-replayed")), (first, "true"));
            run(&server).await;
        }
        assert_eq!(receiver.count(), 3);
    }

    async fn while_an_attempt_is_under_way_it_is_shown_and_not_sent_beside_itself(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/hook", [Behaviour::Hold(gate.clone())]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        let sender = server.sender.clone();
        let sending = tokio::spawn(async move { sender.run_due().await });
        receiver.wait_for(1).await;
        let mut shown = delivery(&server, &acme, &hook, &event).await;
        while shown["status"] != "delivering" {
            assert_eq!(shown["status"], "pending");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            shown = delivery(&server, &acme, &hook, &event).await;
        }
        act(&server, &acme, &json!({"action": "resend", "delivery_id": id(&shown)})).await.problem("conflict");
        gate.open();
        sending.await.unwrap().unwrap();
        assert_eq!(delivery(&server, &acme, &hook, &event).await["status"], "succeeded");
        assert_eq!(receiver.count(), 1);
    }

    async fn a_resend_that_is_accepted_during_an_attempt_is_sent_after_it(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for (path, last) in [("/good", 204), ("/bad", 500)] {
            let gate = Gate::closed();
            let first = if last == 204 { Behaviour::Hold(gate.clone()) } else { Behaviour::HoldThen(gate.clone(), last) };
            receiver.on(path, [first, Behaviour::Answer(last)]);
            let hook = hook(&server, &acme, &receiver.url(path), &json!({"events": ["ticket.created"]})).await;
            let event = send_test(&server, &acme, &hook).await;
            let sender = server.sender.clone();
            let sending = tokio::spawn(async move { sender.run_due().await });
            receiver.wait_for_on(path, 1).await;
            for _ in 0..3 {
                let taken = resend(&server, &acme, &event).await;
                assert_eq!(taken["status"], "pending");
            }
            gate.open();
            sending.await.unwrap().unwrap();
            assert_eq!(receiver.count_on(path), 2, "once more, after all three were accepted");
            let noted = log(&server, &acme, &hook).await.remove(0);
            assert_eq!(noted["attempts"].as_array().unwrap().len(), 2, "{noted}");
            assert_eq!(noted["status"], if last == 204 { "succeeded" } else { "pending" });
            run_for(&server, 4 * SECOND_MS * 8 / 10).await;
            assert_eq!(receiver.count_on(path), 2, "and then as the schedule says");
        }
    }

    async fn a_test_goes_to_its_endpoint_whatever_that_wants_and_to_nobody_who_wants_everything(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let narrow = hook(&server, &acme, &receiver.url("/narrow"), &json!({"events": ["ticket.created"]})).await;
        let wide = hook(&server, &acme, &receiver.url("/wide"), &json!({})).await;
        let taken = send_test(&server, &acme, &narrow).await;
        assert_eq!((&taken["webhook_id"], &taken["event_type"]), (&narrow["id"], &json!("webhook.test")));
        run(&server).await;
        assert_eq!((receiver.count_on("/narrow"), receiver.count_on("/wide")), (1, 0));
        let body = receiver.received()[0].json();
        assert_eq!((&body["type"], &body["data"]["id"]), (&json!("webhook.test"), &narrow["id"]));
        assert!(body["data"].get("secret").is_none());
        send_test(&server, &acme, &wide).await;
        run(&server).await;
        assert_eq!((receiver.count_on("/narrow"), receiver.count_on("/wide")), (1, 1));
    }

    async fn tests_of_others_reach_nobody_whatever_they_subscribe_to(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let start = server.now();
        let tested = hook(&server, &acme, &receiver.url("/tested"), &json!({})).await;
        let mut others = Vec::new();
        for (number, events) in [json!(["webhook.test"]), json!(["webhook.*"]), json!(["*", "webhook.*"])].iter().enumerate() {
            others.push(hook(&server, &acme, &receiver.url(&format!("/{number}")), &json!({"events": events})).await);
        }
        send_test(&server, &acme, &tested).await;
        run(&server).await;
        assert_eq!((receiver.count_on("/tested"), receiver.count()), (1, 1));
        for other in &others {
            assert!(log(&server, &acme, other).await.is_empty());
            let recover = json!({"action": "recover", "webhook_id": id(other), "since": start.to_string()});
            act(&server, &acme, &recover).await.is(202);
        }
        run(&server).await;
        assert_eq!(receiver.count(), 1, "nor does a recovery send them");
    }

    async fn a_test_retries_like_any_other_and_counts_for_the_endpoint(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500), Behaviour::Answer(204)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        send_test(&server, &acme, &hook).await;
        run(&server).await;
        assert_eq!(look(&server, &acme, &hook).await["consecutive_failures"], 1);
        run_for(&server, MINUTE_MS).await;
        assert_eq!(tally(&server, &acme, &hook).await["succeeded"], 1);
        assert_eq!(receiver.received()[0].webhook_id(), receiver.received()[1].webhook_id());
    }

    async fn a_test_of_what_is_disabled_or_unknown_is_refused(setup: Setup) {
        let server = patient(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        let off = hook(&server, &acme, &receiver.url("/off"), &json!({"enabled": false})).await;
        act(&server, &acme, &json!({"action": "test", "webhook_id": id(&off)})).await.problem("conflict");
        assert!(log(&server, &acme, &off).await.is_empty());
        let unknown = json!({"action": "test", "webhook_id": "wh_01jd8z6v2mfkpb7h3q9xw5t4ra"});
        act(&server, &acme, &unknown).await.problem("not_found");
        act(&server, &globex, &json!({"action": "test", "webhook_id": id(&off)})).await.problem("not_found");
        receiver.on("/gone", [Behaviour::Answer(410)]);
        let gone = hook(&server, &acme, &receiver.url("/gone"), &json!({})).await;
        send_test(&server, &acme, &gone).await;
        run(&server).await;
        act(&server, &acme, &json!({"action": "test", "webhook_id": id(&gone)})).await.problem("conflict");
        assert_eq!(act(&server, &acme, &json!({"action": "dance"})).await.pointers(), ["/action"]);
    }
}
