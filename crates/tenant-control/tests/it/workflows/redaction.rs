//! Values of headers are secrets: they reach their receiver, and nothing that is kept of a run has them.

use serde_json::{Value, json};

use crate::support::people::AUDIT;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{Step, WORKFLOWS, assert_ended, manual, on_event, one_run, open, step, step_of, wait};
use crate::support::{Server, Tenancy, over_http};
use crate::webhooks::EVENTS;

const SECRET: &str = "hunter2-in-a-header";
const MASK: &str = "********";

fn call(url: &str) -> Step {
    let headers =
        json!({"Authorization": format!("Bearer {SECRET}"), "X-Built": "${{ input.first }}-${{ input.second }}"});
    step("call", "http.request", json!({"method": "POST", "url": url, "headers": headers, "body": {"a": 1}}))
}

const INPUT: [(&str, &str); 2] = [("first", "built"), ("second", "together")];

fn input() -> Value {
    INPUT.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

/// Everything that anybody can read about runs.
async fn everything(server: &Server, tenancy: &Tenancy, run: &Value) -> String {
    let mut all = String::new();
    server.key(tenancy, &["search:read"]).await;
    for target in [
        one_run(run),
        format!("{WORKFLOWS}?view=runs"),
        format!("{WORKFLOWS}?id={}", run["workflow_id"].as_str().unwrap()),
        format!("{EVENTS}?view=feed&limit=200"),
        AUDIT.to_owned(),
    ] {
        all.push_str(&server.get(target).cookie(&tenancy.admin).await.ok(200).to_string());
    }
    all
}

fn echo(texts: &[&str]) -> Vec<Behaviour> {
    let body = json!({"seen": texts, "nested": {"deep": texts.concat()}}).to_string().into_bytes();
    let headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("x-echo".to_owned(), texts.concat()),
        ("set-cookie".to_owned(), "session=a-cookie-of-theirs".to_owned()),
    ];
    vec![Behaviour::AnswerWith { status: 200, headers, body }]
}

