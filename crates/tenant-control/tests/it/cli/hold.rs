//! `serve --hold-outgoing`: a restored copy that sends nothing, until it is started without it.

use std::time::Duration;

use super::*;
use crate::support::process::until;
use crate::support::receiver::Receiver;

const FLAGS: [&str; 6] =
    ["--webhook-allow-cidr", "127.0.0.0/8", "--metrics-listen", "127.0.0.1:0", "--log-format", "json"];

async fn post(process: &Process, path: &str, cookie: &str, body: &Value) -> Value {
    let answer = client().post(process.url(path)).header("cookie", cookie).json(body).send().await.expect("an answer");
    assert!(answer.status().is_success(), "{}", answer.status());
    answer.json().await.unwrap()
}

/// The value of a series.
async fn series(process: &Process, name: &str) -> String {
    let line: Value = serde_json::from_str(&process.logs(&["metrics are served"])).unwrap();
    let address = format!("http://{}/metrics", line["bound"].as_str().expect("its address"));
    let text = client().get(address).send().await.unwrap().text().await.unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
    found.unwrap_or_else(|| panic!("{name} is not in {text}"))
}

/// What `doctor` says of it.
fn diagnosis(desk: &Desk) -> String {
    let report = desk.json(&["doctor"]);
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "outgoing traffic");
    found.expect("a check")["detail"].as_str().unwrap().to_owned()
}

/// The queue as `/status/` shows it.
async fn queue(process: &Process) -> Value {
    let (_, status) = get(process, "/status/", ("accept", "application/json")).await;
    status["components"].as_array().unwrap().iter().find(|part| part["name"] == "queue").unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_sends_nothing_until_it_is_started_without_it() {
    let (desk, receiver) = (Desk::new(), Receiver::start().await);
    acme(&desk);
    let original = desk.serve(&FLAGS);
    let admin = cookie(&desk);
    let body = json!({"name": "Hook", "url": receiver.url("/hook"), "events": ["ticket.*"]});
    post(&original, "/api/admin/webhooks", &admin, &body).await;
    let call = json!({"action": "create", "name": "Call", "on": {"event": {"types": ["ticket.created"]}}, "steps": [
        {"id": "call", "uses": "http.request", "with": {"method": "POST", "url": receiver.url("/step")}},
    ]});
    post(&original, "/api/psa/workflows/trigger", &admin, &call).await;
    assert_eq!((diagnosis(&desk).as_str(), series(&original, "outgoing_held").await.as_str()), ("not held", "0"));
    desk.json(&["backup", "--to", "backup.db"]);
    assert_eq!(original.stop().code, 0);

    let copy = Desk::new();
    let restored = copy.run(&["restore", "--from", desk.path("backup.db").to_str().unwrap()]).stdout;
    assert!(restored.contains("`tenant-control serve --hold-outgoing` sends nothing."), "{restored}");
    std::fs::copy(desk.path("data/secrets.json"), copy.path("data/secrets.json")).unwrap();
    let held = copy.serve(&[&FLAGS[..], &["--hold-outgoing"]].concat());
    held.logs(&["WARN", "outgoing traffic is held (--hold-outgoing)"]);
    let admin = cookie(&copy);
    post(&held, "/api/psa/tickets", &admin, &json!({"subject": "On the copy"})).await;
    // The run has come as far as it can: its request waits.
    let held_run = async || {
        let (_, runs) = get(&held, "/api/psa/workflows/trigger?view=runs", ("cookie", &admin)).await;
        let id = runs["data"][0]["id"].as_str()?.to_owned();
        let (_, run) = get(&held, &format!("/api/psa/workflows/trigger?run_id={id}"), ("cookie", &admin)).await;
        (run["steps"][0]["status"] == "running").then_some(())
    };
    until("the run waits", Duration::from_mins(1), held_run).await;
    assert_eq!(receiver.count(), 0);
    let (_, log) = get(&held, "/api/admin/webhooks/deliveries", ("cookie", &admin)).await;
    assert_eq!((log["data"].as_array().unwrap().len(), &log["data"][0]["status"]), (1, &json!("pending")), "{log}");
    let queue_now = queue(&held).await;
    assert_eq!(queue_now["status"], "degraded", "{queue_now}");
    assert!(queue_now["detail"].as_str().unwrap().contains("The operator holds webhooks"), "{queue_now}");
    assert_eq!(series(&held, "outgoing_held").await, "1");
    let said = diagnosis(&copy);
    assert!(said.starts_with("held since 20") && said.contains("`tenant-control serve` sends them"), "{said}");
    assert_eq!(held.stop().code, 0);
    assert_eq!(receiver.count(), 0);

    let sending = copy.serve(&FLAGS);
    receiver.wait_for(2).await;
    assert!(!sending.log_text().contains("outgoing traffic is held"));
    assert_eq!((diagnosis(&copy).as_str(), series(&sending, "outgoing_held").await.as_str()), ("not held", "0"));
    assert_eq!((receiver.count_on("/hook"), receiver.count_on("/step")), (1, 1));
}
