//! A steady caller beside what goes wrong on the way out: a log that cannot be written, answers that nobody reads, heads
//! that do not end. Its tail against the same with nothing wrong, and how far the memory goes.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::percentile;
use crate::server::{Server, make_key_of, post};
use crate::tickets::client::{self, Connection};

/// A caller whose tail is no worse than this many times what it was.
const AIM: f64 = 2.0;
/// The steady caller asks this often.
const EVERY: Duration = Duration::from_millis(10);
/// Callers as fast as they can be, beside which the log is taken away.
const LOAD: usize = 4;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    LogGone,
    LogStalled,
    LogFull,
    Unread,
    Heads,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::None => "nothing wrong",
            Fault::LogGone => "the log's reader is gone",
            Fault::LogStalled => "the log's reader stalls",
            Fault::LogFull => "the log's disk is full",
            Fault::Unread => "answers are not read",
            Fault::Heads => "heads do not end",
        }
    }
}

/// `[log | answers]`: only these.
pub fn run(arguments: &[&str]) -> Outcome {
    let (seconds, clients) = (setting("BENCH_SECONDS", 20)?, setting("BENCH_CLIENTS", 500)?);
    let time = Duration::from_secs(seconds as u64);
    println!(
        "faults: a steady caller (a read and a ticket in turn, one every {EVERY:?}) for {seconds} s; beside {LOAD} fast \
         readers while the log fails, and beside {clients} connections that do not read, or do not end their heads"
    );
    let runtime = runtime()?;
    for (part, load, faults) in [
        ("log", LOAD, &[Fault::LogGone, Fault::LogStalled, Fault::LogFull][..]),
        ("answers", 0, &[Fault::Unread, Fault::Heads]),
    ] {
        if arguments.first().is_some_and(|wanted| *wanted != part) {
            continue;
        }
        let usual = measure(&runtime, Fault::None, load, clients, time)?;
        usual.tell(Fault::None);
        for fault in faults {
            let beside = measure(&runtime, *fault, load, clients, time)?;
            beside.tell(*fault);
            let ratio = beside.p99() / usual.p99();
            let verdict = if ratio <= AIM { "met" } else { "MISSED" };
            println!("  p99 {ratio:.2} times that with nothing wrong, aim at most {AIM} ({verdict})");
        }
    }
    Ok(())
}

struct Measured {
    delays_ms: Vec<f64>,
    refused: usize,
    resident_mb: f64,
}

impl Measured {
    fn p99(&self) -> f64 {
        percentile(self.delays_ms.clone(), 990)
    }

    fn tell(&self, fault: Fault) {
        let (p50, count) = (percentile(self.delays_ms.clone(), 500), self.delays_ms.len());
        println!(
            "{}: p50 {p50:.2} ms, p99 {:.2} ms of {count} answers, {} refused; resident memory at most {:.0} MB",
            fault.name(),
            self.p99(),
            self.refused,
            self.resident_mb,
        );
    }
}

fn measure(
    runtime: &tokio::runtime::Runtime,
    fault: Fault,
    load: usize,
    clients: usize,
    time: Duration,
) -> Outcome<Measured> {
    let data = folder()?;
    let mut server = match fault {
        Fault::LogGone | Fault::LogStalled => Server::start_logging_to(Stdio::piped(), data.path(), &[])?,
        Fault::LogFull => {
            let full = OpenOptions::new().write(true).open("/dev/full")?;
            Server::start_logging_to(full.into(), data.path(), &[])?
        }
        Fault::None | Fault::Unread | Fault::Heads => Server::start(data.path())?,
    };
    let (steady, other) = (make_key_of(&server, data.path(), "steady")?, make_key_of(&server, data.path(), "other")?);
    if fault == Fault::LogGone {
        server.drop_log();
    }
    if fault == Fault::Unread {
        let body = format!(r#"{{"subject":"Large","description":"{}"}}"#, "x".repeat(64 * 1024));
        for _ in 0..60 {
            post(server.address, "/api/psa/tickets", &other, &body)?;
        }
    }
    let measured = runtime.block_on(async {
        let mut beside = JoinSet::new();
        for _ in 0..load {
            beside.spawn(read_fast(server.address, other.clone()));
        }
        if fault == Fault::Unread || fault == Fault::Heads {
            let end = if fault == Fault::Unread {
                format!("Authorization: Bearer {other}\r\n\r\n")
            } else {
                "X-A: ".to_owned()
            };
            let request: Arc<str> = format!("GET /api/psa/tickets?limit=200 HTTP/1.1\r\nHost: bench\r\n{end}").into();
            for _ in 0..clients {
                beside.spawn(hold(server.address, request.clone()));
            }
        }
        be_steady(&server, &steady, time).await
    })?;
    server.stop()?;
    Ok(measured)
}

async fn be_steady(server: &Server, key: &str, time: Duration) -> Outcome<Measured> {
    let mut connection = Connection::open(server.address).await?;
    let read = format!("GET /api/auth/session HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n");
    let write = client::post(key, r#"{"subject":"Steady"}"#);
    let mut measured = Measured { delays_ms: Vec::new(), refused: 0, resident_mb: 0.0 };
    let (started, mut ticks) = (Instant::now(), tokio::time::interval(EVERY));
    while started.elapsed() < time {
        ticks.tick().await;
        let request = if measured.delays_ms.len().is_multiple_of(2) { &read } else { &write };
        let asked = Instant::now();
        let status = connection.ask(request).await?.status;
        measured.delays_ms.push(asked.elapsed().as_secs_f64() * 1_000.0);
        measured.refused += usize::from(status >= 400);
        if measured.delays_ms.len().is_multiple_of(20) {
            measured.resident_mb = measured.resident_mb.max(server.resident_mb()?);
        }
    }
    Ok(measured)
}

async fn read_fast(address: SocketAddr, key: String) -> Outcome {
    let mut connection = Connection::open(address).await?;
    let read = format!("GET /api/auth/session HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n");
    loop {
        connection.ask(&read).await?;
    }
}

/// How long somebody whose connection was closed waits before the next.
const AGAIN: Duration = Duration::from_millis(200);

/// Asks, takes nothing of the answer, and comes again when the server has had enough of it.
async fn hold(address: SocketAddr, request: Arc<str>) -> Outcome {
    loop {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        if let Ok(mut stream) = socket.connect(address).await {
            let _ = stream.write_all(request.as_bytes()).await;
            let _ = until_closed(&mut stream).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Looks for the end now and then: a byte at a time is as good as nothing.
async fn until_closed(stream: &mut TcpStream) -> Outcome {
    while stream.read(&mut [0; 1]).await? > 0 {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    Ok(())
}
