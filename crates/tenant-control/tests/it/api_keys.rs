//! `/api/admin/api-keys`: what a key looks like, what making one takes, and where it works.

mod change;
mod limit;
mod makers;
mod narrowing;
mod revocation;
mod rights;
mod rotation;
mod standing;
mod stolen;
mod uses;

use serde_json::{Value, json};

use crate::support::people::{KEYS, SESSION};
use crate::support::{Answer, Key, Server, Tenancy, over_http};

/// `tck_`, 8 characters, `_`, 32 characters and 6 of a checksum, all of base62.
fn is_well_formed(key: &str) -> bool {
    let base62 = |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let parts = key.strip_prefix("tck_").and_then(|rest| rest.split_once('_'));
    parts.is_some_and(|(public_id, rest)| base62(public_id, 8) && base62(rest, 38))
}

/// CRC32 (IEEE) bit by bit, in six digits of base62, as someone who only has the contract would write it.
fn checksum(text: &str) -> String {
    let mut crc = u32::MAX;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    let mut rest = crc ^ u32::MAX;
    let mut digits = Vec::new();
    for _ in 0..6 {
        digits.push("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".as_bytes()[(rest % 62) as usize]);
        rest /= 62;
    }
    digits.reverse();
    String::from_utf8(digits).unwrap()
}

fn one(key: &Key) -> String {
    format!("{KEYS}?id={}", key.id)
}

/// The names of an object's fields, sorted.
fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// What the admin gets for a body with this one field set to another value.
async fn create_with(server: &Server, tenancy: &Tenancy, field: &str, value: Value) -> Answer {
    let mut body = json!({"name": "Key", "scopes": ["tickets:read"]});
    body[field] = value;
    server.post(KEYS).cookie(&tenancy.admin).json(&body).await
}

const RECORD: [&str; 14] = [
    "allowed_cidrs",
    "created_at",
    "created_by",
    "expires_at",
    "id",
    "last_four",
    "last_used_at",
    "last_used_ip",
    "name",
    "prefix",
    "scopes",
    "status",
    "updated_at",
    "version",
];

