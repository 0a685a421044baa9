//! The real binary: commands that end, and servers that run beside the test.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::process::{freeze, send_signal};

/// Longer than any command takes, so that one that hangs fails instead of blocking the others.
const PATIENCE: Duration = Duration::from_mins(1);

/// A folder of its own, in which the binary runs.
pub struct Desk {
    folder: TempDir,
    variables: HashMap<String, String>,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Desk {
    pub fn new() -> Desk {
        Desk { folder: TempDir::new().expect("a temporary folder"), variables: HashMap::new() }
    }

    /// With an empty store in its data directory.
    pub fn with_store() -> Desk {
        let desk = Desk::new();
        desk.json(&["migrate"]);
        desk
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), text).expect("the file is written");
        self.path(name)
    }

    /// An environment variable of everything that runs from now on.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.insert(name.to_owned(), value.into());
    }

    pub fn unset(&mut self, name: &str) {
        self.variables.remove(name);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenant-control"));
        command.args(arguments).current_dir(self.folder.path()).env_clear().envs(&self.variables);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        let mut child = self.command(arguments).spawn().expect("the binary starts");
        let (stdout, stderr) = (Lines::of(child.stdout.take()), Lines::of(child.stderr.take()));
        let code = ended(&mut child, [&stdout, &stderr]);
        let code = code.unwrap_or_else(|| panic!("{arguments:?} does not end: {}", stderr.text()));
        Ended { code, stdout: stdout.text(), stderr: stderr.text() }
    }

    /// Runs a line by a shell to its end.
    pub fn shell(&self, line: &str) -> Ended {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", line]).current_dir(self.folder.path()).env_clear().envs(&self.variables);
        let done = shell.stdin(Stdio::null()).output().expect("a shell");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: done.status.code().unwrap_or(-1), stdout: text(&done.stdout), stderr: text(&done.stderr) }
    }

    /// Begins a command, for a test that does something meanwhile.
    pub fn begin(&self, arguments: &[&str]) -> Running {
        let mut child = self.command(arguments).spawn().expect("the binary starts");
        let (stdout, stderr) = (Lines::of(child.stdout.take()), Lines::of(child.stderr.take()));
        Running { child, stdout, stderr }
    }

    /// Runs a command that must succeed, and reads its JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{arguments:?}");
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
    }

    /// Starts `serve` on a free port with these flags besides, and returns when it listens.
    #[track_caller]
    pub fn serve(&self, flags: &[&str]) -> Process {
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], flags].concat();
        self.start(&arguments)
    }

    /// Starts a server by these very arguments.
    #[track_caller]
    pub fn start(&self, arguments: &[&str]) -> Process {
        let mut child = self.command(arguments).spawn().expect("the binary starts");
        let (stdout, stderr) = (Lines::of(child.stdout.take()), Lines::of(child.stderr.take()));
        let Some(line) = stdout.wait_for(|line| line.contains(" listens on ")) else {
            panic!("{arguments:?} did not start: {}{}", stdout.text(), stderr.text());
        };
        let word = |after: &str| {
            line.split_once(after).and_then(|(_, rest)| rest.split(' ').next()).expect("a word").to_owned()
        };
        let address = word(" listens on ").parse().expect("an address");
        Process { child, address, base_url: word(" is reached at "), stdout, stderr }
    }

    /// What is in the data directory, sorted.
    pub fn data_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("data")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// A command that may not have ended yet. It is killed with this value.
pub struct Running {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Running {
    /// The first line on stderr that has this in it, as soon as it is there.
    #[track_caller]
    pub fn warns(&self, text: &str) -> String {
        let found = self.stderr.wait_for(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("{text:?} is not in {}", self.stderr.text()))
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ends(mut self) -> Ended {
        let code = ended(&mut self.child, [&self.stdout, &self.stderr]).expect("the command ends");
        Ended { code, stdout: self.stdout.text(), stderr: self.stderr.text() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The whole outcome in one text, to be compared with what it should be. What differs from run to run is masked.
    pub fn shown(&self, desk: &Desk) -> String {
        let mut text = format!("exit {}\n", self.code);
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !stream.is_empty() {
                let _ = write!(text, "{name}:\n{stream}");
            }
        }
        masked(&text.replace(&*desk.folder.path().to_string_lossy(), "DESK"))
    }
}

/// Ids, times and tokens replaced by what they are.
pub fn masked(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |len| start + len);
        shown.push_str(&rest[..start]);
        shown.push_str(&masked_word(&rest[start..end], shown.ends_with('=')));
        rest = &rest[end..];
    }
    shown + rest
}

fn masked_word(word: &str, is_value: bool) -> String {
    let (bare, dot) = word.strip_suffix('.').map_or((word, ""), |bare| (bare, "."));
    let is_time = bare.len() == 24 && bare.ends_with('Z') && bare.as_bytes()[10] == b'T';
    match bare.split_once('_') {
        Some((kind, id)) if kind.len() == 3 && id.len() == 26 && !is_value => format!("{kind}_ID{dot}"),
        _ if is_time => format!("TIME{dot}"),
        _ if is_value && bare.len() == 43 => format!("TOKEN{dot}"),
        _ => word.to_owned(),
    }
}

/// A server of its own process. It is killed with this value.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
    pub base_url: String,
    stdout: Lines,
    stderr: Lines,
}

