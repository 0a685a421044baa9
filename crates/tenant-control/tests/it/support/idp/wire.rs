//! How a provider hears and speaks: HTTP/1.1 by hand, one request on each connection.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::endpoints::answer;
use super::{Says, State};

/// Far more than a client of ours sends.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The connections are in a set of this task, so that they end with it.
pub(super) async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => drop(connections.spawn(serve(stream, state.clone()))),
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A whole request. Header names are in lower case.
pub(super) struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: HashMap<String, String>,
    pub body: String,
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read(&mut stream).await else { return };
    let says = {
        let mut dials = state.dials();
        dials.asked.push(format!("{} {}", request.method, request.path));
        dials.says.get(&request.path).cloned()
    };
    state.asked.notify_waiters();
    let bytes = match says {
        Some(Says::HangsUp) => return,
        Some(Says::Answer { status, headers, body }) => to_bytes(status, &headers, &body),
        Some(Says::Endless) => return endless(&mut stream).await,
        Some(Says::Hold(mut gate)) => {
            // A test that is over opens no gate.
            if gate.wait_for(|open| *open).await.is_err() {
                return;
            }
            answer(&request, &state)
        }
        None => answer(&request, &state),
    };
    // A client that goes away is no news.
    drop(stream.write_all(&bytes).await);
    drop(stream.shutdown().await);
}

async fn endless(stream: &mut BufReader<TcpStream>) {
    let chunk = vec![b' '; 0x10000];
    let mut sent = stream.write_all(b"HTTP/1.1 200 \r\nconnection: close\r\n\r\n").await;
    while sent.is_ok() {
        sent = stream.write_all(&chunk).await;
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_until(b'\n', &mut head).await.ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.trim_end().split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers: HashMap<String, String> =
        headers.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
    let length = headers.get("content-length").map_or(Some(0), |length| length.parse().ok())?;
    let mut body = vec![0; BODY_BYTES_MAX.min(length)];
    stream.read_exact(&mut body).await.ok()?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    Some(Request { method, path, query, headers, body: String::from_utf8(body).ok()? })
}

pub(super) fn to_bytes(status: u16, headers: &[(&'static str, String)], body: &[u8]) -> Vec<u8> {
    let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let (headers, length) = (headers.collect::<String>(), body.len());
    let head = format!("HTTP/1.1 {status} \r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}
