//! Machines with the tag of an order that they do not belong to, because somebody has copied it.

use std::time::Duration;

use super::*;
use crate::support::process::until;
use crate::support::receiver::Gate;

/// Orders of a region that are worked on at once; the others wait.
const AT_ONCE: usize = 10;

/// The tag of an order as each cloud can write it: a label of Hetzner has no colon.
fn tag(stub: &CloudStub, vm: &Value) -> Value {
    let operation = vm["operation"]["id"].as_str().expect("an operation");
    if stub.kind() == "hetzner" {
        json!({"tenant-control/operation": operation})
    } else {
        json!([format!("tenant-control:operation:{operation}")])
    }
}

/// A machine of the same account with the tag of an order, and its id in the cloud.
fn add_copy(stub: &CloudStub, account: &str, tags: &Value) -> u64 {
    let copy = stub.add(account, "a-copy");
    stub.change(copy, |machine| machine.tags = tags.clone());
    copy
}

/// An order whose answer was lost, the id of its machine in the cloud, and that of another with its tag.
async fn order_with_copy(server: &Server, tenancy: &Tenancy, stub: &CloudStub, provider: &Value) -> (Value, u64, u64) {
    stub.on(Asked::Create, [Fault::LostAnswer]);
    let vm = server.order(tenancy, stub, provider).await;
    server.cloud_work().await;
    assert_eq!(operation_status(&server.read_vm(tenancy, &vm).await), "submitting");
    let made = stub.machines().pop().expect("a machine");
    let copy = add_copy(stub, &made.account, &made.tags);
    (vm, made.id, copy)
}

