//! POST: what making an endpoint takes, what comes of it, and the secret that is shown once.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::join_all;

use super::*;
use crate::support::Answer;
use crate::support::people::{AUDIT, SESSION};

pub const URL: &str = "https://hooks.example.org/in";

/// A good body; its name has no address, so nothing is ever sent there.
pub fn input() -> Value {
    json!({"name": "Hook", "url": URL, "events": ["ticket.*"]})
}

/// The good body with one field set to another value.
pub fn input_with(field: &str, value: impl Into<Value>) -> Value {
    let mut body = input();
    body[field] = value.into();
    body
}

pub async fn create(server: &Server, tenancy: &Tenancy, body: &Value) -> Answer {
    server.post(WEBHOOKS).cookie(&tenancy.admin).json(body).await
}

pub fn id_of(record: &Value) -> &str {
    record["id"].as_str().expect("an id")
}

pub fn one(hook: &Value) -> String {
    format!("{WEBHOOKS}?id={}", id_of(hook))
}

pub async fn read(server: &Server, tenancy: &Tenancy, hook: &Value) -> Value {
    server.get(one(hook)).cookie(&tenancy.admin).await.ok(200)
}

pub async fn count(server: &Server, tenancy: &Tenancy) -> usize {
    let page = server.get(format!("{WEBHOOKS}?limit=200")).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().unwrap().len()
}

/// What the trail has of these actions.
pub async fn trail(server: &Server, tenancy: &Tenancy, action: &str) -> Vec<Value> {
    let page = server.get(format!("{AUDIT}?action={action}")).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().unwrap().clone()
}

/// The endpoint without the secret of its maker.
pub fn without_secret(mut made: Value) -> Value {
    assert!(made.as_object_mut().unwrap().remove("secret").is_some(), "no secret in {made}");
    made
}

