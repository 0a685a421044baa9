//! An HTTP client that keeps its connection, and does so little that the server is what is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::PATH;
use crate::harness::Outcome;

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a str,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::with_capacity(1 << 16) })
    }

    pub async fn ask(&mut self, request: &str) -> Outcome<Answer<'_>> {
        let (status, body) = self.ask_bytes(request.as_bytes()).await?;
        Ok(Answer { status, body: std::str::from_utf8(body)? })
    }

    /// The same, where bodies need not be text.
    pub async fn ask_bytes(&mut self, request: &[u8]) -> Outcome<(u16, &[u8])> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let (head, length) = loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
            if let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.buffer[..end])?;
                break (end + 4, content_length(head)?);
            }
        };
        while self.buffer.len() < head + length {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("half an answer".into());
            }
        }
        let status = std::str::from_utf8(&self.buffer[..head])?.split_whitespace().nth(1).ok_or("no status")?;
        Ok((status.parse()?, &self.buffer[head..head + length]))
    }
}

fn content_length(head: &str) -> Outcome<usize> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    Ok(lengths.next().ok_or("an answer without a length")?.1.trim().parse()?)
}

pub fn get(key: &str, query: &str) -> String {
    format!("GET {PATH}?{query} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n")
}

pub fn post(key: &str, body: &str) -> String {
    post_to(PATH, key, body)
}

pub fn post_to(path: &str, key: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Sends `count` requests, numbered from `first`, over so many connections; how many were answered per second. Each must
/// make something.
pub async fn create_all(
    address: SocketAddr,
    connections: usize,
    first: usize,
    count: usize,
    request: impl Fn(usize) -> String + Send + Sync + 'static,
) -> Outcome<f64> {
    let (next, request) = (Arc::new(AtomicUsize::new(first)), Arc::new(request));
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    let started = Instant::now();
    let mut callers: JoinSet<Outcome> = JoinSet::new();
    for mut connection in open {
        let (next, request) = (next.clone(), request.clone());
        callers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= first + count {
                    return Ok(());
                }
                let answer = connection.ask(&request(n)).await?;
                if answer.status != 201 {
                    return Err(format!("{}: {}", answer.status, answer.body).into());
                }
            }
        });
    }
    for ended in callers.join_all().await {
        ended?;
    }
    Ok(f64::from(u32::try_from(count)?) / started.elapsed().as_secs_f64())
}
