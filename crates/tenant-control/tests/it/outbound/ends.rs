//! An attempt ends in time, and leaves nothing open behind it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::Method;
use kernel::outbound::{
    Failure, FailureKind, NameSource, Outbound, OutboundRequest, OutboundResponse, OutboundSettings,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::peer::{Peer, read_request};
use super::{PATIENCE, get, loopback};
use crate::support::process::until;

/// For calls that are meant to run out of time.
const SHORT: Duration = Duration::from_millis(300);
/// Far sooner than a turn to look up a name is given up.
const PROMPT: Duration = Duration::from_secs(5);
/// Names that are looked up at once.
const TURNS: usize = 8;
/// More than two sockets ever hold.
const LARGE_BYTES: usize = 32 << 20;

fn send(outbound: &Outbound, request: OutboundRequest) -> JoinHandle<Result<OutboundResponse, Failure>> {
    let outbound = outbound.clone();
    tokio::spawn(async move { outbound.send_request(request).await })
}

/// In one thread, so that a request that was spawned has come as far as it can after yielding to it.
#[tokio::test]
async fn a_connection_that_is_made_for_the_next_request_gives_this_one_no_more_time() {
    // On a busy machine the time can be over before the second request is on its way.
    until("the second request is sent in time", PATIENCE, connection_for_the_next).await;
}

async fn connection_for_the_next() -> Option<()> {
    // Dropped with the test, however it ends: a thread that waits would keep the process.
    let (_silence, broken) = std::sync::mpsc::channel::<()>();
    let (broken, (asked, mut asking)) = (Mutex::new(broken), mpsc::unbounded_channel());
    let names = move |name: &str| {
        if name.starts_with("silent") {
            let _ = asked.send(());
            let _ = broken.lock().unwrap().recv();
        }
        vec![IpAddr::from([127, 0, 0, 1])]
    };
    let outbound = Outbound::new(OutboundSettings { names: NameSource::Table(Arc::new(names)), ..loopback() }).unwrap();
    let (arrived, mut arriving) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let told = go_on.clone();
    let peer = Peer::start(move |mut stream| {
        let (arrived, told) = (arrived.clone(), told.clone());
        async move {
            read_request(&mut stream).await;
            arrived.send(()).unwrap();
            told.notified().await;
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            // What comes next is taken and not answered.
            read_request(&mut stream).await;
            arrived.send(()).unwrap();
            read_request(&mut stream).await;
        }
    })
    .await;
    let url = format!("http://hooks.example.org:{}/", peer.address.port());
    let first = send(&outbound, get(&url));
    arriving.recv().await.unwrap();
    for number in 0..TURNS {
        send(&outbound, get(&format!("http://silent{number}.example.org/")));
    }
    for _ in 0..TURNS {
        asking.recv().await.unwrap();
    }
    // It waits for a turn to make a connection of its own, until that of the first is free.
    let start = Instant::now();
    let mut second = send(&outbound, OutboundRequest { timeout: SHORT, ..get(&url) });
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
    go_on.notify_one();
    assert_eq!(first.await.unwrap().unwrap().status, 204);
    tokio::select! {
        biased;
        _ = arriving.recv() => {}
        _ = &mut second => return None,
    }
    let failure = second.await.unwrap().expect_err("no answer");
    assert!(start.elapsed() < PROMPT, "{:?}: {failure:?}", start.elapsed());
    assert_eq!((failure.kind, failure.address), (FailureKind::Timeout, Some(peer.address)), "{failure:?}");
    assert_eq!((failure.timings.connect_ms, peer.accepted()), (None, 1), "{failure:?}");
    Some(())
}

/// Takes only the beginning of a request and answers with these bytes. When it is told to, it takes what else there is,
/// and tells how much came in all.
async fn reluctant(answer: &'static [u8], go_on: watch::Receiver<bool>) -> (Peer, mpsc::UnboundedReceiver<usize>) {
    let (tell, told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let (tell, mut go_on) = (tell.clone(), go_on.clone());
        async move {
            let mut part = vec![0; 8_192];
            let mut bytes = stream.read(&mut part).await.unwrap();
            stream.write_all(answer).await.unwrap();
            drop(go_on.wait_for(|go_on| *go_on).await);
            while let Ok(count @ 1..) = stream.read(&mut part).await {
                bytes += count;
            }
            let _ = tell.send(bytes);
        }
    })
    .await;
    (peer, told)
}

/// A client that never comes is a failure: then nobody tells how much came.
const TRIES_MAX: usize = 100;

fn large(peer: &Peer) -> OutboundRequest {
    OutboundRequest { method: Method::POST, body: Bytes::from(vec![b'x'; LARGE_BYTES]), ..get(&peer.url("/")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_not_taken_in_time_is_not_written_any_further() {
    let (tell, told) = watch::channel(false);
    let (peer, mut came) = reluctant(b"", told).await;
    let outbound = Outbound::new(loopback()).unwrap();
    // On a busy machine the time can be over before the peer is called, which then has nothing to tell.
    for _ in 0..TRIES_MAX {
        if peer.accepted() > 0 {
            break;
        }
        let failure =
            outbound.send_request(OutboundRequest { timeout: SHORT, ..large(&peer) }).await.expect_err("nobody reads");
        assert_eq!((failure.kind, failure.status), (FailureKind::Timeout, None), "{failure:?}");
    }
    assert!(peer.accepted() > 0, "the client has come");
    tell.send_replace(true);
    let bytes = came.recv().await.unwrap();
    assert!(bytes < LARGE_BYTES, "{bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_nobody_waits_for_is_not_written_any_further() {
    let (tell, told) = watch::channel(false);
    let (peer, mut came) = reluctant(b"", told).await;
    let outbound = Outbound::new(loopback()).unwrap();
    for _ in 0..TRIES_MAX {
        if peer.accepted() > 0 {
            break;
        }
        let given_up = tokio::time::timeout(SHORT, outbound.send_request(large(&peer))).await;
        assert!(given_up.is_err());
    }
    assert!(peer.accepted() > 0, "the client has come");
    tell.send_replace(true);
    let bytes = came.recv().await.unwrap();
    assert!(bytes < LARGE_BYTES, "{bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_before_its_request_was_taken_is_the_last_of_its_connection() {
    let (tell, told) = watch::channel(false);
    let (peer, mut came) = reluctant(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", told).await;
    let outbound = Outbound::new(loopback()).unwrap();
    for _ in 0..2 {
        let answer = outbound.send_request(large(&peer)).await.unwrap();
        assert_eq!((answer.status, &*answer.body), (200, &b"ok"[..]));
    }
    assert_eq!(peer.accepted(), 2);
    tell.send_replace(true);
    for _ in 0..2 {
        let bytes = came.recv().await.unwrap();
        assert!(bytes < LARGE_BYTES, "{bytes}");
    }
}
