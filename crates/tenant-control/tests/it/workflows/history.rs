//! What is kept of runs, how it is found, and who may look.

use kernel::base::SECOND_MS;
use serde_json::{Value, json};

use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{
    WORKFLOWS, approval, assert_ended, failing, get, id_of, manual, on_event, one_run, open, step, step_of, ticket,
    time, wait,
};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{self, with, without};

fn ids(runs: &[Value]) -> Vec<&str> {
    runs.iter().map(id_of).collect()
}

/// Two workflows, and of each a run that succeeded, one that failed and one that waits, a second apart; newest first.
async fn some_runs(server: &Server, tenancy: &Tenancy) -> Vec<Value> {
    let mut all = Vec::new();
    let bad = failing("bad").when("input.how == 'bad'");
    let asked = approval("asked").when("input.how == 'asked'");
    let definition = manual([ticket("good", "Good"), bad, asked]);
    for _ in 0..2 {
        let workflow = server.workflow(tenancy, &definition).await;
        for how in ["good", "bad", "asked"] {
            server.advance(SECOND_MS);
            let run = server.start_run(tenancy, &workflow, &json!({"how": how})).await;
            server.work().await;
            all.push(without(&server.read_run(tenancy, &run).await, &["steps"]));
        }
    }
    all.reverse();
    all
}

