//! `ordered`: later events of a record wait until the earlier one succeeds or is given up; others do not.

use std::time::Duration;

use kernel::base::{DAY_MS, HOUR_MS, SECOND_MS};
use kernel::events::PublishedEvent;
use serde_json::{Value, json};

use super::drive::{act, change, delivery, hook, id, patient, publish, publish_one, run, run_for, tally};
use crate::support::process::until;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::{Server, Tenancy, over_http};

/// Fails these events until the receiver is told otherwise, and takes all others.
fn refuse(receiver: &Receiver, path: &str, events: &[&PublishedEvent]) {
    let refused: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    receiver.on_each(path, move |_, id| Behaviour::Answer(if refused.iter().any(|one| one == id) { 503 } else { 204 }));
}

/// The events in the order in which they were first taken, by their place in `events`.
fn taken(receiver: &Receiver, path: &str, events: &[PublishedEvent]) -> Vec<usize> {
    let acknowledged = receiver.acknowledged(path);
    let mut seen: Vec<usize> = Vec::new();
    // A refused one comes again, so its last request is the one that was taken.
    for request in receiver.received_on(path).iter().rev() {
        let place = events.iter().position(|event| event.id.to_string() == request.webhook_id());
        let Some(place) = place.filter(|place| !seen.contains(place)) else { continue };
        if acknowledged.contains_key(request.webhook_id()) {
            seen.push(place);
        }
    }
    seen.reverse();
    seen
}

async fn waiting_for(server: &Server, tenancy: &Tenancy, hook: &Value, event: &PublishedEvent) -> Value {
    delivery(server, tenancy, hook, event).await["waiting_for"].clone()
}

