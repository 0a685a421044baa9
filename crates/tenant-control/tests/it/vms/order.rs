//! What ordering a machine takes, and what is answered.

use super::*;
use crate::organizations;
use crate::tickets;

const NOWHERE: &str = "prv_01jd8z6v2mfkpb7h3q9xw5t4ra";

/// The pointers at which an order with these fields is refused, sorted.
async fn refused(server: &Server, tenancy: &Tenancy, order: &Value, fields: &Value) -> Vec<String> {
    let mut pointers = server.post_order(tenancy, &with(order, fields)).await.pointers();
    pointers.sort_unstable();
    pointers
}

over_http! {
    async fn an_order_is_answered_with_the_machine_and_its_operation(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let provider = server.connect(&acme, stub, "acme").await;
            let asked = stub.total();
            let order = with(&order_body(stub, &provider), &json!({"tags": {"env": "prod"}, "user_data": "#!/bin/sh hunter2"}));
            let answer = server.post_order(&acme, &order).await;
            let vm = answer.ok(202);
            let now = server.now().to_string();
            for (field, value) in [
                ("provider_id", provider["id"].clone()),
                ("external_id", json!(null)),
                ("name", json!("web-1")),
                ("region", json!(stub.region())),
                ("image", json!(stub.image())),
                ("state", json!("provisioning")),
                ("intended_state", json!("running")),
                ("managed", json!(true)),
                ("first_seen_at", json!(null)),
                ("version", json!(1)),
                ("created_at", json!(now)),
            ] {
                assert_eq!(vm[field], value, "{field}");
            }
            assert_eq!((&vm["size"]["id"], &vm["operation"]["status"]), (&json!(stub.size()), &json!("accepted")));
            assert_eq!(vm["operation"]["error"], json!(null));
            let operation = vm["operation"]["id"].as_str().unwrap();
            assert!(operation.starts_with("op_") && operation.len() == 29, "{operation}");
            assert_eq!((&vm["tags"]["Name"], &vm["tags"]["env"]), (&json!("web-1"), &json!("prod")));
            assert_eq!(vm["tags"]["tenant-control:operation"], operation);
            assert_eq!(server.read_vm(&acme, &vm).await, vm);
            assert_eq!(stub.total(), asked, "it is stored before the cloud is asked");
            let trail = server.get(format!("{AUDIT}?target_id={}", id_of(&vm))).cookie(&acme.admin).await.ok(200);
            assert_eq!(trail["data"][0]["action"], "vm.provision");
            assert!(!trail.to_string().contains("hunter2") && !vm.to_string().contains("hunter2"));
        }
    }

    async fn a_count_is_answered_with_as_many_machines(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let provider = server.connect(&acme, &clouds.hetzner, "acme").await;
        for (nth, count) in [1_usize, 3, 20].into_iter().enumerate() {
            let order = with(&order_body(&clouds.hetzner, &provider), &json!({"count": count, "name": format!("batch{nth}")}));
            let answer = server.post_order(&acme, &order).await.ok(202);
            let made = answer["data"].as_array().expect("data, even of one");
            assert_eq!((made.len(), answer.as_object().unwrap().len()), (count, 1));
            let mut operations: Vec<&str> = made.iter().map(|vm| vm["operation"]["id"].as_str().unwrap()).collect();
            operations.sort_unstable();
            operations.dedup();
            assert_eq!(operations.len(), count, "an operation each");
            let mut names: Vec<String> = made.iter().map(|vm| vm["name"].as_str().unwrap().to_owned()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "a name each: {names:?}");
            assert!(names.iter().all(|name| name.starts_with(&format!("batch{nth}"))), "{names:?}");
        }
        server.cloud_work_for(2 * MINUTE_MS).await;
        assert_eq!((clouds.hetzner.machines().len(), clouds.hetzner.count(Asked::Create)), (24, 24));
        assert_eq!(server.list_vms(&acme, "state=running").await.len(), 24);
    }

    async fn a_dry_run_says_what_it_would_make_and_stores_nothing(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let provider = server.connect(&acme, stub, "acme").await;
            let order = with(&order_body(stub, &provider), &json!({"dry_run": true}));
            let one = server.post_order(&acme, &order).await.ok(200);
            assert_eq!((&one["id"], &one["name"], &one["state"]), (&json!(null), &json!("web-1"), &json!("provisioning")));
            assert_eq!((&one["operation"], &one["provider_id"]), (&json!(null), &provider["id"]));
            let several = server.post_order(&acme, &with(&order, &json!({"count": 2}))).await.ok(200);
            assert_eq!(several["data"].as_array().unwrap().len(), 2);
            let single = server.post_order(&acme, &with(&order, &json!({"count": 1}))).await.ok(200);
            assert_eq!(single["data"].as_array().unwrap().len(), 1);
            // What an order would be refused for, a dry run is, too.
            assert_eq!(refused(&server, &acme, &order, &json!({"region": "mars-1"})).await, ["/region"]);
            server.cloud_work_for(MINUTE_MS).await;
            assert_eq!((server.list_vms(&acme, "").await.len(), stub.count(Asked::Create)), (0, 0));
            assert!(server.events_of(&acme, "vm.").await.is_empty());
        }
    }

    async fn what_is_wrong_is_named_where_it_stands_and_all_at_once(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let provider = server.connect(&acme, &clouds.hetzner, "acme").await;
        let order = order_body(&clouds.hetzner, &provider);
        let tags: serde_json::Map<String, Value> = (0..41).map(|n| (format!("t{n}"), json!("x"))).collect();
        for (fields, pointers) in [
            (json!({"provider_id": 5}), &["/provider_id"][..]),
            (json!({"name": ""}), &["/name"]),
            (json!({"name": "x".repeat(201)}), &["/name"]),
            (json!({"region": "Mars 1"}), &["/region"]),
            (json!({"region": "mars-1"}), &["/region"]),
            (json!({"size": ""}), &["/size"]),
            (json!({"image": null}), &["/image"]),
            (json!({"count": 0}), &["/count"]),
            (json!({"count": 21}), &["/count"]),
            (json!({"count": "2"}), &["/count"]),
            (json!({"count": null}), &["/count"]),
            (json!({"tags": []}), &["/tags"]),
            (json!({"tags": tags}), &["/tags"]),
            (json!({"tags": {"Name": "x", "tenant-control:operation": "x", "aws:x": "y", "n": 1}}),
                &["/tags/Name", "/tags/aws:x", "/tags/n", "/tags/tenant-control:operation"]),
            (json!({"user_data": "x".repeat((64 << 10) + 1)}), &["/user_data"]),
            (json!({"ssh_keys": ["", "a"]}), &["/ssh_keys/0"]),
            (json!({"ssh_keys": vec!["a"; 11]}), &["/ssh_keys"]),
            (json!({"organization_id": 5}), &["/organization_id"]),
            (json!({"dry_run": "true"}), &["/dry_run"]),
            (json!({"state": "running", "id": "vm_1"}), &["/id", "/state"]),
            (json!({"name": "", "size": 1, "count": -1, "x": 1}), &["/count", "/name", "/size", "/x"]),
        ] {
            assert_eq!(refused(&server, &acme, &order, &fields).await, pointers, "{fields}");
        }
        assert_eq!(refused(&server, &acme, &json!({}), &json!({})).await, ["/image", "/name", "/provider_id", "/region", "/size"]);
        for (body, pointers) in [
            (json!({"action": "settle"}), &["/id", "/outcome"][..]),
            (json!({"action": "settle", "id": "vm_01jd8z6v2mfkpb7h3q9xw5t4ra", "outcome": "forget"}), &["/outcome"]),
            (json!({"action": "destroy", "id": "vm_01jd8z6v2mfkpb7h3q9xw5t4ra", "outcome": "retry"}), &["/action"]),
        ] {
            assert_eq!(refused(&server, &acme, &body, &json!({})).await, pointers, "{body}");
        }
        assert_eq!(server.list_vms(&acme, "").await, Vec::<Value>::new());
    }

    async fn what_is_referred_to_must_be_there(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let provider = server.connect(&acme, &clouds.hetzner, "acme").await;
        let foreign = server.connect(&other, &clouds.hetzner, "other").await;
        let gone = server.connect(&acme, &clouds.hetzner, "acme").await;
        server.delete(one_provider(&gone)).cookie(&acme.admin).await.is(204);
        let order = order_body(&clouds.hetzner, &provider);
        for id in [NOWHERE, id_of(&foreign), id_of(&gone), "nonsense", ""] {
            assert_eq!(refused(&server, &acme, &order, &json!({"provider_id": id})).await, ["/provider_id"], "{id}");
        }
        let theirs = tickets::organization(&server, &other, "globex").await;
        let archived = organizations::make(&server, &acme, &json!({"name": "Old", "archived": true})).await;
        for id in ["org_01jd8z6v2mfkpb7h3q9xw5t4ra", theirs.as_str(), id_of(&archived), "nonsense"] {
            assert_eq!(refused(&server, &acme, &order, &json!({"organization_id": id})).await, ["/organization_id"], "{id}");
        }
        let both = json!({"provider_id": NOWHERE, "organization_id": "nonsense"});
        assert_eq!(refused(&server, &acme, &order, &both).await, ["/organization_id", "/provider_id"]);
        let none = server.post_order(&acme, &with(&order, &json!({"organization_id": null}))).await.ok(202);
        assert_eq!(none["organization_id"], json!(null));
    }

    async fn a_provider_that_cannot_make_machines_is_a_conflict(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let token = stub.token("acme", Rights::All);
            let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
            let order = order_body(stub, &provider);
            let off = with(&provider_body(stub, &token), &json!({"enabled": false}));
            server.put(one_provider(&provider)).cookie(&acme.admin).json(&off).await.is(200);
            for body in [&order, &with(&order, &json!({"dry_run": true}))] {
                server.post_order(&acme, body).await.problem("conflict");
            }
            // What is wrong with the order itself is told before.
            assert_eq!(refused(&server, &acme, &order, &json!({"region": "mars-1"})).await, ["/region"]);
            let bad = provider_body(stub, "a-token-that-is-refused");
            server.put(one_provider(&provider)).cookie(&acme.admin).json(&bad).await.is(200);
            server.cloud_work().await;
            assert_eq!(server.read_provider(&acme, &provider).await["status"], "invalid");
            server.post_order(&acme, &order).await.problem("conflict");
            assert_eq!(stub.count(Asked::Create), 0);
        }
    }

    async fn an_order_for_a_provider_that_is_not_verified_yet_waits_for_it(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let token = stub.token("acme", Rights::All);
            let provider = server.post(PROVIDERS).cookie(&acme.admin).json(&provider_body(stub, &token)).await.ok(201);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "ordered early").await;
        }
    }

    async fn a_repeated_request_orders_no_second_machine(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let provider = server.connect(&acme, &clouds.digitalocean, "acme").await;
        let order = order_body(&clouds.digitalocean, &provider);
        let send = || server.post(VMS).cookie(&acme.admin).idempotency_key("k").json(&order);
        let (first, second) = (send().await, send().await);
        assert_eq!((first.ok(202), second.header("idempotency-replayed")), (second.ok(202), "true"));
        server.cloud_work_for(MINUTE_MS).await;
        assert_eq!(send().await.ok(202), first.json(), "as it was answered first");
        server.cloud_work_for(MINUTE_MS).await;
        assert_eq!((clouds.digitalocean.machines().len(), server.list_vms(&acme, "").await.len()), (1, 1));
    }

    async fn a_repeated_request_for_several_orders_them_once(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let order = with(&order_body(stub, &provider), &json!({"count": 3}));
            let send = || server.post(VMS).cookie(&acme.admin).idempotency_key("k").json(&order);
            let (first, second) = (send().await, send().await);
            assert_eq!((first.ok(202), second.header("idempotency-replayed")), (second.ok(202), "true"));
            server.cloud_work_for(MINUTE_MS).await;
            assert_eq!(send().await.ok(202), first.json(), "as it was answered first");
            server.cloud_work_for(MINUTE_MS).await;
            assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (3, 3));
            assert_eq!(server.list_vms(&acme, "state=running").await.len(), 3);
        }
    }

    async fn a_key_of_another_order_is_refused(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let order = order_body(stub, &provider);
            let send = |body: &Value| server.post(VMS).cookie(&acme.admin).idempotency_key("k").json(body);
            let vm = send(&order).await.ok(202);
            for body in [
                with(&order, &json!({"name": "web-2"})),
                with(&order, &json!({"count": 1})),
                with(&order, &json!({"user_data": "#!/bin/sh"})),
                with(&order, &json!({"dry_run": true})),
                settlement(&vm, "abandon"),
            ] {
                let answer = send(&body).await;
                answer.problem("idempotency_key_reused");
                assert_eq!(answer.status, 422, "{body}");
            }
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "with a key").await;
        }
    }
}
