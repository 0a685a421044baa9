//! Bodies: their type, size and syntax, and every bad field named at once.

use kernel::http::BODY_BYTES_MAX;
use serde_json::{Value, json};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::people::{KEYS, SESSION};
use crate::support::{Server, Tenancy, over_http, send_raw};

/// A body of exactly this many bytes that is otherwise right.
fn sized(bytes: usize) -> String {
    let body = json!({"name": "A", "scopes": ["*"]}).to_string();
    body.clone() + &" ".repeat(bytes - body.len())
}

fn head(server: &Server, tenancy: &Tenancy, more: &str) -> String {
    let (address, cookie) = (server.address, &tenancy.admin);
    format!(
        "POST {KEYS} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nContent-Type: application/json\r\n\
         Connection: close\r\n{more}\r\n"
    )
}

/// A head that is refused before its body is looked at, of a connection that is to go on.
fn refused(server: &Server, bytes: usize, more: &str) -> String {
    let address = server.address;
    format!("POST {KEYS} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {bytes}\r\n{more}\r\n")
}

/// The head of the next answer on a connection, and what follows it.
async fn answer(stream: &mut TcpStream) -> String {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).await.expect("an answer");
        assert!(count > 0, "the connection ended: {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&piece[..count]);
        let shown = String::from_utf8_lossy(&text).to_lowercase();
        let Some((head, body)) = shown.split_once("\r\n\r\n") else { continue };
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        if length.and_then(|length| length.parse().ok()) == Some(body.len()) {
            return head.to_owned();
        }
    }
}

