//! A store that is not there: only `serve`, `migrate` and `restore` make one.

use super::*;
use crate::support::postgres::fresh_database;

/// One of every kind of command that does not make a store.
const COMMANDS: [&[&str]; 11] = [
    &["doctor"],
    &["backup", "--to", "backup.db"],
    &["admin", "tenant", "list"],
    &["admin", "tenant", "create", "--name", "Acme", "--slug", "acme"],
    &["admin", "user", "list", "--tenant", "acme"],
    &["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test", "--link"],
    &["admin", "organization", "list", "--tenant", "acme"],
    &["admin", "sso", "list", "--tenant", "acme"],
    &["admin", "sla", "list", "--tenant", "acme"],
    &["admin", "ingest-key", "create", "--tenant", "acme"],
    &["admin", "clock", "list"],
];

/// Everything below a folder.
fn files(desk: &Desk) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![desk.path("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            found.push(entry.path().display().to_string());
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// All commands refuse, say this and change nothing.
#[track_caller]
fn all_refuse(desk: &Desk, flags: &[&str], said: &str) {
    let before = files(desk);
    for command in COMMANDS {
        let ended = desk.run(&[command, flags].concat());
        let shown = ended.shown(desk);
        assert_eq!(ended.code, 1, "{command:?}: {shown}");
        assert!(shown.contains(said), "{command:?}: {shown}");
        assert!(shown.contains("--data-dir, --database-url or --config"), "{command:?}: {shown}");
        assert!(!shown.contains("hunter2"), "{command:?}: {shown}");
        assert_eq!(files(desk), before, "{command:?}");
    }
}

#[test]
fn a_mistyped_folder_is_refused_and_not_made() {
    let desk = Desk::new();
    drop(desk.serve(&[]));
    all_refuse(&desk, &["--data-dir", "./dta"], "there is no store in DESK/dta. Say where it is");
    all_refuse(&desk, &["--data-dir", "/nowhere/at/all"], "there is no store in /nowhere/at/all. ");
    all_refuse(&desk, &["--data-dir", "my data"], "`tenant-control serve --data-dir 'my data'` makes a new one");
    std::fs::create_dir(desk.path("empty")).unwrap();
    all_refuse(&desk, &["--data-dir", "empty"], "there is no store in DESK/empty. ");
    assert_eq!(desk.json(&["admin", "tenant", "list"])[0]["slug"], "default", "the right one is as it was");
}

/// What a mistyped folder left behind before, and what is left of a store that was never finished.
#[test]
fn a_file_without_a_schema_is_no_store() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("data")).unwrap();
    crate::support::command::chmod(&desk.path("data"), 0o700);
    desk.file("data/tenant-control.db", "");
    for command in COMMANDS {
        let shown = desk.run(command).shown(&desk);
        assert!(shown.starts_with("exit 1\n") && shown.contains("there is no store in DESK/data. "), "{shown}");
    }
    assert!(!desk.path("backup.db").exists());
    assert_eq!(desk.json(&["migrate"])["applied"][0], "0001_ground");
    assert_eq!(desk.json(&["admin", "tenant", "list"]), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_a_schema_is_refused_and_named_without_its_password() {
    let database = fresh_database().await;
    let mut desk = Desk::new();
    let url = database.url.replacen("tc_test@", "tc_test:hunter2@", 1);
    desk.set("TENANT_CONTROL_DATABASE_URL", &url);
    let named = database.url.split('?').next().unwrap().to_owned();
    for command in COMMANDS.iter().filter(|command| command[0] != "backup") {
        let shown = desk.run(command).shown(&desk);
        assert!(shown.starts_with("exit 1\n"), "{command:?}: {shown}");
        assert!(shown.contains(&format!("there is no store in {named}. ")), "{command:?}: {shown}");
        assert!(!shown.contains("hunter2"), "{command:?}: {shown}");
        assert!(!desk.path("data").exists(), "{command:?}");
    }
    assert_eq!(desk.json(&["migrate"])["applied"][0], "0001_ground");
    assert_eq!(desk.json(&["admin", "tenant", "list"]), json!([]));
}
