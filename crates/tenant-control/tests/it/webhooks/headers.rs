//! Headers that a tenant adds to its deliveries: which may be given, and that their values are never shown.

use std::future::IntoFuture;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::store::{Purpose, Select};

use super::create::{count, create, input_with, one, read, trail};
use super::*;
use crate::support::Answer;
use crate::support::receiver::Received;

const MASK: &str = "********";

async fn create_with(server: &Server, tenancy: &Tenancy, headers: Value) -> Answer {
    create(server, tenancy, &input_with("headers", headers)).await
}

/// An endpoint of the receiver with these headers.
fn body_for(receiver: &Receiver, headers: Value) -> Value {
    let mut body = json!({"name": "Hook", "url": receiver.url("/hook"), "events": ["ticket.*"]});
    if !headers.is_null() {
        body["headers"] = headers;
    }
    body
}

/// What the endpoint gets now, by a test of it.
async fn deliver(server: &Server, tenancy: &Tenancy, receiver: &Receiver, hook: &Value) -> Received {
    let test = json!({"action": "test", "webhook_id": hook["id"]});
    server.post(DELIVERIES).cookie(&tenancy.admin).json(&test).await.is(202);
    server.sender.run_due().await.unwrap();
    receiver.received().pop().expect("a delivery")
}

/// Every text and every byte string that the tables keep of endpoints, deliveries and answers.
const TEXTS: [&str; 6] = [
    "SELECT name || url || events || header_names || COALESCE(disabled_reason, '') || created_by_name FROM webhooks WHERE 1 = 1",
    "SELECT idempotency_key || headers || route FROM idempotency_records WHERE 1 = 1",
    "SELECT COALESCE(changes, '') || action || actor_name FROM audit_entries WHERE 1 = 1",
    "SELECT body FROM events WHERE 1 = 1",
    "SELECT COALESCE(error, '') || COALESCE(response_body, '') || timings FROM delivery_attempts WHERE 1 = 1",
    "SELECT pattern FROM webhook_subscriptions WHERE 1 = 1",
];
const BYTES: [&str; 4] = [
    "SELECT headers FROM webhooks WHERE 1 = 1",
    "SELECT secret FROM webhook_secrets WHERE 1 = 1",
    "SELECT body FROM idempotency_records WHERE 1 = 1",
    "SELECT body_hash FROM idempotency_records WHERE 1 = 1",
];

async fn stored(server: &Server) -> Vec<(&'static str, Vec<u8>)> {
    let db = server.app.store.system(Purpose::Cli);
    let mut found = Vec::new();
    for sql in TEXTS {
        let rows: Vec<String> = db.select(&Select::for_system(sql).limit(1_000)).await.unwrap();
        assert!(!rows.is_empty(), "nothing to look at: {sql}");
        found.extend(rows.into_iter().map(|text| (sql, text.into_bytes())));
    }
    for sql in BYTES {
        let rows: Vec<Vec<u8>> = db.select(&Select::for_system(sql).limit(1_000)).await.unwrap();
        assert!(!rows.is_empty(), "nothing to look at: {sql}");
        found.extend(rows.into_iter().map(|bytes| (sql, bytes)));
    }
    found
}

