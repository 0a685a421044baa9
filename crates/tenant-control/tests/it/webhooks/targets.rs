//! Targets inside are refused, when an endpoint is saved and when something is sent.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kernel::outbound::NameSource;

use super::create::{count, create, id_of, input, input_with, one, read, trail, without_secret};
use super::*;
use crate::support::Answer;

/// Addresses inside, as they should be written and as they should not.
const INSIDE: &[&str] = &[
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    // IPv4 in IPv6.
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
    "[::127.0.0.1]",
    // Octal, hexadecimal, short and whole numbers.
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "127.1",
    "0",
    "0xa9fea9fe",
    "2852039166",
    "10.1",
    // This host by name.
    "localhost",
    "LOCALHOST",
    "localhost.",
    "api.localhost",
];

/// Names that lead inside, wholly or partly.
const NAMES: &[(&str, &[&str])] = &[
    ("inside.example", &["127.0.0.1"]),
    ("six.example", &["::1"]),
    ("mapped.example", &["::ffff:10.0.0.1"]),
    ("metadata.google.internal", &["169.254.169.254"]),
    ("mixed.example", &["93.184.215.14", "10.0.0.1"]),
    ("mixed-six.example", &["93.184.215.14", "fd00::1"]),
];

/// A setup in which these names are there, `outside.example` is outside, and no other is there at all.
fn named(mut setup: Setup) -> Setup {
    let table = |name: &str| {
        let addresses = NAMES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, addresses)| addresses);
        let outside = (name == "outside.example").then_some("93.184.215.14");
        addresses.iter().copied().chain(outside).map(|address| address.parse().unwrap()).collect()
    };
    setup.settings.outbound.names = NameSource::Table(Arc::new(table));
    setup
}

fn inside_urls() -> Vec<String> {
    let hosts = INSIDE.iter().copied().chain(NAMES.iter().map(|(name, _)| *name));
    hosts.flat_map(|host| [format!("https://{host}/hook"), format!("http://{host}:8080/hook?a=b")]).collect()
}

/// A refusal with a code of its own, at the URL.
#[track_caller]
fn is_refused(answer: &Answer, url: &str) {
    assert_eq!(answer.status, 422, "{url}: {}", answer.json());
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem = answer.json();
    assert_eq!(problem["code"], "target_not_allowed", "{url}: {problem}");
    assert_eq!(problem["type"], format!("{}/documentation/errors/#target_not_allowed", answer.base_url));
    assert_eq!((&problem["status"], &problem["instance"]), (&json!(422), &json!(WEBHOOKS)));
    assert_eq!(problem["request_id"], answer.header("x-request-id"));
    let errors = problem["errors"].as_array().expect("errors");
    assert_eq!((errors.len(), &errors[0]["pointer"]), (1, &json!("/url")), "{url}: {problem}");
    let detail = errors[0]["detail"].as_str().expect("a detail");
    assert!(detail.contains(" is inside ") && detail.contains("--webhook-allow-cidr"), "{problem}");
}

