//! Runs that events start: which, how often, in which order, and where it ends.

use kernel::jobs::lanes;
use serde_json::{Value, json};
use tenant_control::features::workflows::WORKFLOW_LANE;

use crate::support::people::KEYS;
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::workflows::{
    Step, WORKFLOWS, approval, assert_ended, failing, get, id_of, manual, on_event, on_event_if, open, step, step_of,
    ticket, wait,
};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets;
use crate::webhooks::{DELIVERIES, endpoint};

/// A step that tells of what it was started by.
fn echo(name: &str) -> Step {
    step("echo", "event.emit", json!({"name": name, "data": {"of": "${{ event.id }}"}}))
}

async fn subjects(server: &Server, tenancy: &Tenancy) -> Vec<String> {
    let made = tickets::list(server, tenancy, "sort=created_at&limit=200").await;
    made.iter().map(|made| made["subject"].as_str().unwrap().to_owned()).collect()
}

/// How deep each run of a workflow was, and what became of it, oldest first.
async fn depths(server: &Server, tenancy: &Tenancy, workflow: &Value) -> Vec<(i64, String)> {
    let runs = server.runs_of(tenancy, workflow).await;
    runs.iter().map(|run| (run["depth"].as_i64().unwrap(), run["status"].as_str().unwrap().to_owned())).collect()
}

