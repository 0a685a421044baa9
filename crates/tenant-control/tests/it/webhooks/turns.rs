//! When more lanes are due than a node works on at once, each gets its turn; and what a node does when it stops.

use std::time::{Duration, Instant};

use serde_json::json;
use tenant_control::features::webhooks::sender::{SenderSettings, WebhookSender};
use tokio::sync::oneshot;

use super::drive::{delivery, hook, open_in_real_time, publish_many, publish_one, remove, run, tally};
use super::open;
use crate::support::over_http;
use crate::support::receiver::{Behaviour, Gate, Receiver};

over_http! {
    async fn a_lane_gives_its_turn_back_when_others_wait(setup: Setup) {
        let mut setup = setup;
        // Of so many, two are one tenant's.
        setup.sending.lanes_max = 20;
        setup.sending.tenure = Duration::from_millis(50);
        let server = open_in_real_time(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        // At their rate, work for 8 seconds: however busy the machine is, the third comes before its end.
        let events = 1_600;
        for path in ["/busy/1", "/busy/2"] {
            hook(&server, &acme, &receiver.url(path), &json!({"rate_limit_per_second": 200})).await;
        }
        publish_many(&server, &acme, events).await;
        let sending = tokio::spawn(server.sender.clone().run(std::future::pending()));
        receiver.wait_for_on("/busy/1", 20).await;
        receiver.wait_for_on("/busy/2", 20).await;
        hook(&server, &acme, &receiver.url("/third"), &json!({"events": ["api_key.created"]})).await;
        server.key(&acme, &["tickets:read"]).await;
        receiver.wait_for_acknowledged("/third", 1).await;
        for path in ["/busy/1", "/busy/2"] {
            let sent = receiver.count_on(path);
            assert!(sent < events, "it had its turn among them, not after: {sent} on {path}");
            receiver.wait_for_on(path, (sent + 20).min(events)).await;
            assert!(receiver.tallies(path).values().all(|tally| tally.requests == 1), "a turn costs no second request");
        }
        sending.abort();
    }

    async fn a_node_that_stops_gives_up_what_takes_longer_and_another_sends_it(setup: Setup) {
        assert_eq!(SenderSettings::default().stop_max, Duration::from_secs(5), "what is promised");
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hang", [Behaviour::Hang, Behaviour::Answer(204)]);
        let hang = hook(&server, &acme, &receiver.url("/hang"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        let stop_max = Duration::from_millis(300);
        let stopping = WebhookSender::new(server.app.clone(), SenderSettings { stop_max, ..SenderSettings::default() });
        let (stop, stopped) = oneshot::channel::<()>();
        let sending = tokio::spawn(stopping.run(async move { drop(stopped.await) }));
        receiver.wait_for(1).await;
        let start = Instant::now();
        drop(stop);
        // Sooner than the attempt itself would end.
        let stopped = tokio::time::timeout(SenderSettings::default().timeout * 2 / 3, sending).await;
        stopped.expect("it stops").unwrap();
        assert!(start.elapsed() >= stop_max, "attempts under way are waited for: {:?}", start.elapsed());
        let waiting = delivery(&server, &acme, &hang, &event).await;
        assert_eq!((&waiting["status"], &waiting["attempts"]), (&json!("pending"), &json!([])), "no attempt is lost");
        run(&server).await;
        assert_eq!(receiver.count(), 2, "at once, without waiting for a lease to end");
        assert_eq!(tally(&server, &acme, &hang).await["succeeded"], 1);
    }

    async fn what_waits_for_an_endpoint_that_is_deleted_while_a_node_stops_is_skipped_by_another(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        // Nothing succeeds before the endpoint is gone, so that some still wait then.
        let held = std::iter::repeat_n(Behaviour::Hold(gate.clone()), 30);
        receiver.on("/hang", std::iter::once(Behaviour::Hang).chain(held));
        let hang = hook(&server, &acme, &receiver.url("/hang"), &json!({})).await;
        publish_many(&server, &acme, 30).await;
        let settings = SenderSettings { stop_max: Duration::from_millis(300), ..SenderSettings::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        let sending = WebhookSender::new(server.app.clone(), settings).run(async move { drop(stopped.await) });
        let sending = tokio::spawn(sending);
        receiver.wait_for(2).await;
        remove(&server, &acme, &hang).await;
        gate.open();
        // By then the node has seen that the endpoint is gone, and waits for the other attempt.
        while !tally(&server, &acme, &hang).await.contains_key("succeeded") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(stop);
        sending.await.expect("it stops");
        run(&server).await;
        let left = tally(&server, &acme, &hang).await;
        assert!(left["skipped deleted"] > 1 && !left.contains_key("pending"), "no delivery is left behind: {left:?}");
    }
}
