//! The same commands on PostgreSQL.

use super::*;
use crate::support::postgres::{TestDatabase, fresh_database};

/// A desk whose commands all use this database.
fn desk_on(database: &TestDatabase) -> Desk {
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", &database.url);
    desk
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_work_beside_a_running_server() {
    let database = fresh_database().await;
    let desk = desk_on(&database);
    let process = desk.serve(&[]);
    assert!(process.says("/signin?token=").contains(&process.base_url));
    acme(&desk);
    let key = create_key(&process, &cookie(&desk)).await;
    assert!(accepts_key(&process, &key).await);
    let list = desk.run(&["admin", "tenant", "list"]).shown(&desk);
    assert_eq!(list, "exit 0\nstdout:\nten_ID  acme  Acme\nten_ID  default  Default\n");
    let again = desk.run(&["admin", "tenant", "create", "--name", "Acme", "--slug", "acme"]).shown(&desk);
    assert_eq!(again, "exit 1\nstderr:\nerror: A tenant with the slug \"acme\" exists already.\n");
    assert_eq!(desk.json(&["migrate"]), json!({"applied": []}));
    let report = desk.json(&["doctor"]);
    let names: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "data directory",
            "secrets file",
            "webhook targets",
            "database",
            "row-level security",
            "clock",
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
    assert!(!desk.path("data/tenant-control.db").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_unlinked_beside_a_running_server() {
    let database = fresh_database().await;
    super::unlink::unlinks(&desk_on(&database)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_shares_the_database_and_the_secrets() {
    let database = fresh_database().await;
    let (first, second) = (desk_on(&database), desk_on(&database));
    let one = first.serve(&[]);
    acme(&first);
    let key = create_key(&one, &cookie(&first)).await;
    let refused = second.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, 1, "not with secrets of its own: {refused:?}");
    std::fs::copy(first.path("data/secrets.json"), second.path("data/secrets.json")).unwrap();
    let two = second.serve(&["--base-url", "https://two.test"]);
    assert!(accepts_key(&two, &key).await);
    for desk in [&first, &second] {
        let link = desk.json(&["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test", "--link"]);
        assert!(link["url"].as_str().unwrap().starts_with("https://two.test/"), "the last to start: {link}");
    }
    assert!(!two.stop().stdout.contains("signin"), "only one node greets");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_nodes_that_start_at_once_one_prints_the_link() {
    let database = fresh_database().await;
    let secrets = kernel::base::Secrets::generate_text(&kernel::base::RandomSource::System).unwrap();
    let nodes = (0..3).map(|_| {
        let mut desk = desk_on(&database);
        desk.set("TENANT_CONTROL_SECRETS", &secrets);
        tokio::task::spawn_blocking(move || desk.serve(&[]).stop())
    });
    let mut links = 0;
    for node in nodes.collect::<Vec<_>>() {
        let ended = node.await.unwrap();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        links += ended.stdout.matches("/signin?token=").count();
    }
    assert_eq!(links, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_and_restore_name_the_tools_and_exit_2() {
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", "postgres://tc:hunter2@db.test/tc");
    let backup = desk.run(&["backup", "--to", "backup.dump"]).shown(&desk);
    let said = "stderr:\nerror: this store is on PostgreSQL: back it up with pg_dump and restore it with pg_restore\n\
        hint: the secrets file is not in the database; keep a copy of it apart\n";
    let command = "PGOPTIONS='-c tc.tenant=*' pg_dump --enable-row-security --format=custom --file=backup.dump \
        \"$TENANT_CONTROL_DATABASE_URL\"";
    assert_eq!(backup, format!("exit 2\nstdout:\n{command}\n{said}"), "the command alone is on stdout");
    let restore = desk.run(&["restore", "--from", "backup.dump"]).shown(&desk);
    let command = "pg_restore --clean --if-exists --dbname=\"$TENANT_CONTROL_DATABASE_URL\" backup.dump";
    assert_eq!(restore, format!("exit 2\nstdout:\n{command}\n{said}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tools_that_are_named_do_what_is_promised() {
    let (database, other) = (fresh_database().await, fresh_database().await);
    let desk = desk_on(&database);
    let process = desk.serve(&[]);
    acme(&desk);
    let key = create_key(&process, &cookie(&desk)).await;
    let run_printed = |desk: &Desk, arguments: &[&str], database: &TestDatabase| {
        let command = desk.run(arguments).stdout;
        let bin = std::env::var("TENANT_CONTROL_TEST_POSTGRES_BIN").expect("run ./test");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &command]).current_dir(desk.path("")).env("PATH", format!("{bin}:/usr/bin:/bin"));
        shell.env("TENANT_CONTROL_DATABASE_URL", &database.url);
        let done = shell.output().unwrap();
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run_printed(&desk, &["backup", "--to", "backup.dump"], &database);
    run_printed(&desk, &["restore", "--from", "backup.dump"], &other);
    let mut restored = desk_on(&other);
    restored.set("TENANT_CONTROL_SECRETS", std::fs::read_to_string(desk.path("data/secrets.json")).unwrap());
    assert!(accepts_key(&restored.serve(&[]), &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_bypasses_row_level_security_is_refused_unless_allowed() {
    let database = fresh_database().await;
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", database.url_as_superuser());
    let refused = desk.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("--allow-superuser"), "{}", refused.stderr);
    assert_eq!(desk.run(&["migrate"]).code, 1, "nor does any other command go on");
    drop(desk.serve(&["--allow-superuser"]));
    desk.set("TENANT_CONTROL_ALLOW_SUPERUSER", "true");
    drop(desk.serve(&[]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_answer_is_said_without_the_password() {
    // Bound, so that nobody else listens there meanwhile.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = bound.local_addr().unwrap();
    let mut desk = Desk::new();
    for url in [
        format!("postgres://tc:hunter2@{closed}/tc?sslmode=disable"),
        "postgres://tc:hunter2@/tc?sslmode=nonsense".to_owned(),
        "mysql://tc:hunter2@db.test/tc".to_owned(),
        "postgres://tc:hunter2@[::/tc".to_owned(),
    ] {
        desk.set("TENANT_CONTROL_DATABASE_URL", &url);
        for command in
            [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"], &["doctor"], &["admin", "tenant", "list"]]
        {
            let ended = desk.run(command);
            assert_eq!(ended.code, 1, "{url} {command:?}: {ended:?}");
            assert!(
                !ended.stderr.contains("hunter2") && !ended.stdout.contains("hunter2"),
                "{url} {command:?}: {ended:?}"
            );
        }
    }
}
