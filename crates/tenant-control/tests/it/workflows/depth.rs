//! Values that are nested deep. What keeps and tells them wraps them once more, and readers of JSON give up at some depth:
//! what nobody could read again would stop the runs, the history and the trail of a whole tenant.

use kernel::args;
use kernel::base::Actor;
use serde_json::{Value, json};

use super::{faults, trail};
use crate::support::people::AUDIT;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{
    WORKFLOWS, assert_ended, get, id_of, manual, on_event, on_event_if, one_run, open, step, step_of, ticket,
};
use crate::support::{Server, Tenancy, over_http};

/// As deep as a value may be.
const DEPTH_MAX: usize = 64;
/// As deep as one can be that is still read once, and never again when something is around it.
const READ_MAX: usize = 120;

/// A list in a list in a list.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("inside"), |value, _| json!([value]))
}

/// The same as a text, however deep.
fn text(levels: usize) -> String {
    format!("{}\"inside\"{}", "[".repeat(levels), "]".repeat(levels))
}

/// An object of so many levels, itself the first.
fn object(levels: usize) -> Value {
    json!({"x": nested(levels - 1)})
}

/// Overwrites what is stored, as no request can.
async fn overwrite(server: &Server, tenancy: &Tenancy, sql: &'static str, text: String) {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let changed = db.write(async move |tx| tx.exec(sql, args![text]).await).await.expect("a change");
    assert!(changed > 0, "{sql}");
}

/// Runs, their history and the trail of a tenant are there.
async fn goes_on(server: &Server, tenancy: &Tenancy) {
    let run = server.run(tenancy, &manual([ticket("make", "A")])).await;
    assert_ended(&run, "succeeded: make succeeded");
    for run in server.list_runs(tenancy, "&limit=200").await {
        server.get(one_run(&run)).cookie(&tenancy.admin).await.is(200);
    }
    server.get(WORKFLOWS).cookie(&tenancy.admin).await.is(200);
    server.get(format!("{AUDIT}?limit=200")).cookie(&tenancy.admin).await.is(200);
}

