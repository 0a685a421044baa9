//! The least that receives webhooks: connections are kept, a body is read whole, and the answer is 204. So little that
//! what is measured is the sender. Also the receivers that a sender must bear: one never answers, one drips.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Outcome, runtime};

/// How a request is answered.
pub enum Manner {
    Good,
    /// The connection stays open, and nothing comes.
    Silent,
    /// A long answer, a byte at a time.
    Dripping,
    /// The last of its connection.
    Text(String),
}

const GOOD: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const LONG: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n";
const DRIP_EVERY: Duration = Duration::from_millis(100);

/// A request, as far as receivers here look at it.
pub struct Received<'a> {
    pub path: &'a str,
    pub body: &'a str,
}

/// Opens a receiver on a port of its own. It serves until the runtime ends.
pub async fn open<R>(receive: R) -> Outcome<SocketAddr>
where
    R: Fn(Received<'_>) -> Manner + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let receive = receive.clone();
            // A connection that breaks is the sender's to notice.
            tokio::spawn(async move { serve(stream, receive).await });
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream, receive: impl Fn(Received<'_>) -> Manner) -> Outcome {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::with_capacity(4_096);
    loop {
        let read = read(&bytes)?.map(|(request, length)| (receive(request), length));
        let Some((manner, length)) = read else {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            continue;
        };
        bytes.drain(..length);
        match manner {
            Manner::Good => stream.write_all(GOOD).await?,
            Manner::Silent => std::future::pending().await,
            Manner::Dripping => drip(&mut stream).await?,
            Manner::Text(text) => {
                let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", text.len());
                return Ok(stream.write_all(format!("{head}{text}").as_bytes()).await?);
            }
        }
    }
}

/// A whole request at the start of what has come, and its length.
fn read(bytes: &[u8]) -> Outcome<Option<(Received<'_>, usize)>> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = str::from_utf8(&bytes[..head])?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    let end = head + 4 + length.transpose()?.unwrap_or(0);
    if bytes.len() < end {
        return Ok(None);
    }
    let path = text.split(' ').nth(1).ok_or("not a request")?;
    Ok(Some((Received { path, body: str::from_utf8(&bytes[head + 4..end])? }, end)))
}

async fn drip(stream: &mut TcpStream) -> Outcome {
    stream.write_all(LONG).await?;
    loop {
        stream.write_all(b".").await?;
        tokio::time::sleep(DRIP_EVERY).await;
    }
}

/// Where a sink in a process of its own tells what it has received, and from where on it counts anew.
pub const REPORT: &str = "/report";
pub const RESET: &str = "/reset";

#[derive(Clone, Copy)]
struct Count {
    received: usize,
    first: Instant,
    last: Instant,
}

/// Serves that many ports until the process is ended. The first line printed is their addresses.
pub fn run(ports: usize) -> Outcome {
    static COUNT: Mutex<Option<Count>> = Mutex::new(None);
    let receive = |request: Received<'_>| {
        let Ok(mut count) = COUNT.lock() else { return Manner::Silent };
        if request.path == RESET {
            *count = None;
        }
        if [REPORT, RESET].contains(&request.path) {
            let told = count.map(|count| (count.received, (count.last - count.first).as_micros()));
            let (received, us) = told.unwrap_or_default();
            return Manner::Text(format!("{received} {us}"));
        }
        let now = Instant::now();
        let known = count.unwrap_or(Count { received: 0, first: now, last: now });
        *count = Some(Count { received: known.received + 1, last: now, ..known });
        Manner::Good
    };
    runtime()?.block_on(async {
        let mut addresses = Vec::new();
        for _ in 0..ports {
            addresses.push(open(receive).await?.to_string());
        }
        println!("{}", addresses.join(" "));
        std::future::pending().await
    })
}
