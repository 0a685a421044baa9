//! What a running server writes down, and what it never does.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::command::{Desk, Process};
use crate::support::people::{KEYS, SESSION};
use crate::support::postgres::{connect, fresh_database};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn client() -> reqwest::Client {
    let patience = Duration::from_secs(30);
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().timeout(patience).build().unwrap()
}

/// The fields of a JSON log line about a request.
fn entry(process: &Process, request_id: &str) -> Value {
    let line = process.logs(&[&format!("\"{request_id}\"")]);
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_one_json_line_with_what_an_operator_asks_for() {
    let desk = Desk::new();
    let process = desk.serve(&["--log-format", "json"]);
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let call = client().get(process.url("/api/admin/api-keys?status=active&secret=hunter2"));
    call.header("x-request-id", "first-one").header("traceparent", traceparent).send().await.unwrap();
    let line = entry(&process, "first-one");
    for (field, value) in [
        ("level", json!("INFO")),
        ("target", json!("access")),
        ("method", json!("GET")),
        ("path", json!("/api/admin/api-keys")),
        ("status", json!(401)),
        ("request_id", json!("first-one")),
        ("address", json!("127.0.0.1")),
        ("trace_id", json!(TRACE)),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    assert!(line["ms"].is_number(), "{line}");
    let time = line["timestamp"].as_str().expect("a time");
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");

    let answer = client().get(process.url("/nowhere")).send().await.unwrap();
    let made = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
    let line = entry(&process, &made);
    assert_eq!((&line["status"], line.get("trace_id")), (&json!(404), None), "{line}");

    let ended = process.stop();
    for line in ended.stderr.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()), "{line}");
    }
    assert!(!ended.stderr.contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_lines_say_the_same_and_cannot_be_forged() {
    let desk = Desk::new();
    let process = desk.serve(&[]);
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let call = client().delete(process.url("/api/admin/audit%0a2026-01-01%20INFO%20forged%1b[31m"));
    call.header("x-request-id", "first-one").header("traceparent", traceparent).send().await.unwrap();
    let line = process.logs(&["first-one"]);
    for text in [
        "INFO",
        "method=\"DELETE\"",
        "status=404",
        "request_id=\"first-one\"",
        "address=127.0.0.1",
        &format!("trace_id=\"{TRACE}\""),
    ] {
        assert!(line.contains(text), "{text} in {line}");
    }
    assert!(line.contains("/api/admin/audit%0a"), "{line}");
    assert!(!process.log_text().contains('\u{1b}'), "no colours in a pipe, and none from a caller");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_called_is_named_by_id() {
    let desk = Desk::new();
    let process = desk.serve(&["--log-format", "json"]);
    let made = desk.json(&["admin", "session", "create", "--tenant", "default", "--email", "admin@localhost"]);
    let call = client().get(process.url(SESSION)).header("cookie", made["cookie"].as_str().unwrap());
    let session: Value = call.header("x-request-id", "mine").send().await.unwrap().json().await.unwrap();
    assert_eq!(entry(&process, "mine")["who"], session["actor"]["id"]);
}

/// Everything that a caller or an operator would be sorry to find in a log.
async fn drive(desk: &Desk, process: &Process) -> Vec<String> {
    let mut secrets = Vec::new();
    let link = process.says("/signin?token=").trim().to_owned();
    secrets.push(link.split_once("token=").unwrap().1.to_owned());
    client().get(&link).send().await.unwrap();
    let redeem = client().post(process.url("/signin/link")).header("content-type", "application/x-www-form-urlencoded");
    let redeem = redeem.body(format!("token={}", secrets[0]));
    let signed_in = redeem.send().await.unwrap();
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    secrets.push(cookie.split_once('=').unwrap().1.to_owned());
    client().get(&link).send().await.unwrap();
    client().get(process.url("/signin?token=wrong-token-hunter2")).send().await.unwrap();

    let post = |body: Value| {
        client()
            .post(process.url(KEYS))
            .header("cookie", &cookie)
            .header("idempotency-key", "idem-hunter2")
            .json(&body)
            .send()
    };
    let made: Value = post(json!({"name": "Key", "scopes": ["*"]})).await.unwrap().json().await.unwrap();
    post(json!({"name": "Key", "scopes": ["*"]})).await.unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let one = process.url(&format!("{KEYS}?id={}", made["id"].as_str().unwrap()));
    let rotated = client().put(&one).header("x-api-key", &key).json(&json!({"rotate": {}})).send().await.unwrap();
    let rotated = rotated.json::<Value>().await.unwrap()["key"].as_str().unwrap().to_owned();
    for key in [&key, &rotated] {
        client().get(process.url(SESSION)).bearer_auth(key).send().await.unwrap();
        client().get(process.url(&format!("{SESSION}?key={key}"))).bearer_auth(key).send().await.unwrap();
        secrets.push(key["tck_12345678_".len()..].to_owned());
    }
    for wrong in ["tck_wrongkey_hunter2", "Bearer hunter2", &format!("{key}x")] {
        client().get(process.url(SESSION)).header("x-api-key", wrong).send().await.unwrap();
        client().get(process.url(SESSION)).header("authorization", wrong).send().await.unwrap();
    }
    client().get(process.url(SESSION)).header("cookie", "session=hunter2").send().await.unwrap();
    for body in ["{\"name\": \"hunter2\"", "{\"name\": \"hunter2\", \"scopes\": [\"hunter2\"]}"] {
        let call =
            client().post(process.url(KEYS)).header("cookie", &cookie).header("content-type", "application/json");
        call.body(body).send().await.unwrap();
    }
    client().delete(&one).header("cookie", &cookie).send().await.unwrap();
    client().delete(process.url(SESSION)).header("cookie", &cookie).send().await.unwrap();
    let file: Value = serde_json::from_slice(&std::fs::read(desk.path("data/secrets.json")).unwrap()).unwrap();
    secrets
        .extend([&file["pepper"], &file["sealing_keys"][0]["key"]].map(|secret| secret.as_str().unwrap().to_owned()));
    secrets.push("hunter2".to_owned());
    secrets
}

fn assert_silent(stderr: &str, secrets: &[String]) {
    assert!(stderr.contains("/signin") && stderr.contains(KEYS), "the log tells of the requests: {stderr}");
    for secret in secrets {
        let line = stderr.lines().find(|line| line.contains(secret.as_str()));
        assert_eq!(line, None, "holds {secret}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_reaches_the_log_at_any_level() {
    for flags in [&["--log-format", "json"][..], &["--log-format", "text", "--log-level", "trace"]] {
        let desk = Desk::new();
        let process = desk.serve(flags);
        let secrets = drive(&desk, &process).await;
        let ended = process.stop();
        assert_silent(&ended.stderr, &secrets);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_does_the_database_password() {
    let database = fresh_database().await;
    // Roles belong to the whole server: this one is named after the database, which no other test has.
    let role = database.url.rsplit('/').next().and_then(|rest| rest.split('?').next()).expect("a name").to_owned();
    let client = connect(&database.url_as_superuser()).await;
    // The server trusts everybody: the password is in the URL alone, where a log would have it from.
    client.batch_execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'hunter2'")).await.unwrap();
    client.batch_execute(&format!("GRANT ALL ON SCHEMA public TO {role}")).await.unwrap();
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", database.url_as(&format!("{role}:hunter2")));
    let process = desk.serve(&["--log-level", "trace"]);
    let secrets = drive(&desk, &process).await;
    // Every connection is cut: what the server says about that must not tell how it connects. It may make no other one
    // before that, which would be there for the probe.
    client.batch_execute(&format!("ALTER ROLE {role} NOLOGIN")).await.unwrap();
    let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'");
    client.batch_execute(&cut).await.unwrap();
    let answer = reqwest::get(process.url("/readyz")).await.unwrap();
    assert_eq!(answer.status(), 503);
    client.batch_execute(&cut).await.unwrap();
    let ended = process.stop();
    assert!(ended.stderr.contains("not ready"), "{}", ended.stderr);
    assert_silent(&ended.stderr, &secrets);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_an_address_of_their_own() {
    let desk = Desk::new();
    let process = desk.serve(&["--metrics-listen", "127.0.0.1:0", "--log-format", "json"]);
    let line: Value = serde_json::from_str(&process.logs(&["metrics are served"])).unwrap();
    let metrics = format!("http://{}", line["bound"].as_str().expect("its address"));
    assert_eq!(client().get(process.url("/metrics")).send().await.unwrap().status(), 404, "not on the public one");
    let hidden = ["token=hunter2", "hunter2"];
    client().get(process.url("/signin?token=hunter2")).send().await.unwrap();
    client().get(process.url("/api/hunter2/unknown")).send().await.unwrap();
    client().get(process.url(SESSION)).send().await.unwrap();
    let answer = client().get(format!("{metrics}/metrics")).send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap()),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    let text = answer.text().await.unwrap();
    assert!(
        text.contains("tc_http_requests_total{method=\"GET\",route=\"/api/auth/session\",status=\"401\"} 1"),
        "{text}"
    );
    assert!(text.contains("tc_http_request_seconds_bucket"), "{text}");
    assert!(hidden.iter().all(|hidden| !text.contains(hidden)), "a route, never what was asked for: {text}");
    for path in ["/", "/api/openapi.json", "/metrics/"] {
        assert_eq!(client().get(format!("{metrics}{path}")).send().await.unwrap().status(), 404, "{path}");
    }
    let ended = Desk::new().serve(&[]).stop();
    assert!(!ended.stderr.contains("metrics"), "off unless asked for");
}
