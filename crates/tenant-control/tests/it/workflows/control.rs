//! What somebody can tell a run: to end, to try again, to go on, to go no further.

use kernel::base::DAY_MS;
use serde_json::{Value, json};

use crate::support::over_http;
use crate::support::people::AUDIT;
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::workflows::{
    approval, assert_ended, attempt_codes, failing, get, id_of, manual, on_event_if, one_run, open, step, step_of,
    ticket, ticket_once, time, wait,
};
use crate::tickets::{self, without};

over_http! {
    async fn a_run_is_cancelled_whatever_it_waits_for(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let steps = [wait("w", 60), approval("a"), failing("f").retry(5, 10), ticket("t", "Never").needs(&["w"])];
        let workflow = server.workflow(&acme, &manual(steps)).await;
        let fresh = server.start_run(&acme, &workflow, &json!({})).await;
        server.tell_run(&acme, &fresh, "cancel").await.is(200);
        server.work().await;
        let fresh = server.read_run(&acme, &fresh).await;
        assert_eq!(fresh["status"], "cancelled", "{fresh:#}");
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        let answer = server.tell_run(&acme, &run, "cancel").await;
        assert_eq!(
            (answer.ok(200)["id"].clone(), answer.ok(200)["status"].clone()),
            (run["id"].clone(), json!("cancelled"))
        );
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "cancelled: w cancelled, a cancelled, f cancelled, t cancelled");
        assert_eq!((time(&run["ended_at"]), &run["error"]), (server.now(), &json!(null)));
        assert_eq!(attempt_codes(step_of(&run, "f")), ["not_found"], "what was tried stays");
        server.work_for(600_000).await;
        assert_eq!(server.read_run(&acme, &run).await, run);
        assert_eq!(tickets::numbers(&server, &acme, "").await, [0_i64; 0]);
        let told = server.events_of(&acme, "workflow.run.cancelled").await;
        assert_eq!(told.len(), 2);
        assert_eq!(told[1]["data"], without(&run, &["steps"]));
    }

    async fn what_a_run_has_done_stays_done_when_it_is_cancelled(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server
            .run(&acme, &manual([ticket("made", "A"), ticket("skipped", "B").when("false"), approval("asked")]))
            .await;
        server.tell_run(&acme, &run, "cancel").await.is(200);
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "cancelled: made succeeded, skipped skipped, asked cancelled");
        assert_eq!(step_of(&run, "made")["output"]["number"], 1);
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1]);
    }

    async fn a_run_that_is_over_cannot_be_cancelled_and_one_that_works_cannot_be_tried_again(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let done = server.run(&acme, &manual([ticket("a", "A")])).await;
        let skipped = server.run(&acme, &manual([ticket("a", "A").when("false")])).await;
        let failed = server.run(&acme, &manual([failing("a")])).await;
        let waiting = server.run(&acme, &manual([wait("a", 60)])).await;
        let cancelled = server.run(&acme, &manual([wait("a", 60)])).await;
        server.tell_run(&acme, &cancelled, "cancel").await.is(200);
        for (run, actions) in [
            (&done, &["cancel", "retry", "approve", "reject"][..]),
            (&skipped, &["cancel", "retry", "approve", "reject"]),
            (&failed, &["cancel", "approve", "reject"]),
            (&waiting, &["retry", "approve", "reject"]),
            (&cancelled, &["cancel", "retry", "approve", "reject"]),
        ] {
            let before = server.read_run(&acme, run).await;
            for action in actions {
                let answer = server.tell_run(&acme, run, action).await;
                assert_eq!(answer.status, 409, "{action} of {}: {}", before["status"], answer.json());
                answer.problem("invalid_transition");
            }
            assert_eq!(server.read_run(&acme, run).await, before);
        }
        for (body, pointer) in [
            (json!({"action": "stop"}), "/action"),
            (json!({}), "/action"),
            (json!({"action": "cancel", "why": "so"}), "/why"),
        ] {
            let problem = server.tell_step(&acme, &waiting, &body).await.problem("invalid_fields");
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
    }

    async fn a_run_is_cancelled_while_a_request_is_under_way(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/a", [Behaviour::Hold(gate.clone())]);
        let workflow = server
            .workflow(&acme, &manual([get("call", &receiver.url("/a")), ticket("after", "Never").needs(&["call"])]))
            .await;
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        let engine = server.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        receiver.wait_for(1).await;
        assert_eq!(server.tell_run(&acme, &run, "cancel").await.ok(200)["status"], "cancelled");
        gate.open();
        working.await.unwrap().unwrap();
        server.work_for(60_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "cancelled: call cancelled, after cancelled");
        assert_eq!(tickets::numbers(&server, &acme, "").await, [0_i64; 0]);
        assert_eq!(server.kinds_of(&acme, "workflow.").await, ["workflow.run.started", "workflow.run.cancelled"]);
    }

    async fn a_retry_goes_on_from_the_failed_step_and_repeats_nothing(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let holder = tickets::make(&server, &acme, &json!({"external_id": "taken"})).await;
        let run = server
            .run(
                &acme,
                &manual([
                    ticket("before", "Before"),
                    ticket_once("bad", "taken").needs(&["before"]).retry(1, 10),
                    failing("allowed").or_continue(),
                    ticket("after", "After ${{ steps.bad.output.number }}").needs(&["bad"]),
                    ticket("after_skip", "Never").needs(&["skip"]),
                    ticket("skip", "Never").when("false"),
                    ticket("last", "Last").needs(&["after", "allowed"]),
                ]),
            )
            .await;
        server.work_for(12_000).await;
        let failed = server.read_run(&acme, &run).await;
        let end = "before succeeded, bad failed, allowed failed, after skipped, after_skip skipped, skip skipped, last skipped";
        assert_ended(&failed, &format!("failed: {end}"));
        assert_eq!(tickets::numbers(&server, &acme, "").await.len(), 2);
        // It fails again as it did before, with all its retries.
        server.advance(1_000);
        let answer = server.tell_run(&acme, &run, "retry").await.ok(200);
        assert_eq!(
            (&answer["status"], &answer["error"], &answer["ended_at"]),
            (&json!("running"), &json!(null), &json!(null))
        );
        server.work_for(12_000).await;
        let again = server.read_run(&acme, &run).await;
        assert_ended(&again, &format!("failed: {end}"));
        let numbers: Vec<&Value> =
            step_of(&again, "bad")["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["number"]).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        // And works when its hindrance is gone.
        tickets::changed(&server, &acme, &holder, &json!({"external_id": null})).await;
        server.tell_run(&acme, &run, "retry").await.is(200);
        server.work_for(12_000).await;
        let done = server.read_run(&acme, &run).await;
        assert_ended(
            &done,
            "succeeded: before succeeded, bad succeeded, allowed failed, after succeeded, \
            after_skip skipped, skip skipped, last succeeded",
        );
        assert_eq!((&done["id"], &done["revision"], &done["error"]), (&run["id"], &run["revision"], &json!(null)));
        assert_eq!(step_of(&done, "before"), step_of(&failed, "before"), "done once");
        assert_eq!(step_of(&done, "allowed"), step_of(&failed, "allowed"));
        let subjects: Vec<Value> =
            tickets::list(&server, &acme, "sort=created_at").await.iter().map(|made| made["subject"].clone()).collect();
        assert_eq!(subjects, ["Printer on fire", "Before", "bad", "After 3", "Last"]);
        let kinds = server.kinds_of(&acme, "workflow.run.").await;
        let ends: Vec<&str> = kinds.iter().map(String::as_str).filter(|kind| *kind != "workflow.run.started").collect();
        assert_eq!(ends, ["workflow.run.failed", "workflow.run.failed", "workflow.run.succeeded"]);
    }

    async fn a_retry_sends_the_same_key_as_before(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/a", [Behaviour::Answer(500), Behaviour::Answer(500), Behaviour::Answer(204)]);
        let body = json!({"method": "POST", "url": receiver.url("/a"), "body": {"at": "${{ now }}"}});
        let run = server.run(&acme, &manual([step("call", "http.request", body).retry(1, 1)])).await;
        server.work_for(5_000).await;
        server.tell_run(&acme, &run, "retry").await.is(200);
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: call succeeded");
        let received = receiver.received();
        assert!(received.iter().all(|request| request.body == received[0].body), "the same request under the same key");
        let keys: Vec<&String> = received.iter().map(|request| &request.headers["idempotency-key"]).collect();
        assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    async fn what_ran_out_of_time_is_tried_again_with_new_time(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server
            .run(&acme, &manual([approval("asked").timeout(60), ticket("after", "After").needs(&["asked"])]))
            .await;
        server.work_for(60_000).await;
        assert_ended(&server.read_run(&acme, &run).await, "timed_out: asked timed_out, after skipped");
        server.tell_run(&acme, &run, "approve").await.problem("invalid_transition");
        server.tell_run(&acme, &run, "retry").await.is(200);
        server.work_for(59_000).await;
        assert_ended(&server.read_run(&acme, &run).await, "waiting: asked waiting, after pending");
        server.tell_run(&acme, &run, "approve").await.is(200);
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: asked succeeded, after succeeded");
        assert_eq!(server.kinds_of(&acme, "workflow.approval.").await.len(), 2, "asked twice");
    }

    async fn what_its_run_took_along_when_its_time_was_over_is_tried_again_too(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let tried = failing("tried").retry(10, 24 * 60 * 60).or_continue().needs(&["pause"]);
        let after = ticket("after", "After").needs(&["asked", "tried"]);
        let steps = [wait("pause", 20 * 24 * 60 * 60), approval("asked").or_continue(), tried, after];
        let run = server.run(&acme, &manual(steps)).await;
        // Ended between two attempts of the one, while nobody answered the other.
        server.work_for(28 * DAY_MS).await;
        let ended = server.read_run(&acme, &run).await;
        assert_eq!(ended["status"], "timed_out");
        server.tell_run(&acme, &run, "retry").await.is(200);
        server.work().await;
        let again = server.read_run(&acme, &run).await;
        assert_eq!((&step_of(&again, "asked")["status"], &again["status"]), (&json!("waiting"), &json!("waiting")));
        assert_eq!(step_of(&again, "tried")["status"], step_of(&again, "after")["status"], "pending, the both of them");
        server.tell_run(&acme, &run, "approve").await.is(200);
        server.work_for(27 * DAY_MS).await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: pause succeeded, asked succeeded, tried failed, after succeeded");
    }

    async fn what_the_end_of_a_run_sets_off_counts_on_whoever_ended_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let ends = ["workflow.run.cancelled", "workflow.run.succeeded"];
        let follows = server.workflow(&acme, &on_event_if(&ends, "event.data.depth == 1", [wait("a", 1)])).await;
        let asking = server.workflow(&acme, &manual([approval("asked")])).await;
        for action in ["cancel", "approve"] {
            let run = server.start_run(&acme, &asking, &json!({})).await;
            server.work().await;
            server.tell_run(&acme, &run, action).await.is(200);
        }
        server.work_for(1_000).await;
        let runs = server.runs_of(&acme, &follows).await;
        assert_eq!(runs.iter().map(|run| run["depth"].clone()).collect::<Vec<_>>(), [2, 2]);
        let trail = server.get(format!("{AUDIT}?action=workflow.cancel")).cookie(&acme.admin).await.ok(200);
        assert_eq!(trail["data"][0]["actor"]["type"], "user", "it was they who cancelled it");
    }

    async fn a_run_waits_until_somebody_approves(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let definition = manual([
            step("asked", "approval", json!({"message": "Reboot ${{ input.host }}?"})),
            ticket("after", "Approved by ${{ steps.asked.output.by.name }}").needs(&["asked"]),
        ]);
        let run = server.run_with(&acme, &definition, &json!({"host": "db1"})).await;
        assert_ended(&run, "waiting: asked waiting, after pending");
        let told = server.events_of(&acme, "workflow.approval.").await;
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["type"], "workflow.approval.requested");
        assert_eq!(told[0]["data"]["approval"], json!({"step_id": "asked", "message": "Reboot db1?"}));
        assert_eq!((&told[0]["data"]["id"], &told[0]["data"]["workflow_id"]), (&run["id"], &run["workflow_id"]));
        server.work_for(3_600_000).await;
        let (approver, cookie) = tickets::person(&server, &acme, kernel::auth::Role::Technician).await;
        let approved = server.patch(one_run(&run)).cookie(&cookie).json(&json!({"action": "approve"})).await;
        approved.is(200);
        server.work().await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: asked succeeded, after succeeded");
        let output = &step_of(&run, "asked")["output"];
        assert_eq!(
            (&output["approved"], &output["by"]["id"], time(&output["at"])),
            (&json!(true), &json!(approver), server.now())
        );
        assert_eq!(
            tickets::list(&server, &acme, "").await[0]["subject"],
            format!("Approved by {}", output["by"]["name"].as_str().unwrap())
        );
        server.tell_run(&acme, &run, "approve").await.problem("invalid_transition");
    }

    async fn a_second_approval_is_refused_also_before_anything_has_come_of_the_first(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server.run(&acme, &manual([approval("asked"), wait("after", 60).needs(&["asked"])])).await;
        server.tell_run(&acme, &run, "approve").await.is(200);
        server.tell_run(&acme, &run, "approve").await.problem("invalid_transition");
        server.tell_run(&acme, &run, "reject").await.problem("invalid_transition");
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "waiting: asked succeeded, after waiting");
        server.tell_run(&acme, &run, "approve").await.problem("invalid_transition");
    }

    async fn a_rejected_run_fails_unless_that_may_be(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let after = || ticket("after", "After").needs(&["asked"]);
        let run = server.run(&acme, &manual([approval("asked"), after()])).await;
        server.tell_run(&acme, &run, "reject").await.is(200);
        server.work().await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: asked failed, after skipped");
        assert_eq!(step_of(&run, "asked")["error"]["code"], "approval_rejected");
        assert_eq!((&run["error"]["code"], &run["error"]["step_id"]), (&json!("approval_rejected"), &json!("asked")));
        assert_eq!(server.kinds_of(&acme, "workflow.run.").await.last().unwrap(), "workflow.run.failed");
        // To try again is to ask again.
        server.tell_run(&acme, &run, "retry").await.is(200);
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "waiting: asked waiting, after pending");
        server.tell_run(&acme, &run, "approve").await.is(200);
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: asked succeeded, after succeeded");
        let run = server.run(&acme, &manual([approval("asked").retry(3, 1).or_continue(), after()])).await;
        server.tell_run(&acme, &run, "reject").await.is(200);
        server.work().await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: asked failed, after succeeded");
        assert_eq!(step_of(&run, "asked")["error"]["code"], "approval_rejected", "and is not asked again");
    }

    async fn of_several_approvals_one_is_named(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server
            .run(
                &acme,
                &manual([approval("one"), approval("two"), approval("three").needs(&["two"]), wait("pause", 600)]),
            )
            .await;
        let problem = server.tell_run(&acme, &run, "approve").await.problem("invalid_fields");
        assert_eq!(problem["errors"][0]["pointer"], "/step_id");
        for wrong in ["three", "pause", "nothing"] {
            let answer = server.tell_step(&acme, &run, &json!({"action": "approve", "step_id": wrong})).await;
            assert!([404, 409, 422].contains(&answer.status), "{wrong}: {}", answer.status);
        }
        server.tell_step(&acme, &run, &json!({"action": "approve", "step_id": "two"})).await.is(200);
        server.work().await;
        let now = server.read_run(&acme, &run).await;
        assert_ended(&now, "waiting: one waiting, two succeeded, three waiting, pause waiting");
        server
            .tell_step(&acme, &run, &json!({"action": "approve", "step_id": "two"}))
            .await
            .problem("invalid_transition");
        server.tell_step(&acme, &run, &json!({"action": "reject", "step_id": "one"})).await.is(200);
        server.tell_run(&acme, &run, "approve").await.is(200);
        server.work_for(600_000).await;
        assert_ended(
            &server.read_run(&acme, &run).await,
            "failed: one failed, two succeeded, three succeeded, pause succeeded",
        );
    }

    async fn one_idempotency_key_for_two_runs_is_not_one_approval(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &manual([approval("asked")])).await;
        let one = server.start_run(&acme, &workflow, &json!({})).await;
        let two = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        let tell = |run: &Value| {
            server.patch(one_run(run)).cookie(&acme.admin).idempotency_key("k").json(&json!({"action": "approve"}))
        };
        let (first, repeated, other) = (tell(&one).await, tell(&one).await, tell(&two).await);
        assert_eq!((first.ok(200), repeated.header("idempotency-replayed")), (repeated.ok(200), "true"));
        assert_ne!(other.header("idempotency-replayed"), "true", "the answer of another run");
        server.work().await;
        assert_ended(&server.read_run(&acme, &one).await, "succeeded: asked succeeded");
        let two = server.read_run(&acme, &two).await;
        let expected = if other.status == 200 { "succeeded: asked succeeded" } else { "waiting: asked waiting" };
        assert_ended(&two, expected);
    }

    async fn a_state_that_has_changed_meanwhile_is_not_acted_on(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server.run(&acme, &manual([approval("asked")])).await;
        let version = run["version"].as_i64().unwrap();
        let tell = |version: i64| {
            server
                .patch(one_run(&run))
                .cookie(&acme.admin)
                .header("if-match", format!("\"{version}\""))
                .json(&json!({"action": "approve"}))
        };
        tell(version + 7).await.problem("version_mismatch");
        tell(version).await.is(200);
    }

    async fn to_delete_a_workflow_cancels_its_runs_and_keeps_their_history(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/a", [Behaviour::Hold(gate.clone())]);
        let workflow = server
            .workflow(
                &acme,
                &manual([
                    approval("asked").when("input.how == 'asked'"),
                    get("call", &receiver.url("/a")).when("input.how == 'call'"),
                    ticket("after", "Never").needs(&["call"]),
                    ticket("done", "Done").when("input.how == 'done'"),
                    failing("bad").when("input.how == 'bad'"),
                ]),
            )
            .await;
        let other = server.run(&acme, &manual([approval("asked")])).await;
        let bad = server.start_run(&acme, &workflow, &json!({"how": "bad"})).await;
        let done = server.start_run(&acme, &workflow, &json!({"how": "done"})).await;
        let asked = server.start_run(&acme, &workflow, &json!({"how": "asked"})).await;
        server.work().await;
        let call = server.start_run(&acme, &workflow, &json!({"how": "call"})).await;
        let engine = server.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        receiver.wait_for(1).await;
        let fresh = server.start_run(&acme, &workflow, &json!({"how": "done"})).await;
        server.delete_workflow(&acme, &workflow).await;
        gate.open();
        working.await.unwrap().unwrap();
        server.work_for(1_000).await;
        for run in [&asked, &call] {
            assert_eq!(server.read_run(&acme, run).await["status"], "cancelled", "{}", id_of(run));
        }
        assert_eq!(server.read_run(&acme, &done).await["status"], "succeeded");
        assert_eq!(server.read_run(&acme, &other).await["status"], "waiting");
        // Asked for just before: it may have been done or not, but is over.
        assert!(["cancelled", "succeeded"].contains(&server.read_run(&acme, &fresh).await["status"].as_str().unwrap()));
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 5);
        assert_eq!(server.read_run(&acme, &bad).await["status"], "failed");
        for over in [&asked, &bad] {
            server.tell_run(&acme, over, "retry").await.problem("invalid_transition");
        }
        assert!(tickets::list(&server, &acme, "").await.iter().all(|made| made["subject"] == "Done"));
    }

    async fn nothing_is_done_for_a_workflow_after_its_deletion_was_answered(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &manual([ticket("make", "Never"), wait("pause", 5)])).await;
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        server.delete_workflow(&acme, &workflow).await;
        server.work_for(10_000).await;
        assert_ended(&server.read_run(&acme, &run).await, "cancelled: make cancelled, pause cancelled");
        assert_eq!(tickets::numbers(&server, &acme, "").await, [0_i64; 0]);
    }
}
