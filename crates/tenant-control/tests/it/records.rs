//! One record: how it is named, how it looks, and how its versions keep two writers apart.

use std::future::IntoFuture;

use futures_util::future::join_all;
use kernel::base::MINUTE_MS;
use serde_json::{Value, json};

use crate::support::people::{AUDIT, KEYS};
use crate::support::{Answer, Server, Tenancy, over_http};

fn one(id: &str) -> String {
    format!("{KEYS}?id={id}")
}

async fn read(server: &Server, tenancy: &Tenancy, id: &str) -> Answer {
    let answer = server.get(one(id)).cookie(&tenancy.admin).await;
    answer.is(200);
    answer
}

/// A prefix, `_`, and 26 characters of Crockford base32 of a UUIDv7.
#[track_caller]
fn assert_id(value: &Value, prefix: &str) {
    let text = value.as_str().unwrap();
    let digits = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).expect("the prefix");
    assert!(digits.len() == 26 && digits.bytes().all(|b| b"0123456789abcdefghjkmnpqrstvwxyz".contains(&b)), "{text}");
    assert!(digits.as_bytes()[0] <= b'7', "{text} is no UUID");
    let bits = digits.bytes().fold(0_u128, |bits, digit| {
        let value = b"0123456789abcdefghjkmnpqrstvwxyz".iter().position(|known| *known == digit).unwrap();
        (bits << 5) | value as u128
    });
    assert_eq!((bits >> 76) & 0xf, 7, "{text} is no UUIDv7");
}

#[track_caller]
fn assert_time(value: &Value) {
    let text = value.as_str().unwrap();
    assert!(
        text.len() == 24 && text.ends_with('Z') && text.as_bytes()[19] == b'.',
        "{text} has no milliseconds in UTC"
    );
}

