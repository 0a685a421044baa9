//! Much at once: what of it counts, what is bounded, and what passes beside it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernel::base::{FaultPoints, InjectedFault, SECOND_MS};
use kernel::outbound::LaneRequestPermit;
use serde_json::json;

use crate::support::over_http;
use crate::support::process::until;
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::workflows::{assert_ended, get, manual, on_event_if, open, step_of, ticket};
use crate::tickets;

const WAIT_MAX: Duration = Duration::from_secs(30);

over_http! {
    async fn a_run_that_waits_for_its_next_attempt_keeps_none_from_beginning(setup: Setup) {
        let mut setup = setup;
        setup.workflows.runs_in_flight = 2;
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on_each("/down", |nth, _| Behaviour::Answer(if nth < 6 { 503 } else { 204 }));
        let down = server.workflow(&acme, &manual([get("call", &receiver.url("/down")).retry(10, 3_600)])).await;
        for _ in 0..6 {
            server.start_run(&acme, &down, &json!({})).await;
        }
        server.work().await;
        assert_eq!(receiver.count(), 6, "each has had its first attempt");
        let run = server.run(&acme, &manual([ticket("make", "A")])).await;
        assert_ended(&run, "succeeded: make succeeded");
        for run in server.runs_of(&acme, &down).await {
            let run = server.read_run(&acme, &run).await;
            assert_eq!((&run["status"], run["steps"][0]["next_attempt_at"].is_null()), (&json!("waiting"), false));
        }
        // An hour, and up to a fifth of it.
        server.work_for(4_320 * SECOND_MS).await;
        assert_eq!(receiver.count(), 12);
        assert!(server.runs_of(&acme, &down).await.iter().all(|run| run["status"] == "succeeded"));
    }

    async fn many_events_for_many_filters_are_judged_a_part_at_a_time(setup: Setup) {
        let passed: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let noted = passed.clone();
        let faults = FaultPoints::new(move |place| {
            if ["follow.made.before_commit", "runs.begin.before_commit"].contains(&place) {
                noted.lock().unwrap().push(place);
            }
            InjectedFault::None
        });
        let server = open(setup.with_faults(faults)).await;
        let acme = server.tenant("acme").await;
        // Nine of ten filters refuse every event, so that it is not runs that bound a part.
        let mut workflows = Vec::new();
        for number in 0..10 {
            let filter = format!("event.data.number > 0 && {number} == 9");
            workflows.push(
                server.workflow(&acme, &on_event_if(&["ticket.created"], &filter, [ticket("no", "A").when("false")])).await,
            );
        }
        for _ in 0..30 {
            tickets::make(&server, &acme, &json!({})).await;
        }
        passed.lock().unwrap().clear();
        server.work().await;
        assert_eq!(server.runs_of(&acme, workflows.last().unwrap()).await.len(), 30);
        assert_eq!(server.runs_of(&acme, &workflows[0]).await.len(), 0);
        let first: Vec<&str> = passed.lock().unwrap().iter().copied().take(6).collect();
        let part = ["follow.made.before_commit", "runs.begin.before_commit"];
        assert_eq!(first, [part, part, part].concat(), "the runs of a part begin before the next is judged");
    }

    async fn requests_that_wait_for_a_place_let_other_steps_pass(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/held", [Behaviour::Hold(gate.clone())]);
        // All places are taken, as by webhooks that hang: one request is left to the lane.
        let permits = server.app.outbound.request_permits();
        let taken: Vec<LaneRequestPermit> = std::iter::from_fn(|| permits.try_acquire(acme.tenant.id, 1)).collect();
        assert_eq!(taken.len(), 128);
        let calls = (0..50).map(|number| get(&format!("call{number}"), &receiver.url("/held")));
        let calls = server.workflow(&acme, &manual(calls)).await;
        let crowd = [server.start_run(&acme, &calls, &json!({})).await, server.start_run(&acme, &calls, &json!({})).await];
        let beside = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        let beside = server.start_run(&acme, &beside, &json!({})).await;
        let engine = server.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        until("what needs no place is done", WAIT_MAX, async || {
            (server.read_run(&acme, &beside).await["status"] == "succeeded").then_some(())
        })
        .await;
        receiver.wait_for(1).await;
        assert_eq!(receiver.count(), 1, "the others wait for a place");
        drop(taken);
        gate.open();
        working.await.unwrap().unwrap();
        for run in &crowd {
            let run = server.read_run(&acme, run).await;
            assert_eq!((&run["status"], &step_of(&run, "call49")["status"]), (&json!("succeeded"), &json!("succeeded")));
        }
        assert_eq!(receiver.count(), 100);
    }

    async fn so_many_requests_are_under_way_at_once(setup: Setup) {
        let mut setup = setup;
        setup.workflows.steps_under_way = 4;
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/held", [Behaviour::Hold(gate.clone())]);
        let calls = (0..20).map(|number| get(&format!("call{number}"), &receiver.url("/held")));
        let calls = server.workflow(&acme, &manual(calls)).await;
        let run = server.start_run(&acme, &calls, &json!({})).await;
        let own = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        let own = server.start_run(&acme, &own, &json!({})).await;
        let engine = server.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        receiver.wait_for(3).await;
        // Long enough for another look, and nothing to a neighbour.
        let beside = server.run(&globex, &manual([ticket("make", "A")])).await;
        assert_ended(&beside, "succeeded: make succeeded");
        until("what is no request is done beside them", WAIT_MAX, async || {
            (server.read_run(&acme, &own).await["status"] == "succeeded").then_some(())
        })
        .await;
        assert_eq!(receiver.count(), 3, "of four steps under way three may be requests");
        gate.open();
        working.await.unwrap().unwrap();
        assert_eq!(server.read_run(&acme, &run).await["status"], "succeeded");
        assert_eq!(receiver.count(), 20);
    }

    async fn a_workflow_whose_servers_do_not_answer_keeps_no_other_from_going_on(setup: Setup) {
        let mut setup = setup;
        setup.workflows.runs_in_flight = 2;
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/held", [Behaviour::Hold(gate.clone())]);
        let held = server.workflow(&acme, &manual([get("call", &receiver.url("/held"))])).await;
        let other = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        for _ in 0..4 {
            server.start_run(&acme, &held, &json!({})).await;
        }
        let beside = server.start_run(&acme, &other, &json!({})).await;
        let engine = server.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        until("the other workflow goes on", WAIT_MAX, async || {
            (server.read_run(&acme, &beside).await["status"] == "succeeded").then_some(())
        })
        .await;
        receiver.wait_for(2).await;
        assert_eq!(receiver.count(), 2, "of the one no more than may act at once");
        gate.open();
        working.await.unwrap().unwrap();
        assert_eq!(receiver.count(), 4);
    }
}