over_http! {
    async fn a_target_inside_is_refused_when_it_is_saved(setup: Setup) {
        let server = named(setup).start().await;
        let acme = server.tenant("acme").await;
        for url in inside_urls() {
            is_refused(&create(&server, &acme, &input_with("url", url.as_str())).await, &url);
        }
        assert_eq!((count(&server, &acme).await, trail(&server, &acme, "webhook.create").await.len()), (0, 0));
    }

    async fn an_endpoint_cannot_be_moved_inside(setup: Setup) {
        let server = named(setup).start().await;
        let acme = server.tenant("acme").await;
        let hook = create(&server, &acme, &input()).await.ok(201);
        for url in inside_urls() {
            is_refused(&server.put(one(&hook)).cookie(&acme.admin).json(&input_with("url", url.as_str())).await, &url);
        }
        // Not switched off either.
        let mut off = input_with("url", "http://127.0.0.1/");
        off["enabled"] = json!(false);
        is_refused(&server.put(one(&hook)).cookie(&acme.admin).json(&off).await, "switched off");
        assert_eq!(read(&server, &acme, &hook).await, without_secret(hook));
        assert_eq!(trail(&server, &acme, "webhook.update").await.len(), 0);
    }

    async fn a_refusal_frees_the_idempotency_key(setup: Setup) {
        let server = named(setup).start().await;
        let acme = server.tenant("acme").await;
        let post =
            |url: &str| server.post(WEBHOOKS).cookie(&acme.admin).idempotency_key("k").json(&input_with("url", url));
        is_refused(&post("http://127.0.0.1/").await, "127.0.0.1");
        post("https://outside.example/").await.is(201);
    }

    async fn with_other_faults_the_code_is_that_of_all(server: Server) {
        let acme = server.tenant("acme").await;
        let mut body = input_with("url", "http://0x7f000001/");
        body["name"] = json!("");
        let mut pointers = create(&server, &acme, &body).await.pointers();
        pointers.sort();
        assert_eq!(pointers, ["/name", "/url"]);
    }

    async fn a_public_target_and_a_name_that_is_not_there_yet_are_accepted(setup: Setup) {
        let server = named(setup).start().await;
        let acme = server.tenant("acme").await;
        for url in [
            "https://93.184.215.14/hook",
            "http://8.8.8.8:8080/",
            "https://[2606:4700:4700::1111]/",
            "http://[::ffff:8.8.8.8]/",
            "https://outside.example/",
            "https://not-there-yet.example/",
            "https://outside.example/?next=http://127.0.0.1/",
            "https://127.0.0.1.example/",
        ] {
            let hook = create(&server, &acme, &input_with("url", url)).await.ok(201);
            server.put(one(&hook)).cookie(&acme.admin).json(&input_with("url", url)).await.is(200);
        }
    }

    async fn the_operator_lets_in_what_is_listed_and_no_more(setup: Setup) {
        let mut setup = named(setup);
        setup.settings.outbound.allow = vec!["127.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        for url in [
            "http://127.0.0.1/",
            "http://127.8.8.8:81/",
            "http://[::ffff:127.0.0.1]/",
            "http://inside.example/",
            "http://[fd00::1]/",
            "http://mixed-six.example/",
        ] {
            create(&server, &acme, &input_with("url", url)).await.is(201);
        }
        for url in [
            "http://10.0.0.1/",
            "http://169.254.169.254/",
            "http://[::1]/",
            "http://six.example/",
            "http://mixed.example/",
        ] {
            is_refused(&create(&server, &acme, &input_with("url", url)).await, url);
        }
    }

    async fn a_name_that_moved_inside_is_not_called(setup: Setup) {
        let mut setup = setup;
        let moved = Arc::new(AtomicBool::new(false));
        let asked = moved.clone();
        let table = move |_: &str| -> Vec<IpAddr> {
            vec![if asked.load(Ordering::SeqCst) { [127, 0, 0, 1].into() } else { [93, 184, 215, 14].into() }]
        };
        setup.settings.outbound.names = NameSource::Table(Arc::new(table));
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let url = format!("http://moving.example:{}/hook", receiver.address().port());
        let hook = create(&server, &acme, &json!({"name": "Hook", "url": url, "events": ["api_key.*"]})).await.ok(201);
        moved.store(true, Ordering::SeqCst);
        server.key(&acme, &["tickets:read"]).await;
        server.sender.run_due().await.unwrap();
        assert_eq!(receiver.connections(), 0, "nobody was called");
        let log = server.get(format!("{DELIVERIES}?webhook_id={}", id_of(&hook))).cookie(&acme.admin).await.ok(200);
        let (delivery, attempts) = (&log["data"][0], log["data"][0]["attempts"].as_array().unwrap());
        assert_eq!((&delivery["status"], attempts.len()), (&json!("pending"), 1), "{log}");
        assert!(attempts[0]["error"].as_str().unwrap().starts_with("target_not_allowed"), "{log}");
        for unknown in ["status_code", "response_body", "address"] {
            assert_eq!(attempts[0][unknown], Value::Null, "{unknown}");
        }
        assert_eq!(read(&server, &acme, &hook).await["consecutive_failures"], 1);
    }
}

over_http! {
    async fn a_repeated_request_gets_its_first_answer_wherever_the_name_leads_by_now(setup: Setup) {
        let mut setup = setup;
        let inside = Arc::new(AtomicBool::new(false));
        let moved = inside.clone();
        let address = move |_: &str| {
            let address = if moved.load(Ordering::Relaxed) { "10.0.0.1" } else { "8.8.8.8" };
            vec![address.parse().unwrap()]
        };
        setup.settings.outbound.names = NameSource::Table(Arc::new(address));
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Hook", "url": "https://hooks.example.org/", "events": ["*"]});
        let ask = async |key: &str| server.post(WEBHOOKS).cookie(&acme.admin).idempotency_key(key).json(&body).await;
        let first = ask("once").await.ok(201);
        inside.store(true, Ordering::Relaxed);
        assert_eq!(ask("once").await.ok(201), first);
        assert_eq!(ask("again").await.json()["code"], "target_not_allowed");
    }
}
