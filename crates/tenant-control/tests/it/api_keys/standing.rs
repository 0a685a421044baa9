//! Rights that change while a request is under way, and tenants that have made very many keys.

use std::sync::LazyLock;

use kernel::auth::Role;
use kernel::base::{Actor, DAY_MS, HOUR_MS, MINUTE_MS};
use serde_json::{Value, json};
use tenant_control::features::users::{delete_user, find_user};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::makers::{body, child, read};
use super::one;
use crate::support::people::{KEYS, SESSION};
use crate::support::raw::{RawAnswer, read_raw};
use crate::support::{Server, over_http};
use crate::tickets::TICKETS;

/// A request that has been let in and whose body is still to come.
struct Stalled {
    stream: TcpStream,
    body: String,
}

/// Sends the head and waits until the server asks for the body, which it does when the caller has been let in.
async fn stall(server: &Server, method: &str, path: &str, credential: &str, body: &Value) -> Stalled {
    let body = body.to_string();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\n{credential}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    Stalled { stream, body }
}

impl Stalled {
    async fn go_on(mut self) -> RawAnswer {
        self.stream.write_all(self.body.as_bytes()).await.unwrap();
        read_raw(&mut self.stream).await
    }
}

const UNKNOWN_ORGANIZATION: &str = "org_01h00000000000000000000000";
const UNKNOWN_TICKET: &str = "tkt_01h00000000000000000000000";

static TICKET: LazyLock<Value> = LazyLock::new(|| json!({"subject": "Printer"}));

fn bearer(plain: &str) -> String {
    format!("Authorization: Bearer {plain}")
}

