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
