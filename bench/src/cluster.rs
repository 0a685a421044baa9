//! A private PostgreSQL that waits for the disk, and goes away with this value.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::{Outcome, folder};

/// Nothing that makes a commit cheaper. Checkpoints are kept out, because they would hit either side by chance.
const CONFIG: &str = "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 100\nfsync = on\n\
    synchronous_commit = on\nfull_page_writes = on\ncheckpoint_timeout = 1h\nmax_wal_size = 16GB\n";

pub struct Cluster {
    folder: TempDir,
    bin: PathBuf,
    port: u16,
}

impl Cluster {
    pub const DATABASE: &str = "bench";

    pub fn start() -> Outcome<Self> {
        let bin = newest()?;
        let folder = folder()?;
        if is_root()? {
            run(Command::new("chown").arg("postgres").arg(folder.path()))?;
        }
        let mut cluster = Cluster { folder, bin, port: 0 };
        let data = cluster.data();
        run(cluster.command("initdb")?.arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        ]))?;
        cluster.port = free_port()?;
        run(cluster
            .command("pg_ctl")?
            .arg("-D")
            .arg(&data)
            .args(["-w", "-t", "60", "-o", &cluster.options(), "-l"])
            .arg(cluster.log())
            .arg("start"))?;
        cluster.psql("postgres", "postgres", "CREATE ROLE bench LOGIN NOSUPERUSER NOBYPASSRLS CREATEDB")?;
        cluster.psql(
            "bench",
            "postgres",
            &format!("CREATE DATABASE {DATABASE} TEMPLATE template0", DATABASE = Self::DATABASE),
        )?;
        Ok(cluster)
    }

    pub fn url(&self) -> String {
        format!("postgres://bench@127.0.0.1:{}/{}?sslmode=disable", self.port, Self::DATABASE)
    }

    /// Runs statements as the store's own role.
    pub fn sql(&self, sql: &str) -> Outcome {
        self.psql("bench", Self::DATABASE, sql)
    }

    /// pgbench with its connection set up; the caller says what to run.
    pub fn pgbench(&self) -> Outcome<Command> {
        let mut command = self.command("pgbench")?;
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "bench", "-n", "-M", "prepared"]);
        Ok(command)
    }

    fn psql(&self, role: &str, database: &str, sql: &str) -> Outcome {
        let port = self.port.to_string();
        let mut psql = self.command("psql")?;
        run(psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", &port, "-U", role, "-c", sql, database]))
    }

    /// initdb and the server refuse to run as root.
    fn command(&self, program: &str) -> Outcome<Command> {
        let program = self.bin.join(program);
        let mut command = if is_root()? {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        Ok(command)
    }

    /// A folder that the server's programs can read.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn options(&self) -> String {
        let settings = CONFIG.lines().filter_map(|line| line.split_once(" = "));
        let settings = settings.map(|(name, value)| format!("-c {name}={value}")).collect::<Vec<_>>();
        format!("-p {} {}", self.port, settings.join(" "))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Ok(mut stop) = self.command("pg_ctl") else { return };
        let _ = run(stop.arg("-D").arg(self.data()).args(["-m", "immediate", "-w", "stop"]));
    }
}

/// Runs it to its end and gives what it printed.
pub fn output(command: &mut Command) -> Outcome<String> {
    let done = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    Err(format!("{} failed: {}", command.get_program().display(), said.trim()).into())
}

/// A server that stays behind would keep the pipes of its starter open, so nothing is read from it.
fn run(command: &mut Command) -> Outcome {
    let status = command.stdout(Stdio::null()).stderr(Stdio::inherit()).status();
    let status = status.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed").into()) }
}

fn newest() -> Outcome<PathBuf> {
    let installed = Path::new("/usr/lib/postgresql");
    let mut found: Vec<PathBuf> = installed.read_dir()?.flatten().map(|entry| entry.path().join("bin")).collect();
    found.retain(|bin| bin.join("initdb").is_file());
    found.sort();
    found.pop().ok_or_else(|| "PostgreSQL is not installed: apt-get install postgresql".into())
}

fn is_root() -> Outcome<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

/// Free a moment ago, which is good enough for a benchmark.
fn free_port() -> Outcome<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
