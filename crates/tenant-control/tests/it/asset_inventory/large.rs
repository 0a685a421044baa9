//! Very large files: in bounded memory, and visibly broken when they break off.

use kernel::http::PAGE_BYTES_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{INVENTORY, bulk};
use crate::support::people::KEYS;
use crate::support::{Server, over_http};

/// Asks, and reads the head of the answer.
async fn ask(server: &Server, query: &str, credential: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // Small, so that it does not depend on the system how much is taken without being read.
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let head = format!("GET {INVENTORY}?{query} HTTP/1.1\r\nHost: a\r\n{credential}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the head of an answer"));
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
    stream
}

async fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    rest
}

/// The chunks of a body that has its end.
fn chunks(mut body: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    loop {
        let at = body.windows(2).position(|two| two == b"\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(str::from_utf8(&body[..at]).unwrap(), 16).expect("a size");
        let chunk = &body[at + 2..at + 2 + size];
        assert_eq!(&body[at + 2 + size..at + 4 + size], b"\r\n");
        body = &body[at + 4 + size..];
        if size == 0 {
            assert!(body.is_empty());
            return all;
        }
        all.push(chunk);
    }
}

/// What the last of the chunks is, if it came.
const END: &[u8] = b"\r\n0\r\n\r\n";

over_http! {
    async fn twenty_thousand_devices_go_out_a_page_at_a_time(server: Server) {
        let acme = server.tenant("acme").await;
        bulk::load(&server, &acme, 20_000, 10).await;
        let body = rest(ask(&server, "format=csv&fields=hostname,tags", &format!("Cookie: {}", acme.admin)).await).await;
        let chunks = chunks(&body);
        let largest = chunks.iter().map(|chunk| chunk.len()).max().unwrap();
        assert!(chunks.len() >= 20 && largest <= PAGE_BYTES_MAX, "{} chunks of up to {largest} bytes", chunks.len());
        let text = String::from_utf8(chunks.concat()).unwrap();
        let mut lines = text.split_terminator("\r\n");
        assert_eq!(lines.next(), Some("id,hostname,tags"));
        let found: Vec<&str> = lines.map(|line| line.split(',').nth(1).unwrap()).collect();
        assert!(found.iter().copied().eq((1..=20_000).rev().map(|n| format!("host-{n}"))), "{} devices", found.len());
    }

    /// Of all that is there, no more is read than the reader takes, and than is on its way.
    async fn a_key_that_is_revoked_meanwhile_gets_a_file_without_an_end(server: Server) {
        let acme = server.tenant("acme").await;
        let (count, bytes) = (2_000, 10_000);
        bulk::load(&server, &acme, count, bytes).await;
        for format in ["csv", "ndjson"] {
            let key = server.key(&acme, &["inventory:read"]).await;
            let stream = ask(&server, &format!("format={format}"), &format!("X-API-Key: {}", key.plain)).await;
            server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
            let broken = rest(stream).await;
            assert!(!broken.ends_with(END), "{format}: it looks whole");
            assert!(broken.windows(5).any(|seen| seen == b"host-"), "{format}: some of it came");
            let all = usize::try_from(count).unwrap() * bytes;
            assert!(broken.len() < all / 2, "{format}: {} bytes of {all}", broken.len());
        }
    }
}
