//! A quiet tenant beside 1, 2, 8 and 32 hostile ones, against the same tenant alone: how long it waits, and whether it is
//! ever refused. The hostile ones leave answers unread over HTTP/2, post reports over hundreds of connections, or upload
//! large bodies by the drop; each from an address of its own. Rate limits are lifted, which only helps the hostile.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{Outcome, folder, runtime, setting};
use crate::inventory::agent::{IngestKey, Run, request, strange_request};
use crate::report::percentile;
use crate::server::{Server, admin, make_key_of, post};
use crate::tickets::client::{self, Connection};

/// How many times as long the quiet tenant may wait.
const AIM: f64 = 3.0;
const TENANTS: [usize; 4] = [1, 2, 8, 32];
/// Between two requests of the quiet tenant.
const EVERY: Duration = Duration::from_millis(10);
/// The hostile connections are open and their requests under way by then.
const WARM: Duration = Duration::from_secs(2);
/// Of all hostile tenants together: half of what the server accepts.
const CONNECTIONS_MAX: usize = 4096;

#[derive(Clone, Copy)]
enum Attack {
    /// 3 connections of 190 streams each whose window is closed, with pages of 13 KB.
    Unread,
    /// 600 connections that post one report after the other.
    Reports,
    /// 4 connections that post machines with 1,000 packages each that nobody has heard of.
    Names,
    /// 32 bodies of 16 MiB that come by the drop, after a first half megabyte.
    Uploads,
}

impl Attack {
    fn name(self) -> &'static str {
        match self {
            Attack::Unread => "answers unread",
            Attack::Reports => "reports",
            Attack::Names => "new names",
            Attack::Uploads => "slow uploads",
        }
    }

    fn connections(self, tenants: usize) -> usize {
        match self {
            Attack::Unread => 3,
            Attack::Reports => 600.min(CONNECTIONS_MAX / tenants),
            Attack::Names => 4,
            Attack::Uploads => 32,
        }
    }
}

/// `[unread | reports | names | uploads]`: only this.
pub fn run(arguments: &[&str]) -> Outcome {
    let seconds = setting("BENCH_SECONDS", 8)?;
    let time = Duration::from_secs(u64::try_from(seconds)?);
    println!("hostile: a quiet tenant (a read and a ticket in turn, one every {EVERY:?}) for {seconds} s beside each");
    let data = folder()?;
    let server = Server::start(data.path())?;
    let quiet = make_key_of(&server, data.path(), "quiet")?;
    let mut hostile = Vec::new();
    for n in 0..TENANTS[TENANTS.len() - 1] {
        let slug = format!("hostile-{n}");
        let key = make_key_of(&server, data.path(), &slug)?;
        // Nine tickets are a page of 13 KB.
        let body = format!(r#"{{"subject":"Large","description":"{}"}}"#, "x".repeat(1_000));
        for _ in 0..9 {
            post(server.address, "/api/psa/tickets", &key, &body)?;
        }
        let ingest = IngestKey::read(&admin(data.path(), &["ingest-key", "create", "--tenant", &slug])?)?;
        let report = request(&ingest, Run { machine: n, state: 0, at: 0 })?;
        let from = Ipv4Addr::new(127, 0, 1, u8::try_from(n)?);
        hostile.push(Arc::new(HostileTenant { key, ingest, report, from, server: server.address }));
    }
    let runtime = runtime()?;
    let parts = [
        ("unread", Attack::Unread),
        ("reports", Attack::Reports),
        ("names", Attack::Names),
        ("uploads", Attack::Uploads),
    ];
    for (name, attack) in parts {
        if arguments.first().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let alone = runtime.block_on(measure(&server, &quiet, &[], attack, time))?;
        println!("{}: alone p50 {:.2} ms, p99 {:.2} ms", attack.name(), alone.p50(), alone.p99());
        for count in TENANTS {
            let beside = runtime.block_on(measure(&server, &quiet, &hostile[..count], attack, time))?;
            let ratio = beside.p99() / alone.p99();
            let verdict = if ratio <= AIM && beside.refused == 0 { "met" } else { "MISSED" };
            println!(
                "  beside {count:>2}: p50 {:.2} ms, p99 {:.2} ms, {ratio:.1} times as alone, {} refused; aim at most {AIM} \
                 and none ({verdict}); resident memory {:.0} MB",
                beside.p50(),
                beside.p99(),
                beside.refused,
                server.resident_mb()?,
            );
        }
    }
    server.stop()
}

struct Waits {
    ms: Vec<f64>,
    refused: usize,
}

impl Waits {
    fn p50(&self) -> f64 {
        percentile(self.ms.clone(), 500)
    }

    fn p99(&self) -> f64 {
        percentile(self.ms.clone(), 990)
    }
}

struct HostileTenant {
    key: String,
    ingest: IngestKey,
    report: Vec<u8>,
    from: Ipv4Addr,
    server: SocketAddr,
}

async fn measure(
    server: &Server,
    quiet: &str,
    hostile: &[Arc<HostileTenant>],
    attack: Attack,
    time: Duration,
) -> Outcome<Waits> {
    let mut load = JoinSet::new();
    for tenant in hostile {
        for _ in 0..attack.connections(hostile.len()) {
            load.spawn(be_hostile(tenant.clone(), attack));
        }
    }
    if !hostile.is_empty() {
        tokio::time::sleep(WARM).await;
    }
    let (address, key) = (server.address, quiet.to_owned());
    // On a thread of its own, so that it does not wait for the load's own client.
    let asked = std::thread::spawn(move || ask_quietly(address, &key, time));
    let waits = tokio::task::spawn_blocking(move || asked.join()).await?.map_err(|_| "the quiet client panicked")?;
    load.shutdown().await;
    waits
}

fn ask_quietly(address: SocketAddr, key: &str, time: Duration) -> Outcome<Waits> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = Connection::open(address).await?;
        let requests = [client::get(key, "limit=10"), client::post(key, r#"{"subject":"Quiet"}"#)];
        let mut waits = Waits { ms: Vec::new(), refused: 0 };
        let (started, mut ticks) = (Instant::now(), tokio::time::interval(EVERY));
        while started.elapsed() < time {
            ticks.tick().await;
            let asked = Instant::now();
            let status = connection.ask(&requests[waits.ms.len() % 2]).await?.status;
            waits.ms.push(asked.elapsed().as_secs_f64() * 1e3);
            waits.refused += usize::from(status >= 400);
        }
        Ok(waits)
    })
}

