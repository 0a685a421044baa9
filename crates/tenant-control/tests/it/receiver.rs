//! The webhook receiver of the tests itself: a test that relies on a hostile receiver needs one that is.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Client, Response};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, version};

use crate::support::receiver::{Behaviour, DRIP_EVERY, Gate, Receiver, Tally};

/// How long these senders wait for what never comes, from when it was asked for.
const PATIENCE: Duration = Duration::from_millis(300);

/// How long they wait for what does come, which on a busy machine is not at once.
const LONG: Duration = Duration::from_secs(30);

fn client(timeout: Duration) -> Client {
    let builder = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(timeout);
    // A client that repeats what was reset would be counted twice.
    builder.retry(reqwest::retry::never()).build().unwrap()
}

async fn deliver(client: &Client, receiver: &Receiver, path: &str, id: &str) -> reqwest::Result<Response> {
    client.post(receiver.url(path)).header("Webhook-Id", id).json(&json!({ "id": id })).send().await
}

#[tokio::test]
async fn a_script_is_followed_and_its_last_entry_stays() {
    let (receiver, client) = (Receiver::start().await, client(LONG));
    let body = Behaviour::AnswerWith { status: 400, headers: vec![("x-a".into(), "b".into())], body: b"no".to_vec() };
    let later = Behaviour::RetryAfter { status: 429, seconds: 7 };
    let elsewhere = Behaviour::Redirect("http://127.0.0.1:1/".to_owned());
    receiver.on("/hook?x=1", [Behaviour::Answer(500), body, later, elsewhere, Behaviour::Answer(201)]);
    let mut answers = Vec::new();
    for nth in 0..6 {
        answers.push(deliver(&client, &receiver, "/hook?x=1", &format!("msg_{nth}")).await.unwrap());
    }
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status().as_u16()).collect();
    assert_eq!(statuses, [500, 400, 429, 307, 201, 201]);
    assert_eq!(answers[2].headers()["retry-after"], "7");
    assert_eq!(answers[3].headers()["location"], "http://127.0.0.1:1/");
    assert_eq!(answers[1].headers()["x-a"], "b");
    assert_eq!(answers.remove(1).text().await.unwrap(), "no");
    assert_eq!(deliver(&client, &receiver, "/other", "").await.unwrap().status(), 204);

    assert_eq!((receiver.count(), receiver.count_on("/hook?x=1")), (7, 6));
    let received = receiver.wait_for_on("/hook?x=1", 6).await;
    assert_eq!((received[3].method.as_str(), received[3].webhook_id()), ("POST", "msg_3"));
    assert_eq!(received[3].headers["content-type"], "application/json");
    assert_eq!(received[3].json(), json!({ "id": "msg_3" }));
    assert!(received.is_sorted_by_key(|received| received.at));
    assert_eq!(receiver.received().len(), 7);
}

