//! How somebody's sessions end, and what goes on without them.

use std::time::{Duration, Instant};

use kernel::auth::create_signin_link;
use kernel::base::Code;

use super::*;
use crate::support::people::KEYS;
use crate::tickets::TICKETS;

over_http! {
    async fn a_disabled_user_is_signed_out_before_the_answer(server: Server) {
        let acme = server.tenant("acme").await;
        let ann = make(&server, &acme, "ann@acme.test", "admin").await;
        for by_delete in [true, false] {
            let cookies = [sign_in(&server, &acme, &ann).await, sign_in(&server, &acme, &ann).await];
            for cookie in &cookies {
                server.get(SESSION).cookie(cookie).await.is(200);
            }
            let id: UserId = id_of(&ann).parse().unwrap();
            let token = create_signin_link(&server.app.store, acme.tenant.id, id).await.unwrap();
            if by_delete {
                server.delete(one(&ann)).cookie(&acme.admin).await.is(204);
            } else {
                put(&server, &acme.admin, &ann, &but(&ann, "status", "disabled")).await.is(200);
            }
            for cookie in &cookies {
                server.get(SESSION).cookie(cookie).await.problem("unauthenticated");
            }
            let link = format!("/signin?token={}", token.expose_secret());
            server.get(&link).await.is(410);
            server.redeem(&link).await.is(410);
            let refused = create_session(&server.app.store, acme.tenant.id, id, HOUR_MS).await;
            assert_eq!(refused.err().map(|error| error.code()), Some(Code::NotFound));
            // Who may sign in again does so anew.
            put(&server, &acme.admin, &ann, &but(&ann, "status", "active")).await.is(200);
            server.get(SESSION).cookie(&cookies[0]).await.problem("unauthenticated");
            server.get(SESSION).cookie(&sign_in(&server, &acme, &ann).await).await.is(200);
        }
    }

    async fn every_node_refuses_a_disabled_user_within_a_second(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(kernel::http::RatePolicy::Read, 1_000_000);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let other = server.second_node().await;
        let ann = make(&server, &acme, "ann@acme.test", "viewer").await;
        let cookie = sign_in(&server, &acme, &ann).await;
        other.get(SESSION).cookie(&cookie).await.is(200);
        server.delete(one(&ann)).cookie(&acme.admin).await.is(204);
        let disabled = Instant::now();
        // Asking all the time keeps the other node's memory of the session as fresh as it can be. What counts is when it was
        // asked: an answer may be late.
        loop {
            let asked = disabled.elapsed();
            let answer = other.get(SESSION).cookie(&cookie).await;
            if answer.status != 200 {
                break drop(answer.problem("unauthenticated"));
            }
            assert!(asked < Duration::from_secs(1), "still accepted after {asked:?}");
        }
    }

    async fn a_lower_role_is_in_force_in_open_sessions(server: Server) {
        let acme = server.tenant("acme").await;
        let ann = make(&server, &acme, "ann@acme.test", "admin").await;
        let cookie = sign_in(&server, &acme, &ann).await;
        server.get(USERS).cookie(&cookie).await.is(200);
        put(&server, &acme.admin, &ann, &but(&ann, "role", "viewer")).await.is(200);
        server.get(USERS).cookie(&cookie).await.problem("insufficient_scope");
        assert_eq!(server.get(SESSION).cookie(&cookie).await.ok(200)["role"], "viewer");
    }

    async fn keys_and_tickets_of_a_disabled_user_go_on(server: Server) {
        let acme = server.tenant("acme").await;
        let ann = make(&server, &acme, "ann@acme.test", "admin").await;
        let cookie = sign_in(&server, &acme, &ann).await;
        let key = server.post(KEYS).cookie(&cookie).json(&json!({"name": "Key", "scopes": ["*"]})).await.ok(201);
        let plain = key["key"].as_str().unwrap();
        let body = json!({"subject": "Printer", "assignee_id": ann["id"]});
        let ticket = server.post(TICKETS).cookie(&cookie).json(&body).await.ok(201);
        server.delete(one(&ann)).cookie(&acme.admin).await.is(204);
        server.get(SESSION).key(plain).await.is(200);
        let place = format!("{TICKETS}?id={}", ticket["id"].as_str().unwrap());
        let shown = server.get(&place).key(plain).await.ok(200);
        assert_eq!(shown["assignee_id"], ann["id"]);
        assert_eq!(shown["history"][0]["actor"]["name"], ann["name"]);
        server.patch(&place).key(plain).json(&json!({"status": "open"})).await.is(200);
        assert_eq!(server.post(TICKETS).key(plain).json(&body).await.pointers(), ["/assignee_id"]);
    }

    async fn what_an_operator_granted_ends_with_them(server: Server) {
        let acme = server.tenant("acme").await;
        let (first, second) = (operator(&server, &acme).await, {
            let email = "second@acme.test".to_owned();
            let new = NewUser { email, name: None, role: Role::Admin, platform_operator: true };
            server.session(&acme.tenant, new).await
        });
        let body = json!({"name": "Key", "scopes": ["tickets:read", "platform:read"]});
        let key = server.post(KEYS).cookie(&first).json(&body).await.ok(201);
        let plain = key["key"].as_str().unwrap();
        let held = async || server.get(SESSION).key(plain).await.ok(200)["scopes"].clone();
        assert_eq!(held().await, json!(["tickets:read", "platform:read"]));
        let op = me(&server, &first).await;
        server.delete(one(&op)).cookie(&second).await.is(204);
        assert_eq!(held().await, json!(["tickets:read"]));
    }
}