/// Goes on until it is stopped, with a new connection whenever the server has had enough of one.
async fn be_hostile(tenant: Arc<HostileTenant>, attack: Attack) {
    loop {
        let done: Outcome = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((tenant.from, 0).into())?;
            let stream = socket.connect(tenant.server).await?;
            match attack {
                Attack::Unread => leave_unread(stream, &tenant.key).await,
                Attack::Reports => post_reports(stream, &tenant.report).await,
                Attack::Names => post_names(stream, &tenant.ingest).await,
                Attack::Uploads => upload_slowly(stream, &tenant.report).await,
            }
        }
        .await;
        drop(done);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Asks on 190 streams of which none takes a byte.
async fn leave_unread(mut stream: TcpStream, key: &str) -> Outcome {
    const STREAMS: u32 = 190;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    // The setting of the first window, as none.
    stream.write_all(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])?).await?;
    let bearer = format!("Bearer {key}");
    let path = "/api/psa/tickets?limit=9";
    // GET and http by their numbers in the static table; path, authority and authorization by those of their names.
    let head = [
        &[0x82, 0x86, 0x04, u8::try_from(path.len())?],
        path.as_bytes(),
        &[0x01, 1, b'a', 0x0f, 0x08, u8::try_from(bearer.len())?],
        bearer.as_bytes(),
    ]
    .concat();
    for number in 0..STREAMS {
        stream.write_all(&frame(1, 5, 2 * number + 1, &head)?).await?;
    }
    while stream.read(&mut [0; 4096]).await? > 0 {}
    Ok(())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Outcome<Vec<u8>> {
    let length = u32::try_from(payload.len())?.to_be_bytes();
    Ok([&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat())
}

async fn post_reports(mut stream: TcpStream, report: &[u8]) -> Outcome {
    loop {
        stream.write_all(report).await?;
        if stream.read(&mut [0; 4096]).await? == 0 {
            return Ok(());
        }
    }
}

async fn post_names(mut stream: TcpStream, ingest: &IngestKey) -> Outcome {
    let from = stream.local_addr()?;
    for n in 0_usize.. {
        stream.write_all(&strange_request(ingest, &format!("m{}-{}-{n}", from.ip(), from.port()), 1_000)?).await?;
        if stream.read(&mut [0; 4096]).await? == 0 {
            break;
        }
    }
    Ok(())
}

/// The head of a report with another length, and a byte now and then.
async fn upload_slowly(mut stream: TcpStream, report: &[u8]) -> Outcome {
    let head = String::from_utf8_lossy(report);
    let head = head.split("Content-Length").next().ok_or("no head")?;
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n", 16 << 20).as_bytes()).await?;
    stream.write_all(&vec![0; 512 * 1024]).await?;
    loop {
        stream.write_all(&[0; 16]).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        if stream.try_read(&mut [0; 4096]).is_ok() {
            return Ok(());
        }
    }
}
