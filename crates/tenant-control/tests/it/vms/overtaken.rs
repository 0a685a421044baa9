//! Answers of a cloud that come when something newer is known already.

use std::time::Duration;

use super::*;
use crate::support::process::until;
use crate::support::receiver::Gate;

over_http! {
    async fn a_page_that_was_asked_for_before_a_machine_ran_takes_nothing_back(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.set_keeps_booting(true);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work().await;
            assert_eq!(server.read_vm(&acme, &vm).await["state"], "provisioning");
            // The order looks at its machine again in the moment in which a sync lists it.
            server.advance(15_000);
            let (page, look) = (Gate::closed(), Gate::closed());
            let (lists, looks) = (stub.count(Asked::List), stub.count(Asked::Get));
            stub.on(Asked::List, [Fault::HeldAnswer(page.clone())]);
            stub.on(Asked::Get, [Fault::HeldRequest(look.clone())]);
            server.tell_provider(&acme, &provider, "sync").await.is(202);
            let worker = server.cloud_worker();
            let working = tokio::spawn(async move { worker.run_due().await });
            stub.wait_for(Asked::List, lists + 1).await;
            stub.wait_for(Asked::Get, looks + 1).await;
            stub.change(stub.machines()[0].id, |machine| stub.running().clone_into(&mut machine.state));
            server.advance(1_000);
            look.open();
            until("the machine runs", Duration::from_mins(1), async || {
                (server.read_vm(&acme, &vm).await["state"] == "running").then_some(())
            })
            .await;
            page.open();
            working.await.expect("no panic").expect("the worker works");
            assert_eq!(server.read_provider(&acme, &provider).await["last_sync_error"], json!(null));
            assert_made_once(&server, &acme, stub, &vm, "overtaken by its order").await;
            assert_eq!(count(&kinds_of(&server, &acme, &vm).await, "vm.state_changed"), 1, "from provisioning to running");
            // The next page is newer.
            server.advance(1_000);
            stub.change(stub.machines()[0].id, |machine| "off".clone_into(&mut machine.state));
            server.sync(&acme, &provider).await;
            assert_eq!(server.read_vm(&acme, &vm).await["state"], "stopped");
        }
    }

    async fn a_machine_that_was_adopted_while_another_was_looked_for_is_not_gone(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.set_keeps_booting(true);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(32 * MINUTE_MS).await;
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "needs_attention", "it did not start in time");
            stub.remove(stub.machines()[0].id);
            let other = stub.add("acme", "by-hand").to_string();
            let (gate, looks) = (Gate::closed(), stub.count(Asked::Get));
            stub.on(Asked::Get, [Fault::HeldAnswer(gate.clone())]);
            server.tell_provider(&acme, &provider, "sync").await.is(202);
            let worker = server.cloud_worker();
            let working = tokio::spawn(async move { worker.run_due().await });
            stub.wait_for(Asked::Get, looks + 1).await;
            server.post_order(&acme, &adoption(&vm, &other)).await.is(202);
            gate.open();
            working.await.expect("no panic").expect("the worker works");
            server.cloud_work_for(MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), &now["state"]), ("succeeded", &json!("running")), "{now:#}");
            assert_eq!(now["external_id"], json!(other));
            let events = server.events_of(&acme, "vm.").await;
            let is_end = |event: &Value| event["data"]["id"] == vm["id"] && event["data"]["state"] == "terminated";
            assert!(!events.iter().any(is_end), "{events:#?}");
        }
    }
}
