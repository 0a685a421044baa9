//! Whom nobody may call, whatever they write; and that nothing is sent to them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel::outbound::{BadTarget, FailureKind, NameSource, Outbound, OutboundSettings, Target};

use super::corpus_hosts::{ADDRESSES, DISGUISED, LOCALHOST};
use super::corpus_urls::{CROOKED, NAMES, PUBLIC};
use super::peer::{Peer, Trap};
use super::{call, get, loopback, target};

const OUTSIDE: [u8; 4] = [93, 184, 215, 14];

/// Nothing allowed, and the names of the corpus; every other name is outside.
fn strict() -> Outbound {
    let names = |name: &str| match NAMES.iter().find(|(known, _)| *known == name) {
        Some((_, addresses)) => addresses.iter().map(|address| address.parse().unwrap()).collect(),
        None => vec![IpAddr::from(OUTSIDE)],
    };
    Outbound::new(OutboundSettings { names: NameSource::Table(Arc::new(names)), ..OutboundSettings::default() })
        .unwrap()
}

async fn refuses(outbound: &Outbound, text: &str) {
    let checked = outbound.check_target(&target(text), None).await;
    assert!(checked.is_err(), "{text} may be saved");
    let failure = outbound.send_request(get(text)).await.expect_err(text);
    assert_eq!(failure.kind, FailureKind::NotAllowed, "{text}: {failure:?}");
    assert_eq!(failure.detail, checked.unwrap_err().detail, "{text}");
    assert_eq!((failure.address, failure.status), (None, None), "{text}");
}

#[test]
fn the_corpus_is_as_large_as_it_should_be() {
    let count = ADDRESSES.len() + LOCALHOST.len() + DISGUISED.len() + CROOKED.len() + NAMES.len();
    assert!(count >= 150, "{count} rows");
    assert!(PUBLIC.len() >= 30, "{} public rows", PUBLIC.len());
    let mut all: Vec<&str> = [ADDRESSES, LOCALHOST, DISGUISED, CROOKED, PUBLIC].concat();
    all.extend(NAMES.iter().map(|(name, _)| *name));
    let rows = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), rows, "a row is there twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_inside_address_and_name_is_refused_when_saved_and_when_called() {
    let (outbound, trap) = (strict(), Trap::new());
    let names = NAMES.iter().map(|(name, _)| name);
    for host in ADDRESSES.iter().chain(LOCALHOST).chain(names) {
        for scheme in ["http", "https"] {
            refuses(&outbound, &format!("{scheme}://{host}:{}/", trap.port)).await;
        }
        refuses(&outbound, &format!("http://{host}?x")).await;
    }
    trap.caught_nobody();
}

#[test]
fn an_inside_address_in_disguise_is_no_target() {
    for host in DISGUISED {
        for text in [format!("http://{host}/"), format!("https://{host}:8080/x"), format!("HTTP://{host}")] {
            let parsed = Target::parse(&text);
            assert!(matches!(parsed, Err(BadTarget::NotAllowed(_))), "{text}: {parsed:?}");
        }
    }
}

#[test]
fn what_two_readers_may_understand_differently_is_no_target() {
    let port = Trap::new().port.to_string();
    for text in CROOKED {
        let parsed = Target::parse(&text.replace("PORT", &port));
        assert!(parsed.is_err(), "{text}: {parsed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_public_may_be_called() {
    let outbound = strict();
    for text in PUBLIC {
        assert_eq!(outbound.check_target(&target(text), None).await, Ok(()), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_moves_inside_after_it_was_saved_is_not_called() {
    let (trap, asked) = (Trap::new(), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    let names = move |_: &str| match count.fetch_add(1, Ordering::SeqCst) {
        0 => vec![IpAddr::from(OUTSIDE)],
        _ => vec![IpAddr::from([127, 0, 0, 1])],
    };
    let settings = OutboundSettings { names: NameSource::Table(Arc::new(names)), ..OutboundSettings::default() };
    let outbound = Outbound::new(settings).unwrap();
    let text = format!("http://moving.example:{}/", trap.port);
    assert_eq!(outbound.check_target(&target(&text), None).await, Ok(()));
    let failure = outbound.send_request(get(&text)).await.expect_err("a refusal");
    assert_eq!(failure.kind, FailureKind::NotAllowed, "{failure:?}");
    trap.caught_nobody();
    assert_eq!(asked.load(Ordering::SeqCst), 2, "one question for each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_asked_for_once_and_what_was_checked_is_called() {
    let (peer, asked) = (Peer::answering("HTTP/1.1 204 No Content\r\n\r\n").await, Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    // A second question would get another answer, and that one would be refused.
    let names = move |_: &str| match count.fetch_add(1, Ordering::SeqCst) {
        0 => vec![IpAddr::from([127, 0, 0, 1])],
        _ => vec![IpAddr::from([10, 0, 0, 7])],
    };
    let outbound = Outbound::new(OutboundSettings { names: NameSource::Table(Arc::new(names)), ..loopback() }).unwrap();
    let answer = outbound.send_request(get(&format!("http://once.example:{}/", peer.address.port()))).await.unwrap();
    assert_eq!((answer.status, answer.address), (204, peer.address));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_resolve_may_be_saved_and_fails_when_called() {
    let outbound = Outbound::new(loopback()).unwrap();
    assert_eq!(outbound.check_target(&target("http://unknown.example/"), None).await, Ok(()));
    let failure = outbound.send_request(get("http://unknown.example/")).await.expect_err("no address");
    assert_eq!((failure.kind, failure.kind.as_str()), (FailureKind::Name, "name_not_resolved"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_allows_networks_and_nothing_beside_them() {
    let outbound = Outbound::new(loopback()).unwrap();
    assert_eq!(outbound.allowed_networks().iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.0/8"]);
    for text in ["http://127.0.0.1/", "http://127.9.9.9/", "http://[::ffff:127.0.0.1]/", "http://hooks.example.org/"] {
        assert_eq!(outbound.check_target(&target(text), None).await, Ok(()), "{text}");
    }
    // This host is both of its addresses, and one of them was not allowed.
    for text in ["http://10.0.0.7/", "http://[::1]/", "http://169.254.169.254/", "http://localhost/"] {
        refuses(&outbound, text).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let trap = Trap::new();
    let answer = format!("HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:{}/\r\nContent-Length: 0\r\n\r\n", trap.port);
    let peer = Peer::answering_once(answer.leak().as_bytes()).await;
    let answer = call(get(&peer.url("/"))).await.unwrap();
    assert_eq!(answer.status, 307);
    assert_eq!(answer.headers["location"], format!("http://127.0.0.1:{}/", trap.port));
    assert_eq!(peer.accepted(), 1);
    trap.caught_nobody();
}
