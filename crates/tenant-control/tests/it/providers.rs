//! `/api/cloud/providers`

mod canary;
mod catalog;
mod create;
mod delete;
mod replace;
mod secrets;
mod verify;

use kernel::auth::Role;
use serde_json::{Value, json};

use crate::support::clouds::{Asked, CloudStub, PROVIDERS, Rights, one_provider, open, provider_body};
use crate::support::people::AUDIT;
use crate::support::{Answer, Server, Tenancy, over_http};
use crate::tickets::{id_of, with, without};

async fn post(server: &Server, tenancy: &Tenancy, body: &Value) -> Answer {
    server.post(PROVIDERS).cookie(&tenancy.admin).json(body).await
}

async fn put(server: &Server, tenancy: &Tenancy, provider: &Value, body: &Value) -> Answer {
    server.put(one_provider(provider)).cookie(&tenancy.admin).json(body).await
}

/// The pointers at which a body is refused, sorted.
fn sorted(mut pointers: Vec<String>) -> Vec<String> {
    pointers.sort_unstable();
    pointers
}

/// What the trail has of a provider, oldest first.
async fn trail(server: &Server, tenancy: &Tenancy, provider: &Value) -> Vec<Value> {
    let target = format!("{AUDIT}?target_id={}", id_of(provider));
    let page = server.get(target).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().expect("data").iter().rev().cloned().collect()
}

/// A provider of a new token, not verified yet, and that token.
async fn make(server: &Server, tenancy: &Tenancy, stub: &CloudStub) -> (Value, String) {
    let token = stub.token("acme", Rights::All);
    (post(server, tenancy, &provider_body(stub, &token)).await.ok(201), token)
}