over_http! {
    async fn an_event_starts_a_run_once(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let note = step(
            "note",
            "ticket.comment",
            json!({
                "ticket_id": "${{ event.data.id }}", "body": "${{ event.type }} #${{ event.data.number }} ${{ event.data.subject }}", "public": false,
            }),
        );
        let workflow = server.workflow(&acme, &on_event(&["ticket.created"], [note])).await;
        let foreign = tickets::make(&server, &globex, &json!({})).await;
        let made = tickets::make(&server, &acme, &json!({"subject": "Smoke"})).await;
        server.work().await;
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!(runs.len(), 1, "{runs:#?}");
        let run = server.read_run(&acme, &runs[0]).await;
        assert_ended(&run, "succeeded: note succeeded");
        let event = &tickets::events(&server, &acme).await[0];
        let trigger =
            json!({"type": "event", "event_id": event["id"], "scheduled_for": null, "late": false, "by": null});
        assert_eq!((&run["trigger"], &run["depth"], &run["input"]), (&trigger, &json!(1), &json!({})));
        let now = tickets::read(&server, &acme, &made).await;
        assert_eq!(now["comments"].as_array().unwrap().len(), 1);
        assert_eq!(now["comments"][0]["body"], "ticket.created #1 Smoke");
        assert_eq!(tickets::read(&server, &globex, &foreign).await["comment_count"], 0, "another tenant's event");
    }

    async fn an_event_that_several_patterns_match_starts_each_workflow_once(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let mut workflows = Vec::new();
        for types in [
            &["ticket.created", "ticket.*", "*"][..],
            &["ticket.*"],
            &["*"],
            &["ticket.updated"],
            &["api_key.*", "ticket.created"],
        ] {
            let definition =
                on_event_if(types, "event.type.startsWith('ticket.')", [ticket("never", "Never").when("false")]);
            workflows.push(server.workflow(&acme, &definition).await);
        }
        let made = tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        tickets::changed(&server, &acme, &made, &json!({"status": "open"})).await;
        server.work().await;
        let mut counts = Vec::new();
        for workflow in &workflows {
            counts.push(server.runs_of(&acme, workflow).await.len());
        }
        assert_eq!(counts, [2, 2, 2, 1, 1]);
    }

    async fn a_filter_decides_and_leaves_no_trace_of_what_it_refuses(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let filter = "event.data.priority == 'critical' && 'vip' in event.data.tags";
        let workflow = server.workflow(&acme, &on_event_if(&["ticket.created"], filter, [echo("seen")])).await;
        for (priority, tag) in [("low", "vip"), ("critical", "other"), ("critical", "vip"), ("high", "vip")] {
            tickets::make(&server, &acme, &json!({"priority": priority, "tags": [tag]})).await;
        }
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!(runs.len(), 1, "{runs:#?}");
        let third = &tickets::events(&server, &acme).await[2];
        assert_eq!((&runs[0]["trigger"]["event_id"], &runs[0]["status"]), (&third["id"], &json!("succeeded")));
    }

    async fn a_filter_that_fails_leaves_a_failed_run(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let mut workflows = Vec::new();
        for filter in ["event.data.nothing.at_all == 1", "event.data.number", "1 / (event.data.number - 1) == 1"] {
            workflows.push(
                server.workflow(&acme, &on_event_if(&["ticket.created"], filter, [ticket("never", "Never")])).await,
            );
        }
        tickets::make(&server, &acme, &json!({"subject": "Only"})).await;
        server.work().await;
        for workflow in &workflows {
            let runs = server.runs_of(&acme, workflow).await;
            assert_eq!(
                (runs.len(), &runs[0]["status"], &runs[0]["error"]["code"]),
                (1, &json!("failed"), &json!("expression_failed"))
            );
            assert_eq!(runs[0]["error"]["step_id"], json!(null));
        }
        assert_eq!(subjects(&server, &acme).await, ["Only"]);
        assert_eq!(server.kinds_of(&acme, "workflow.run.failed").await.len(), 3);
    }

    async fn only_what_happens_while_a_workflow_is_enabled_starts_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let make = async |subject: &str| drop(tickets::make(&server, &acme, &json!({"subject": subject})).await);
        make("before it was there").await;
        let workflow = server
            .workflow(
                &acme,
                &on_event(
                    &["ticket.created"],
                    [step(
                        "seen",
                        "event.emit",
                        json!({"name": "seen", "data": {"subject": "${{ event.data.subject }}"}}),
                    )],
                ),
            )
            .await;
        make("first").await;
        server.change_workflow(&acme, &workflow, &json!({"enabled": false})).await;
        make("while disabled").await;
        server.change_workflow(&acme, &workflow, &json!({"enabled": true})).await;
        make("second").await;
        server.work().await;
        server.change_workflow(&acme, &workflow, &json!({"enabled": false})).await;
        server.work().await;
        make("while disabled again").await;
        server.work().await;
        server.change_workflow(&acme, &workflow, &json!({"enabled": true})).await;
        make("third").await;
        server.work().await;
        server.delete_workflow(&acme, &workflow).await;
        make("when it was gone").await;
        server.work().await;
        let told = server.events_of(&acme, "custom.seen").await;
        let seen: Vec<&str> = told.iter().map(|event| event["data"]["subject"].as_str().unwrap()).collect();
        // What happened before it was disabled and was not looked at by then may be seen or not.
        let certain: Vec<&str> = seen.iter().copied().filter(|subject| *subject != "first").collect();
        assert_eq!(certain, ["second", "third"], "{seen:?}");
    }

    async fn a_disabled_one_among_others_does_not_hold_them_up(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let off = server.workflow(&acme, &on_event(&["ticket.created"], [echo("off")])).await;
        let on = server.workflow(&acme, &on_event(&["ticket.created"], [echo("on")])).await;
        server.change_workflow(&acme, &off, &json!({"enabled": false})).await;
        tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        assert_eq!((server.runs_of(&acme, &off).await.len(), server.runs_of(&acme, &on).await.len()), (0, 1));
        server.change_workflow(&acme, &off, &json!({"enabled": true})).await;
        server.work().await;
        assert_eq!(server.runs_of(&acme, &off).await.len(), 0, "what was before does not count");
    }

    async fn an_event_is_seen_with_the_revision_in_force(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &on_event(&["ticket.created"], [echo("old")])).await;
        tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        let new = on_event(&["ticket.updated"], [echo("new")]);
        server.change_workflow(&acme, &workflow, &json!({"on": new["on"], "steps": new["steps"]})).await;
        let made = tickets::make(&server, &acme, &json!({})).await;
        tickets::changed(&server, &acme, &made, &json!({"status": "open"})).await;
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        let revisions: Vec<&Value> = runs.iter().map(|run| &run["revision"]).collect();
        assert_eq!(revisions, [1, 2]);
        assert_eq!(server.kinds_of(&acme, "custom.").await, ["custom.old", "custom.new"]);
    }

    async fn a_change_of_types_keeps_the_events_that_wait(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = |types: &[&str]| on_event(types, [wait("pause", 1)]);
        let wider = server.workflow(&acme, &workflow(&["ticket.created"])).await;
        let narrower = server.workflow(&acme, &workflow(&["ticket.*"])).await;
        let other = server.workflow(&acme, &workflow(&["ticket.created"])).await;
        let made = tickets::make(&server, &acme, &json!({})).await;
        tickets::changed(&server, &acme, &made, &json!({"priority": "high"})).await;
        // Nothing has worked yet: both events wait.
        for (workflow, types) in [(&wider, &["ticket.*"][..]), (&narrower, &["ticket.created"]), (&other, &["device.*"])] {
            server.change_workflow(&acme, workflow, &json!({"on": {"event": {"types": types}}})).await;
        }
        tickets::changed(&server, &acme, &made, &json!({"priority": "low"})).await;
        server.work_for(5_000).await;
        let mut runs = Vec::new();
        for workflow in [&wider, &narrower, &other] {
            runs.push(server.runs_of(&acme, workflow).await.len());
        }
        assert_eq!(runs, [2, 1, 0], "what both definitions name, and what came after the change");
    }

    async fn runs_begin_in_the_order_of_their_events(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &on_event(&["ticket.created"], [echo("seen")])).await;
        for _ in 0..12 {
            tickets::make(&server, &acme, &json!({})).await;
        }
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        let of_runs: Vec<&Value> = runs.iter().map(|run| &run["trigger"]["event_id"]).collect();
        let events = tickets::events(&server, &acme).await;
        assert_eq!(of_runs, events.iter().map(|event| &event["id"]).collect::<Vec<_>>());
    }

    async fn a_full_queue_stands_still_and_loses_nothing(setup: Setup) {
        let mut setup = setup;
        (setup.workflows.runs_in_flight, setup.workflows.runs_queued) = (2, 3);
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        // Held at a request, so that it counts: what waits for an approval or a moment does not.
        let receiver = Receiver::start().await;
        let gate = Gate::closed();
        receiver.on("/a", [Behaviour::Hold(gate.clone())]);
        let call = get("call", &receiver.url("/a"));
        let workflow = server.workflow(&acme, &on_event(&["ticket.created"], [call])).await;
        for _ in 0..20 {
            tickets::make(&server, &acme, &json!({})).await;
        }
        let engine = server.engine();
        let working = tokio::spawn(async move { engine.run_due().await });
        receiver.wait_for(2).await;
        let runs = server.runs_of(&acme, &workflow).await;
        let count = |status: &str| runs.iter().filter(|run| run["status"] == status).count();
        assert!(runs.len() <= 5 && count("running") <= 2 && count("pending") <= 3, "{runs:#?}");
        gate.open();
        working.await.unwrap().unwrap();
        server.work_for(60_000).await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert!(runs.len() == 20 && runs.iter().all(|run| run["status"] == "succeeded"), "{runs:#?}");
        let of_runs: Vec<&Value> = runs.iter().map(|run| &run["trigger"]["event_id"]).collect();
        let events = tickets::events(&server, &acme).await;
        assert_eq!(of_runs, events.iter().map(|event| &event["id"]).collect::<Vec<_>>());
    }

    async fn calls_are_refused_while_the_queue_is_full(setup: Setup) {
        let mut setup = setup;
        (setup.workflows.runs_in_flight, setup.workflows.runs_queued) = (2, 3);
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let workflow = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        for _ in 0..3 {
            server.start_run(&acme, &workflow, &json!({})).await;
        }
        server.post_run(&acme, &workflow, &json!({})).await.problem("limit_reached");
        let other = server.workflow(&globex, &manual([ticket("make", "A")])).await;
        server.start_run(&globex, &other, &json!({})).await;
        server.work().await;
        assert!(server.runs_of(&acme, &workflow).await.iter().all(|run| run["status"] == "succeeded"));
        assert_eq!(tickets::numbers(&server, &acme, "").await.len(), 3);
        server.post_run(&acme, &workflow, &json!({})).await.is(202);
    }

    async fn a_hundred_open_questions_do_not_stop_a_tenant(setup: Setup) {
        let mut setup = setup;
        (setup.workflows.runs_in_flight, setup.workflows.runs_queued) = (2, 3);
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let asks = server.workflow(&acme, &manual([approval("asked")])).await;
        for _ in 0..8 {
            server.start_run(&acme, &asks, &json!({})).await;
            server.work().await;
        }
        let run = server.run(&acme, &manual([ticket("make", "A")])).await;
        assert_ended(&run, "succeeded: make succeeded");
        for run in server.runs_of(&acme, &asks).await {
            server.tell_run(&acme, &run, "approve").await.is(200);
        }
        server.work().await;
        assert!(server.runs_of(&acme, &asks).await.iter().all(|run| run["status"] == "succeeded"));
    }

    async fn a_loop_runs_eight_times_and_the_ninth_is_told(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server
            .workflow(&acme, &on_event(&["ticket.created"], [ticket("again", "Deeper than ${{ run.depth }}")]))
            .await;
        tickets::make(&server, &acme, &json!({"subject": "The first"})).await;
        server.work_for(60_000).await;
        let depths = depths(&server, &acme, &workflow).await;
        let expected: Vec<(i64, String)> =
            (1..=9).map(|depth| (depth, if depth < 9 { "succeeded" } else { "failed" }.to_owned())).collect();
        assert_eq!(depths, expected);
        let last = server.runs_of(&acme, &workflow).await.pop().unwrap();
        assert_eq!((&last["error"]["code"], &last["error"]["step_id"]), (&json!("loop_detected"), &json!(null)));
        let last = server.read_run(&acme, &last).await;
        assert_ne!(step_of(&last, "again")["status"], "succeeded");
        server.tell_run(&acme, &last, "retry").await.problem("invalid_transition");
        assert_eq!(subjects(&server, &acme).await.len(), 9);
        let told = server.events_of(&acme, "workflow.run.failed").await;
        assert_eq!((told.len(), &told[0]["data"]["error"]["code"]), (1, &json!("loop_detected")));
        // Somebody's own act begins from the start.
        tickets::make(&server, &acme, &json!({})).await;
        server.work_for(60_000).await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 18);
    }

    async fn workflows_that_set_each_other_off_end_too(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let ping = server.workflow(&acme, &on_event(&["custom.ping"], [echo("pong")])).await;
        let pong = server.workflow(&acme, &on_event(&["custom.pong"], [echo("ping")])).await;
        let start = server.run(&acme, &manual([step("go", "event.emit", json!({"name": "ping", "data": {}}))])).await;
        server.work_for(60_000).await;
        let mut all = depths(&server, &acme, &ping).await;
        all.extend(depths(&server, &acme, &pong).await);
        all.sort();
        let first = start["depth"].as_i64().unwrap() + 1;
        let expected: Vec<(i64, String)> =
            (first..=9).map(|depth| (depth, if depth < 9 { "succeeded" } else { "failed" }.to_owned())).collect();
        assert_eq!(all, expected);
    }

    async fn a_loop_over_its_own_failures_ends(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &on_event(&["workflow.run.failed"], [failing("bad")])).await;
        let start = server.run(&acme, &manual([failing("bad")])).await;
        assert_eq!(start["status"], "failed");
        server.work_for(60_000).await;
        let all = depths(&server, &acme, &workflow).await;
        let first = start["depth"].as_i64().unwrap() + 1;
        assert_eq!(all.iter().map(|(depth, _)| *depth).collect::<Vec<_>>(), (first..=9).collect::<Vec<_>>(), "{all:?}");
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!(
            (&runs[0]["error"]["code"], &runs.last().unwrap()["error"]["code"]),
            (&json!("not_found"), &json!("loop_detected"))
        );
    }

    async fn a_loop_over_its_own_beginnings_ends(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server
            .workflow(&acme, &on_event(&["workflow.run.started"], [ticket("never", "Never").when("false")]))
            .await;
        server.run(&acme, &manual([ticket("never", "Never").when("false")])).await;
        server.work_for(60_000).await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert!((8..=9).contains(&runs.len()), "{}", runs.len());
        assert_eq!(runs.last().unwrap()["error"]["code"], "loop_detected");
    }

    async fn a_workflow_for_events_can_be_run_by_hand_and_sees_none(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let definition =
            on_event(&["ticket.created"], [ticket("make", "By hand: ${{ event == null }}").when("event == null")]);
        let run = server.run_with(&acme, &definition, &json!({"a": 1})).await;
        assert_ended(&run, "succeeded: make succeeded");
        assert_eq!((&run["trigger"]["type"], &run["input"]), (&json!("manual"), &json!({"a": 1})));
        assert!(subjects(&server, &acme).await.contains(&"By hand: true".to_owned()));
    }

    async fn a_saver_who_is_gone_lends_nothing_to_what_events_start(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let saver = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let mut body = on_event(
            &["ticket.created"],
            [step(
                "note",
                "ticket.comment",
                json!({
                    "ticket_id": "${{ event.data.id }}", "body": "Hello.", "public": false,
                }),
            )],
        );
        body["action"] = json!("create");
        let workflow = server.post(WORKFLOWS).key(&saver.plain).json(&body).await.ok(201);
        tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        server.delete(format!("{KEYS}?id={}", saver.id)).cookie(&acme.admin).await.is(204);
        let second = tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        let ends: Vec<(&Value, &Value)> = runs.iter().map(|run| (&run["status"], &run["error"]["code"])).collect();
        assert_eq!(ends, [(&json!("succeeded"), &json!(null)), (&json!("failed"), &json!("insufficient_scope"))]);
        assert_eq!(tickets::read(&server, &acme, &second).await["comment_count"], 0);
    }

    async fn a_test_of_a_webhook_starts_nothing(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = endpoint(&server, &acme, &receiver.url("/hook"), &["*"]).await;
        let workflow = server
            .workflow(&acme, &on_event_if(&["*", "webhook.*"], "event.type == 'webhook.test'", [echo("seen")]))
            .await;
        let body = json!({"action": "test", "webhook_id": id_of(&hook)});
        server.post(DELIVERIES).cookie(&acme.admin).json(&body).await.is(202);
        server.work().await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 0);
        let due = lanes::find_next_due(&server.app.store, WORKFLOW_LANE).await.unwrap();
        assert_eq!(due, None, "and nobody looks for what it could start");
    }
}
