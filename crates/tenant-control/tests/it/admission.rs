//! Who can hold up whom: what one or two tenants do with their requests, bodies and answers keeps a third from nothing.

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::answers::{has_heads, http2, request_as};
use crate::support::devices::{Agent, Codec, INGEST, IngestKey, report, reported};
use crate::support::people::SESSION;
use crate::support::{Server, Tenancy, over_http};

const TICKETS: &str = "/api/psa/tickets";

/// A page of some 13 KB, which is nothing to speak of.
async fn fill(server: &Server, tenancy: &Tenancy) {
    for n in 0..4 {
        let body = json!({"subject": format!("Ticket {n}"), "description": "x".repeat(3_000)});
        server.post(TICKETS).cookie(&tenancy.admin).json(&body).await.is(201);
    }
}

/// Answers to so many requests on one connection, of which nothing is ever taken.
async fn leave_unread(server: &Server, tenancy: &Tenancy, count: u32) -> TcpStream {
    let mut stream = http2(server, 0).await;
    for number in 0..count {
        stream.write_all(&request_as(2 * number + 1, TICKETS, &tenancy.admin)).await.unwrap();
    }
    has_heads(&mut stream, count as usize).await;
    stream
}

/// A large body of which the first bytes have come, and which the server waits for.
async fn begin_upload(server: &Server, key: &IngestKey, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST {INGEST} HTTP/1.1\r\nHost: a\r\nAuthorization: {}\r\nContent-Type: application/x-compress-zlib\r\n\
         Content-Length: {bytes}\r\nExpect: 100-continue\r\n\r\n",
        key.basic()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&[0; 1024]).await.unwrap();
    stream
}

/// Reads and writes as somebody who notices nothing.
async fn is_undisturbed(server: &Server, quiet: &Tenancy) {
    for n in 0..8 {
        server.get(SESSION).cookie(&quiet.admin).await.is(200);
        server.get(TICKETS).cookie(&quiet.admin).await.is(200);
        server.post(TICKETS).cookie(&quiet.admin).json(&json!({"subject": format!("Quiet {n}")})).await.is(201);
    }
}

over_http! {
    async fn tenants_that_take_no_answers_shut_nobody_out(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 64;
        let server = setup.start().await;
        let (acme, globex, quiet) = (server.tenant("acme").await, server.tenant("globex").await, server.tenant("quiet").await);
        let mut held = Vec::new();
        for tenancy in [&acme, &globex] {
            fill(&server, tenancy).await;
            for _ in 0..3 {
                held.push(leave_unread(&server, tenancy, 100).await);
            }
        }
        is_undisturbed(&server, &quiet).await;
        drop(held);
    }

    async fn reports_that_wait_for_their_own_tenant_keep_nobody_else_waiting(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 160;
        let server = setup.start().await;
        let (acme, globex, quiet) = (server.tenant("acme").await, server.tenant("globex").await, server.tenant("quiet").await);
        let keys = [server.ingest_key(&acme).await, server.ingest_key(&globex).await];
        let own = server.ingest_key(&quiet).await;
        let agent = |n: usize| Agent::named(&format!("web{n:02}")).fusion();
        let calls = (0..60).map(|n| report(&server, &keys[n % 2], &agent(n)).into_future());
        let flood = join_all(calls);
        let beside = async {
            reported(&server, &own, &agent(99)).await;
            is_undisturbed(&server, &quiet).await;
        };
        let (answers, ()) = tokio::join!(flood, beside);
        let taken = answers.iter().filter(|answer| answer.status == 200).count();
        assert!(taken > 0, "those that fit are taken");
        assert!(answers.iter().all(|answer| [200, 503].contains(&answer.status)), "and the others told to come again");
    }

    async fn uploads_that_do_not_come_take_no_memory_from_others(server: Server) {
        let (acme, quiet) = (server.tenant("acme").await, server.tenant("quiet").await);
        let (key, own) = (server.ingest_key(&acme).await, server.ingest_key(&quiet).await);
        let mut held = Vec::new();
        // What they announce is more than there is for all.
        for _ in 0..32 {
            held.push(begin_upload(&server, &key, 16 * 1024 * 1024).await);
        }
        let mut large = Agent::named("db01").fusion();
        let end = large.plain.windows(10).position(|bytes| bytes == b"</REQUEST>").unwrap();
        large.plain.splice(end..end, std::iter::repeat_n(b' ', 3 * 1024 * 1024));
        reported(&server, &own, &large.packed(Codec::Plain)).await;
        reported(&server, &key, &Agent::named("web01").fusion()).await;
        drop(held);
    }
}
