//! What each action does: as whom, with which trace, and what it gives to the steps after it.

use serde_json::{Value, json};

use crate::support::over_http;
use crate::support::people::KEYS;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{
    WORKFLOWS, assert_ended, get, id_of, manual, on_event, open, step, step_of, ticket, wait,
};
use crate::tickets::{self, without};
use crate::webhooks::endpoint;

/// The workflow behind a run, as an actor.
fn actor(run: &Value) -> Value {
    json!({"type": "workflow", "id": run["workflow_id"], "name": run["workflow_name"]})
}

over_http! {
    async fn a_ticket_is_made_as_its_route_makes_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let organization = tickets::organization(&server, &acme, "globex").await;
        let body = json!({
            "subject": "Printer", "description": "On fire", "type": "task", "priority": "${{ input.priority }}",
            "organization_id": organization, "requester": {"name": "Ada", "email": "${{ input.email }}"},
            "tags": ["a", "${{ input.tag }}"], "custom_fields": {"floor": "${{ input.floor }}"}, "external_id": "E-${{ input.floor }}",
        });
        let input = json!({"priority": "high", "email": "ada@acme.test", "tag": "b", "floor": 3});
        let run = server.run_with(&acme, &manual([step("make", "ticket.create", body)]), &input).await;
        assert_ended(&run, "succeeded: make succeeded");
        let made = &tickets::list(&server, &acme, "").await[0];
        assert_eq!(&step_of(&run, "make")["output"], made, "the output is what the route answers");
        assert_eq!(
            (&made["source"], &made["priority"], &made["tags"]),
            (&json!("workflow"), &json!("high"), &json!(["a", "b"]))
        );
        assert_eq!((&made["custom_fields"], &made["external_id"]), (&json!({"floor": 3}), &json!("E-3")));
        assert_eq!((&made["number"], &made["organization_id"]), (&json!(1), &json!(organization)));
        let whole = tickets::read(&server, &acme, made).await;
        assert_eq!(whole["history"][0]["actor"], actor(&run));
        let trail = tickets::trail(&server, &acme, made).await;
        assert_eq!(trail.len(), 1, "{trail:#?}");
        assert_eq!((&trail[0]["actor"], &trail[0]["request_id"]), (&actor(&run), &run["id"]));
        let told = tickets::events(&server, &acme).await;
        assert_eq!((told.len(), &told[0]["data"]), (1, made));
    }

    async fn a_ticket_is_changed_as_its_route_changes_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let before = tickets::make(&server, &acme, &json!({"tags": ["a"]})).await;
        let with = json!({"ticket_id": "${{ input.ticket }}", "status": "in_progress", "tags": ["b"], "team": "${{ input.team }}"});
        let definition = manual([step("change", "ticket.update", with)]);
        let run = server.run_with(&acme, &definition, &json!({"ticket": before["id"], "team": "Night"})).await;
        assert_ended(&run, "succeeded: change succeeded");
        let now = tickets::read(&server, &acme, &before).await;
        assert_eq!(step_of(&run, "change")["output"], without(&now, &["comments", "history"]));
        assert_eq!(
            (&now["status"], &now["team"], &now["source"]),
            (&json!("in_progress"), &json!("Night"), &before["source"])
        );
        assert_eq!(now["history"][1]["actor"], actor(&run));
        let told = tickets::events(&server, &acme).await;
        assert_eq!((told.len(), &told[1]["type"]), (2, &json!("ticket.updated")));
        assert_eq!(told[1]["data"]["changes"], tickets::difference(&before, &now));
        let again = server.run_with(&acme, &definition, &json!({"ticket": before["id"], "team": "Night"})).await;
        assert_ended(&again, "succeeded: change succeeded");
        assert_eq!(tickets::events(&server, &acme).await.len(), 2, "a change that changes nothing is not told");
        assert_eq!(step_of(&again, "change")["output"], step_of(&run, "change")["output"]);
    }

    async fn a_comment_of_a_workflow_is_no_first_response(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let before = tickets::make(&server, &acme, &json!({})).await;
        let with = json!({"ticket_id": "${{ input.ticket }}", "body": "We have ${{ input.ticket }}.", "public": true});
        let run = server
            .run_with(&acme, &manual([step("say", "ticket.comment", with)]), &json!({"ticket": before["id"]}))
            .await;
        assert_ended(&run, "succeeded: say succeeded");
        let now = tickets::read(&server, &acme, &before).await;
        assert_eq!((&now["comment_count"], &now["first_responded_at"]), (&json!(1), &json!(null)));
        let comment = &now["comments"][0];
        assert_eq!((&comment["author"], &comment["public"]), (&actor(&run), &json!(true)));
        assert_eq!(comment["body"], format!("We have {}.", id_of(&before)));
        assert_eq!(tickets::kinds(&server, &acme).await, ["ticket.created", "ticket.commented"]);
    }

    async fn an_output_is_there_for_the_steps_after_it_with_its_types(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let body = json!({
            "number": "${{ steps.make.output.number }}", "text": "#${{ steps.make.output.number }}", "nothing": "${{ steps.make.output.team }}",
            "mixed_nothing": "[${{ steps.make.output.team }}]", "list": "${{ steps.make.output.tags }}", "mixed_list": "in ${{ steps.make.output.tags }}",
            "made": "${{ {'a': [1, 2.5, true, null], 'b': {'c': 'd'}} }}", "sum": "${{ steps.make.output.number + 41 }}",
            "literal": "${{ '${{' }} and }}", "nested": {"deep": [{"er": "${{ input.flag }}"}]}, "plain": "$ {{ }} $",
            "run": "${{ run.id }}", "workflow": "${{ run.workflow_id }}", "event": "${{ event }}", "filtered": "${{ input.list.filter(x, x > 1).map(x, x * 2) }}",
        });
        let with = json!({"method": "POST", "url": receiver.url("/a"), "body": body});
        let call = step("call", "http.request", with).needs(&["make"]);
        let make = step("make", "ticket.create", json!({"subject": "A", "tags": ["x", "y"]}));
        let run = server.run_with(&acme, &manual([make, call]), &json!({"flag": false, "list": [1, 2, 3]})).await;
        assert_ended(&run, "succeeded: make succeeded, call succeeded");
        let expected = json!({
            "number": 1, "text": "#1", "nothing": null, "mixed_nothing": "[]", "list": ["x", "y"], "mixed_list": "in [\"x\",\"y\"]",
            "made": {"a": [1, 2.5, true, null], "b": {"c": "d"}}, "sum": 42,
            "literal": "${{ and }}", "nested": {"deep": [{"er": false}]}, "plain": "$ {{ }} $",
            "run": run["id"], "workflow": run["workflow_id"], "event": null, "filtered": [4, 6],
        });
        assert_eq!(receiver.received()[0].json(), expected);
        assert_eq!(step_of(&run, "call")["input"]["body"], expected);
    }

    async fn an_emitted_event_is_delivered_read_and_starts_what_waits_for_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for (path, pattern) in [
            ("/exact", "custom.backup.done"),
            ("/all", "custom.*"),
            ("/other", "custom.backup.failed"),
            ("/ticket", "ticket.*"),
        ] {
            endpoint(&server, &acme, &receiver.url(path), &[pattern]).await;
        }
        let note = ticket("note", "${{ event.type }} of ${{ event.data.host }}");
        let follower = server.workflow(&acme, &on_event(&["custom.backup.done"], [note])).await;
        let with = json!({"name": "backup.done", "data": {"host": "${{ input.host }}", "count": 3}});
        let run = server.run_with(&acme, &manual([step("tell", "event.emit", with)]), &json!({"host": "db1"})).await;
        server.sender.run_due().await.unwrap();
        let told = server.events_of(&acme, "custom.").await;
        assert_eq!(told.len(), 1, "{told:#?}");
        assert_eq!(
            (&told[0]["type"], &told[0]["data"]),
            (&json!("custom.backup.done"), &json!({"host": "db1", "count": 3}))
        );
        let output = &step_of(&run, "tell")["output"];
        for field in ["id", "type", "sequence"] {
            assert_eq!(output[field], told[0][field], "{field}");
        }
        for path in ["/exact", "/all"] {
            let received = receiver.received_on(path);
            assert_eq!(received.len(), 1, "{path}");
            assert_eq!((&received[0].json()["id"], &received[0].json()["data"]), (&told[0]["id"], &told[0]["data"]));
        }
        assert_eq!(
            (receiver.count_on("/other"), receiver.count_on("/ticket")),
            (0, 1),
            "the ticket of the other workflow"
        );
        let runs = server.runs_of(&acme, &follower).await;
        assert_eq!((runs.len(), &runs[0]["trigger"]["event_id"]), (1, &told[0]["id"]));
        assert_eq!(tickets::list(&server, &acme, "").await[0]["subject"], "custom.backup.done of db1");
    }

    async fn a_request_says_what_it_was_told_to(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let answer = json!({"ok": true, "list": [1, 2]}).to_string().into_bytes();
        let headers = vec![
            ("content-type".to_owned(), "application/json; charset=utf-8".to_owned()),
            ("x-more".to_owned(), "Yes".to_owned()),
        ];
        receiver.on("/json?q=1", [Behaviour::AnswerWith { status: 201, headers, body: answer }]);
        let send = |id: &str, method: &str, path: &str, body: Value| {
            step(
                id,
                "http.request",
                json!({"method": method, "url": receiver.url(path), "headers": {"X-Given": "v ${{ input.n }}"}, "body": body}),
            )
        };
        let definition = manual([
            send("json", "POST", "/json?q=1", json!({"n": "${{ input.n }}"})),
            send("text", "PUT", "/text", json!("just ${{ input.n }} words")),
            send("list", "PATCH", "/list", json!([1, "${{ input.n }}"])),
            step("none", "http.request", json!({"method": "DELETE", "url": receiver.url("/none/${{ input.n }}")})),
            step("head", "http.request", json!({"method": "HEAD", "url": receiver.url("/head")})),
            step(
                "form",
                "http.request",
                json!({"method": "POST", "url": receiver.url("/form"), "body": "grant_type=client_credentials",
                    "headers": {"Content-Type": "application/x-www-form-urlencoded"}}),
            ),
        ]);
        let run = server.run_with(&acme, &definition, &json!({"n": 7})).await;
        assert_ended(&run, "succeeded: json succeeded, text succeeded, list succeeded, none succeeded, head succeeded, form succeeded");
        let one = |path: &str| receiver.received_on(path).remove(0);
        let json = one("/json?q=1");
        assert_eq!((json.method.as_str(), json.json()), ("POST", json!({"n": 7})));
        assert!(json.headers["content-type"].starts_with("application/json"), "{:?}", json.headers);
        assert_eq!(json.headers["x-given"], "v 7");
        let text = one("/text");
        assert_eq!((text.method.as_str(), text.body.as_slice()), ("PUT", &b"just 7 words"[..]));
        assert!(text.headers["content-type"].starts_with("text/plain"), "{:?}", text.headers);
        assert_eq!((one("/list").method.as_str(), one("/list").json()), ("PATCH", json!([1, 7])));
        let none = one("/none/7");
        assert_eq!((none.method.as_str(), none.body.len()), ("DELETE", 0));
        assert_eq!(one("/head").method, "HEAD");
        assert_eq!(one("/form").headers["content-type"], "application/x-www-form-urlencoded");
        let output = &step_of(&run, "json")["output"];
        assert_eq!((&output["status"], &output["body"]), (&json!(201), &json!({"ok": true, "list": [1, 2]})));
        assert_eq!(output["headers"]["x-more"], "Yes");
        assert_eq!(step_of(&run, "text")["output"]["status"], 204);
        let keys: std::collections::BTreeSet<String> =
            receiver.received().iter().map(|request| request.headers["idempotency-key"].clone()).collect();
        assert_eq!(keys.len(), 6, "each step its own");
        assert!(keys.iter().all(|key| key.contains(id_of(&run))), "{keys:?}");
    }

    async fn which_answers_are_right_can_be_said(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for status in [200, 202, 404, 409, 500] {
            receiver.on(&format!("/{status}"), [Behaviour::Answer(status)]);
        }
        receiver.on("/moved", [Behaviour::Redirect(receiver.url("/target"))]);
        let expects = |id: &str, path: &str, expected: Value| {
            step(id, "http.request", json!({"method": "GET", "url": receiver.url(path), "expect_status": expected}))
        };
        let run = server
            .run(
                &acme,
                &manual([
                    get("any_good", &receiver.url("/202")),
                    get("bad", &receiver.url("/404")),
                    expects("one", "/404", json!(404)),
                    expects("several", "/409", json!([200, 409])),
                    expects("none_of_them", "/500", json!([200, 409])),
                    expects("good_but_not_expected", "/202", json!(200)),
                    get("moved", &receiver.url("/moved")),
                    expects("moved_is_right", "/moved", json!(307)),
                ]),
            )
            .await;
        assert_ended(
            &run,
            "failed: any_good succeeded, bad failed, one succeeded, several succeeded, none_of_them failed, \
            good_but_not_expected failed, moved failed, moved_is_right succeeded",
        );
        for id in ["bad", "none_of_them", "good_but_not_expected", "moved"] {
            assert_eq!(step_of(&run, id)["error"]["code"], "http_status", "{id}");
        }
        assert_eq!(receiver.count_on("/target"), 0, "a redirect is not followed");
        assert_eq!(step_of(&run, "several")["output"]["status"], 409);
        assert!(
            step_of(&run, "moved_is_right")["output"]["headers"]["location"].as_str().unwrap().ends_with("/target")
        );
    }

    async fn a_strange_answer_is_kept_as_far_as_it_can_be(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let with = |kind: &str, body: &[u8]| {
            let headers = vec![("content-type".to_owned(), kind.to_owned())];
            [Behaviour::AnswerWith { status: 200, headers, body: body.to_vec() }]
        };
        receiver.on("/broken", with("application/json", b"{\"a\":"));
        receiver.on("/text", with("text/plain", "grün".as_bytes()));
        receiver.on("/binary", with("application/octet-stream", &[0, 255, 254, 65, 0, 195, 40]));
        receiver.on("/large", with("text/plain", "x".repeat(300 << 10).as_bytes()));
        receiver.on("/large_json", with("application/json", format!("[{}1]", "1,".repeat(100 << 10)).as_bytes()));
        receiver.on("/problem", with("application/problem+json", b"{\"status\":409}"));
        let ids = ["broken", "text", "binary", "large", "large_json", "problem"];
        let run = server.run(&acme, &manual(ids.map(|id| get(id, &receiver.url(&format!("/{id}")))))).await;
        assert_eq!(run["status"], "succeeded", "{run:#}");
        let body = |id: &str| step_of(&run, id)["output"]["body"].clone();
        assert_eq!((body("broken"), body("text")), (json!("{\"a\":"), json!("grün")));
        assert!(body("binary").is_string() || body("binary").is_null(), "{}", body("binary"));
        assert_eq!(body("problem"), json!({"status": 409}));
        for id in ["large", "large_json"] {
            let output = &step_of(&run, id)["output"];
            assert_eq!(output["truncated"], true, "{id}");
            assert!(output["body"].as_str().unwrap().len() <= 64 << 10, "{id}");
        }
    }

    async fn a_receiver_that_is_not_there_or_talks_nonsense_is_a_failure_that_is_told(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/reset", [Behaviour::Reset]);
        receiver.on("/garbage", [Behaviour::Garbage]);
        receiver.on("/truncated", [Behaviour::Truncated]);
        receiver.on("/head", [Behaviour::HugeHeaders]);
        let closed = { Receiver::start().await.url("/") };
        let (unknown_authority, _) = Receiver::start_tls().await;
        let definition = manual([
            get("closed", &closed),
            get("reset", &receiver.url("/reset")),
            get("garbage", &receiver.url("/garbage")),
            get("truncated", &receiver.url("/truncated")),
            get("head", &receiver.url("/head")),
            get("unknown", "${{ input.unknown }}"),
            get("tls", &unknown_authority.url("/")),
        ]);
        let run = server.run_with(&acme, &definition, &json!({"unknown": "http://nowhere.test/"})).await;
        assert_eq!(run["status"], "failed", "{run:#}");
        assert_eq!(step_of(&run, "closed")["error"]["code"], "connect_failed");
        assert_eq!(step_of(&run, "unknown")["error"]["code"], "name_not_resolved");
        assert_eq!(step_of(&run, "tls")["error"]["code"], "tls_failed");
        for id in ["reset", "garbage", "truncated", "head"] {
            let step = step_of(&run, id);
            assert_eq!(
                (&step["status"], step["attempts"].as_array().unwrap().len()),
                (&json!("failed"), 1),
                "{step:#}"
            );
            assert!(step["error"]["code"].as_str().is_some_and(|code| !code.is_empty()), "{step:#}");
        }
    }

    async fn who_runs_a_workflow_lends_it_nothing_and_who_saved_it_lends_what_they_have(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let saver = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let definition = manual([
            ticket("before", "A"),
            wait("pause", 60).needs(&["before"]),
            ticket("after", "B").needs(&["pause"]),
        ]);
        let mut body = definition.clone();
        body["action"] = json!("create");
        let workflow = server.post(WORKFLOWS).key(&saver.plain).json(&body).await.ok(201);
        // A runner without rights over tickets.
        let runner = server.key(&acme, &["workflows:write"]).await;
        let run = json!({"action": "run", "workflow_id": workflow["id"]});
        let run = server.post(WORKFLOWS).key(&runner.plain).json(&run).await.ok(202);
        server.work().await;
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1]);
        server.delete(format!("{KEYS}?id={}", saver.id)).cookie(&acme.admin).await.is(204);
        server.work_for(60_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: before succeeded, pause succeeded, after failed");
        assert_eq!(step_of(&run, "after")["error"]["code"], "insufficient_scope");
        assert_eq!((&run["error"]["code"], &run["error"]["step_id"]), (&json!("insufficient_scope"), &json!("after")));
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1]);
    }
}
