//! Through a pooler: in session mode all works, in transaction mode nothing starts.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::support::postgres::{TestDatabase, fresh_database};
use crate::support::process::{send_signal, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// A PgBouncer in front of the tests' PostgreSQL. It ends with this value.
struct Pooler {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
    server_port: u16,
}

/// A port that was free a moment ago may be taken now.
const START_ATTEMPTS: usize = 10;

impl Pooler {
    async fn start(database: &TestDatabase, settings: &str) -> Pooler {
        for _ in 0..START_ATTEMPTS {
            if let Some(pooler) = Pooler::try_start(database, settings).await {
                return pooler;
            }
        }
        panic!("PgBouncer does not start");
    }

    /// None when it has ended instead of listening.
    async fn try_start(database: &TestDatabase, settings: &str) -> Option<Pooler> {
        let folder = tempfile::TempDir::new().unwrap();
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::write(folder.path().join("users.txt"), "\"tc_test\" \"\"\n").unwrap();
        let server_port = port_of(&database.url);
        let file = folder.path().join("pgbouncer.ini");
        write_settings(&file, own, server_port, settings);
        let program =
            std::env::var("TENANT_CONTROL_TEST_PGBOUNCER").expect("run ./test, which finds or installs PgBouncer");
        let mut command = Command::new(program);
        // It refuses to run as root, which it may be told to leave.
        if folder_is_roots(folder.path()) {
            open_to_all(folder.path());
            command.args(["-u", "nobody"]);
        }
        let child = command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut pooler = Pooler { child: child.expect("PgBouncer starts"), folder, port: own, server_port };
        let listens = async || {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", own)).await.is_ok();
            let ended = pooler.child.try_wait().expect("its state").is_some();
            (connected || ended).then_some(!ended)
        };
        until("PgBouncer listens", PATIENCE, listens).await.then_some(pooler)
    }

    /// Tells it to go on with other settings, which it does without closing a connection.
    fn change(&self, settings: &str) {
        write_settings(&self.folder.path().join("pgbouncer.ini"), self.port, self.server_port, settings);
        send_signal("HUP", self.child.id());
    }

    fn url(&self, database: &TestDatabase) -> String {
        database.url.replace(&format!(":{}/", self.server_port), &format!(":{}/", self.port))
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_settings(file: &std::path::Path, port: u16, server_port: u16, settings: &str) {
    let users = file.with_file_name("users.txt");
    let text = format!(
        "[databases]\n* = host=127.0.0.1 port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = trust\nauth_file = {}\nmax_client_conn = 200\n{settings}\n",
        users.display()
    );
    std::fs::write(file, text).unwrap();
}

fn port_of(url: &str) -> u16 {
    url.split("@127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap()
}

fn folder_is_roots(folder: &std::path::Path) -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(folder).unwrap()) == 0
}

fn open_to_all(folder: &std::path::Path) {
    crate::support::command::chmod(folder, 0o755);
}

/// A desk whose commands all go through the pooler.
fn desk_through(pooler: &Pooler, database: &TestDatabase) -> Desk {
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", pooler.url(database));
    desk
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_transaction_mode_is_refused_with_what_to_change() {
    let database = fresh_database().await;
    for settings in [
        "pool_mode = transaction",
        "pool_mode = transaction\nserver_round_robin = 1\nmin_pool_size = 3",
        "pool_mode = statement",
        "pool_mode = transaction\ndefault_pool_size = 1",
    ] {
        let pooler = Pooler::start(&database, settings).await;
        let desk = desk_through(&pooler, &database);
        for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"], &["admin", "tenant", "list"]] {
            let refused = desk.run(command);
            assert_eq!(refused.code, 1, "{settings} {command:?}: {refused:?}");
            assert!(refused.stderr.contains("pool_mode = session"), "{settings} {command:?}: {}", refused.stderr);
        }
        let report = desk.run(&["doctor"]);
        assert_eq!(report.code, 1);
        let said = report.stdout.lines().find(|line| line.starts_with("FAIL  database: "));
        assert!(said.is_some_and(|line| line.contains("pool_mode = session")), "{settings}: {}", report.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler_in_session_mode_all_works_until_it_is_changed() {
    let database = fresh_database().await;
    let pooler = Pooler::start(&database, "pool_mode = session").await;
    let desk = desk_through(&pooler, &database);
    let process = desk.serve(&[]);
    acme(&desk);
    let key = create_key(&process, &cookie(&desk)).await;
    assert!(accepts_key(&process, &key).await);
    let report = desk.json(&["doctor"]);
    assert_eq!(report["ok"], true, "{report}");

    // From here on backends are shared. Whatever is answered is right or 503, and soon it is noticed.
    pooler.change("pool_mode = transaction");
    let ask = async || {
        let (keys, own) =
            tokio::join!(get(&process, KEYS, ("x-api-key", &key)), get(&process, SESSION, ("x-api-key", &key)));
        for (status, answer) in [&keys, &own] {
            assert!([200, 503].contains(status), "{status} {answer}");
        }
        assert!(keys.0 == 503 || keys.1["data"].as_array().is_some_and(|keys| keys.len() == 1), "{}", keys.1);
        assert!(own.0 == 503 || own.1["tenant"]["slug"] == "acme", "{}", own.1);
        (keys.0 == 503 || own.0 == 503).then_some(())
    };
    until("a pooler that shares is noticed", PATIENCE, ask).await;
}
