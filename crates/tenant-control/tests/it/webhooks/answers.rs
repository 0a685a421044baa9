//! What an answer means, and what the log tells of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::drive::{hook, log, look, patient, publish_one, run};
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::{Server, Tenancy, over_http};

/// What the one attempt of the one delivery to each of these endpoints came to.
async fn attempts(server: &Server, tenancy: &Tenancy, urls: &[String]) -> Vec<(Value, Value)> {
    let mut hooks = Vec::new();
    for url in urls {
        hooks.push(hook(server, tenancy, url, &json!({})).await);
    }
    publish_one(server, tenancy, "rec_1").await;
    run(server).await;
    let mut found = Vec::new();
    for hook in &hooks {
        let mut log = log(server, tenancy, hook).await;
        let delivery = log.pop().expect("a delivery");
        assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1, "{delivery}");
        found.push((look(server, tenancy, hook).await, delivery));
    }
    found
}

/// A port at which nobody listens, and its URL. It is bound, so that nobody else does meanwhile.
fn closed_port() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/hook", socket.local_addr().unwrap());
    (socket, url)
}

/// What an endpoint does, and what the log says of it: the error and the status.
type Case = (&'static str, Behaviour, &'static str, Option<u16>);

fn told_to(receiver: &Receiver, cases: &[Case]) -> Vec<String> {
    let tell = |(path, behaviour, ..): &Case| {
        receiver.on(path, [behaviour.clone()]);
        receiver.url(path)
    };
    cases.iter().map(tell).collect()
}

/// How long the attempt took.
fn explains(server: &Server, (name, error, status): (&str, &str, Option<u16>), found: &(Value, Value)) -> i64 {
    let (record, delivery) = found;
    let attempt = &delivery["attempts"][0];
    let told = attempt["error"].as_str().unwrap_or_default();
    assert!(told.starts_with(error) && told.len() > error.len(), "{name}: {attempt}");
    assert_eq!(attempt["status_code"], json!(status), "{name}: {attempt}");
    assert_eq!((&delivery["status"], &delivery["waiting_for"]), (&json!("pending"), &json!("retry")), "{name}");
    assert_eq!(attempt["at"], server.now().to_string());
    let port = record["url"].as_str().unwrap().split('/').nth(2).unwrap().to_owned();
    assert_eq!(attempt["address"], port, "{name}");
    assert_eq!(attempt["timings"]["first_byte_ms"].is_number(), status.is_some(), "{name}: {attempt}");
    assert_eq!(record["consecutive_failures"], 1, "{name}");
    assert_eq!(record["last_failure_at"], attempt["at"], "{name}");
    assert!(record["last_success_at"].is_null());
    assert_eq!((&record["version"], &record["updated_at"]), (&json!(1), &record["created_at"]), "{name}");
    attempt["duration_ms"].as_i64().unwrap()
}

