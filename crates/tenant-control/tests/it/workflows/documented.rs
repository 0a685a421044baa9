//! docs/workflows.md is true: what it shows is accepted as it stands, runs, and does what it says; and it names all there is.

use expressions::FUNCTIONS;
use kernel::base::{DAY_MS, MINUTE_MS, Timestamp};
use serde_json::{Value, json};
use tenant_control::features;

use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{WORKFLOWS, assert_ended, id_of, open, step_of};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets;

const PAGE: &str = include_str!("../../../../../docs/workflows.md");
const OPERATING: &str = include_str!("../../../../../docs/operating.md");

const ESCALATE: &str = "Escalate critical tickets";
const APPROVE: &str = "Cancel a ticket";
const NIGHTLY: &str = "Nightly check of the shop";
const CHAT: &str = "Ask in the chat";

/// What is between fences of a kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let start = format!("```{kind}\n");
    PAGE.split(start.as_str()).skip(1).map(|rest| rest.split("\n```").next().expect("a block")).collect()
}

/// The definitions on the page, each with its name.
fn definitions() -> Vec<(String, &'static str)> {
    let named = blocks("json").into_iter().map(|text| {
        let body: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (body, text)
    });
    let defined = named.filter(|(body, _)| body.get("steps").is_some());
    defined.map(|(body, text)| (body["name"].as_str().expect("a name").to_owned(), text)).collect()
}

/// A definition of the page as a workflow. Where it asks `host`, this machine is asked.
async fn create(server: &Server, tenancy: &Tenancy, name: &str, here: Option<(&str, &Receiver)>) -> Value {
    let (_, text) = definitions().into_iter().find(|(known, _)| known == name).expect("it is on the page");
    let text = match here {
        Some((host, receiver)) => {
            assert!(text.contains(host), "{name} does not ask {host}");
            text.replace(host, &receiver.url(""))
        }
        None => text.to_owned(),
    };
    post(server, tenancy, text).await.ok(201)
}

async fn post(server: &Server, tenancy: &Tenancy, text: String) -> crate::support::Answer {
    server.post(WORKFLOWS).cookie(&tenancy.admin).header("content-type", "application/json").body(text).await
}

/// The only run of a workflow, with its steps.
async fn only_run(server: &Server, tenancy: &Tenancy, workflow: &Value) -> Value {
    let runs = server.runs_of(tenancy, workflow).await;
    assert_eq!(runs.len(), 1, "{runs:#?}");
    server.read_run(tenancy, &runs[0]).await
}

#[test]
fn every_definition_is_run_below() {
    let names: Vec<String> = definitions().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [ESCALATE, APPROVE, NIGHTLY, CHAT]);
}

#[test]
fn every_action_function_and_setting_is_named() {
    for action in &features::install().actions {
        assert!(PAGE.contains(&format!("| `{}` |", action.name)), "{}", action.name);
    }
    for function in FUNCTIONS {
        assert!(PAGE.contains(&format!("`{}`", function.name)), "{}", function.name);
    }
    for setting in ["runs-in-flight", "runs-queued", "run-days", "history-days"] {
        assert!(OPERATING.contains(&format!("--workflow-{setting}")), "{setting}");
    }
}

