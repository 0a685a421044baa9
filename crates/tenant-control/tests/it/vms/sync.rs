//! What a sync finds: every machine of every page, what has changed of it, and when it was seen.

use std::time::{Duration, Instant};

use kernel::base::HOUR_MS;

use super::*;

over_http! {
    async fn every_machine_of_every_page_is_found_once(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            for number in 0..23 {
                stub.add("acme", &format!("m-{number}"));
            }
            stub.add("another", "of-another-account");
            let elsewhere = stub.add("acme", "in-another-region");
            stub.change(elsewhere, |machine| "nowhere-1".clone_into(&mut machine.region));
            stub.set_page_max(5);
            let provider = server.connect(&acme, stub, "acme").await;
            let query = format!("provider_id={}", id_of(&provider));
            let names = server.vm_names(&acme, &query).await;
            assert_eq!(names.len(), 23, "{names:?}");
            let pages: Vec<Option<usize>> = stub.calls(Asked::List).iter().map(|call| call.number("page")).collect();
            assert_eq!(pages, [1, 2, 3, 4, 5].map(Some), "each page was read once");
            server.sync(&acme, &provider).await;
            assert_eq!(server.vm_names(&acme, &query).await, names);
            assert!(server.events_of(&acme, "vm.").await.is_empty(), "a machine that was found has changed nothing");
        }
    }

    async fn a_machine_is_shown_with_all_that_its_cloud_tells(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for (stub, tags, size, cost) in [
            (&clouds.hetzner, json!({"env": "prod", "empty": ""}), (2_i64, 4_i64 << 30), json!({"amount": 3.79, "currency": "EUR", "period": "month"})),
            (&clouds.digitalocean, json!(["env:prod", "empty"]), (1, 1 << 30), json!({"amount": 6.0, "currency": "USD", "period": "month"})),
        ] {
            let id = stub.add("acme", "web-1");
            stub.change(id, |machine| machine.tags = tags);
            let provider = server.connect(&acme, stub, "acme").await;
            let vm = server.list_vms(&acme, &format!("provider_id={}", id_of(&provider))).await.remove(0);
            let now = server.now().to_string();
            for (field, value) in [
                ("provider_id", provider["id"].clone()),
                ("external_id", json!(id.to_string())),
                ("name", json!("web-1")),
                ("region", json!(stub.region())),
                ("image", json!(stub.image())),
                ("state", json!("running")),
                ("raw_state", json!(stub.machines()[0].state)),
                ("intended_state", json!(null)),
                ("public_ips", json!([stub.machines()[0].ip])),
                ("tags", json!({"env": "prod", "empty": ""})),
                ("managed", json!(false)),
                ("cost", cost),
                ("organization_id", json!(null)),
                ("operation", json!(null)),
                ("first_seen_at", json!(now)),
                ("last_seen_at", json!(now)),
                ("deleted_at", json!(null)),
                ("version", json!(1)),
                ("created_at", json!(now)),
                ("updated_at", json!(now)),
            ] {
                assert_eq!(vm[field], value, "{field} of {}: {vm:#}", stub.kind());
            }
            assert_eq!((&vm["size"]["id"], &vm["size"]["vcpus"]), (&json!(stub.size()), &json!(size.0)));
            assert_eq!(vm["size"]["memory_bytes"], size.1);
            assert!(vm["size"]["disk_bytes"].is_i64() && vm.get("zone").is_some(), "{vm:#}");
            assert!(id_of(&vm).starts_with("vm_") && id_of(&vm).len() == 29, "{vm}");
        }
    }

    async fn a_sync_that_finds_nothing_new_changes_nothing_but_when_it_was_seen(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        stub.add("acme", "web-1");
        let provider = server.connect(&acme, stub, "acme").await;
        let before = server.list_vms(&acme, "").await.remove(0);
        server.cloud_work_for(HOUR_MS).await;
        let syncs = stub.count(Asked::List);
        assert!((10..=13).contains(&syncs), "about every five minutes, not all at the same distance: {syncs}");
        let after = server.list_vms(&acme, "").await.remove(0);
        assert_eq!(without(&after, &["last_seen_at"]), without(&before, &["last_seen_at"]));
        assert!(after["last_seen_at"].as_str() > before["last_seen_at"].as_str(), "{after:#}");
        let now = server.read_provider(&acme, &provider).await;
        assert_eq!((&now["last_sync_at"], &now["version"]), (&after["last_seen_at"], &json!(1)));
        assert_eq!(server.read_vm(&acme, &after).await, after);
        let changes = server.list_vms(&acme, &format!("updated_since={}", server.now())).await;
        assert_eq!(changes, Vec::<Value>::new());
    }

    async fn a_state_that_changes_is_told_once(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for (stub, states) in [
            (&clouds.hetzner, &[("off", "stopped"), ("starting", "starting"), ("deleting", "terminating"), ("migrating", "unknown"), ("a-new-word", "unknown"), ("running", "running")][..]),
            (&clouds.digitalocean, &[("off", "stopped"), ("archive", "suspended"), ("a-new-word", "unknown"), ("active", "running")]),
        ] {
            let id = stub.add("acme", "web-1");
            let provider = server.connect(&acme, stub, "acme").await;
            let vm = server.list_vms(&acme, &format!("provider_id={}", id_of(&provider))).await.remove(0);
            let (mut version, mut told, mut last) = (1, Vec::new(), "running");
            for (raw, state) in states {
                server.advance(1_000);
                stub.change(id, |machine| (*raw).clone_into(&mut machine.state));
                server.sync(&acme, &provider).await;
                version += 1;
                let now = server.read_vm(&acme, &vm).await;
                assert_eq!((&now["state"], &now["raw_state"]), (&json!(state), &json!(raw)));
                assert_eq!((&now["version"], &now["updated_at"]), (&json!(version), &json!(server.now().to_string())));
                if last != *state {
                    told.push(*state);
                }
                last = *state;
                server.sync(&acme, &provider).await;
            }
            let events = server.events_of(&acme, "vm.").await;
            let own: Vec<&Value> = events.iter().filter(|event| event["data"]["id"] == vm["id"]).collect();
            assert!(own.iter().all(|event| event["type"] == "vm.state_changed"), "{own:#?}");
            let states: Vec<&str> = own.iter().map(|event| event["data"]["state"].as_str().unwrap()).collect();
            assert_eq!(states, told, "a state that means the same is not told");
            let mut before = "running";
            for (event, state) in own.iter().zip(told) {
                assert_eq!(event["data"]["changes"], json!({"state": {"from": before, "to": state}}));
                before = state;
            }
        }
    }

    async fn what_else_changes_is_a_change_without_an_event(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let id = stub.add("acme", "web-1");
            let provider = server.connect(&acme, stub, "acme").await;
            server.advance(1_000);
            let tags = if stub.kind() == "hetzner" { json!({"env": "test"}) } else { json!(["env:test"]) };
            stub.change(id, |machine| {
                "renamed".clone_into(&mut machine.name);
                "198.51.100.9".clone_into(&mut machine.ip);
                machine.tags = tags;
            });
            let since = server.now();
            server.sync(&acme, &provider).await;
            let changed = server.list_vms(&acme, &format!("updated_since={since}")).await;
            assert_eq!(changed.len(), 1, "{changed:#?}");
            let vm = &changed[0];
            assert_eq!((&vm["name"], &vm["tags"], &vm["version"]), (&json!("renamed"), &json!({"env": "test"}), &json!(2)));
            assert_eq!(vm["public_ips"], json!(["198.51.100.9"]));
            assert!(server.events_of(&acme, "vm.").await.is_empty());
        }
    }

    async fn a_cloud_that_asks_to_wait_is_waited_for(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.digitalocean;
        stub.add("acme", "web-1");
        stub.on(Asked::List, [stub.rate_limited(server.now().plus_ms(1_000))]);
        let began = Instant::now();
        let provider = server.connect(&acme, stub, "acme").await;
        assert!(began.elapsed() >= Duration::from_secs(1), "not before the time that it said: {:?}", began.elapsed());
        assert_eq!((stub.count(Asked::List), server.vm_names(&acme, "").await.len()), (2, 1), "the page was asked for again");
        // One that goes on refusing ends the sync, and says so.
        let refusals = vec![stub.refusal(503, "service_unavailable", "down for maintenance"); 3];
        stub.on(Asked::List, refusals);
        server.sync(&acme, &provider).await;
        let now = server.read_provider(&acme, &provider).await;
        let error = now["last_sync_error"].as_str().unwrap_or_default();
        assert!(error.contains("down for maintenance") && error.contains(stub.region()), "{now:#}");
        assert_eq!(now["status"], "active", "the credentials are good: {now:#}");
        server.cloud_work_for(10 * MINUTE_MS).await;
        let now = server.read_provider(&acme, &provider).await;
        assert_eq!(now["last_sync_error"], json!(null), "{now:#}");
    }

    async fn a_cloud_that_asks_for_a_long_wait_is_left_alone_until_then(setup: Setup) {
        let (server, clouds) = open(setup).await;
        // Of Hetzner's hour it is only some minutes: it gives a request a second.
        for (stub, wait_ms) in [(&clouds.hetzner, 5 * MINUTE_MS), (&clouds.digitalocean, 40 * MINUTE_MS)] {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.on(Asked::List, [stub.rate_limited(server.now().plus_ms(40 * MINUTE_MS))]);
            server.sync(&acme, &provider).await;
            let asked = stub.total();
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(wait_ms - MINUTE_MS).await;
            assert_eq!(stub.total(), asked, "neither by the sync nor by the order");
            let now = server.read_provider(&acme, &provider).await;
            assert!(now["last_sync_error"].is_string(), "{now:#}");
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "accepted");
            server.cloud_work_for(3 * MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "after a long wait").await;
            assert_eq!(server.read_provider(&acme, &provider).await["last_sync_error"], json!(null));
        }
    }

    async fn many_machines_that_are_gone_are_shown_soon(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (stub, acme) = (&clouds.hetzner, server.tenant("acme").await);
        let ids: Vec<u64> = (0..410).map(|nth| stub.add("acme", &format!("m-{nth}"))).collect();
        let provider = server.connect(&acme, stub, "acme").await;
        for id in ids {
            stub.remove(id);
        }
        server.sync(&acme, &provider).await;
        server.cloud_work_for(2 * MINUTE_MS).await;
        assert_eq!(server.list_vms(&acme, "state=terminated&limit=200").await.len(), 410);
        assert_eq!(stub.count(Asked::Get), 410, "each was looked for once");
        let syncs = stub.count(Asked::List);
        server.cloud_work_for(3 * MINUTE_MS).await;
        assert_eq!(stub.count(Asked::List), syncs, "then as often as ever");
    }

    async fn machines_that_lists_hide_do_not_keep_others_from_being_looked_for(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let hidden: Vec<u64> = (0..200).map(|nth| stub.add("acme", &format!("hidden-{nth}"))).collect();
        let gone = stub.add("acme", "gone");
        let provider = server.connect(&acme, stub, "acme").await;
        for id in hidden {
            stub.change(id, |machine| machine.is_hidden = true);
        }
        stub.remove(gone);
        server.sync(&acme, &provider).await;
        server.cloud_work_for(2 * MINUTE_MS).await;
        assert_eq!(server.vm_names(&acme, "state=terminated").await, ["gone"]);
        assert_eq!(server.list_vms(&acme, "state=running&limit=200").await.len(), 200);
    }

    async fn droplets_with_gpus_are_found(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        stub.add("acme", "web");
        let trainer = stub.add("acme", "trainer");
        stub.change(trainer, |machine| "gpu-h100x1-80gb".clone_into(&mut machine.size));
        let provider = server.connect(&acme, stub, "acme").await;
        assert_eq!(server.vm_names(&acme, "").await, ["trainer", "web"]);
        stub.remove(trainer);
        server.sync(&acme, &provider).await;
        assert_eq!(server.list_vms(&acme, "state=terminated").await.len(), 1);
    }

    async fn a_thousand_machines_are_found(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for number in 0..1_000 {
            clouds.hetzner.add("acme", &format!("m-{number}"));
        }
        server.connect(&acme, &clouds.hetzner, "acme").await;
        let listed = server.list_vms(&acme, "limit=200").await;
        assert_eq!(listed.len(), 1_000);
        let summary = server.get(format!("{VMS}?view=summary")).cookie(&acme.admin).await.ok(200);
        assert_eq!(summary["state"], json!([{"value": "running", "count": 1_000}]));
    }
}
