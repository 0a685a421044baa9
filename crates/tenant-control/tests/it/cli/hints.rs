//! Command lines that are printed work when they are pasted where they were printed.

use super::*;
use crate::support::command::Ended;
use crate::support::postgres::fresh_database;

/// Runs a printed line by a shell, in the same folder and with the same variables.
fn paste(desk: &Desk, line: &str) -> Ended {
    let line = line.replacen("tenant-control", env!("CARGO_BIN_EXE_tenant-control"), 1);
    desk.shell(&line)
}

/// The line for another sign-in link that a first start prints, and that it works.
#[track_caller]
fn another_link(desk: &Desk, flags: &[&str]) -> String {
    let process = desk.serve(flags);
    let line = process.says("Another link: ").replacen("Another link: ", "", 1);
    let ended = paste(desk, &line);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{line}");
    assert!(ended.stdout.starts_with(&format!("{}/signin?token=", process.base_url)), "{line}: {}", ended.stdout);
    line
}

const LINK: &str = "tenant-control admin session create --tenant default --email admin@localhost --link";

#[test]
fn another_link_is_made_on_the_same_store() {
    assert_eq!(another_link(&Desk::new(), &[]), LINK);
    assert_eq!(another_link(&Desk::new(), &["--base-url", "https://tc.test"]), LINK, "the store knows its URL");
    assert_eq!(
        another_link(&Desk::new(), &["--data-dir", "el se'where"]),
        format!("{LINK} --data-dir 'el se'\\''where'")
    );
    let desk = Desk::new();
    desk.file("settings.toml", "data-dir = \"from-file\"\n");
    let line = another_link(&desk, &["--config", "settings.toml"]);
    assert!(line.contains(" --config settings.toml"), "{line}");
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATA_DIR", "from-variable");
    another_link(&desk, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_link_is_made_on_the_same_database() {
    let database = fresh_database().await;
    assert_eq!(
        another_link(&Desk::new(), &["--database-url", &database.url]),
        format!("{LINK} --database-url '{}'", database.url)
    );
    let database = fresh_database().await;
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", &database.url);
    assert_eq!(another_link(&desk, &[]), LINK);
    let database = fresh_database().await;
    let desk = Desk::new();
    desk.file("settings.toml", format!("database_url = \"{}\"\n", database.url));
    assert_eq!(
        another_link(&desk, &["--config", "settings.toml"]),
        format!("{LINK} --config settings.toml --database-url '{}'", database.url)
    );
    let database = fresh_database().await;
    let line = another_link(&Desk::new(), &["--database-url", &database.url_as_superuser(), "--allow-superuser"]);
    assert!(line.ends_with(" --allow-superuser"), "{line}");
}

/// The flags of a printed line lead to the secrets as well: a command that needs them works.
#[track_caller]
fn finds_secrets(desk: &Desk, line: &str) {
    let flags = line.strip_prefix(LINK).unwrap_or_else(|| panic!("{line}"));
    let ended = paste(desk, &format!("tenant-control admin ingest-key create --tenant default{flags}"));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{line}");
}

#[test]
fn the_secrets_file_is_named() {
    let desk = Desk::new();
    let line = another_link(&desk, &["--secrets-file", "my keys.json"]);
    assert_eq!(line, format!("{LINK} --secrets-file 'my keys.json'"));
    finds_secrets(&desk, &line);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_the_secrets_is_named_beside_a_database() {
    let (desk, database) = (Desk::new(), fresh_database().await);
    let line = another_link(&desk, &["--data-dir", "elsewhere", "--database-url", &database.url]);
    assert_eq!(line, format!("{LINK} --data-dir elsewhere --database-url '{}'", database.url));
    finds_secrets(&desk, &line);
}

/// Nobody knows which folder the shell of an operator is in.
#[tokio::test(flavor = "multi_thread")]
async fn the_overview_shows_operators_a_line_for_any_folder() {
    let desk = Desk::new();
    desk.file("settings.toml", "audit_days = 500\n");
    let process = desk.serve(&["--config", "settings.toml"]);
    let made = desk.json(&["admin", "session", "create", "--tenant", "default", "--email", "admin@localhost"]);
    let asked = client().get(process.url("/overview")).header("cookie", made["cookie"].as_str().unwrap());
    let page = asked.send().await.unwrap().text().await.unwrap();
    let begin = page.find("tenant-control admin session create").unwrap_or_else(|| panic!("{page}"));
    let line = page[begin..].split('<').next().unwrap();
    let [config, data] = ["settings.toml", "data"].map(|name| desk.path(name).display().to_string());
    assert!(line.ends_with(&format!(" --json --config {config} --data-dir {data}")), "{line}");
    let ended = paste(&Desk::new(), line);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{line}");
}

/// A password is never printed: the line names the variable that holds it, or that is to be set.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_stays_in_its_variable() {
    let database = fresh_database().await;
    let url = database.url.replacen("tc_test@", "tc_test:hunter2@", 1);
    let mut desk = Desk::new();
    let process = desk.serve(&["--database-url", &url]);
    let line = process.says("Another link: ").replacen("Another link: ", "", 1);
    assert_eq!(line, format!("{LINK} --database-url \"$TENANT_CONTROL_DATABASE_URL\""));
    desk.set("TENANT_CONTROL_DATABASE_URL", &url);
    assert_eq!(paste(&desk, &line).code, 0);
    desk.unset("TENANT_CONTROL_DATABASE_URL");
    let other = fresh_database().await;
    let beside = Desk::new();
    let in_file = other.url.replacen("tc_test@", "tc_test:hunter2@", 1);
    beside.file("settings.toml", format!("database_url = \"{in_file}\"\n"));
    let line = another_link(&beside, &["--config", "settings.toml"]);
    assert_eq!(line, format!("{LINK} --config settings.toml"), "a settings file holds its own");
    let backup = desk.run(&["backup", "--to", "backup.dump", "--database-url", &url]);
    assert!(backup.stdout.ends_with(" --file=backup.dump \"$TENANT_CONTROL_DATABASE_URL\"\n"), "{}", backup.stdout);
    assert!(backup.stderr.contains("hint: set TENANT_CONTROL_DATABASE_URL"), "{}", backup.stderr);
    let backup = desk.run(&["backup", "--to", "backup.dump", "--database-url", &database.url]);
    assert!(backup.stdout.ends_with(&format!(" --file=backup.dump '{}'\n", database.url)), "{}", backup.stdout);
    assert!(!backup.stderr.contains("hint: set"), "{}", backup.stderr);
}

/// The command line between the backticks of a message.
fn quoted(message: &str) -> String {
    message.split('`').nth(1).unwrap_or_else(|| panic!("no command in {message}")).to_owned()
}

#[test]
fn what_to_do_about_a_refusal_is_about_the_same_store() {
    let desk = Desk::new();
    drop(desk.serve(&["--data-dir", "elsewhere"]));
    let there = ["--data-dir", "elsewhere"];
    let run = |arguments: &[&str]| desk.run(&[arguments, &there].concat());
    let listed = |arguments: &[&str], wanted: &str| {
        let refused = run(arguments);
        assert_eq!(refused.code, 1, "{arguments:?}");
        let line = quoted(&refused.stderr);
        assert_eq!(line, format!("tenant-control admin {wanted} --data-dir elsewhere"), "{}", refused.stderr);
        assert_eq!(paste(&desk, &line).code, 0, "{line}");
    };
    listed(&["admin", "user", "list", "--tenant", "nope"], "tenant list");
    listed(
        &["admin", "session", "create", "--tenant", "default", "--email", "nobody@localhost"],
        "user list --tenant default",
    );
    listed(
        &["admin", "organization", "delete", "--tenant", "default", "--slug", "nope"],
        "organization list --tenant default",
    );
    listed(
        &["admin", "ingest-key", "revoke", "--tenant", "default", "--id", "nope"],
        "ingest-key list --tenant default",
    );
    listed(&["admin", "sso", "disable", "--tenant", "default"], "sso list --tenant default");
    for (email, flag) in [
        ("--email=o'hara@localhost", "--email 'o'\\''hara@localhost'"),
        ("--email=-dash@localhost", "--email=-dash@localhost"),
    ] {
        let who = ["--tenant", "default", email];
        assert_eq!(run(&[&["admin", "user", "create", "--role", "viewer"], &who[..]].concat()).code, 0);
        assert_eq!(run(&[&["admin", "user", "delete"], &who[..]].concat()).code, 0);
        listed(
            &[&["admin", "session", "create"], &who[..]].concat(),
            &format!("user update --tenant default {flag} --status active"),
        );
    }
}
