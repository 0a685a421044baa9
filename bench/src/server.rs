//! The release binary as a process of its own, on an embedded store, and a client that asks it one thing at a time.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::output;
use crate::harness::Outcome;

/// Longer than any start that is worth measuring.
const READY_MAX: Duration = Duration::from_mins(1);

/// A budget that no load here can use up.
const NO_LIMIT: &str = "1000000000000";

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// From the start of the process until /readyz answered 200.
    pub ready_after: Duration,
}

impl Server {
    pub fn start(data: &Path) -> Outcome<Self> {
        Server::start_with(data, &[])
    }

    /// Starts it with its access log on, into a file of the data folder.
    pub fn start_with(data: &Path, more: &[&str]) -> Outcome<Self> {
        Server::start_with_variables(data, more, &[])
    }

    /// The same, with these environment variables beside those of this process.
    pub fn start_with_variables(data: &Path, more: &[&str], variables: &[(&str, &str)]) -> Outcome<Self> {
        Server::start_process(File::create(log_path(data))?.into(), data, more, variables)
    }

    /// Starts it with its access log going there.
    pub fn start_logging_to(log: Stdio, data: &Path, more: &[&str]) -> Outcome<Self> {
        Server::start_process(log, data, more, &[])
    }

    fn start_process(log: Stdio, data: &Path, more: &[&str], variables: &[(&str, &str)]) -> Outcome<Self> {
        let mut command = Command::new(binary()?);
        command
            .envs(variables.iter().copied())
            .arg("serve")
            .arg("--data-dir")
            .arg(data)
            .args(["--listen", "127.0.0.1:0", "--log-level", "info"])
            .args(more);
        for policy in ["read", "write", "public", "export", "ingest"] {
            command.arg("--rate-limit").arg(format!("{policy}={NO_LIMIT}"));
        }
        let started = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut server = Server { child, address: ([127, 0, 0, 1], 0).into(), ready_after: Duration::ZERO };
        server.address = server.read_address().map_err(|error| {
            let log = std::fs::read_to_string(log_path(data)).unwrap_or_default();
            format!("the server did not start ({error}): {log}")
        })?;
        while get(server.address, "/readyz", "").map_or(0, |answer| answer.status) != 200 {
            if started.elapsed() > READY_MAX {
                return Err("the server did not become ready".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        server.ready_after = started.elapsed();
        Ok(server)
    }

    fn read_address(&mut self) -> Outcome<SocketAddr> {
        let stdout = self.child.stdout.as_mut().ok_or("no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let (_, rest) = line.split_once("listens on ").ok_or("no address")?;
        Ok(rest.split_whitespace().next().ok_or("no address")?.parse()?)
    }

    /// Resident memory in megabytes of a million bytes.
    pub fn resident_mb(&self) -> Outcome<f64> {
        self.memory_mb("VmRSS:")
    }

    /// The most that was resident since it was started, or since that was forgotten.
    pub fn peak_mb(&self) -> Outcome<f64> {
        self.memory_mb("VmHWM:")
    }

    pub fn forget_peak(&self) -> Outcome {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    fn memory_mb(&self, name: &str) -> Outcome<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name}"))?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib * 1024.0 / 1e6)
    }

    /// Takes the reader of its log away, if the log is a pipe.
    pub fn drop_log(&mut self) {
        drop(self.child.stderr.take());
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn stop(mut self) -> Outcome {
        output(Command::new("kill").arg(self.child.id().to_string()))?;
        self.child.wait()?;
        Ok(())
    }
}

/// What is left when a benchmark ends early.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_path(data: &Path) -> PathBuf {
    data.join("server.log")
}

/// Ticks per second in /proc, on every Linux that we know.
const TICKS: f64 = 100.0;

/// The processor time that a process has used.
pub fn cpu_seconds(process: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(')').ok_or("no process status")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS)
}

/// The binary of the same build.
fn binary() -> Outcome<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("tenant-control");
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} is missing: cargo build --release -p tenant-control -p bench", path.display()).into())
}

/// A tenant, and an API key of it with every scope.
pub fn make_key(server: &Server, data: &Path) -> Outcome<String> {
    make_key_of(server, data, "bench")
}

/// The same, for a tenant of this name.
pub fn make_key_of(server: &Server, data: &Path, slug: &str) -> Outcome<String> {
    make_tenant(server, data, &[], slug).map(|(_, key)| key)
}

/// The same, with the tenant's id before the key; `store` says where the records are if not in the data folder.
pub fn make_tenant(server: &Server, data: &Path, store: &[&str], slug: &str) -> Outcome<(String, String)> {
    make_tenant_by(server, data, store, slug, (&[], "*"))
}

/// A tenant of this name with an operator of the platform, and a key of theirs that may read the figures of all tenants.
pub fn make_operator_key(server: &Server, data: &Path, slug: &str) -> Outcome<String> {
    make_tenant_by(server, data, &[], slug, (&["--platform-operator"], "platform:read")).map(|(_, key)| key)
}

fn make_tenant_by(
    server: &Server,
    data: &Path,
    store: &[&str],
    slug: &str,
    (person, scope): (&[&str], &str),
) -> Outcome<(String, String)> {
    let whom = ["--tenant", slug, "--email", "bench@example.test"];
    let tenant = admin(data, &[&["tenant", "create", "--slug", slug, "--name", "Bench"], store].concat())?;
    admin(data, &[&["user", "create", "--role", "admin"], person, whom.as_slice(), store].concat())?;
    let session = admin(data, &[&["session", "create"], whom.as_slice(), store].concat())?;
    let cookie = session["cookie"].as_str().ok_or("no cookie")?;
    let body = format!(r#"{{"name":"bench","scopes":["{scope}"]}}"#);
    let made = post_as(server.address, "/api/admin/api-keys", &format!("Cookie: {cookie}"), &body)?;
    let record: Value = serde_json::from_str(&made.body)?;
    let key = record["key"].as_str().ok_or_else(|| format!("no key was made: {}", made.body))?;
    Ok((tenant["id"].as_str().ok_or("a tenant without an id")?.to_owned(), key.to_owned()))
}

pub fn admin(data: &Path, arguments: &[&str]) -> Outcome<Value> {
    let said = output(Command::new(binary()?).arg("admin").args(arguments).arg("--json").arg("--data-dir").arg(data))?;
    Ok(serde_json::from_str(&said)?)
}

pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// One GET on a connection of its own; `headers` are lines that end with CR LF.
pub fn get(address: SocketAddr, path: &str, headers: &str) -> Outcome<Answer> {
    ask(address, &format!("GET {path} HTTP/1.1\r\n{headers}"), "")
}

/// One POST of JSON by an API key, on a connection of its own.
pub fn post(address: SocketAddr, path: &str, key: &str, body: &str) -> Outcome<Answer> {
    post_as(address, path, &format!("Authorization: Bearer {key}"), body)
}

fn post_as(address: SocketAddr, path: &str, credential: &str, body: &str) -> Outcome<Answer> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\n{credential}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
    );
    ask(address, &head, body)
}

fn ask(address: SocketAddr, head: &str, body: &str) -> Outcome<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("{head}Host: {address}\r\nConnection: close\r\n\r\n{body}").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("half an answer")?;
    let status = head.split_whitespace().nth(1).ok_or("no status")?.parse()?;
    Ok(Answer { status, body: body.to_owned() })
}
