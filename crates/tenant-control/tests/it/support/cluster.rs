//! A PostgreSQL server of the test's own, to be stopped, frozen and started again. It waits for the disk as a real one
//! does.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::postgres::connect;
use super::process::{send_signal, until};

/// A port that was free a moment ago may be taken now.
const START_ATTEMPTS: usize = 10;

pub struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    port: u16,
    /// Its user and group, when the tests run as root, which PostgreSQL refuses to.
    owner: Option<(u32, u32)>,
}

impl Cluster {
    pub async fn start() -> Cluster {
        let programs = std::env::var("TENANT_CONTROL_TEST_POSTGRES_BIN");
        let programs = programs.expect("TENANT_CONTROL_TEST_POSTGRES_BIN is not set: run ./test, which sets it").into();
        let folder = TempDir::new().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let owner = (number("id", &["-u"]) == Some(0)).then(|| find_user(&["postgres", "nobody"]));
        if let Some((user, group)) = owner {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let mut cluster = Cluster { folder, programs, port: 0, owner };
        cluster.run("initdb", &["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"]).unwrap();
        for _ in 0..START_ATTEMPTS {
            cluster.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if cluster.start_again().is_ok() {
                break;
            }
        }
        let client = connect(&cluster.url_of("postgres", "postgres")).await;
        client.batch_execute("CREATE ROLE tc LOGIN NOSUPERUSER NOBYPASSRLS").await.unwrap();
        client.batch_execute("CREATE DATABASE tc OWNER tc").await.unwrap();
        cluster
    }

    /// The database, as a role that row-level security holds back.
    pub fn url(&self) -> String {
        self.url_of("tc", "tc")
    }

    fn url_of(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Ends all its processes without a checkpoint, as a crash does.
    pub fn stop_at_once(&self) {
        self.run("pg_ctl", &["stop", "-w", "-m", "immediate"]).unwrap();
    }

    /// On the same port as before.
    pub fn start_again(&self) -> Result<(), String> {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
             -c recovery_init_sync_method=syncfs",
            self.port
        );
        let log = self.folder.path().join("log");
        self.run("pg_ctl", &["start", "-w", "-t", "60", "-l", &log.display().to_string(), "-o", &options])
    }

    /// Stops every process where it is: connections stay open and nobody answers.
    pub async fn freeze(&self) {
        let text = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap();
        let first: u32 = text.lines().next().unwrap().trim().parse().unwrap();
        send_signal("STOP", first);
        // A process that was being started when its parent stopped is stopped in the next round.
        until("every process stands still", Duration::from_mins(1), async || {
            let running: Vec<u32> = children(first).into_iter().filter(|id| !is_stopped(*id)).collect();
            for id in &running {
                send_signal("STOP", *id);
            }
            running.is_empty().then_some(())
        })
        .await;
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-D").arg(self.folder.path().join("data")).args(arguments);
        // What the server inherits must not be a pipe that somebody waits for the end of.
        let errors = self.folder.path().join("errors");
        let file = std::fs::File::create(&errors).unwrap();
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        let status = command.status().unwrap_or_else(|error| panic!("{program}: {error}"));
        let failed = || format!("{program} {arguments:?}: {}", std::fs::read_to_string(&errors).unwrap_or_default());
        if status.success() { Ok(()) } else { Err(failed()) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It works on stopped processes too: what ends them cannot be held back by having stopped them.
        let text = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap_or_default();
        if let Some(first) = text.lines().next().and_then(|line| line.trim().parse().ok()) {
            for id in children(first).into_iter().chain([first]) {
                let _ = Command::new("kill").arg("-KILL").arg(id.to_string()).stderr(Stdio::null()).status();
            }
        }
    }
}

fn children(parent: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// One that was about to end when its parent stopped has nobody to take note of it, and stands still for good.
fn is_stopped(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z']))
}

fn find_user(names: &[&str]) -> (u32, u32) {
    let known = names.iter().find_map(|name| Some((number("id", &["-u", name])?, number("id", &["-g", name])?)));
    known.unwrap_or_else(|| panic!("none of the users {names:?} exists"))
}

fn number(program: &str, arguments: &[&str]) -> Option<u32> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