over_http! {
    async fn roles_and_scopes_decide_who_reads_and_who_writes(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let (made, token) = make(&server, &acme, &clouds.hetzner).await;
        let technician = server.user(&acme.tenant, Role::Technician).await;
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        let reader = server.key(&acme, &["cloud:read"]).await;
        let writer = server.key(&acme, &["cloud:write"]).await;
        let other = server.key(&acme, &["tickets:*", "inventory:read"]).await;
        let body = provider_body(&clouds.hetzner, &token);
        let verify = json!({"action": "verify", "id": made["id"]});
        for cookie in [&technician, &viewer] {
            assert_eq!(server.get(one_provider(&made)).cookie(cookie).await.ok(200), made);
            assert_eq!(server.get(PROVIDERS).cookie(cookie).await.ok(200)["data"], json!([made]));
            for answer in [
                server.post(PROVIDERS).cookie(cookie).json(&body).await,
                server.post(PROVIDERS).cookie(cookie).json(&verify).await,
                server.put(one_provider(&made)).cookie(cookie).json(&body).await,
                server.delete(one_provider(&made)).cookie(cookie).await,
            ] {
                assert_eq!(answer.problem("insufficient_scope")["required_scope"], "cloud:write");
            }
        }
        server.get(PROVIDERS).key(&reader.plain).await.is(200);
        server.post(PROVIDERS).key(&writer.plain).json(&body).await.is(201);
        for (answer, scope) in [
            (server.post(PROVIDERS).key(&reader.plain).json(&json!({"nonsense": 1})).await, "cloud:write"),
            (server.delete(one_provider(&made)).key(&reader.plain).await, "cloud:write"),
            (server.get(one_provider(&made)).key(&writer.plain).await, "cloud:read"),
            (server.get(PROVIDERS).key(&other.plain).await, "cloud:read"),
            (server.post(PROVIDERS).key(&other.plain).json(&body).await, "cloud:write"),
        ] {
            assert_eq!(answer.problem("insufficient_scope")["required_scope"], scope);
        }
        assert_eq!(clouds.hetzner.total(), 0, "nobody who may not has made the cloud be asked");
    }

    async fn one_that_is_not_there_looks_the_same_for_whatever_reason(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let (foreign, token) = make(&server, &other, &clouds.hetzner).await;
        let (gone, _) = make(&server, &acme, &clouds.hetzner).await;
        server.delete(one_provider(&gone)).cookie(&acme.admin).await.is(204);
        let body = provider_body(&clouds.hetzner, &token);
        let mut seen = Vec::new();
        for id in ["prv_01jd8z6v2mfkpb7h3q9xw5t4ra", id_of(&foreign), id_of(&gone), "nonsense", "prv_"] {
            let target = format!("{PROVIDERS}?id={id}");
            for answer in [
                server.get(&target).cookie(&acme.admin).await,
                server.get(format!("{target}&catalog=sizes")).cookie(&acme.admin).await,
                server.put(&target).cookie(&acme.admin).json(&body).await,
                server.delete(&target).cookie(&acme.admin).await,
                server.post(PROVIDERS).cookie(&acme.admin).json(&json!({"action": "verify", "id": id})).await,
                server.post(PROVIDERS).cookie(&acme.admin).json(&json!({"action": "sync", "id": id})).await,
            ] {
                answer.problem("not_found");
                seen.push(answer.body_but_request_id());
            }
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:#?}");
        for answer in [
            server.put(PROVIDERS).cookie(&acme.admin).json(&body).await,
            server.delete(PROVIDERS).cookie(&acme.admin).await,
        ] {
            answer.problem("missing_parameter");
        }
        assert_eq!(server.read_provider(&other, &foreign).await, foreign);
    }

    async fn a_list_is_paged_newest_first_and_shows_only_the_tenants_own(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        make(&server, &other, &clouds.hetzner).await;
        let mut made = Vec::new();
        for stub in [clouds.both(), clouds.both()].concat() {
            made.insert(0, make(&server, &acme, stub).await.0);
            server.advance(1);
        }
        for limit in [1, 3, 4, 200] {
            let (mut rows, mut more) = (Vec::new(), String::new());
            loop {
                let page = server.get(format!("{PROVIDERS}?limit={limit}{more}")).cookie(&acme.admin).await.ok(200);
                rows.extend(page["data"].as_array().unwrap().iter().cloned());
                match page["next_cursor"].as_str() {
                    Some(cursor) => more = format!("&cursor={cursor}"),
                    None => break,
                }
            }
            assert_eq!(rows, made, "{limit}");
        }
        for query in ["status=active", "name=Production", "catalog=sizes", "region=fsn1"] {
            let answer = server.get(format!("{PROVIDERS}?{query}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{query}: {}", answer.json());
        }
    }

    async fn a_disabled_provider_is_left_alone(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let token = stub.token("acme", Rights::All);
            let body = with(&provider_body(stub, &token), &json!({"enabled": false}));
            let made = post(&server, &acme, &body).await.ok(201);
            assert_eq!((&made["status"], &made["enabled"]), (&json!("disabled"), &json!(false)));
            server.cloud_work_for(kernel::base::DAY_MS).await;
            for action in ["verify", "sync"] {
                server.tell_provider(&acme, &made, action).await.problem("conflict");
            }
            assert_eq!(stub.total(), 0, "nothing is asked of {}", stub.kind());
            assert_eq!(server.read_provider(&acme, &made).await, made);
            // Enabled, it is verified and synced at once.
            stub.add("acme", "web-1");
            let enabled = without(&with(&body, &json!({"enabled": true})), &["credentials"]);
            assert_eq!(put(&server, &acme, &made, &enabled).await.ok(200)["status"], "unverified");
            server.cloud_work().await;
            assert_eq!(server.read_provider(&acme, &made).await["status"], "active");
            assert_eq!(stub.count(Asked::List), 1);
            // Disabled again, it is left alone again, and what is known of its machines stays.
            let disabled = put(&server, &acme, &made, &without(&body, &["credentials"])).await.ok(200);
            assert_eq!(disabled["status"], "disabled");
            let before = stub.total();
            server.cloud_work_for(kernel::base::DAY_MS).await;
            assert_eq!(stub.total(), before);
            let query = format!("provider_id={}", id_of(&made));
            assert_eq!(server.vm_names(&acme, &query).await, ["web-1"]);
        }
    }
}
