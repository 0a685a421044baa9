//! How a run goes through its steps: which start when, what is skipped, and what became of the whole.

use serde_json::json;

use crate::support::over_http;
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::workflows::{
    WORKFLOWS, approval, assert_ended, failing, get, manual, open, step, step_of, summary, ticket, time, wait,
};
use crate::tickets;

over_http! {
    async fn a_run_is_answered_at_once_and_then_goes_on_by_itself(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &manual([ticket("make", "Made by hand")])).await;
        let run = server.start_run(&acme, &workflow, &json!({"why": "because"})).await;
        assert_eq!((&run["workflow_id"], &run["workflow_name"]), (&workflow["id"], &workflow["name"]));
        assert_eq!((&run["revision"], &run["dry_run"], &run["status"]), (&json!(1), &json!(false), &json!("pending")));
        assert_eq!(run["input"], json!({"why": "because"}));
        let me = tickets::who(&server, &acme.admin).await;
        let by_hand = json!({"type": "manual", "event_id": null, "scheduled_for": null, "late": false, "by": me});
        assert_eq!(run["trigger"], by_hand);
        assert_eq!((&run["error"], &run["ended_at"]), (&json!(null), &json!(null)));
        assert_eq!(tickets::numbers(&server, &acme, "").await, [0_i64; 0], "nobody has worked yet");
        server.work().await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: make succeeded");
        assert!(!run["ended_at"].is_null());
        assert_eq!(tickets::list(&server, &acme, "").await[0]["subject"], "Made by hand");
        server.work().await;
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1], "and once");
        assert_eq!(server.read_run(&acme, &run).await, run);
    }

    async fn what_is_not_said_to_be_something_else_is_a_run(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        let body = json!({"workflow_id": workflow["id"]});
        let run = server.post(WORKFLOWS).cookie(&acme.admin).json(&body).await.ok(202);
        assert_eq!((&run["workflow_id"], &run["input"]), (&workflow["id"], &json!({})));
    }

    async fn steps_start_when_their_needs_are_done(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let start = server.now();
        let run = server
            .run(
                &acme,
                &manual([
                    ticket("last", "Last").needs(&["short", "long"]),
                    wait("long", 60),
                    ticket("after_short", "After the short one").needs(&["short"]),
                    wait("short", 20),
                    ticket("first", "First"),
                ]),
            )
            .await;
        assert_ended(&run, "waiting: last pending, long waiting, after_short pending, short waiting, first succeeded");
        server.work_for(20_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(
            &run,
            "waiting: last pending, long waiting, after_short succeeded, short succeeded, first succeeded",
        );
        server.work_for(40_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(
            &run,
            "succeeded: last succeeded, long succeeded, after_short succeeded, short succeeded, first succeeded",
        );
        for (id, seconds) in [("first", 0), ("after_short", 20), ("last", 60)] {
            let step = step_of(&run, id);
            assert_eq!(time(&step["ready_at"]), start.plus_ms(seconds * 1_000), "{id}");
            assert_eq!(time(&step["ended_at"]), start.plus_ms(seconds * 1_000), "{id}");
        }
        let made: Vec<_> =
            tickets::list(&server, &acme, "sort=created_at").await.iter().map(|made| made["subject"].clone()).collect();
        assert_eq!(made, ["First", "After the short one", "Last"]);
    }

    async fn independent_steps_run_together(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        for path in ["/a", "/b", "/c"] {
            receiver.on(path, [Behaviour::Hold(gate.clone())]);
        }
        let steps = ["a", "b", "c"].map(|id| get(id, &receiver.url(&format!("/{id}"))));
        let workflow = server.workflow(&acme, &manual(steps.into_iter().chain([ticket("beside", "Beside")]))).await;
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        let (engine, opened) = (server.engine(), gate.clone());
        let working = tokio::spawn(async move { engine.run_due().await });
        receiver.wait_for(3).await;
        opened.open();
        working.await.unwrap().unwrap();
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: a succeeded, b succeeded, c succeeded, beside succeeded");
    }

    async fn two_runs_of_one_workflow_run_together(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/a", [Behaviour::Hold(gate.clone())]);
        let workflow = server.workflow(&acme, &manual([get("a", &receiver.url("/a"))])).await;
        let runs = [
            server.start_run(&acme, &workflow, &json!({})).await,
            server.start_run(&acme, &workflow, &json!({})).await,
        ];
        let engine = server.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        let received = receiver.wait_for(2).await;
        assert_ne!(received[0].headers["idempotency-key"], received[1].headers["idempotency-key"]);
        gate.open();
        working.await.unwrap().unwrap();
        for run in runs {
            assert_ended(&server.read_run(&acme, &run).await, "succeeded: a succeeded");
        }
    }

    async fn a_false_if_skips_the_step_and_what_needs_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let definition = manual([
            ticket("yes", "Yes").when("input.count > 2"),
            ticket("no", "No").when("input.count > 200"),
            ticket("after_no", "After no").needs(&["no"]),
            ticket("after_after_no", "After after no").needs(&["after_no"]),
            ticket("after_both", "After both").needs(&["yes", "no"]),
            ticket("by_output", "By output").needs(&["yes"]).when("steps.yes.output.subject == 'Yes'"),
        ]);
        let run = server.run_with(&acme, &definition, &json!({"count": 3})).await;
        assert_ended(
            &run,
            "succeeded: yes succeeded, no skipped, after_no skipped, after_after_no skipped, \
            after_both skipped, by_output succeeded",
        );
        assert_eq!(tickets::numbers(&server, &acme, "").await.len(), 2);
        assert_eq!((&step_of(&run, "no")["error"], &step_of(&run, "no")["attempts"]), (&json!(null), &json!([])));
    }

    async fn a_run_of_which_all_was_skipped_is_skipped(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server
            .run(
                &acme,
                &manual([
                    ticket("a", "A").when("false"),
                    ticket("b", "B").needs(&["a"]),
                    approval("c").when("input.size() > 0"),
                ]),
            )
            .await;
        assert_ended(&run, "skipped: a skipped, b skipped, c skipped");
        assert_eq!(run["error"], json!(null));
        assert_eq!(server.kinds_of(&acme, "workflow.").await, ["workflow.run.started", "workflow.run.succeeded"]);
    }

    async fn a_failure_leaves_other_branches_alone(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server
            .run(
                &acme,
                &manual([
                    failing("bad"),
                    ticket("after_bad", "Never").needs(&["bad"]),
                    ticket("after_after_bad", "Never").needs(&["after_bad"]),
                    wait("slow", 60),
                    ticket("after_slow", "Still").needs(&["slow"]),
                    ticket("after_both", "Never").needs(&["slow", "bad"]),
                ]),
            )
            .await;
        assert_ended(
            &run,
            "waiting: bad failed, after_bad skipped, after_after_bad skipped, slow waiting, \
            after_slow pending, after_both skipped",
        );
        server.work_for(60_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(
            &run,
            "failed: bad failed, after_bad skipped, after_after_bad skipped, slow succeeded, \
            after_slow succeeded, after_both skipped",
        );
        assert_eq!((&run["error"]["code"], &run["error"]["step_id"]), (&json!("not_found"), &json!("bad")));
        assert_eq!(step_of(&run, "bad")["error"]["code"], "not_found");
        let subjects: Vec<_> =
            tickets::list(&server, &acme, "").await.iter().map(|made| made["subject"].clone()).collect();
        assert_eq!(subjects, ["Still"]);
    }

    async fn the_error_of_a_run_is_that_of_the_first_failed_step_of_its_definition(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let late = failing("late").needs(&["pause"]);
        let allowed = failing("allowed").or_continue();
        let wrong = ticket("early", "${{ input.nothing }}");
        let run = server.run(&acme, &manual([allowed, late, wait("pause", 5), wrong])).await;
        assert_eq!(run["status"], "waiting", "{run:#}");
        server.work_for(5_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: allowed failed, late failed, pause succeeded, early failed");
        assert_eq!((&run["error"]["code"], &run["error"]["step_id"]), (&json!("not_found"), &json!("late")));
    }

    async fn what_may_fail_stays_failed_and_what_needs_it_runs(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/a", [Behaviour::Answer(500)]);
        let run = server
            .run(
                &acme,
                &manual([
                    failing("bad").or_continue(),
                    get("call", &receiver.url("/a")).or_continue(),
                    ticket("wrong", "${{ input.nothing }}").or_continue(),
                    ticket("after", "After").needs(&["bad", "call", "wrong"]),
                    step("tells", "event.emit", json!({"name": "told", "data": {"it": "${{ steps.bad.status }}"}}))
                        .needs(&["bad"]),
                ]),
            )
            .await;
        assert_ended(&run, "succeeded: bad failed, call failed, wrong failed, after succeeded, tells succeeded");
        assert_eq!(run["error"], json!(null));
        assert_eq!(step_of(&run, "bad")["error"]["code"], "not_found");
        assert_eq!(step_of(&run, "call")["error"]["code"], "http_status");
        assert_eq!(step_of(&run, "wrong")["error"]["code"], "expression_failed");
        assert_eq!(step_of(&run, "tells")["input"]["data"]["it"], "failed");
        assert_eq!(server.kinds_of(&acme, "workflow.").await, ["workflow.run.started", "workflow.run.succeeded"]);
    }

    async fn a_step_that_was_skipped_is_no_failure_that_may_be(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server
            .run(
                &acme,
                &manual([
                    ticket("skipped", "A").when("false").or_continue(),
                    ticket("after", "B").needs(&["skipped"]),
                    ticket("other", "C"),
                ]),
            )
            .await;
        assert_ended(&run, "succeeded: skipped skipped, after skipped, other succeeded");
    }

    async fn a_run_keeps_the_revision_it_began_with(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow =
            server.workflow(&acme, &manual([wait("pause", 60), ticket("make", "Old").needs(&["pause"])])).await;
        let old = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        let changed = manual([ticket("other", "New")]);
        let changed = server.change_workflow(&acme, &workflow, &json!({"steps": changed["steps"]})).await;
        assert_eq!(changed["revision"], 2);
        let new = server.start_run(&acme, &workflow, &json!({})).await;
        server.work_for(60_000).await;
        let (old, new) = (server.read_run(&acme, &old).await, server.read_run(&acme, &new).await);
        assert_eq!(
            (summary(&old), &old["revision"]),
            ("succeeded: pause succeeded, make succeeded".to_owned(), &json!(1))
        );
        assert_eq!((summary(&new), &new["revision"]), ("succeeded: other succeeded".to_owned(), &json!(2)));
    }

    async fn fifty_steps_in_one_long_row_come_to_their_end(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let emit =
            |number: usize| step(&format!("s{number}"), "event.emit", json!({"name": "step", "data": {"n": number}}));
        let steps = (0..50).map(|number| match number {
            0 => emit(0),
            _ => emit(number).needs(&[&format!("s{}", number - 1)]),
        });
        let run = server.run(&acme, &manual(steps)).await;
        assert_eq!(run["status"], "succeeded", "{run:#}");
        let told = server.events_of(&acme, "custom.step").await;
        let order: Vec<i64> = told.iter().map(|event| event["data"]["n"].as_i64().unwrap()).collect();
        assert_eq!(order, (0..50).collect::<Vec<i64>>());
    }

    async fn a_disabled_workflow_is_not_run_and_what_was_accepted_is(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow =
            server.workflow(&acme, &manual([wait("pause", 60), ticket("make", "A").needs(&["pause"])])).await;
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        server.change_workflow(&acme, &workflow, &json!({"enabled": false})).await;
        server.post_run(&acme, &workflow, &json!({})).await.problem("conflict");
        server.post_run(&acme, &workflow, &json!({"dry_run": true})).await.problem("conflict");
        server.work_for(60_000).await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: pause succeeded, make succeeded");
        server.change_workflow(&acme, &workflow, &json!({"enabled": true})).await;
        server.post_run(&acme, &workflow, &json!({})).await.is(202);
    }

    async fn what_a_run_is_given_must_fit_the_schema(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let mut definition = manual([ticket("make", "${{ input.subject }}")]);
        definition["input_schema"] = json!({
            "type": "object", "required": ["subject"], "additionalProperties": false,
            "properties": {"subject": {"type": "string", "maxLength": 20}, "count": {"type": "integer"}},
        });
        let workflow = server.workflow(&acme, &definition).await;
        for (input, pointer) in [
            (json!({"subject": 7}), "/input/subject"),
            (json!({"subject": "A", "count": "many"}), "/input/count"),
            (json!({}), "/input"),
            (json!({"subject": "A", "other": 1}), "/input"),
            (json!("text"), "/input"),
        ] {
            let problem = server.post_run(&acme, &workflow, &json!({"input": input})).await.problem("invalid_fields");
            let pointers: Vec<&str> =
                problem["errors"].as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect();
            assert!(pointers.iter().any(|found| found.starts_with(pointer)), "{input}: {problem:#}");
        }
        let secret = json!({"subject": "a secret that is longer than twenty letters"});
        let refused = server.post_run(&acme, &workflow, &json!({"input": secret})).await;
        assert!(!refused.problem("invalid_fields").to_string().contains("a secret"), "{}", refused.json());
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 0, "what was refused is no run");
        let run = server.start_run(&acme, &workflow, &json!({"subject": "A"})).await;
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: make succeeded");
    }

    async fn a_run_asked_for_twice_with_one_key_is_one(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        let body = json!({"action": "run", "workflow_id": workflow["id"], "input": {"n": 1}});
        let ask = || server.post(WORKFLOWS).cookie(&acme.admin).idempotency_key("once").json(&body);
        let (first, second) = (ask().await, ask().await);
        assert_eq!(first.ok(202), second.ok(202));
        assert_eq!(second.header("idempotency-replayed"), "true");
        server.work().await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 1);
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1]);
    }

    async fn what_is_no_workflow_cannot_be_run(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let foreign = server.workflow(&globex, &manual([ticket("make", "A")])).await;
        let gone = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        server.delete_workflow(&acme, &gone).await;
        for id in [foreign["id"].clone(), gone["id"].clone(), json!("wf_01jd8z6v2mfkpb7h3q9xw5t4ra")] {
            let body = json!({"action": "run", "workflow_id": id});
            server.post(WORKFLOWS).cookie(&acme.admin).json(&body).await.problem("not_found");
        }
        let nothing = json!({"action": "run"});
        let problem = server.post(WORKFLOWS).cookie(&acme.admin).json(&nothing).await.problem("invalid_fields");
        assert_eq!(problem["errors"][0]["pointer"], "/workflow_id");
        let odd = json!({"action": "run", "workflow_id": foreign["id"], "steps": []});
        let problem = server.post(WORKFLOWS).cookie(&acme.admin).json(&odd).await.problem("invalid_fields");
        assert_eq!(problem["errors"][0]["pointer"], "/steps");
    }
}
