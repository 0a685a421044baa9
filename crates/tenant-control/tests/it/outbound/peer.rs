//! Somebody to call: a listener that treats each connection as the test says.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct Peer {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Peer {
    pub async fn start<F, D>(treat: F) -> Peer
    where
        F: Fn(TcpStream) -> D + Send + 'static,
        D: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, accepted) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = accepted.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(treat(stream));
            }
        });
        Peer { address, accepted }
    }

    /// Answers every request of every connection with these bytes, and leaves the connection open.
    pub async fn answering(answer: &'static str) -> Peer {
        Peer::start(move |mut stream| async move {
            while read_request(&mut stream).await.is_some() {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await
    }

    /// Answers the first request of each connection with these bytes and closes.
    pub async fn answering_once(answer: &'static [u8]) -> Peer {
        Peer::start(move |mut stream| async move {
            read_request(&mut stream).await;
            // The other side may have had enough.
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        })
        .await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// One request as text, head and body; `None` when the connection ends before it does.
pub async fn read_request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<String> {
    let mut text = String::new();
    let mut bytes = [0; 4_096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text);
            }
        }
        match stream.read(&mut bytes).await {
            Ok(count @ 1..) => text += std::str::from_utf8(&bytes[..count]).unwrap(),
            _ => return None,
        }
    }
}

/// Listens on loopback and answers nobody. A connection stays in its queue, so none can have been missed.
pub struct Trap {
    pub port: u16,
    listeners: Vec<StdListener>,
}

impl Trap {
    pub fn new() -> Trap {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Not every host has IPv6.
        let listeners: Vec<_> = [Ok(listener), StdListener::bind(("::1", port))].into_iter().flatten().collect();
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        Trap { port, listeners }
    }

    #[track_caller]
    pub fn caught_nobody(&self) {
        for listener in &self.listeners {
            let caught = listener.accept().map_err(|error| error.kind());
            assert_eq!(caught.err(), Some(std::io::ErrorKind::WouldBlock), "somebody called {listener:?}");
        }
    }
}
