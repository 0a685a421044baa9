//! `backup` and `restore` of the embedded store.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::support::command::{chmod, mode};
use crate::support::process::say;

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_restores_with_the_secrets_and_every_key_works() {
    let desk = Desk::new();
    acme(&desk);
    let process = Arc::new(desk.serve(&["--rate-limit", "write=1000000"]));
    let cookie = cookie(&desk);
    let before = create_key(&process, &cookie).await;
    let stop = Arc::new(AtomicBool::new(false));
    let load = {
        let (process, cookie, stop) = (process.clone(), cookie.clone(), stop.clone());
        tokio::spawn(async move {
            let mut acknowledged = 0;
            while !stop.load(Ordering::Relaxed) {
                let key = create_key(&process, &cookie).await;
                let id = format!(
                    "{KEYS}?id={}",
                    get(&process, SESSION, ("x-api-key", &key)).await.1["actor"]["id"].as_str().unwrap()
                );
                assert_eq!(
                    client().delete(process.url(&id)).header("cookie", &cookie).send().await.unwrap().status(),
                    204
                );
                acknowledged += 1;
            }
            acknowledged
        })
    };
    let made = desk.json(&["backup", "--to", "backup.db"]);
    assert_eq!((&made["path"], &made["secrets_included"]), (&json!("backup.db"), &json!(false)));
    let after = create_key(&process, &cookie).await;
    stop.store(true, Ordering::Relaxed);
    assert!(load.await.unwrap() > 0, "writes went on meanwhile");
    assert_eq!(made["size_bytes"], std::fs::metadata(desk.path("backup.db")).unwrap().len());
    assert_eq!(mode(&desk.path("backup.db")), 0o600);

    let fresh = Desk::new();
    chmod(&desk.path("backup.db"), 0o644);
    let from = desk.path("backup.db").to_str().unwrap().to_owned();
    let done = fresh.json(&["restore", "--from", &from]);
    assert_eq!(done, json!({"path": "./data/tenant-control.db", "previous": null, "secrets_included": false}));
    assert_eq!(fresh.data_files(), ["lock", "tenant-control.db"]);
    assert_eq!(mode(&fresh.path("data/tenant-control.db")), 0o600, "whatever the backup's mode was");
    assert_eq!(fresh.run(&["serve", "--listen", "127.0.0.1:0"]).code, 1, "not without the secrets");
    std::fs::copy(desk.path("data/secrets.json"), fresh.path("data/secrets.json")).unwrap();
    let restored = fresh.serve(&[]);
    assert!(accepts_key(&restored, &before).await);
    assert!(!accepts_key(&restored, &after).await, "made after the backup");
    assert_eq!(get(&restored, SESSION, ("cookie", &cookie)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_holds_no_secret_in_plain_text() {
    let desk = Desk::new();
    acme(&desk);
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    let body = json!({"name": "Key", "scopes": ["*"]});
    let call = client().post(process.url(KEYS)).header("cookie", &cookie).header("idempotency-key", "once").json(&body);
    let key = call.send().await.unwrap().json::<Value>().await.unwrap()["key"].as_str().unwrap().to_owned();
    desk.json(&["backup", "--to", "backup.db"]);
    let bytes = std::fs::read(desk.path("backup.db")).unwrap();
    let secrets: Value = serde_json::from_slice(&std::fs::read(desk.path("data/secrets.json")).unwrap()).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("a@acme.test"));
    for secret in [&key[13..], cookie.split_once('=').unwrap().1, secrets["pepper"].as_str().unwrap()] {
        assert!(!holds(secret), "{secret}");
    }
}

#[test]
fn a_backup_says_what_it_lacks_and_replaces_nothing() {
    let desk = Desk::new();
    acme(&desk);
    let shown = |to: &str| desk.run(&["backup", "--to", to]).shown(&desk);
    let size = |text: String| text.split(' ').filter(|word| word.parse::<u64>().is_err()).collect::<Vec<_>>().join(" ");
    let wanted = "exit 0\nstdout:\nbackup.db written, bytes.\nThe secrets are not in it: keep ./data/secrets.json apart, \
                  or no key will work after a restore.\n";
    assert_eq!(size(shown("backup.db")), wanted);
    assert_eq!(
        shown("backup.db"),
        "exit 1\nstderr:\nerror: backup.db exists already; a backup never replaces a file\n"
    );
    let nowhere = shown("missing/backup.db");
    assert!(
        nowhere.starts_with("exit 1\nstderr:\nerror: ") && nowhere.contains("No such file or directory"),
        "{nowhere}"
    );
}

#[test]
fn a_restore_refuses_to_replace_a_store_unless_forced_and_keeps_the_old_one() {
    let desk = Desk::new();
    acme(&desk);
    desk.json(&["backup", "--to", "backup.db"]);
    desk.json(&["admin", "tenant", "create", "--name", "Later", "--slug", "later"]);
    let wanted = "exit 1\nstderr:\nerror: ./data/tenant-control.db exists; give --force to replace it (it is kept beside the new one)\n";
    assert_eq!(desk.run(&["restore", "--from", "backup.db"]).shown(&desk), wanted);
    assert_eq!(desk.json(&["admin", "tenant", "list"]).as_array().unwrap().len(), 2);

    let done = desk.json(&["restore", "--from", "backup.db", "--force"]);
    assert_eq!(desk.json(&["admin", "tenant", "list"]).as_array().unwrap().len(), 1);
    let previous = done["previous"].as_str().expect("the old store").to_owned();
    desk.json(&["restore", "--from", &previous, "--force"]);
    assert_eq!(desk.json(&["admin", "tenant", "list"]).as_array().unwrap().len(), 2, "and can be put back");
}

#[test]
fn a_restore_keeps_the_permissions_of_what_it_replaces() {
    let desk = Desk::new();
    acme(&desk);
    desk.json(&["backup", "--to", "backup.db"]);
    let store = desk.path("data/tenant-control.db");
    chmod(&store, 0o640);
    let done = desk.json(&["restore", "--from", "backup.db", "--force"]);
    let previous = desk.path(done["previous"].as_str().expect("the old store"));
    assert_eq!((mode(&store), mode(&previous)), (0o640, 0o640));
    std::fs::remove_file(&store).unwrap();
    desk.json(&["restore", "--from", "backup.db"]);
    assert_eq!(mode(&store), 0o600, "a store where there was none");
}

/// An operator restores as root, and the server runs as a user of its own.
#[test]
fn a_restore_keeps_the_owner_of_what_it_replaces() {
    let desk = Desk::new();
    acme(&desk);
    desk.json(&["backup", "--to", "backup.db"]);
    let (store, folder, lock) = (desk.path("data/tenant-control.db"), desk.path("data"), desk.path("data/lock"));
    let owner = |path: &Path| (std::fs::metadata(path).unwrap().uid(), std::fs::metadata(path).unwrap().gid());
    if owner(&folder).0 != 0 {
        say("SKIPPED, only root can give a file to another user: whether a restore keeps the owner is not proved");
        return;
    }
    let server = (12_345, 23_456);
    let give = |path: &Path| chown(path, Some(server.0), Some(server.1)).unwrap();
    give(&store);
    let done = desk.json(&["restore", "--from", "backup.db", "--force"]);
    let previous = desk.path(done["previous"].as_str().expect("the old store"));
    assert_eq!((owner(&store), owner(&previous)), (server, server));

    // Without a store the folder says whose it is.
    give(&folder);
    for file in [&store, &lock] {
        std::fs::remove_file(file).unwrap();
    }
    desk.json(&["restore", "--from", "backup.db"]);
    assert_eq!((owner(&store), owner(&lock)), (server, server));
}

/// A store that was copied elsewhere is not reached where the first one is.
#[test]
fn a_restored_store_knows_no_server_until_one_is_started_on_it() {
    let desk = Desk::new();
    acme(&desk);
    let process = desk.serve(&["--base-url", "https://tc.acme.test"]);
    desk.json(&["backup", "--to", "backup.db"]);
    process.stop();
    let link = |desk: &Desk| {
        let create = ["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test", "--link"];
        desk.json(&create)["url"].as_str().expect("a link").to_owned()
    };
    assert!(link(&desk).starts_with("https://tc.acme.test/"));
    let fresh = Desk::new();
    fresh.json(&["restore", "--from", desk.path("backup.db").to_str().unwrap()]);
    assert_eq!(fresh.data_files(), ["lock", "tenant-control.db"], "and nothing is left beside it");
    assert!(link(&fresh).starts_with("http://127.0.0.1:8080/"), "{}", link(&fresh));
    std::fs::copy(desk.path("data/secrets.json"), fresh.path("data/secrets.json")).unwrap();
    let restored = fresh.serve(&[]);
    assert!(link(&fresh).starts_with(&restored.base_url));
    assert!(link(&desk).starts_with("https://tc.acme.test/"), "the first one is as it was");
}

#[test]
fn a_restore_refuses_what_is_not_a_whole_backup_and_leaves_the_store_alone() {
    let desk = Desk::new();
    acme(&desk);
    desk.json(&["backup", "--to", "backup.db"]);
    let whole = std::fs::read(desk.path("backup.db")).unwrap();
    let half = &whole[..whole.len() / 2];
    let mut damaged = whole.clone();
    let end = damaged.len() - 4096;
    damaged[8192..end].fill(0xA5);
    for (name, bytes) in [
        ("half.db", half),
        ("page.db", &whole[..whole.len() - 4096]),
        ("byte.db", &whole[..whole.len() - 1]),
        ("damaged.db", &damaged),
        ("empty.db", &[]),
        ("text.db", "This is no database, and has never been one.".repeat(200).as_bytes()),
    ] {
        desk.file(name, bytes);
        let ended = desk.run(&["restore", "--from", name, "--force"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{name}: {ended:?}");
        assert!(
            ended.stderr.starts_with(&format!("error: {name} is not a whole backup: ")),
            "{name}: {}",
            ended.stderr
        );
        let left: Vec<String> =
            desk.data_files().into_iter().filter(|file| file.contains("incoming") || file.contains("before")).collect();
        assert_eq!(left, Vec::<String>::new(), "{name}");
        assert_eq!(desk.json(&["admin", "tenant", "list"])[0]["slug"], "acme");
    }
    let missing = desk.run(&["restore", "--from", "missing.db", "--force"]);
    assert_eq!(missing.shown(&desk), "exit 1\nstderr:\nerror: missing.db: No such file or directory (os error 2)\n");
    assert_eq!(desk.json(&["admin", "tenant", "list"])[0]["slug"], "acme");
}

#[test]
fn a_restore_refuses_while_a_server_runs() {
    let desk = Desk::new();
    let process = desk.serve(&[]);
    desk.json(&["backup", "--to", "backup.db"]);
    let refused = desk.run(&["restore", "--from", "backup.db", "--force"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.starts_with("error: another server is running on the data directory ./data"),
        "{}",
        refused.stderr
    );
    assert_eq!(process.stop().code, 0);
    let shown = desk.run(&["restore", "--from", "backup.db", "--force"]).shown(&desk);
    assert!(
        shown.contains(
            "./data/tenant-control.db restored.\nThe store before is ./data/tenant-control.db.before-restore-"
        ),
        "{shown}"
    );
    assert!(
        shown.ends_with("The secrets were not in the backup: ./data/secrets.json must be those of its time.\n"),
        "{shown}"
    );
    drop(desk.serve(&[]));
}
