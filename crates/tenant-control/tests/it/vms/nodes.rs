//! Several nodes: one sync for each region, and an order that a dead or frozen node has begun is finished by another.

use kernel::jobs::lanes::LEASE_MS;

use super::*;
use crate::support::receiver::Gate;

over_http! {
    async fn a_region_is_synced_by_one_of_two_workers(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        stub.add("acme", "web-1");
        let token = stub.token("acme", Rights::All);
        let body = with(&provider_body(stub, &token), &json!({"regions": ["fsn1", "hel1", "nbg1"]}));
        let provider = server.connect_by(&acme, &body).await;
        for round in 1..=5 {
            // Hetzner lists all regions together.
            assert_eq!(stub.count(Asked::List), round, "before round {round}");
            server.tell_provider(&acme, &provider, "sync").await.is(202);
            let (one, two) = (server.cloud_worker(), server.cloud_worker());
            let (first, second) = tokio::join!(one.run_due(), two.run_due());
            first.and(second).expect("both work");
            // What one of them has left because the other had it.
            server.cloud_work().await;
            assert_eq!(stub.count(Asked::List), round + 1);
        }
        assert_eq!(server.vm_names(&acme, "").await, ["web-1"]);
    }

    async fn a_sync_of_a_node_that_died_is_done_by_another(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        let provider = server.connect(&acme, stub, "acme").await;
        stub.add("acme", "web-1");
        let gate = Gate::closed();
        stub.on(Asked::List, [Fault::HeldAnswer(gate.clone())]);
        server.tell_provider(&acme, &provider, "sync").await.is(202);
        let dying = server.cloud_worker();
        let working = tokio::spawn(async move { dying.run_due().await });
        stub.wait_for(Asked::List, 2).await;
        working.abort();
        server.cloud_work().await;
        assert_eq!(stub.count(Asked::List), 2, "it may still be alive");
        server.advance(LEASE_MS);
        server.cloud_work().await;
        assert_eq!(server.vm_names(&acme, "").await, ["web-1"]);
        gate.open();
    }

    async fn an_order_of_a_node_that_died_while_it_asked_is_finished_by_another(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let gate = Gate::closed();
            stub.on(Asked::Create, [Fault::HeldAnswer(gate.clone())]);
            let vm = server.order(&acme, stub, &provider).await;
            let dying = server.cloud_worker();
            let working = tokio::spawn(async move { dying.run_due().await });
            stub.wait_for(Asked::Create, 1).await;
            working.abort();
            drop(working.await);
            server.cloud_work().await;
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "submitting", "it may still be alive");
            server.advance(LEASE_MS);
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "a dead node").await;
            gate.open();
        }
    }

    async fn a_node_that_thaws_after_another_has_gone_on_changes_nothing(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let gate = Gate::closed();
            stub.on(Asked::Create, [Fault::HeldAnswer(gate.clone())]);
            let vm = server.order(&acme, stub, &provider).await;
            let freezing = server.cloud_worker();
            let working = tokio::spawn(async move { freezing.run_due().await });
            stub.wait_for(Asked::Create, 1).await;
            server.advance(LEASE_MS);
            server.cloud_work_for(MINUTE_MS).await;
            let done = assert_made_once(&server, &acme, stub, &vm, "a frozen node").await;
            gate.open();
            // Whether it notices or is told, it ends without having written anything.
            drop(working.await.unwrap());
            server.cloud_work().await;
            assert_eq!(without(&server.read_vm(&acme, &vm).await, &["last_seen_at"]), without(&done, &["last_seen_at"]));
            assert_made_once(&server, &acme, stub, &vm, "after it has thawed").await;
        }
    }

    async fn a_request_that_arrives_late_makes_no_second_server(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (stub, acme) = (&clouds.hetzner, server.tenant("acme").await);
        let provider = server.connect(&acme, stub, "acme").await;
        let gate = Gate::closed();
        stub.on(Asked::Create, [Fault::HeldRequest(gate.clone())]);
        let vm = server.order(&acme, stub, &provider).await;
        let dying = server.cloud_worker();
        let working = tokio::spawn(async move { dying.run_due().await });
        stub.wait_for(Asked::Create, 1).await;
        working.abort();
        server.advance(LEASE_MS);
        server.cloud_work_for(MINUTE_MS).await;
        assert_made_once(&server, &acme, stub, &vm, "before it arrives").await;
        gate.open();
        stub.wait_until_idle().await;
        server.sync(&acme, &provider).await;
        assert_made_once(&server, &acme, stub, &vm, "after it has arrived").await;
    }

    async fn a_droplet_that_is_made_late_is_taken_for_its_order(setup: Setup) {
        let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let provider = server.connect(&acme, stub, "acme").await;
        let gate = Gate::closed();
        stub.on(Asked::Create, [Fault::HeldRequest(gate.clone())]);
        let vm = server.order(&acme, stub, &provider).await;
        let dying = server.cloud_worker();
        let working = tokio::spawn(async move { dying.run_due().await });
        stub.wait_for(Asked::Create, 1).await;
        working.abort();
        server.advance(LEASE_MS);
        server.cloud_work_for(12 * MINUTE_MS).await;
        assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "needs_attention");
        gate.open();
        stub.wait_until_idle().await;
        assert_eq!(stub.machines().len(), 1);
        server.sync(&acme, &provider).await;
        server.cloud_work_for(MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), stub.machines().len()), ("succeeded", 1), "{now:#}");
        assert_eq!(server.list_vms(&acme, "").await, [now]);
    }
}

/// Two processes as an operator runs them, as far as the store goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_at_once_make_each_machine_once() {
    let (server, clouds) = open(Setup::postgres().await).await;
    let other = server.second_node().await;
    for stub in clouds.both() {
        let acme = server.tenant(stub.kind()).await;
        let provider = server.connect(&acme, stub, "acme").await;
        stub.on(
            Asked::Create,
            (0..20).map(|nth| if nth % 3 == 0 { Fault::LostAnswer } else { Fault::None }).collect::<Vec<_>>(),
        );
        let order = with(&order_body(stub, &provider), &json!({"count": 20}));
        other.post_order(&acme, &order).await.is(202);
        for _ in 0..12 {
            tokio::join!(server.cloud_work(), other.cloud_work());
            server.advance(5_000);
        }
        assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (20, 20), "{}", stub.kind());
        let listed = other.list_vms(&acme, "").await;
        assert_eq!(listed.len(), 20);
        assert!(listed.iter().all(|vm| operation_status(vm) == "succeeded"), "{listed:#?}");
        assert_eq!(server.events_of(&acme, "vm.provisioned").await.len(), 20);
    }
}
