//! Definitions, inputs and receivers that mean harm: refused or stopped with a reason, and nobody else notices.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kernel::outbound::NameSource;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::process::until;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{
    assert_ended, get, manual, on_event, on_event_if, one_run, open, step, step_of, ticket,
};
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::tickets;

/// What a neighbour may have to wait.
const NEIGHBOUR_MAX: Duration = Duration::from_secs(2);

/// Doubles a text or a list so many times.
fn doubling(start: &str, by: &str, times: usize) -> String {
    format!("{start}{}", by.repeat(times))
}

/// Expressions that would take all memory or all time.
fn bombs() -> Vec<(&'static str, String)> {
    vec![
        ("many texts", doubling("['x']", ".map(a, a + a)", 40)),
        ("texts", format!("{}.size() > 0", doubling("['x']", ".map(a, a + a)", 26))),
        ("lists", format!("{} == [1]", doubling("[0]", ".map(a, [a, a])", 21))),
        ("leaves", doubling("[0]", ".map(a, [a, a])", 21)),
        ("maps", doubling("[0]", ".map(a, {'l': a, 'r': a})", 16)),
        ("loops", "input.list.all(a, input.list.all(b, input.list.all(c, input.list.all(d, true))))".to_owned()),
        ("absorbed", "true || input.list.all(a, input.list.all(b, input.list.all(c, a + b + c > 0)))".to_owned()),
        ("copies", "input.list.map(a, input.list.map(b, input))".to_owned()),
        ("joined", "input.list.map(a, input.text).join(input.text).size()".to_owned()),
        ("replaced", "input.text.replace('x', input.text).replace('x', input.text)".to_owned()),
        ("matched", "input.text.matches('^(x+x+)+y$')".to_owned()),
        ("split", "input.text.split('').map(a, input.text.split('')).size()".to_owned()),
    ]
}

/// Expressions that no parser should follow to their end.
fn depths() -> Vec<String> {
    let mut all = vec![
        format!("{}1{}", "(".repeat(900), ")".repeat(900)),
        format!("{}1{}", "[".repeat(900), "]".repeat(900)),
        format!("{}1{}", "{'a':".repeat(300), "}".repeat(300)),
        format!("{}1", "-".repeat(1_900)),
        format!("{}true", "!".repeat(1_900)),
        format!("{}true", "!-".repeat(900)),
        format!("{}1", "true ? 1 : ".repeat(180)),
        format!("1{}", "+1".repeat(900)),
        format!("input{}", ".a".repeat(900)),
        format!("input{}", "[0]".repeat(600)),
        format!("''{}", ".trim()".repeat(280)),
        format!("true{}", "||true".repeat(300)),
        format!("'{}'", "x".repeat(4_000)),
        format!("{}1{}", "[0].map(a,".repeat(190), ")".repeat(190)),
    ];
    // And the same without their ends.
    all.extend(
        ["(", "[", "{", "\"", "'''", "b'", "1 +", "a.", "${{", "1e", "0x", "\\", "\u{0}", "#", "in in in"]
            .map(|text| text.repeat(50)),
    );
    all
}

async fn neighbour_is_served(server: &Server, neighbour: &Tenancy) {
    let begun = Instant::now();
    let run = server.run(neighbour, &manual([ticket("make", "A")])).await;
    assert_ended(&run, "succeeded: make succeeded");
    assert!(begun.elapsed() < NEIGHBOUR_MAX, "{:?}", begun.elapsed());
}

/// A host that leads inside by another name than its own.
fn named(mut setup: Setup, inside: Arc<AtomicBool>) -> Setup {
    let table = move |name: &str| match name {
        "inside.example" => vec![IpAddr::from([127, 0, 0, 1])],
        "moves.example" if inside.load(Ordering::Relaxed) => vec![IpAddr::from([127, 0, 0, 1])],
        "outside.example" | "moves.example" => vec![IpAddr::from([93, 184, 215, 14])],
        _ => Vec::new(),
    };
    setup.settings.outbound.names = NameSource::Table(Arc::new(table));
    setup
}

