//! DELETE: its machines leave the list, and nothing in the cloud is touched.

use kernel::base::HOUR_MS;
use kernel::store::Purpose;

use super::*;
use crate::support::clouds::{one_vm, operation_status, order_body};

over_http! {
    async fn machines_that_it_has_made_are_named_and_force_lets_them_go(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            stub.add("acme", "made-elsewhere");
            let provider = server.connect(&acme, stub, "acme").await;
            let order = with(&order_body(stub, &provider), &json!({"name": "batch", "count": 3}));
            let made = server.post_order(&acme, &order).await.ok(202)["data"].clone();
            server.cloud_work_for(60_000).await;
            let refused = server.delete(one_provider(&provider)).cookie(&acme.admin).await;
            let detail = refused.problem("conflict")["detail"].as_str().unwrap().to_owned();
            for name in ["batch-1", "batch-2", "batch-3"] {
                assert!(detail.contains(name), "{detail}");
            }
            assert!(!detail.contains("made-elsewhere"), "{detail}");
            server.delete(format!("{}&force=false", one_provider(&provider))).cookie(&acme.admin).await.problem("conflict");
            assert_eq!(server.read_provider(&acme, &provider).await["version"], 1);
            server.advance(1_000);
            let (since, asked) = (server.now(), stub.total());
            server.delete(format!("{}&force=true", one_provider(&provider))).cookie(&acme.admin).await.is(204);
            server.get(one_provider(&provider)).cookie(&acme.admin).await.problem("not_found");
            assert_eq!(server.list_vms(&acme, "").await, Vec::<Value>::new());
            server.get(one_vm(&made[0])).cookie(&acme.admin).await.problem("not_found");
            let tombstones = server.list_vms(&acme, &format!("updated_since={since}")).await;
            assert_eq!(tombstones.len(), 4, "{tombstones:#?}");
            assert!(tombstones.iter().all(|vm| vm["deleted_at"] == since.to_string()), "{tombstones:#?}");
            server.cloud_work_for(10 * HOUR_MS).await;
            assert_eq!((stub.machines().len(), stub.total()), (4, asked), "nothing in the cloud is touched");
        }
    }

    async fn machines_that_others_have_made_do_not_hinder_it(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        stub.add("acme", "made-elsewhere");
        let provider = server.connect(&acme, stub, "acme").await;
        // One that was made here and is gone, and one that failed.
        let gone = server.order(&acme, stub, &provider).await;
        server.cloud_work_for(4 * 60_000).await;
        stub.on(Asked::Create, [stub.refusal(403, "resource_limit_exceeded", "server limit reached")]);
        let failed = server.post_order(&acme, &with(&order_body(stub, &provider), &json!({"name": "web-2"}))).await.ok(202);
        server.cloud_work().await;
        assert_eq!(operation_status(&server.read_vm(&acme, &failed).await), "failed");
        stub.remove(server.read_vm(&acme, &gone).await["external_id"].as_str().unwrap().parse().unwrap());
        server.sync(&acme, &provider).await;
        assert_eq!(server.read_vm(&acme, &gone).await["state"], "terminated");
        server.delete(one_provider(&provider)).cookie(&acme.admin).await.is(204);
        let trail = trail(&server, &acme, &provider).await;
        assert!(trail.iter().any(|entry| entry["action"] == "cloud_provider.delete"), "{trail:#?}");
    }

    async fn an_open_order_ends_with_its_provider(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let provider = server.connect(&acme, stub, "acme").await;
            let vm = server.order(&acme, stub, &provider).await;
            server.delete(one_provider(&provider)).cookie(&acme.admin).await.problem("conflict");
            server.delete(format!("{}&force=true", one_provider(&provider))).cookie(&acme.admin).await.is(204);
            server.cloud_work_for(HOUR_MS).await;
            assert_eq!(stub.count(Asked::Create), 0, "it was not asked for yet");
            let changes = server.list_vms(&acme, "updated_since=2000-01-01T00:00:00Z").await;
            let ended = changes.iter().find(|change| change["id"] == vm["id"]).expect("a tombstone");
            assert_eq!(operation_status(ended), "failed", "{ended:#}");
            let events = server.events_of(&acme, "vm.failed").await;
            let told: Vec<&Value> = events.iter().map(|event| &event["data"]).filter(|data| data["id"] == vm["id"]).collect();
            assert_eq!(told, [ended], "the order is reported as failed, once");
        }
    }

    async fn its_credentials_are_erased(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let (made, _) = make(&server, &acme, &clouds.hetzner).await;
        let read = "SELECT id, credentials FROM cloud_providers ORDER BY id LIMIT 10";
        let stored = async || -> Vec<(String, Vec<u8>)> {
            server.app.store.system(Purpose::Cli).list(read, kernel::args![]).await.expect("the rows")
        };
        assert!(!stored().await[0].1.is_empty());
        server.delete(one_provider(&made)).cookie(&acme.admin).await.is(204);
        assert_eq!(stored().await, [(id_of(&made).to_owned(), Vec::new())]);
    }
}
