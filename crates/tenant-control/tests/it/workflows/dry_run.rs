//! A run that evaluates everything and touches nothing.

use std::collections::BTreeMap;

use kernel::store::{DatabaseEngine, Purpose};
use serde_json::{Value, json};

use crate::support::people::KEYS;
use crate::support::receiver::Receiver;
use crate::support::workflows::{
    WORKFLOWS, approval, assert_ended, failing, get, manual, on_event, open, step, step_of, ticket, wait,
};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets;

/// Of the run itself: it is kept, with its steps, and who asked for it.
const OF_THE_RUN: [&str; 3] = ["workflow_runs", "steps", "audit_entries"];

/// How many rows each table has, but for those.
async fn rows(server: &Server) -> BTreeMap<String, i64> {
    let db = server.app.store.system(Purpose::Cli);
    let names = match server.app.store.engine() {
        DatabaseEngine::Sqlite => {
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        }
        DatabaseEngine::Postgres => {
            "SELECT table_name::TEXT FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
        }
    };
    let names: Vec<String> = db.list(names, kernel::args![]).await.expect("the tables");
    let mut rows = BTreeMap::new();
    for name in names.into_iter().filter(|name| !OF_THE_RUN.contains(&name.as_str())) {
        let count: i64 = db.get_one(&format!("SELECT COUNT(*) FROM {name}"), kernel::args![]).await.expect("a count");
        rows.insert(name, count);
    }
    assert!(rows.contains_key("tickets") && rows.contains_key("events"), "{rows:?}");
    rows
}

async fn dry_run(server: &Server, tenancy: &Tenancy, definition: &Value, input: &Value) -> Value {
    let workflow = server.workflow(tenancy, definition).await;
    let answer = server.post_run(tenancy, &workflow, &json!({"input": input, "dry_run": true})).await.ok(202);
    assert_eq!(answer["dry_run"], true);
    server.read_run(tenancy, &answer).await
}

