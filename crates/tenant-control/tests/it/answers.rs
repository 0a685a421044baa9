//! What goes out: answers that are not read, connections on which nothing moves, waits for news.

use std::time::{Duration, Instant};

use futures_util::future::select_all;
use kernel::auth::Role;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::people::{KEYS, SESSION};
use crate::support::process::until;
use crate::support::{Server, Tenancy, over_http};

const TICKETS: &str = "/api/psa/tickets";
const DOCUMENT: &str = "/api/openapi.json";
const FEED: &str = "/api/admin/webhooks/events?view=feed&limit=200";
const WAIT_MAX: Duration = Duration::from_mins(1);
/// Sooner than a connection of HTTP/2 ends because its client does not answer pings.
const BEFORE_PINGS: Duration = Duration::from_secs(20);

/// Of which one tenant has an eighth. A page that is larger is given to one that has nothing unread, and nothing more.
const LESS_THAN_A_PAGE: usize = 8 * 500_000;

/// Tickets whose page does not fit into what the system keeps of an answer.
async fn fill(server: &Server, tenancy: &Tenancy) {
    let description = "x".repeat(64 * 1024);
    for n in 0..20 {
        let body = json!({"subject": format!("Large {n}"), "description": description});
        server.post(TICKETS).cookie(&tenancy.admin).json(&body).await.is(201);
    }
}

/// Asks for the whole page and does not read it.
async fn unread(server: &Server, tenancy: &Tenancy) -> TcpStream {
    unread_by(server, &format!("Cookie: {}", tenancy.admin)).await.expect("the answer has begun")
}

/// The same by a key.
async fn unread_by_key(server: &Server, key: &str) -> Option<TcpStream> {
    unread_by(server, &format!("X-API-Key: {key}")).await
}

/// None when it is refused because there is too much that is not read.
async fn unread_by(server: &Server, credential: &str) -> Option<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    // Small, so that it does not depend on the system how much is taken without being read.
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let head = format!(
        "GET {TICKETS}?limit=200 HTTP/1.1\r\nHost: {}\r\n{credential}\r\nConnection: close\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The answer has begun.
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    match &status {
        b"HTTP/1.1 200" => Some(stream),
        b"HTTP/1.1 503" => None,
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // One that was given up may end with a reset instead of an end.
    let _ = tokio::time::timeout(WAIT_MAX, stream.read_to_end(&mut rest)).await.expect("the connection ends");
    rest
}

/// A connection of HTTP/2, of whose streams none is sent more than `window` bytes before it asks for them.
pub async fn http2(server: &Server, window: u32) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let settings = frame(4, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
    stream.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat()).await.unwrap();
    stream
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn ping() -> Vec<u8> {
    frame(6, 0, 0, &[0; 8])
}

/// The whole of `GET http://a{path}`, on a stream of its own.
fn request(stream: u32, path: &str) -> Vec<u8> {
    frame(1, 5, stream, &head(path))
}

/// The same with a cookie.
pub fn request_as(stream: u32, path: &str, cookie: &str) -> Vec<u8> {
    let length = u8::try_from(cookie.len()).unwrap();
    frame(1, 5, stream, &[&head(path)[..], &[0x0f, 0x11, length], cookie.as_bytes()].concat())
}

/// Method and scheme by their numbers in the static table, path and authority by the numbers of their names.
fn head(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    [&[0x82, 0x86, 0x04, length][..], path.as_bytes(), &[0x01, 1, b'a']].concat()
}

/// Asks on a stream of its own, and reads up to the end of the answer. False when the connection ends before it.
async fn is_answered(connection: &mut TcpStream, stream: u32) -> bool {
    if connection.write_all(&request(stream, "/healthz")).await.is_err() {
        return false;
    }
    let mut head = [0; 9];
    while connection.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if connection.read_exact(&mut payload).await.is_err() {
            return false;
        }
        let (kind, flags, of) = (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        // Data or headers, with the sign that no more follow.
        if of == stream && kind <= 1 && flags & 1 == 1 {
            return true;
        }
    }
    false
}

/// Reads until the heads of so many answers have come, in whichever order.
pub async fn has_heads(connection: &mut TcpStream, mut count: usize) {
    while count > 0 {
        let (kind, ..) = next_frame(connection).await;
        count -= usize::from(kind == 1);
    }
}

/// The kind of the next frame, its stream, and what it holds.
async fn next_frame(connection: &mut TcpStream) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    let read = tokio::time::timeout(WAIT_MAX, connection.read_exact(&mut head)).await.expect("an answer");
    read.expect("the connection goes on");
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    connection.read_exact(&mut payload).await.unwrap();
    (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload)
}