over_http! {
    async fn what_a_run_is_given_and_gives_on_is_so_deep_at_most(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        // What is told of a run has its input in it, and this takes it further.
        let tell = step("tell", "event.emit", json!({"name": "told", "data": {"it": "${{ event.data.input }}"}}));
        let follower =
            server.workflow(&acme, &on_event_if(&["workflow.*"], "event.data.trigger.type == 'manual'", [tell])).await;
        let workflow = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        for (levels, dry_run) in [(DEPTH_MAX + 1, false), (DEPTH_MAX + 1, true), (READ_MAX, false)] {
            let more = json!({"input": object(levels), "dry_run": dry_run});
            let answer = server.post_run(&acme, &workflow, &more).await;
            assert_eq!(faults(&answer), [("/input".to_owned(), "too_deep".to_owned())], "{levels}");
        }
        let deepest = server.start_run(&acme, &workflow, &object(DEPTH_MAX)).await;
        server.work().await;
        assert_eq!(server.read_run(&acme, &deepest).await["status"], "succeeded");
        let told = server.runs_of(&acme, &follower).await;
        assert_eq!(told.len(), 2, "of its beginning and of its end");
        for told in told {
            let told = server.read_run(&acme, &told).await;
            assert_ended(&told, "failed: tell failed");
            assert_eq!(step_of(&told, "tell")["error"]["code"], "input_too_deep");
        }
        let fits = server.start_run(&acme, &workflow, &object(DEPTH_MAX - 2)).await;
        server.work().await;
        assert_eq!(server.read_run(&acme, &fits).await["status"], "succeeded");
        let told = server.events_of(&acme, "custom.told").await;
        assert_eq!((told.len(), &told[0]["data"]["it"]), (2, &object(DEPTH_MAX - 2)));
        server.delete_workflow(&acme, &follower).await;
        goes_on(&server, &acme).await;
    }

    async fn an_answer_that_is_deeper_is_a_text(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let answer = |path: &str, levels: usize| {
            let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
            let body = text(levels).into_bytes();
            receiver.on(path, [Behaviour::AnswerWith { status: 200, headers, body }]);
        };
        answer("/fits", DEPTH_MAX);
        answer("/deep", DEPTH_MAX + 1);
        answer("/deeper", READ_MAX + 7);
        answer("/deepest", 5_000);
        let paths = ["fits", "deep", "deeper", "deepest"];
        let calls = paths.map(|path| get(path, &receiver.url(&format!("/{path}"))));
        let sizes = "${{ size(steps.fits.output.body) }} ${{ size(steps.deep.output.body) }} \
                     ${{ size(steps.deepest.output.body) }}";
        let sizes = ticket("sizes", sizes).needs(&paths);
        let run = server.run(&acme, &manual(calls.into_iter().chain([sizes]))).await;
        assert_ended(
            &run,
            "succeeded: fits succeeded, deep succeeded, deeper succeeded, deepest succeeded, sizes succeeded",
        );
        assert_eq!(step_of(&run, "fits")["output"]["body"], nested(DEPTH_MAX));
        for (path, levels) in [("deep", DEPTH_MAX + 1), ("deeper", READ_MAX + 7)] {
            assert_eq!(step_of(&run, path)["output"]["body"], text(levels), "{path}");
        }
        let sizes = format!("1 {} {}", text(DEPTH_MAX + 1).len(), text(5_000).len());
        assert_eq!(step_of(&run, "sizes")["output"]["subject"], sizes);
        goes_on(&server, &acme).await;
    }

    async fn a_definition_is_so_deep_at_most_and_hides_nothing_in_the_trail(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        // `with` and `data` are two of its levels.
        let emit = |levels: usize| step("emit", "event.emit", json!({"name": "n", "data": object(levels - 1)}));
        let workflow = server.workflow(&acme, &manual([emit(3)])).await;
        for levels in [DEPTH_MAX + 1, DEPTH_MAX + 2, READ_MAX] {
            let definition = manual([ticket("make", "A"), emit(levels)]);
            let too_deep = [("/steps/1/with".to_owned(), "too_deep".to_owned())];
            assert_eq!(faults(&server.create_workflow(&acme, &definition).await), too_deep, "{levels}");
            let target = format!("{WORKFLOWS}?id={}", id_of(&workflow));
            let changes = json!({"steps": definition["steps"]});
            let answer = server.patch(target).cookie(&acme.admin).json(&changes).await;
            assert_eq!(faults(&answer), too_deep, "{levels}");
        }
        let deepest = manual([emit(DEPTH_MAX)]);
        server.change_workflow(&acme, &workflow, &json!({"steps": deepest["steps"]})).await;
        let entries = trail(&server, &acme, &workflow).await;
        assert!(entries.iter().any(|entry| entry["changes"]["steps"]["to"][0]["with"]["data"] == object(DEPTH_MAX - 1)));
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: emit succeeded");
        goes_on(&server, &acme).await;
    }

    async fn what_is_stored_and_cannot_be_read_stops_nothing_else(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let emit = |with: &str| step("emit", "event.emit", json!({"name": "seen", "data": {"it": with}}));
        let named = server.workflow(&acme, &on_event(&["ticket.created"], [emit("${{ event.type }}")])).await;
        let unnamed = server.workflow(&acme, &on_event(&["ticket.created"], [emit("nothing")])).await;
        let filtered = on_event_if(&["ticket.created"], "event.data.number > 0", [emit("nothing")]);
        let filtered = server.workflow(&acme, &filtered).await;
        for number in 0..2 {
            crate::tickets::make(&server, &acme, &json!({"subject": format!("{number}")})).await;
        }
        let first = "UPDATE events SET body = $2 WHERE tenant_id = $1 AND sequence =
            (SELECT MIN(e.sequence) FROM events e WHERE e.tenant_id = $1 AND e.type = 'ticket.created')";
        overwrite(&server, &acme, first, text(200)).await;
        let oldest = "UPDATE audit_entries SET changes = $2 WHERE tenant_id = $1 AND action = 'workflow.create'";
        overwrite(&server, &acme, oldest, text(200)).await;
        server.work().await;
        for (workflow, codes) in [
            (&named, ["event_unreadable", ""]),
            (&unnamed, ["", ""]),
            (&filtered, ["expression_failed", ""]),
        ] {
            let runs = server.runs_of(&acme, workflow).await;
            let found: Vec<&str> = runs.iter().map(|run| run["error"]["code"].as_str().unwrap_or_default()).collect();
            assert_eq!(found, codes, "{runs:#?}");
        }
        assert_eq!(trail(&server, &acme, &named).await.len(), 1);
        for workflow in [&named, &unnamed, &filtered] {
            server.delete_workflow(&acme, workflow).await;
        }
        goes_on(&server, &acme).await;
    }
}
