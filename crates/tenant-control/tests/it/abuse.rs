//! What one client must not be able to do to the others: hold connections and places, burn time, fill the log.

use std::time::{Duration, Instant};

use kernel::base::SECOND_MS;
use kernel::http::RatePolicy;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::people::{KEYS, SESSION};
use crate::support::process::until;
use crate::support::raw::read_raw;
use crate::support::{Server, Setup, Tenancy, over_http};

const DOCUMENT: &str = "/api/openapi.json";
/// The start of every connection of HTTP/2, and an empty frame of settings.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Longer than anything here may take, and no reason to wait: what is closed is told at once.
const WAIT_MAX: Duration = Duration::from_secs(30);

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).await.expect("a connection")
}

/// Whether the server closed the connection, be it with or without a last word.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(WAIT_MAX, stream.read_to_end(&mut rest)).await.is_ok()
}

/// A request of which the body is awaited: the server has asked for it, and it does not come.
async fn stalled(server: &Server, tenancy: &Tenancy) -> TcpStream {
    begin(server, tenancy).await.expect("the body is asked for")
}

/// The same, or the error of a connection that ended before the head was there.
async fn begin(server: &Server, tenancy: &Tenancy) -> std::io::Result<TcpStream> {
    let mut stream = connect(server).await;
    let head = format!(
        "POST {KEYS} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\
         Expect: 100-continue\r\nConnection: close\r\n\r\n",
        server.address, tenancy.admin
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = [0; 25];
    stream.read_exact(&mut answer).await?;
    assert_eq!(std::str::from_utf8(&answer).unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    Ok(stream)
}

/// What a whole request body is, after [`stalled`].
fn whole_body() -> String {
    let body = json!({"name": "A", "scopes": ["*"]}).to_string();
    body.clone() + &" ".repeat(5000 - body.len())
}

/// A request whose body is awaited, and beside it one whose write is under way and has the only place. None when the
/// question whether it has it had the place itself at that moment.
async fn late_and_running(server: &Server, tenancy: &Tenancy) -> Option<(TcpStream, TcpStream)> {
    let (late, mut running) = (stalled(server, tenancy).await, stalled(server, tenancy).await);
    running.write_all(whole_body().as_bytes()).await.unwrap();
    // The write waits for the tenant's clock. An answer to it can only be that it was shed.
    let look = async || match server.get(SESSION).cookie(&tenancy.admin).await.status {
        503 => Some(true),
        _ => running.try_read(&mut [0]).is_ok().then_some(false),
    };
    until("the write has the only place", WAIT_MAX, look).await.then_some((late, running))
}

over_http! {
    async fn a_connection_that_asks_for_nothing_is_closed(setup: Setup) {
        let mut setup = setup;
        setup.settings.header_timeout = Duration::from_millis(100);
        let server = setup.start().await;
        let beginnings: [&[u8]; 7] =
            [b"", b"P", b"PRI * HTTP", HTTP2_PREFACE, b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n", b"\r\n"];
        for sent in beginnings {
            let mut stream = connect(&server).await;
            stream.write_all(sent).await.unwrap();
            assert!(is_closed(&mut stream).await, "{:?}", String::from_utf8_lossy(sent));
        }
    }

    async fn a_connection_whose_request_is_under_way_stays_open(setup: Setup) {
        let mut setup = setup;
        setup.settings.header_timeout = Duration::from_millis(100);
        setup.settings.body_timeout = Duration::from_millis(300);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        // The head must come in time, which a test that is kept from sending it misses.
        let mut late = until("the head comes", WAIT_MAX, async || begin(&server, &acme).await.ok()).await;
        assert_eq!(read_raw(&mut late).await.status, 408, "answered by the body's own time limit");
    }

    async fn one_address_cannot_take_all_connections(setup: Setup) {
        let mut setup = setup;
        setup.settings.connections_per_address_max = 2;
        let server = setup.start().await;
        let ask = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut stream = connect(&server).await;
            stream.write_all(ask.as_bytes()).await.unwrap();
            stream.read_u8().await.expect("an answer");
            held.push(stream);
        }
        assert!(is_closed(&mut connect(&server).await).await);
        let other = tokio::net::TcpSocket::new_v4().unwrap();
        other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = other.connect(server.address).await.unwrap();
        other.write_all(ask.as_bytes()).await.unwrap();
        other.read_u8().await.expect("another address is served");
        // A connection that ends makes room for the next, as soon as the server has seen its end.
        drop(held);
        let started = Instant::now();
        loop {
            let mut stream = connect(&server).await;
            let _ = stream.write_all(ask.as_bytes()).await;
            if stream.read_u8().await.is_ok() {
                break;
            }
            assert!(started.elapsed() < WAIT_MAX);
        }
    }

    async fn connections_of_a_trusted_proxy_are_not_counted(setup: Setup) {
        let mut setup = setup;
        setup.settings.connections_per_address_max = 0;
        setup.settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        let server = setup.start().await;
        server.get("/healthz").await.is(200);
    }

    async fn bodies_that_do_not_come_shed_nobody_else(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 4;
        let server = setup.start().await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let mut waiting = Vec::new();
        for _ in 0..10 {
            waiting.push(stalled(&server, &acme).await);
        }
        server.get(SESSION).cookie(&globex.admin).await.is(200);
        server.key(&globex, &["*"]).await;
    }

    async fn a_tenant_may_await_only_so_many_bodies(setup: Setup) {
        let mut setup = setup;
        // Of which one tenant has an eighth: two bodies of which nothing has come.
        setup.settings.admission.memory_bytes_max = 8 * 2 * 16 * 1024;
        let server = setup.start().await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let mut waiting = [stalled(&server, &acme).await, stalled(&server, &acme).await];
        let body = json!({"name": "A", "scopes": ["*"]});
        server.post(KEYS).cookie(&acme.admin).json(&body).await.problem("unavailable");
        server.post(KEYS).cookie(&globex.admin).json(&body).await.is(201);
        // The memory is free again with the end of the body.
        waiting[0].write_all(whole_body().as_bytes()).await.unwrap();
        assert_eq!(read_raw(&mut waiting[0]).await.status, 201);
        server.post(KEYS).cookie(&acme.admin).json(&body).await.is(201);
    }

    async fn a_body_whose_place_is_taken_meanwhile_is_shed(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 1;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let held = server.hold_writes(acme.tenant.id).await;
        let both = async || late_and_running(&server, &acme).await;
        let (mut late, mut running) = until("a write is under way", WAIT_MAX, both).await;
        late.write_all(whole_body().as_bytes()).await.unwrap();
        assert_eq!(read_raw(&mut late).await.status, 503);
        drop(held);
        assert_eq!(read_raw(&mut running).await.status, 201);
    }

    async fn a_body_that_dribbles_is_given_up_before_a_large_one_would_be(server: Server) {
        let acme = server.tenant("acme").await;
        let mut slow = stalled(&server, &acme).await;
        let started = Instant::now();
        assert_eq!(read_raw(&mut slow).await.status, 408);
        assert!(started.elapsed() < server.app.settings.body_timeout / 2, "{:?}", started.elapsed());
    }

    async fn a_query_of_many_names_is_refused_at_the_first(server: Server) {
        let names: Vec<String> = (0..10_000).map(|n| format!("a{n}")).collect();
        // What is slow by itself is slow each time; what the machine keeps waiting is not.
        until("it takes less than a second", WAIT_MAX, async || {
            let started = Instant::now();
            let answer = server.get(format!("{DOCUMENT}?{}", names.join("&"))).await;
            assert!(answer.problem("unknown_parameter")["detail"].as_str().unwrap().contains("a0"));
            (started.elapsed() < Duration::from_secs(1)).then_some(())
        })
        .await;
        let long = server.get(format!("{DOCUMENT}?{}%", "a".repeat(50_000))).await;
        assert!(long.problem("invalid_parameter").to_string().len() < 1000);
    }

    async fn readiness_is_asked_of_the_database_once_a_second(server: Server) {
        // Before the first look, so that by this clock no result is younger than it is.
        let asked = Instant::now();
        server.get("/readyz").await.is(200);
        server.app.store.close().await;
        let at_once = server.get("/readyz").await.status;
        assert!(at_once == 200 || asked.elapsed() >= Duration::from_secs(1), "the last result is shared");
        let told = async || (server.get("/readyz").await.status != 200).then_some(());
        until("a result is not shared for ever", WAIT_MAX, told).await;
    }

    async fn a_long_path_is_repeated_only_in_part(server: Server) {
        let path = format!("/{}", "a".repeat(10_000));
        let answer = server.get(&path).await.is(404).json();
        assert_eq!(answer["instance"], path[..512]);
    }

    async fn who_waits_as_long_as_told_is_served(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Read, 1);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        server.advance(10_001);
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        let refused = server.get(SESSION).cookie(&acme.admin).await;
        refused.problem("rate_limited");
        assert_eq!(refused.header("ratelimit"), "\"read\";r=0;t=50");
        let seconds: i64 = refused.header("retry-after").parse().unwrap();
        server.advance(seconds * SECOND_MS);
        server.get(SESSION).cookie(&acme.admin).await.is(200);
    }

    async fn a_member_that_stands_twice_is_refused(server: Server) {
        let acme = server.tenant("acme").await;
        let post = |body: &str| server.post(KEYS).cookie(&acme.admin).header("content-type", "application/json").body(body);
        let cases: [(&str, &[&str]); 5] = [
            (r#"{"name": "A", "scopes": ["*"], "name": "B"}"#, &["/name"]),
            (r#"{"name": "A", "scopes": ["*"], "n\u0061me": "A"}"#, &["/name"]),
            (r#"{"name": "A", "scopes": [0, {"x": 1, "x": 2}], "a/b": {"c~d": {}, "c~d": 1}}"#, &["/scopes/1/x", "/a~1b/c~0d"]),
            (r#"{"name": "A", "scopes": ["*"], "name": {"a": 1, "a": 1}}"#, &["/name/a", "/name"]),
            (r#"{"rotate": {"overlap_hours": 1, "overlap_hours": 2}}"#, &["/rotate/overlap_hours"]),
        ];
        for (body, pointers) in cases {
            let answer = post(body).await;
            assert_eq!(answer.pointers(), pointers, "{body}");
            let errors = answer.json()["errors"].clone();
            assert!(errors.as_array().unwrap().iter().all(|error| error["code"] == "duplicate_field"), "{errors}");
        }
        post(r#"{"name": "A", "name": "A""#).await.problem("malformed_json");
        post(r#"[{"name": "A", "name": "A"}]"#).await.pointers();
        // One name in two objects is no duplicate.
        let answer = post(r#"{"name": {"name": "A"}, "scopes": ["*"]}"#).await;
        assert_eq!(answer.json()["errors"][0]["code"], "wrong_type");
    }

    async fn a_body_made_to_cost_much_costs_little(server: Server) {
        let acme = server.tenant("acme").await;
        let post = |body: String| server.post(KEYS).cookie(&acme.admin).header("content-type", "application/json").body(body);
        let name = "a".repeat(500_000);
        let started = Instant::now();
        post(format!(r#"{{"{name}": [{}0]}}"#, "0,".repeat(200_000))).await.problem("invalid_fields");
        let duplicates = post(format!(r#"{{"{name}": {{{}"b": 0}}}}"#, r#""b": 0,"#.repeat(50_000))).await;
        assert!(duplicates.body.len() < 4_000_000, "{}", duplicates.body.len());
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_tell_each_other_only_of_addresses_that_have_used_much() {
    let mut setup = Setup::postgres().await;
    setup.settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
    let first = setup.start().await;
    let second = first.second_node().await;
    for n in 0..30 {
        first.get(DOCUMENT).header("x-forwarded-for", "192.0.2.1").await.is(200);
        first.get(DOCUMENT).header("x-forwarded-for", format!("198.51.100.{n}")).await.is(200);
    }
    for node in [&first, &second] {
        kernel::jobs::exchange_rate_counts(&node.app).await.unwrap();
    }
    let left = async |address: &str| second.get(DOCUMENT).header("x-forwarded-for", address).await.remaining().1;
    assert_eq!(left("192.0.2.1").await, 89, "a quarter of 120 is told");
    assert_eq!(left("198.51.100.1").await, 119, "a flood of addresses writes no row each");
}
