//! The real binary as a process of its own: started, signalled, killed, and started again on what it left behind.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::load::Api;

const BINARY: &str = env!("CARGO_BIN_EXE_tenant-control");

/// A debug build starts within a second; a machine that runs other tests beside it may need many.
const START_MAX: Duration = Duration::from_mins(1);

/// How often a condition is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Asks again and again until there is an answer, and fails with `what` when there is none in time.
pub async fn until<T>(what: &str, limit: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} in vain: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How a server is started: where its data is, and what else it is told.
#[derive(Clone)]
pub struct Launch {
    /// What every command of the binary is told.
    store: Vec<String>,
    /// What `serve` alone is told.
    serve: Vec<String>,
    variables: Vec<(String, String)>,
    data_dir: PathBuf,
}

impl Launch {
    /// On the embedded store in this folder.
    pub fn on_folder(data_dir: &Path) -> Launch {
        let store = vec!["--data-dir".to_owned(), data_dir.display().to_string()];
        let launch = Launch { store, serve: Vec::new(), variables: Vec::new(), data_dir: data_dir.to_owned() };
        let unlimited = ["read", "write", "search", "public"].map(|policy| format!("{policy}=100000000"));
        let launch = unlimited.iter().fold(launch, |launch, rate| launch.flag("--rate-limit", rate));
        launch.flag("--listen", "127.0.0.1:0").flag("--log-level", "warn")
    }

    /// On PostgreSQL, with the secrets in this folder.
    pub fn on_database(url: &str, data_dir: &Path) -> Launch {
        let mut launch = Launch::on_folder(data_dir);
        launch.store.extend(["--database-url".to_owned(), url.to_owned()]);
        launch
    }

    /// A flag of `serve`, beside what was said under the same name.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Launch {
        self.serve.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Logs more than warnings.
    #[must_use]
    pub fn logging(mut self, level: &str) -> Launch {
        if let Some(at) = self.serve.iter().position(|flag| flag == "--log-level") {
            level.clone_into(&mut self.serve[at + 1]);
        }
        self
    }

    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Launch {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn secrets_file(mut self, path: &Path) -> Launch {
        self.store.extend(["--secrets-file".to_owned(), path.display().to_string()]);
        self
    }

    /// Where the server keeps its secrets when it is not told otherwise.
    pub fn own_secrets_file(&self) -> PathBuf {
        self.data_dir.join("secrets.json")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(words).args(&self.store);
        // What the person who runs the tests has set is not meant for this server.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TENANT_CONTROL_")) {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().cloned());
        command
    }

    /// Starts the server without waiting for anything.
    pub fn spawn(&self) -> Process {
        let (mut process, stderr) = self.spawn_logging_to(Stdio::piped());
        process.stderr = Output::of(stderr.expect("its stderr"));
        process
    }

    /// The same with another place for the log, which nobody reads.
    pub fn spawn_logging_to(&self, log: Stdio) -> (Process, Option<ChildStderr>) {
        let mut command = self.command(&["serve"]);
        command.args(&self.serve).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("the binary starts");
        let stdout = Output::of(child.stdout.take().expect("its stdout"));
        let stderr = child.stderr.take();
        (Process { child, stdout, stderr: Output::of(std::io::empty()), address: None }, stderr)
    }

    /// Starts the server and returns when it serves.
    pub async fn start(&self) -> Process {
        let mut process = self.spawn();
        process.serves().await;
        process
    }

    /// Starts a server that is expected not to: its exit code and what it said.
    pub async fn refused(&self) -> (Option<i32>, String) {
        let mut process = self.spawn();
        let status = process.exit(START_MAX).await;
        (status.code(), process.stderr())
    }

    /// Runs a command of the binary to its end and returns what it printed.
    pub fn run(&self, words: &[&str]) -> Value {
        let output = self.command(words).arg("--json").output().expect("the command runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON on stdout")
    }

    /// Runs a command that must fail, and returns what it printed.
    pub fn fails(&self, words: &[&str]) -> String {
        let output = self.command(words).output().expect("the command runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.status.success(), "{words:?}: {said}");
        said
    }

    /// The cookie of the admin whom the first start has made.
    pub fn sign_in(&self) -> String {
        let made = self.run(&["admin", "session", "create", "--tenant", "default", "--email", "admin@localhost"]);
        made["cookie"].as_str().expect("a cookie").to_owned()
    }
}

/// A server that was started. It is killed when this value goes.
pub struct Process {
    child: Child,
    stdout: Output,
    stderr: Output,
    address: Option<SocketAddr>,
}

impl Process {
    /// Waits until it answers, which is after everything it does at its start.
    pub async fn serves(&mut self) {
        let address = until("the server says where it listens", START_MAX, async || self.announced()).await;
        self.address = Some(address);
        let api = self.api("");
        until("the server answers", START_MAX, async || (api.status("/healthz").await == Some(200)).then_some(()))
            .await;
    }

    fn announced(&mut self) -> Option<SocketAddr> {
        let exited = self.child.try_wait().expect("its state");
        assert!(exited.is_none(), "the server ended: {exited:?}\n{}", self.stderr());
        let stdout = self.stdout();
        let line = stdout.lines().find(|line| line.contains(" and is reached at "))?;
        let address = line.split(" listens on ").nth(1)?.split(' ').next()?;
        Some(address.parse().expect("an address"))
    }

    pub fn address(&self) -> SocketAddr {
        self.address.expect("a server that was waited for")
    }

    /// A client with this cookie.
    pub fn api(&self, cookie: &str) -> Api {
        Api::new(format!("http://{}", self.address()), cookie)
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// `kill -9`: the process gets no chance to do anything more.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn terminate(&self) {
        send_signal("TERM", self.child.id());
    }

    /// Stops every thread where it is, and returns when all of them stand still, also those that were waiting for
    /// the disk.
    pub async fn freeze(&self) {
        freeze(self.child.id()).await;
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        send_signal("CONT", self.child.id());
    }

    /// Waits for the end; everything that was printed has been read by then.
    pub async fn exit(&mut self, limit: Duration) -> ExitStatus {
        let status = until("the process ends", limit, async || self.child.try_wait().expect("its state")).await;
        self.stdout.finish();
        self.stderr.finish();
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let text = self.stderr();
            let tail: Vec<&str> = text.lines().rev().take(20).collect();
            say(&format!("the server's last words:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n")));
        }
    }
}

/// See [`Process::freeze`].
pub async fn freeze(id: u32) {
    send_signal("STOP", id);
    until("every thread stands still", START_MAX, async || all_stopped(id).then_some(())).await;
}

pub fn send_signal(name: &str, id: u32) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(id.to_string()).status().expect("the kill program");
    assert!(sent.success(), "kill -{name} {id}");
}

fn all_stopped(id: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).expect("the process's threads");
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses and may hold anything.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// What a test has to tell a person.
#[expect(clippy::print_stderr, reason = "shown when the test fails or is run with --no-capture")]
pub fn say(text: &str) {
    eprintln!("{text}");
}

/// What a process prints, read as it comes, so that the process never waits for a reader.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn of(mut stream: impl Read + Send + 'static) -> Output {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let read = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(count) = stream.read(&mut buffer)
                && count > 0
            {
                read.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Output { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn finish(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the output is read");
        }
    }
}