over_http! {
    async fn a_run_tells_what_each_step_was_given_and_gave_what_failed_and_when(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/a", [Behaviour::Answer(503), Behaviour::Answer(204)]);
        let start = server.now();
        let definition = manual([
            ticket("make", "For ${{ input.name }}, ${{ input.count }} times"),
            wait("pause", 10),
            get("call", &receiver.url("/a")).needs(&["pause"]).retry(1, 10),
            step("note", "ticket.comment", json!({
                "ticket_id": "${{ steps.make.output.id }}", "body": "Status ${{ steps.call.output.status }}", "public": false,
            })).needs(&["make", "call"]),
        ]);
        let run = server.run_with(&acme, &definition, &json!({"name": "Ada", "count": 3})).await;
        server.work_for(60_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: make succeeded, pause succeeded, call succeeded, note succeeded");
        let make = step_of(&run, "make");
        assert_eq!((&make["uses"], &make["input"]), (&json!("ticket.create"), &json!({"subject": "For Ada, 3 times"})));
        assert_eq!(make["output"]["number"], 1);
        let attempt = &make["attempts"][0];
        assert_eq!(
            (&attempt["number"], &attempt["error"], &attempt["status_code"]),
            (&json!(1), &json!(null), &json!(null))
        );
        for field in ["ready_at", "started_at", "ended_at"] {
            assert_eq!(time(&make[field]), start, "{field}");
        }
        let pause = step_of(&run, "pause");
        assert_eq!((time(&pause["started_at"]), time(&pause["ended_at"])), (start, start.plus_ms(10 * SECOND_MS)));
        let call = step_of(&run, "call");
        assert_eq!(time(&call["ready_at"]), start.plus_ms(10 * SECOND_MS));
        assert_eq!(time(&call["started_at"]), start.plus_ms(10 * SECOND_MS), "the first attempt");
        let attempts = call["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 2, "{call:#}");
        assert_eq!((&attempts[0]["status_code"], &attempts[0]["error"]["code"]), (&json!(503), &json!("http_status")));
        assert_eq!((&attempts[1]["status_code"], &attempts[1]["error"]), (&json!(204), &json!(null)));
        assert_eq!(attempts[1]["ended_at"], call["ended_at"]);
        assert_eq!(step_of(&run, "note")["input"]["body"], "Status 204");
        assert_eq!((time(&run["started_at"]), &run["ended_at"]), (start, &step_of(&run, "note")["ended_at"]));
        let order: Vec<&Value> = run["steps"].as_array().unwrap().iter().map(|step| &step["id"]).collect();
        assert_eq!(order, ["make", "pause", "call", "note"]);
    }

    async fn the_history_is_newest_first_and_each_filter_decides(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let all = some_runs(&server, &acme).await;
        assert_eq!(server.list_runs(&acme, "").await, all);
        let (newer, older) = (all[0]["workflow_id"].as_str().unwrap(), all[5]["workflow_id"].as_str().unwrap());
        let third = all[3]["created_at"].as_str().unwrap();
        for (query, places) in [
            (format!("&workflow_id={newer}"), vec![0, 1, 2]),
            (format!("&workflow_id={newer},{older}"), vec![0, 1, 2, 3, 4, 5]),
            ("&status=failed".to_owned(), vec![1, 4]),
            ("&status=failed,waiting".to_owned(), vec![0, 1, 3, 4]),
            ("&status=cancelled".to_owned(), vec![]),
            (format!("&workflow_id={older}&status=succeeded"), vec![5]),
            (format!("&workflow_id={older}&status=succeeded,waiting"), vec![3, 5]),
            (format!("&since={third}"), vec![0, 1, 2, 3]),
            (format!("&until={third}"), vec![4, 5]),
            (format!("&until={third}&status=failed"), vec![4]),
            (format!("&since={third}&status=failed"), vec![1]),
            (format!("&since={third}&workflow_id={older}"), vec![3]),
            (format!("&since={third}&workflow_id={older}&status=succeeded"), vec![]),
        ] {
            let expected: Vec<&str> = places.iter().map(|place: &usize| id_of(&all[*place])).collect();
            let found = server.list_runs(&acme, &query).await;
            assert_eq!(ids(&found), expected, "{query}");
        }
    }

    async fn the_history_is_read_page_by_page(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let all = some_runs(&server, &acme).await;
        for filter in [
            "",
            "&status=failed,succeeded,waiting",
            &format!(
                "&workflow_id={},{}",
                all[0]["workflow_id"].as_str().unwrap(),
                all[5]["workflow_id"].as_str().unwrap()
            ),
        ] {
            let (mut found, mut more) = (Vec::new(), String::new());
            loop {
                let page = server
                    .get(format!("{WORKFLOWS}?view=runs&limit=2{filter}{more}"))
                    .cookie(&acme.admin)
                    .await
                    .ok(200);
                let data = page["data"].as_array().unwrap();
                assert!(data.len() <= 2);
                found.extend(data.iter().cloned());
                match page["next_cursor"].as_str() {
                    Some(cursor) => more = format!("&cursor={cursor}"),
                    None => break,
                }
            }
            assert_eq!(found, all, "{filter}");
        }
        let page = server.get(format!("{WORKFLOWS}?view=runs&limit=2")).cookie(&acme.admin).await.ok(200);
        let cursor = page["next_cursor"].as_str().unwrap();
        let other =
            server.get(format!("{WORKFLOWS}?view=runs&status=failed&cursor={cursor}")).cookie(&acme.admin).await;
        other.problem("invalid_cursor");
        server.get(format!("{WORKFLOWS}?cursor={cursor}")).cookie(&acme.admin).await.problem("invalid_cursor");
    }

    async fn what_makes_no_question_is_refused(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server.run(&acme, &manual([ticket("make", "A")])).await;
        let (id, workflow) = (id_of(&run), run["workflow_id"].as_str().unwrap());
        for (query, code) in [
            ("view=steps".to_owned(), "invalid_parameter"),
            ("view=runs&status=odd".to_owned(), "invalid_parameter"),
            ("view=runs&since=yesterday".to_owned(), "invalid_parameter"),
            ("view=runs&nonsense=1".to_owned(), "unknown_parameter"),
            (format!("run_id={id}&id={workflow}"), "invalid_parameter"),
            (format!("run_id={id}&view=runs"), "invalid_parameter"),
            (format!("run_id={id}&cursor=x"), "invalid_parameter"),
            (format!("id={workflow}&view=runs"), "invalid_parameter"),
            ("status=failed".to_owned(), "invalid_parameter"),
        ] {
            let answer = server.get(format!("{WORKFLOWS}?{query}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{query}: {}", answer.json());
            answer.problem(code);
        }
        let two = server.patch(format!("{WORKFLOWS}?run_id={id}&id={workflow}")).cookie(&acme.admin);
        two.json(&json!({"action": "cancel"})).await.problem("invalid_parameter");
        server
            .patch(WORKFLOWS)
            .cookie(&acme.admin)
            .json(&json!({"action": "cancel"}))
            .await
            .problem("missing_parameter");
    }

    async fn a_run_that_is_not_there_looks_the_same_for_whatever_reason(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let foreign = server.run(&globex, &manual([approval("asked")])).await;
        let workflow = server.workflow(&acme, &manual([ticket("make", "A")])).await;
        let mut seen = Vec::new();
        for id in ["run_01jd8z6v2mfkpb7h3q9xw5t4ra", id_of(&foreign), id_of(&workflow), "nonsense", ""] {
            let target = format!("{WORKFLOWS}?run_id={id}");
            for answer in [
                server.get(&target).cookie(&acme.admin).await,
                server.patch(&target).cookie(&acme.admin).json(&json!({"action": "cancel"})).await,
                server.patch(&target).cookie(&acme.admin).json(&json!({"action": "approve"})).await,
            ] {
                answer.problem("not_found");
                seen.push(answer.body_but_request_id());
            }
        }
        assert!(seen.iter().all(|body| *body == seen[0]), "{seen:#?}");
        assert!(server.list_runs(&acme, "").await.is_empty());
        let of_others = format!("&workflow_id={}", foreign["workflow_id"].as_str().unwrap());
        assert!(server.list_runs(&acme, &of_others).await.is_empty());
        assert_ended(&server.read_run(&globex, &foreign).await, "waiting: asked waiting");
    }

    async fn who_reads_and_who_writes_workflows_does_so_with_runs(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server.run(&acme, &manual([approval("asked")])).await;
        let workflow = json!({"id": run["workflow_id"]});
        let (reader, writer) =
            (server.key(&acme, &["workflows:read"]).await, server.key(&acme, &["workflows:write"]).await);
        let (target, history) = (one_run(&run), format!("{WORKFLOWS}?view=runs"));
        let body = json!({"action": "run", "workflow_id": workflow["id"]});
        for (answer, scope) in [
            (server.get(&target).key(&writer.plain).await, "workflows:read"),
            (server.get(&history).key(&writer.plain).await, "workflows:read"),
            (server.patch(&target).key(&reader.plain).json(&json!({"action": "approve"})).await, "workflows:write"),
            (server.post(WORKFLOWS).key(&reader.plain).json(&body).await, "workflows:write"),
        ] {
            assert_eq!(answer.problem("insufficient_scope")["required_scope"], scope);
        }
        let shown = server.get(&target).key(&reader.plain).await;
        let record = shown.ok(200);
        assert_eq!(shown.header("etag"), format!("\"{}\"", record["version"]));
        server.post(WORKFLOWS).key(&writer.plain).json(&body).await.is(202);
        server.patch(&target).key(&writer.plain).json(&json!({"action": "approve"})).await.is(200);
    }

    async fn each_beginning_and_end_of_a_run_is_told_with_the_run(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let good = server.run(&acme, &manual([ticket("make", "A")])).await;
        let bad = server.run(&acme, &manual([failing("bad")])).await;
        let told = server.events_of(&acme, "workflow.").await;
        let kinds: Vec<&Value> = told.iter().map(|event| &event["type"]).collect();
        assert_eq!(
            kinds,
            ["workflow.run.started", "workflow.run.succeeded", "workflow.run.started", "workflow.run.failed"]
        );
        assert_eq!(told[1]["data"], without(&good, &["steps"]));
        assert_eq!(told[3]["data"], without(&bad, &["steps"]));
        assert_eq!(told[3]["data"]["error"]["code"], "not_found");
        let begun = with(&without(&good, &["steps", "version"]), &json!({"status": "running", "ended_at": null}));
        assert_eq!(without(&told[0]["data"], &["version"]), begun);
    }

    async fn what_somebody_did_to_a_run_is_in_the_trail(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server.workflow(&acme, &manual([approval("asked")])).await;
        for actions in [&["cancel"][..], &["approve"], &["reject", "retry"]] {
            let run = server.start_run(&acme, &workflow, &json!({})).await;
            server.work().await;
            for action in actions {
                server.work_for(1_000).await;
                server.tell_run(&acme, &run, action).await.is(200);
                server.work().await;
            }
            let trail = tickets::trail(&server, &acme, &run).await;
            let did: Vec<&str> = trail.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
            let mut expected = vec!["workflow.run".to_owned()];
            expected.extend(actions.iter().map(|action| format!("workflow.{action}")));
            assert_eq!(did, expected);
            let me = tickets::who(&server, &acme.admin).await;
            assert!(trail.iter().all(|entry| entry["actor"] == me), "{trail:#?}");
        }
    }

    async fn runs_stay_readable_when_their_workflow_is_gone(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let definition = on_event(&["ticket.created"], [step("note", "event.emit", json!({"name": "n", "data": {}}))]);
        let workflow = server.workflow(&acme, &definition).await;
        tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!(runs.len(), 1);
        let before = server.read_run(&acme, &runs[0]).await;
        server.delete_workflow(&acme, &workflow).await;
        server.work().await;
        assert_eq!(server.read_run(&acme, &runs[0]).await, before);
        assert_eq!(server.runs_of(&acme, &workflow).await, runs);
        tickets::make(&server, &acme, &json!({})).await;
        server.work().await;
        assert_eq!(server.runs_of(&acme, &workflow).await, runs, "and no more of them");
    }
}
