//! Whole lists as answers: in bounded memory, by the caller's rights at every page, and visibly broken when they break. The
//! route here is the test's own: numbers, as many and in as large pages as its parameters say.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use kernel::auth::Scope;
use kernel::base::{Error, Result, TenantId};
use kernel::http::{
    Access, Api, FromParams, PAGE_BYTES_MAX, Params, QueryParam, QueryString, RatePolicy, RowBatch, RowEncoding, Rules,
    Streamed, Streamer,
};
use kernel::{args, operations, rules};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::answers::{http2, request_as};
use crate::support::people::KEYS;
use crate::support::process::until;
use crate::support::{Server, Setup, over_http};

const PATH: &str = "/api/test/numbers";
const WAIT_MAX: Duration = Duration::from_mins(1);

rules! { Listing = Rules::new(RatePolicy::Read, &[Scope::TicketsRead]).or_export(); }

struct Numbers {
    format: Option<String>,
    pages: usize,
    page_bytes: usize,
    broken: usize,
}

/// No page has this number.
const NONE: usize = 1_000_000_000;

impl FromParams for Numbers {
    fn from_params(params: &mut Params) -> Result<Self> {
        let mut number = |name, about, default| params.take_number(QueryParam::new(name, about), 0..=NONE, default);
        Ok(Numbers {
            pages: number("pages", "Pages, of ten rows each.", 1)?,
            page_bytes: number("page_bytes", "Bytes of a page's rows together.", 0)?,
            broken: number("broken", "The page that cannot be read.", NONE)?,
            format: params.take_text(QueryParam::new("format", "As what."))?,
        })
    }
}

#[derive(Serialize)]
struct Number {
    number: i64,
    text: String,
}

/// How many pages were read for a tenant.
static PAGES_READ: LazyLock<Mutex<HashMap<TenantId, usize>>> = LazyLock::new(Mutex::default);

fn pages_read(tenant: TenantId) -> usize {
    PAGES_READ.lock().unwrap().get(&tenant).copied().unwrap_or(0)
}

/// Stream numbers
#[utoipa::path(get, path = PATH, tag = "Schema", operation_id = "test_numbers", params(QueryString<Numbers>))]
async fn numbers(caller: Access<Listing>, streamer: Streamer, query: QueryString<Numbers>) -> Result<Streamed> {
    let Numbers { format, pages, page_bytes, broken } = query.parse()?;
    let (db, tenant) = (caller.db(), caller.tenant_id());
    let encoding = match format.as_deref() {
        Some("csv") => RowEncoding::Csv {
            columns: vec!["number".into(), "text".into()],
            write: Box::new(|row: &Number, line| {
                line.push_plain(Some(row.number));
                line.push_text(&row.text);
            }),
        },
        _ => RowEncoding::Ndjson,
    };
    let read = move |place: Option<usize>| {
        let (db, page) = (db.clone(), place.unwrap_or(0));
        async move {
            *PAGES_READ.lock().unwrap().entry(tenant).or_default() += 1;
            if broken == page {
                return Err(Error::unavailable("the test says so"));
            }
            let sql = "SELECT CAST($2 AS BIGINT) + 1 WHERE CAST($1 AS TEXT) <> ''";
            let mut rows = Vec::new();
            for row in 0..10 {
                let number: i64 = db.get_one(sql, args![(page * 10 + row) as i64]).await?;
                rows.push(Number { number, text: "x".repeat(page_bytes / 10) });
            }
            Ok(RowBatch { rows, next: Some(page + 1).filter(|next| *next < pages) })
        }
    };
    streamer.stream_rows(caller, encoding, read).await
}

async fn start(mut setup: Setup) -> Server {
    setup.mount = |api: Api| api.add_tenant_routes(operations!(numbers));
    setup.start().await
}

/// Asks in HTTP/1.x and reads the head of the answer.
async fn ask(server: &Server, query: &str, credential: &str, version: &str) -> (TcpStream, String) {
    let socket = TcpSocket::new_v4().unwrap();
    // Small, so that it does not depend on the system how much is taken without being read.
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let head = format!("GET {PATH}?{query} HTTP/{version}\r\nHost: a\r\n{credential}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the head of an answer"));
    }
    (stream, String::from_utf8(head).unwrap())
}

fn cookie(cookie: &str) -> String {
    format!("Cookie: {cookie}")
}

/// Everything up to the end of the connection.
async fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    rest
}

/// What the last of the chunks is, if it came.
const END: &[u8] = b"\r\n0\r\n\r\n";

