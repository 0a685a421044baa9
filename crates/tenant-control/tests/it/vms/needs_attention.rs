//! Orders of which nobody can know whether they made a machine, and how people settle them.

use kernel::base::HOUR_MS;

use super::*;

/// An order at DigitalOcean that needs attention: its request was lost, or its answer, and nothing is shown of a machine.
async fn doubtful(server: &Server, tenancy: &Tenancy, stub: &CloudStub, fault: Fault) -> (Value, Value) {
    let provider = server.connect(tenancy, stub, "acme").await;
    stub.set_hides_tags(true);
    stub.on(Asked::Create, [fault]);
    let vm = server.order(tenancy, stub, &provider).await;
    server.cloud_work_for(9 * MINUTE_MS).await;
    assert_eq!(operation_status(&server.read_vm(tenancy, &vm).await), "submitting", "it is looked for as long");
    server.cloud_work_for(3 * MINUTE_MS).await;
    stub.set_hides_tags(false);
    let now = server.read_vm(tenancy, &vm).await;
    assert_eq!(operation_status(&now), "needs_attention", "{now:#}");
    (provider, now)
}

over_http! {
    async fn where_a_second_request_could_make_a_second_machine_people_decide(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let (_, vm) = doubtful(&server, &acme, stub, Fault::LostRequest).await;
        assert_eq!((stub.count(Asked::Create), stub.machines().len()), (1, 0));
        assert_eq!((&vm["state"], &vm["external_id"]), (&json!("unknown"), &json!(null)));
        let error = &vm["operation"]["error"];
        assert_eq!(error["code"], "ambiguous");
        assert!(error["detail"].as_str().is_some_and(|detail| detail.contains("settle")), "it says what to do: {error}");
        let events = server.events_of(&acme, "vm.failed").await;
        assert_eq!((events.len(), operation_status(&events[0]["data"])), (1, "needs_attention"));
        let looks = stub.count(Asked::Find);
        server.cloud_work_for(HOUR_MS).await;
        assert_eq!((stub.count(Asked::Create), stub.count(Asked::Find)), (1, looks), "nothing more by itself");
    }

    async fn retry_sends_the_same_order_again(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let (_, vm) = doubtful(&server, &acme, stub, Fault::LostRequest).await;
        let settled = server.post_order(&acme, &settlement(&vm, "retry")).await.ok(202);
        assert_eq!((&settled["id"], &settled["operation"]["id"]), (&vm["id"], &vm["operation"]["id"]));
        assert!(["accepted", "submitting"].contains(&operation_status(&settled)), "{settled:#}");
        assert_eq!(settled["operation"]["error"], json!(null));
        server.post_order(&acme, &settlement(&vm, "retry")).await.problem("conflict");
        server.cloud_work_for(MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), &now["state"]), ("succeeded", &json!("running")), "{now:#}");
        assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (1, 2));
        let [first, second] = <[_; 2]>::try_from(stub.calls(Asked::Create)).unwrap();
        assert_eq!(first.body, second.body);
        let trail = server.get(format!("{AUDIT}?target_id={}", id_of(&vm))).cookie(&acme.admin).await.ok(200);
        assert_eq!(trail["data"][0]["action"], "vm.settle", "{trail:#}");
        let kinds = kinds_of(&server, &acme, &vm).await;
        assert_eq!((count(&kinds, "vm.failed"), count(&kinds, "vm.provisioned")), (1, 1), "{kinds:?}");
    }

    async fn abandon_ends_the_order(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let (provider, vm) = doubtful(&server, &acme, stub, Fault::LostRequest).await;
        server.delete(one_provider(&provider)).cookie(&acme.admin).await.problem("conflict");
        let settled = server.post_order(&acme, &settlement(&vm, "abandon")).await.ok(202);
        assert_eq!((operation_status(&settled), &settled["state"]), ("failed", &json!("failed")), "{settled:#}");
        assert_eq!(settled["operation"]["error"]["code"], "abandoned");
        assert_eq!(count(&kinds_of(&server, &acme, &vm).await, "vm.failed"), 1, "it was told when it needed attention");
        for outcome in ["retry", "abandon"] {
            server.post_order(&acme, &settlement(&vm, outcome)).await.problem("conflict");
        }
        server.cloud_work_for(HOUR_MS).await;
        assert_eq!(stub.count(Asked::Create), 1);
        server.delete(one_provider(&provider)).cookie(&acme.admin).await.is(204);
    }

    async fn an_order_that_was_not_sent_yet_can_be_abandoned(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let provider = server.connect(&acme, stub, "acme").await;
            stub.always(Asked::Create, stub.rate_limited(server.now()));
            let [first, refused] = [server.order(&acme, stub, &provider).await, server.order(&acme, stub, &provider).await];
            let abandoned = server.post_order(&acme, &settlement(&first, "abandon")).await.ok(202);
            assert_eq!((operation_status(&abandoned), &abandoned["state"]), ("failed", &json!("failed")));
            let error = &abandoned["operation"]["error"];
            assert_eq!(error["code"], "abandoned", "{abandoned:#}");
            let events = server.events_of(&acme, "vm.failed").await;
            let told: Vec<&Value> = events.iter().filter(|event| event["data"]["id"] == first["id"]).collect();
            assert_eq!((told.len(), &told[0]["data"]["operation"]["error"]), (1, error), "whoever waits for it is told");
            server.cloud_work().await;
            let asked = stub.count(Asked::Create);
            assert!(asked > 0, "the other was sent, and refused");
            server.post_order(&acme, &settlement(&refused, "abandon")).await.is(202);
            assert_eq!(count(&kinds_of(&server, &acme, &refused).await, "vm.failed"), 1);
            stub.always(Asked::Create, Fault::None);
            server.cloud_work_for(HOUR_MS).await;
            assert_eq!((stub.count(Asked::Create), stub.machines().len()), (asked, 0));
        }
    }

    async fn only_what_needs_attention_is_settled(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            stub.add("acme", "made-elsewhere");
            let provider = server.connect(&acme, stub, "acme").await;
            let found = server.list_vms(&acme, &format!("provider_id={}", id_of(&provider))).await.remove(0);
            let vm = server.order(&acme, stub, &provider).await;
            for _ in 0..3 {
                for outcome in ["retry", "abandon"] {
                    server.post_order(&acme, &settlement(&found, outcome)).await.problem("conflict");
                }
                server.post_order(&acme, &settlement(&vm, "retry")).await.problem("conflict");
                server.cloud_work_for(MINUTE_MS).await;
                server.post_order(&acme, &settlement(&vm, "abandon")).await.problem("conflict");
            }
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "succeeded");
        }
    }

    async fn a_machine_that_was_named_and_is_not_there_needs_attention_again(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let (_, vm) = doubtful(&server, &acme, stub, Fault::LostAnswer).await;
        let adopt = |id: &str| with(&settlement(&vm, "adopt"), &json!({"external_id": id}));
        let mistyped = server.post_order(&acme, &adopt("987654321")).await.ok(202);
        assert_eq!((operation_status(&mistyped), &mistyped["external_id"]), ("submitted", &json!("987654321")));
        server.cloud_work_for(5 * MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), &now["external_id"]), ("needs_attention", &json!(null)), "{now:#}");
        let error = &now["operation"]["error"];
        assert_eq!(error["code"], "not_found");
        assert!(error["detail"].as_str().is_some_and(|detail| detail.contains("987654321")), "{error}");
        let made = stub.machines()[0].id.to_string();
        server.post_order(&acme, &adopt(&made)).await.is(202);
        server.cloud_work_for(MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), &now["external_id"]), ("succeeded", &json!(made)), "{now:#}");
        assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (1, 1));
    }

    /// Whoever looked may have looked a moment too early.
    async fn retry_looks_once_more_before_it_asks(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let (_, vm) = doubtful(&server, &acme, stub, Fault::LostAnswer).await;
        assert_eq!(stub.machines().len(), 1, "it is there, and nobody could see it");
        server.post_order(&acme, &settlement(&vm, "retry")).await.is(202);
        server.cloud_work_for(MINUTE_MS).await;
        assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (1, 1), "a lost answer never makes a second machine");
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), &now["external_id"]), ("succeeded", &json!(stub.machines()[0].id.to_string())));
    }

    async fn a_machine_that_turns_up_in_a_sync_settles_its_order(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let (provider, vm) = doubtful(&server, &acme, stub, Fault::LostAnswer).await;
        server.sync(&acme, &provider).await;
        server.cloud_work_for(MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), &now["state"], &now["managed"]), ("succeeded", &json!("running"), &json!(true)), "{now:#}");
        assert_eq!(server.list_vms(&acme, "").await, [now]);
        assert_eq!(stub.count(Asked::Create), 1);
        let kinds = kinds_of(&server, &acme, &vm).await;
        assert_eq!((count(&kinds, "vm.failed"), count(&kinds, "vm.provisioned")), (1, 1), "{kinds:?}");
        server.post_order(&acme, &settlement(&vm, "abandon")).await.problem("conflict");
    }

    async fn a_machine_of_an_abandoned_order_is_shown_as_it_is(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let (provider, vm) = doubtful(&server, &acme, stub, Fault::LostAnswer).await;
        server.post_order(&acme, &settlement(&vm, "abandon")).await.is(202);
        server.sync(&acme, &provider).await;
        let listed = server.list_vms(&acme, "state=running").await;
        assert_eq!(listed.len(), 1, "a machine that costs money is seen");
        assert_eq!(listed[0]["external_id"], stub.machines()[0].id.to_string());
        assert_eq!(server.list_vms(&acme, "").await.len(), 1, "once");
    }

    /// Refusals before it do not shorten how long a machine is looked for.
    async fn the_look_begins_with_the_request_that_is_in_doubt(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let provider = server.connect(&acme, stub, "acme").await;
        stub.always(Asked::Create, stub.rate_limited(server.now()));
        let vm = server.order(&acme, stub, &provider).await;
        server.cloud_work_for(15 * MINUTE_MS).await;
        assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "accepted");
        stub.always(Asked::Create, Fault::None);
        stub.on(Asked::Create, [Fault::LostAnswer]);
        stub.set_hides_tags(true);
        server.cloud_work_for(3 * MINUTE_MS).await;
        assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "submitting", "tags may come late");
        stub.set_hides_tags(false);
        server.cloud_work_for(MINUTE_MS).await;
        assert_made_once(&server, &acme, stub, &vm, "after refusals").await;
    }
}
