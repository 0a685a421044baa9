//! Answers that are lost, cut off or not understood: one order makes one machine, whatever becomes of the answer.

use super::*;

/// An order whose first request meets this fault, as it is some time later.
async fn order_through(server: &Server, tenancy: &Tenancy, stub: &CloudStub, fault: Fault) -> Value {
    let provider = server.connect(tenancy, stub, &tenancy.tenant.slug).await;
    stub.on(Asked::Create, [fault]);
    let vm = server.order(tenancy, stub, &provider).await;
    server.cloud_work().await;
    let now = server.read_vm(tenancy, &vm).await;
    assert_eq!(operation_status(&now), "submitting", "whether there is a machine is not known yet: {now:#}");
    vm
}

/// Forgets the machines of the test before.
fn clear(stub: &CloudStub) {
    stub.machines().iter().for_each(|machine| stub.remove(machine.id));
}

over_http! {
    async fn a_machine_whose_answer_was_lost_is_found_and_not_made_again(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            for (nth, fault) in [Fault::LostAnswer, Fault::Truncated].into_iter().enumerate() {
                let acme = server.tenant(&format!("{}-{nth}", stub.kind())).await;
                let vm = order_through(&server, &acme, stub, fault).await;
                assert_eq!(stub.machines().len(), 1);
                server.cloud_work_for(MINUTE_MS).await;
                assert_made_once(&server, &acme, stub, &vm, "a lost answer").await;
                assert_eq!(stub.count(Asked::Create), nth + 1, "nothing was asked for twice");
                clear(stub);
            }
        }
    }

    async fn many_answers_lost_at_once_make_as_many_machines_as_were_ordered(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.on(Asked::Create, vec![Fault::LostAnswer; 20]);
            let order = with(&order_body(stub, &provider), &json!({"count": 20}));
            server.post_order(&acme, &order).await.is(202);
            server.cloud_work_for(5 * MINUTE_MS).await;
            assert_eq!(stub.machines().len(), 20);
            let listed = server.list_vms(&acme, "").await;
            assert_eq!(listed.len(), 20);
            let is_right = |vm: &Value| {
                let machine = stub.machines().into_iter().find(|machine| vm["external_id"] == json!(machine.id.to_string()));
                operation_status(vm) == "succeeded" && machine.is_some_and(|machine| vm["name"] == machine.name)
            };
            assert!(listed.iter().all(is_right), "{listed:#?}");
        }
    }

    async fn a_machine_that_is_listed_late_is_found_late(setup: Setup) {
        let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await;
        let stub = &clouds.digitalocean;
        let acme = server.tenant("acme").await;
        stub.set_hides_tags(true);
        let vm = order_through(&server, &acme, stub, Fault::LostAnswer).await;
        server.cloud_work_for(8 * MINUTE_MS).await;
        assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "submitting");
        assert_eq!(stub.count(Asked::Create), 1);
        stub.set_hides_tags(false);
        server.cloud_work_for(MINUTE_MS).await;
        assert_made_once(&server, &acme, stub, &vm, "listed late").await;
    }

    async fn a_request_that_was_lost_is_sent_again_where_names_are_unique(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let stub = &clouds.hetzner;
        for (nth, fault) in [Fault::LostRequest, stub.refusal(500, "server_error", "oops"), stub.refusal(502, "", ""), stub.refusal(504, "timeout", "timed out")]
            .into_iter()
            .enumerate()
        {
            let acme = server.tenant(&format!("acme-{nth}")).await;
            let vm = order_through(&server, &acme, stub, fault).await;
            assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (0, 2 * nth + 1));
            let looks = stub.count(Asked::Find);
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "a lost request").await;
            assert_eq!(stub.count(Asked::Create), 2 * nth + 2);
            assert!(stub.count(Asked::Find) > looks, "it was looked for before it was asked for again");
            let [.., first, second] = &stub.calls(Asked::Create)[..] else { panic!("two requests") };
            assert_eq!(first.body, second.body, "the same order");
            clear(stub);
        }
    }

    async fn a_server_of_the_same_name_is_not_taken_for_the_one_that_was_ordered(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (stub, acme) = (&clouds.hetzner, server.tenant("acme").await);
        let taken = stub.add("acme", "web-1");
        let provider = server.connect(&acme, stub, "acme").await;
        let vm = server.order(&acme, stub, &provider).await;
        server.cloud_work_for(MINUTE_MS).await;
        let refused = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&refused), &refused["operation"]["error"]["code"]), ("failed", &json!("conflict")), "{refused:#}");
        assert_eq!((&refused["external_id"], &refused["state"]), (&json!(null), &json!("failed")));
        let other = server.list_vms(&acme, "state=running").await;
        assert_eq!((other.len(), &other[0]["external_id"], &other[0]["managed"]), (1, &json!(taken.to_string()), &json!(false)));
        assert_eq!(stub.machines().len(), 1);
    }

    async fn a_lost_answer_and_then_a_cloud_that_is_away_make_one_machine(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let vm = order_through(&server, &acme, stub, Fault::LostAnswer).await;
            stub.set_away(true);
            server.cloud_work_for(60 * MINUTE_MS).await;
            let waiting = server.read_vm(&acme, &vm).await;
            assert_eq!(operation_status(&waiting), "submitting", "a cloud that is away says nothing: {waiting:#}");
            stub.set_away(false);
            server.cloud_work_for(30 * MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "away for an hour").await;
            assert_eq!(stub.count(Asked::Create), 1);
        }
    }

    async fn a_tag_that_was_copied_to_another_machine_makes_no_second_of_the_first(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(MINUTE_MS).await;
            let made = assert_made_once(&server, &acme, stub, &vm, "an order").await;
            let tags = stub.machines()[0].tags.clone();
            let copy = stub.add("acme", "a-copy");
            stub.change(copy, |machine| machine.tags = tags);
            server.sync(&acme, &provider).await;
            assert_eq!(server.read_vm(&acme, &vm).await["external_id"], made["external_id"]);
            let copied = server.list_vms(&acme, "q=copy").await.remove(0);
            assert_eq!((&copied["managed"], &copied["operation"]), (&json!(false), &json!(null)), "{copied:#}");
        }
    }

    async fn several_machines_of_one_order_need_attention(setup: Setup) {
        let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await;
        let stub = &clouds.digitalocean;
        let acme = server.tenant("acme").await;
        let vm = order_through(&server, &acme, stub, Fault::LostAnswer).await;
        let tags = stub.machines()[0].tags.clone();
        let copy = stub.add("acme", "a-copy");
        stub.change(copy, |machine| machine.tags = tags);
        server.cloud_work_for(MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!(operation_status(&now), "needs_attention", "{now:#}");
        let detail = now["operation"]["error"]["detail"].as_str().unwrap();
        for machine in stub.machines() {
            assert!(detail.contains(&machine.id.to_string()), "{detail}");
        }
        server.post_order(&acme, &settlement(&vm, "retry")).await;
        server.cloud_work_for(MINUTE_MS).await;
        assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (2, 1), "no third is made");
    }
}
