//! A key that runs wild: how many devices a tenant can have, and how they are taken back.

use kernel::auth::open_as_operator;
use tenant_control::features::devices::DeviceSettings;
use tenant_control::features::inventory::store::delete_devices_of_key;

use crate::support::devices::{Agent, IngestKey, report, reported};
use crate::support::{Server, Tenancy, over_http};

use super::imports::import_csv;
use super::{all, each, id};

async fn delete_of(server: &Server, tenancy: &Tenancy, key: &IngestKey) -> u64 {
    let db = open_as_operator(&server.app.store, &tenancy.tenant);
    delete_devices_of_key(&db, key.id.parse().unwrap()).await.expect("they are deleted")
}

over_http! {
    async fn a_new_device_beyond_the_limit_is_refused(setup: Setup) {
        let mut setup = setup;
        setup.settings.set_feature_settings(DeviceSettings { devices_max: 2, ..DeviceSettings::default() });
        let server = setup.start().await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let (key, theirs) = (server.ingest_key(&acme).await, server.ingest_key(&globex).await);
        for name in ["one", "two"] {
            reported(&server, &key, &Agent::named(name).fusion()).await;
        }
        let refused = report(&server, &key, &Agent::named("three").glpi()).await;
        assert_eq!(refused.status, 409);
        assert!(String::from_utf8_lossy(&refused.body).contains("--devices-max"));
        // Those that are there go on reporting, and so do others'.
        reported(&server, &key, &Agent { memory_mib: 1, ..Agent::named("two") }.fusion()).await;
        reported(&server, &theirs, &Agent::named("three").fusion()).await;
        assert_eq!(each(&all(&server, &acme).await, "memory_bytes")[1], 1 << 20);
        server.delete_device(&acme, id(&all(&server, &acme).await[0])).await;
        reported(&server, &key, &Agent::named("three").fusion()).await;
        assert_eq!(each(&all(&server, &acme).await, "hostname"), ["two", "three"]);
    }

    async fn what_one_key_made_and_no_other_reported_is_deleted(server: Server) {
        let acme = server.tenant("acme").await;
        let (wild, good) = (server.ingest_key(&acme).await, server.ingest_key(&acme).await);
        import_csv(&server, &acme, "hostname\nimported\n").await;
        for n in 0..25 {
            reported(&server, &wild, &Agent::named(&format!("wild-{n}")).fusion()).await;
        }
        for name in ["imported", "wild-1", "wild-2"] {
            // One with news, one without.
            let agent = Agent { memory_mib: if name == "wild-1" { 1 } else { 16_384 }, ..Agent::named(name) };
            reported(&server, if name == "imported" { &wild } else { &good }, &agent.fusion()).await;
        }
        reported(&server, &good, &Agent::named("good").fusion()).await;
        assert_eq!(delete_of(&server, &acme, &wild).await, 23);
        assert_eq!(each(&all(&server, &acme).await, "hostname"), ["imported", "wild-1", "wild-2", "good"]);
        assert_eq!(delete_of(&server, &acme, &wild).await, 0);
    }
}