/// Asks again and again on one connection, until another one that only shows to be there is closed, for which the time
/// is over later. None when the test itself was kept from asking for as long as a connection may be idle.
async fn outlives_an_idle_one(server: &Server, idle_max: Duration) -> Option<()> {
    let mut asked_at = Instant::now();
    let (mut used, mut idle) = (http2(server, 65_535).await, http2(server, 65_535).await);
    assert!(is_answered(&mut used, 1).await && is_answered(&mut idle, 1).await);
    let (mut reads, mut writes) = idle.into_split();
    let closed = tokio::spawn(async move { reads.read_to_end(&mut Vec::new()).await });
    let mut number = 1;
    let go_on = async || {
        number += 2;
        let was_closed = closed.is_finished();
        let asked_before = std::mem::replace(&mut asked_at, Instant::now());
        if !is_answered(&mut used, number).await {
            assert!(asked_before.elapsed() >= idle_max, "a connection that is used is kept");
            return Some(None);
        }
        // Who only shows to be there asks for nothing.
        drop(writes.write_all(&ping()).await);
        was_closed.then_some(Some(()))
    };
    until("the idle one is closed", BEFORE_PINGS, go_on).await
}

/// Reads a large answer in bursts, and slowly in all: how much came, and the longest time in which nothing was taken.
async fn read_in_bursts(stream: &mut TcpStream) -> (usize, Duration) {
    let mut burst = vec![0; 128 * 1024];
    let (mut taken, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
    loop {
        let mut filled = 0;
        while filled < burst.len() {
            match stream.read(&mut burst[filled..]).await {
                Ok(count @ 1..) => filled += count,
                _ => return (taken + filled, longest.max(last.elapsed())),
            }
        }
        taken += filled;
        longest = longest.max(std::mem::replace(&mut last, Instant::now()).elapsed());
        // Far from what the line could carry, and far above what is asked of the slowest.
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

async fn status_of(server: &Server, tenancy: &Tenancy) -> u16 {
    server.get(SESSION).cookie(&tenancy.admin).await.status
}

over_http! {
    async fn a_connection_that_is_not_read_is_closed(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.memory_bytes_max = LESS_THAN_A_PAGE;
        setup.settings.stall_timeout = Duration::from_millis(200);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        fill(&server, &acme).await;
        let mut stream = unread(&server, &acme).await;
        until("its memory is free", WAIT_MAX, async || (status_of(&server, &acme).await == 200).then_some(())).await;
        assert!(rest(&mut stream).await.len() < 900_000, "what was not sent in time is not sent");
    }

    async fn a_stream_of_http_2_that_is_not_read_is_given_up(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.memory_bytes_max = LESS_THAN_A_PAGE;
        let stall = Duration::from_millis(500);
        setup.settings.stall_timeout = stall;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        fill(&server, &acme).await;
        let mut stream = until("the answer keeps its memory", WAIT_MAX, async || {
            let asked_at = Instant::now();
            let mut stream = http2(&server, 0).await;
            stream.write_all(&request_as(1, TICKETS, &acme.admin)).await.unwrap();
            has_heads(&mut stream, 1).await;
            let kept = status_of(&server, &acme).await == 503;
            // A test that was itself kept from asking for so long finds the memory free, and begins again.
            assert!(kept || asked_at.elapsed() >= stall, "the memory is free before the answer is taken");
            kept.then_some(stream)
        })
        .await;
        until("the memory is free", WAIT_MAX, async || (status_of(&server, &acme).await == 200).then_some(())).await;
        let ended = tokio::time::timeout(BEFORE_PINGS, rest(&mut stream)).await;
        ended.expect("its connection is ended, which else could go on to collect what nobody reads");
    }

    async fn what_is_not_sent_again_over_http_2_has_no_length(server: Server) {
        let etag = server.get(DOCUMENT).await.is(200).header("etag").to_owned();
        let known = [&[0x0f, 0x1a, u8::try_from(etag.len()).unwrap()][..], etag.as_bytes()].concat();
        let mut stream = http2(&server, 65_535).await;
        let mut tells_length = async |number: u32, more: &[u8]| {
            let asked = frame(1, 5, number, &[&head(DOCUMENT)[..], more].concat());
            stream.write_all(&asked).await.unwrap();
            loop {
                let (kind, of, payload) = next_frame(&mut stream).await;
                if (kind, of) == (1, number) {
                    // A header that is not to be remembered, by the number of its name in the static table.
                    return (payload[0], payload.windows(2).any(|pair| pair == [0x0f, 0x0d]));
                }
            }
        };
        assert_eq!(tells_length(1, &[]).await, (0x88, true), "200, with a length");
        assert_eq!(tells_length(3, &known).await, (0x8b, false), "304, without");
    }

    async fn streams_that_take_nothing_keep_nobody_from_anything(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 4;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let mut streams = Vec::new();
        for unknown in [true, false] {
            let mut stream = http2(&server, 0).await;
            for number in 0..20 {
                let asked = match (unknown, number % 2) {
                    (true, 0) => request(2 * number + 1, "/"),
                    (true, _) => request(2 * number + 1, SESSION),
                    (false, _) => request_as(2 * number + 1, SESSION, &acme.admin),
                };
                stream.write_all(&asked).await.unwrap();
            }
            // Their heads tell that all have been answered; the bodies are never taken. The last alone would tell
            // nothing of those before it: what is shed is answered sooner than what is looked up.
            has_heads(&mut stream, 20).await;
            streams.push(stream);
        }
        for _ in 0..8 {
            assert_eq!(status_of(&server, &acme).await, 200);
            server.get(SESSION).await.problem("unauthenticated");
        }
    }

    async fn a_connection_that_is_read_slowly_is_not(setup: Setup) {
        let mut setup = setup;
        let stall = Duration::from_millis(200);
        setup.settings.stall_timeout = stall;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        fill(&server, &acme).await;
        until("the whole answer is taken", WAIT_MAX, async || {
            let started = Instant::now();
            let mut stream = unread(&server, &acme).await;
            let (taken, longest) = read_in_bursts(&mut stream).await;
            let whole = taken > 900_000;
            // A test that was itself kept from reading for about so long has not read slowly, and begins again.
            assert!(whole || longest >= stall / 2, "{taken}, and never nothing for longer than {longest:?}");
            assert!(!whole || started.elapsed() > stall, "it took longer in all than nothing may take");
            whole.then_some(())
        })
        .await;
    }

    async fn a_tenant_may_leave_only_so_much_unread(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.memory_bytes_max = 8 * 2_500_000;
        let server = setup.start().await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        fill(&server, &acme).await;
        fill(&server, &globex).await;
        let (key, third) = (server.key(&acme, &["tickets:read"]).await, server.user(&acme.tenant, Role::Admin).await);
        let page = async |cookie: &str| server.get(format!("{TICKETS}?limit=200")).cookie(cookie).await;
        let mut held = [unread(&server, &acme).await, unread_by_key(&server, &key.plain).await.expect("its own half")];
        page(&third).await.problem("unavailable");
        // What is small is still answered, and so is everybody else.
        for cookie in [&third, &acme.admin] {
            server.get(SESSION).cookie(cookie).await.is(200);
            server.post(TICKETS).cookie(cookie).json(&json!({"subject": "Small"})).await.is(201);
        }
        page(&globex.admin).await.is(200);
        rest(&mut held[0]).await;
        until("there is room again", WAIT_MAX, async || (page(&third).await.status == 200).then_some(())).await;
    }

    async fn a_key_that_reads_nothing_leaves_room_for_the_others_of_its_tenant(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.memory_bytes_max = 8 * 5_000_000;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        fill(&server, &acme).await;
        let (deaf, other) = (server.key(&acme, &["tickets:read"]).await, server.key(&acme, &["tickets:*"]).await);
        let mut held = Vec::new();
        while let Some(stream) = unread_by_key(&server, &deaf.plain).await {
            held.push(stream);
        }
        assert!((2..5).contains(&held.len()), "{}", held.len());
        let page = async |key: &str| server.get(format!("{TICKETS}?limit=200")).key(key).await;
        for _ in 0..3 {
            page(&other.plain).await.is(200);
            page(&deaf.plain).await.problem("unavailable");
        }
        server.post(TICKETS).key(&other.plain).json(&json!({"subject": "Small"})).await.is(201);
        server.delete(format!("{KEYS}?id={}", deaf.id)).cookie(&acme.admin).await.is(204);
    }

    async fn a_tenant_that_leaves_too_much_unread_is_given_nothing_more(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.memory_bytes_max = LESS_THAN_A_PAGE;
        let server = setup.start().await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        fill(&server, &acme).await;
        let key = server.key(&acme, &["tickets:read"]).await;
        let mut held = unread(&server, &acme).await;
        server.get(SESSION).cookie(&acme.admin).await.problem("unavailable");
        server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "Small"})).await.problem("unavailable");
        // The key that reads nothing can be revoked all the same.
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        server.get(SESSION).cookie(&globex.admin).await.is(200);
        rest(&mut held).await;
        until("there is room again", WAIT_MAX, async || (status_of(&server, &acme).await == 200).then_some(())).await;
    }

    async fn all_together_may_leave_only_so_much_unread(setup: Setup) {
        let mut setup = setup;
        // Two pages, of two tenants that have nothing else.
        setup.settings.admission.memory_bytes_max = 1_700_000;
        let server = setup.start().await;
        let [acme, globex, initech] = [server.tenant("acme").await, server.tenant("globex").await, server.tenant("initech").await];
        for tenancy in [&acme, &globex, &initech] {
            fill(&server, tenancy).await;
        }
        let page = async || server.get(format!("{TICKETS}?limit=200")).cookie(&initech.admin).await;
        let mut held = [unread(&server, &acme).await, unread(&server, &globex).await];
        page().await.problem("unavailable");
        server.get(SESSION).cookie(&initech.admin).await.is(200);
        server.post(TICKETS).cookie(&initech.admin).json(&json!({"subject": "Small"})).await.is(201);
        assert!(rest(&mut held[0]).await.len() > 900_000, "what was given is given whole");
        until("there is room again", WAIT_MAX, async || (page().await.status == 200).then_some(())).await;
    }

    async fn a_head_is_at_most_64_kib(server: Server) {
        let ask = async |bytes: usize| {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let head = format!("GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Long: {}", "a".repeat(bytes));
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(b"\r\n\r\n").await;
            String::from_utf8(rest(&mut stream).await).unwrap()
        };
        assert!(ask(40_000).await.starts_with("HTTP/1.1 200"));
        assert!(ask(70_000).await.starts_with("HTTP/1.1 431"));
    }

    async fn an_idle_connection_is_kept_longer_than_a_head_may_take(setup: Setup) {
        let mut setup = setup;
        setup.settings.header_timeout = Duration::from_millis(50);
        let server = setup.start().await;
        let ask = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
        let mut buffer = [0; 4096];
        // The first head must come in time, which a test that is kept from sending it misses.
        let mut kept = until("the first request is answered", WAIT_MAX, async || {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(ask.as_bytes()).await.ok()?;
            (stream.read(&mut buffer).await.ok()? > 0).then_some(stream)
        })
        .await;
        for _ in 0..2 {
            // When this one is closed, the time for a head is over for the other one, too.
            rest(&mut TcpStream::connect(server.address).await.unwrap()).await;
            kept.write_all(ask.as_bytes()).await.unwrap();
            assert!(kept.read(&mut buffer).await.unwrap() > 0);
        }
        // Of a head that has begun the rest must follow.
        kept.write_all(b"GET /healthz").await.unwrap();
        rest(&mut kept).await;
    }

    async fn an_idle_connection_is_closed_in_the_end(setup: Setup) {
        let mut setup = setup;
        setup.settings.keep_alive_timeout = Duration::from_millis(50);
        // So that it is not the time for a head that wakes it.
        setup.settings.header_timeout = 2 * WAIT_MAX;
        let server = setup.start().await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let answer = String::from_utf8(rest(&mut stream).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    async fn an_idle_connection_of_http_2_is_closed_in_the_end(setup: Setup) {
        let mut setup = setup;
        setup.settings.keep_alive_timeout = Duration::from_millis(50);
        setup.settings.header_timeout = 2 * WAIT_MAX;
        let server = setup.start().await;
        let mut stream = http2(&server, 65_535).await;
        let asked_at = Instant::now();
        assert!(is_answered(&mut stream, 1).await);
        let ended = tokio::time::timeout(BEFORE_PINGS, rest(&mut stream)).await;
        ended.expect("an idle connection is closed");
        assert!(asked_at.elapsed() >= Duration::from_millis(50), "and not before its time");
    }

    async fn a_connection_of_http_2_is_kept_while_it_is_used(setup: Setup) {
        let mut setup = setup;
        let idle_max = Duration::from_millis(300);
        setup.settings.keep_alive_timeout = idle_max;
        let server = setup.start().await;
        until("one is used all the time", WAIT_MAX, async || outlives_an_idle_one(&server, idle_max).await).await;
    }

    async fn readers_of_the_feed_keep_nobody_from_anything(setup: Setup) {
        let mut setup = setup;
        setup.settings.waits_per_credential_max = 2;
        setup.settings.waits_per_tenant_max = 3;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let one = server.key(&acme, &["webhooks:read", "api_keys:read"]).await;
        let other = server.key(&acme, &["webhooks:read", "api_keys:read"]).await;
        let beside = server.key(&acme, &["tickets:write"]).await;
        // Read up to here there is nothing new, and a reader waits.
        let read = server.get(FEED).key(&one.plain).await.ok(200);
        let feed = format!("{FEED}&cursor={}", read["next_cursor"].as_str().unwrap());
        let wait = |key: &str| server.get(&feed).key(key).into_future();
        // Of three the two that came first wait, and the third is told at once.
        let (refused, _, mut waiting) = select_all([wait(&one.plain), wait(&one.plain), wait(&one.plain)]).await;
        refused.problem("unavailable");
        let body = json!({"subject": "Beside readers"});
        server.post(TICKETS).key(&beside.plain).json(&body).await.is(201);
        // Another credential has places of its own, up to what the tenant has.
        waiting.extend([wait(&other.plain), wait(&other.plain)]);
        let (refused, _, waiting) = select_all(waiting).await;
        refused.problem("unavailable");
        assert_eq!(waiting.len(), 3);
        server.post(TICKETS).key(&one.plain).json(&body).await.problem("insufficient_scope");
    }
}
