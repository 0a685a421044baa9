//! Environment variables, command lines and accounts of a machine: agents send them, and they are nowhere afterwards.

use std::path::Path;

use crate::support::command::{Desk, Process};
use crate::support::devices::{Agent, Body, Codec, INGEST, IngestKey, element};
use crate::support::postgres::{connect, fresh_database};

/// What must not be found, each part in another section.
const MARK: &str = "hunter2";
/// What must, so that a search that finds nothing means something.
const KEPT: &str = "kept-package";

fn mark(what: &str) -> String {
    format!("{MARK}-{what}")
}

/// All of it in each language, and with an end that is missing as well.
fn bodies() -> Vec<Body> {
    let mut agent = Agent::named("web01").software(&[(KEPT, "1.0")]);
    agent.more_xml = [
        element("ENVS", &[("KEY", "DATABASE_PASSWORD"), ("VAL", &mark("env"))]),
        element("PROCESSES", &[("CMD", &mark("process")), ("PID", "4711"), ("USER", &mark("process-user"))]),
        element("LOCAL_USERS", &[("LOGIN", &mark("user")), ("HOME", &mark("home"))]),
        element("LOCAL_GROUPS", &[("NAME", &mark("group")), ("MEMBER", &mark("member"))]),
        element("USERS", &[("LOGIN", &mark("signed-in"))]),
        element("REPOSITORY", &[("BASEURL", &format!("https://user:{}@apt.test", mark("repository")))]),
        element("LICENSEINFOS", &[("KEY", &mark("license"))]),
    ]
    .concat();
    let mut report = agent.json();
    report["content"]["envs"] = serde_json::json!([{"key": "DATABASE_PASSWORD", "val": mark("env")}]);
    report["content"]["processes"] = serde_json::json!([{"cmd": mark("process"), "pid": 4711}]);
    report["content"]["local_users"] = serde_json::json!([{"login": mark("user"), "home": mark("home")}]);
    report["content"]["users"] = serde_json::json!([{"login": mark("signed-in")}]);
    report["content"]["licenseinfos"] = serde_json::json!([{"key": mark("license")}]);
    let glpi = Body::new("GLPI-Agent_v1.12-dev", report.to_string());
    let mut cut = agent.fusion();
    cut.plain.truncate(cut.plain.len() - 20);
    let mut cut_json = glpi.clone();
    cut_json.plain.truncate(cut_json.plain.len() - 2);
    let mut odd = agent.fusion();
    let text = String::from_utf8(odd.plain).unwrap();
    odd.plain = text.replace("<QUERY>INVENTORY</QUERY>", "<QUERY>WAKEONLAN</QUERY>").into_bytes();
    let mut all = vec![cut, cut_json, odd, agent.fusion(), agent.ocs(), glpi];
    all.extend(Codec::ALL.map(|codec| agent.fusion().packed(codec)));
    all
}

async fn drive(desk: &Desk, process: &Process) -> Vec<u16> {
    // The first tenant is made after the server has told its address.
    process.says("/signin?token=");
    let made = desk.json(&["admin", "ingest-key", "create", "--tenant", "default"]);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let key = IngestKey { id: text("id"), secret: text("secret") };
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut statuses = Vec::new();
    for body in bodies() {
        let call = client.post(process.url(INGEST)).header("authorization", key.basic());
        let call = call.header("user-agent", body.user_agent).header("content-type", body.media_type());
        statuses.push(call.body(body.codec.pack(&body.plain)).send().await.unwrap().status().as_u16());
    }
    statuses
}

/// As it is, and as it is shown where bytes are not text.
fn holds(bytes: &[u8], word: &str) -> bool {
    let hexadecimal = word.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let has = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    has(word.as_bytes()) || has(hexadecimal.as_bytes())
}

fn files(folder: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(folder).expect("the data directory").flatten();
    entries.flat_map(|entry| std::fs::read(entry.path()).unwrap_or_default()).collect()
}

const STATUSES: [u16; 9] = [400, 400, 400, 200, 200, 200, 200, 200, 200];

#[tokio::test(flavor = "multi_thread")]
async fn what_a_machine_keeps_secret_is_neither_stored_nor_logged() {
    let desk = Desk::new();
    let process = desk.serve(&["--log-format", "json", "--log-level", "trace"]);
    assert_eq!(drive(&desk, &process).await, STATUSES);
    let running = files(&desk.path("data"));
    let ended = process.stop();
    for bytes in [running, files(&desk.path("data"))] {
        assert!(holds(&bytes, KEPT), "the report was stored");
        assert!(!holds(&bytes, MARK), "in the files of the embedded store");
    }
    assert!(ended.stderr.contains(INGEST), "the log tells of the requests");
    let line = ended.stderr.lines().find(|line| line.contains(MARK));
    assert_eq!(line, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_is_it_in_any_table() {
    let database = fresh_database().await;
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", &database.url);
    let process = desk.serve(&[]);
    assert_eq!(drive(&desk, &process).await, STATUSES);
    let client = connect(&database.url_as_superuser()).await;
    let tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'";
    let mut found = Vec::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let table: String = table.get(0);
        let rows = client.query(&format!("SELECT t::text FROM \"{table}\" t"), &[]).await.unwrap();
        let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert!(!holds(rows.concat().as_bytes(), MARK), "in {table}");
        if holds(rows.concat().as_bytes(), KEPT) {
            found.push(table);
        }
    }
    assert!(found.contains(&"device_parts".to_owned()), "{found:?}");
    process.stop();
}