over_http! {
    async fn a_record_has_every_field_that_is_documented(server: Server) {
        let acme = server.tenant("acme").await;
        let made = server.key(&acme, &["search:read"]).await;
        let record = read(&server, &acme, &made.id).await.json();
        let schema = &server.contract.document["components"]["schemas"]["ApiKey"];
        for name in schema["properties"].as_object().unwrap().keys() {
            assert!(record.get(name).is_some(), "{name}");
        }
        let documented = schema["properties"].as_object().unwrap().len();
        assert_eq!(record.as_object().unwrap().len(), documented, "and no other");
        assert_id(&record["id"], "key");
        assert_id(&record["created_by"]["id"], "usr");
        for name in ["created_at", "updated_at", "expires_at"] {
            assert_time(&record[name]);
        }
        assert_eq!((&record["last_used_at"], &record["last_used_ip"]), (&Value::Null, &Value::Null));
        assert_eq!(record["created_by"], json!({"type": "user", "id": record["created_by"]["id"], "name": "The admin"}));
        let mut without = made.record.clone();
        let plain = without.as_object_mut().unwrap().remove("key").unwrap();
        assert_eq!(without, record, "the answer to POST is the record with the key beside it");
        assert!(!record.to_string().contains(plain.as_str().unwrap()));
    }

    async fn an_answer_to_post_tells_where_the_record_is(server: Server) {
        let acme = server.tenant("acme").await;
        let made = server.post(KEYS).cookie(&acme.admin).json(&json!({"name": "A", "scopes": ["*"]})).await;
        assert_eq!(made.is(201).header("location"), one(made.json()["id"].as_str().unwrap()));
        assert_eq!(made.header("etag"), "\"1\"");
        let found = server.get(made.header("location")).cookie(&acme.admin).await;
        assert_eq!(found.ok(200)["id"], made.json()["id"]);
    }

    async fn what_is_not_there_looks_the_same_for_whatever_reason(server: Server) {
        let acme = server.tenant("acme").await;
        let globex = server.tenant("globex").await;
        let foreign = server.key(&globex, &["*"]).await.id;
        let own = server.key(&acme, &["*"]).await.id;
        let body = json!({"name": "A", "scopes": ["*"]});
        let upper = own.to_uppercase();
        let user = own.replacen("key", "usr", 1);
        let ids = ["key_01jd8z6v2mfkpb7h3q9xw5t4ra", &foreign, "nonsense", "", &upper, &user, "key_", "%F0%9F%94%91", &own[..29],
            "key_00000000000000000000000000", "key_zzzzzzzzzzzzzzzzzzzzzzzzzz", "'%20OR%201=1--"];
        let mut seen = Vec::new();
        for id in ids {
            for answer in [
                server.get(one(id)).cookie(&acme.admin).await,
                server.put(one(id)).cookie(&acme.admin).json(&body).await,
                server.put(one(id)).cookie(&acme.admin).json(&json!({"rotate": {}})).await,
                server.delete(one(id)).cookie(&acme.admin).await,
            ] {
                assert_eq!(answer.status, 404, "{id}: {}", answer.json());
                answer.problem("not_found");
                seen.push(answer.body_but_request_id());
            }
        }
        assert!(seen.iter().all(|body| *body == seen[0]), "{seen:#?}");
    }

    async fn a_change_names_its_record(server: Server) {
        let acme = server.tenant("acme").await;
        server.put(KEYS).cookie(&acme.admin).json(&json!({"name": "A", "scopes": ["*"]})).await.problem("missing_parameter");
        server.delete(KEYS).cookie(&acme.admin).await.problem("missing_parameter");
    }

    async fn a_replacement_needs_every_required_field_and_keeps_networks_and_expiry(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "A", "scopes": ["*"], "allowed_cidrs": ["127.0.0.0/8"], "expires_days": 7});
        let key = server.key_with(&acme, &body).await;
        let put = |body: Value| server.put(one(&key.id)).cookie(&acme.admin).json(&body);
        assert_eq!(put(json!({"name": "B"})).await.pointers(), ["/scopes"]);
        assert_eq!(put(json!({"scopes": ["*"]})).await.pointers(), ["/name"]);
        let now = put(json!({"name": "B", "scopes": ["tickets:read"]})).await.ok(200);
        assert_eq!((&now["name"], &now["scopes"], &now["allowed_cidrs"]), (&json!("B"), &json!(["tickets:read"]), &json!(["127.0.0.0/8"])));
        assert_eq!(now["expires_at"], key.record["expires_at"], "the expiry stays where it is not given");
        assert_eq!(now.get("key"), None, "the key is shown once");
    }

    async fn a_version_counts_changes_and_nothing_else(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["search:read"]).await;
        let put = |name: &str| server.put(one(&key.id)).cookie(&acme.admin).json(&json!({"name": name, "scopes": ["search:read"]}));
        server.advance(MINUTE_MS);
        let changed = put("B").await;
        assert_eq!((changed.ok(200)["version"].clone(), changed.header("etag")), (json!(2), "\"2\""));
        assert_ne!(changed.json()["updated_at"], key.record["updated_at"]);
        server.advance(MINUTE_MS);
        let audited = server.get(AUDIT).cookie(&acme.admin).await.ok(200)["data"].as_array().unwrap().len();
        let again = put("B").await;
        assert_eq!(again.ok(200), changed.json(), "nothing changed, not even updated_at");
        assert_eq!(again.header("etag"), "\"2\"");
        let audited_now = server.get(AUDIT).cookie(&acme.admin).await.ok(200)["data"].as_array().unwrap().len();
        assert_eq!(audited_now, audited, "nothing happened, so nothing is told");
        // What the server observes moves neither version nor updated_at.
        server.get("/api/auth/session").key(&key.plain).await.is(200);
        kernel::jobs::save_last_uses(&server.app).await.unwrap();
        let used = read(&server, &acme, &key.id).await.json();
        assert_eq!((&used["version"], &used["updated_at"]), (&json!(2), &changed.json()["updated_at"]));
        assert_eq!((&used["last_used_at"], &used["last_used_ip"]), (&json!("2026-01-15T10:02:00.000Z"), &json!("127.0.0.1")));
    }

    async fn if_match_keeps_two_writers_apart(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["search:read"]).await;
        let put = |tag: &str, name: &str| {
            let body = json!({"name": name, "scopes": ["search:read"]});
            server.put(one(&key.id)).cookie(&acme.admin).header("if-match", tag).json(&body)
        };
        let first = read(&server, &acme, &key.id).await;
        assert_eq!(first.header("etag"), "\"1\"");
        put(first.header("etag"), "B").await.is(200);
        put(first.header("etag"), "C").await.problem("version_mismatch");
        // If-Match compares strongly, so a weak tag never matches; nor does anything that is no tag.
        for tag in ["W/\"2\"", "2", "\"1\", \"3\"", "", "\"02\"", "\"2", "\" 2\"", "\"2 \""] {
            put(tag, "C").await.problem("version_mismatch");
        }
        assert_eq!(read(&server, &acme, &key.id).await.json()["name"], "B", "a refused change has no effect");
        put("\"1\", \"2\"", "C").await.is(200);
        put("*", "D").await.is(200);
        put("W/\"4\",\"4\"", "E").await.is(200);
        let two_lines = server.put(one(&key.id)).cookie(&acme.admin).header("if-match", "\"1\"").header("if-match", "\"5\"");
        two_lines.json(&json!({"rotate": {}})).await.is(200);
        let delete = |tag: &str| server.delete(one(&key.id)).cookie(&acme.admin).header("if-match", tag);
        delete("\"5\"").await.problem("version_mismatch");
        delete("\"6\"").await.is(204);
        assert_eq!(read(&server, &acme, &key.id).await.header("etag"), "\"7\"");
    }

    async fn of_two_writers_at_once_one_wins(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["search:read"]).await;
        let put = |name: String| {
            let body = json!({"name": name, "scopes": ["search:read"]});
            server.put(one(&key.id)).cookie(&acme.admin).header("if-match", "\"1\"").json(&body).into_future()
        };
        let mut statuses: Vec<u16> = join_all((0..10).map(|n| put(format!("Writer {n}")))).await.iter().map(|a| a.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [[200].as_slice(), &[412; 9]].concat());
        assert_eq!(read(&server, &acme, &key.id).await.json()["version"], 2);
    }
}