over_http! {
    async fn a_new_endpoint_is_shown_whole_and_its_secret_once(server: Server) {
        let acme = server.tenant("acme").await;
        let answer = create(&server, &acme, &input()).await;
        let made = answer.ok(201);
        assert!(id_of(&made).starts_with("wh_") && id_of(&made).len() == 29, "{made}");
        assert_eq!(answer.header("location"), one(&made));
        assert_eq!(answer.header("etag"), "\"1\"");
        assert_eq!(answer.header("cache-control"), "no-store");
        let me = server.get(SESSION).cookie(&acme.admin).await.ok(200)["actor"].clone();
        let now = server.now().to_string();
        for (field, value) in [
            ("name", json!("Hook")),
            ("url", json!(URL)),
            ("events", json!(["ticket.*"])),
            ("enabled", json!(true)),
            ("headers", json!({})),
            ("rate_limit_per_second", Value::Null),
            ("ordered", json!(false)),
            ("status", json!("enabled")),
            ("disabled_reason", Value::Null),
            ("last_success_at", Value::Null),
            ("last_failure_at", Value::Null),
            ("consecutive_failures", json!(0)),
            ("created_by", json!({"type": "user", "id": me["id"], "name": me["name"]})),
            ("version", json!(1)),
            ("created_at", json!(now)),
            ("updated_at", json!(now)),
        ] {
            assert_eq!(made.get(field), Some(&value), "{field}");
        }
        let record = without_secret(made.clone());
        let shown = server.get(one(&made)).cookie(&acme.admin).await;
        assert_eq!((shown.ok(200), shown.header("etag")), (record.clone(), "\"1\""));
        let listed = server.get(WEBHOOKS).cookie(&acme.admin).await.ok(200);
        assert_eq!(listed, json!({"data": [record], "has_more": false, "next_cursor": null}));
        assert_eq!(
            trail(&server, &acme, "webhook.create").await[0]["target"],
            json!({"type": "webhook", "id": made["id"]})
        );
    }

    async fn a_secret_is_32_bytes_in_base64_and_each_is_another(server: Server) {
        let acme = server.tenant("acme").await;
        let mut secrets = Vec::new();
        for _ in 0..10 {
            let secret = create(&server, &acme, &input()).await.ok(201)["secret"].as_str().unwrap().to_owned();
            let bytes = BASE64.decode(secret.strip_prefix("whsec_").expect("the prefix")).expect("base64 with padding");
            assert_eq!(bytes.len(), 32);
            assert!(!secrets.contains(&bytes));
            secrets.push(bytes);
        }
    }

    async fn every_optional_field_is_kept(server: Server) {
        let acme = server.tenant("acme").await;
        let optional =
            json!({"enabled": false, "headers": {"X-Team": "ops"}, "rate_limit_per_second": 7, "ordered": true});
        let mut body = input();
        body.as_object_mut().unwrap().extend(optional.as_object().unwrap().clone());
        let made = create(&server, &acme, &body).await.ok(201);
        assert_eq!((&made["enabled"], &made["status"]), (&json!(false), &json!("disabled")));
        assert!(made["disabled_reason"].is_string(), "{made}");
        assert_eq!((&made["rate_limit_per_second"], &made["ordered"]), (&json!(7), &json!(true)));
        assert_eq!(made["headers"], json!({"X-Team": "********"}));
        assert_eq!(read(&server, &acme, &made).await, without_secret(made));
    }

    async fn a_name_is_trimmed_and_has_1_to_200_characters(server: Server) {
        let acme = server.tenant("acme").await;
        let long = "ü".repeat(200);
        for (name, kept) in [("  Chat\n", "Chat"), ("x", "x"), (&*long, &*long), ("a  b", "a  b")] {
            assert_eq!(create(&server, &acme, &input_with("name", name)).await.ok(201)["name"], kept);
        }
        let too_long = "ü".repeat(201);
        for name in [
            json!(""),
            json!(" \t\n"),
            json!(too_long),
            json!("a\nb"),
            json!("a\u{7f}b"),
            json!("a\u{85}b"),
            json!(7),
            json!(["x"]),
            Value::Null,
        ] {
            assert_eq!(create(&server, &acme, &input_with("name", name.clone())).await.pointers(), ["/name"], "{name}");
        }
    }

    async fn a_url_is_kept_as_it_was_written(server: Server) {
        let acme = server.tenant("acme").await;
        let longest = format!("{URL}?{}", "x".repeat(2_048 - URL.len() - 1));
        for url in [
            "http://hooks.example.org",
            "https://hooks.example.org:8443/a/b?c=d&e=%20f",
            "HTTPS://Hooks.Example.ORG/In",
            "https://hooks.example.org/@name:pw",
            "https://hooks.example.org?token=abc",
            &longest,
        ] {
            assert_eq!(create(&server, &acme, &input_with("url", url)).await.ok(201)["url"], url);
        }
    }

    async fn what_is_no_absolute_http_url_is_refused(server: Server) {
        let acme = server.tenant("acme").await;
        let too_long = format!("{URL}?{}", "x".repeat(2_048 - URL.len()));
        for url in [
            "",
            "hooks.example.org/in",
            "/in",
            "//hooks.example.org/in",
            "?x",
            "https:/hooks.example.org/in",
            "https:hooks.example.org/in",
            "https://",
            "https:///in",
            "https://:443/in",
            "ftp://hooks.example.org/in",
            "ws://hooks.example.org/in",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:text/plain,x",
            "mailto:ops@example.org",
            "https://name@hooks.example.org/in",
            "https://name:pw@hooks.example.org/in",
            "https://@hooks.example.org/in",
            "https://hooks.example.org/in#part",
            "https://hooks.example.org/in#",
            " https://hooks.example.org/in",
            "https://hooks.example.org/in ",
            "https://hooks.example.org/a b",
            "https://hooks .example.org/in",
            "https://hooks.example.org/a\tb",
            "https://hooks.example.org/in\r\nHost: other.example.org",
            "https://hooks.example.org/\u{0}",
            "https://hooks.example.org\\in",
            "https://hooks.example.org:0/in",
            "https://hooks.example.org:65536/in",
            "https://hooks.example.org:port/in",
            "https://hooks.example.org:/in",
            "https://hooks..example.org/in",
            "https://[::g]/in",
            &too_long,
        ] {
            let answer = create(&server, &acme, &input_with("url", url)).await;
            assert_eq!(answer.status, 422, "{url:?}: {}", answer.json());
            assert_eq!(answer.pointers(), ["/url"], "{url:?}");
        }
        for url in [json!(1), json!(true), json!([URL]), json!({"url": URL}), Value::Null] {
            assert_eq!(create(&server, &acme, &input_with("url", url.clone())).await.pointers(), ["/url"], "{url}");
        }
        assert_eq!(count(&server, &acme).await, 0);
    }

    async fn events_are_kinds_families_and_everything(server: Server) {
        let acme = server.tenant("acme").await;
        for events in [
            json!(["*"]),
            json!(["ticket.created"]),
            json!(["ticket.updated", "ticket.created"]),
            json!(["ticket.*", "api_key.*", "webhook.*"]),
            json!(["webhook.test"]),
            json!(["*", "webhook.test"]),
        ] {
            assert_eq!(create(&server, &acme, &input_with("events", events.clone())).await.ok(201)["events"], events);
        }
        // Said twice is said once.
        let twice = input_with("events", json!(["ticket.updated", "ticket.*", "ticket.updated"]));
        assert_eq!(create(&server, &acme, &twice).await.ok(201)["events"], json!(["ticket.updated", "ticket.*"]));
        create(&server, &acme, &input_with("events", vec!["ticket.created"; 50])).await.is(201);
        assert_eq!(
            create(&server, &acme, &input_with("events", vec!["ticket.created"; 51])).await.pointers(),
            ["/events"]
        );
    }

    async fn each_bad_event_is_named(server: Server) {
        let acme = server.tenant("acme").await;
        for word in [
            "",
            "**",
            "*.*",
            "*.created",
            ".*",
            ".",
            "ticket",
            "ticket.",
            "ticket.deleted",
            "ticket.**",
            "ticket.created.*",
            "Ticket.created",
            "ticket.created ",
            " ticket.created",
            "ticket created",
            "nonsense.*",
            "tickets.*",
            "api-key.created",
            "api_key.*,ticket.*",
            "ticket.create%",
        ] {
            let answer = create(&server, &acme, &input_with("events", json!(["ticket.created", word]))).await;
            assert_eq!(answer.pointers(), ["/events/1"], "{word:?}");
        }
        for events in [json!([]), json!("ticket.*"), json!({"0": "ticket.*"}), json!(1), Value::Null] {
            assert_eq!(
                create(&server, &acme, &input_with("events", events.clone())).await.pointers(),
                ["/events"],
                "{events}"
            );
        }
        let mixed = json!([1, "ticket.*", null, "nonsense", ["ticket.*"]]);
        assert_eq!(
            create(&server, &acme, &input_with("events", mixed)).await.pointers(),
            ["/events/0", "/events/2", "/events/3", "/events/4"]
        );
        assert_eq!(count(&server, &acme).await, 0);
    }

    async fn a_rate_is_from_1_to_1000_or_null(server: Server) {
        let acme = server.tenant("acme").await;
        for rate in [json!(1), json!(1_000), Value::Null] {
            let made = create(&server, &acme, &input_with("rate_limit_per_second", rate.clone())).await.ok(201);
            assert_eq!(made["rate_limit_per_second"], rate);
        }
        for rate in [json!(0), json!(-1), json!(1_001), json!(1.5), json!(1e300), json!("5"), json!(true), json!([5])] {
            let answer = create(&server, &acme, &input_with("rate_limit_per_second", rate.clone())).await;
            assert_eq!(answer.pointers(), ["/rate_limit_per_second"], "{rate}");
        }
    }

    async fn enabled_and_ordered_are_true_or_false(server: Server) {
        let acme = server.tenant("acme").await;
        for field in ["enabled", "ordered"] {
            for value in [json!(1), json!(0), json!("true"), json!([]), json!({}), Value::Null] {
                let answer = create(&server, &acme, &input_with(field, value.clone())).await;
                assert_eq!(answer.pointers(), [format!("/{field}")], "{value}");
            }
        }
    }

    async fn every_bad_field_is_named_at_once_and_nothing_is_written(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({
            "name": "", "url": "in", "events": ["ticket.*", "nope"], "enabled": 1, "headers": {"Host": "x", "X-Ok": "y", "X-Bad": 1},
            "rate_limit_per_second": 0, "ordered": "no", "secret": "whsec_x", "nonsense": null,
        });
        let mut pointers = create(&server, &acme, &body).await.pointers();
        pointers.sort();
        let wanted = [
            "/enabled",
            "/events/1",
            "/headers/Host",
            "/headers/X-Bad",
            "/name",
            "/nonsense",
            "/ordered",
            "/rate_limit_per_second",
            "/secret",
            "/url",
        ];
        assert_eq!(pointers, wanted);
        assert_eq!(create(&server, &acme, &json!({})).await.pointers(), ["/name", "/url", "/events"]);
        for body in [json!([]), json!("x"), json!(1), Value::Null] {
            assert_eq!(create(&server, &acme, &body).await.pointers(), [""], "{body}");
        }
        assert_eq!((count(&server, &acme).await, trail(&server, &acme, "webhook.create").await.len()), (0, 0));
    }

    async fn what_the_service_decides_cannot_be_set(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &input()).await.ok(201);
        let may = ["name", "url", "events", "enabled", "headers", "rate_limit_per_second", "ordered"];
        for (field, value) in made.as_object().unwrap().iter().filter(|(field, _)| !may.contains(&field.as_str())) {
            let answer = create(&server, &acme, &input_with(field, value.clone())).await;
            assert_eq!(answer.pointers(), [format!("/{field}")]);
        }
        let named = server.post(one(&made)).cookie(&acme.admin).json(&input()).await;
        named.problem("unknown_parameter");
        assert_eq!(count(&server, &acme).await, 1);
    }

    async fn a_repeat_replays_the_secret(server: Server) {
        let acme = server.tenant("acme").await;
        let post = |body: Value| server.post(WEBHOOKS).cookie(&acme.admin).idempotency_key("k").json(&body);
        // A refusal frees the key.
        post(input_with("name", "")).await.problem("invalid_fields");
        let first = post(input()).await;
        let again = post(input()).await;
        assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), ("", "true"));
        assert_eq!(first.ok(201), again.ok(201));
        assert_eq!((first.header("location"), first.header("etag")), (again.header("location"), again.header("etag")));
        post(input_with("name", "Other")).await.problem("idempotency_key_reused");
        assert_eq!(count(&server, &acme).await, 1);
    }

    async fn a_tenant_has_at_most_50_endpoints_and_deleting_makes_room(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let mut made = Vec::new();
        for n in 0..50 {
            made.push(create(&server, &acme, &input_with("enabled", n % 2 == 0)).await.ok(201));
        }
        create(&server, &acme, &input()).await.problem("limit_reached");
        create(&server, &other, &input()).await.is(201);
        server.delete(one(&made[7])).cookie(&acme.admin).await.is(204);
        // Requests at once do not share the place.
        let (body, calls) = (input(), 0..6);
        let answers = join_all(calls.map(|_| create(&server, &acme, &body))).await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409, 409, 409]);
        // What is there can still change.
        server.put(one(&made[3])).cookie(&acme.admin).json(&input_with("enabled", true)).await.is(200);
        assert_eq!(count(&server, &acme).await, 50);
    }
}
