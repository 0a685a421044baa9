//! Two devices that become one, while their agents go on to report.

use kernel::auth::open_as_operator;
use serde_json::{Value, json};
use tenant_control::features::inventory::merge::store::merge_duplicate;

use crate::support::devices::{Agent, FUSION, device, devices, only_device, read_device, reported};
use crate::support::{Server, Tenancy, over_http};

use super::counters::compare;
use super::scans::message;
use super::{all, id};

/// Makes one of two devices, as an operator does.
async fn merge_devices(server: &Server, tenancy: &Tenancy, keep: &Value, duplicate: &Value) {
    let db = open_as_operator(&server.app.store, &tenancy.tenant);
    let merged = merge_duplicate(&db, id(keep).parse().unwrap(), id(duplicate).parse().unwrap()).await;
    merged.expect("one of both");
}

/// What the last change in the history of a device was of.
fn last_changed(device: &Value) -> Vec<&str> {
    let last = device["history"].as_array().unwrap().last().unwrap();
    last["changes"].as_object().unwrap().keys().map(String::as_str).collect()
}

over_http! {
    async fn whatever_reported_either_of_two_reports_the_one_that_stays(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let one = Agent::named("web01");
        let two = Agent::named("web01-new").software(&[("bash", "5.3"), ("nginx", "1.27")]);
        reported(&server, &key, &one.fusion()).await;
        server.advance(60_000);
        reported(&server, &key, &two.glpi()).await;
        let found = all(&server, &acme).await;
        let [keep, duplicate] = found.as_slice() else { panic!("two devices: {found:#?}") };
        compare(&server, &acme, &[]).await;

        merge_devices(&server, &acme, keep, duplicate).await;
        let kept = only_device(&server, &acme.admin).await;
        assert_eq!((&kept["id"], &kept["hostname"]), (&keep["id"], &json!("web01-new")), "the later report is right");
        compare(&server, &acme, &[]).await;
        read_device(&server, &acme.admin, id(duplicate)).await.problem("not_found");
        let changes = devices(&server, &acme.admin, "updated_since=2026-01-01T00:00:00Z").await;
        let gone = changes.iter().find(|change| change["id"] == duplicate["id"]).expect("a tombstone");
        assert!(gone["deleted_at"].is_string(), "{gone:#}");

        // The very same inventories as before are read, for the device is what neither of them said.
        for (body, hostname) in [
            (one.fusion(), "web01"),
            (one.fusion(), "web01"),
            (two.glpi(), "web01-new"),
            (two.contact(), "web01-new"),
            (one.prolog(FUSION), "web01-new"),
        ] {
            server.advance(60_000);
            reported(&server, &key, &body).await;
            let device = only_device(&server, &acme.admin).await;
            assert_eq!((&device["id"], &device["hostname"]), (&keep["id"], &json!(hostname)));
            assert_eq!(device["last_seen_at"], json!(server.now()));
            compare(&server, &acme, &[]).await;
        }
    }

    async fn what_was_seen_at_two_addresses_stays_one_device(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let seen = |mac: &str| message("NETDISCOVERY", &format!("<DEVICE><MAC>{mac}</MAC><TYPE>NETWORKING</TYPE></DEVICE>"));
        let (one, two) = (seen("00:25:90:00:12:01"), seen("00:25:90:00:12:02"));
        for body in [&one, &two] {
            reported(&server, &key, body).await;
        }
        let found = all(&server, &acme).await;
        let [keep, duplicate] = found.as_slice() else { panic!("two devices: {found:#?}") };
        merge_devices(&server, &acme, keep, duplicate).await;
        for body in [&one, &one, &two, &two, &one] {
            server.advance(60_000);
            reported(&server, &key, body).await;
            let device = only_device(&server, &acme.admin).await;
            assert_eq!((&device["id"], &device["last_seen_at"]), (&keep["id"], &json!(server.now())));
        }
    }

    async fn lists_that_only_one_of_two_has_stay(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let whole = Agent::named("web01");
        let mut bare = Agent { software: Vec::new(), disks: Vec::new(), ..Agent::named("web01-new") };
        reported(&server, &key, &whole.fusion()).await;
        server.advance(60_000);
        reported(&server, &key, &bare.fusion()).await;
        let found = all(&server, &acme).await;
        let before = device(&server, &acme.admin, id(&found[0])).await;
        let later = device(&server, &acme.admin, id(&found[1])).await;
        assert_eq!((&later["software"], &later["disks"]), (&json!([]), &json!([])));

        merge_devices(&server, &acme, &found[0], &found[1]).await;
        let after = only_device(&server, &acme.admin).await;
        assert_eq!((&after["software"], &after["disks"]), (&before["software"], &before["disks"]));
        assert_eq!((&after["volumes"], &after["nics"]), (&later["volumes"], &later["nics"]));
        assert_eq!(last_changed(&after), ["hostname", "nics", "primary_mac"]);
        compare(&server, &acme, &[]).await;

        // A whole report of the same agent replaces every section.
        bare.memory_mib = 1;
        reported(&server, &key, &bare.fusion()).await;
        let last = only_device(&server, &acme.admin).await;
        assert_eq!((&last["memory_bytes"], &last["software"]), (&json!(1 << 20), &json!([])));
    }

    async fn a_device_of_which_only_parts_came_takes_nothing_from_another(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let stray = Agent::named("stray");
        reported(&server, &key, &Agent::named("web01").glpi()).await;
        for _ in 0..2 {
            server.advance(60_000);
            reported(&server, &key, &stray.partial(&["drives"])).await;
        }
        let found = all(&server, &acme).await;
        let before = device(&server, &acme.admin, id(&found[0])).await;

        merge_devices(&server, &acme, &found[0], &found[1]).await;
        let after = only_device(&server, &acme.admin).await;
        for field in ["type", "health", "hostname", "software", "disks", "nics", "inventory_at"] {
            assert_eq!(after[field], before[field], "{field}");
        }
        assert_eq!(after["last_seen_at"], json!(server.now()), "the later of both");
        reported(&server, &key, &stray.partial(&["drives"])).await;
        assert_eq!(only_device(&server, &acme.admin).await["id"], before["id"], "it is known by both names");
        compare(&server, &acme, &[]).await;
    }
}
