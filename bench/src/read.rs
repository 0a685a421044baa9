//! An authenticated read of the release binary, with its limiter and access log on, against a bare axum route that
//! answers a body of the same size. wrk asks both.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::bare_server::PATH;
use crate::cluster::output;
use crate::harness::{Outcome, folder, setting};
use crate::report::{Comparison, median};
use crate::server::{Server, cpu_seconds, get, make_key};

const AIM: f64 = 0.6;
const THREADS: &str = "2";
const CONNECTIONS: &str = "64";

pub fn run() -> Outcome {
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 7)?, setting("BENCH_SECONDS", 4)?);
    println!(
        "read: GET {PATH} by API key, wrk with {THREADS} threads and {CONNECTIONS} connections, {seconds} s a round"
    );
    let data = folder()?;
    let server = Server::start(data.path())?;
    let key = make_key(&server, data.path())?;
    let header = format!("Authorization: Bearer {key}");
    let answer = get(server.address, PATH, &format!("{header}\r\n"))?;
    if answer.status != 200 {
        return Err(format!("the read was refused: {}", answer.body).into());
    }
    let bare = Bare::start(answer.body.len())?;
    println!("  a body of {} bytes", answer.body.len());
    // Both warm up first.
    load(server.address, &header, 1)?;
    load(bare.address, &header, 1)?;
    let mut comparison = Comparison::new("reads/s", "server", "bare axum");
    let (mut our_cpu, mut their_cpu) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (theirs, cpu) = measure(bare.child.id(), bare.address, &header, seconds)?;
        their_cpu.push(cpu);
        let (ours, cpu) = measure(server.id(), server.address, &header, seconds)?;
        our_cpu.push(cpu);
        comparison.add(ours, theirs);
    }
    comparison.finish(AIM);
    // Other work on the machine changes this far less than the speed.
    println!("processor time per read: server {:.1} us, bare axum {:.1} us", median(our_cpu), median(their_cpu));
    drop(bare);
    server.stop()
}

/// Requests per second, and the microseconds of processor time that the process spent on each.
fn measure(process: u32, address: SocketAddr, header: &str, seconds: usize) -> Outcome<(f64, f64)> {
    let before = cpu_seconds(process)?;
    let speed = load(address, header, seconds)?;
    let requests = speed * f64::from(u32::try_from(seconds)?);
    Ok((speed, (cpu_seconds(process)? - before) / requests * 1e6))
}

/// Requests per second; an answer that is not 2xx ends the run.
fn load(address: SocketAddr, header: &str, seconds: usize) -> Outcome<f64> {
    let (duration, url) = (format!("{seconds}s"), format!("http://{address}{PATH}"));
    let arguments = ["-t", THREADS, "-c", CONNECTIONS, "-d", &duration, "-H", header, &url];
    let said = output(Command::new("wrk").args(arguments)).map_err(|error| format!("{error} (apt-get install wrk)"))?;
    if said.contains("Non-2xx") || said.contains("Socket errors") {
        return Err(format!("not every answer was good: {said}").into());
    }
    let speed = said.lines().find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok());
    speed.ok_or_else(|| format!("wrk did not say its speed: {said}").into())
}

/// The bare server as a process of its own, so that both sides have a runtime and a heap to themselves.
struct Bare {
    child: Child,
    address: SocketAddr,
}

impl Bare {
    fn start(bytes: usize) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.args(["bare-server", &bytes.to_string()]).stdout(Stdio::piped()).spawn()?;
        let mut bare = Bare { child, address: ([127, 0, 0, 1], 0).into() };
        let mut line = String::new();
        BufReader::new(bare.child.stdout.as_mut().ok_or("no stdout")?).read_line(&mut line)?;
        bare.address = line.trim().parse()?;
        Ok(bare)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