over_http! {
    async fn events_of_one_record_wait_for_the_first_and_others_pass(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let ordered = hook(&server, &acme, &receiver.url("/ordered"), &json!({"ordered": true})).await;
        let loose = hook(&server, &acme, &receiver.url("/loose"), &json!({"name": "Loose"})).await;
        let events = publish(&server, &acme, &["a", "a", "b", "a", "b", "c"]).await;
        refuse(&receiver, "/ordered", &[&events[0]]);
        refuse(&receiver, "/loose", &[&events[0]]);
        run(&server).await;
        let mut passed = taken(&receiver, "/ordered", &events);
        let place_of = |event: usize| passed.iter().position(|place| *place == event);
        assert!(place_of(2) < place_of(4), "{passed:?}");
        passed.sort_unstable();
        assert_eq!(passed, [2, 4, 5]);
        assert_eq!(taken(&receiver, "/loose", &events).len(), 5, "held by nobody");
        assert_eq!(waiting_for(&server, &acme, &ordered, &events[0]).await, "retry");
        for held in [1, 3] {
            let held = delivery(&server, &acme, &ordered, &events[held]).await;
            assert_eq!((&held["status"], &held["waiting_for"]), (&json!("pending"), &json!("earlier_event")));
            assert_eq!(held["attempts"], json!([]));
        }
        run_for(&server, 20 * HOUR_MS).await;
        let later = publish_one(&server, &acme, "a").await;
        run(&server).await;
        assert_eq!(waiting_for(&server, &acme, &ordered, &later).await, "earlier_event");
        assert_eq!(taken(&receiver, "/ordered", &events).len(), 3);
        refuse(&receiver, "/ordered", &[]);
        refuse(&receiver, "/loose", &[]);
        run_for(&server, DAY_MS).await;
        let all: Vec<PublishedEvent> = [events[0], events[1], events[3], later].to_vec();
        assert_eq!(taken(&receiver, "/ordered", &all), [0, 1, 2, 3]);
        assert_eq!(tally(&server, &acme, &ordered).await["succeeded"], 7);
        assert_eq!(tally(&server, &acme, &loose).await["succeeded"], 7);
        assert!(receiver.acknowledged("/ordered").values().all(|count| *count == 1));
    }

    async fn when_the_first_is_given_up_the_next_goes(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true})).await;
        let events = publish(&server, &acme, &["a", "a", "a"]).await;
        refuse(&receiver, "/hook", &[&events[0]]);
        run(&server).await;
        run_for(&server, 2 * DAY_MS).await;
        assert_eq!(receiver.acknowledged("/hook").len(), 0);
        run_for(&server, 3 * DAY_MS).await;
        assert_eq!(delivery(&server, &acme, &hook, &events[0]).await["status"], "failed");
        assert_eq!(taken(&receiver, "/hook", &events), [1, 2]);
    }

    async fn many_events_of_few_records_come_in_their_order_under_failures(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        // Every third attempt fails.
        receiver.on_each("/hook", |nth, _| Behaviour::Answer(if nth % 3 == 1 { 500 } else { 200 }));
        hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true})).await;
        let mut events: Vec<(&str, PublishedEvent)> = Vec::new();
        for _ in 0..5 {
            let records = ["a", "b", "a", "c", "b", "a", "c", "c"];
            events.extend(records.into_iter().zip(publish(&server, &acme, &records).await));
            run_for(&server, SECOND_MS).await;
        }
        run_for(&server, 10 * DAY_MS).await;
        for record in ["a", "b", "c"] {
            let own = events.iter().filter(|(name, _)| *name == record);
            let own: Vec<PublishedEvent> = own.map(|(_, event)| *event).collect();
            assert_eq!(taken(&receiver, "/hook", &own), (0..own.len()).collect::<Vec<_>>(), "{record}");
        }
    }

    async fn switching_order_off_lets_go_what_was_held(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true})).await;
        let events = publish(&server, &acme, &["a", "a", "a"]).await;
        refuse(&receiver, "/hook", &[&events[0]]);
        run(&server).await;
        assert_eq!(receiver.acknowledged("/hook").len(), 0);
        change(&server, &acme, &hook, &json!({"ordered": false})).await;
        run(&server).await;
        assert_eq!(receiver.acknowledged("/hook").len(), 2);
        assert_eq!(waiting_for(&server, &acme, &hook, &events[0]).await, "retry");
    }

    async fn switching_order_on_orders_what_already_waits(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let mut events = publish(&server, &acme, &["a", "b", "a", "a"]).await;
        refuse(&receiver, "/hook", &events.iter().collect::<Vec<_>>());
        run(&server).await;
        assert_eq!((receiver.count(), receiver.acknowledged("/hook").len()), (4, 0), "each was tried, and waits");
        change(&server, &acme, &hook, &json!({"ordered": true})).await;
        events.push(publish_one(&server, &acme, "a").await);
        refuse(&receiver, "/hook", &[&events[0]]);
        run_for(&server, HOUR_MS).await;
        assert_eq!(taken(&receiver, "/hook", &events), [1], "those of the record wait for its first");
        for held in [2, 3, 4] {
            assert_eq!(waiting_for(&server, &acme, &hook, &events[held]).await, "earlier_event", "{held}");
        }
        refuse(&receiver, "/hook", &[]);
        run_for(&server, DAY_MS).await;
        assert_eq!(taken(&receiver, "/hook", &events), [1, 0, 2, 3, 4]);
        assert!(receiver.acknowledged("/hook").values().all(|count| *count == 1));
    }

    async fn a_large_backlog_is_ordered_a_part_at_a_time(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on_each("/hook", |nth, _| Behaviour::Answer(if nth % 7 == 3 { 500 } else { 200 }));
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let names: Vec<String> = (0..600).map(|number| format!("rec_{}", number % 200)).collect();
        let records: Vec<&str> = names.iter().map(String::as_str).collect();
        let events = publish(&server, &acme, &records).await;
        change(&server, &acme, &hook, &json!({"ordered": true})).await;
        run(&server).await;
        run_for(&server, 5 * DAY_MS).await;
        assert_eq!(tally(&server, &acme, &hook).await["succeeded"], events.len());
        for record in ["rec_0", "rec_1", "rec_99", "rec_199"] {
            let own = records.iter().zip(&events).filter(|(name, _)| **name == record);
            let own: Vec<PublishedEvent> = own.map(|(_, event)| *event).collect();
            assert_eq!(taken(&receiver, "/hook", &own), [0, 1, 2], "{record}");
        }
    }

    async fn one_from_before_order_counted_is_sent_again_in_its_place(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let first = publish_one(&server, &acme, "a").await;
        run(&server).await;
        change(&server, &acme, &hook, &json!({"ordered": true})).await;
        run(&server).await;
        let sent = delivery(&server, &acme, &hook, &first).await;
        act(&server, &acme, &json!({"action": "resend", "delivery_id": id(&sent)})).await.is(202);
        refuse(&receiver, "/hook", &[&first]);
        let second = publish_one(&server, &acme, "a").await;
        run(&server).await;
        assert_eq!(waiting_for(&server, &acme, &hook, &second).await, "earlier_event");
        refuse(&receiver, "/hook", &[]);
        run_for(&server, HOUR_MS).await;
        assert_eq!(delivery(&server, &acme, &hook, &second).await["status"], "succeeded");
    }

    async fn a_resend_does_not_overtake_an_earlier_event(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true})).await;
        let events = publish(&server, &acme, &["a", "a"]).await;
        refuse(&receiver, "/hook", &[&events[0]]);
        run(&server).await;
        let held = delivery(&server, &acme, &hook, &events[1]).await;
        let resent = act(&server, &acme, &json!({"action": "resend", "delivery_id": id(&held)})).await.ok(202);
        assert_eq!(resent["waiting_for"], "earlier_event", "{resent}");
        run_for(&server, HOUR_MS).await;
        assert_eq!(receiver.acknowledged("/hook").len(), 0, "the second waits for the first");
        refuse(&receiver, "/hook", &[]);
        run_for(&server, DAY_MS).await;
        assert_eq!(taken(&receiver, "/hook", &events), [0, 1]);
    }

    async fn an_event_that_is_sent_again_goes_before_those_that_wait_behind_it(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true})).await;
        let events = publish(&server, &acme, &["a", "a"]).await;
        refuse(&receiver, "/hook", &[&events[0], &events[1]]);
        run(&server).await;
        while delivery(&server, &acme, &hook, &events[0]).await["status"] == "pending" {
            run_for(&server, HOUR_MS).await;
        }
        let first = delivery(&server, &acme, &hook, &events[0]).await;
        assert_eq!(waiting_for(&server, &acme, &hook, &events[1]).await, "retry");
        act(&server, &acme, &json!({"action": "resend", "delivery_id": id(&first)})).await.is(202);
        refuse(&receiver, "/hook", &[&events[0]]);
        run(&server).await;
        run_for(&server, 10 * HOUR_MS).await;
        assert_eq!(receiver.acknowledged("/hook").len(), 0, "the second waits for the first again");
        refuse(&receiver, "/hook", &[]);
        run_for(&server, DAY_MS).await;
        assert_eq!(taken(&receiver, "/hook", &events), [0, 1]);
    }

    async fn one_that_is_sent_again_goes_before_what_was_looked_up_already(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true, "rate_limit_per_second": 1})).await;
        let first = publish_one(&server, &acme, "a").await;
        let sending = tokio::spawn(server.sender.clone().run(std::future::pending()));
        receiver.wait_for(1).await;
        until("it is noted", Duration::from_secs(10), async || {
            (delivery(&server, &acme, &hook, &first).await["status"] == "succeeded").then_some(())
        })
        .await;
        // Both are looked up at once, and one is sent a second.
        let others = publish(&server, &acme, &["b", "a"]).await;
        server.advance(SECOND_MS);
        receiver.wait_for(2).await;
        let sent = delivery(&server, &acme, &hook, &first).await;
        act(&server, &acme, &json!({"action": "resend", "delivery_id": id(&sent)})).await.is(202);
        for count in [3, 4] {
            server.advance(SECOND_MS);
            receiver.wait_for(count).await;
        }
        let received: Vec<String> = receiver.received_on("/hook").iter().map(|one| one.webhook_id().to_owned()).collect();
        let wanted = [&first, &others[0], &first, &others[1]].map(|event| event.id.to_string());
        assert_eq!(received, wanted);
        sending.abort();
    }

    async fn a_recovery_keeps_the_order_of_each_record(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true, "enabled": false})).await;
        let mut events = publish(&server, &acme, &["a", "b", "a"]).await;
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        events.push(publish_one(&server, &acme, "a").await);
        let all: Vec<&PublishedEvent> = events.iter().collect();
        refuse(&receiver, "/hook", &all);
        run(&server).await;
        let body = json!({"action": "recover", "webhook_id": id(&hook), "since": "2026-01-01T00:00:00Z"});
        act(&server, &acme, &body).await.is(202);
        run(&server).await;
        refuse(&receiver, "/hook", &[&events[0]]);
        run_for(&server, HOUR_MS).await;
        assert_eq!(taken(&receiver, "/hook", &events), [1], "those of the record wait for its first");
        refuse(&receiver, "/hook", &[]);
        run_for(&server, DAY_MS).await;
        assert_eq!(taken(&receiver, "/hook", &events), [1, 0, 2, 3]);
        assert!(receiver.acknowledged("/hook").values().all(|count| *count == 1));
    }
}
