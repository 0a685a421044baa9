//! A machine is gone after a complete sweep and a look that confirms it, and not before.

use super::*;

/// A provider with machines `a`, `b` and `c`, two on a page, and their ids in the cloud.
async fn three(server: &Server, tenancy: &Tenancy, stub: &CloudStub) -> (Value, [u64; 3]) {
    let ids = ["a", "b", "c"].map(|name| stub.add(tenancy.tenant.slug.as_str(), name));
    stub.set_page_max(2);
    (server.connect(tenancy, stub, &tenancy.tenant.slug).await, ids)
}

async fn states(server: &Server, tenancy: &Tenancy) -> Vec<(String, String)> {
    let mut states: Vec<(String, String)> = server
        .list_vms(tenancy, "")
        .await
        .iter()
        .map(|vm| (vm["name"].as_str().unwrap().to_owned(), vm["state"].as_str().unwrap().to_owned()))
        .collect();
    states.sort_unstable();
    states
}

fn all(states: [&str; 3]) -> Vec<(String, String)> {
    ["a", "b", "c"].iter().zip(states).map(|(name, state)| ((*name).to_owned(), state.to_owned())).collect()
}

over_http! {
    async fn a_machine_that_the_cloud_does_not_know_any_more_is_terminated(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (provider, [_, b, _]) = three(&server, &acme, stub).await;
            stub.remove(b);
            server.sync(&acme, &provider).await;
            assert_eq!(states(&server, &acme).await, all(["running", "terminated", "running"]));
            assert_eq!(stub.calls(Asked::Get).len(), 1, "it was looked at once more");
            let gone = server.list_vms(&acme, "state=terminated").await.remove(0);
            assert_eq!((&gone["public_ips"], &gone["version"]), (&json!([]), &json!(2)));
            let events = server.events_of(&acme, "vm.").await;
            assert_eq!((events.len(), &events[0]["type"]), (1, &json!("vm.state_changed")), "{events:#?}");
            assert_eq!((&events[0]["data"]["id"], &events[0]["data"]["state"]), (&gone["id"], &json!("terminated")));
            server.sync(&acme, &provider).await;
            assert_eq!((server.read_vm(&acme, &gone).await, stub.count(Asked::Get)), (gone, 1), "it is left alone");
        }
    }

    async fn a_machine_that_a_list_hides_and_the_cloud_knows_stays(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (provider, [_, b, _]) = three(&server, &acme, stub).await;
            stub.change(b, |machine| machine.is_hidden = true);
            for looks in 1..=3 {
                server.sync(&acme, &provider).await;
                assert_eq!(states(&server, &acme).await, all(["running"; 3]));
                assert_eq!(stub.count(Asked::Get), looks);
            }
            assert!(server.events_of(&acme, "vm.").await.is_empty());
            assert_eq!(server.read_provider(&acme, &provider).await["last_sync_error"], json!(null));
        }
    }

    async fn a_hidden_machine_in_a_state_without_a_counterpart_is_unknown_and_not_gone(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (provider, [_, b, _]) = three(&server, &acme, stub).await;
            stub.change(b, |machine| (machine.is_hidden, machine.state) = (true, "a-new-word".to_owned()));
            for looks in 1..=2 {
                server.sync(&acme, &provider).await;
                assert_eq!(states(&server, &acme).await, all(["running", "unknown", "running"]));
                assert_eq!(stub.count(Asked::Get), looks);
            }
        }
    }

    async fn a_sweep_that_fails_half_way_takes_nothing_for_gone(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            for (nth, fault) in [Fault::LostAnswer, Fault::Truncated, stub.refusal(500, "server_error", "oops"), stub.refusal(404, "not_found", "no such path")]
                .into_iter()
                .enumerate()
            {
                let acme = server.tenant(&format!("{}-{nth}", stub.kind())).await;
                let (provider, [a, _, c]) = three(&server, &acme, stub).await;
                server.advance(1_000);
                stub.remove(a);
                stub.remove(c);
                stub.on(Asked::List, [Fault::None, fault]);
                // Of what is left, one is on a page: the second page is asked for because of another.
                stub.add(&acme.tenant.slug, "d");
                stub.add(&acme.tenant.slug, "e");
                server.sync(&acme, &provider).await;
                let known = states(&server, &acme).await;
                assert!(known.iter().all(|(_, state)| state == "running"), "{known:?}");
                let now = server.read_provider(&acme, &provider).await;
                assert!(now["last_sync_error"].is_string(), "{now:#}");
                assert_eq!(now["last_sync_at"], provider["last_sync_at"], "{now:#}");
                assert_eq!(stub.count(Asked::Get), 2 * nth, "nobody is looked for before the sweep is complete");
                server.cloud_work_for(2 * MINUTE_MS).await;
                let known = states(&server, &acme).await;
                let ended: Vec<&str> = known.iter().filter(|(_, state)| state == "terminated").map(|(name, _)| name.as_str()).collect();
                assert_eq!((ended, known.len()), (vec!["a", "c"], 5));
            }
        }
    }

    async fn a_look_that_fails_confirms_nothing(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (provider, [_, b, _]) = three(&server, &acme, stub).await;
            stub.remove(b);
            for fault in [Fault::LostAnswer, stub.refusal(500, "server_error", "oops"), stub.refusal(403, "forbidden", "no"), stub.rate_limited(server.now())] {
                stub.on(Asked::Get, [fault]);
                server.sync(&acme, &provider).await;
                assert_eq!(states(&server, &acme).await, all(["running"; 3]));
            }
            server.sync(&acme, &provider).await;
            assert_eq!(states(&server, &acme).await, all(["running", "terminated", "running"]));
        }
    }

    async fn a_list_without_a_list_in_it_is_no_empty_list(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (provider, _) = three(&server, &acme, stub).await;
            for body in [json!({}), json!({"servers": null, "droplets": null}), json!([]), json!({"servers": [], "droplets": []})] {
                let Fault::Refused(mut answer) = stub.refusal(200, "", "") else { unreachable!() };
                answer.body = body;
                stub.on(Asked::List, [Fault::Refused(answer)]);
                server.sync(&acme, &provider).await;
                assert_eq!(states(&server, &acme).await, all(["running"; 3]));
                assert!(server.read_provider(&acme, &provider).await["last_sync_error"].is_string());
            }
        }
    }

    async fn a_machine_that_comes_back_is_the_same(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.digitalocean;
        let (provider, [_, b, _]) = three(&server, &acme, stub).await;
        let before = server.list_vms(&acme, "q=b").await.remove(0);
        let [machine] = <[_; 1]>::try_from(stub.machines().into_iter().filter(|machine| machine.id == b).collect::<Vec<_>>()).unwrap();
        stub.change(b, |machine| "somebody-else".clone_into(&mut machine.account));
        server.sync(&acme, &provider).await;
        assert_eq!(server.read_vm(&acme, &before).await["state"], "terminated");
        stub.change(b, |changed| *changed = machine);
        server.sync(&acme, &provider).await;
        assert_eq!(server.read_vm(&acme, &before).await["state"], "running");
        assert_eq!(states(&server, &acme).await, all(["running"; 3]));
    }
}
