//! Endpoints are lanes, which nodes share: one node at a time works on each, and none is left when a node goes.

use std::time::Duration;

use kernel::base::{Env, SECOND_MS, WallClock};
use kernel::jobs::lanes::{self, LEASE_MS, LeasedLane};
use serde_json::json;
use tenant_control::features::webhooks::WEBHOOK_LANE;
use tenant_control::features::webhooks::sender::{self, WebhookSender};
use tokio::sync::oneshot;

use super::drive::{change, delivery, hook, patient, publish_many, publish_one, run, tally};
use super::open;
use super::wakes::hold_open;
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::{Server, Setup, over_http};

async fn lease(server: &Server) -> Vec<LeasedLane> {
    lanes::lease_due_lanes(&server.app, WEBHOOK_LANE, 64).await.expect("leases")
}

async fn holds(lane: &LeasedLane) -> bool {
    let held = lane.clone();
    lane.db().write(async move |tx| held.extend_lease(tx).await).await.expect("an answer")
}

/// Another node of the same service, as far as sending goes.
fn another_sender(server: &Server) -> WebhookSender {
    WebhookSender::new(server.app.clone(), sender::SenderSettings::default())
}

over_http! {
    async fn the_lane_of_a_node_that_went_away_is_taken_over_when_its_lease_ends(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        assert_eq!(lease(&server).await.len(), 1);
        run(&server).await;
        server.advance(20 * SECOND_MS - 1);
        publish_one(&server, &acme, "rec_2").await;
        run(&server).await;
        assert_eq!(receiver.count(), 0, "it may still be alive");
        server.advance(1);
        run(&server).await;
        assert_eq!(receiver.count(), 2);
        assert_eq!(delivery(&server, &acme, &hook, &event).await["status"], "succeeded");
        assert_eq!(LEASE_MS, 20 * SECOND_MS);
    }

    async fn a_sign_of_life_keeps_the_lane(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_one(&server, &acme, "rec_1").await;
        let held = lease(&server).await;
        for _ in 0..10 {
            server.advance(LEASE_MS - 1);
            assert!(holds(&held[0]).await);
            assert!(lease(&server).await.is_empty());
        }
    }

    async fn who_lost_a_lane_can_write_nothing_for_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_one(&server, &acme, "rec_1").await;
        let old = lease(&server).await.remove(0);
        assert!(holds(&old).await);
        server.advance(LEASE_MS);
        let new = lease(&server).await.remove(0);
        assert!(!holds(&old).await);
        assert!(holds(&new).await);
        let released = old.clone();
        let given_back = old.db().write(async move |tx| released.release_lease(tx, None, None).await).await.unwrap();
        assert!(!given_back && lease(&server).await.is_empty(), "the new one still has it");
        assert!(holds(&new).await);
    }

    async fn a_sender_that_was_thought_dead_does_not_overwrite_what_its_successor_noted(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/hook", [Behaviour::Hold(gate.clone()), Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        let old = another_sender(&server);
        let sending = tokio::spawn(async move { old.run_due().await });
        receiver.wait_for(1).await;
        server.advance(LEASE_MS);
        run(&server).await;
        assert_eq!(receiver.count(), 2, "at least once");
        let noted = delivery(&server, &acme, &hook, &event).await;
        assert_eq!((&noted["status"], &noted["attempts"][0]["status_code"]), (&json!("pending"), &json!(500)));
        gate.open();
        sending.await.unwrap().unwrap();
        let after = delivery(&server, &acme, &hook, &event).await;
        assert_eq!(after, noted, "what the old one has to say counts no more");
    }

    async fn what_a_dead_node_had_under_way_is_sent_again(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Hang, Behaviour::Answer(204)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let event = publish_one(&server, &acme, "rec_1").await;
        let dying = another_sender(&server);
        let sending = tokio::spawn(async move { dying.run_due().await });
        receiver.wait_for(1).await;
        while delivery(&server, &acme, &hook, &event).await["status"] != "delivering" {
            assert!(!sending.is_finished());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        sending.abort();
        run(&server).await;
        assert_eq!(receiver.count(), 1);
        server.advance(LEASE_MS);
        run(&server).await;
        let done = delivery(&server, &acme, &hook, &event).await;
        assert_eq!((&done["status"], done["attempts"].as_array().unwrap().len()), (&json!("succeeded"), 1));
    }

    async fn a_node_that_stops_finishes_what_is_under_way_and_gives_its_lanes_back(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/hook", [Behaviour::Hold(gate.clone()), Behaviour::Answer(204)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"rate_limit_per_second": 1})).await;
        publish_many(&server, &acme, 3).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let sending = tokio::spawn(another_sender(&server).run(async move { drop(stopped.await) }));
        receiver.wait_for(1).await;
        drop(stop);
        gate.open();
        tokio::time::timeout(Duration::from_secs(20), sending).await.expect("it stops").unwrap();
        assert_eq!(tally(&server, &acme, &hook).await["succeeded"], 1, "what was under way is noted");
        server.advance(SECOND_MS);
        run(&server).await;
        assert_eq!(receiver.count(), 2, "another node goes on without waiting for a lease to end");
    }

    async fn two_senders_at_once_send_each_delivery_once(setup: Setup) {
        let server = open(setup).await;
        at_once(&server, &another_sender(&server)).await;
    }
}