over_http! {
    async fn a_header_reaches_its_receiver_and_is_masked_everywhere_else(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let run = server.run_with(&acme, &manual([call(&receiver.url("/a"))]), &input()).await;
        assert_ended(&run, "succeeded: call succeeded");
        let received = &receiver.received()[0];
        assert_eq!(
            (&received.headers["authorization"], &received.headers["x-built"]),
            (&format!("Bearer {SECRET}"), &"built-together".to_owned())
        );
        assert_eq!(step_of(&run, "call")["input"]["headers"], json!({"Authorization": MASK, "X-Built": MASK}));
        assert_eq!(step_of(&run, "call")["input"]["body"], json!({"a": 1}));
        assert!(!everything(&server, &acme, &run).await.contains(SECRET));
    }

    async fn a_secret_that_comes_back_is_masked(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/a", echo(&[SECRET, "built-together", "harmless"]));
        let tell = step("tell", "event.emit", json!({"name": "told", "data": {"it": "${{ steps.call.output.body }}"}}))
            .needs(&["call"]);
        let run = server.run_with(&acme, &manual([call(&receiver.url("/a")), tell]), &input()).await;
        assert_ended(&run, "succeeded: call succeeded, tell succeeded");
        let all = everything(&server, &acme, &run).await;
        assert!(
            !all.contains(SECRET) && !all.contains("built-together") && !all.contains("a-cookie-of-theirs"),
            "{run:#}"
        );
        let output = &step_of(&run, "call")["output"];
        assert_eq!(output["body"]["seen"][2], "harmless");
        assert!(output["headers"]["x-echo"].as_str().unwrap().ends_with("harmless"), "{output}");
    }

    async fn a_secret_in_an_answer_that_fails_is_masked_too(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let body = format!("who is {SECRET}?").into_bytes();
        receiver.on("/a", [Behaviour::AnswerWith { status: 401, headers: Vec::new(), body }]);
        let run = server.run_with(&acme, &manual([call(&receiver.url("/a")).retry(1, 1)]), &input()).await;
        server.work_for(5_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: call failed");
        assert!(!everything(&server, &acme, &run).await.contains(SECRET));
    }

    async fn a_secret_is_found_however_it_is_spelt_and_a_number_is_none(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let body = r#"{"seen": "Bearer ab\/cd\u002Bef\u003D", "\u0061b\/cd+ef=": [1234567, "no. 1234567"], "account": 1234567}"#;
        let kind = vec![("content-type".to_owned(), "application/json; charset=utf-8".to_owned())];
        receiver.on("/a", [Behaviour::AnswerWith { status: 200, headers: kind, body: body.into() }]);
        let headers = json!({"Authorization": "Bearer ab/cd+ef=", "X-Account": "1234567"});
        let with = json!({"method": "GET", "url": receiver.url("/a"), "headers": headers});
        let call = step("call", "http.request", with);
        let tell = json!({"name": "told", "data": {"it": "${{ steps.call.output }}", "sum": "${{ steps.call.output.body.account + 1 }}"}});
        let tell = step("tell", "event.emit", tell).needs(&["call"]);
        let run = server.run(&acme, &manual([call, tell])).await;
        assert_ended(&run, "succeeded: call succeeded, tell succeeded");
        let seen = json!({"seen": MASK, MASK: [1_234_567, format!("no. {MASK}")], "account": 1_234_567});
        assert_eq!(step_of(&run, "call")["output"]["body"], seen);
        let told = &server.events_of(&acme, "custom.told").await[0]["data"];
        assert_eq!((&told["it"]["body"], &told["sum"]), (&seen, &json!(1_234_568)));
        let all = everything(&server, &acme, &run).await;
        assert!(!all.contains("ab/cd") && !all.contains("cd+ef"), "{all}");
    }

    async fn what_is_no_secret_stays_and_what_is_cut_off_in_one_goes(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let json_headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let body = json!({"token_type": "Bearer", "for": SECRET}).to_string().into_bytes();
        receiver.on("/a", [Behaviour::AnswerWith { status: 200, headers: json_headers, body }]);
        // 64 KiB are read, and half of the secret is among them.
        let mut cut = "x".repeat((64 << 10) - SECRET.len() / 2).into_bytes();
        cut.extend_from_slice(SECRET.as_bytes());
        receiver.on("/b", [Behaviour::AnswerWith { status: 200, headers: Vec::new(), body: cut }]);
        let call = |id: &str, path: &str| {
            let headers = json!({"Authorization": format!("Bearer {SECRET}"), "Accept": "application/json"});
            step(id, "http.request", json!({"method": "GET", "url": receiver.url(path), "headers": headers}))
        };
        let run = server.run(&acme, &manual([call("a", "/a"), call("b", "/b")])).await;
        assert_ended(&run, "succeeded: a succeeded, b succeeded");
        let output = &step_of(&run, "a")["output"];
        assert_eq!(output["body"], json!({"token_type": "Bearer", "for": MASK}));
        assert_eq!(output["headers"]["content-type"], "application/json");
        let cut = step_of(&run, "b")["output"]["body"].as_str().unwrap();
        assert!(cut.ends_with(&format!("x{MASK}")), "{}", &cut[cut.len() - 40..]);
    }

    async fn a_dry_run_shows_no_secret(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let workflow = server.workflow(&acme, &manual([call(&receiver.url("/a"))])).await;
        let answer = server.post_run(&acme, &workflow, &json!({"input": input(), "dry_run": true})).await;
        let run = server.read_run(&acme, &answer.ok(202)).await;
        assert_ended(&run, "succeeded: call succeeded");
        assert_eq!(step_of(&run, "call")["input"]["headers"], json!({"Authorization": MASK, "X-Built": MASK}));
        assert!(!everything(&server, &acme, &run).await.contains(SECRET));
    }

    async fn each_revision_sends_its_own_secrets(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let workflow = server
            .workflow(
                &acme,
                &on_event(&["ticket.created"], [wait("pause", 60), call(&receiver.url("/a")).needs(&["pause"])]),
            )
            .await;
        let old = server.start_run(&acme, &workflow, &input()).await;
        server.work().await;
        let mut steps = server.read_workflow(&acme, &workflow).await["steps"].clone();
        assert_eq!(steps[1]["with"]["headers"]["Authorization"], MASK);
        steps[1]["with"]["headers"]["Authorization"] = json!("Bearer another");
        server.change_workflow(&acme, &workflow, &json!({"steps": steps})).await;
        let new = server.start_run(&acme, &workflow, &input()).await;
        server.work_for(60_000).await;
        for run in [&old, &new] {
            assert_ended(&server.read_run(&acme, run).await, "succeeded: pause succeeded, call succeeded");
        }
        let mut sent: Vec<String> =
            receiver.received().iter().map(|request| request.headers["authorization"].clone()).collect();
        sent.sort();
        assert_eq!(sent, ["Bearer another".to_owned(), format!("Bearer {SECRET}")]);
        assert!(
            receiver.received().iter().all(|request| request.headers["x-built"] == "built-together"),
            "the mask kept it"
        );
    }
}