over_http! {
    async fn a_stored_value_goes_to_no_place_that_it_was_not_given_for(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (receiver, thief) = (Receiver::start().await, Receiver::start().await);
        let mut body = body_for(&receiver, json!({"Authorization": "Bearer s3cret", "X-Plain": "1"}));
        let made = create(&server, &acme, &body).await.ok(201);
        let put = async |body: &Value| server.put(one(&made)).cookie(&acme.admin).json(body).await;
        body["headers"] = json!({"authorization": MASK, "X-Plain": "2"});
        let port = receiver.address().port();
        for elsewhere in [
            thief.url("/hook"),
            format!("https://127.0.0.1:{port}/hook"),
            format!("http://127.0.0.2:{port}/hook"),
            "http://127.0.0.1/hook".to_owned(),
        ] {
            body["url"] = json!(elsewhere);
            let refused = put(&body).await;
            assert_eq!(refused.pointers(), ["/headers/authorization"], "{elsewhere}");
        }
        assert_eq!(read(&server, &acme, &made).await["url"], receiver.url("/hook"));
        body["url"] = json!(receiver.url("/elsewhere?and=so"));
        put(&body).await.is(200);
        assert_eq!(deliver(&server, &acme, &receiver, &made).await.headers["authorization"], "Bearer s3cret");
        body["url"] = json!(thief.url("/hook"));
        body["headers"] = json!({"Authorization": "Bearer other"});
        put(&body).await.is(200);
        assert_eq!(deliver(&server, &acme, &thief, &made).await.headers["authorization"], "Bearer other");
        assert!(thief.received().iter().all(|got| !got.headers.values().any(|value| value.contains("s3cret"))));
    }

    async fn the_place_of_a_stored_value_is_the_same_in_every_spelling(server: Server) {
        let acme = server.tenant("acme").await;
        let url = "https://hooks.acme.example/in";
        let mut body = json!({"name": "Hook", "url": url, "events": ["ticket.*"], "headers": {"X-Key": "k"}});
        let made = create(&server, &acme, &body).await.ok(201);
        body["headers"] = json!({"X-Key": MASK});
        for (url, same) in [
            ("HTTPS://Hooks.ACME.example:443/other", true),
            ("https://hooks.acme.example", true),
            ("https://hooks.acme.example:8443/in", false),
            ("http://hooks.acme.example:443/in", false),
            ("https://hooks.acme.example.evil.example/in", false),
        ] {
            body["url"] = json!(url);
            let answer = server.put(one(&made)).cookie(&acme.admin).json(&body).await;
            if same {
                answer.is(200);
            } else {
                assert_eq!(answer.pointers(), ["/headers/X-Key"], "{url}");
            }
        }
    }

    async fn an_endpoint_has_at_most_20_headers(server: Server) {
        let acme = server.tenant("acme").await;
        let headers = |count: usize| -> Value {
            (0..count).map(|n| (format!("X-{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into()
        };
        let made = create_with(&server, &acme, headers(20)).await.ok(201);
        assert_eq!(made["headers"].as_object().unwrap().len(), 20);
        assert_eq!(create_with(&server, &acme, headers(21)).await.pointers(), ["/headers"]);
        assert_eq!(create_with(&server, &acme, json!({})).await.ok(201)["headers"], json!({}));
    }

    async fn what_the_service_or_the_protocol_needs_cannot_be_given(server: Server) {
        let acme = server.tenant("acme").await;
        let names = "host content-type content-length content-encoding content-x transfer-encoding connection te trailer upgrade \
            expect cookie proxy-authorization proxy-connection proxy-x user-agent webhook-id webhook-timestamp webhook-signature webhook-x";
        for name in names.split_whitespace() {
            let title: Vec<String> = name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            for spelled in [name.to_owned(), name.to_uppercase(), title.join("-")] {
                let answer = create_with(&server, &acme, json!({"X-Fine": "1", spelled.as_str(): "x"})).await;
                assert_eq!(answer.status, 422, "{spelled}");
                assert_eq!(answer.pointers(), [format!("/headers/{spelled}")]);
            }
        }
        assert_eq!(count(&server, &acme).await, 0);
        // What only looks like them.
        let near =
            "Authorization X-Host Hostname Cookies Tea Contents X-Content-Type X-Webhook-Id Accept X-Proxy-Y Upgrades";
        let near: Vec<&str> = near.split_whitespace().collect();
        let headers: serde_json::Map<String, Value> =
            near.iter().map(|name| ((*name).to_owned(), json!("x"))).collect();
        let made = create_with(&server, &acme, headers.into()).await.ok(201);
        assert!(near.iter().all(|name| made["headers"][name] == MASK), "{made}");
    }

    async fn names_and_values_must_be_those_of_headers(server: Server) {
        let acme = server.tenant("acme").await;
        for (name, pointer) in [
            ("", ""),
            (" ", " "),
            ("X A", "X A"),
            ("X-A:", "X-A:"),
            ("X-A\r\nX-B", "X-A\r\nX-B"),
            ("X-\u{0}", "X-\u{0}"),
            ("X-Ü", "X-Ü"),
            ("(x)", "(x)"),
            ("a/b", "a~1b"),
            ("a@b", "a@b"),
        ] {
            let answer = create_with(&server, &acme, json!({name: "x"})).await;
            assert_eq!(answer.pointers(), [format!("/headers/{pointer}")], "{name:?}");
        }
        for value in [
            json!("a\r\nX-B: c"),
            json!("a\nb"),
            json!("a\rb"),
            json!("a\u{0}b"),
            json!("a\u{7f}"),
            json!(1),
            json!(true),
            json!(["x"]),
            Value::Null,
        ] {
            let answer = create_with(&server, &acme, json!({"X~A": value, "X-Fine": "1"})).await;
            assert_eq!(answer.pointers(), ["/headers/X~0A"], "{value}");
        }
        for headers in [json!([]), json!([{"name": "X-A", "value": "x"}]), json!("X-A: x"), json!(1), Value::Null] {
            assert_eq!(create_with(&server, &acme, headers.clone()).await.pointers(), ["/headers"], "{headers}");
        }
        let both = create_with(&server, &acme, json!({"X A": "1", "X-B": 2})).await.pointers();
        assert_eq!(both, ["/headers/X A", "/headers/X-B"]);
        assert_eq!(count(&server, &acme).await, 0);
    }

    async fn names_do_not_depend_on_case_so_none_is_given_twice(server: Server) {
        let acme = server.tenant("acme").await;
        for (first, second) in [("X-Team", "x-team"), ("AUTHORIZATION", "Authorization")] {
            let pointers = create_with(&server, &acme, json!({first: "1", second: "2"})).await.pointers();
            assert!(
                pointers.len() == 1 && [first, second].iter().any(|name| pointers[0] == format!("/headers/{name}")),
                "{pointers:?}"
            );
        }
        assert_eq!(count(&server, &acme).await, 0);
    }

    async fn headers_are_sent_with_every_delivery_beside_those_of_the_service(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let headers = json!({"Authorization": "Bearer abc", "X-Team": "a, b; c=\"d\"", "accept": "text/plain"});
        let hook = create(&server, &acme, &body_for(&receiver, headers)).await.ok(201);
        let got = deliver(&server, &acme, &receiver, &hook).await;
        assert_eq!(got.headers["authorization"], "Bearer abc");
        assert_eq!(got.headers["x-team"], "a, b; c=\"d\"");
        assert_eq!(got.headers["accept"], "text/plain");
        assert_eq!(got.headers["content-type"], "application/json");
        assert_eq!(got.headers["host"], receiver.address().to_string());
        assert!(got.headers["webhook-signature"].starts_with("v1,") && got.webhook_id().starts_with("evt_"), "{got:?}");
    }

    async fn values_are_masked_in_every_answer_and_event(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let body = body_for(&receiver, json!({"X-A": "hide-this-one", "X-B": "hide-this-two"}));
        let hook = create(&server, &acme, &body).await.ok(201);
        let masked = json!({"X-A": MASK, "X-B": MASK});
        assert_eq!(hook["headers"], masked);
        assert_eq!(read(&server, &acme, &hook).await["headers"], masked);
        assert_eq!(server.get(WEBHOOKS).cookie(&acme.admin).await.ok(200)["data"][0]["headers"], masked);
        let mut renamed = body.clone();
        renamed["name"] = json!("Other");
        assert_eq!(server.put(one(&hook)).cookie(&acme.admin).json(&renamed).await.ok(200)["headers"], masked);
        let rotated = server.put(one(&hook)).cookie(&acme.admin).json(&json!({"rotate_secret": {}})).await.ok(200);
        assert_eq!(rotated["headers"], masked);
        let got = deliver(&server, &acme, &receiver, &hook).await;
        assert_eq!((&got.json()["data"]["headers"], got.headers["x-a"].as_str()), (&masked, "hide-this-one"));
        for path in [WEBHOOKS, DELIVERIES, &format!("{EVENTS}?view=feed"), "/api/admin/audit", &one(&hook)] {
            let answer = server.get(path).cookie(&acme.admin).await;
            assert!(!String::from_utf8(answer.is(200).body.clone()).unwrap().contains("hide-this"), "{path}");
        }
    }

    async fn a_mask_keeps_what_is_stored_and_another_value_replaces_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = create(&server, &acme, &body_for(&receiver, json!({"X-A": "one", "X-B": "two"}))).await.ok(201);
        let put = async |headers: Value| {
            let record = server.put(one(&hook)).cookie(&acme.admin).json(&body_for(&receiver, headers)).await.ok(200);
            (record, deliver(&server, &acme, &receiver, &hook).await.headers)
        };
        // What GET shows can be sent back as it is.
        let shown = read(&server, &acme, &hook).await["headers"].clone();
        let (record, sent) = put(shown).await;
        assert_eq!((sent["x-a"].as_str(), sent["x-b"].as_str(), &record["version"]), ("one", "two", &json!(1)));
        let (record, sent) = put(json!({"X-A": MASK, "X-B": "deux", "X-C": "trois"})).await;
        assert_eq!((sent["x-a"].as_str(), sent["x-b"].as_str(), sent["x-c"].as_str()), ("one", "deux", "trois"));
        assert_eq!(
            (&record["version"], &record["headers"]),
            (&json!(2), &json!({"X-A": MASK, "X-B": MASK, "X-C": MASK}))
        );
        // Names do not depend on case, here neither.
        let (_, sent) = put(json!({"x-a": MASK, "X-C": MASK})).await;
        assert_eq!((sent["x-a"].as_str(), sent["x-c"].as_str(), sent.get("x-b")), ("one", "trois", None));
        // The values survive changes of everything else.
        let mut other = body_for(&receiver, json!({"x-a": MASK}));
        other["ordered"] = json!(true);
        server.put(one(&hook)).cookie(&acme.admin).json(&other).await.is(200);
        server.put(one(&hook)).cookie(&acme.admin).json(&json!({"rotate_secret": {}})).await.is(200);
        assert_eq!(deliver(&server, &acme, &receiver, &hook).await.headers["x-a"], "one");
        let (record, sent) = put(Value::Null).await;
        assert_eq!((&record["headers"], sent.get("x-a")), (&json!({}), None), "omitted drops all");
        let answer = server.put(one(&hook)).cookie(&acme.admin).json(&body_for(&receiver, json!({"X-A": MASK}))).await;
        assert_eq!(answer.pointers(), ["/headers/X-A"], "what was dropped is not kept");
    }

    async fn a_mask_with_nothing_to_keep_is_refused(server: Server) {
        let acme = server.tenant("acme").await;
        assert_eq!(
            create_with(&server, &acme, json!({"X-A": MASK, "X-B": "1", "x~c": MASK})).await.pointers(),
            ["/headers/X-A", "/headers/x~0c"]
        );
        assert_eq!(count(&server, &acme).await, 0);
        let hook = create_with(&server, &acme, json!({"X-A": "1"})).await.ok(201);
        let put = |headers: Value| {
            server.put(one(&hook)).cookie(&acme.admin).json(&input_with("headers", headers)).into_future()
        };
        assert_eq!(put(json!({"X-A": "2", "X-B": MASK})).await.pointers(), ["/headers/X-B"]);
        let foreign = server.tenant("other").await;
        create_with(&server, &foreign, json!({"X-B": "theirs"})).await.is(201);
        assert_eq!(put(json!({"X-B": MASK})).await.pointers(), ["/headers/X-B"], "another tenant's is not kept either");
        assert_eq!(
            (&read(&server, &acme, &hook).await["version"], trail(&server, &acme, "webhook.update").await.len()),
            (&json!(1), 0)
        );
        // Neither more nor fewer stars are the mask.
        for value in ["*******", "*********", "******** "] {
            put(json!({"X-A": MASK, "X-B": value})).await.is(200);
        }
    }

    async fn secrets_and_header_values_are_nowhere_in_clear(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let value = "Bearer find-me-if-you-can";
        let body = json!({"name": "Hook", "url": receiver.url("/hook"), "events": ["*"], "headers": {"Authorization": value, "X-Keep": "keep-this-hidden"}});
        let made = server.post(WEBHOOKS).cookie(&acme.admin).idempotency_key("k").json(&body).await.ok(201);
        let mut changed = body.clone();
        changed["headers"] = json!({"Authorization": "Bearer and-me-after-that", "X-Keep": "********"});
        server.put(one(&made)).cookie(&acme.admin).json(&changed).await.is(200);
        let rotated = server.put(one(&made)).cookie(&acme.admin).json(&json!({"rotate_secret": {}})).await.ok(200);
        let test = json!({"action": "test", "webhook_id": made["id"]});
        server.post(DELIVERIES).cookie(&acme.admin).idempotency_key("k").json(&test).await.is(202);
        server.sender.run_due().await.unwrap();
        assert_eq!(receiver.received()[0].headers["x-keep"], "keep-this-hidden", "they are there");
        let mut hidden: Vec<Vec<u8>> =
            ["find-me-if-you-can", "and-me-after-that", "keep-this-hidden"].map(Into::into).into();
        for secret in [&made["secret"], &rotated["secret"]] {
            let text = secret.as_str().unwrap().trim_start_matches("whsec_");
            hidden.extend([text.into(), BASE64.decode(text).unwrap()]);
        }
        for (sql, bytes) in stored(&server).await {
            for secret in &hidden {
                let found = bytes.windows(secret.len()).any(|window| window == secret);
                assert!(!found, "{sql} shows {:?}", String::from_utf8_lossy(secret));
            }
        }
    }
}