over_http! {
    async fn a_key_has_the_published_form_and_a_checksum_that_anyone_can_verify(server: Server) {
        let acme = server.tenant("acme").await;
        for _ in 0..20 {
            let key = server.key(&acme, &["*"]).await;
            assert!(is_well_formed(&key.plain), "{}", key.plain);
            let (body, given) = key.plain.split_at(key.plain.len() - 6);
            assert_eq!(given, checksum(body), "{}", key.plain);
            assert_eq!(key.record["prefix"], key.plain[..12], "tck_ and the public id");
            assert_eq!(key.record["last_four"], key.plain[key.plain.len() - 4..]);
        }
    }

    async fn a_record_has_exactly_the_documented_fields(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Report", "scopes": ["tickets:read", "search:*"], "expires_days": 30, "allowed_cidrs": ["10.0.0.0/8"]});
        let answer = server.post(KEYS).cookie(&acme.admin).json(&body).await;
        let mut made = answer.ok(201);
        let id = made["id"].as_str().unwrap().to_owned();
        assert_eq!(answer.header("location"), format!("{KEYS}?id={id}"));
        assert_eq!(answer.header("etag"), "\"1\"");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(made.as_object_mut().unwrap().remove("key").is_some(), "POST shows the key");
        assert_eq!(fields(&made), RECORD);
        let read = server.get(format!("{KEYS}?id={id}")).cookie(&acme.admin).await;
        assert_eq!(read.header("etag"), "\"1\"");
        assert_eq!(read.ok(200), made, "GET shows the same without the key");
        assert_eq!(server.get(KEYS).cookie(&acme.admin).await.ok(200)["data"], json!([made]), "so does the list");

        assert!(id.starts_with("key_") && id.len() == 30, "{id}");
        let now = server.now().to_string();
        let me = server.get(SESSION).cookie(&acme.admin).await.ok(200);
        let created_by = json!({"type": "user", "id": me["actor"]["id"], "name": me["actor"]["name"]});
        for (field, value) in [
            ("name", json!("Report")),
            ("scopes", json!(["tickets:read", "search:*"])),
            ("allowed_cidrs", json!(["10.0.0.0/8"])),
            ("status", json!("active")),
            ("version", json!(1)),
            ("created_at", json!(now)),
            ("updated_at", json!(now)),
            ("expires_at", json!("2026-02-14T10:00:00.000Z")),
            ("last_used_at", Value::Null),
            ("last_used_ip", Value::Null),
            ("created_by", created_by),
        ] {
            assert_eq!(made[field], value, "{field}");
        }
    }

    async fn the_plain_key_is_never_shown_again(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        let body = json!({"name": "Other", "scopes": ["*"]});
        let replaced = server.put(one(&key)).cookie(&acme.admin).json(&body).await;
        assert!(replaced.ok(200).get("key").is_none());
        let secret = &key.plain["tck_12345678_".len()..];
        for path in [one(&key), KEYS.to_owned(), SESSION.to_owned(), "/api/admin/audit".to_owned()] {
            let answer = server.get(path.clone()).key(&key.plain).await;
            answer.is(200);
            assert!(!String::from_utf8(answer.body).unwrap().contains(secret), "{path}");
        }
    }

    async fn a_key_lives_for_the_days_asked_and_90_when_none_are(server: Server) {
        let acme = server.tenant("acme").await;
        for (days, end) in [(1, "2026-01-16"), (365, "2027-01-15")] {
            let made = create_with(&server, &acme, "expires_days", json!(days)).await.ok(201);
            assert_eq!(made["expires_at"], format!("{end}T10:00:00.000Z"), "{days}");
        }
        let made = server.key(&acme, &["*"]).await;
        assert_eq!(made.record["expires_at"], "2026-04-15T10:00:00.000Z");
        for days in [
            json!(0),
            json!(-1),
            json!(366),
            json!(1e300),
            json!(1.5),
            json!("30"),
            json!(true),
            json!([1]),
            Value::Null,
        ] {
            let answer = create_with(&server, &acme, "expires_days", days.clone()).await;
            assert_eq!(answer.pointers(), ["/expires_days"], "{days}");
        }
    }

    async fn a_key_works_until_the_moment_it_expires(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Day", "scopes": ["api_keys:read"], "expires_days": 1})).await;
        server.advance(24 * 3_600_000 - 1);
        server.get(KEYS).key(&key.plain).await.is(200);
        server.advance(1);
        server.get(KEYS).key(&key.plain).await.problem("key_expired");
        let admin = server.user(&acme.tenant, kernel::auth::Role::Admin).await;
        assert_eq!(server.get(one(&key)).cookie(&admin).await.ok(200)["status"], "expired");
    }

    async fn a_name_is_trimmed_and_has_1_to_200_characters(server: Server) {
        let acme = server.tenant("acme").await;
        let long = "ü".repeat(200);
        for (name, kept) in [("  Report\n", "Report"), ("x", "x"), (&*long, &*long), ("  x", "x"), ("a  b", "a  b")] {
            assert_eq!(create_with(&server, &acme, "name", json!(name)).await.ok(201)["name"], kept);
        }
        for name in ["می\u{200c}خواهم", "👩\u{200d}💻", "葛\u{e0100}城"] {
            assert_eq!(create_with(&server, &acme, "name", json!(name)).await.ok(201)["name"], name);
        }
        let too_long = "ü".repeat(201);
        for name in [
            json!(""),
            json!(" \t\n"),
            json!(too_long),
            json!("a\nb"),
            json!("a\u{7f}b"),
            json!("a\u{85}b"),
            json!("a\u{2028}b"),
            json!("Re\u{200b}port"),
            json!("Report\u{200e}"),
            json!(7),
            Value::Null,
        ] {
            let answer = create_with(&server, &acme, "name", name.clone()).await;
            assert_eq!(answer.pointers(), ["/name"], "{name}");
        }
        create_with(&server, &acme, "name", json!("x")).await.is(201);
    }

    async fn every_scope_of_the_contract_can_be_granted_and_no_other(server: Server) {
        let acme = server.tenant("acme").await;
        let both = ["api_keys", "webhooks", "tickets", "workflows", "cloud", "backup"];
        let read_only = ["search", "inventory", "analytics", "audit"];
        let mut known = vec!["*".to_owned()];
        known.extend(both.iter().flat_map(|family| ["*", "read", "write"].map(|action| format!("{family}:{action}"))));
        known.extend(read_only.iter().flat_map(|family| ["*", "read"].map(|action| format!("{family}:{action}"))));
        for scope in &known {
            assert_eq!(create_with(&server, &acme, "scopes", json!([scope])).await.ok(201)["scopes"], json!([scope]));
        }
        let all = create_with(&server, &acme, "scopes", json!(known)).await.ok(201);
        assert_eq!(all["scopes"], json!(known));

        let mut unknown: Vec<String> = read_only.iter().map(|family| format!("{family}:write")).collect();
        unknown.extend(
            [
                "",
                "**",
                "*:*",
                "*:read",
                "tickets",
                "tickets:",
                ":read",
                "Tickets:read",
                "tickets:read ",
                "tickets:delete",
                "platform:*",
                "platform:write",
                "ticket:read",
            ]
            .map(str::to_owned),
        );
        for scope in unknown {
            let answer = create_with(&server, &acme, "scopes", json!(["tickets:read", scope])).await;
            assert_eq!(answer.pointers(), ["/scopes/1"], "{scope}");
        }
        for scopes in [json!([]), json!("*"), json!({}), Value::Null] {
            assert_eq!(create_with(&server, &acme, "scopes", scopes.clone()).await.pointers(), ["/scopes"], "{scopes}");
        }
        assert_eq!(
            create_with(&server, &acme, "scopes", json!([1, "*", null])).await.pointers(),
            ["/scopes/0", "/scopes/2"]
        );
    }

    async fn networks_are_at_most_50_and_each_bad_one_is_named(server: Server) {
        let acme = server.tenant("acme").await;
        let networks: Vec<String> = (0..51).map(|n| format!("10.0.{n}.0/24")).collect();
        let made = create_with(&server, &acme, "allowed_cidrs", json!(networks[..50])).await.ok(201);
        assert_eq!(made["allowed_cidrs"], json!(networks[..50]));
        assert_eq!(create_with(&server, &acme, "allowed_cidrs", json!(networks)).await.pointers(), ["/allowed_cidrs"]);
        let mixed = json!(["10.0.0.0/8", "10.0.0.0/33", "2001:db8::/32", "localhost", ""]);
        let answer = create_with(&server, &acme, "allowed_cidrs", mixed).await;
        assert_eq!(answer.pointers(), ["/allowed_cidrs/1", "/allowed_cidrs/3", "/allowed_cidrs/4"]);
        assert_eq!(
            create_with(&server, &acme, "allowed_cidrs", json!("10.0.0.0/8")).await.pointers(),
            ["/allowed_cidrs"]
        );
        assert_eq!(create_with(&server, &acme, "allowed_cidrs", json!([])).await.ok(201)["allowed_cidrs"], json!([]));
    }

    async fn every_bad_field_is_named_at_once(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "", "scopes": ["*", "nope"], "expires_days": 0, "allowed_cidrs": ["x"], "status": "active", "key": "tck_"});
        let mut pointers = server.post(KEYS).cookie(&acme.admin).json(&body).await.pointers();
        pointers.sort();
        assert_eq!(pointers, ["/allowed_cidrs/0", "/expires_days", "/key", "/name", "/scopes/1", "/status"]);
        let missing = server.post(KEYS).cookie(&acme.admin).json(&json!({})).await;
        assert_eq!(missing.pointers(), ["/name", "/scopes"]);
    }

    async fn a_key_is_accepted_in_either_header_and_a_wrong_one_in_none(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        server.get(SESSION).header("authorization", format!("bearer {}", key.plain)).await.is(200);
        server.get(SESSION).header("x-api-key", &key.plain).await.is(200);
        // Right in form and checksum, but never issued; and the right public id with another secret.
        let unknown = format!("tck_00000000_{}", "0".repeat(32));
        let guessed = format!("{}_{}", &key.plain[..12], "0".repeat(32));
        let with_checksum = |body: String| format!("{body}{}", checksum(&body));
        // Another character than the last one of the key.
        let last = if key.plain.ends_with('0') { '1' } else { '0' };
        let mistyped = format!("{}{last}", &key.plain[..50]);
        for wrong in [
            with_checksum(unknown),
            with_checksum(guessed),
            mistyped,
            key.plain[..50].to_owned(),
            String::new(),
            "x".to_owned(),
        ] {
            server.get(SESSION).header("authorization", format!("Bearer {wrong}")).await.problem("unauthenticated");
            server.get(SESSION).header("x-api-key", &wrong).await.problem("unauthenticated");
        }
        server.get(SESSION).header("authorization", &key.plain).await.problem("unauthenticated");
        server.get(SESSION).header("authorization", format!("Basic {}", key.plain)).await.problem("unauthenticated");
    }

    async fn a_mistyped_key_is_refused_without_asking_the_database(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        server.app.store.close().await;
        let body = format!("{}x", &key.plain[..key.plain.len() - 7]);
        server.get(SESSION).key(&format!("{body}000000")).await.problem("unauthenticated");
        server.get(SESSION).key(&format!("{body}{}", checksum(&body))).await.problem("unavailable");
    }

    async fn a_key_of_one_tenant_is_nothing_to_another(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let key = server.key(&acme, &["*"]).await;
        assert_eq!(server.get(KEYS).cookie(&other.admin).await.ok(200)["data"], json!([]));
        let body = json!({"name": "Mine", "scopes": ["*"]});
        server.get(one(&key)).cookie(&other.admin).await.problem("not_found");
        server.put(one(&key)).cookie(&other.admin).json(&body).await.problem("not_found");
        server.put(one(&key)).cookie(&other.admin).json(&json!({"rotate": {}})).await.problem("not_found");
        server.delete(one(&key)).cookie(&other.admin).await.problem("not_found");
        assert_eq!(server.get(SESSION).key(&key.plain).await.ok(200)["tenant"]["slug"], "acme");
    }

    async fn a_key_with_networks_works_only_from_them(setup: Setup) {
        let mut setup = setup;
        setup.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let networks = ["198.51.100.0/24", "2001:db8::/32", "203.0.113.7"];
        let key = server.key_with(&acme, &json!({"name": "Office", "scopes": ["*"], "allowed_cidrs": networks})).await;
        assert_eq!(key.record["allowed_cidrs"], json!(["198.51.100.0/24", "2001:db8::/32", "203.0.113.7/32"]));
        for address in ["198.51.100.1", "198.51.100.255", "2001:db8:ffff::1", "203.0.113.7", "::ffff:198.51.100.1"] {
            server.get(SESSION).key(&key.plain).header("x-forwarded-for", address).await.is(200);
        }
        for address in ["198.51.101.1", "2001:db9::1", "203.0.113.8"] {
            let answer = server.get(SESSION).key(&key.plain).header("x-forwarded-for", address).await;
            answer.problem("address_not_allowed");
        }
        server.get(SESSION).key(&key.plain).await.problem("address_not_allowed");
    }
}
