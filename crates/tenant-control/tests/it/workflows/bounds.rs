//! What does not grow: what is read for an event that somebody wants, the revisions that are kept, and the size of a run.

use kernel::base::{Actor, DAY_MS};
use serde_json::{Value, json};
use tenant_control::features::workflows::jobs;

use crate::support::receiver::Receiver;
use crate::support::workflows::{Step, assert_ended, manual, on_event, open, step, step_of, ticket};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets;

async fn position(server: &Server, tenancy: &Tenancy) -> (i64, bool) {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let sql = "SELECT position, behind FROM followers WHERE tenant_id = $1 AND name = 'workflows'";
    db.get_one(sql, kernel::args![]).await.expect("a follower")
}

async fn revisions(server: &Server, tenancy: &Tenancy) -> Vec<i64> {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let sql = "SELECT revision FROM workflow_revisions WHERE tenant_id = $1 ORDER BY revision";
    db.list(sql, kernel::args![]).await.expect("revisions")
}

/// A request that is given three times what the input says.
fn big(number: usize, url: &str) -> Step {
    let body = json!(["${{ input.text }}", "${{ input.text }}", "${{ input.text }}"]);
    let made = step(&format!("s{number:02}"), "http.request", json!({"method": "POST", "url": url, "body": body}));
    if number == 0 { made } else { made.needs(&[format!("s{:02}", number - 1).as_str()]) }
}

over_http! {
    async fn what_nobody_wants_is_never_read(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &on_event(&["ticket.commented"], [ticket("make", "A")])).await;
        let begun = position(&server, &acme).await;
        let first = tickets::make(&server, &acme, &json!({})).await;
        for _ in 0..5 {
            tickets::make(&server, &acme, &json!({})).await;
        }
        assert_eq!(position(&server, &acme).await, (begun.0, false), "nothing to read");
        tickets::changed(&server, &acme, &first, &json!({"comment": {"body": "Hello.", "public": true}})).await;
        let events = server.events_of(&acme, "ticket.commented").await;
        let wanted = events[0]["sequence"].as_i64().expect("a sequence");
        assert_eq!(position(&server, &acme).await, (wanted - 1, true), "from the one that is wanted");
        tickets::make(&server, &acme, &json!({})).await;
        assert_eq!(position(&server, &acme).await, (wanted - 1, true), "it has more to read already");
        server.work().await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 1);
        let (position, behind) = position(&server, &acme).await;
        assert!(position > wanted && !behind, "it has come to the end: {position} {behind}");
    }

    async fn one_cause_sets_off_so_many_runs_and_no_more(setup: Setup) {
        let mut setup = setup;
        setup.workflows.runs_chained = 10;
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let emit = |id: &str| step(id, "event.emit", json!({"name": "again", "data": {}}));
        let doubling = server.workflow(&acme, &on_event(&["custom.again"], [emit("a"), emit("b")])).await;
        let cause = server.workflow(&acme, &manual([emit("first")])).await;
        for round in 1..=2 {
            server.start_run(&acme, &cause, &json!({})).await;
            server.work().await;
            let runs = server.runs_of(&acme, &doubling).await;
            let failed: Vec<&Value> = runs.iter().filter(|run| run["status"] == "failed").collect();
            assert_eq!((runs.len(), failed.len()), (11 * round, round), "each cause has its own: {runs:#?}");
            assert_eq!(failed[0]["error"]["code"], "loop_detected");
            assert!(failed[0]["error"]["detail"].as_str().unwrap().contains("10"), "{failed:#?}");
        }
    }

    async fn a_workflow_that_is_switched_off_and_on_while_its_events_come_holds_nothing_up(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let follows = server.workflow(&acme, &on_event(&["ticket.commented"], [step("a", "wait", json!({"seconds": 1}))])).await;
        let other = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        let commented = tickets::make(&server, &acme, &json!({})).await;
        for round in 0..12 {
            let body = json!({"comment": {"body": format!("{round}"), "public": true}});
            tickets::changed(&server, &acme, &commented, &body).await;
            tokio::join!(server.work(), async {
                for enabled in [false, true] {
                    server.change_workflow(&acme, &follows, &json!({"enabled": enabled})).await;
                }
            });
            let run = server.start_run(&acme, &other, &json!({})).await;
            server.work().await;
            // A lane that nobody gave back would be taken up only when its lease has ended, and the clock stands still.
            assert_ended(&server.read_run(&acme, &run).await, "succeeded: make succeeded");
        }
    }

    async fn a_revision_is_kept_while_it_is_in_force_or_has_runs(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        server.change_workflow(&acme, &workflow, &json!({"name": "Second"})).await;
        assert_eq!(revisions(&server, &acme).await, [2], "nobody can ask for the first any more");
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        server.change_workflow(&acme, &workflow, &json!({"name": "Third"})).await;
        server.change_workflow(&acme, &workflow, &json!({"name": "Fourth"})).await;
        assert_eq!(revisions(&server, &acme).await, [2, 4]);
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: make succeeded");
        server.work_for(90 * DAY_MS + 1).await;
        jobs::clean_history(&server.app, 90 * DAY_MS).await.expect("cleaning");
        assert_eq!(revisions(&server, &acme).await, [4], "it goes with the last of its runs");
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: make succeeded");
    }

    async fn all_steps_of_a_run_together_are_given_so_much(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        // 4 MiB are 23 times 180 KB, and a little: not enough for a ticket of 30 KB that is given and answered.
        let mut steps: Vec<Step> = (0..23).map(|number| big(number, &receiver.url("/a"))).collect();
        let text = "${{ input.text.substring(0, 30000) }}";
        let make = step("make", "ticket.create", json!({"subject": "Big", "description": text}));
        steps.extend([make.needs(&["s22"]).or_continue(), big(23, &receiver.url("/b")).or_continue()]);
        let run = server.run_with(&acme, &manual(steps), &json!({"text": "x".repeat(60_000)})).await;
        let code = |id: &str| step_of(&run, id)["error"]["code"].clone();
        assert_eq!((code("s22"), code("make"), code("s23")), (json!(null), json!("output_too_large"), json!("input_too_large")));
        assert_eq!((receiver.count_on("/a"), receiver.count_on("/b")), (23, 0));
        assert!(tickets::numbers(&server, &acme, "").await.is_empty(), "what cannot be kept is not done");
        let said = step_of(&run, "make")["error"]["detail"].as_str().unwrap();
        assert!(said.contains("4194304"), "{said}");
    }
}
