//! `vm.provision` and `provider.verify`: what workflows do with clouds.

use super::*;
use crate::support::workflows::{WORKFLOWS, assert_ended, manual, on_event, step, step_of, ticket};
use crate::tickets;
use crate::workflows::faults;

over_http! {
    async fn a_workflow_orders_machines_as_the_route_does(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let order = with(&order_body(stub, &provider), &json!({"name": "${{ input.name }}"}));
            let definition = manual([step("make", "vm.provision", order)]);
            let run = server.run_with(&acme, &definition, &json!({"name": "web-1"})).await;
            assert_ended(&run, "succeeded: make succeeded");
            let vm = step_of(&run, "make")["output"].clone();
            assert_eq!(vm, server.read_vm(&acme, &vm).await, "the output is what the route answers");
            let trail = server.get(format!("{AUDIT}?target_id={}", id_of(&vm))).cookie(&acme.admin).await.ok(200);
            assert_eq!(trail["data"][0]["actor"]["type"], "workflow");
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "by a workflow").await;
            let several = manual([step("make", "vm.provision", with(&order_body(stub, &provider), &json!({"count": 2, "name": "more"})))]);
            let run = server.run(&acme, &several).await;
            assert_eq!(step_of(&run, "make")["output"]["data"].as_array().unwrap().len(), 2);
        }
    }

    async fn a_workflow_verifies_a_provider(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let token = stub.token("acme", Rights::All);
            let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
            let definition = manual([step("verify", "provider.verify", json!({"provider_id": provider["id"]}))]);
            let run = server.run(&acme, &definition).await;
            assert_ended(&run, "succeeded: verify succeeded");
            let output = &step_of(&run, "verify")["output"];
            assert_eq!((&output["status"], output), (&json!("active"), &server.read_provider(&acme, &provider).await["verification"]));
            // A verdict is no failure of the step: what follows decides.
            stub.revoke(&token);
            let run = server.run(&acme, &definition).await;
            assert_ended(&run, "succeeded: verify succeeded");
            assert_eq!(step_of(&run, "verify")["output"]["status"], "invalid");
        }
    }

    async fn an_event_of_a_cloud_starts_a_workflow(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        let types = ["cloud.provider.failed", "vm.provisioned", "vm.failed", "vm.state_changed"];
        server.workflow(&acme, &on_event(&types, [ticket("note", "${{ event.type }}: ${{ event.data.name }}")])).await;
        let token = stub.token("acme", Rights::All);
        let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
        server.order(&acme, stub, &provider).await;
        server.cloud_work_for(MINUTE_MS).await;
        stub.revoke(&token);
        server.tell_provider(&acme, &provider, "verify").await.is(200);
        server.work().await;
        let tickets = tickets::list(&server, &acme, "").await;
        let mut subjects: Vec<&str> = tickets.iter().map(|ticket| ticket["subject"].as_str().unwrap()).collect();
        subjects.sort_unstable();
        assert_eq!(subjects, ["cloud.provider.failed: Production", "vm.provisioned: web-1", "vm.state_changed: web-1"]);
    }

    async fn a_step_fails_for_what_its_route_refuses(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let stub = &clouds.hetzner;
        let token = stub.token("acme", Rights::All);
        let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
        let foreign = server.connect(&other, stub, "other").await;
        let run = async |uses: &str, with: Value| server.run(&acme, &manual([step("act", uses, with)])).await;
        let error = |run: &Value| step_of(run, "act")["error"]["code"].clone();
        let unknown = |provider: &Value| json!(format!("${{{{ '{}' }}}}", id_of(provider)));
        let order = order_body(stub, &provider);
        let region = run("vm.provision", with(&order, &json!({"region": "mars-1"}))).await;
        assert_eq!(error(&region), "invalid_fields", "{region:#}");
        let theirs = run("vm.provision", with(&order, &json!({"provider_id": unknown(&foreign)}))).await;
        assert_eq!(error(&theirs), "invalid_fields", "{theirs:#}");
        let theirs = run("provider.verify", json!({"provider_id": unknown(&foreign)})).await;
        assert_eq!(error(&theirs), "not_found", "{theirs:#}");
        let off = with(&provider_body(stub, &token), &json!({"enabled": false}));
        server.put(one_provider(&provider)).cookie(&acme.admin).json(&off).await.is(200);
        for (uses, body) in [("vm.provision", order.clone()), ("provider.verify", json!({"provider_id": provider["id"]}))] {
            let refused = run(uses, body).await;
            assert_eq!(error(&refused), "conflict", "{refused:#}");
        }
        assert_eq!((server.list_vms(&acme, "").await.len(), stub.count(Asked::Create)), (0, 0));
        // What is wrong with the step itself is told when it is saved.
        let bad = manual([step("act", "vm.provision", json!({"provider_id": "x", "count": 0, "zone": "a"}))]);
        let answer = server.create_workflow(&acme, &bad).await;
        let mut pointers: Vec<String> = faults(&answer).into_iter().map(|(pointer, _)| pointer).collect();
        pointers.sort_unstable();
        pointers.dedup();
        let missing = ["count", "image", "name", "region", "size", "zone"].map(|field| format!("/steps/0/with/{field}"));
        assert!(missing.iter().all(|pointer| pointers.contains(pointer)), "{pointers:?}");
    }

    async fn who_saves_it_needs_to_write_clouds(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let provider = server.connect(&acme, &clouds.hetzner, "acme").await;
        let technician = server.user(&acme.tenant, Role::Technician).await;
        for (uses, body) in [("vm.provision", order_body(&clouds.hetzner, &provider)), ("provider.verify", json!({"provider_id": provider["id"]}))] {
            let definition = with(&manual([step("act", uses, body)]), &json!({"action": "create"}));
            let answer = server.post(WORKFLOWS).cookie(&technician).json(&definition).await;
            assert_eq!(answer.problem("insufficient_scope")["required_scope"], "cloud:write");
            server.post(WORKFLOWS).cookie(&acme.admin).json(&definition).await.is(201);
        }
    }

    async fn a_dry_run_touches_nothing(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        let token = stub.token("acme", Rights::All);
        let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
        server.advance(1_000);
        stub.set_rights(&token, Rights::ReadOnly);
        let steps = [
            step("make", "vm.provision", order_body(stub, &provider)),
            step("verify", "provider.verify", json!({"provider_id": provider["id"]})),
        ];
        let workflow = server.workflow(&acme, &manual(steps)).await;
        let asked = stub.total();
        let run = server.post_run(&acme, &workflow, &json!({"input": {}, "dry_run": true})).await.ok(202);
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: make succeeded, verify succeeded");
        assert_eq!(stub.total(), asked, "nor is the cloud asked");
        assert_eq!(server.list_vms(&acme, "").await, Vec::<Value>::new());
        assert_eq!(server.read_provider(&acme, &provider).await, provider, "a dry run touches nothing");
        assert_eq!(server.kinds_of(&acme, "cloud.").await, ["cloud.provider.verified"], "and emits nothing");
        server.cloud_work_for(MINUTE_MS).await;
        assert_eq!(stub.count(Asked::Create), 0);
    }
}
