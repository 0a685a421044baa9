//! Time that runs out: of a step, whatever it waits for, and of a whole run.

use kernel::base::{DAY_MS, SECOND_MS};
use serde_json::{Value, json};

use crate::support::over_http;
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::workflows::{
    approval, assert_ended, attempt_codes, failing, get, manual, open, step, step_of, summary, ticket, time, wait,
};
use crate::tickets;

/// Both are names for it: of the attempt, and of the whole.
fn is_about_time(error: &Value) -> bool {
    error["code"] == "timeout" || error["code"] == "deadline_exceeded"
}

over_http! {
    async fn a_step_that_waits_too_long_times_out(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let start = server.now();
        let run = server
            .run(
                &acme,
                &manual([
                    wait("long", 600).timeout(60),
                    approval("asked").timeout(60),
                    failing("tried").retry(10, 50).timeout(60),
                    wait("short", 50).timeout(60),
                    ticket("after_long", "Never").needs(&["long"]),
                    ticket("after_short", "Made").needs(&["short"]),
                ]),
            )
            .await;
        server.work_for(60_000 - 1).await;
        let before = server.read_run(&acme, &run).await;
        assert!(
            summary(&before).ends_with(
                ": long waiting, asked waiting, tried pending, short succeeded, \
            after_long pending, after_short succeeded"
            ),
            "{before:#}"
        );
        server.work_for(1).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(
            &run,
            "timed_out: long timed_out, asked timed_out, tried timed_out, short succeeded, \
            after_long skipped, after_short succeeded",
        );
        for id in ["long", "asked", "tried"] {
            let step = step_of(&run, id);
            assert!(is_about_time(&step["error"]), "{step:#}");
            assert_eq!(time(&step["ended_at"]), start.plus_ms(60 * SECOND_MS), "{id}");
            assert_eq!(step["next_attempt_at"], json!(null));
        }
        assert!(is_about_time(&run["error"]) && run["error"]["step_id"] == "long", "{run:#}");
        assert_eq!(server.kinds_of(&acme, "workflow.run.").await, ["workflow.run.started", "workflow.run.failed"]);
        server.work_for(DAY_MS).await;
        assert_eq!(server.read_run(&acme, &run).await, run, "nothing comes of it any more");
    }

    async fn the_time_of_a_step_counts_from_its_turn_and_not_from_the_beginning_of_the_run(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run =
            server.run(&acme, &manual([wait("first", 100), wait("second", 50).needs(&["first"]).timeout(60)])).await;
        server.work_for(150_000).await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: first succeeded, second succeeded");
    }

    async fn what_ran_out_of_time_may_be_allowed_to(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server
            .run(
                &acme,
                &manual([approval("asked").timeout(60).or_continue(), ticket("after", "After").needs(&["asked"])]),
            )
            .await;
        server.work_for(60_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: asked timed_out, after succeeded");
        assert_eq!(run["error"], json!(null));
    }

    async fn a_failure_weighs_more_than_a_time_out(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server.run(&acme, &manual([wait("slow", 600).timeout(5), failing("bad")])).await;
        server.work_for(5_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: slow timed_out, bad failed");
        assert_eq!((&run["error"]["code"], &run["error"]["step_id"]), (&json!("not_found"), &json!("bad")));
    }

    async fn an_answer_that_comes_after_the_time_is_too_late_for_another_attempt(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/a", [Behaviour::HoldThen(gate.clone(), 500)]);
        let workflow =
            server.workflow(&acme, &manual([get("call", &receiver.url("/a")).retry(5, 1).timeout(30)])).await;
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        let engine = server.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        receiver.wait_for(1).await;
        server.advance(31_000);
        gate.open();
        working.await.unwrap().unwrap();
        server.work_for(60_000).await;
        assert_ended(&server.read_run(&acme, &run).await, "timed_out: call timed_out");
        assert_eq!(receiver.count(), 1);
    }

    async fn one_request_has_its_own_bound(setup: Setup) {
        let mut setup = setup;
        setup.workflows.http_timeout = std::time::Duration::from_millis(150);
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hang", [Behaviour::Hang]);
        receiver.on("/drip", [Behaviour::DripBody]);
        let run = server
            .run(&acme, &manual([get("hang", &receiver.url("/hang")), get("drip", &receiver.url("/drip"))]))
            .await;
        assert_ended(&run, "failed: hang failed, drip failed");
        for id in ["hang", "drip"] {
            assert_eq!(step_of(&run, id)["error"]["code"], "timeout", "{run:#}");
        }
    }

    async fn a_request_is_given_no_more_time_than_its_step_has_left(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/a", [Behaviour::Answer(503), Behaviour::Hang]);
        let call = get("call", &receiver.url("/a")).retry(5, 1).timeout(2);
        let run = server.run(&acme, &manual([call, ticket("beside", "A")])).await;
        // The clock stands still while it hangs: that much is left of two seconds, and a minute of its own.
        server.advance(2 * SECOND_MS - 20);
        let hanging = std::time::Instant::now();
        server.work().await;
        assert!(hanging.elapsed() < std::time::Duration::from_secs(10), "{:?}", hanging.elapsed());
        let tried = server.read_run(&acme, &run).await;
        assert_eq!(attempt_codes(step_of(&tried, "call")), ["http_status", "timeout"], "{tried:#}");
        server.work_for(20).await;
        assert_ended(&server.read_run(&acme, &run).await, "timed_out: call timed_out, beside succeeded");
        assert_eq!(receiver.count(), 2);
    }

    async fn a_whole_run_has_its_time_too(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server
            .run(
                &acme,
                &manual([
                    ticket("made", "A"),
                    approval("asked"),
                    ticket("after", "Never").needs(&["asked"]),
                    failing("tried").retry(10, 24 * 60 * 60),
                ]),
            )
            .await;
        let deadline = time(&run["deadline_at"]);
        assert_eq!(deadline, time(&run["created_at"]).plus_ms(28 * DAY_MS));
        server.work_for(28 * DAY_MS - 1).await;
        assert_eq!(server.read_run(&acme, &run).await["steps"][1]["status"], "waiting");
        server.work_for(1).await;
        let run = server.read_run(&acme, &run).await;
        assert_eq!(
            (&run["status"], &run["error"]["code"]),
            (&json!("timed_out"), &json!("deadline_exceeded")),
            "{run:#}"
        );
        assert_eq!(time(&run["ended_at"]), deadline);
        assert_eq!(step_of(&run, "made")["status"], "succeeded");
        assert_eq!(step_of(&run, "asked")["status"], "timed_out");
        assert_ne!(step_of(&run, "after")["status"], "pending");
        assert_eq!(server.kinds_of(&acme, "workflow.run.").await.last().unwrap(), "workflow.run.failed");
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1]);
        server.tell_run(&acme, &run, "approve").await.problem("invalid_transition");
    }

    async fn a_wait_until_a_moment_ends_then(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (now, then) = (server.now(), server.now().plus_ms(90 * SECOND_MS));
        let definition = manual([
            step("until", "wait", json!({"until": then.to_string()})),
            step("given", "wait", json!({"until": "${{ input.at }}"})),
            step("counted", "wait", json!({"seconds": "${{ input.seconds + 60 }}"})),
            step("over", "wait", json!({"until": "${{ now - duration('1h') }}"})),
        ]);
        let run = server.run_with(&acme, &definition, &json!({"at": then.to_string(), "seconds": 30})).await;
        assert_ended(&run, "waiting: until waiting, given waiting, counted waiting, over succeeded");
        server.work_for(90 * SECOND_MS - 1).await;
        assert_eq!(server.read_run(&acme, &run).await["status"], "waiting");
        server.work_for(1).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: until succeeded, given succeeded, counted succeeded, over succeeded");
        for id in ["until", "given", "counted"] {
            let step = step_of(&run, id);
            assert_eq!((time(&step["started_at"]), time(&step["ended_at"])), (now, then), "{step:#}");
            assert_eq!(time(&step["output"]["until"]), then, "{step:#}");
        }
    }

    async fn a_wait_that_ended_in_time_counts_although_nobody_was_there(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let steps = [
            wait("short", 50).timeout(60),
            wait("equal", 60).timeout(60),
            wait("long", 70).timeout(60).or_continue(),
            ticket("after", "After").needs(&["short"]),
            wait("next", 50).timeout(60).needs(&["short"]),
        ];
        let run = server.run(&acme, &manual(steps)).await;
        server.advance_to(server.now().plus_ms(3_600_000));
        server.work().await;
        let behind = server.read_run(&acme, &run).await;
        let states = ["short", "equal", "long", "after", "next"].map(|id| step_of(&behind, id)["status"].clone());
        assert_eq!(states, ["succeeded", "timed_out", "timed_out", "succeeded", "waiting"]);
    }
}
