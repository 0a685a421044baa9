//! `admin keyring`: a sealing key is replaced beside running servers, and an operator is told what would be lost.

mod parallel;
mod reported;

use std::path::PathBuf;
use std::time::Duration;

use kernel::base::{KeyringChange, RandomSource, Secrets};

use super::*;
use crate::support::command::{chmod, mode};
use crate::support::postgres::fresh_database;
use crate::support::process::until;
use crate::webhooks::WEBHOOKS;

/// Servers read a changed file within two seconds; a machine that runs other tests beside them may need many.
const PATIENCE: Duration = Duration::from_secs(40);

const LOCAL: [&str; 2] = ["--webhook-allow-cidr", "127.0.0.0/8"];

fn keyring<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["admin", "keyring"], words].concat()
}

fn status(desk: &Desk) -> Value {
    desk.json(&keyring(&["status"]))
}

fn secrets_path(desk: &Desk) -> PathBuf {
    desk.path("data/secrets.json")
}

fn secrets_text(desk: &Desk) -> String {
    std::fs::read_to_string(secrets_path(desk)).unwrap()
}

/// The ids of the keys in the file, and the primary.
fn keys(desk: &Desk) -> (Vec<u32>, u32) {
    let keyring = Secrets::parse(&secrets_text(desk)).unwrap().keyring();
    (keyring.key_ids(), keyring.primary_id())
}

/// The keys of the file as they must be shown nowhere.
fn key_texts(desk: &Desk) -> Vec<String> {
    let file: Value = serde_json::from_str(&secrets_text(desk)).unwrap();
    let keys = file["sealing_keys"].as_array().unwrap();
    keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect()
}

/// Two nodes on one database, each with a folder and a copy of the secrets file.
fn two_nodes(database_url: &str) -> [Desk; 2] {
    let mut desks = [Desk::new(), Desk::new()];
    for desk in &mut desks {
        desk.set("TENANT_CONTROL_DATABASE_URL", database_url);
    }
    acme(&desks[0]);
    desks[0].serve(&[]).stop();
    copy_secrets(&desks);
    desks
}

/// What an operator does after a change on the first node.
fn copy_secrets([from, to]: &[Desk; 2]) {
    std::fs::create_dir_all(to.path("data")).unwrap();
    std::fs::copy(secrets_path(from), secrets_path(to)).unwrap();
}

async fn create_hook(process: &Process, cookie: &str) -> Value {
    let body = json!({"name": "Hook", "url": "http://127.0.0.1:9/in", "events": ["ticket.*"], "headers": {"X-A": "b"}});
    let answer = client().post(process.url(WEBHOOKS)).header("cookie", cookie).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    answer.json().await.unwrap()
}

/// Whether a server can open the headers of an endpoint, which it must to compare them.
async fn opens_headers(process: &Process, cookie: &str, hook: &Value) -> bool {
    let mut body = json!({"headers": {"X-A": "********"}});
    for field in ["name", "url", "events", "enabled"] {
        body[field] = hook[field].clone();
    }
    let one = process.url(&format!("{WEBHOOKS}?id={}", hook["id"].as_str().unwrap()));
    let answer = client().put(one).header("cookie", cookie).json(&body).send().await.unwrap();
    answer.status() == 200
}

/// Waits until this many servers have a key.
async fn until_known(desk: &Desk, id: u32, servers: usize) {
    until("the servers have the key", PATIENCE, async || {
        let status = status(desk);
        let has = |node: &&Value| node["key_ids"].as_array().unwrap().contains(&json!(id));
        (status["nodes"].as_array().unwrap().iter().filter(has).count() == servers).then_some(())
    })
    .await;
}

