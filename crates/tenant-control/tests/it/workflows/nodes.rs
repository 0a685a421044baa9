//! Several nodes on one PostgreSQL: what one has begun another finishes, and nothing is done twice.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use kernel::base::{Env, FaultPoints, InjectedFault, MINUTE_MS};
use kernel::jobs::lanes::LEASE_MS;
use serde_json::{Value, json};

use crate::support::process::until;
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::workflows::{
    approval, assert_ended, get, manual, on_event, on_schedule, one_run, open, step, step_of, ticket,
};
use crate::support::{Server, Setup};
use crate::tickets;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

async fn first_node() -> Server {
    open(Setup::postgres().await).await
}

/// Another node, to which something happens at one place, the first time that it comes there.
async fn node_with(server: &Server, place: &'static str, fault: InjectedFault) -> (Server, Arc<AtomicBool>) {
    let reached = Arc::new(AtomicBool::new(false));
    let told = reached.clone();
    let faults =
        FaultPoints::new(
            move |here| if here == place && !told.swap(true, Ordering::SeqCst) { fault } else { InjectedFault::None },
        );
    (server.second_node_with(Env { faults, ..server.app.env.clone() }).await, reached)
}

/// A ticket, a request and a ticket, one after the other.
fn three_steps(url: &str) -> Value {
    manual([
        ticket("before", "Before"),
        step(
            "call",
            "http.request",
            json!({"method": "POST", "url": url, "body": {"run": "${{ run.id }}", "at": "${{ now }}"}}),
        )
        .needs(&["before"]),
        ticket("after", "After ${{ steps.call.output.status }}").needs(&["call"]),
    ])
}

const THREE_DONE: &str = "succeeded: before succeeded, call succeeded, after succeeded";

