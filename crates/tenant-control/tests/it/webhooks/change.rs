//! PUT, DELETE and the list: what a change keeps, what it writes down, and what is left of a deleted endpoint.

use kernel::base::{MINUTE_MS, SECOND_MS};

use super::create::{URL, count, create, id_of, input, input_with, one, read, trail, without_secret};
use super::*;
use crate::support::people::AUDIT;
use crate::support::receiver::Behaviour;

fn ids(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(id_of).collect()
}

async fn test_event(server: &Server, tenancy: &Tenancy, hook: &Value) {
    let test = json!({"action": "test", "webhook_id": hook["id"]});
    server.post(DELIVERIES).cookie(&tenancy.admin).json(&test).await.is(202);
    server.sender.run_due().await.unwrap();
}

over_http! {
    async fn put_replaces_and_omitted_fields_return_to_their_defaults(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({
            "name": "Hook", "url": URL, "events": ["ticket.*"], "enabled": false, "headers": {"X-Team": "ops"},
            "rate_limit_per_second": 5, "ordered": true,
        });
        let made = without_secret(create(&server, &acme, &body).await.ok(201));
        server.advance(MINUTE_MS);
        let next = json!({"name": " Chat ", "url": "http://chat.example.org/", "events": ["api_key.created", "*"]});
        let answer = server.put(one(&made)).cookie(&acme.admin).json(&next).await;
        let changed = answer.ok(200);
        assert_eq!(answer.header("etag"), "\"2\"");
        let mut wanted = made.clone();
        for (field, value) in [
            ("name", json!("Chat")),
            ("url", json!("http://chat.example.org/")),
            ("events", json!(["api_key.created", "*"])),
            ("enabled", json!(true)),
            ("status", json!("enabled")),
            ("disabled_reason", Value::Null),
            ("headers", json!({})),
            ("rate_limit_per_second", Value::Null),
            ("ordered", json!(false)),
            ("version", json!(2)),
            ("updated_at", json!(server.now().to_string())),
        ] {
            wanted[field] = value;
        }
        assert_eq!(changed, wanted);
        assert_eq!(read(&server, &acme, &made).await, changed);
    }

    async fn put_needs_name_url_and_events_and_refuses_what_cannot_be_set(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &input()).await.ok(201);
        for (body, pointers) in [
            (json!({}), vec!["/name", "/url", "/events"]),
            (json!({"enabled": false}), vec!["/name", "/url", "/events"]),
            (json!({"name": "x", "url": URL}), vec!["/events"]),
            (json!({"name": "x", "events": ["*"]}), vec!["/url"]),
            (json!({"url": URL, "events": ["*"]}), vec!["/name"]),
            (input_with("events", json!([])), vec!["/events"]),
            (input_with("url", "ftp://hooks.example.org/"), vec!["/url"]),
            (input_with("rate_limit_per_second", 1_001), vec!["/rate_limit_per_second"]),
            (input_with("headers", json!({"Host": "x"})), vec!["/headers/Host"]),
            (input_with("id", made["id"].clone()), vec!["/id"]),
            (input_with("version", 1), vec!["/version"]),
            (input_with("status", "enabled"), vec!["/status"]),
            (input_with("secret", "whsec_x"), vec!["/secret"]),
        ] {
            assert_eq!(server.put(one(&made)).cookie(&acme.admin).json(&body).await.pointers(), pointers, "{body}");
        }
        server.put(WEBHOOKS).cookie(&acme.admin).json(&input()).await.problem("missing_parameter");
        server.delete(WEBHOOKS).cookie(&acme.admin).await.problem("missing_parameter");
        assert_eq!(read(&server, &acme, &made).await, without_secret(made));
    }

    async fn a_change_that_changes_nothing_keeps_the_version_and_leaves_no_trace(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({
            "name": "Hook", "url": URL, "events": ["ticket.*", "*"], "enabled": false, "headers": {"X-A": "one", "X-B": "two"},
            "rate_limit_per_second": 5, "ordered": true,
        });
        let made = without_secret(create(&server, &acme, &body).await.ok(201));
        server.advance(MINUTE_MS);
        let mut masked = body.clone();
        masked["headers"] = json!({"X-B": "********", "X-A": "one"});
        for same in [body, masked] {
            let answer = server.put(one(&made)).cookie(&acme.admin).json(&same).await;
            assert_eq!((answer.ok(200), answer.header("etag")), (made.clone(), "\"1\""));
        }
        assert_eq!(trail(&server, &acme, "webhook.update").await.len(), 0);
    }

    async fn if_match_is_honoured_by_every_change(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &input()).await.ok(201);
        let (replace, rotate) = (input_with("name", "New"), json!({"rotate_secret": {}}));
        let put = |version: &str, body: &Value| {
            server.put(one(&made)).cookie(&acme.admin).header("if-match", version).json(body)
        };
        for body in [&replace, &rotate] {
            put("\"2\"", body).await.problem("version_mismatch");
        }
        server.delete(one(&made)).cookie(&acme.admin).header("if-match", "\"2\"").await.problem("version_mismatch");
        assert_eq!(put("\"1\"", &replace).await.ok(200)["version"], 2);
        assert_eq!(put("\"2\"", &rotate).await.ok(200)["version"], 3);
        put("\"2\"", &input()).await.problem("version_mismatch");
        server.delete(one(&made)).cookie(&acme.admin).header("if-match", "\"3\"").await.is(204);
    }

    async fn unknown_malformed_foreign_and_deleted_are_one_and_the_same_404(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let (foreign, deleted) =
            (create(&server, &other, &input()).await.ok(201), create(&server, &acme, &input()).await.ok(201));
        server.delete(one(&deleted)).cookie(&acme.admin).await.is(204);
        let key = server.key(&acme, &["*"]).await.id;
        let mut bodies = std::collections::HashMap::new();
        for id in [id_of(&foreign), id_of(&deleted), "wh_00000000000000000000000000", "nonsense", "", "wh_", &key] {
            let target = format!("{WEBHOOKS}?id={id}");
            let answers = [
                ("get", server.get(&target).cookie(&acme.admin).await),
                ("put", server.put(&target).cookie(&acme.admin).json(&input()).await),
                ("rotate", server.put(&target).cookie(&acme.admin).json(&json!({"rotate_secret": {}})).await),
                ("if-match", server.put(&target).cookie(&acme.admin).header("if-match", "\"9\"").json(&input()).await),
                ("delete", server.delete(&target).cookie(&acme.admin).await),
            ];
            for (what, answer) in answers {
                assert_eq!(answer.status, 404, "{what} {id:?}");
                answer.problem("not_found");
                let body = answer.body_but_request_id();
                assert_eq!(*bodies.entry(what).or_insert_with(|| body.clone()), body, "{what} {id:?}");
            }
        }
        assert_eq!(read(&server, &other, &foreign).await, without_secret(foreign));
    }

    async fn what_is_wrong_is_told_in_the_order_of_the_contract(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &input()).await.ok(201);
        let reader = server.key(&acme, &["webhooks:read"]).await.plain;
        let unknown = format!("{WEBHOOKS}?id=wh_00000000000000000000000000");
        let inside = input_with("url", "http://127.0.0.1/");
        server.put(format!("{WEBHOOKS}?nonsense=1")).key(&reader).json(&json!({})).await.problem("insufficient_scope");
        server
            .put(format!("{unknown}&nonsense=1"))
            .cookie(&acme.admin)
            .json(&json!({}))
            .await
            .problem("unknown_parameter");
        server.put(&unknown).cookie(&acme.admin).body(input().to_string()).await.problem("unsupported_media_type");
        server
            .put(&unknown)
            .cookie(&acme.admin)
            .header("content-type", "application/json")
            .body("{")
            .await
            .problem("malformed_json");
        assert_eq!(
            server.put(&unknown).cookie(&acme.admin).json(&json!({})).await.pointers(),
            ["/name", "/url", "/events"]
        );
        assert_eq!(
            server.put(&unknown).cookie(&acme.admin).json(&inside).await.is(422).json()["code"],
            "target_not_allowed"
        );
        server.put(&unknown).cookie(&acme.admin).header("if-match", "\"9\"").json(&input()).await.problem("not_found");
        server
            .put(one(&made))
            .cookie(&acme.admin)
            .header("if-match", "\"9\"")
            .json(&json!({"rotate_secret": 1}))
            .await
            .problem("invalid_fields");
        assert_eq!(read(&server, &acme, &made).await, without_secret(made));
    }

    async fn an_endpoint_is_switched_off_and_on_by_put(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &input()).await.ok(201);
        let put = async |enabled: bool| {
            server.put(one(&made)).cookie(&acme.admin).json(&input_with("enabled", enabled)).await.ok(200)
        };
        let off = put(false).await;
        assert_eq!((&off["enabled"], &off["status"], &off["version"]), (&json!(false), &json!("disabled"), &json!(2)));
        assert!(off["disabled_reason"].is_string(), "{off}");
        assert_eq!(put(false).await, off, "off is off");
        let on = put(true).await;
        assert_eq!(
            (&on["enabled"], &on["status"], &on["disabled_reason"]),
            (&json!(true), &json!("enabled"), &Value::Null)
        );
        assert_eq!(on["version"], 3);
        let entries = trail(&server, &acme, "webhook.update").await;
        assert_eq!(entries.len(), 2);
        assert!(entries.iter().all(|entry| entry["changes"].is_object()), "{entries:?}");
    }

    async fn what_the_service_switched_off_is_switched_on_by_put(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(410), Behaviour::Answer(204)]);
        let made = endpoint(&server, &acme, &receiver.url("/hook"), &["api_key.*"]).await;
        test_event(&server, &acme, &made).await;
        let off = read(&server, &acme, &made).await;
        assert_eq!(
            (&off["enabled"], &off["status"], &off["version"]),
            (&json!(false), &json!("auto_disabled"), &json!(2))
        );
        assert_eq!(off["disabled_reason"], "gone");
        server.key(&acme, &["tickets:read"]).await;
        let body = json!({"name": "Hook", "url": receiver.url("/hook"), "events": ["api_key.*"]});
        let on = server.put(one(&made)).cookie(&acme.admin).json(&body).await.ok(200);
        assert_eq!(
            (&on["enabled"], &on["status"], &on["disabled_reason"]),
            (&json!(true), &json!("enabled"), &Value::Null)
        );
        server.sender.run_due().await.unwrap();
        assert_eq!(receiver.count(), 1, "enabling sends nothing of what was skipped");
        test_event(&server, &acme, &made).await;
        assert_eq!(receiver.count(), 2);
    }

    async fn what_endpoints_answer_moves_neither_version_nor_updated_at(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(204), Behaviour::Answer(500)]);
        let made = endpoint(&server, &acme, &receiver.url("/hook"), &["ticket.*"]).await;
        server.advance(SECOND_MS);
        test_event(&server, &acme, &made).await;
        let succeeded = read(&server, &acme, &made).await;
        assert_eq!(succeeded["last_success_at"], server.now().to_string());
        assert_eq!((&succeeded["last_failure_at"], &succeeded["consecutive_failures"]), (&Value::Null, &json!(0)));
        server.advance(SECOND_MS);
        test_event(&server, &acme, &made).await;
        let failed = read(&server, &acme, &made).await;
        assert_eq!(failed["last_failure_at"], server.now().to_string());
        assert_eq!(
            (&failed["last_success_at"], &failed["consecutive_failures"]),
            (&succeeded["last_success_at"], &json!(1))
        );
        for seen in [&succeeded, &failed] {
            assert_eq!((&seen["version"], &seen["updated_at"]), (&json!(1), &made["updated_at"]));
        }
    }

    async fn what_is_sent_next_follows_the_change(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = endpoint(&server, &acme, &receiver.url("/old"), &["api_key.created"]).await;
        let body = json!({"name": "Hook", "url": receiver.url("/new"), "events": ["api_key.revoked"]});
        server.put(one(&hook)).cookie(&acme.admin).json(&body).await.is(200);
        let key = server.key(&acme, &["tickets:read"]).await;
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        server.sender.run_due().await.unwrap();
        assert_eq!((receiver.count_on("/old"), receiver.count_on("/new")), (0, 1));
        assert_eq!(receiver.received()[0].json()["type"], "api_key.revoked");
    }

    async fn every_deed_is_in_the_trail_and_no_secret_is(server: Server) {
        let acme = server.tenant("acme").await;
        let hidden = ["header-one", "header-two", "header-three"];
        let made =
            create(&server, &acme, &input_with("headers", json!({"X-A": hidden[0], "X-B": hidden[1]}))).await.ok(201);
        // What is stored stays with its place, so it is another path of the same.
        let moved = format!("{URL}/moved");
        let body = json!({"name": "Chat", "url": moved, "events": ["*"], "headers": {"X-A": hidden[2], "X-B": "********"}});
        server.advance(SECOND_MS);
        server.put(one(&made)).cookie(&acme.admin).json(&body).await.is(200);
        server.advance(SECOND_MS);
        let rotated = server.put(one(&made)).cookie(&acme.admin).json(&json!({"rotate_secret": {}})).await.ok(200);
        server.advance(SECOND_MS);
        server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        let page = server.get(format!("{AUDIT}?target_id={}", id_of(&made))).cookie(&acme.admin).await.ok(200);
        let entries = page["data"].as_array().unwrap();
        let actions: Vec<&str> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["webhook.delete", "webhook.rotate_secret", "webhook.update", "webhook.create"]);
        let changes = &entries[2]["changes"];
        assert_eq!(changes["name"], json!({"from": "Hook", "to": "Chat"}));
        assert_eq!(changes["url"], json!({"from": URL, "to": moved}));
        assert_eq!(changes["events"], json!({"from": ["ticket.*"], "to": ["*"]}));
        assert!(changes["headers"].is_object(), "that they changed is told: {changes}");
        for record in [&made, &rotated] {
            assert!(!page.to_string().contains(&record["secret"].as_str().unwrap()["whsec_".len()..]));
        }
        assert!(hidden.iter().all(|value| !page.to_string().contains(value)), "{page}");
    }

    async fn a_deleted_endpoint_is_gone_and_nothing_is_sent_to_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = endpoint(&server, &acme, &receiver.url("/hook"), &["*"]).await;
        let kept = create(&server, &acme, &input()).await.ok(201);
        server.key(&acme, &["tickets:read"]).await;
        let answer = server.delete(one(&hook)).cookie(&acme.admin).await;
        assert!(answer.is(204).body.is_empty());
        server.delete(one(&hook)).cookie(&acme.admin).await.problem("not_found");
        for action in [json!({"action": "test"}), json!({"action": "recover", "since": "2026-01-01T00:00:00Z"})] {
            let mut action = action;
            action["webhook_id"] = hook["id"].clone();
            server.post(DELIVERIES).cookie(&acme.admin).json(&action).await.problem("not_found");
        }
        assert_eq!(ids(&server.get(WEBHOOKS).cookie(&acme.admin).await.ok(200)), [id_of(&kept)]);
        server.key(&acme, &["tickets:read"]).await;
        server.sender.run_due().await.unwrap();
        assert_eq!(receiver.connections(), 0);
    }

    async fn the_newest_come_first_and_each_row_once(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        create(&server, &other, &input()).await.is(201);
        let mut made = Vec::new();
        for n in 0..7 {
            made.push(create(&server, &acme, &input_with("name", format!("Hook {n}"))).await.ok(201));
            server.advance(if n % 3 == 2 { SECOND_MS } else { 0 });
        }
        let whole = server.get(WEBHOOKS).cookie(&acme.admin).await.ok(200);
        let order: Vec<(&str, &str)> = whole["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (row["created_at"].as_str().unwrap(), id_of(row)))
            .collect();
        assert!(order.len() == 7 && order.windows(2).all(|pair| pair[0] > pair[1]), "{order:?}");
        for limit in [1, 2, 6, 7, 200, 3] {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let answer = server.get(format!("{WEBHOOKS}?limit={limit}{cursor}")).cookie(&acme.admin).await;
                let page = answer.ok(200);
                seen.extend(ids(&page).into_iter().map(str::to_owned));
                assert_eq!(page["has_more"], page["next_cursor"].is_string());
                assert_eq!(answer.header("link").is_empty(), page["next_cursor"].is_null());
                let Some(next) = page["next_cursor"].as_str() else { break };
                cursor = format!("&cursor={next}");
                if limit == 3 {
                    // What is new disturbs nobody.
                    create(&server, &acme, &input()).await.is(201);
                }
            }
            assert_eq!(seen, ids(&whole), "pages of {limit}");
        }
        assert_eq!(count(&server, &other).await, 1);
    }

    async fn a_cursor_belongs_to_its_list_and_tenant(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        for _ in 0..2 {
            create(&server, &acme, &input()).await.is(201);
        }
        let cursor = server.get(format!("{WEBHOOKS}?limit=1")).cookie(&acme.admin).await.ok(200)["next_cursor"]
            .as_str()
            .unwrap()
            .to_owned();
        for (path, cookie) in
            [(WEBHOOKS, &other.admin), (DELIVERIES, &acme.admin), (EVENTS, &acme.admin), (KEYS, &acme.admin)]
        {
            server.get(format!("{path}?limit=1&cursor={cursor}")).cookie(cookie).await.problem("invalid_cursor");
        }
        server.get(format!("{WEBHOOKS}?cursor=x{cursor}")).cookie(&acme.admin).await.problem("invalid_cursor");
        server.get(format!("{WEBHOOKS}?status=enabled")).cookie(&acme.admin).await.problem("unknown_parameter");
        server.get(format!("{WEBHOOKS}?limit=201")).cookie(&acme.admin).await.problem("invalid_parameter");
        assert_eq!(
            server.get(format!("{WEBHOOKS}?cursor={cursor}")).cookie(&acme.admin).await.ok(200)["data"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }
}
