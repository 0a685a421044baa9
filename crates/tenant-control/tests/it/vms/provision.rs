//! An order from its acceptance to a machine that runs.

use super::*;

over_http! {
    async fn an_order_becomes_a_machine_that_runs(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let more = json!({"tags": {"env": "prod"}, "user_data": "#!/bin/sh\necho hunter2", "ssh_keys": ["ops", "4711"]});
            let vm = server.post_order(&acme, &with(&order_body(stub, &provider), &more)).await.ok(202);
            server.cloud_work().await;
            let under_way = server.read_vm(&acme, &vm).await;
            assert!(["submitted", "waiting"].contains(&operation_status(&under_way)), "{under_way:#}");
            assert_eq!(under_way["external_id"], stub.machines()[0].id.to_string());
            server.cloud_work_for(MINUTE_MS).await;
            let made = assert_made_once(&server, &acme, stub, &vm, "an order").await;
            assert_eq!((&made["managed"], &made["intended_state"], &made["created_at"]), (&json!(true), &json!("running"), &vm["created_at"]));
            assert_eq!(made["public_ips"], json!([stub.machines()[0].ip]));
            assert_eq!(made["tags"]["tenant-control:operation"], vm["operation"]["id"]);
            assert_eq!(made["tags"]["env"], "prod");
            let [sent] = <[_; 1]>::try_from(stub.calls(Asked::Create)).expect("it was asked for once");
            let operation = vm["operation"]["id"].as_str().unwrap();
            assert_eq!((&sent.body["name"], &sent.body["image"]), (&json!("web-1"), &json!(stub.image())));
            assert_eq!(sent.body["user_data"], "#!/bin/sh\necho hunter2");
            if stub.kind() == "hetzner" {
                assert_eq!((&sent.body["location"], &sent.body["server_type"]), (&json!("fsn1"), &json!("cx22")));
                assert_eq!(sent.body["labels"], json!({"env": "prod", "tenant-control/operation": operation}));
                assert_eq!(sent.body["ssh_keys"], json!(["ops", "4711"]));
            } else {
                assert_eq!((&sent.body["region"], &sent.body["size"]), (&json!("fra1"), &json!("s-1vcpu-1gb")));
                assert_eq!(sent.body["tags"], json!([format!("tenant-control:operation:{operation}"), "env:prod"]));
                assert_eq!(sent.body["ssh_keys"], json!(["ops", 4711]), "an id is a number there");
            }
            let events = server.events_of(&acme, "").await;
            assert!(!format!("{events:?}").contains("hunter2"));
            let provisioned = events.iter().find(|event| event["type"] == "vm.provisioned").unwrap();
            assert_eq!(without(&provisioned["data"], &["last_seen_at"]), without(&made, &["last_seen_at"]));
        }
    }

    async fn a_sync_meanwhile_makes_no_second_record(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.set_keeps_booting(true);
            let vm = server.order(&acme, stub, &provider).await;
            server.tell_provider(&acme, &provider, "sync").await.is(202);
            for _ in 0..5 {
                server.cloud_work_for(MINUTE_MS).await;
                server.sync(&acme, &provider).await;
            }
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), &now["state"]), ("waiting", &json!("provisioning")), "{now:#}");
            let state = if stub.kind() == "hetzner" { "running" } else { "active" };
            stub.change(stub.machines()[0].id, |machine| state.clone_into(&mut machine.state));
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "with syncs").await;
        }
    }

    /// DigitalOcean tags a machine a moment after it is made. A sync that reads it in between takes it for somebody else's.
    async fn a_sync_that_reads_a_machine_before_its_tags_makes_no_second_record(setup: Setup) {
        let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.set_hides_tags(true);
            stub.on(Asked::Create, [Fault::LostAnswer]);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work().await;
            server.sync(&acme, &provider).await;
            stub.set_hides_tags(false);
            server.cloud_work_for(MINUTE_MS).await;
            server.sync(&acme, &provider).await;
            assert_made_once(&server, &acme, stub, &vm, "read before its tags").await;
        }
    }

    async fn a_machine_that_does_not_come_to_run_needs_attention(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.set_keeps_booting(true);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(25 * MINUTE_MS).await;
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "waiting");
            server.cloud_work_for(10 * MINUTE_MS).await;
            let late = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&late), &late["operation"]["error"]["code"]), ("needs_attention", &json!("timeout")), "{late:#}");
            assert_eq!(late["external_id"], stub.machines()[0].id.to_string());
            // The machine is there: sending the order once more would make a second one.
            let refused = server.post_order(&acme, &settlement(&vm, "retry")).await.problem("conflict");
            assert!(refused["detail"].as_str().unwrap().contains("adopt it"), "{refused}");
            server.cloud_work_for(10 * MINUTE_MS).await;
            assert_eq!(stub.machines().len(), 1, "{:#?}", stub.machines());
            assert_eq!(server.vm_names(&acme, "").await, ["web-1"]);
        }
    }

    async fn a_machine_that_the_cloud_makes_and_does_not_switch_on_needs_attention(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.set_keeps_booting(true);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work().await;
            stub.change(stub.machines()[0].id, |machine| "off".clone_into(&mut machine.state));
            server.cloud_work_for(25 * MINUTE_MS).await;
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "waiting", "it may still be switched on");
            server.cloud_work_for(10 * MINUTE_MS).await;
            let late = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&late), &late["state"]), ("needs_attention", &json!("stopped")), "{late:#}");
            assert!(late["operation"]["error"]["detail"].as_str().unwrap().contains("is off"), "{late:#}");
            let kinds = kinds_of(&server, &acme, &vm).await;
            assert_eq!((count(&kinds, "vm.failed"), count(&kinds, "vm.provisioned")), (1, 0), "{kinds:?}");
        }
    }

    async fn a_machine_that_the_cloud_ends_before_it_runs_has_failed(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.set_keeps_booting(true);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work().await;
            stub.remove(stub.machines()[0].id);
            server.cloud_work_for(10 * MINUTE_MS).await;
            let ended = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&ended), &ended["operation"]["error"]["code"]), ("failed", &json!("gone")), "{ended:#}");
            let kinds = kinds_of(&server, &acme, &vm).await;
            assert_eq!((count(&kinds, "vm.failed"), count(&kinds, "vm.provisioned")), (1, 0), "{kinds:?}");
            assert_eq!(stub.count(Asked::Create), 1, "it is not made again");
        }
    }
}
