//! What `/metrics` counts of workflows.

use std::time::Duration;

use serde_json::{Value, json};

use super::{WORKFLOWS, id_of, manual};
use crate::support::command::{Desk, Process};
use crate::support::process::until;
use crate::support::receiver::Receiver;

const WAIT_MAX: Duration = Duration::from_mins(1);

/// The service as its admin asks it.
struct Admin<'a> {
    process: &'a Process,
    cookie: String,
    client: reqwest::Client,
}

impl Admin<'_> {
    async fn ask(&self, call: reqwest::RequestBuilder) -> Value {
        let answer = call.header("cookie", &self.cookie).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.json().await.expect("JSON")
    }

    /// A run of a workflow with these steps.
    async fn run(&self, steps: Value) -> Value {
        let post = |body: &Value| self.client.post(self.process.url(WORKFLOWS)).json(body);
        let workflow = self.ask(post(&manual(steps))).await;
        self.ask(post(&json!({"workflow_id": workflow["id"]}))).await
    }

    async fn tell(&self, run: &Value, action: &str) {
        let one = self.process.url(&format!("{WORKFLOWS}?run_id={}", id_of(run)));
        let call = self.client.patch(one).json(&json!({"action": action}));
        self.ask(call.header("idempotency-key", action)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_and_runs_are_counted_by_what_became_of_them() {
    let (desk, receiver) = (Desk::new(), Receiver::start().await);
    let flags = ["--metrics-listen", "127.0.0.1:0", "--log-format", "json", "--webhook-allow-cidr", "127.0.0.0/8"];
    let process = desk.serve(&flags);
    let line: Value = serde_json::from_str(&process.logs(&["metrics are served"])).unwrap();
    let metrics = format!("http://{}/metrics", line["bound"].as_str().expect("its address"));
    let shown = async |line: &str| {
        let what = format!("{line} is shown");
        until(&what, WAIT_MAX, async || {
            let text = reqwest::get(&metrics).await.ok()?.text().await.ok()?;
            text.lines().any(|shown| shown == line).then_some(())
        })
        .await;
    };
    let session = desk.json(&["admin", "session", "create", "--tenant", "default", "--email", "admin@localhost"]);
    let cookie = session["cookie"].as_str().expect("a cookie").to_owned();
    let admin = Admin { process: &process, cookie, client: reqwest::Client::new() };

    let call = json!({"method": "GET", "url": receiver.url("/")});
    let steps = json!([
        {"id": "make", "uses": "ticket.create", "with": {"subject": "A"}},
        {"id": "call", "uses": "http.request", "with": call},
        {"id": "never", "uses": "wait", "with": {"seconds": 1}, "if": "1 > 2"},
    ]);
    admin.run(steps).await;
    shown("workflow_steps_total{action=\"ticket.create\",outcome=\"succeeded\"} 1").await;
    shown("workflow_steps_total{action=\"http.request\",outcome=\"succeeded\"} 1").await;
    shown("workflow_steps_total{action=\"wait\",outcome=\"skipped\"} 1").await;
    shown("workflow_runs_total{status=\"succeeded\"} 1").await;

    let nobody = "${{ 'tkt_01jd8z6v2mfkpb7h3q9xw5t4ra' }}";
    let steps = json!([
        {"id": "say", "uses": "ticket.comment", "with": {"ticket_id": nobody, "body": "Hello."}, "retry": {"max": 1, "backoff_seconds": 3600}},
        {"id": "ask", "uses": "approval", "with": {"message": "May it?"}},
    ]);
    let run = admin.run(steps).await;
    shown("workflow_steps_total{action=\"ticket.comment\",outcome=\"retried\"} 1").await;
    let one = process.url(&format!("{WORKFLOWS}?run_id={}", id_of(&run)));
    until("it asks", WAIT_MAX, async || {
        let run = admin.ask(admin.client.get(&one)).await;
        (run["steps"][1]["status"] == "waiting").then_some(())
    })
    .await;
    // A request that is sent again does nothing again.
    for _ in 0..2 {
        admin.tell(&run, "reject").await;
    }
    admin.tell(&run, "cancel").await;
    shown("workflow_steps_total{action=\"approval\",outcome=\"failed\"} 1").await;
    shown("workflow_runs_total{status=\"cancelled\"} 1").await;
}
