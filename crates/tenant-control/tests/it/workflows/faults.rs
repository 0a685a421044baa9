//! A crash at every place where one can be told to happen, one at a time: each run comes to its right end, and what it does
//! inside the platform happens once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kernel::base::{FaultPoints, InjectedFault};
use kernel::jobs::lanes::LEASE_MS;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::receiver::Receiver;
use crate::support::workflows::{approval, assert_ended, on_event_if, on_schedule, open, step, time, wait};
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::tickets;

/// More moments than one run has, crashes included.
const MOMENTS_MAX: usize = 200;

/// Counts every place that is passed, and lets one thing happen at one of them.
#[derive(Clone, Default)]
struct Fate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    passed: AtomicUsize,
    places: Mutex<Vec<&'static str>>,
    planned: Mutex<Option<(usize, InjectedFault)>>,
    died: Notify,
}

impl Fate {
    fn faults(&self) -> FaultPoints {
        let fate = self.clone();
        FaultPoints::new(move |place| fate.at(place))
    }

    fn at(&self, place: &'static str) -> InjectedFault {
        let nth = self.0.passed.fetch_add(1, Ordering::SeqCst);
        self.0.places.lock().unwrap().push(place);
        let planned = *self.0.planned.lock().unwrap();
        let Some((_, fault)) = planned.filter(|(at, _)| *at == nth) else { return InjectedFault::None };
        if fault == InjectedFault::Die {
            self.0.died.notify_one();
        }
        fault
    }

    /// From now on, counted anew.
    fn plan(&self, planned: Option<(usize, InjectedFault)>) {
        *self.0.planned.lock().unwrap() = planned;
        self.0.places.lock().unwrap().clear();
        self.0.passed.store(0, Ordering::SeqCst);
    }

    fn places(&self) -> Vec<&'static str> {
        self.0.places.lock().unwrap().clone()
    }
}

struct Scene<'a> {
    server: &'a Server,
    fate: &'a Fate,
    tenancy: Tenancy,
    receiver: Receiver,
    by_event: Value,
    by_schedule: Value,
}