over_http! {
    async fn a_dry_run_evaluates_everything_and_touches_nothing(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let old = tickets::make(&server, &acme, &json!({})).await;
        let watching =
            server.workflow(&acme, &on_event(&["ticket.*", "custom.*", "workflow.*"], [ticket("seen", "Seen")])).await;
        let definition = manual([
            ticket("make", "For ${{ input.name }}"),
            step("note", "ticket.comment", json!({"ticket_id": "${{ steps.make.output.id }}", "body": "#${{ steps.make.output.number }}", "public": false})).needs(&["make"]),
            step("change", "ticket.update", json!({"ticket_id": "${{ input.old }}", "status": "open"})),
            step("tell", "event.emit", json!({"name": "told", "data": {"n": "${{ steps.make.output.number }}"}})).needs(&["make"]),
            get("call", &receiver.url("/a/${{ input.name }}")),
            ticket("after_call", "Status ${{ steps.call.output.status == null }}").needs(&["call"]),
            wait("pause", 3_600),
            approval("asked").needs(&["pause"]),
            ticket("after", "After").needs(&["asked"]),
            ticket("never", "Never").when("input.name == 'Grace'"),
            ticket("after_never", "Never").needs(&["never"]),
        ]);
        let workflow = server.workflow(&acme, &definition).await;
        server.work().await;
        let (before, old_before) = (rows(&server).await, tickets::read(&server, &acme, &old).await);
        let body = json!({"input": {"name": "Ada", "old": old["id"]}, "dry_run": true});
        let answer = server.post_run(&acme, &workflow, &body).await.ok(202);
        assert_eq!((&answer["status"], &answer["dry_run"]), (&json!("succeeded"), &json!(true)), "{answer}");
        assert_eq!(rows(&server).await, before);
        server.work_for(1_000).await;
        assert_eq!(rows(&server).await, before);
        let run = server.read_run(&acme, &answer).await;
        assert_ended(
            &run,
            "succeeded: make succeeded, note succeeded, change succeeded, tell succeeded, call succeeded, \
            after_call succeeded, pause succeeded, asked succeeded, after succeeded, never skipped, after_never skipped",
        );
        assert_eq!(step_of(&run, "make")["input"], json!({"subject": "For Ada"}));
        assert_eq!(step_of(&run, "make")["output"]["subject"], "For Ada");
        assert_eq!(step_of(&run, "change")["output"]["status"], "open");
        assert!(step_of(&run, "note")["input"]["body"].as_str().unwrap().starts_with('#'));
        assert!(step_of(&run, "call")["input"]["url"].as_str().unwrap().ends_with("/a/Ada"));
        assert_eq!(step_of(&run, "call")["output"], json!({"status": null, "headers": {}, "body": null}));
        assert_eq!((receiver.count(), receiver.connections()), (0, 0));
        assert_eq!(tickets::read(&server, &acme, &old).await, old_before);
        assert_eq!(server.kinds_of(&acme, "workflow.").await, [""; 0]);
        assert_eq!(server.kinds_of(&acme, "custom.").await, [""; 0]);
        server.work().await;
        assert_eq!(server.runs_of(&acme, &watching).await.len(), 0);
        assert_eq!(tickets::make(&server, &acme, &json!({})).await["number"], 2, "numbers without a gap");
    }

    async fn a_dry_run_finds_what_would_be_refused(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let taken = tickets::make(&server, &acme, &json!({"external_id": "taken"})).await;
        tickets::changed(&server, &acme, &taken, &json!({"status": "resolved"})).await;
        let input = json!({"nowhere": "org_01jd8z6v2mfkpb7h3q9xw5t4ra", "ticket": taken["id"], "inside": "http://169.254.169.254/"});
        let definition = manual([
            step("reference", "ticket.create", json!({"subject": "A", "organization_id": "${{ input.nowhere }}"})),
            step("conflict", "ticket.create", json!({"subject": "A", "external_id": "taken"})).retry(3, 60),
            step("twice", "ticket.create", json!({"subject": "A", "external_id": "new"})),
            step("again", "ticket.create", json!({"subject": "A", "external_id": "new"})).needs(&["twice"]),
            step("transition", "ticket.update", json!({"ticket_id": "${{ input.ticket }}", "status": "pending"})),
            failing("missing").or_continue(),
            ticket("after_missing", "B").needs(&["missing"]),
            ticket("expression", "${{ input.nothing }}"),
            step("guarded", "http.request", json!({"method": "GET", "url": "${{ input.inside }}"})),
            ticket("after_failure", "C").needs(&["expression"]),
        ]);
        let run = dry_run(&server, &acme, &definition, &input).await;
        assert_ended(
            &run,
            "failed: reference failed, conflict failed, twice succeeded, again failed, transition failed, \
            missing failed, after_missing succeeded, expression failed, guarded failed, after_failure skipped",
        );
        for (id, code) in [
            ("reference", "invalid_fields"),
            ("conflict", "conflict"),
            ("again", "conflict"),
            ("transition", "invalid_transition"),
            ("missing", "not_found"),
            ("expression", "expression_failed"),
            ("guarded", "target_not_allowed"),
        ] {
            assert_eq!(step_of(&run, id)["error"]["code"], code, "{id}");
        }
        assert_eq!((&run["error"]["code"], &run["error"]["step_id"]), (&json!("invalid_fields"), &json!("reference")));
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1]);
    }

    async fn a_dry_run_is_over_for_good(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let failed =
            dry_run(&server, &acme, &manual([failing("bad"), ticket("after", "A").needs(&["bad"])]), &json!({})).await;
        let done =
            dry_run(&server, &acme, &manual([approval("asked"), ticket("after", "A").needs(&["asked"])]), &json!({}))
                .await;
        for run in [&failed, &done] {
            for action in ["retry", "cancel", "approve", "reject"] {
                server.tell_run(&acme, run, action).await.problem("invalid_transition");
            }
            server.work_for(60_000).await;
            assert_eq!(&server.read_run(&acme, run).await, run);
        }
        assert_eq!(tickets::numbers(&server, &acme, "").await, [0_i64; 0]);
    }

    async fn a_dry_run_is_found_in_the_history(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = dry_run(&server, &acme, &manual([ticket("make", "A")]), &json!({})).await;
        let listed = server.list_runs(&acme, "").await;
        assert_eq!(listed, [tickets::without(&run, &["steps"])]);
        assert!(!run["ended_at"].is_null() && !run["started_at"].is_null());
        let trail = tickets::trail(&server, &acme, &run).await;
        assert_eq!((trail.len(), &trail[0]["action"]), (1, &json!("workflow.dry_run")));
    }

    async fn a_dry_run_has_no_more_rights_than_who_saved_the_workflow(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let saver = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let mut body = manual([ticket("make", "A")]);
        body["action"] = json!("create");
        let workflow = server.post(WORKFLOWS).key(&saver.plain).json(&body).await.ok(201);
        server.delete(format!("{KEYS}?id={}", saver.id)).cookie(&acme.admin).await.is(204);
        let answer = server.post_run(&acme, &workflow, &json!({"dry_run": true})).await.ok(202);
        let run = server.read_run(&acme, &answer).await;
        assert_ended(&run, "failed: make failed");
        assert_eq!(step_of(&run, "make")["error"]["code"], "insufficient_scope");
    }

    async fn a_dry_run_repeated_with_one_key_is_one(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        let body = json!({"action": "run", "workflow_id": workflow["id"], "dry_run": true});
        let ask = || server.post(WORKFLOWS).cookie(&acme.admin).idempotency_key("dry").json(&body);
        let (first, second) = (ask().await, ask().await);
        assert_eq!(first.ok(202), second.ok(202));
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 1);
    }
}
