//! Publishing waits for no lane, and what it publishes is sent: no wake-up is lost, whoever gives the lane back meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kernel::args;
use kernel::base::{Actor, Result};
use kernel::events;
use kernel::jobs::lanes;
use kernel::store::{Tx, WriteFn};
use serde_json::json;
use tenant_control::features::webhooks::WEBHOOK_LANE;
use tenant_control::features::webhooks::sender::{self, WebhookSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::drive::{LOAD, hook, publish_one, run};
use super::open;
use crate::support::people::KEYS;
use crate::support::receiver::Receiver;
use crate::support::{Server, Setup, Tenancy, over_http};

/// A write that has done its part, and is not committed yet.
pub struct Open {
    commit: std::sync::mpsc::Sender<()>,
    writing: JoinHandle<Result<()>>,
}

impl Open {
    pub async fn commit(self) {
        drop(self.commit);
        self.writing.await.unwrap().unwrap();
    }
}

/// Begins a write of the tenant's and leaves it open. On PostgreSQL others go on meanwhile.
pub async fn hold_open(
    server: &Server,
    tenancy: &Tenancy,
    part: impl for<'t> WriteFn<&'t mut Tx, Result<()>, Fut: Send> + Send + 'static,
) -> Open {
    let (entered, has_entered) = oneshot::channel();
    let (commit, committed) = std::sync::mpsc::channel::<()>();
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let writing = tokio::spawn(async move {
        db.write(async move |tx| {
            part(tx).await?;
            // What nobody has waited for goes out with the next statement.
            tx.find::<String>("SELECT id FROM tenants WHERE id = $1", args![]).await?;
            let _ = entered.send(());
            let _ = tokio::task::block_in_place(|| committed.recv());
            Ok(())
        })
        .await
    });
    has_entered.await.expect("it gets so far");
    Open { commit, writing }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_is_published_while_the_lanes_of_its_endpoints_are_held() {
    let server = open(Setup::postgres().await).await;
    let acme = server.tenant("acme").await;
    let receiver = Receiver::start().await;
    hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
    hook(&server, &acme, &receiver.url("/ordered"), &json!({"name": "Ordered", "ordered": true})).await;
    publish_one(&server, &acme, "rec_1").await;
    let held = lanes::lease_due_lanes(&server.app, WEBHOOK_LANE, 8).await.expect("leases");
    assert_eq!(held.len(), 2);
    let holding = hold_open(&server, &acme, async move |tx| {
        for lane in held {
            assert!(lane.extend_lease(tx).await?);
            lane.release_lease(tx, None, None).await?;
        }
        Ok(())
    })
    .await;
    // Nobody gives them back before this is answered.
    server.post(KEYS).cookie(&acme.admin).json(&json!({"name": "Key", "scopes": ["tickets:read"]})).await.is(201);
    run(&server).await;
    assert_eq!(receiver.count(), 0, "the lanes are another's");
    holding.commit().await;
    run(&server).await;
    assert_eq!((receiver.count_on("/hook"), receiver.count_on("/ordered")), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_published_while_another_node_gives_the_lane_back_is_sent() {
    let server = open(Setup::postgres().await).await;
    let other = server.second_node().await;
    let acme = server.tenant("acme").await;
    let receiver = Receiver::start().await;
    hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
    hook(&server, &acme, &receiver.url("/ordered"), &json!({"name": "Ordered", "ordered": true})).await;
    publish_one(&server, &acme, "rec_1").await;
    let publishing = hold_open(&server, &acme, async move |tx| {
        events::publish(tx, &LOAD, "rec_1", &json!({"id": "rec_1"})).await.map(drop)
    })
    .await;
    // It sends the first, sees nothing of the second, and gives the lane back with nothing due.
    run(&other).await;
    assert_eq!(
        (receiver.count_on("/hook"), receiver.count_on("/ordered")),
        (1, 1),
        "it does not wait for who publishes"
    );
    assert_eq!(lanes::find_next_due(&server.app.store, WEBHOOK_LANE).await.unwrap(), None);
    publishing.commit().await;
    run(&other).await;
    assert_eq!((receiver.count_on("/hook"), receiver.count_on("/ordered")), (2, 2));
}

over_http! {
    async fn no_wake_up_is_lost_while_lanes_are_given_back_all_the_time(setup: Setup) {
        let server = open(setup).await;
        let other = WebhookSender::new(server.app.clone(), sender::SenderSettings::default());
        interleave(&server, &server, [server.sender.clone(), other]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_between_two_nodes() {
    let server = open(Setup::postgres().await).await;
    let other = server.second_node().await;
    interleave(&server, &other, [server.sender.clone(), other.sender.clone()]).await;
}

/// Publishes one event after the other, each when the one before was received, while two senders lease and give back
/// whatever is due: a wake-up that is lost is an event that never comes.
async fn interleave(server: &Server, other: &Server, senders: [WebhookSender; 2]) {
    const EVENTS: usize = 40;
    let acme = server.tenant("acme").await;
    let receiver = Receiver::start().await;
    for (path, ordered) in [("/hook", false), ("/ordered", true)] {
        hook(server, &acme, &receiver.url(path), &json!({"name": path, "ordered": ordered})).await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let sending = senders.map(|sender| {
        let done = done.clone();
        tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                sender.run_due().await.expect("sending");
                // With nothing due it never waits, and tasks that were woken on this thread would not run.
                tokio::task::yield_now().await;
            }
        })
    });
    for number in 1..=EVENTS {
        publish_one(if number % 2 == 0 { server } else { other }, &acme, "rec_1").await;
        for path in ["/hook", "/ordered"] {
            receiver.wait_for_acknowledged(path, number).await;
        }
    }
    done.store(true, Ordering::Relaxed);
    for sending in sending {
        sending.await.expect("it ends");
    }
    for path in ["/hook", "/ordered"] {
        assert!(receiver.tallies(path).values().all(|tally| tally.requests == 1), "{path}: each once");
    }
}