over_http! {
    async fn whatever_is_not_a_whole_2xx_is_a_failure_that_is_explained(setup: Setup) {
        let timeout_ms = i64::try_from(setup.sending.timeout.as_millis()).unwrap();
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let (secured, _) = Receiver::start_tls().await;
        let elsewhere = receiver.url("/elsewhere");
        let moved = |status| Behaviour::AnswerWith {
            status,
            headers: vec![("location".to_owned(), elsewhere.clone())],
            body: vec![],
        };
        let cases = [
            ("/500", Behaviour::Answer(500), "http_status", Some(500)),
            ("/404", Behaviour::Answer(404), "http_status", Some(404)),
            ("/429", Behaviour::RetryAfter { status: 429, seconds: 9 }, "http_status", Some(429)),
            ("/304", Behaviour::Answer(304), "redirect", Some(304)),
            ("/301", moved(301), "redirect", Some(301)),
            ("/307", moved(307), "redirect", Some(307)),
            ("/reset", Behaviour::Reset, "connection_broken", None),
            ("/early", Behaviour::ResetEarly, "connection_broken", None),
            ("/cut", Behaviour::Truncated, "connection_broken", Some(200)),
            ("/cut-500", Behaviour::BreakOff { status: 500, seconds: 9, drips: false }, "http_status", Some(500)),
            ("/garbage", Behaviour::Garbage, "connection_broken", None),
            ("/huge", Behaviour::HugeHeaders, "connection_broken", None),
        ];
        let mut urls = told_to(&receiver, &cases);
        let expected = cases.iter().map(|(path, _, error, status)| (*path, *error, *status));
        let more = [("closed port", "connect_failed", None), ("foreign authority", "tls_failed", None)];
        let (_bound, closed) = closed_port();
        urls.extend([closed, secured.url("/hook")]);
        let found = attempts(&server, &acme, &urls).await;
        for (wanted, found) in expected.chain(more).zip(&found) {
            let duration_ms = explains(&server, wanted, found);
            assert!(duration_ms < timeout_ms * 2 / 3, "{wanted:?} took {duration_ms} ms");
        }
        assert_eq!(receiver.count_on("/elsewhere"), 0, "a redirect is not followed");
    }

    async fn what_does_not_end_in_time_is_a_failure_that_is_explained(setup: Setup) {
        let mut setup = setup;
        // Long enough that also on a busy machine what begins at once has begun by then.
        setup.sending.timeout = Duration::from_millis(800);
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let cases = [
            ("/hang", Behaviour::Hang, "timeout", None),
            ("/head", Behaviour::DripHead, "timeout", None),
            ("/drip", Behaviour::DripBody, "timeout", Some(200)),
        ];
        let found = attempts(&server, &acme, &told_to(&receiver, &cases)).await;
        for ((path, _, error, status), found) in cases.iter().zip(&found) {
            let duration_ms = explains(&server, (path, error, *status), found);
            assert!(duration_ms >= 700, "{path} took {duration_ms} ms");
        }
    }

    async fn every_2xx_is_a_success_and_the_log_keeps_4_kib_of_its_body(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let text = |status, body: &[u8]| Behaviour::AnswerWith { status, headers: vec![], body: body.to_vec() };
        let large = b"0123456789abcdef".repeat(16 << 10);
        let odd = b"a\0b\xff\xfe\r\n\x1b[31mred";
        let cases = [
            ("/200", text(200, b"thanks")),
            ("/201", text(201, b"")),
            ("/299", text(299, b"odd")),
            ("/large", text(200, &large)),
            ("/odd", text(202, odd)),
            ("/endless", Behaviour::EndlessBody),
        ];
        let mut urls = Vec::new();
        for (path, behaviour) in cases {
            receiver.on(path, [behaviour]);
            urls.push(receiver.url(path));
        }
        let found = attempts(&server, &acme, &urls).await;
        for ((record, delivery), url) in found.iter().zip(&urls) {
            assert_eq!(delivery["status"], "succeeded", "{url}: {delivery}");
            assert!(delivery["attempts"][0]["error"].is_null() && delivery["next_attempt_at"].is_null());
            assert_eq!(record["consecutive_failures"], 0);
            assert_eq!(record["last_success_at"], delivery["attempts"][0]["at"]);
            assert!(record["last_failure_at"].is_null());
        }
        let body = |index: usize| found[index].1["attempts"][0]["response_body"].as_str().unwrap().to_owned();
        assert_eq!((body(0).as_str(), body(1).as_str()), ("thanks", ""));
        assert_eq!(body(3).as_bytes(), &large[..4 << 10]);
        assert!(body(4).contains("red"));
        assert_eq!(body(5).len(), 4 << 10);
    }

    async fn a_failure_keeps_4_kib_of_its_body_too(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let body = "é".repeat(8 << 10).into_bytes();
        receiver.on("/hook", [Behaviour::AnswerWith { status: 500, headers: vec![], body }]);
        let found = attempts(&server, &acme, &[receiver.url("/hook")]).await;
        let kept = found[0].1["attempts"][0]["response_body"].as_str().unwrap();
        assert_eq!(kept, "é".repeat(2 << 10));
    }
}
