//! What holds for every answer: request ids, caching, compression, HEAD, methods, other origins, a fault of ours.

use std::io::Read;

use kernel::http::BaseUrl;
use reqwest::Method;
use serde_json::json;

use crate::support::people::{AUDIT, KEYS, SESSION};
use crate::support::{over_http, send_raw};

const DOCUMENT: &str = "/api/openapi.json";

over_http! {
    async fn a_request_id_is_taken_over_or_made(server: Server) {
        let longest = "x".repeat(128);
        let all: String = (33..127_u8).map(char::from).collect();
        for given in ["a", "2f1e7c1a-8a5e-4f0c-9c55-1de7b2f2c6b4", &longest, &all] {
            let answer = server.get(KEYS).header("x-request-id", given).await;
            assert_eq!(answer.header("x-request-id"), given);
            answer.problem("unauthenticated");
        }
        let too_long = "x".repeat(129);
        let mut made = Vec::new();
        for ignored in ["", "a b", &too_long, "a\tb", "ü"] {
            let answer = server.get(KEYS).header("x-request-id", ignored).await;
            answer.problem("unauthenticated");
            made.push(answer.header("x-request-id").to_owned());
        }
        let twice = server.get(KEYS).header("x-request-id", "a").header("x-request-id", "b").await;
        made.push(twice.header("x-request-id").to_owned());
        made.push(server.get("/healthz").await.header("x-request-id").to_owned());
        made.push(server.get("/nowhere").await.header("x-request-id").to_owned());
        assert!(made.iter().all(|id| (8..=128).contains(&id.len())), "{made:?}");
        let count = made.len();
        made.sort();
        made.dedup();
        assert_eq!(made.len(), count, "every request has an id of its own");
    }

    async fn the_request_id_is_in_the_audit_trail(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "A", "scopes": ["*"]});
        server.post(KEYS).cookie(&acme.admin).header("x-request-id", "mine-1").json(&body).await.is(201);
        let trail = server.get(format!("{AUDIT}?action=api_key.create")).cookie(&acme.admin).await.ok(200);
        assert_eq!((trail["data"].as_array().unwrap().len(), &trail["data"][0]["request_id"]), (1, &json!("mine-1")));
    }

    async fn a_trace_is_tolerated_whatever_it_says(server: Server) {
        let acme = server.tenant("acme").await;
        for trace in ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "nonsense", "", "00-0-0-0"] {
            server.get(KEYS).cookie(&acme.admin).header("traceparent", trace).header("tracestate", "a=b").await.is(200);
        }
    }

    async fn data_of_a_tenant_is_never_cached(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        for answer in [
            server.get(KEYS).cookie(&acme.admin).await,
            server.get(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await,
            server.get(SESSION).cookie(&acme.admin).await,
            server.get(AUDIT).cookie(&acme.admin).await,
            server.post(KEYS).cookie(&acme.admin).json(&json!({"name": "A", "scopes": ["*"]})).await,
            server.post(KEYS).cookie(&acme.admin).json(&json!({})).await,
            server.get(KEYS).await,
            server.get("/api/nowhere").await,
            server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await,
        ] {
            assert_eq!(answer.header("cache-control"), "no-store", "{} {} {}", answer.method, answer.path, answer.status);
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
        }
    }

    async fn get_is_compressed_for_those_who_ask_and_post_never(server: Server) {
        let acme = server.tenant("acme").await;
        for n in 0..20 {
            server.key_with(&acme, &json!({"name": format!("Key {n}"), "scopes": ["*"]})).await;
        }
        let plain = server.get(KEYS).cookie(&acme.admin).await;
        assert_eq!(plain.is(200).header("content-encoding"), "");
        let packed = server.get(KEYS).cookie(&acme.admin).header("accept-encoding", "gzip").await;
        assert_eq!(packed.is(200).header("content-encoding"), "gzip");
        assert!(packed.header("vary").to_lowercase().contains("accept-encoding"), "{:?}", packed.headers);
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(packed.body.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain.body);
        // A long name makes the answer large enough to be worth it.
        let body = json!({"name": "A".repeat(200), "scopes": ["*"], "allowed_cidrs": (0..50).map(|n| format!("10.0.{n}.0/24")).collect::<Vec<_>>()});
        let post = server.post(KEYS).cookie(&acme.admin).header("accept-encoding", "gzip").json(&body).await;
        assert!(post.is(201).body.len() > 1024 && post.header("content-encoding").is_empty(), "{:?}", post.headers);
    }

    async fn whoever_takes_neither_gzip_nor_plain_text_gets_plain_text(server: Server) {
        let plain = server.get(DOCUMENT).await;
        for accepted in ["identity;q=0", "*;q=0", "br, identity;q=0", "gzip;q=0, *;q=0"] {
            let answer = server.get(DOCUMENT).header("accept-encoding", accepted).await;
            assert_eq!((answer.is(200).header("content-encoding"), &answer.body), ("", &plain.body), "{accepted}");
        }
    }

    async fn head_tells_of_what_get_would_compress(server: Server) {
        let acme = server.tenant("acme").await;
        let large = json!({"name": "A", "scopes": ["*"], "allowed_cidrs": (0..50).map(|n| format!("10.0.{n}.0/24")).collect::<Vec<_>>()});
        let key = server.key_with(&acme, &large).await;
        for target in [DOCUMENT.to_owned(), format!("{KEYS}?id={}", key.id), SESSION.to_owned(), "/".to_owned()] {
            for accepted in ["gzip", "identity"] {
                let call = |method| server.call(method, &target).cookie(&acme.admin).header("accept-encoding", accepted);
                let (get, head) = (call(Method::GET).await, call(Method::HEAD).await);
                assert_eq!((head.is(200).status, head.body.len()), (get.status, 0), "{target}");
                for name in ["content-encoding", "content-length", "content-type", "vary", "etag", "cache-control"] {
                    assert_eq!(head.headers.get(name), get.headers.get(name), "{name} of {target} for {accepted}");
                }
            }
        }
    }

    async fn a_request_names_its_host_once(server: Server) {
        let ask = async |version: &str, target: &str, hosts: &str| {
            send_raw(&server, format!("GET {target} HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n")).await
        };
        for target in [DOCUMENT, SESSION, "/", "/healthz", "/api/nowhere", "http://a/healthz"] {
            let two = ["Host: a\r\nHost: a\r\n", "Host: a\r\nhost: b\r\n"].map(str::to_owned);
            let none = ["a b", "a/b", "u@a", "a,b", "a:b", "a:+80", "a:99999", ":80", ":", "[::1]80"].map(|host| format!("Host: {host}\r\n"));
            for hosts in [String::new()].into_iter().chain(two).chain(none) {
                let refused = ask("1.1", target, &hosts).await;
                assert_eq!(refused.status, 400, "{target} {hosts:?}: {refused:?}");
                assert!(refused.body.contains("\"invalid_header\"") && refused.has_header("x-request-id"), "{refused:?}");
                assert!(refused.head.contains("application/problem+json"), "{refused:?}");
            }
        }
        assert_eq!(ask("1.0", "/healthz", "Host: a\r\nHost: b\r\n").await.status, 400);
        assert_eq!(ask("1.0", "/healthz", "").await.status, 200, "it need not, before 1.1");
        for host in ["a", "a:80", "a:", "[::1]", "[::1]:8080", "127.0.0.1"] {
            assert_eq!(ask("1.1", "/healthz", &format!("Host: {host}\r\n")).await.status, 200);
        }
        assert_eq!(ask("1.1", "http://a/healthz", "Host: a\r\n").await.status, 200);
        let post = format!("POST {KEYS} HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        assert_eq!(send_raw(&server, post).await.status, 400);
    }

    async fn head_works_wherever_get_does(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        let targets: Vec<String> = server.contract.operations().into_iter()
            .filter(|(_, method, _)| *method == "get").map(|(path, ..)| path.to_owned())
            .chain([format!("{KEYS}?id={}", key.id), format!("{KEYS}?id=nonsense"), format!("{KEYS}?nonsense=1"),
                "/api/nowhere".to_owned(), "/api/rate-limits/".to_owned(), "/healthz".to_owned(), "/readyz".to_owned(), "/".to_owned()])
            .collect();
        for target in targets {
            for cookie in [acme.admin.as_str(), "theme=dark"] {
                let get = server.get(&target).cookie(cookie).await;
                let head = server.head(&target).cookie(cookie).await;
                assert_eq!(head.status, get.status, "{target}");
                assert!(head.body.is_empty(), "{target}");
                let mut names: Vec<_> = get.headers.keys().filter(|name| head.headers.get(*name).is_none()).collect();
                // The length of what would have come need not be told.
                names.retain(|name| *name != "content-length" && *name != "transfer-encoding");
                assert!(names.is_empty(), "HEAD {target} lacks {names:?}");
                assert_eq!(head.headers.get("etag"), get.headers.get("etag"));
                if let Some(length) = head.headers.get("content-length") {
                    assert_eq!(length.to_str().unwrap(), get.body.len().to_string(), "{target}");
                }
            }
        }
    }

    async fn a_method_that_a_route_lacks_is_refused_with_those_it_has(server: Server) {
        let paths = server.contract.document["paths"].as_object().unwrap().clone();
        for (path, item) in &paths {
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"] {
                if item.get(method.to_lowercase()).is_some() {
                    continue;
                }
                let answer = server.call(Method::from_bytes(method.as_bytes()).unwrap(), path).await;
                answer.problem("method_not_allowed");
                let mut allowed: Vec<&str> = answer.header("allow").split(',').map(str::trim).collect();
                allowed.sort_unstable();
                let mut expected: Vec<String> = item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
                if item.get("get").is_some() {
                    expected.push("HEAD".to_owned());
                }
                expected.sort_unstable();
                assert_eq!(allowed, expected, "{method} {path}");
            }
        }
    }

    async fn a_path_is_exact(server: Server) {
        for path in ["/api/admin/api-keys/", "/api/admin/API-KEYS", "/api//admin/api-keys", "/api", "/api/", "/metrics",
            "/api/admin/api-keys/key_01jd8z6v2mfkpb7h3q9xw5t4ra", "/internal", "/api/openapi.yaml"]
        {
            server.get(path).await.problem("not_found");
        }
    }

    async fn other_origins_are_not_answered_unless_the_operator_lists_them(setup: Setup) {
        let mut setup = setup;
        setup.settings.cors_origins = vec!["https://app.example".parse().unwrap()];
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await.plain;
        let listed = server.get(KEYS).key(&key).header("origin", "https://app.example").await;
        assert_eq!(listed.is(200).header("access-control-allow-origin"), "https://app.example");
        for header in ["etag", "link", "x-request-id", "ratelimit", "ratelimit-policy", "retry-after"] {
            assert!(listed.header("access-control-expose-headers").contains(header), "{header}");
        }
        let refused = server.get(KEYS).header("origin", "https://app.example").await;
        assert_eq!(refused.header("access-control-allow-origin"), "https://app.example", "a refusal can be read as well");
        let preflight = server.call(Method::OPTIONS, KEYS).header("origin", "https://app.example")
            .header("access-control-request-method", "PUT").header("access-control-request-headers", "authorization,if-match").await;
        assert!(preflight.status < 300, "{}", preflight.status);
        assert!(preflight.header("access-control-allow-methods").contains("PUT"));
        assert!(preflight.header("access-control-allow-headers").contains("if-match"));
        assert_eq!(preflight.header("access-control-allow-credentials"), "", "a cookie never works across origins");
        for header in ["x-request-id", "ratelimit", "ratelimit-policy"] {
            assert!(preflight.headers.contains_key(header), "{header} on every answer under /api/");
        }
        let other = server.get(KEYS).key(&key).header("origin", "https://evil.example").await;
        assert_eq!(other.is(200).header("access-control-allow-origin"), "");
    }

    async fn without_a_list_no_origin_is_answered(server: Server) {
        let answer = server.get(DOCUMENT).header("origin", "https://app.example").await;
        assert_eq!(answer.is(200).header("access-control-allow-origin"), "");
        let preflight = server.call(Method::OPTIONS, KEYS).header("origin", "https://app.example")
            .header("access-control-request-method", "PUT").await;
        assert_eq!(preflight.status, 405);
        assert!(!preflight.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{:?}", preflight.headers);
    }

    async fn over_https_the_browser_is_told_to_stay_there(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://control.example").unwrap();
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        assert!(acme.admin.starts_with("__Host-session="));
        let answer = server.get(SESSION).cookie(&acme.admin).await;
        assert!(answer.is(200).header("strict-transport-security").starts_with("max-age="));
        let plain_name = acme.admin.replace("__Host-", "");
        server.get(SESSION).cookie(&plain_name).await.problem("unauthenticated");
        let out = server.delete(SESSION).cookie(&acme.admin).header("origin", "https://control.example").await;
        let cookie = out.is(204).header("set-cookie").to_owned();
        for part in ["__Host-session=;", "Path=/", "HttpOnly", "SameSite=Lax", "Secure", "Max-Age=0"] {
            assert!(cookie.contains(part), "{part} in {cookie}");
        }
    }

    async fn a_database_that_is_gone_is_a_503_that_tells_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        server.app.store.close().await;
        server.advance(1);
        for answer in [
            server.get(KEYS).key(&kernel::auth::PlainKey::generate(&server.app.env.random).expose_secret()).await,
            server.get(KEYS).cookie(&format!("{}x", acme.admin)).await,
        ] {
            let problem = answer.problem("unavailable").to_string().to_lowercase();
            for inside in ["sql", "postgres", "pool", "database", "rusqlite", "select", "deadpool"] {
                assert!(!problem.contains(inside), "{inside} in {problem}");
            }
        }
        server.get("/healthz").await.is(200);
        server.get("/readyz").await.is(503);
        server.get(DOCUMENT).await.is(200);
    }

    async fn a_server_finishes_what_it_has_begun(server: Server) {
        let acme = server.tenant("acme").await;
        let held = server.hold_writes(acme.tenant.id).await;
        let body = json!({"name": "A", "scopes": ["*"]}).to_string();
        let request = format!(
            "POST {KEYS} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Idempotency-Key: k\r\nContent-Length: {}\r\n\r\n{body}", server.address, acme.admin, body.len()
        );
        let address = server.address;
        let (one, other) = (send_raw(&server, &request), send_raw(&server, &request));
        let (early, late) = futures_util::future::select(Box::pin(one), Box::pin(other)).await.factor_first();
        assert_eq!(early.status, 409, "{early:?}, because the other one is running");
        let finish = async {
            server.begin_stop();
            drop(held);
            late.await
        };
        let answer = finish.await;
        assert_eq!(answer.status, 201, "{answer:?}");
        server.stop().await;
        assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
    }

    async fn what_is_not_http_is_refused_and_harms_nobody(server: Server) {
        let long = format!("GET /api/openapi.json HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(1_000_000));
        for request in ["nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", &long]
        {
            let answer = send_raw(&server, request).await;
            assert!((400..500).contains(&answer.status), "{}: {answer:?}", &request[..request.len().min(40)]);
        }
        server.get(DOCUMENT).await.is(200);
    }
}
