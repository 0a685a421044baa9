//! `/api/cloud/vms`: machines that syncs find, and machines that are ordered.

mod accounts;
mod adopted;
mod copied_tags;
mod crash;
mod deadlines;
mod ended;
mod gone;
mod hold;
mod list;
mod lost;
mod mixed_accounts;
mod needs_attention;
mod nodes;
mod order;
mod organizations;
mod overtaken;
mod provision;
mod refused;
mod search;
mod stopped_syncs;
mod sync;
mod texts;
mod user_data;
mod workflows;

use kernel::auth::Role;
use kernel::base::MINUTE_MS;
use serde_json::{Value, json};

use crate::support::clouds::{
    Asked, CloudStub, Clouds, Fault, PROVIDERS, Rights, VMS, one_provider, one_vm, open, open_with, operation_status,
    order_body, provider_body,
};
use crate::support::people::AUDIT;
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::tickets::{id_of, with, without};

/// The kinds of the events of a machine, in their order.
async fn kinds_of(server: &Server, tenancy: &Tenancy, vm: &Value) -> Vec<String> {
    let events = server.events_of(tenancy, "vm.").await;
    let own = events.iter().filter(|event| event["data"]["id"] == vm["id"]);
    own.map(|event| event["type"].as_str().expect("a type").to_owned()).collect()
}

fn count(kinds: &[String], kind: &str) -> usize {
    kinds.iter().filter(|one| *one == kind).count()
}

/// Asserts that an order has made one machine, which runs, and has told so once.
async fn assert_made_once(server: &Server, tenancy: &Tenancy, stub: &CloudStub, vm: &Value, what: &str) -> Value {
    let now = server.read_vm(tenancy, vm).await;
    let made = stub.machines();
    assert_eq!(
        (operation_status(&now), &now["state"]),
        ("succeeded", &json!("running")),
        "{what}, {}: {now:#}",
        stub.kind()
    );
    assert_eq!(made.len(), 1, "{what}, {}: {made:#?}", stub.kind());
    assert_eq!(now["external_id"], made[0].id.to_string(), "{what}");
    let of_provider = format!("provider_id={}", now["provider_id"].as_str().expect("an id"));
    let listed = server.list_vms(tenancy, &of_provider).await;
    assert_eq!(listed, std::slice::from_ref(&now), "{what}: one machine is one record");
    let kinds = kinds_of(server, tenancy, vm).await;
    assert_eq!((count(&kinds, "vm.provisioned"), count(&kinds, "vm.failed")), (1, 0), "{what}: {kinds:?}");
    now
}

/// Tells what became of an order that needs attention.
fn settlement(vm: &Value, outcome: &str) -> Value {
    json!({"action": "settle", "id": vm["id"], "outcome": outcome})
}

/// Says which machine is that of an order.
fn adoption(vm: &Value, external_id: &str) -> Value {
    with(&settlement(vm, "adopt"), &json!({"external_id": external_id}))
}

/// Without syncs but those that a test asks for, so that a machine turns up only when somebody looks for it.
async fn open_without_syncs(setup: Setup) -> (Server, Clouds) {
    open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await
}

over_http! {
    async fn roles_and_scopes_decide_who_reads_and_who_orders(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        clouds.hetzner.add("acme", "web-0");
        let provider = server.connect(&acme, &clouds.hetzner, "acme").await;
        let found = server.list_vms(&acme, "").await;
        let technician = server.user(&acme.tenant, Role::Technician).await;
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        let order = order_body(&clouds.hetzner, &provider);
        for cookie in [&technician, &viewer] {
            assert_eq!(server.get(VMS).cookie(cookie).await.ok(200)["data"], json!(found));
            assert_eq!(server.get(one_vm(&found[0])).cookie(cookie).await.ok(200), found[0]);
            for body in [&order, &with(&order, &json!({"dry_run": true})), &settlement(&found[0], "retry")] {
                let problem = server.post(VMS).cookie(cookie).json(body).await.problem("insufficient_scope");
                assert_eq!(problem["required_scope"], "cloud:write");
            }
        }
        let reader = server.key(&acme, &["cloud:read"]).await;
        let writer = server.key(&acme, &["cloud:write"]).await;
        server.get(VMS).key(&reader.plain).await.is(200);
        server.post(VMS).key(&writer.plain).json(&order).await.is(202);
        assert_eq!(server.get(VMS).key(&writer.plain).await.problem("insufficient_scope")["required_scope"], "cloud:read");
        server.post(VMS).key(&reader.plain).json(&order).await.problem("insufficient_scope");
        for method in [reqwest::Method::PUT, reqwest::Method::PATCH, reqwest::Method::DELETE] {
            let answer = server.call(method, one_vm(&found[0])).cookie(&acme.admin).await;
            answer.problem("method_not_allowed");
        }
    }

    async fn one_that_is_not_there_looks_the_same_for_whatever_reason(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let stub = &clouds.hetzner;
        stub.add("other", "theirs");
        stub.add("acme", "gone");
        server.connect(&other, stub, "other").await;
        let provider = server.connect(&acme, stub, "acme").await;
        let (foreign, gone) = (server.list_vms(&other, "").await, server.list_vms(&acme, "").await);
        server.delete(one_provider(&provider)).cookie(&acme.admin).await.is(204);
        let mut seen = Vec::new();
        for id in ["vm_01jd8z6v2mfkpb7h3q9xw5t4ra", id_of(&foreign[0]), id_of(&gone[0]), "nonsense", "vm_"] {
            let settle = json!({"action": "settle", "id": id, "outcome": "abandon"});
            for answer in [
                server.get(format!("{VMS}?id={id}")).cookie(&acme.admin).await,
                server.post(VMS).cookie(&acme.admin).json(&settle).await,
            ] {
                answer.problem("not_found");
                seen.push(answer.body_but_request_id());
            }
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:#?}");
        assert_eq!(server.list_vms(&acme, &format!("provider_id={}", foreign[0]["provider_id"].as_str().unwrap())).await, Vec::<Value>::new());
    }
}