#[tokio::test]
async fn connections_are_kept_alive() {
    let (receiver, client) = (Receiver::start().await, client(LONG));
    receiver.on("/hook", [Behaviour::Answer(200), Behaviour::Answer(500), Behaviour::Answer(204)]);
    for _ in 0..5 {
        deliver(&client, &receiver, "/hook", "msg").await.unwrap().bytes().await.unwrap();
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn each_request_can_be_chosen_for_and_is_tallied() {
    let (receiver, client) = (Receiver::start().await, client(LONG));
    receiver.on_each("/hook", |nth, id| match (nth % 2, id) {
        (_, "msg_never") => Behaviour::Reset,
        (0, _) => Behaviour::Answer(503),
        _ => Behaviour::Answer(200),
    });
    for id in ["msg_a", "msg_a", "msg_never", "msg_b", "msg_b", "msg_b"] {
        drop(deliver(&client, &receiver, "/hook", id).await);
    }
    assert_eq!(receiver.acknowledged("/hook"), HashMap::from([("msg_a".to_owned(), 1), ("msg_b".to_owned(), 2)]));
    let tallies = receiver.tallies("/hook");
    assert_eq!(tallies["msg_b"], Tally { requests: 3, acknowledged: 2, doubtful: 0 });
    assert_eq!(tallies["msg_never"], Tally { requests: 1, acknowledged: 0, doubtful: 0 });
    receiver.wait_for_acknowledged("/hook", 2).await;
    assert!(receiver.acknowledged("/other").is_empty());
}

#[tokio::test]
async fn what_never_comes_wears_out_the_sender() {
    let (receiver, client) = (Receiver::start().await, client(LONG));
    for (nth, behaviour) in [Behaviour::Hang, Behaviour::DripHead].into_iter().enumerate() {
        receiver.on("/hook", [behaviour.clone()]);
        let mut delivery = pin!(deliver(&client, &receiver, "/hook", "msg"));
        tokio::select! {
            answer = &mut delivery => panic!("{behaviour:?}: {answer:?}"),
            _ = receiver.wait_for(nth + 1) => {}
        }
        assert!(tokio::time::timeout(PATIENCE, delivery).await.is_err(), "{behaviour:?}");
    }
    receiver.on("/hook", [Behaviour::DripBody]);
    let mut answer = deliver(&client, &receiver, "/hook", "msg").await.unwrap();
    let started = Instant::now();
    for _ in 0..5 {
        assert_eq!(answer.chunk().await.unwrap().expect("more")[0], b'x');
    }
    assert!(started.elapsed() >= DRIP_EVERY, "its bytes do not come at once");
    assert_eq!(receiver.tallies("/hook")["msg"], Tally { requests: 3, acknowledged: 0, doubtful: 1 });
}

#[tokio::test]
async fn an_endless_body_is_fast() {
    let (receiver, client) = (Receiver::start().await, client(LONG));
    receiver.on("/hook", [Behaviour::EndlessBody]);
    let mut answer = deliver(&client, &receiver, "/hook", "msg").await.unwrap();
    let mut size_bytes = 0;
    while size_bytes < 64 * 1024 * 1024 {
        size_bytes += answer.chunk().await.unwrap().expect("more").len();
    }
}

#[tokio::test]
async fn what_is_no_answer_is_an_error_and_not_a_timeout() {
    let (receiver, client) = (Receiver::start().await, client(LONG));
    for behaviour in
        [Behaviour::Reset, Behaviour::ResetEarly, Behaviour::Garbage, Behaviour::HugeHeaders, Behaviour::Truncated]
    {
        receiver.on("/hook", [behaviour.clone()]);
        let error = match deliver(&client, &receiver, "/hook", "msg").await {
            Ok(answer) => answer.bytes().await.expect_err("half an answer"),
            Err(error) => error,
        };
        assert!(!error.is_timeout(), "{behaviour:?}: {error:?}");
        let reset = format!("{error:?}").contains("ConnectionReset");
        let wanted = matches!(behaviour, Behaviour::Reset | Behaviour::ResetEarly);
        assert_eq!(reset, wanted, "{behaviour:?}: {error:?}");
    }
    assert_eq!(receiver.count(), 4, "a request that was reset early is not complete");
    assert_eq!(receiver.tallies("/hook")["msg"], Tally { requests: 4, acknowledged: 0, doubtful: 2 });
}

#[tokio::test]
async fn connections_can_be_reset_before_they_say_anything() {
    let (receiver, client) = (Receiver::start().await, client(LONG));
    receiver.reset_connections(true);
    deliver(&client, &receiver, "/hook", "msg").await.expect_err("no connection");
    receiver.reset_connections(false);
    deliver(&client, &receiver, "/hook", "msg").await.unwrap();
    assert_eq!((receiver.connections(), receiver.count()), (2, 1));
}

#[tokio::test]
async fn a_gate_holds_answers_until_it_is_opened() {
    let receiver = Receiver::start().await;
    let gate = Gate::closed();
    receiver.on("/hook", [Behaviour::Hold(gate.clone())]);
    let mut gone = TcpStream::connect(receiver.address()).await.unwrap();
    gone.write_all(b"POST /hook HTTP/1.1\r\nWebhook-Id: msg_gone\r\n\r\n").await.unwrap();
    receiver.wait_for(1).await;
    drop(gone);
    let patient = client(LONG);
    let held = deliver(&patient, &receiver, "/hook", "msg_held");
    let (answer, ()) = tokio::join!(held, async {
        receiver.wait_for(2).await;
        assert!(receiver.acknowledged("/hook").is_empty());
        gate.open();
    });
    assert_eq!(answer.unwrap().status(), 204);
    assert_eq!(receiver.acknowledged("/hook"), HashMap::from([("msg_held".to_owned(), 1)]));
    assert_eq!(deliver(&patient, &receiver, "/hook", "msg_late").await.unwrap().status(), 204);
}

#[tokio::test]
async fn a_long_run_keeps_tallies_and_no_bodies() {
    let (receiver, client) = (Receiver::start().await, client(LONG));
    receiver.on("/hook", [Behaviour::Answer(500), Behaviour::Answer(200)]);
    deliver(&client, &receiver, "/hook", "msg_a").await.unwrap();
    receiver.keep_tallies_only();
    deliver(&client, &receiver, "/hook", "msg_a").await.unwrap();
    assert!(receiver.wait_for(2).await.is_empty());
    assert_eq!(receiver.tallies("/hook")["msg_a"], Tally { requests: 2, acknowledged: 1, doubtful: 0 });
    receiver.forget();
    assert_eq!((receiver.count(), receiver.tallies("/hook").len()), (0, 0));
    deliver(&client, &receiver, "/hook", "msg_b").await.unwrap();
    assert_eq!(receiver.acknowledged("/hook"), HashMap::from([("msg_b".to_owned(), 1)]), "the script goes on");
}

#[tokio::test]
async fn a_receiver_that_is_dropped_ends_its_connections() {
    let receiver = Receiver::start().await;
    receiver.on("/hook", [Behaviour::Hang]);
    let request = client(LONG).post(receiver.url("/hook")).send();
    let (answer, ()) = tokio::join!(request, async move {
        receiver.wait_for(1).await;
    });
    assert!(!answer.expect_err("no answer").is_timeout());
}

#[tokio::test]
async fn tls_proves_itself_by_the_authority_alone() {
    let (receiver, authority) = Receiver::start_tls().await;
    assert!(receiver.url("/hook").starts_with("https://127.0.0.1:"));
    receiver.on("/hook", [Behaviour::Answer(202), Behaviour::Reset]);
    for name in ["localhost", "127.0.0.1"] {
        let mut stream = connect(&receiver, &authority, name).await.expect("a trusted certificate");
        let request = "POST /hook HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer).await;
        assert_eq!((read.is_ok(), answer.starts_with("HTTP/1.1 202 ")), (name == "localhost", name == "localhost"));
    }
    let (_, stranger) = Receiver::start_tls().await;
    assert!(connect(&receiver, &stranger, "localhost").await.is_err());
    assert_eq!(receiver.received()[1].body, b"{}");
}

async fn connect(
    receiver: &Receiver,
    authority: &str,
    name: &'static str,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_protocol_versions(&[&version::TLS13]).unwrap().with_root_certificates(roots);
    let tcp = TcpStream::connect(receiver.address()).await?;
    let connector = TlsConnector::from(Arc::new(builder.with_no_client_auth()));
    connector.connect(ServerName::try_from(name).unwrap(), tcp).await
}