over_http! {
    async fn an_expression_that_takes_too_much_is_stopped(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let input = json!({"list": (0..1_000).collect::<Vec<i32>>(), "text": "x".repeat(30_000)});
        for (name, bomb) in bombs() {
            let emit =
                step("emit", "event.emit", json!({"name": "boom", "data": {"it": format!("${{{{ {bomb} }}}}")}}));
            let answer = server.create_workflow(&acme, &manual([emit.retry(3, 1)])).await;
            if answer.status == 422 {
                let problem = answer.problem("invalid_fields");
                assert_eq!(problem["errors"][0]["pointer"], "/steps/0/with/data/it", "{name}: {problem}");
                continue;
            }
            let workflow = answer.ok(201);
            let begun = Instant::now();
            let run = server.start_run(&acme, &workflow, &input).await;
            server.work().await;
            assert!(begun.elapsed() < NEIGHBOUR_MAX, "{name} took {:?}", begun.elapsed());
            let run = server.read_run(&acme, &run).await;
            let step = step_of(&run, "emit");
            // Those that a good evaluator has an answer for may have one.
            let harmless = ["absorbed", "matched", "lists"].contains(&name) && run["status"] == "succeeded";
            let stopped =
                step["error"]["code"] == "expression_too_costly" && step["attempts"].as_array().unwrap().len() <= 1;
            assert!(harmless || stopped, "{name}: {step:#}");
            assert!(step.to_string().len() < 4_096, "{name}: what is told of it is short");
        }
        neighbour_is_served(&server, &globex).await;
    }

    async fn an_expression_that_is_too_deep_is_refused_when_it_is_saved(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        for text in depths() {
            let by_condition = server.create_workflow(&acme, &manual([ticket("a", "A").when(&text)])).await;
            assert_eq!(by_condition.status, 422, "{text}");
            let problem = by_condition.problem("invalid_fields");
            assert_eq!(problem["errors"][0]["pointer"], "/steps/0/if", "{problem}");
            assert!(problem.to_string().len() < 4_096, "what is told of it is short: {problem}");
            let by_filter =
                server.create_workflow(&acme, &on_event_if(&["ticket.created"], &text, [ticket("a", "A")])).await;
            assert_eq!(by_filter.problem("invalid_fields")["errors"][0]["pointer"], "/on/event/if");
        }
    }

    async fn a_filter_that_takes_too_much_holds_up_nobody(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let bomb = format!("{}.size() > 0", doubling("['x']", ".map(a, a + a)", 26));
        let workflow =
            server.workflow(&acme, &on_event_if(&["ticket.created"], &bomb, [ticket("never", "Never")])).await;
        let good = server
            .workflow(
                &acme,
                &on_event(&["ticket.created"], [step("tell", "event.emit", json!({"name": "told", "data": {}}))]),
            )
            .await;
        for _ in 0..5 {
            tickets::make(&server, &acme, &json!({})).await;
        }
        neighbour_is_served(&server, &globex).await;
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert!(runs.len() == 5 && runs.iter().all(|run| run["error"]["code"] == "expression_too_costly"), "{runs:#?}");
        assert_eq!(server.runs_of(&acme, &good).await.len(), 5);
    }

    async fn what_is_too_large_is_refused(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let mut deep = json!("${{ 1 }}");
        for _ in 0..200 {
            deep = json!([deep]);
        }
        for (definition, statuses) in [
            (manual([ticket("a", &"x".repeat(1 << 20))]), &[413_u16][..]),
            (manual([step("a", "event.emit", json!({"name": "n", "data": {"text": "x".repeat(200 << 10)}}))]), &[422]),
            (manual([step("a", "event.emit", json!({"name": "n", "data": {"deep": deep}}))]), &[400, 422]),
            (manual((0..51).map(|number| ticket(&format!("s{number}"), "A"))), &[422]),
            (manual([step("a", "event.emit", json!({"name": "n", "data": {"list": vec!["${{ 1 }}"; 600]}}))]), &[422]),
            (manual([ticket(&"x".repeat(64), "A")]), &[422]),
        ] {
            let answer = server.create_workflow(&acme, &definition).await;
            assert!(statuses.contains(&answer.status), "{} {}", answer.status, &definition.to_string()[..80]);
        }
        let workflow = server.workflow(&acme, &manual([ticket("a", "A")])).await;
        let problem = server
            .post_run(&acme, &workflow, &json!({"input": {"text": "x".repeat(70_000)}}))
            .await
            .problem("invalid_fields");
        assert_eq!(problem["errors"][0]["pointer"], "/input");
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 0);
    }

    async fn what_grows_too_large_in_a_run_fails_its_step(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let all = "${{ input }}";
        let receiver = Receiver::start().await;
        let run = server
            .run_with(
                &acme,
                &manual([
                    step("emit", "event.emit", json!({"name": "n", "data": {"all": vec![all; 8]}})),
                    step(
                        "call",
                        "http.request",
                        json!({"method": "POST", "url": receiver.url("/a"), "body": vec![all; 8]}),
                    ),
                    ticket("subject", "${{ input.text }}"),
                ]),
                &json!({"text": "x".repeat(60_000)}),
            )
            .await;
        assert_ended(&run, "failed: emit failed, call failed, subject failed");
        assert_eq!(receiver.count(), 0);
        assert!(run.to_string().len() < 200_000, "{}", run.to_string().len());
    }

    async fn what_a_template_came_to_is_never_evaluated_again(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let evil = "${{ run.id }} ${{ 1 + 1 }}";
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let body = json!({"text": evil}).to_string().into_bytes();
        receiver.on("/a", [Behaviour::AnswerWith { status: 200, headers, body }]);
        let run = server
            .run_with(
                &acme,
                &manual([
                    ticket("one", "${{ input.text }}"),
                    ticket("two", "${{ steps.one.output.subject }}").needs(&["one"]),
                    get("call", &receiver.url("/a")),
                    ticket("three", "${{ steps.call.output.body.text }}").needs(&["call"]),
                    ticket("built", "${{ '$' + '{{ 1 + 1 }' + '}' }}"),
                    ticket("mixed", "a ${{ input.dollar }}{{ 1 + 1 }}"),
                ]),
                &json!({"text": evil, "dollar": "$"}),
            )
            .await;
        assert_eq!(run["status"], "succeeded", "{run:#}");
        for (id, subject) in
            [("one", evil), ("two", evil), ("three", evil), ("built", "${{ 1 + 1 }}"), ("mixed", "a ${{ 1 + 1 }}")]
        {
            assert_eq!(step_of(&run, id)["output"]["subject"], subject, "{id}");
        }
        // Nor when an event carries it, from one workflow to the next.
        let follower = server
            .workflow(
                &acme,
                &on_event_if(
                    &["ticket.created"],
                    "event.data.source == 'ui'",
                    [step("echo", "event.emit", json!({"name": "echo", "data": {"it": "${{ event.data.subject }}"}}))],
                ),
            )
            .await;
        tickets::make(&server, &acme, &json!({"subject": evil})).await;
        server.work().await;
        assert_eq!(server.runs_of(&acme, &follower).await.len(), 1);
        assert_eq!(server.events_of(&acme, "custom.echo").await[0]["data"]["it"], evil);
    }

    async fn a_request_to_inside_is_refused_when_it_is_saved_and_when_it_is_sent(setup: Setup) {
        let moved = Arc::new(AtomicBool::new(false));
        let mut setup = named(setup, moved.clone());
        setup.settings.session_idle_ms = 1_000_000_000;
        let server = setup.start().await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        let port = receiver.address().port();
        let inside = [
            "127.0.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "2130706433",
            "0x7f.1",
            "localhost",
            "169.254.169.254",
            "10.0.0.1",
            "inside.example",
        ];
        for host in inside {
            let answer = server.create_workflow(&acme, &manual([get("call", &format!("http://{host}:{port}/"))])).await;
            assert_eq!(answer.status, 422, "{host}: {}", answer.json());
            let problem = answer.json();
            assert_eq!(
                (&problem["code"], &problem["errors"][0]["pointer"]),
                (&json!("target_not_allowed"), &json!("/steps/0/with/url")),
                "{host}: {problem}"
            );
        }
        let workflow = server.workflow(&acme, &manual([get("call", "${{ input.url }}").retry(1, 1)])).await;
        for host in inside {
            let run = server.start_run(&acme, &workflow, &json!({"url": format!("http://{host}:{port}/")})).await;
            server.work_for(3_000).await;
            let run = server.read_run(&acme, &run).await;
            assert_ended(&run, "failed: call failed");
            assert_eq!(step_of(&run, "call")["error"]["code"], "target_not_allowed", "{host}: {run:#}");
        }
        for url in [
            "file:///etc/passwd",
            "gopher://outside.example/",
            "javascript:1",
            "",
            "http://",
            "http://a b/",
            "//outside.example/",
            "http://user:secret@outside.example/",
        ] {
            let run = server.start_run(&acme, &workflow, &json!({"url": url})).await;
            server.work_for(3_000).await;
            assert_eq!(server.read_run(&acme, &run).await["status"], "failed", "{url}");
        }
        // A name that was outside when the workflow was saved.
        let later = server.workflow(&acme, &manual([get("call", &format!("http://moves.example:{port}/"))])).await;
        moved.store(true, Ordering::Relaxed);
        let run = server.start_run(&acme, &later, &json!({})).await;
        server.work().await;
        let run = server.read_run(&acme, &run).await;
        assert_eq!(step_of(&run, "call")["error"]["code"], "target_not_allowed", "{run:#}");
        assert_eq!((receiver.count(), receiver.connections()), (0, 0));
        neighbour_is_served(&server, &globex).await;
    }

    async fn a_value_cannot_break_out_of_a_request(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let evil = "a\r\nX-Evil: yes\r\n\r\nGET /evil HTTP/1.1\r\n";
        let run = server.run_with(&acme, &manual([
            step("header", "http.request", json!({"method": "GET", "url": receiver.url("/a"), "headers": {"X-Given": "${{ input.evil }}"}})),
            step("path", "http.request", json!({"method": "GET", "url": receiver.url("/b/${{ input.evil }}")})),
            step("method", "http.request", json!({"method": "${{ input.evil }}", "url": receiver.url("/c")})),
        ]), &json!({"evil": evil})).await;
        assert_eq!(step_of(&run, "header")["status"], "failed", "{run:#}");
        assert_eq!(step_of(&run, "method")["status"], "failed", "{run:#}");
        for request in receiver.received() {
            assert!(!request.headers.contains_key("x-evil") && request.path.starts_with("/b/a"), "{request:?}");
        }
    }

    async fn a_workflow_that_multiplies_does_not_hold_up_another_tenant(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        // Each run starts fifty others: fifty to the eighth, if nothing stops it.
        let emits =
            (0..50).map(|number| step(&format!("s{number}"), "event.emit", json!({"name": "boom", "data": {}})));
        let bomb = server.workflow(&acme, &on_event(&["custom.boom"], emits)).await;
        let start =
            server.workflow(&acme, &manual([step("go", "event.emit", json!({"name": "boom", "data": {}}))])).await;
        server.start_run(&acme, &start, &json!({})).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let working = tokio::spawn(server.engine().run(async move { drop(stopped.await) }));
        let deep = format!("&workflow_id={}&limit=200", bomb["id"].as_str().unwrap());
        until("it has multiplied", Duration::from_secs(30), async || {
            (server.list_runs(&acme, &deep).await.len() > 60).then_some(())
        })
        .await;
        for _ in 0..2 {
            let begun = Instant::now();
            let workflow = server.workflow(&globex, &manual([ticket("make", "A")])).await;
            let run = server.start_run(&globex, &workflow, &json!({})).await;
            until("the neighbour's run is over", Duration::from_secs(30), async || {
                let run = server.get(one_run(&run)).cookie(&globex.admin).await.ok(200);
                (run["status"] == "succeeded").then_some(())
            })
            .await;
            assert!(begun.elapsed() < NEIGHBOUR_MAX, "{:?}", begun.elapsed());
        }
        server.delete_workflow(&acme, &bomb).await;
        drop(stop);
        tokio::time::timeout(Duration::from_secs(20), working).await.expect("it stops").unwrap();
    }

    async fn a_schema_that_takes_too_much_is_refused(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let mut deep = json!({"type": "string"});
        for _ in 0..60 {
            deep = json!({"not": deep});
        }
        let bombs: Vec<(Value, &str)> = vec![
            (json!({"$ref": "http://127.0.0.1/schema"}), "/input_schema/$ref"),
            (json!({"$ref": "#"}), "/input_schema/$ref"),
            (
                json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}}),
                "/input_schema/$defs/a/allOf/0/$ref",
            ),
            (json!({"properties": {"a": {"pattern": "(\\w{1000}){1000}"}}}), "/input_schema"),
            (json!({"properties": {"a": {"pattern": "(?=a)b"}}}), "/input_schema"),
            (deep, "/input_schema"),
            (json!({"enum": vec!["x"; 5_000]}), "/input_schema"),
            (json!({"type": "nonsense"}), "/input_schema"),
        ];
        for (schema, pointer) in bombs {
            let mut definition = manual([ticket("a", "A")]);
            definition["input_schema"] = schema.clone();
            let begun = Instant::now();
            let problem = server.create_workflow(&acme, &definition).await.problem("invalid_fields");
            assert!(problem["errors"][0]["pointer"].as_str().unwrap().starts_with(pointer), "{problem}");
            assert!(begun.elapsed() < NEIGHBOUR_MAX);
        }
    }
}