over_http! {
    async fn a_key_revoked_while_its_request_is_under_way_takes_nothing_over(server: Server) {
        let acme = server.tenant("acme").await;
        let caller = server.key(&acme, &["*"]).await;
        let victim = child(&server, &caller, body()).await;
        let rotate = stall(&server, "PUT", &one(&victim), &bearer(&caller.plain), &json!({"rotate": {}})).await;
        let all = json!({"name": "All", "scopes": ["*"], "expires_days": 300});
        let replace = stall(&server, "PUT", &one(&victim), &bearer(&caller.plain), &all).await;
        let create = stall(&server, "POST", KEYS, &bearer(&caller.plain), &all).await;
        let ticket = server.post(TICKETS).key(&caller.plain).json(&json!({"subject": "Printer"})).await.ok(201);
        let place = format!("{TICKETS}?id={}", ticket["id"].as_str().unwrap());
        let change = stall(&server, "PATCH", &place, &bearer(&caller.plain), &json!({"status": "open"})).await;
        let another = stall(&server, "POST", TICKETS, &bearer(&caller.plain), &json!({"subject": "Late"})).await;
        // What would be refused anyway is not told why.
        let unknown = json!({"subject": "Late", "organization_id": UNKNOWN_ORGANIZATION});
        let nowhere = stall(&server, "POST", TICKETS, &bearer(&caller.plain), &unknown).await;
        let nobody = stall(&server, "PATCH", &place, &bearer(&caller.plain), &unknown).await;
        let missing = format!("{TICKETS}?id={UNKNOWN_TICKET}");
        let missing = stall(&server, "PATCH", &missing, &bearer(&caller.plain), &json!({"status": "open"})).await;
        let backwards = stall(&server, "PATCH", &place, &bearer(&caller.plain), &json!({"status": "closed"})).await;
        server.delete(one(&caller)).cookie(&acme.admin).await.is(204);
        for stalled in [rotate, replace, create, change, another, nowhere, nobody, missing, backwards] {
            let answer = stalled.go_on().await;
            assert_eq!(answer.status, 401, "{}", answer.body);
        }
        assert_eq!(read(&server, &acme, &victim).await["version"], 2, "revoked, and nothing else");
    }

    async fn a_secret_replaced_while_its_request_is_under_way_takes_nothing_over(server: Server) {
        let acme = server.tenant("acme").await;
        let caller = server.key(&acme, &["*"]).await;
        let late = async || stall(&server, "POST", TICKETS, &bearer(&caller.plain), &TICKET).await;
        let all = json!({"name": "All", "scopes": ["*"]});
        let (ticket, key) = (late().await, stall(&server, "POST", KEYS, &bearer(&caller.plain), &all).await);
        let rotate = json!({"rotate": {"overlap_hours": 0}});
        let new = server.put(one(&caller)).cookie(&acme.admin).json(&rotate).await.ok(200);
        for stalled in [ticket, key] {
            let answer = stalled.go_on().await;
            assert_eq!(answer.status, 401, "the old secret is gone: {}", answer.body);
        }
        server.post(TICKETS).key(new["key"].as_str().unwrap()).json(&TICKET).await.is(201);
    }

    async fn a_secret_in_its_overlap_counts_until_the_overlap_ends(server: Server) {
        let acme = server.tenant("acme").await;
        let caller = server.key(&acme, &["*"]).await;
        let late = async || stall(&server, "POST", TICKETS, &bearer(&caller.plain), &TICKET).await;
        let (within, beyond) = (late().await, late().await);
        let rotate = json!({"rotate": {"overlap_hours": 1}});
        server.put(one(&caller)).cookie(&acme.admin).json(&rotate).await.is(200);
        server.advance(HOUR_MS - 1);
        assert_eq!(within.go_on().await.status, 201);
        server.advance(1);
        assert_eq!(beyond.go_on().await.status, 401);
    }

    async fn the_end_of_a_key_is_judged_by_the_time_of_day(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Day", "scopes": ["*"], "expires_days": 1})).await;
        server.advance(DAY_MS - 5 * MINUTE_MS);
        server.set_clock(acme.tenant.id, server.now().plus_ms(9 * MINUTE_MS)).await;
        server.post(TICKETS).key(&key.plain).json(&TICKET).await.is(201);
        let late = stall(&server, "POST", TICKETS, &bearer(&key.plain), &TICKET).await;
        server.advance(5 * MINUTE_MS);
        let answer = late.go_on().await;
        assert!(answer.status == 401 && answer.body.contains("key_expired"), "{}", answer.body);
    }

    async fn a_key_cut_while_its_request_is_under_way_grants_only_what_it_still_holds(server: Server) {
        let acme = server.tenant("acme").await;
        let caller = server.key(&acme, &["*"]).await;
        let all = json!({"name": "All", "scopes": ["*"]});
        let networks = json!({"name": "Wide", "scopes": ["tickets:read"], "allowed_cidrs": ["198.51.100.0/24"]});
        let create = stall(&server, "POST", KEYS, &bearer(&caller.plain), &all).await;
        let widen = stall(&server, "POST", KEYS, &bearer(&caller.plain), &networks).await;
        let less =
            json!({"name": "Less", "scopes": ["api_keys:write", "tickets:read"], "allowed_cidrs": ["127.0.0.0/8"]});
        server.put(one(&caller)).cookie(&acme.admin).json(&less).await.is(200);
        let answer = create.go_on().await;
        assert_eq!(answer.status, 403, "{}", answer.body);
        let answer = widen.go_on().await;
        assert_eq!(answer.status, 422, "{}", answer.body);
    }

    async fn a_key_held_to_another_network_while_its_request_is_under_way_makes_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let caller = server.key(&acme, &["*"]).await;
        let create = stall(&server, "POST", KEYS, &bearer(&caller.plain), &json!({"name": "Late", "scopes": ["*"]})).await;
        let elsewhere = json!({"name": "Elsewhere", "scopes": ["*"], "allowed_cidrs": ["10.0.0.0/8"]});
        server.put(one(&caller)).cookie(&acme.admin).json(&elsewhere).await.is(200);
        let answer = create.go_on().await;
        assert_eq!(answer.status, 403, "{}", answer.body);
        assert!(answer.body.contains("address_not_allowed"), "{}", answer.body);
    }

    async fn a_user_removed_while_their_request_is_under_way_makes_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let cookie = server.user(&acme.tenant, Role::Admin).await;
        let email = server.get(SESSION).cookie(&cookie).await.ok(200)["actor"]["email"].as_str().unwrap().to_owned();
        let body = json!({"name": "Late", "scopes": ["*"]});
        let create = stall(&server, "POST", KEYS, &format!("Cookie: {cookie}"), &body).await;
        let user = find_user(&server.app.store, &acme.tenant, &email).await.unwrap().unwrap();
        delete_user(&server.app.store, &acme.tenant, &user).await.unwrap();
        let answer = create.go_on().await;
        assert_eq!(answer.status, 401, "{}", answer.body);
    }

    async fn very_many_revoked_keys_do_not_hold_up_the_others(server: Server) {
        let acme = server.tenant("acme").await;
        let maker = server.key(&acme, &["*"]).await;
        let made = server.post(KEYS).key(&maker.plain).json(&json!({"name": "Live", "scopes": ["*"]})).await.ok(201);
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let id = maker.id.clone();
        db.write(async move |tx| {
            tx.exec(
                "INSERT INTO api_keys (tenant_id, id, name, scopes, allowed_cidrs, prefix, last_four, expires_at, revoked_at,
                    maker_key_id, created_by_type, created_by_name, version, created_at, updated_at)
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
                 SELECT $1, $2 || CAST(i AS TEXT), 'x', '[]', '[]', 'x', 'x', 9999999999999, 1, $2, 'system', 'x', 1, 1, 1 FROM n",
                kernel::args![id],
            )
            .await
        })
        .await
        .unwrap();
        let shorter = json!({"name": "Maker", "scopes": ["*"], "expires_days": 1});
        server.put(one(&maker)).cookie(&acme.admin).json(&shorter).await.is(200);
        assert_eq!(server.get(KEYS).cookie(&acme.admin).await.ok(200)["data"].as_array().unwrap().len(), 2);
        server.delete(one(&maker)).cookie(&acme.admin).await.is(204);
        server.get(SESSION).key(made["key"].as_str().unwrap()).await.problem("unauthenticated");
    }
}
