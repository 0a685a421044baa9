//! Machines that somebody names for an order: only one that can be that of the order is taken.

use super::*;

/// An order at DigitalOcean whose machine nobody could find.
async fn doubtful(server: &Server, tenancy: &Tenancy, stub: &CloudStub, order: &Value, fault: Fault) -> Value {
    stub.set_hides_tags(true);
    stub.on(Asked::Create, [fault]);
    let vm = server.post_order(tenancy, order).await.ok(202);
    server.cloud_work_for(12 * MINUTE_MS).await;
    stub.set_hides_tags(false);
    let now = server.read_vm(tenancy, &vm).await;
    assert_eq!(operation_status(&now), "needs_attention", "{now:#}");
    now
}

over_http! {
    async fn a_machine_of_another_region_is_not_adopted(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let provider = server.connect(&acme, stub, "acme").await;
        let vm = doubtful(&server, &acme, stub, &order_body(stub, &provider), Fault::LostRequest).await;
        let elsewhere = stub.add("acme", "elsewhere");
        stub.change(elsewhere, |machine| "nyc3".clone_into(&mut machine.region));
        server.post_order(&acme, &adoption(&vm, &elsewhere.to_string())).await.is(202);
        server.cloud_work_for(MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), &now["region"]), ("needs_attention", &json!("fra1")), "{now:#}");
        assert_eq!((&now["external_id"], &now["operation"]["error"]["code"]), (&json!(null), &json!("not_found")), "{now:#}");
    }

    async fn a_machine_that_is_listed_in_another_region_stays_what_it_is(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let elsewhere = stub.add("acme", "elsewhere");
        stub.change(elsewhere, |machine| "nyc3".clone_into(&mut machine.region));
        let both = with(&provider_body(stub, &stub.token("acme", Rights::All)), &json!({"regions": ["fra1", "nyc3"]}));
        let provider = server.connect_by(&acme, &both).await;
        let listed = server.list_vms(&acme, "q=elsewhere").await;
        let vm = doubtful(&server, &acme, stub, &order_body(stub, &provider), Fault::LostRequest).await;
        let refused = server.post_order(&acme, &adoption(&vm, &elsewhere.to_string())).await;
        assert_eq!(refused.pointers(), ["/external_id"]);
        assert_eq!(server.list_vms(&acme, "q=elsewhere").await, listed);
    }

    async fn the_tag_of_an_order_on_a_machine_of_another_region_is_a_copy(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let elsewhere = if stub.kind() == "hetzner" { "nbg1" } else { "nyc3" };
            let regions = json!({"regions": [stub.region(), elsewhere]});
            let both = with(&provider_body(stub, &stub.token("acme", Rights::All)), &regions);
            let provider = server.connect_by(&acme, &both).await;
            stub.on(Asked::Create, [Fault::LostAnswer]);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work().await;
            let made = stub.machines().pop().expect("a machine");
            stub.change(made.id, |machine| elsewhere.clone_into(&mut machine.region));
            server.sync(&acme, &provider).await;
            server.cloud_work_for(2 * MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            assert_ne!(now["external_id"], made.id.to_string(), "{now:#}");
            let listed = server.list_vms(&acme, &format!("region={elsewhere}")).await;
            assert_eq!((listed.len(), &listed[0]["managed"]), (1, &json!(false)), "{listed:#?}");
        }
    }

    async fn an_id_that_the_cloud_refuses_is_told_soon(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let provider = server.connect(&acme, stub, "acme").await;
        let vm = doubtful(&server, &acme, stub, &order_body(stub, &provider), Fault::LostRequest).await;
        stub.always(Asked::Get, stub.refusal(400, "bad_request", "the id is malformed"));
        server.post_order(&acme, &adoption(&vm, "123")).await.is(202);
        server.cloud_work_for(5 * MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), &now["operation"]["error"]["code"]), ("needs_attention", &json!("not_found")), "{now:#}");
        assert_eq!(now["external_id"], json!(null));
    }

    async fn a_machine_that_was_adopted_for_another_order_stays_there(setup: Setup) {
        let (server, clouds) = open_without_syncs(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let provider = server.connect(&acme, stub, "acme").await;
        let named = |name: &str| with(&order_body(stub, &provider), &json!({"name": name}));
        let first = doubtful(&server, &acme, stub, &named("first"), Fault::LostAnswer).await;
        let second = doubtful(&server, &acme, stub, &named("second"), Fault::LostRequest).await;
        let machine = stub.machines()[0].id.to_string();
        server.post_order(&acme, &adoption(&second, &machine)).await.is(202);
        server.cloud_work_for(MINUTE_MS).await;
        let adopted = server.read_vm(&acme, &second).await;
        assert_eq!((operation_status(&adopted), &adopted["external_id"]), ("succeeded", &json!(machine)), "{adopted:#}");
        // The first order is looked for by its tag, which this machine carries.
        server.post_order(&acme, &settlement(&first, "retry")).await.is(202);
        server.cloud_work_for(MINUTE_MS).await;
        let now = server.read_vm(&acme, &first).await;
        assert_eq!((operation_status(&now), &now["external_id"]), ("needs_attention", &json!(null)), "{now:#}");
        let detail = now["operation"]["error"]["detail"].as_str().unwrap();
        assert!(detail.contains(id_of(&second)) && detail.contains(&machine), "{detail}");
        assert_eq!(server.read_vm(&acme, &second).await, adopted, "it was there first");
        assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (1, 2));
        server.post_order(&acme, &settlement(&first, "abandon")).await.is(202);
    }
}