over_http! {
    async fn an_order_that_waits_is_not_taken_for_made_because_its_tag_was_copied(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            server.advance(1_000);
            let (listing, creating) = (Gate::closed(), Gate::closed());
            stub.on(Asked::List, [Fault::HeldRequest(listing.clone())]);
            stub.always(Asked::Create, Fault::HeldRequest(creating.clone()));
            let order = with(&order_body(stub, &provider), &json!({"count": AT_ONCE + 1}));
            server.post_order(&acme, &order).await.is(202);
            server.tell_provider(&acme, &provider, "sync").await.is(202);
            let worker = server.cloud_worker();
            let working = tokio::spawn(async move { worker.run_due().await });
            stub.wait_for(Asked::Create, AT_ONCE).await;
            stub.wait_for(Asked::List, 2).await;
            let ordered = server.list_vms(&acme, "").await;
            let waiting: Vec<&Value> = ordered.iter().filter(|vm| operation_status(vm) == "accepted").collect();
            let [waiting] = waiting[..] else { panic!("one order waits: {ordered:#?}") };
            let copy = add_copy(stub, "acme", &tag(stub, waiting));
            listing.open();
            let has_ended = async || {
                let now = server.read_provider(&acme, &provider).await;
                (now["last_sync_at"] != provider["last_sync_at"]).then_some(())
            };
            until("the sync has ended", Duration::from_mins(1), has_ended).await;
            assert_eq!(server.read_vm(&acme, waiting).await, *waiting, "it still waits");
            creating.open();
            working.await.expect("no panic").expect("the worker works");
            server.cloud_work_for(MINUTE_MS).await;
            let made = server.read_vm(&acme, waiting).await;
            assert_eq!(operation_status(&made), "succeeded", "{made:#}");
            assert_ne!(made["external_id"], copy.to_string(), "it has a machine of its own");
            assert_eq!((stub.count(Asked::Create), stub.machines().len()), (AT_ONCE + 1, AT_ONCE + 2));
            let copied = server.list_vms(&acme, "q=copy").await.remove(0);
            assert_eq!(copied["external_id"], copy.to_string());
            assert_eq!((&copied["managed"], &copied["operation"]), (&json!(false), &json!(null)), "{copied:#}");
        }
    }

    async fn which_of_several_machines_is_that_of_an_order_somebody_has_to_say(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let (vm, made, copy) = order_with_copy(&server, &acme, stub, &provider).await;
            // Neither a sync before the order is looked for nor those after it choose one of them.
            server.sync(&acme, &provider).await;
            server.cloud_work_for(30 * MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), &now["external_id"]), ("needs_attention", &json!(null)), "{now:#}");
            let detail = now["operation"]["error"]["detail"].as_str().unwrap();
            assert!(detail.contains(&made.to_string()) && detail.contains(&copy.to_string()), "{detail}");
            let settled = server.post_order(&acme, &adoption(&vm, &made.to_string())).await.ok(202);
            assert_eq!((operation_status(&settled), &settled["external_id"]), ("submitted", &json!(made.to_string())));
            server.cloud_work_for(10 * MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), &now["state"], &now["managed"]), ("succeeded", &json!("running"), &json!(true)), "{now:#}");
            assert_eq!((&now["external_id"], &now["operation"]["error"]), (&json!(made.to_string()), &json!(null)));
            let listed = server.list_vms(&acme, "").await;
            let others: Vec<&Value> = listed.iter().filter(|one| one["id"] != vm["id"]).collect();
            let [other] = others[..] else { panic!("one besides it: {listed:#?}") };
            assert_eq!((&other["external_id"], &other["managed"], &other["operation"]), (&json!(copy.to_string()), &json!(false), &json!(null)), "{other:#}");
            assert_eq!((stub.count(Asked::Create), stub.machines().len()), (1, 2));
            let kinds = kinds_of(&server, &acme, &vm).await;
            assert_eq!((count(&kinds, "vm.failed"), count(&kinds, "vm.provisioned")), (1, 1), "{kinds:?}");
            let trail = server.get(format!("{AUDIT}?target_id={}", id_of(&vm))).cookie(&acme.admin).await.ok(200);
            assert_eq!(trail["data"][0]["action"], "vm.settle", "{trail:#}");
            assert!(trail["data"][0]["changes"].to_string().contains(&made.to_string()), "{trail:#}");
            server.post_order(&acme, &adoption(&vm, &copy.to_string())).await.problem("conflict");
        }
    }

    async fn only_a_machine_that_can_be_that_of_the_order_is_adopted(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let first = server.post_order(&acme, &with(&order_body(stub, &provider), &json!({"name": "first"}))).await.ok(202);
            server.cloud_work_for(MINUTE_MS).await;
            let (vm, _, copy) = order_with_copy(&server, &acme, stub, &provider).await;
            server.cloud_work_for(MINUTE_MS).await;
            let doubtful = server.read_vm(&acme, &vm).await;
            assert_eq!(operation_status(&doubtful), "needs_attention", "{doubtful:#}");
            for body in [
                settlement(&vm, "adopt"),
                adoption(&vm, "../pricing"),
                adoption(&vm, ""),
                with(&settlement(&vm, "retry"), &json!({"external_id": copy.to_string()})),
            ] {
                assert_eq!(server.post_order(&acme, &body).await.pointers(), ["/external_id"], "{body}");
            }
            let taken = server.read_vm(&acme, &first).await;
            let problem = server.post_order(&acme, &adoption(&vm, taken["external_id"].as_str().unwrap())).await.problem("conflict");
            assert!(problem["detail"].as_str().unwrap().contains("another order"), "{problem}");
            assert_eq!(server.read_vm(&acme, &vm).await, doubtful, "nothing has changed");
            assert_eq!(server.read_vm(&acme, &first).await, taken);
            // One that the cloud does not know leaves the question open.
            server.post_order(&acme, &adoption(&vm, "99999")).await.is(202);
            server.cloud_work_for(5 * MINUTE_MS).await;
            let ended = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&ended), &ended["operation"]["error"]["code"]), ("needs_attention", &json!("not_found")), "{ended:#}");
        }
    }
}
