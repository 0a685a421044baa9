//! The secrets file: made once, needed for good, and never replaced by chance.

use super::*;
use crate::support::command::mode;
use crate::support::postgres::fresh_database;

#[tokio::test(flavor = "multi_thread")]
async fn keys_work_with_the_same_secrets_and_no_node_starts_with_others() {
    let mut desk = Desk::new();
    acme(&desk);
    let process = desk.serve(&[]);
    let key = create_key(&process, &cookie(&desk)).await;
    drop(process);
    let secrets = std::fs::read_to_string(desk.path("data/secrets.json")).unwrap();

    std::fs::rename(desk.path("data/secrets.json"), desk.path("kept.json")).unwrap();
    let missing = desk.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(missing.code, 1);
    assert!(
        missing.stderr.contains("error: this database was set up with a secrets file that is not here"),
        "{}",
        missing.stderr
    );
    assert!(!desk.path("data/secrets.json").exists(), "and none is made");

    let other = Desk::new();
    drop(other.serve(&[]));
    std::fs::copy(other.path("data/secrets.json"), desk.path("data/secrets.json")).unwrap();
    let wrong = desk.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("error: the secrets of this node are not those of the database"), "{}", wrong.stderr);

    let elsewhere = desk.path("kept.json").to_str().unwrap().to_owned();
    assert!(accepts_key(&desk.serve(&["--secrets-file", &elsewhere]), &key).await);

    std::fs::remove_file(desk.path("data/secrets.json")).unwrap();
    desk.set("TENANT_CONTROL_SECRETS", secrets);
    assert!(accepts_key(&desk.serve(&[]), &key).await, "given from outside");
    assert!(!desk.path("data/secrets.json").exists(), "and not written down");
}

#[test]
fn secrets_that_cannot_be_used_are_refused_without_being_shown() {
    let mut desk = Desk::new();
    for text in ["hunter2", "{}", "{\"pepper\": \"hunter2\", \"sealing_keys\": []}", "{\"pepper\": \"hunter2\"}"] {
        desk.set("TENANT_CONTROL_SECRETS", text);
        let ended = desk.run(&["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(ended.code, 1, "{text}");
        assert!(ended.stderr.contains("error: the secrets cannot be used: "), "{}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
}

/// On a database the folder of the secrets is all that a command may need, and only the first one makes it.
#[tokio::test(flavor = "multi_thread")]
async fn the_folder_is_made_with_the_file_and_not_without_it() {
    let database = fresh_database().await;
    let at = |desk: &mut Desk| desk.set("TENANT_CONTROL_DATABASE_URL", &database.url);
    let mut first = Desk::new();
    at(&mut first);
    acme(&first);
    std::fs::remove_dir(first.path("data")).unwrap();
    let make_key = ["admin", "ingest-key", "create", "--tenant", "acme"];
    first.json(&make_key);
    assert_eq!(first.data_files(), ["secrets.json"]);
    assert_eq!((mode(&first.path("data")), mode(&first.path("data/secrets.json"))), (0o700, 0o600));

    let mut second = Desk::new();
    at(&mut second);
    let refused = second.run(&make_key);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("secrets file that is not here"), "{}", refused.stderr);
    assert!(!second.path("data").exists(), "nothing to put there");
    second.set("TENANT_CONTROL_SECRETS", std::fs::read_to_string(first.path("data/secrets.json")).unwrap());
    second.json(&make_key);
    assert!(!second.path("data").exists(), "nothing to put there");
}