over_http! {
    async fn a_list_comes_whole_page_by_page(setup: Setup) {
        let server = start(setup).await;
        let acme = server.tenant("acme").await;
        let answer = server.get(format!("{PATH}?pages=30&format=ndjson")).cookie(&acme.admin).await;
        assert_eq!(answer.is(200).header("content-type"), "application/x-ndjson");
        assert_eq!((answer.remaining().0.as_str(), answer.header("cache-control")), ("export", "no-store"));
        let lines: Vec<serde_json::Value> =
            String::from_utf8(answer.body).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<i64> = lines.iter().map(|line| line["number"].as_i64().unwrap()).collect();
        assert_eq!(numbers, (1..=300).collect::<Vec<_>>(), "each once, in order");
        assert_eq!(pages_read(acme.tenant.id), 30);
        let answer = server.get(format!("{PATH}?pages=2&format=csv")).cookie(&acme.admin).await;
        assert_eq!(answer.is(200).header("content-type"), "text/csv; charset=utf-8");
        let rows = (1..=20).map(|number| format!("{number},\r\n")).collect::<Vec<_>>().concat();
        assert_eq!(String::from_utf8(answer.body).unwrap(), format!("number,text\r\n{rows}"));
    }

    async fn what_is_wrong_with_the_first_page_is_an_answer_like_any_other(setup: Setup) {
        let server = start(setup).await;
        let acme = server.tenant("acme").await;
        server.get(format!("{PATH}?broken=0")).cookie(&acme.admin).await.problem("unavailable");
        server.get(format!("{PATH}?nonsense=1")).cookie(&acme.admin).await.problem("unknown_parameter");
    }

    async fn a_file_that_breaks_off_never_looks_whole(setup: Setup) {
        let server = start(setup).await;
        let acme = server.tenant("acme").await;
        let (stream, head) = ask(&server, "pages=3", &cookie(&acme.admin), "1.1").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
        assert!(rest(stream).await.ends_with(END), "a whole one ends so");
        // So large that it is on its way before it breaks.
        let query = format!("pages=3&broken=2&page_bytes={}", PAGE_BYTES_MAX / 2);
        let (stream, head) = ask(&server, &query, &cookie(&acme.admin), "1.1").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let broken = rest(stream).await;
        assert!(!broken.ends_with(END) && broken.windows(12).any(|seen| seen == b"{\"number\":1,"), "some of it, and no end");
        // Compressed it is so small that there may be nothing of it at all.
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("GET {PATH}?{query} HTTP/1.1\r\nHost: a\r\nCookie: {}\r\nAccept-Encoding: gzip\r\n\r\n", acme.admin);
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(!rest(stream).await.ends_with(END));
        // Where the end of the connection is the end of the file, nothing could be told.
        let (_, head) = ask(&server, "pages=3", &cookie(&acme.admin), "1.0").await;
        assert!(head.contains(" 400 "), "{head}");
    }

    async fn a_stream_of_http2_that_breaks_off_is_reset(setup: Setup) {
        let server = start(setup).await;
        let acme = server.tenant("acme").await;
        let mut stream = http2(&server, 65_535).await;
        stream.write_all(&request_as(1, &format!("{PATH}?pages=3&broken=2"), &acme.admin)).await.unwrap();
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.expect("a frame");
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            stream.read_exact(&mut payload).await.expect("its payload");
            match (head[3], head[4], head[8]) {
                (0 | 1, flags, 1) => assert_eq!(flags & 1, 0, "this is not its end"),
                (3, _, 1) => break,
                _ => {}
            }
        }
    }

    async fn pages_are_read_when_those_before_them_are_taken(setup: Setup) {
        let server = start(setup).await;
        let acme = server.tenant("acme").await;
        let (pages, page_bytes) = (24, PAGE_BYTES_MAX / 4);
        let query = format!("pages={pages}&page_bytes={page_bytes}");
        let (mut stream, _) = ask(&server, &query, &cookie(&acme.admin), "1.1").await;
        // What connections and systems keep on the way.
        let on_the_way = 2 * 1024 * 1024;
        let mut part = vec![0; page_bytes];
        for taken in 1..pages {
            stream.read_exact(&mut part).await.expect("more of it");
            let read = pages_read(acme.tenant.id) * page_bytes;
            assert!(read <= taken * page_bytes + on_the_way, "{read} bytes are read when {taken} pages are taken");
        }
        assert!(rest(stream).await.ends_with(END));
        assert_eq!(pages_read(acme.tenant.id), pages);
    }

    async fn a_key_that_is_revoked_meanwhile_gets_no_more(setup: Setup) {
        let server = start(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["tickets:read"]).await;
        let query = format!("pages=1000&page_bytes={}", PAGE_BYTES_MAX / 2);
        let (stream, head) = ask(&server, &query, &format!("X-API-Key: {}", key.plain), "1.1").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        assert!(!rest(stream).await.ends_with(END));
        assert!(pages_read(acme.tenant.id) < 100, "{} pages", pages_read(acme.tenant.id));
    }

    async fn streams_count_among_the_answers_that_are_not_taken(setup: Setup) {
        let mut setup = setup;
        // An eighth is its tenant's, half of that one session's: two streams.
        setup.settings.admission.memory_bytes_max = 8 * 2 * 4 * PAGE_BYTES_MAX + 8 * PAGE_BYTES_MAX;
        let server = start(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let query = format!("pages=1000&page_bytes={}", PAGE_BYTES_MAX / 2);
        let open = async || ask(&server, &query, &cookie(&acme.admin), "1.1").await;
        let held = [open().await, open().await];
        assert!(held.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200")));
        let (_, head) = open().await;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        server.get(format!("{PATH}?pages=1")).cookie(&globex.admin).await.is(200);
    }

    async fn a_tenant_has_four_streams_at_once_and_their_places_again_when_they_end(setup: Setup) {
        let server = start(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        for _ in 0..6 {
            server.get(format!("{PATH}?pages=2")).cookie(&acme.admin).await.is(200);
        }
        let query = format!("pages=1000&page_bytes={}", PAGE_BYTES_MAX / 2);
        let open = async || ask(&server, &query, &cookie(&acme.admin), "1.1").await;
        let is_given = |(_, head): &(TcpStream, String)| head.starts_with("HTTP/1.1 200");
        let mut held = Vec::new();
        until("the places of those that were read are free", WAIT_MAX, async || {
            held.push(Some(open().await).filter(is_given)?);
            (held.len() == 4).then_some(())
        })
        .await;
        assert!(!is_given(&open().await), "a fifth");
        server.get(format!("{PATH}?pages=1")).cookie(&globex.admin).await.is(200);
        // Whoever goes away leaves its place.
        held.clear();
        until("there are four places again", WAIT_MAX, async || {
            held.push(Some(open().await).filter(is_given)?);
            (held.len() == 4).then_some(())
        })
        .await;
    }
}