over_http! {
    async fn a_refusal_leaves_the_connection_to_the_next_request_or_says_that_it_ends(server: Server) {
        let acme = server.tenant("acme").await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        for _ in 0..20 {
            // In two writes, as many clients send it; the answer waits for the second.
            stream.write_all(refused(&server, 10, "").as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
            stream.write_all(b"0123456789").await.unwrap();
            let head = answer(&mut stream).await;
            assert!(head.starts_with("http/1.1 401") && !head.contains("connection: close"), "{head}");
        }
        let good = format!("GET {SESSION} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n", server.address, acme.admin);
        stream.write_all(good.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.starts_with("http/1.1 200"));
        // More than anybody would take, and what waits to be told to go on.
        for (bytes, more) in [(BODY_BYTES_MAX + 1, ""), (10, "Expect: 100-continue\r\n")] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(refused(&server, bytes, more).as_bytes()).await.unwrap();
            let head = answer(&mut stream).await;
            assert!(head.starts_with("http/1.1 401") && head.contains("connection: close"), "{head}");
        }
    }

    async fn a_body_needs_the_type_of_json(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "A", "scopes": ["*"]}).to_string();
        let post = || server.post(KEYS).cookie(&acme.admin).body(body.clone());
        post().await.problem("unsupported_media_type");
        for kind in ["", "text/plain", "application/xml", "text/json", "application/jsonp", "application/json; charset=latin1",
            "application/x-www-form-urlencoded", "multipart/form-data", "application/json, text/plain"]
        {
            post().header("content-type", kind).await.problem("unsupported_media_type");
        }
        post().header("content-type", "application/json").header("content-type", "application/json").await
            .problem("unsupported_media_type");
        post().header("content-type", "application/json").header("content-encoding", "gzip").await
            .problem("unsupported_media_type");
        for kind in ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;charset=\"UTF-8\""] {
            post().header("content-type", kind).await.is(201);
        }
    }

    async fn a_body_has_at_most_one_mebibyte(server: Server) {
        let acme = server.tenant("acme").await;
        let post = || server.post(KEYS).cookie(&acme.admin).header("content-type", "application/json");
        post().body(sized(BODY_BYTES_MAX)).await.is(201);
        post().body(sized(BODY_BYTES_MAX + 1)).await.problem("payload_too_large");
    }

    async fn a_body_without_a_length_has_the_same_limit(server: Server) {
        let acme = server.tenant("acme").await;
        let chunked = |bytes: usize| {
            let mut request = head(&server, &acme, "Transfer-Encoding: chunked\r\n");
            for chunk in sized(bytes).as_bytes().chunks(100_000) {
                let text = std::str::from_utf8(chunk).unwrap();
                request.extend([&format!("{:x}\r\n", chunk.len()), text, "\r\n"]);
            }
            request + "0\r\n\r\n"
        };
        assert_eq!(send_raw(&server, chunked(BODY_BYTES_MAX)).await.status, 201);
        let refused = send_raw(&server, chunked(BODY_BYTES_MAX + 1)).await;
        assert_eq!(refused.status, 413, "{refused:?}");
        assert!(refused.body.contains("payload_too_large"), "{refused:?}");
    }

    async fn a_body_that_ends_early_has_no_effect(server: Server) {
        let acme = server.tenant("acme").await;
        let body = sized(200);
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let request = head(&server, &acme, "Content-Length: 5000\r\n") + &body;
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        let mut rest = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await;
        let keys = server.get(KEYS).cookie(&acme.admin).await.ok(200);
        assert_eq!(keys["data"], json!([]));
    }

    async fn a_body_that_does_not_arrive_is_given_up(setup: Setup) {
        let mut setup = setup;
        setup.settings.body_timeout = std::time::Duration::from_millis(50);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let refused = send_raw(&server, head(&server, &acme, "Content-Length: 5000\r\n") + "{").await;
        assert_eq!(refused.status, 408, "{refused:?}");
        assert!(refused.body.contains("request_timeout") && refused.has_header("x-request-id"), "{refused:?}");
    }

    async fn what_is_not_json_in_utf_8_is_malformed(server: Server) {
        let acme = server.tenant("acme").await;
        let post = |body: &[u8]| server.post(KEYS).cookie(&acme.admin).header("content-type", "application/json").body(body);
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let deep_field = format!(r#"{{"name": {deep}}}"#);
        let bodies: [&[u8]; 14] = [
            b"",
            b" ",
            b"{",
            b"{\"name\": \"A\",}",
            b"{'name': 'A'}",
            b"{\"name\": \"A\"} {}",
            b"{\"name\": NaN}",
            b"{\"name\": \"\xff\xfe\"}",
            b"{\"name\": \"\xed\xa0\x80\"}",
            br#"{"name": "\ud800"}"#,
            br#"{"name": "\udc00x"}"#,
            b"{\"name\": \"a\nb\"}",
            deep.as_bytes(),
            deep_field.as_bytes(),
        ];
        for body in bodies {
            let answer = post(body).await;
            assert_eq!(answer.status, 400, "{}", String::from_utf8_lossy(&body[..body.len().min(60)]));
            answer.problem("malformed_json");
        }
        // What Windows PowerShell makes of a ü, for example.
        let problem = post(b"{\"name\": \"Gr\xfcn\"}").await.problem("malformed_json");
        assert_eq!(problem["detail"], "The body is not UTF-8: byte 13 is wrong.");
        let with_mark = [b"\xef\xbb\xbf".as_slice(), br#"{"name": "A", "scopes": ["*"]}"#].concat();
        post(&with_mark).await.problem("malformed_json");
    }

    async fn a_body_that_is_no_object_is_named_as_such(server: Server) {
        let acme = server.tenant("acme").await;
        for body in [json!([]), json!("x"), json!(1), json!(null), json!(true), json!([{"name": "A", "scopes": ["*"]}])] {
            let answer = server.post(KEYS).cookie(&acme.admin).json(&body).await;
            assert_eq!(answer.pointers(), [""], "{body}");
        }
    }

    async fn every_bad_field_is_named_at_once(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({
            "name": "", "scopes": ["*", "nonsense", 7], "expires_days": 0, "allowed_cidrs": ["10.0.0.0/8", "nonsense"],
            "id": "key_1", "a/b~c": 1
        });
        let answer = server.post(KEYS).cookie(&acme.admin).json(&body).await;
        let mut pointers = answer.pointers();
        pointers.sort();
        let expected = ["/allowed_cidrs/1", "/a~1b~0c", "/expires_days", "/id", "/name", "/scopes/1", "/scopes/2"];
        assert_eq!(pointers, expected);
        for error in answer.json()["errors"].as_array().unwrap() {
            assert!(error["code"].as_str().is_some_and(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')), "{error}");
            assert!(error["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{error}");
        }
        let empty = server.post(KEYS).cookie(&acme.admin).json(&json!({})).await;
        assert_eq!(empty.pointers(), ["/name", "/scopes"]);
    }

    async fn fields_keep_their_bounds(server: Server) {
        let acme = server.tenant("acme").await;
        let with = |field: &str, value: Value| {
            let mut body = json!({"name": "A", "scopes": ["search:read"]});
            body[field] = value;
            server.post(KEYS).cookie(&acme.admin).json(&body)
        };
        let long = "ü".repeat(200);
        let networks: Vec<String> = (0..51).map(|n| format!("10.0.{n}.0/24")).collect();
        let good = [
            ("name", json!(long)), ("name", json!("  A  ")), ("expires_days", json!(1)), ("expires_days", json!(365)),
            ("allowed_cidrs", json!(networks[..50])), ("allowed_cidrs", json!([])), ("scopes", json!(["tickets:*"])),
        ];
        for (field, value) in good {
            let record = with(field, value.clone()).await;
            assert_eq!(record.status, 201, "{field} {value}: {}", record.json());
            if let Some(name) = value.as_str() {
                assert_eq!(record.json()["name"], name.trim());
            }
        }
        let bad = [
            ("name", json!(long.clone() + "ü")), ("name", json!("   ")), ("name", json!("a\u{7}b")), ("name", json!(null)),
            ("name", json!(["A"])), ("expires_days", json!(0)), ("expires_days", json!(366)), ("expires_days", json!(null)),
            ("expires_days", json!("90")), ("expires_days", json!(1.5)), ("expires_days", json!(-1)), ("expires_days", json!(1e300)),
            ("allowed_cidrs", json!(networks)), ("allowed_cidrs", json!("10.0.0.0/8")), ("scopes", json!([])),
            ("scopes", json!("*")), ("scopes", json!({"0": "*"})), ("status", json!("active")), ("rotate", json!({})),
        ];
        for (field, value) in bad {
            assert_eq!(with(field, value.clone()).await.pointers(), [format!("/{field}")], "{value}");
        }
        for scope in ["", "**", "tickets", "search:write", "Tickets:read", " tickets:read", "platform:*"] {
            assert_eq!(with("scopes", json!(["*", scope])).await.pointers(), ["/scopes/1"], "{scope}");
        }
    }
}
