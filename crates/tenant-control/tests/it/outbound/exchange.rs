//! What comes of a call to somebody who behaves, and to many who do not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Method;
use kernel::outbound::{FailureKind, Outbound, OutboundRequest};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::sync::mpsc;

use super::peer::{Peer, read_request};
use super::{PATIENCE, call, get, loopback};
use crate::support::process::until;

/// For calls that are meant to run out of time.
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_request_arrives_as_it_was_sent() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            while let Some(request) = read_request(&mut stream).await {
                tell.send(request).unwrap();
                let answer = b"HTTP/1.1 201 Created\r\nX-Answer: 42\r\nContent-Length: 5\r\n\r\nthere";
                stream.write_all(answer).await.unwrap();
            }
        }
    })
    .await;
    let mut request = get(&peer.url("/hooks//a/../b?x=1&y=%20"));
    request.method = Method::POST;
    request.body = Bytes::from_static(b"{\"hello\":\"there\"}");
    // The last four are not the sender's to say.
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-signature", "v1=abc"),
        ("host", "10.0.0.7"),
        ("content-length", "3"),
        ("transfer-encoding", "chunked"),
        ("connection", "upgrade"),
    ] {
        request.headers.insert(name, value.parse().unwrap());
    }
    let answer = call(request).await.unwrap();
    assert_eq!((answer.status, &*answer.body, answer.address), (201, &b"there"[..], peer.address));
    assert_eq!(answer.headers["x-answer"], "42");
    let timings = answer.timings;
    assert!(timings.resolve_ms.is_some() && timings.connect_ms.is_some() && timings.tls_ms.is_none(), "{timings:?}");
    assert!(timings.first_byte_ms.is_some_and(|first| first <= timings.total_ms), "{timings:?}");

    let arrived = told.recv().await.unwrap();
    let (head, body) = arrived.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /hooks//a/../b?x=1&y=%20 HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", peer.address);
    assert_eq!(lines, ["content-length: 17", "content-type: application/json", &host, "x-signature: v1=abc"]);
    assert_eq!(body, "{\"hello\":\"there\"}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_body_says_so_where_one_is_expected() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            while let Some(request) = read_request(&mut stream).await {
                tell.send(request).unwrap();
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            }
        }
    })
    .await;
    let target = format!("http://hooks.example.org.:{}?x", peer.address.port());
    for (method, wanted) in [(Method::GET, false), (Method::HEAD, false), (Method::POST, true), (Method::PUT, true)] {
        call(OutboundRequest { method: method.clone(), ..get(&target) }).await.unwrap();
        let arrived = told.recv().await.unwrap();
        assert!(arrived.starts_with(&format!("{method} /?x HTTP/1.1\r\n")), "{arrived}");
        assert_eq!(arrived.contains("\r\ncontent-length: 0\r\n"), wanted, "{arrived}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_read_up_to_the_limit() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789").await;
    for (body_max, wanted) in [(0, ""), (1, "0"), (9, "012345678"), (10, "0123456789"), (11, "0123456789")] {
        let answer = call(OutboundRequest { body_max, ..get(&peer.url("/")) }).await.unwrap();
        assert_eq!((answer.status, String::from_utf8(answer.body).unwrap().as_str()), (200, wanted), "{body_max}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_is_cut_and_its_connection_closed() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            let mut part: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
            while stream.write_all(part).await.is_ok() {
                part = &[b'x'; 8_192];
            }
            tell.send(()).unwrap();
        }
    })
    .await;
    let answer = call(OutboundRequest { body_max: 100_000, ..get(&peer.url("/")) }).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (200, 100_000));
    told.recv().await.expect("the peer cannot write any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_drips_runs_out_of_time_and_what_came_is_told() {
    let peer = Peer::start(|mut stream| async move {
        read_request(&mut stream).await;
        let mut part: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 1000000\r\n\r\n";
        while stream.write_all(part).await.is_ok() {
            part = b"x";
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // On a busy machine the time can be over before anything has come.
    let failure = until("an answer begins in time", PATIENCE, async || {
        let failure = call(OutboundRequest { timeout: SHORT, ..get(&peer.url("/")) }).await.expect_err("too slow");
        assert_eq!(failure.kind, FailureKind::Timeout, "{failure:?}");
        (!failure.body.is_empty()).then_some(failure)
    })
    .await;
    assert_eq!((failure.status, failure.address), (Some(202), Some(peer.address)));
    assert!(failure.body.iter().all(|byte| *byte == b'x'), "{failure:?}");
    assert_eq!(failure.detail, "the answer did not end within 300 ms");
    assert!(failure.timings.total_ms >= 300 && failure.timings.first_byte_ms.is_some(), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_runs_out_of_time() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let peer = Peer::start(move |stream| {
        kept.lock().unwrap().push(stream);
        async {}
    })
    .await;
    // By https it is the handshake that hangs; who was called is known all the same.
    for text in [peer.url("/"), peer.url("/").replace("http:", "https:")] {
        // On a busy machine the time can be over before there is a connection.
        let failure = until("a connection is made in time", PATIENCE, async || {
            let failure = call(OutboundRequest { timeout: SHORT, ..get(&text) }).await.expect_err("no answer");
            assert_eq!((failure.kind, failure.kind.as_str()), (FailureKind::Timeout, "timeout"), "{failure:?}");
            failure.timings.connect_ms.is_some().then_some(failure)
        })
        .await;
        assert_eq!((failure.address, failure.status), (Some(peer.address), None), "{text}");
        assert!(failure.timings.first_byte_ms.is_none(), "{failure:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_is_told_from_one_that_was_not_made() {
    let reset = Peer::start(|mut stream| async move {
        read_request(&mut stream).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let closed = Peer::answering_once(b"").await;
    let garbage = Peer::answering_once(b"SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
    let half = Peer::answering_once(b"HTTP/1.1 200 OK\r\nContent-").await;
    let two_lengths = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx";
    let confused = Peer::answering_once(two_lengths).await;
    let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1_000_000));
    let large = Peer::answering_once(large.leak().as_bytes()).await;
    for peer in [reset, closed, garbage, half, confused, large] {
        let failure = call(get(&peer.url("/"))).await.expect_err("broken");
        assert_eq!((failure.kind, failure.kind.as_str()), (FailureKind::Broken, "connection_broken"), "{failure:?}");
        assert_eq!((failure.address, failure.status), (Some(peer.address), None), "{failure:?}");
        assert!(!failure.detail.is_empty() && failure.timings.connect_ms.is_some(), "{failure:?}");
        assert_eq!(peer.accepted(), 1, "nothing is sent twice: {failure:?}");
    }

    // Bound, so that nobody else listens there meanwhile.
    let bound = TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let free = bound.local_addr().unwrap();
    let failure = call(get(&format!("http://{free}/"))).await.expect_err("nobody listens");
    assert_eq!((failure.kind, failure.address), (FailureKind::Connect, Some(free)), "{failure:?}");
    assert_eq!(failure.kind.as_str(), "connect_failed");
    assert!(failure.detail.starts_with(&format!("{free}: ")), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_tells_its_head_and_what_came() {
    for answer in [
        &b"HTTP/1.1 500 Oh\r\nRetry-After: 7\r\nContent-Length: 100\r\n\r\nfirst"[..],
        b"HTTP/1.1 500 Oh\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\nzz\r\n",
    ] {
        let peer = Peer::answering_once(answer).await;
        let failure = call(get(&peer.url("/"))).await.expect_err("broken off");
        assert_eq!((failure.kind, failure.status), (FailureKind::Broken, Some(500)), "{failure:?}");
        assert_eq!(failure.headers["retry-after"], "7");
        assert_eq!((&*failure.body, failure.address), (&b"first"[..], Some(peer.address)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_down_is_not_the_end_of_a_name() {
    let peer = Peer::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    // The name is 127.0.0.2 and 127.0.0.1, and only the second listens.
    let answer = call(get(&format!("http://two.example.org:{}/", peer.address.port()))).await.unwrap();
    assert_eq!((answer.status, answer.address), (204, peer.address));
}

/// In one thread, so that yielding to the connection's own task is enough for it to come to rest.
#[tokio::test]
async fn a_connection_is_used_again() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let outbound = Outbound::new(loopback()).unwrap();
    for (clone, fresh) in [(outbound.clone(), true), (outbound, false)] {
        let answer = clone.send_request(get(&peer.url("/"))).await.unwrap();
        assert_eq!((answer.status, &*answer.body, answer.address), (200, &b"ok"[..], peer.address));
        assert_eq!(answer.timings.connect_ms.is_some(), fresh, "{:?}", answer.timings);
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(peer.accepted(), 1);
}