async fn at_once(server: &Server, other: &WebhookSender) {
    let receiver = Receiver::start().await;
    for tenant in ["acme", "globex", "initech"] {
        let tenancy = server.tenant(tenant).await;
        for number in 0..8 {
            let more = json!({"ordered": number % 2 == 0});
            hook(server, &tenancy, &receiver.url(&format!("/{tenant}/{number}")), &more).await;
        }
        publish_many(server, &tenancy, 30).await;
    }
    let (one, two, three) = tokio::join!(server.sender.run_due(), other.run_due(), server.sender.run_due());
    one.and(two).and(three).expect("sending");
    run(server).await;
    for tenant in ["acme", "globex", "initech"] {
        for number in 0..8 {
            let tallies = receiver.tallies(&format!("/{tenant}/{number}"));
            assert_eq!(tallies.len(), 30);
            assert!(tallies.values().all(|tally| (tally.requests, tally.acknowledged) == (1, 1)), "{tallies:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_at_once_send_each_delivery_once() {
    let server = open(Setup::postgres().await).await;
    let other = server.second_node().await;
    at_once(&server, &other.sender).await;
}

/// The node that sends is told by nobody, so it has to ask, however busy it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_busy_node_sees_what_another_node_changed() {
    let server = open(Setup::postgres().await).await;
    let other = server.second_node().await;
    let acme = server.tenant("acme").await;
    let receiver = Receiver::start().await;
    // Slow enough that the whole would take many seconds, and quicker than a lane looks when it has nothing else to do.
    receiver.on_each("/hook", |_, _| {
        let gate = Gate::closed();
        let held = gate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(350)).await;
            gate.open();
        });
        Behaviour::Hold(held)
    });
    let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
    publish_many(&server, &acme, 500).await;
    let sending = tokio::spawn(other.sender.clone().run(std::future::pending()));
    receiver.wait_for(6).await;
    change(&server, &acme, &hook, &json!({"enabled": false})).await;
    let mut left = tally(&server, &acme, &hook).await;
    while left.contains_key("pending") {
        tokio::time::sleep(Duration::from_millis(100)).await;
        left = tally(&server, &acme, &hook).await;
    }
    assert!(receiver.count() < 200, "{} were sent, most of them to an endpoint that was off", receiver.count());
    assert!(left["skipped disabled"] > 300, "{left:?}");
    sending.abort();
}

/// A write that has woken a lane by hand holds its row until it ends, and on PostgreSQL that may take a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lane_that_is_locked_keeps_no_other_waiting() {
    let server = open(Setup::postgres().await).await;
    let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
    let receiver = Receiver::start().await;
    let locked = hook(&server, &acme, &receiver.url("/acme"), &json!({})).await;
    hook(&server, &globex, &receiver.url("/globex"), &json!({})).await;
    publish_one(&server, &acme, "rec_1").await;
    publish_one(&server, &globex, "rec_1").await;
    let holding = hold_open(&server, &acme, async move |tx| {
        lanes::wake_lane(tx, WEBHOOK_LANE, locked["id"].as_str().unwrap()).await
    })
    .await;
    run(&server).await;
    assert_eq!((receiver.count_on("/acme"), receiver.count_on("/globex")), (0, 1));
    holding.commit().await;
    run(&server).await;
    assert_eq!(receiver.count_on("/acme"), 1);
}

/// More than a lease lasts, in both directions.
const CLOCKS_APART_MS: i64 = 25 * SECOND_MS;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_whose_clocks_differ_ask_a_slow_receiver_once() {
    let server = open(Setup::postgres().await.in_real_time()).await;
    let acme = server.tenant("acme").await;
    for (number, apart_ms) in [CLOCKS_APART_MS, -CLOCKS_APART_MS].into_iter().enumerate() {
        let world = Env { clock: WallClock::Skewed(apart_ms), ..Env::default() };
        let other = server.second_node_with(world).await;
        let ahead_ms = kernel::jobs::compare_clocks(&other.app).await.unwrap();
        assert!((ahead_ms - apart_ms).abs() < SECOND_MS, "it is told by how much: {ahead_ms}");
        assert!(kernel::jobs::compare_clocks(&server.app).await.unwrap().abs() < SECOND_MS);
        for (by, sends, looks) in [("right", &server, &other), ("wrong", &other, &server)] {
            let (receiver, gate) = (Receiver::start().await, Gate::closed());
            receiver.on("/slow", [Behaviour::Hold(gate.clone())]);
            let slow = hook(&server, &acme, &receiver.url("/slow"), &json!({"name": format!("{by}{number}")})).await;
            let event = publish_one(sends, &acme, "rec_1").await;
            let sending = tokio::spawn({
                let sender = sends.sender.clone();
                async move { sender.run_due().await }
            });
            receiver.wait_for(1).await;
            run(looks).await;
            assert_eq!(receiver.count(), 1, "{by} clock, {apart_ms} ms: the lane is the other's");
            gate.open();
            sending.await.unwrap().unwrap();
            assert_eq!(delivery(&server, &acme, &slow, &event).await["status"], "succeeded");
            assert_eq!(receiver.count(), 1);
            super::drive::remove(&server, &acme, &slow).await;
        }
    }
}
