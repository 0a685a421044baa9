//! A server that holds outgoing traffic asks no cloud by itself; what is held goes on after a start without it.

use kernel::base::HOUR_MS;

use super::*;
use crate::support::workflows::{manual, step, summary};

over_http! {
    async fn nothing_is_verified_synced_or_made_until_a_start_without_it(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.hold = true;
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let mut orders = Vec::new();
        for stub in clouds.both() {
            stub.add("acme", "made-elsewhere");
            let token = stub.token("acme", Rights::All);
            let provider = server.post(PROVIDERS).cookie(&acme.admin).json(&provider_body(stub, &token)).await.ok(201);
            orders.push((stub, server.order(&acme, stub, &provider).await, provider));
        }
        let (_, _, provider) = &orders[0];
        let definition = manual([step("verify", "provider.verify", json!({"provider_id": provider["id"]}))]);
        let run = server.run(&acme, &definition).await;
        server.cloud_work().await;
        server.advance(20 * HOUR_MS);
        server.cloud_work().await;
        server.work_for(HOUR_MS).await;
        for (stub, vm, provider) in &orders {
            assert_eq!(stub.total(), 0, "nothing was asked of {}", stub.kind());
            assert_eq!(server.read_provider(&acme, provider).await["status"], "unverified");
            assert_eq!(operation_status(&server.read_vm(&acme, vm).await), "accepted");
        }
        let held = summary(&server.read_run(&acme, &run).await);
        assert!(!held.contains("succeeded") && !held.contains("failed"), "the step waits: {held}");
        let sending = server.sending_node().await;
        sending.cloud_work_for(MINUTE_MS).await;
        sending.work_for(MINUTE_MS).await;
        for (stub, vm, provider) in &orders {
            assert_eq!(server.read_provider(&acme, provider).await["status"], "active");
            let now = server.read_vm(&acme, vm).await;
            assert_eq!((operation_status(&now), stub.machines().len()), ("succeeded", 2), "{now:#}");
        }
        assert_eq!(summary(&server.read_run(&acme, &run).await), "succeeded: verify succeeded");
    }
}
