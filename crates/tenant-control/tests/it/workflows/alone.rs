//! What fails alone: a definition that was good when it was saved and is not any more, and a step that brings down whoever
//! does it. Their runs end with a reason, and all others of the tenant go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kernel::args;
use kernel::base::{Actor, FaultPoints, HOUR_MS, InjectedFault};
use serde_json::{Value, json};

use crate::support::workflows::{
    Step, assert_ended, attempt_codes, id_of, manual, on_event, on_schedule, open, step, step_of, ticket, time, wait,
};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets;

fn tell() -> Step {
    step("tell", "event.emit", json!({"name": "told", "data": {}}))
}

/// The stored definition names an action that is gone, as after an upgrade that has left it out.
async fn outdate(server: &Server, tenancy: &Tenancy, workflow: &Value) {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let sql = "UPDATE workflow_revisions SET definition = REPLACE(definition, 'event.emit', 'event.gone')
        WHERE tenant_id = $1 AND workflow_id = $2";
    let id = id_of(workflow).to_owned();
    assert_eq!(db.write(async move |tx| tx.exec(sql, args![id]).await).await.expect("a change"), 1);
}

#[track_caller]
fn is_told(run: &Value, pointer: &str) {
    let (code, detail) = (&run["error"]["code"], run["error"]["detail"].as_str().unwrap_or_default());
    assert_eq!((&run["status"], code), (&json!("failed"), &json!("invalid_definition")), "{run:#}");
    assert!(detail.contains(pointer), "{detail}");
}

over_http! {
    async fn a_definition_that_cannot_be_run_any_more_fails_its_runs_alone(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let by_hand = server.workflow(&acme, &manual([wait("pause", 60), tell().needs(&["pause"])])).await;
        let by_event = server.workflow(&acme, &on_event(&["ticket.created"], [tell()])).await;
        let good = server.workflow(&acme, &on_event(&["ticket.created"], [tell()])).await;
        let begun = server.start_run(&acme, &by_hand, &json!({})).await;
        server.work().await;
        for workflow in [&by_hand, &by_event] {
            outdate(&server, &acme, workflow).await;
        }
        let queued = server.start_run(&acme, &by_hand, &json!({})).await;
        tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        is_told(&server.read_run(&acme, &queued).await, "/steps/1/uses");
        is_told(&server.runs_of(&acme, &by_event).await[0], "/steps/0/uses");
        assert_eq!(server.runs_of(&acme, &good).await[0]["status"], "succeeded");
        // One that has begun fails when its next step is due.
        assert_eq!(server.read_run(&acme, &begun).await["status"], "waiting");
        server.work_for(60_000).await;
        let begun = server.read_run(&acme, &begun).await;
        is_told(&begun, "/steps/1/uses");
        assert_eq!(step_of(&begun, "tell")["status"], "skipped");
        // It is mended like any other.
        let steps = json!({"steps": manual([tell()])["steps"]});
        server.change_workflow(&acme, &by_event, &steps).await;
        tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        for workflow in [&by_event, &good] {
            assert_eq!(server.runs_of(&acme, workflow).await[1]["status"], "succeeded");
        }
    }

    async fn a_schedule_that_cannot_be_run_any_more_fires_again_once_it_is_mended(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (bad, good) = (
            server.workflow(&acme, &on_schedule("0 * * * *", "UTC", [tell()])).await,
            server.workflow(&acme, &on_schedule("0 * * * *", "UTC", [tell()])).await,
        );
        outdate(&server, &acme, &bad).await;
        let start = server.now();
        server.work_for(2 * HOUR_MS).await;
        let runs = server.runs_of(&acme, &bad).await;
        assert_eq!(runs.len(), 2);
        for run in &runs {
            is_told(run, "/steps/0/uses");
        }
        let steps = json!({"steps": manual([tell(), wait("pause", 1)])["steps"]});
        let mended = server.change_workflow(&acme, &bad, &steps).await;
        assert_eq!(time(&mended["next_run_at"]), start.plus_ms(3 * HOUR_MS));
        server.work_for(HOUR_MS + 1_000).await;
        for workflow in [&bad, &good] {
            let runs = server.runs_of(&acme, workflow).await;
            assert_eq!((runs.len(), &runs[2]["status"]), (3, &json!("succeeded")), "{runs:#?}");
        }
    }

    async fn a_step_that_panics_is_an_attempt_that_failed(setup: Setup) {
        let armed = Arc::new(AtomicBool::new(false));
        let once = armed.clone();
        let faults = FaultPoints::new(move |place| {
            let panics = place == "steps.act.before" && once.swap(false, Ordering::SeqCst);
            assert!(!panics, "as the test wants it");
            InjectedFault::None
        });
        let server = open(setup.with_faults(faults)).await;
        let acme = server.tenant("acme").await;
        let retried = server.workflow(&acme, &manual([ticket("make", "A").retry(1, 1)])).await;
        let runs =
            [server.start_run(&acme, &retried, &json!({})).await, server.start_run(&acme, &retried, &json!({})).await];
        armed.store(true, Ordering::SeqCst);
        server.work_for(2_000).await;
        let mut codes = Vec::new();
        for run in &runs {
            let run = server.read_run(&acme, run).await;
            assert_ended(&run, "succeeded: make succeeded");
            codes.extend(attempt_codes(step_of(&run, "make")));
        }
        codes.sort_unstable();
        assert_eq!(codes, ["", "", "internal"], "one of the two, once");
        armed.store(true, Ordering::SeqCst);
        let run = server.run(&acme, &manual([ticket("make", "A")])).await;
        assert_ended(&run, "failed: make failed");
        assert_eq!(run["error"]["code"], "internal");
        assert_eq!(tickets::numbers(&server, &acme, "").await.len(), 2);
    }
}