impl Process {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The first line on stdout that has this in it, as soon as it is there.
    #[track_caller]
    pub fn says(&self, text: &str) -> String {
        self.stdout
            .wait_for(|line| line.contains(text))
            .unwrap_or_else(|| panic!("{text:?} is not in {}", self.stdout.text()))
    }

    /// All that it has logged so far.
    pub fn log_text(&self) -> String {
        self.stderr.text()
    }

    /// The first log line that has all of these in it, as soon as it is there.
    #[track_caller]
    pub fn logs(&self, texts: &[&str]) -> String {
        let found = self.stderr.wait_for(|line| texts.iter().all(|text| line.contains(text)));
        found.unwrap_or_else(|| panic!("{texts:?} is not in {}", self.stderr.text()))
    }

    /// Stops every thread where it is.
    pub async fn freeze(&self) {
        freeze(self.child.id()).await;
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        send_signal("CONT", self.child.id());
    }

    /// Asks it to stop, as an operator does, and tells all that it printed.
    #[track_caller]
    pub fn stop(mut self) -> Ended {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
        assert!(told.success(), "the server is gone already: {}", self.stderr.text());
        let code = ended(&mut self.child, [&self.stdout, &self.stderr]).expect("a server that was told to stop ends");
        Ended { code, stdout: self.stdout.text(), stderr: self.stderr.text() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit code, once the process has closed both streams; a process that does not is killed.
fn ended(child: &mut Child, streams: [&Lines; 2]) -> Option<i32> {
    if !streams.iter().all(|stream| stream.wait_for_end()) {
        let _ = child.kill();
        return None;
    }
    Some(child.wait().expect("a child").code().unwrap_or(-1))
}

/// What a process has printed so far, read by a thread of its own.
#[derive(Clone)]
struct Lines(Arc<(Mutex<Printed>, Condvar)>);

#[derive(Default)]
struct Printed {
    lines: Vec<String>,
    is_closed: bool,
}

impl Lines {
    fn of(stream: Option<impl Read + Send + 'static>) -> Lines {
        let lines = Lines(Arc::default());
        let (filled, stream) = (lines.clone(), stream.expect("a pipe"));
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut bytes = Vec::new();
            while reader.read_until(b'\n', &mut bytes).is_ok_and(|len| len > 0) {
                let line = String::from_utf8_lossy(&bytes).into_owned();
                filled.change(|printed| printed.lines.push(line));
                bytes.clear();
            }
            filled.change(|printed| printed.is_closed = true);
        });
        lines
    }

    fn change(&self, change: impl FnOnce(&mut Printed)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn wait_while(&self, waits: impl Fn(&Printed) -> bool) -> MutexGuard<'_, Printed> {
        let printed = self.0.0.lock().unwrap();
        self.0.1.wait_timeout_while(printed, PATIENCE, |printed| waits(printed)).unwrap().0
    }

    fn wait_for(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let find = |printed: &Printed| printed.lines.iter().find(|line| wanted(line)).cloned();
        let printed = self.wait_while(|printed| find(printed).is_none() && !printed.is_closed);
        find(&printed).map(|line| line.trim_end().to_owned())
    }

    fn wait_for_end(&self) -> bool {
        self.wait_while(|printed| !printed.is_closed).is_closed
    }

    fn text(&self) -> String {
        self.0.0.lock().unwrap().lines.concat()
    }
}

/// The permission bits of a file.
pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o777
}

pub fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}