impl<'a> Scene<'a> {
    async fn new(server: &'a Server, fate: &'a Fate, slug: &str) -> Scene<'a> {
        let (tenancy, receiver) = (server.tenant(slug).await, Receiver::start().await);
        let body = json!({"run": "${{ run.id }}", "number": "${{ steps.make.output.number }}", "at": "${{ now }}"});
        let by_event = on_event_if(
            &["ticket.created"],
            "event.data.source == 'ui'",
            [
                step("make", "ticket.create", json!({"subject": "Made", "external_id": "${{ run.id }}"})),
                step("call", "http.request", json!({"method": "POST", "url": receiver.url("/a"), "body": body}))
                    .needs(&["make"]),
                wait("pause", 5).needs(&["call"]),
                approval("asked").needs(&["pause"]),
                step("tell", "event.emit", json!({"name": "told", "data": {}})).needs(&["asked"]),
            ],
        );
        let by_event = server.workflow(&tenancy, &by_event).await;
        let tick = step("tick", "event.emit", json!({"name": "tick", "data": {}}));
        let by_schedule = server.workflow(&tenancy, &on_schedule("0 0 1 * *", "UTC", [tick])).await;
        Scene { server, fate, tenancy, receiver, by_event, by_schedule }
    }

    /// From the event to the end of its run, and then the schedule, whatever happens on the way.
    async fn play(&self) {
        self.happen().await;
        self.fire().await;
    }

    async fn happen(&self) {
        tickets::make(self.server, &self.tenancy, &json!({})).await;
        for _ in 0..MOMENTS_MAX {
            self.work().await;
            let runs = self.server.runs_of(&self.tenancy, &self.by_event).await;
            if let [run] = &runs[..] {
                match run["status"].as_str().expect("a status") {
                    "waiting" => drop(self.server.tell_run(&self.tenancy, run, "approve").await),
                    "running" | "pending" => {}
                    _ => return,
                }
            }
            // A lane that was given up in the middle is another's when its lease has ended.
            self.server.advance(LEASE_MS / 2);
        }
        let runs = self.server.runs_of(&self.tenancy, &self.by_event).await;
        panic!("{}: no run comes to its end: {runs:#?}, {:?}", self.tenancy.tenant.slug, self.fate.places());
    }

    /// Fires the schedule, once.
    async fn fire(&self) {
        let next = self.server.read_workflow(&self.tenancy, &self.by_schedule).await["next_run_at"].clone();
        self.server.advance_to(time(&next));
        for _ in 0..MOMENTS_MAX {
            self.work().await;
            let runs = self.server.runs_of(&self.tenancy, &self.by_schedule).await;
            if matches!(&runs[..], [run] if run["status"] == "succeeded") {
                return;
            }
            self.server.advance(LEASE_MS / 2);
        }
        panic!("the schedule does not fire");
    }

    /// Works as a process does, until it is done or dies; then another has to wait until the lease has ended.
    async fn work(&self) {
        let engine = self.server.engine();
        let mut working = tokio::spawn(async move { engine.run_due().await });
        tokio::select! {
            worked = &mut working => {
                // An error is as good as a database that went away for a moment.
                drop(worked.expect("no panic"));
            }
            () = self.fate.0.died.notified() => {
                working.abort();
                drop(working.await);
                self.server.advance(LEASE_MS);
            }
        }
    }

    async fn assert_once(&self, what: &str) {
        let runs = self.server.runs_of(&self.tenancy, &self.by_event).await;
        assert_eq!(runs.len(), 1, "{what}");
        let run = self.server.read_run(&self.tenancy, &runs[0]).await;
        assert_ended(
            &run,
            "succeeded: make succeeded, call succeeded, pause succeeded, asked succeeded, tell succeeded",
        );
        let made = tickets::list(self.server, &self.tenancy, "").await;
        assert_eq!(made.len(), 2, "{what}: {made:#?}");
        let received = self.receiver.received();
        let sent: BTreeSet<(&String, &Vec<u8>)> =
            received.iter().map(|request| (&request.headers["idempotency-key"], &request.body)).collect();
        assert!(!received.is_empty() && sent.len() == 1, "{what}: {received:#?}");
        let told = self.server.kinds_of(&self.tenancy, "").await;
        for (kind, count) in [
            ("ticket.created", 2),
            ("custom.told", 1),
            ("custom.tick", 1),
            ("workflow.approval.requested", 1),
            ("workflow.run.started", 2),
            ("workflow.run.succeeded", 2),
            ("workflow.run.failed", 0),
        ] {
            assert_eq!(told.iter().filter(|told| *told == kind).count(), count, "{what}: {kind} in {told:#?}");
        }
        let fired = self.server.runs_of(&self.tenancy, &self.by_schedule).await;
        assert_eq!(fired.len(), 1, "{what}");
    }

    async fn end(self) {
        for workflow in [&self.by_event, &self.by_schedule] {
            self.server.delete_workflow(&self.tenancy, workflow).await;
        }
        self.server.work().await;
    }
}

/// Plays the whole once without a fault, and then once for each place that was passed, with this fault there.
async fn at_every_place(setup: Setup, fault: InjectedFault, matters: fn(&str) -> bool) {
    let fate = Fate::default();
    let server = open(setup.with_faults(fate.faults())).await;
    let scene = Scene::new(&server, &fate, "calm").await;
    fate.plan(None);
    scene.play().await;
    let places = fate.places();
    scene.assert_once("without a fault").await;
    scene.end().await;
    let kinds: BTreeSet<&str> = places.iter().copied().filter(|place| matters(place)).collect();
    assert!(kinds.len() >= 4, "there is little that can fail: {places:?}");
    for (nth, place) in places.iter().enumerate().filter(|(_, place)| matters(place)) {
        let what = format!("{fault:?} at {place}, passed after {nth} others");
        fate.plan(None);
        let scene = Scene::new(&server, &fate, &format!("tenant-{nth}")).await;
        fate.plan(Some((nth, fault)));
        scene.play().await;
        fate.plan(None);
        scene.assert_once(&what).await;
        scene.end().await;
    }
}

over_http! {
    async fn an_error_at_any_place_leaves_every_effect_done_once(setup: Setup) {
        at_every_place(setup, InjectedFault::Error, |_| true).await;
    }

    async fn a_death_at_any_place_leaves_every_effect_done_once(setup: Setup) {
        // Inside a transaction it is what an error is: all of it is undone.
        at_every_place(setup, InjectedFault::Die, |place| {
            !place.ends_with("before_commit") && !place.ends_with("after_effect")
        })
        .await;
    }
}