over_http! {
    async fn the_first_one_takes_two_calls(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let first = blocks("console")[0];
        let said: Vec<&str> = first.split("-d '").skip(1).map(|rest| rest.split('\'').next().expect("a body")).collect();
        let [create, run] = said.as_slice() else { panic!("not two calls: {said:?}") };
        let workflow = post(&server, &acme, (*create).to_owned()).await.ok(201);
        let run = post(&server, &acme, run.replace("wf_01m7…", id_of(&workflow))).await.ok(202);
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, "succeeded: report succeeded");
        let made = &tickets::list(&server, &acme, "").await[0];
        assert_eq!((&made["subject"], &made["priority"]), (&json!("db-1 is down"), &json!("high")));
    }

    async fn a_critical_ticket_is_escalated(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = create(&server, &acme, ESCALATE, None).await;
        tickets::make(&server, &acme, &json!({"priority": "low"})).await;
        let ticket = tickets::make(&server, &acme, &json!({"subject": "Fire", "tags": ["hall"]})).await;
        server.work().await;
        assert!(server.runs_of(&acme, &workflow).await.is_empty(), "neither is critical");
        tickets::changed(&server, &acme, &ticket, &json!({"priority": "critical"})).await;
        server.work().await;
        let now = tickets::read(&server, &acme, &ticket).await;
        assert_eq!((&now["team"], &now["tags"]), (&json!("On call"), &json!(["hall", "escalated"])));
        server.work_for(20 * MINUTE_MS).await;
        let run = only_run(&server, &acme, &workflow).await;
        let ended = "succeeded: hand_over succeeded, pause succeeded, note succeeded, alarm succeeded";
        assert_ended(&run, ended);
        let told = server.events_of(&acme, "custom.").await;
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0]["type"], &told[0]["data"]),
            (&json!("custom.ticket.unattended"), &json!({"number": ticket["number"], "subject": "Fire"}))
        );

        let answered = tickets::make(&server, &acme, &json!({"priority": "critical"})).await;
        server.work().await;
        tickets::changed(&server, &acme, &answered, &json!({"comment": {"body": "On my way.", "public": true}})).await;
        server.work_for(20 * MINUTE_MS).await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!(runs.len(), 2);
        assert_eq!(step_of(&server.read_run(&acme, &runs[1]).await, "alarm")["status"], "skipped");
        assert_eq!(server.events_of(&acme, "custom.").await.len(), 1, "somebody had answered");
    }

    async fn what_is_approved_is_done(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = create(&server, &acme, APPROVE, None).await;
        let ticket = tickets::make(&server, &acme, &json!({})).await;
        let refused = server.post_run(&acme, &workflow, &json!({"input": {"ticket_id": ticket["id"]}})).await;
        refused.problem("invalid_fields");
        let input = json!({"ticket_id": ticket["id"], "reason": "a double"});
        let run = server.start_run(&acme, &workflow, &input).await;
        server.work().await;
        assert_eq!(server.read_run(&acme, &run).await["status"], "waiting");
        assert_eq!(tickets::read(&server, &acme, &ticket).await["status"], "new", "not touched before");
        server.tell_run(&acme, &run, "approve").await.ok(200);
        server.work().await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: ask succeeded, cancel succeeded, note succeeded");
        let now = tickets::read(&server, &acme, &ticket).await;
        assert_eq!(now["status"], "cancelled");
        let by = step_of(&run, "ask")["output"]["by"]["name"].as_str().expect("who").to_owned();
        assert_eq!(now["comments"][0]["body"], format!("Cancelled with the word of {by}: a double"));
    }

    async fn a_nightly_check_reports_what_is_not_well(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/health", [Behaviour::Answer(200), Behaviour::Answer(503)]);
        // The clocks of Berlin change in the second of these nights, from winter to summer.
        server.advance_to(Timestamp::parse("2027-03-26T12:00:00Z").expect("a time"));
        let workflow = create(&server, &acme, NIGHTLY, Some(("https://shop.example.com", &receiver))).await;
        assert_eq!(workflow["next_run_at"], "2027-03-27T01:30:00.000Z");
        server.work_for(DAY_MS).await;
        let well = only_run(&server, &acme, &workflow).await;
        assert_ended(&well, "succeeded: check succeeded, report skipped");
        assert!(tickets::list(&server, &acme, "").await.is_empty());
        server.work_for(DAY_MS).await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!((runs.len(), &runs[1]["trigger"]["scheduled_for"]), (2, &json!("2027-03-28T01:00:00.000Z")));
        assert_ended(&server.read_run(&acme, &runs[1]).await, "succeeded: check failed, report succeeded");
        assert_eq!(receiver.count_on("/health"), 1 + 3, "three times in a row");
        let made = &tickets::list(&server, &acme, "").await[0];
        assert_eq!(
            (&made["subject"], &made["description"]),
            (
                &json!("The shop is not well"),
                &json!("The check at 2027-03-28T01:00:00.000Z came out as failed.")
            )
        );
    }

    async fn a_chat_is_told_with_a_token_that_nobody_sees(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let workflow = create(&server, &acme, CHAT, Some(("https://chat.example.com", &receiver))).await;
        let asking = create(&server, &acme, APPROVE, None).await;
        let input = json!({"ticket_id": "tkt_1", "reason": "a double"});
        let asked = server.start_run(&acme, &asking, &input).await;
        server.work().await;
        let run = only_run(&server, &acme, &workflow).await;
        assert_ended(&run, "succeeded: say succeeded");
        let sent = receiver.received_on("/api/messages").remove(0);
        let text = "Cancel a ticket asks: Cancel tkt_1? a double";
        assert_eq!(sent.json(), json!({"channel": "approvals", "text": text, "run": asked["id"]}));
        assert_eq!(sent.headers["authorization"], "Bearer your-token");
        assert_eq!(sent.headers["idempotency-key"], format!("{}.say", id_of(&run)).as_str());
        for shown in [&workflow, &run, &server.read_workflow(&acme, &workflow).await] {
            assert!(!shown.to_string().contains("your-token"), "{shown:#}");
        }
        assert_eq!(workflow["steps"][0]["with"]["headers"]["Authorization"], "********");
    }
}
