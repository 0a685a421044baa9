//! Bytes as no well-behaved client would send them.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::server::Server;

/// An answer as text: the head, and the body with its chunks joined.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Sends the bytes on a connection of their own and reads until the server closes it. Ask for `Connection: close`.
pub async fn send_raw(server: &Server, bytes: impl AsRef<[u8]>) -> RawAnswer {
    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    stream.write_all(bytes.as_ref()).await.expect("the request is sent");
    read_raw(&mut stream).await
}

pub async fn read_raw(stream: &mut TcpStream) -> RawAnswer {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut bytes)).await;
    // A server that refuses a body early may reset the connection after its answer.
    drop(read.expect("the server closes the connection"));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
    let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    RawAnswer { status, head: head.to_owned(), body: if chunked { joined(body) } else { body.to_owned() } }
}

fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(chunk) = rest.get(..size).filter(|_| size > 0) else { break };
        body.push_str(chunk);
        chunks = rest[size..].trim_start_matches("\r\n");
    }
    body
}

impl RawAnswer {
    pub fn has_header(&self, name: &str) -> bool {
        self.head.lines().any(|line| line.split_once(':').is_some_and(|(known, _)| known.eq_ignore_ascii_case(name)))
    }
}
