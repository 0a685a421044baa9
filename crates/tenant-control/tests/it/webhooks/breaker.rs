//! An endpoint that fails is tried gently, and holds nobody up but itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::jobs::lanes;
use kernel::outbound::NameSource;
use serde_json::json;
use tenant_control::features::webhooks::WEBHOOK_LANE;

use super::drive::{hook, log, look, patient, publish_many, publish_one, run, run_next};
use super::open;
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::{Server, Setup, Tenancy, over_http};

/// An attempt that hangs takes so long that even on a busy machine what is not held up by it comes long before its end.
const ATTEMPT: Duration = Duration::from_mins(2);
const PROMPT: Duration = Duration::from_mins(1);

/// Endpoints have names, as they have outside, and looking one up takes a while.
async fn open_with_names(mut setup: Setup) -> Server {
    let look_up = |_: &str| {
        std::thread::sleep(Duration::from_millis(5));
        vec![IpAddr::from([127, 0, 0, 1])]
    };
    setup.settings.outbound.names = NameSource::Table(Arc::new(look_up));
    setup.sending.timeout = ATTEMPT;
    open(setup).await
}

fn named(receiver: &Receiver, name: &str, path: &str) -> String {
    format!("http://{name}.example:{}{path}", receiver.address().port())
}

/// Sends in the background until the test ends.
fn start_sending(server: &Server) {
    tokio::spawn(server.sender.clone().run(std::future::pending()));
}

/// Some requests' time, in which a sender that should not send would have sent.
async fn a_while(server: &Server, tenancy: &Tenancy) {
    for _ in 0..30 {
        server.get(super::WEBHOOKS).cookie(&tenancy.admin).await.ok(200);
    }
}

over_http! {
    async fn many_failures_in_a_row_leave_one_attempt_at_a_time_and_the_rest_waits_untried(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_many(&server, &acme, 100).await;
        run(&server).await;
        let tried = receiver.count();
        assert!((5..=50).contains(&tried), "{tried} attempts before it was held back");
        let record = look(&server, &acme, &hook).await;
        assert_eq!(record["backlog"]["paused_reason"], "failing", "{record}");
        assert_eq!((&record["backlog"]["pending"], &record["status"]), (&json!(100), &json!("enabled")));
        for delivery in log(&server, &acme, &hook).await {
            let untried = delivery["attempts"].as_array().unwrap().is_empty();
            assert_eq!(delivery["status"], "pending");
            assert!(!untried || delivery["waiting_for"] == "failing", "{delivery}");
            assert!(!untried || delivery["next_attempt_at"] == record["backlog"]["paused_until"], "{delivery}");
        }
        for probe in 1..=8 {
            run_next(&server).await.expect("a probe");
            assert_eq!(receiver.count(), tried + probe, "one at a time");
        }
        receiver.on("/hook", [Behaviour::Answer(204)]);
        while run_next(&server).await.is_some() {}
        let record = look(&server, &acme, &hook).await;
        assert_eq!((&record["consecutive_failures"], &record["backlog"]["pending"]), (&json!(0), &json!(0)));
        let backlog = &record["backlog"];
        assert!(backlog["paused_reason"].is_null() && backlog["paused_until"].is_null(), "{record}");
        let log = log(&server, &acme, &hook).await;
        assert!(log.iter().all(|delivery| delivery["status"] == "succeeded"));
        let at_once = log.iter().filter(|delivery| delivery["attempts"].as_array().unwrap().len() == 1).count();
        assert!(at_once >= 100 - tried - 8, "{at_once} waited without an attempt");
        assert!(receiver.acknowledged("/hook").values().all(|count| *count == 1));
    }

    async fn after_the_first_success_it_starts_slowly(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_many(&server, &acme, 60).await;
        run(&server).await;
        let gates = [Gate::closed(), Gate::closed()];
        let [first, rest] = gates.clone();
        receiver.on("/hook", [Behaviour::Answer(204), Behaviour::Hold(first), Behaviour::Hold(rest)]);
        let tried = receiver.count();
        let sender = server.sender.clone();
        let due = lanes::find_next_due(&server.app.store, WEBHOOK_LANE).await.unwrap().unwrap();
        server.advance(due.as_millis() - server.now().as_millis());
        let sending = tokio::spawn(async move { sender.run_due().await });
        receiver.wait_for_on("/hook", tried + 2).await;
        a_while(&server, &acme).await;
        assert_eq!(receiver.count(), tried + 2, "after the probe again one alone");
        gates[0].open();
        receiver.wait_for_on("/hook", tried + 4).await;
        a_while(&server, &acme).await;
        assert!(receiver.count() <= tried + 5, "then a few: {}", receiver.count() - tried);
        gates[1].open();
        sending.await.unwrap().unwrap();
    }

    async fn endpoints_that_hang_hold_up_no_other_of_their_tenant_and_of_another(setup: Setup) {
        let server = open_with_names(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        receiver.on("/hang", [Behaviour::Hang]);
        for number in 0..49 {
            hook(&server, &acme, &named(&receiver, &format!("hang{number}"), "/hang"), &json!({})).await;
        }
        hook(&server, &acme, &named(&receiver, "good", "/good"), &json!({})).await;
        hook(&server, &globex, &named(&receiver, "other", "/other"), &json!({})).await;
        start_sending(&server);
        publish_many(&server, &acme, 40).await;
        receiver.wait_for_on("/hang", 49).await;
        let start = Instant::now();
        publish_many(&server, &acme, 40).await;
        publish_many(&server, &globex, 80).await;
        receiver.wait_for_acknowledged("/good", 80).await;
        receiver.wait_for_acknowledged("/other", 80).await;
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    }

    async fn endpoints_that_were_fast_and_then_hang_hold_up_no_other(setup: Setup) {
        let server = open_with_names(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        hook(&server, &acme, &named(&receiver, "good", "/good"), &json!({})).await;
        hook(&server, &globex, &named(&receiver, "other", "/other"), &json!({})).await;
        for number in 0..12 {
            hook(&server, &acme, &named(&receiver, &format!("host{number}"), &format!("/{number}")), &json!({})).await;
        }
        start_sending(&server);
        publish_many(&server, &acme, 60).await;
        for number in 0..12 {
            receiver.wait_for_acknowledged(&format!("/{number}"), 60).await;
            receiver.on(&format!("/{number}"), [Behaviour::Hang]);
        }
        receiver.wait_for_acknowledged("/good", 60).await;
        publish_many(&server, &acme, 40).await;
        // They take whatever they can get.
        receiver.wait_for(13 * 60 + 12 * 12).await;
        let start = Instant::now();
        publish_one(&server, &acme, "rec_last").await;
        publish_one(&server, &globex, "rec_last").await;
        receiver.wait_for_acknowledged("/good", 101).await;
        receiver.wait_for_acknowledged("/other", 1).await;
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    }
}