/// What there is of tickets after one run of the three steps.
async fn assert_done_once(server: &Server, tenancy: &crate::support::Tenancy) {
    let made = tickets::list(server, tenancy, "sort=created_at").await;
    let subjects: Vec<&str> = made.iter().map(|made| made["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["Before", "After 204"]);
    assert_eq!(server.kinds_of(tenancy, "workflow.").await, ["workflow.run.started", "workflow.run.succeeded"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_of_a_node_that_died_is_finished_by_another() {
    let server = first_node().await;
    let acme = server.tenant("acme").await;
    let receiver = Receiver::start().await;
    receiver.on("/a", [Behaviour::Hang, Behaviour::Answer(204)]);
    let workflow = server.workflow(&acme, &three_steps(&receiver.url("/a"))).await;
    let run = server.start_run(&acme, &workflow, &json!({})).await;
    let dying = server.second_node().await.engine();
    let working = tokio::spawn(async move { dying.run_due().await });
    receiver.wait_for(1).await;
    working.abort();
    server.work().await;
    assert_eq!(receiver.count(), 1, "it may still be alive");
    server.advance(LEASE_MS);
    server.work().await;
    let run = server.read_run(&acme, &run).await;
    assert_ended(&run, THREE_DONE);
    let received = receiver.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].headers["idempotency-key"], received[1].headers["idempotency-key"]);
    assert_eq!(received[0].body, received[1].body);
    assert_done_once(&server, &acme).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_thaws_after_another_has_gone_on_changes_nothing() {
    let server = first_node().await;
    let acme = server.tenant("acme").await;
    let receiver = Receiver::start().await;
    let gate = Gate::closed();
    receiver.on("/a", [Behaviour::HoldThen(gate.clone(), 500), Behaviour::Answer(204)]);
    let workflow = server.workflow(&acme, &three_steps(&receiver.url("/a"))).await;
    let run = server.start_run(&acme, &workflow, &json!({})).await;
    let freezing = server.second_node().await;
    let engine = freezing.engine();
    let working = tokio::spawn(async move { engine.run_due().await });
    receiver.wait_for(1).await;
    server.advance(LEASE_MS);
    server.work().await;
    let done = server.read_run(&acme, &run).await;
    assert_ended(&done, THREE_DONE);
    gate.open();
    // Whether it notices or is told, it ends without having written anything.
    drop(working.await.unwrap());
    freezing.work().await;
    assert_eq!(server.read_run(&acme, &run).await, done);
    assert_done_once(&server, &acme).await;
}

/// A node that stands still between the look at a step and the step itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_froze_before_an_effect_does_not_do_it_again() {
    let server = first_node().await;
    let acme = server.tenant("acme").await;
    let workflow =
        server.workflow(&acme, &manual([ticket("make", "Once"), ticket("after", "After").needs(&["make"])])).await;
    let run = server.start_run(&acme, &workflow, &json!({})).await;
    let (thaw, frozen) = mpsc::channel::<()>();
    let (frozen, count) = (Mutex::new(frozen), Arc::new(AtomicUsize::new(0)));
    let seen = count.clone();
    let faults = FaultPoints::new(move |place| {
        if place == "steps.act.before" && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            let frozen = frozen.lock().unwrap();
            let _ = tokio::task::block_in_place(|| frozen.recv());
        }
        InjectedFault::None
    });
    let freezing = server.second_node_with(Env { faults, ..server.app.env.clone() }).await;
    let engine = freezing.engine();
    let working = tokio::spawn(async move { engine.run_due().await });
    until("it stands still", PATIENCE, async || (count.load(Ordering::SeqCst) > 0).then_some(())).await;
    server.advance(LEASE_MS);
    server.work().await;
    let done = server.read_run(&acme, &run).await;
    assert_ended(&done, "succeeded: make succeeded, after succeeded");
    thaw.send(()).unwrap();
    drop(working.await.unwrap());
    assert_eq!(server.read_run(&acme, &run).await, done);
    assert_eq!(tickets::numbers(&server, &acme, "").await, [2, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_before_or_after_an_effect_leaves_it_done_once() {
    let server = first_node().await;
    for (nth, (place, fault)) in [
        ("steps.act.before", InjectedFault::Die),
        ("steps.act.before", InjectedFault::Error),
        ("steps.act.before_commit", InjectedFault::Error),
        ("steps.act.after_commit", InjectedFault::Die),
        ("steps.act.after_commit", InjectedFault::Error),
    ]
    .into_iter()
    .enumerate()
    {
        let acme = server.tenant(&format!("acme-{nth}")).await;
        let receiver = Receiver::start().await;
        let workflow = server.workflow(&acme, &three_steps(&receiver.url("/a"))).await;
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        let (failing, reached) = node_with(&server, place, fault).await;
        let engine = failing.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        until("it has come there", PATIENCE, async || reached.load(Ordering::SeqCst).then_some(())).await;
        if fault == InjectedFault::Die {
            working.abort();
        }
        drop(working.await);
        server.advance(LEASE_MS);
        server.work().await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, THREE_DONE);
        assert_done_once(&server, &acme).await;
        assert_eq!(receiver.count(), 1, "{place} {fault:?}");
        assert_eq!(step_of(&run, "before")["attempts"].as_array().unwrap().len(), 1, "{place} {fault:?}: {run:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_approval_can_be_given_to_either_node() {
    let server = first_node().await;
    let other = server.second_node().await;
    let acme = server.tenant("acme").await;
    let workflow =
        server.workflow(&acme, &manual([approval("asked"), ticket("after", "After").needs(&["asked"])])).await;
    for (runs, approves, finishes) in
        [(&server, &other, &server), (&other, &server, &server), (&server, &other, &other), (&other, &other, &server)]
    {
        let run = runs.start_run(&acme, &workflow, &json!({})).await;
        runs.work().await;
        approves.tell_run(&acme, &run, "approve").await.is(200);
        finishes.work().await;
        for node in [&server, &other] {
            assert_ended(&node.read_run(&acme, &run).await, "succeeded: asked succeeded, after succeeded");
        }
    }
    // Both at once: one of them is taken.
    let run = server.start_run(&acme, &workflow, &json!({})).await;
    server.work().await;
    let (one, two) = tokio::join!(server.tell_run(&acme, &run, "approve"), other.tell_run(&acme, &run, "reject"));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    other.work().await;
    let end = server.read_run(&acme, &run).await;
    assert_eq!(end["status"], if one.status == 200 { "succeeded" } else { "failed" }, "{end:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_schedule_fires_once_for_all_nodes() {
    let server = first_node().await;
    let other = server.second_node().await;
    let acme = server.tenant("acme").await;
    let tick = step("tick", "event.emit", json!({"name": "tick", "data": {}}));
    let workflow = server.workflow(&acme, &on_schedule("* * * * *", "UTC", [tick])).await;
    for _ in 0..10 {
        server.advance(MINUTE_MS);
        tokio::join!(server.work(), other.work());
    }
    let runs = server.runs_of(&acme, &workflow).await;
    assert_eq!(runs.len(), 10);
    assert!(runs.iter().all(|run| run["status"] == "succeeded" && run["trigger"]["late"] == false), "{runs:#?}");
    assert_eq!(server.events_of(&acme, "custom.tick").await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_at_once_do_each_step_once() {
    let server = first_node().await;
    let other = server.second_node().await;
    let receiver = Receiver::start().await;
    let mut all = Vec::new();
    for slug in ["acme", "globex", "initech"] {
        let tenancy = server.tenant(slug).await;
        let workflow = server.workflow(&tenancy, &three_steps(&receiver.url(&format!("/{slug}")))).await;
        let follower = server
            .workflow(&tenancy, &on_event(&["workflow.run.succeeded"], [get("told", &receiver.url("/told"))]))
            .await;
        server.change_workflow(&tenancy, &follower, &json!({"on": {"event": {"if": format!("event.data.workflow_id == '{}'", workflow["id"].as_str().unwrap())}}})).await;
        for number in 0..6 {
            let node = if number % 2 == 0 { &server } else { &other };
            node.start_run(&tenancy, &workflow, &json!({})).await;
        }
        all.push((tenancy, workflow, follower));
    }
    tokio::join!(server.work(), other.work(), server.work(), other.work());
    server.work().await;
    for (tenancy, workflow, follower) in &all {
        let runs = server.runs_of(tenancy, workflow).await;
        assert!(runs.len() == 6 && runs.iter().all(|run| run["status"] == "succeeded"), "{runs:#?}");
        assert_eq!(server.runs_of(tenancy, follower).await.len(), 6);
        assert_eq!(tickets::numbers(&server, tenancy, "").await.len(), 12);
        assert_eq!(receiver.count_on(&format!("/{}", tenancy.tenant.slug)), 6);
    }
    assert_eq!(receiver.count_on("/told"), 18);
}

/// Cancels, approvals, deletions and work at the same time: whatever the order, nobody waits for ever, and each run ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_is_told_to_runs_while_two_nodes_work_they_end() {
    let server = first_node().await;
    let other = server.second_node().await;
    let acme = server.tenant("acme").await;
    let workflow = server
        .workflow(
            &acme,
            &manual([ticket("before", "A"), approval("asked"), ticket("after", "B").needs(&["asked", "before"])]),
        )
        .await;
    let mut runs = Vec::new();
    for _ in 0..12 {
        runs.push(server.start_run(&acme, &workflow, &json!({})).await);
    }
    let all_told = AtomicBool::new(false);
    let telling = async {
        for (place, run) in runs.iter().enumerate() {
            let node = if place % 2 == 0 { &server } else { &other };
            let action = ["approve", "cancel", "reject"][place % 3];
            // What is not asked yet cannot be answered.
            until("it is taken", PATIENCE, async || {
                let answer = node.patch(one_run(run)).cookie(&acme.admin).json(&json!({"action": action})).await;
                assert!([200, 409].contains(&answer.status), "{}", answer.json());
                (answer.status == 200).then_some(())
            })
            .await;
            tickets::make(&server, &acme, &json!({})).await;
        }
        all_told.store(true, Ordering::Relaxed);
    };
    let working = async {
        while !all_told.load(Ordering::Relaxed) {
            tokio::join!(server.work(), other.work());
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(telling, working);
    server.work().await;
    for (place, run) in runs.iter().enumerate() {
        let run = server.read_run(&acme, run).await;
        let expected = ["succeeded", "cancelled", "failed"][place % 3];
        assert_eq!(run["status"], expected, "{run:#}");
    }
}