/// Waits until everything is sealed with the primary key, by all servers.
async fn until_rewrapped(desk: &Desk, servers: usize) {
    until("everything is rewrapped", PATIENCE, async || {
        let status = status(desk);
        let nodes = status["nodes"].as_array().unwrap();
        let seals = nodes.iter().filter(|node| node["primary_id"] == status["primary_id"]).count();
        (seals == servers && status["left_to_rewrap"] == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_replaced_while_the_server_runs() {
    let desk = Desk::new();
    acme(&desk);
    let process = desk.serve(&LOCAL);
    let cookie = cookie(&desk);
    let hook = create_hook(&process, &cookie).await;
    let mut shown = vec![desk.run(&keyring(&["status"]))];
    assert!(shown[0].stdout.starts_with("key 1  primary  webhook_secrets 1, webhooks 1\n"), "{}", shown[0].stdout);
    assert_eq!(desk.json(&keyring(&["add"])), json!({"id": 2, "primary_id": 1}));
    assert_eq!((keys(&desk), mode(&secrets_path(&desk))), ((vec![1, 2], 1), 0o600));
    until_known(&desk, 2, 1).await;
    assert_eq!(desk.json(&keyring(&["rotate"])), json!({"primary_id": 2, "previous_id": 1}));
    assert_eq!((keys(&desk), mode(&secrets_path(&desk))), ((vec![1, 2], 2), 0o600));
    until_rewrapped(&desk, 1).await;
    assert!(opens_headers(&process, &cookie, &hook).await);
    create_hook(&process, &cookie).await;
    let used = json!({"webhook_secrets": 2, "webhooks": 2});
    assert_eq!(
        status(&desk)["keys"][1],
        json!({"id": 2, "is_primary": true, "in_secrets": true, "is_retired": false, "values": used})
    );
    assert_eq!(status(&desk)["keys"][0]["values"], json!({}));
    let texts = key_texts(&desk);
    shown.push(process.stop());
    assert_eq!(status(&desk)["nodes"], json!([]), "a server that stops is forgotten");

    shown.push(desk.run(&keyring(&["remove", "--id", "1"])));
    assert_eq!((shown[2].code, keys(&desk)), (0, (vec![2], 2)), "{}", shown[2].stderr);
    let process = desk.serve(&LOCAL);
    assert!(opens_headers(&process, &cookie, &hook).await, "with the new key alone");
    shown.push(desk.run(&["doctor"]));
    assert!(shown[3].stdout.contains("ok    sealing keys: everything is sealed with key 2\n"), "{}", shown[3].stdout);
    shown.push(desk.run(&keyring(&["add"])));
    assert!(shown[4].stdout.starts_with("Key 3 was added to "), "{}: no id is used twice", shown[4].stdout);
    shown.push(process.stop());
    for text in texts.iter().chain(&key_texts(&desk)) {
        let tells = shown.iter().find(|ended| ended.stdout.contains(text) || ended.stderr.contains(text));
        assert!(tells.is_none(), "a key is shown: {tells:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_used_stays_and_one_that_is_lost_is_reported() {
    let desk = Desk::new();
    acme(&desk);
    let process = desk.serve(&LOCAL);
    create_hook(&process, &cookie(&desk)).await;
    process.stop();
    desk.json(&keyring(&["add"]));
    desk.json(&keyring(&["rotate"]));
    let refused = desk.run(&keyring(&["remove", "--id", "1"]));
    assert_eq!((refused.code, keys(&desk)), (1, (vec![1, 2], 2)));
    let reason = "values are still sealed with key 1 (webhook_secrets 1, webhooks 1), and would be lost";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    let told = "ok    sealing keys: 2 of 2 values are left to rewrap, by a server; none is running\n";
    assert!(desk.run(&["doctor"]).stdout.contains(told));

    let whole = secrets_text(&desk);
    let without = Secrets::change_text(&whole, KeyringChange::RemoveKey(1), &RandomSource::System).unwrap();
    std::fs::write(secrets_path(&desk), without).unwrap();
    let missing = "sealing key 1 is not in the secrets of this node, and values are sealed with it (webhook_secrets 1, webhooks 1)";
    let refused = desk.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(refused.code == 1 && refused.stderr.contains(&format!("error: {missing}")), "{refused:?}");
    let doctor = desk.run(&["doctor"]);
    assert!(doctor.code == 1 && doctor.stdout.contains(&format!("FAIL  secrets: {missing}")), "{}", doctor.stdout);
    let shown = desk.run(&keyring(&["status"]));
    assert!(shown.code == 0 && shown.stdout.starts_with("key 1  MISSING in the secrets file  "), "{}", shown.stdout);
    assert_eq!(desk.run(&keyring(&["remove", "--id", "1"])).code, 1, "it is still used");
    std::fs::write(secrets_path(&desk), whole).unwrap();
    let process = desk.serve(&LOCAL);
    until_rewrapped(&desk, 1).await;
    process.logs(&["sealed values rewrapped"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_new_key_keeps_it_from_sealing() {
    let database = fresh_database().await;
    let desks = two_nodes(&database.url);
    let [a, b] = &desks;
    let [first, second] = [a.serve(&LOCAL), b.serve(&LOCAL)];
    let cookie = cookie(a);
    let hook = create_hook(&first, &cookie).await;
    a.json(&keyring(&["add"]));
    let refused = a.run(&keyring(&["rotate"]));
    assert_eq!((refused.code, keys(a)), (1, (vec![1, 2], 1)));
    assert!(refused.stderr.contains("these servers do not have key 2 yet"), "{}", refused.stderr);
    assert!(refused.stderr.contains(&second.address.to_string()), "{}", refused.stderr);
    assert!(!refused.stderr.contains(&first.address.to_string()), "{}", refused.stderr);
    copy_secrets(&desks);
    second.logs(&["sealing keys read from the secrets file"]);
    until_known(a, 2, 2).await;
    a.json(&keyring(&["rotate"]));
    copy_secrets(&desks);
    until_rewrapped(a, 2).await;
    for process in [&first, &second] {
        assert!(opens_headers(process, &cookie, &hook).await);
    }
    // A copy that breaks off changes nothing.
    std::fs::write(secrets_path(b), &secrets_text(a)[..50]).unwrap();
    second.logs(&["the secrets file was changed and is not used"]);
    assert!(opens_headers(&second, &cookie, &hook).await);
}

#[test]
fn a_draft_that_a_killed_command_has_left_is_replaced() {
    let desk = Desk::new();
    desk.serve(&[]).stop();
    let draft = desk.path("data/secrets.change.draft");
    std::fs::write(&draft, "half of a").unwrap();
    chmod(&draft, 0o644);
    assert_eq!(keys(&desk), (vec![1], 1), "the file itself is whole");
    desk.json(&keyring(&["add"]));
    assert_eq!((keys(&desk), mode(&secrets_path(&desk)), draft.exists()), ((vec![1, 2], 1), 0o600, false));
    // A link stays a link.
    std::fs::rename(secrets_path(&desk), desk.path("real.json")).unwrap();
    std::os::unix::fs::symlink(desk.path("real.json"), secrets_path(&desk)).unwrap();
    desk.json(&keyring(&["rotate", "--to", "2"]));
    assert!(secrets_path(&desk).is_symlink() && keys(&desk) == (vec![1, 2], 2));
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    let desk = Desk::with_store();
    let refused = |words: &[&str], wanted: &str| {
        let ended = desk.run(&keyring(words));
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{words:?}");
        assert!(ended.stderr.starts_with(&format!("error: {wanted}")), "{words:?}: {}", ended.stderr);
    };
    refused(&["status"], "./data/secrets.json is not there; `serve` makes it at the first start");
    desk.serve(&[]).stop();
    let before = secrets_text(&desk);
    refused(&["rotate"], "key 1 is the primary already; `tenant-control admin keyring add` makes a new one");
    refused(&["rotate", "--to", "9"], "there is no key 9; `tenant-control admin keyring status` shows them");
    refused(&["remove", "--id", "9"], "there is no key 9; `tenant-control admin keyring status` shows them");
    refused(
        &["remove", "--id", "1"],
        "key 1 is the primary: values are sealed with it; make another one primary first",
    );
    for words in [&["remove"][..], &["remove", "--id", "one"], &["rotate", "2"], &["turn"]] {
        let ended = desk.run(&keyring(words));
        assert!(ended.code == 2 && ended.stderr.starts_with("error: "), "{words:?}: {ended:?}");
    }
    assert_eq!(secrets_text(&desk), before);
}

#[test]
fn secrets_in_the_environment_are_changed_by_hand() {
    let mut desk = Desk::new();
    desk.serve(&[]).stop();
    let text = secrets_text(&desk);
    std::fs::remove_file(secrets_path(&desk)).unwrap();
    let change = |text: &str, change| Secrets::change_text(text, change, &RandomSource::System).unwrap();
    let refused = |desk: &Desk, words: &[&str], wanted: &[&str]| {
        let ended = desk.run(&keyring(words));
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{words:?}");
        let start = "error: the secrets are given in TENANT_CONTROL_SECRETS, which no command can change: ";
        assert!(ended.stderr.starts_with(start), "{}", ended.stderr);
        assert!(wanted.iter().all(|part| ended.stderr.contains(part)), "{}", ended.stderr);
    };
    desk.set("TENANT_CONTROL_SECRETS", &text);
    refused(&desk, &["add"], &["\"id\": 2", "openssl rand -base64 32", "\"primary\": 1"]);
    let added = change(&text, KeyringChange::AddKey(2));
    desk.set("TENANT_CONTROL_SECRETS", &added);
    refused(&desk, &["rotate"], &["\"primary\": 2"]);
    let rotated = change(&added, KeyringChange::SetPrimary(2));
    desk.set("TENANT_CONTROL_SECRETS", &rotated);
    refused(&desk, &["remove", "--id", "1"], &["take it out of \"sealing_keys\""]);
    desk.set("TENANT_CONTROL_SECRETS", change(&rotated, KeyringChange::RemoveKey(1)));
    assert_eq!(status(&desk)["keys"].as_array().unwrap().len(), 1, "nobody misses key 1");
    assert!(!secrets_path(&desk).exists());
    desk.serve(&[]).stop();
}
