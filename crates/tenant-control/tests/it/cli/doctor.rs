//! `doctor`: all is well, or what is not.

use kernel::base::Env;
use kernel::store::{Store, StoreOptions};
use tenant_control::migrations::MIGRATIONS;

use super::*;
use crate::support::command::chmod;

/// The names of the checks that failed, with what they say.
fn failures(desk: &Desk) -> Vec<(String, String)> {
    let ended = desk.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let text = |check: &Value, name: &str| check[name].as_str().expect("a text").to_owned();
    let failed = report["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false);
    let failed: Vec<_> = failed.map(|check| (text(check, "name"), text(check, "detail"))).collect();
    assert_eq!((ended.code, &report["ok"]), (i32::from(!failed.is_empty()), &json!(failed.is_empty())), "{report}");
    failed
}

#[track_caller]
fn fails_only(desk: &Desk, name: &str, detail: &str) {
    let failed = failures(desk);
    assert!(failed.len() == 1 && failed[0].0 == name && failed[0].1.contains(detail), "{failed:?}");
    let ended = desk.run(&["doctor"]);
    assert_eq!(ended.code, 1);
    assert!(ended.stdout.contains(&format!("FAIL  {name}: ")), "{}", ended.stdout);
}

#[test]
fn before_the_first_run_there_is_no_store_and_none_is_made() {
    let desk = Desk::new();
    let wanted = "exit 1\nstdout:\n\
        ok    data directory: ./data is not made yet; `serve` makes it\n\
        ok    secrets file: ./data/secrets.json is not there\n\
        ok    webhook targets: public addresses only\n\
        FAIL  database: there is no store in DESK/data. Say where it is, as to the server: --data-dir, --database-url or \
        --config (or TENANT_CONTROL_DATA_DIR, TENANT_CONTROL_DATABASE_URL). `tenant-control serve` makes a new one\n";
    assert_eq!(desk.run(&["doctor"]).shown(&desk), wanted);
    assert!(!desk.path("data").exists());
}

#[test]
fn beside_a_running_server_all_is_well() {
    let desk = Desk::new();
    let _process = desk.serve(&[]);
    let wanted = "exit 0\nstdout:\n\
        ok    data directory: ./data\n\
        ok    secrets file: ./data/secrets.json\n\
        ok    webhook targets: public addresses only\n\
        ok    database: reads and writes\n\
        ok    integrity: every page of the file is sound\n\
        ok    schema: up to date\n\
        ok    tenants' clocks: none is ahead of the time\n\
        ok    single sign-on: everybody signs in where their address leads to\n\
        ok    outgoing traffic: not held\n\
        ok    secrets: those of the database\n\
        ok    sealing keys: everything is sealed with key 1\n\
        ok    sealed values: all open\n";
    let shown = desk.run(&["doctor"]).shown(&desk);
    // What is told of the index, a moment after the first start, is a matter of luck.
    let is_index = |line: &&str| line.starts_with("ok    search index: ");
    let (index, others): (Vec<&str>, Vec<&str>) = shown.lines().partition(is_index);
    assert_eq!((index.len(), others.join("\n") + "\n"), (1, wanted.to_owned()), "{shown}");
    let report = desk.json(&["doctor"]);
    assert_eq!(report["ok"], true);
    let names: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "data directory",
            "secrets file",
            "webhook targets",
            "database",
            "integrity",
            "schema",
            "tenants' clocks",
            "search index",
            "single sign-on",
            "outgoing traffic",
            "secrets",
            "sealing keys",
            "sealed values"
        ]
    );
}

#[test]
fn files_that_others_can_read_are_found() {
    let desk = Desk::new();
    drop(desk.serve(&[]));
    chmod(&desk.path("data/secrets.json"), 0o644);
    fails_only(&desk, "secrets file", "chmod 600 it");
    chmod(&desk.path("data/secrets.json"), 0o600);
    chmod(&desk.path("data"), 0o755);
    fails_only(&desk, "data directory", "chmod 700 it");
    chmod(&desk.path("data"), 0o700);
    assert_eq!(failures(&desk), []);
}

#[test]
fn wrong_and_missing_secrets_are_found() {
    let (mut desk, other) = (Desk::new(), Desk::new());
    drop((desk.serve(&[]), other.serve(&[])));
    let right = std::fs::read_to_string(desk.path("data/secrets.json")).unwrap();
    std::fs::copy(other.path("data/secrets.json"), desk.path("data/secrets.json")).unwrap();
    fails_only(&desk, "secrets", "pepper differs from the database's");
    std::fs::remove_file(desk.path("data/secrets.json")).unwrap();
    fails_only(&desk, "secrets", "the secrets file does not exist");
    desk.set("TENANT_CONTROL_SECRETS", right);
    assert_eq!(failures(&desk), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_migrations_are_found_and_not_applied() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("data")).unwrap();
    chmod(&desk.path("data"), 0o700);
    // The store of a version that had one migration less.
    let (newest, older) = MIGRATIONS.split_last().unwrap();
    let options = StoreOptions::sqlite(desk.path("data/tenant-control.db"));
    let store = Store::open(options, Env::default()).await.unwrap();
    store.migrate(older).await.unwrap();
    store.close().await;
    for _ in 0..2 {
        fails_only(&desk, "schema", &format!("not up to date: {}; `tenant-control migrate`", newest.name));
    }
    desk.json(&["migrate"]);
    assert_eq!(failures(&desk), []);
}

#[test]
fn a_damaged_file_is_found() {
    let desk = Desk::new();
    drop(desk.serve(&[]));
    desk.json(&["migrate"]);
    let file = desk.path("data/tenant-control.db");
    let sound = std::fs::read(&file).unwrap();

    // Half of its pages overwritten; the first, with the schema, is left.
    let mut bytes = sound.clone();
    let from = 4096 * 2;
    let to = bytes.len() - 4096;
    bytes[from..to].fill(0xA5);
    std::fs::write(&file, &bytes).unwrap();
    assert!(!failures(&desk).is_empty());

    std::fs::write(&file, b"This is no database, and has never been one.".repeat(200)).unwrap();
    let failed = failures(&desk);
    assert!(failed.iter().any(|(name, _)| name == "database"), "{failed:?}");

    std::fs::write(&file, &sound).unwrap();
    assert_eq!(failures(&desk), []);
}

#[test]
fn networks_that_webhooks_may_reach_are_told() {
    let desk = Desk::new();
    let said = desk.run(&["doctor", "--webhook-allow-cidr", "10.1.0.0/16,127.0.0.1"]).stdout;
    let wanted = "ok    webhook targets: public addresses, and for every tenant also 10.1.0.0/16, 127.0.0.1/32\n";
    assert!(said.contains(wanted), "{said}");
    let said = desk.run(&["doctor", "--outbound-ca", "missing.pem"]);
    assert!(said.code == 1 && said.stdout.contains("FAIL  webhook targets: "), "{}", said.stdout);
    // The server says so as well, when it starts.
    desk.serve(&["--webhook-allow-cidr", "10.1.0.0/16"]).logs(&["10.1.0.0/16", "every tenant"]);
}
