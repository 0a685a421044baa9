//! Software comes into its index after the device: nobody who asks notices, and what is noted does not pile up.

use serde_json::json;
use tenant_control::features::devices::software;

use crate::support::devices::{Agent, DEVICES, devices, reported};
use crate::support::{Server, over_http};

use super::id;

const NOTES: &str = "SELECT COUNT(*) FROM device_software_changes";
const INDEXED: &str = "SELECT COUNT(*) FROM device_software";
const INDEXED_BASH: &str = "SELECT COUNT(*) FROM device_software WHERE name = 'bash'";
const COUNTED: &str = "SELECT COUNT(*) FROM device_counts WHERE dimension = 'software'";
const LARGEST_NOTE: &str = "SELECT CAST(MAX(LENGTH(changes)) AS BIGINT) FROM device_software_changes";
const DIGESTS: &str = "SELECT COUNT(*) FROM device_reports WHERE digest IS NOT NULL";

async fn count(server: &Server, sql: &'static str) -> i64 {
    server.app.store.system(kernel::store::Purpose::Cli).get_one(sql, kernel::args![]).await.expect("a count")
}

async fn index(server: &Server) {
    software::store::index_tenants(&server.app).await.expect("software is indexed");
}

/// How many devices have it, by the list and by the summary.
async fn having(server: &Server, cookie: &str, name: &str) -> (usize, i64) {
    let listed = devices(server, cookie, &format!("software={name}")).await.len();
    let summary = server.get(format!("{DEVICES}?view=summary")).cookie(cookie).await.ok(200);
    let counts = summary["software"].as_array().unwrap();
    let counted = counts.iter().find(|one| one["value"] == json!(name)).map_or(0, |one| one["count"].as_i64().unwrap());
    (listed, counted)
}

over_http! {
    async fn what_is_noted_is_indexed_in_the_background(server: Server) {
        for slug in ["acme", "globex", "initech"] {
            let tenancy = server.tenant(slug).await;
            let key = server.ingest_key(&tenancy).await;
            reported(&server, &key, &Agent::named("web01").software(&[("bash", "5.2"), ("curl", "7.88")]).fusion()).await;
        }
        assert_ne!(count(&server, NOTES).await, 0);
        assert_eq!(count(&server, INDEXED).await, 0);
        index(&server).await;
        assert_eq!((count(&server, NOTES).await, count(&server, INDEXED).await), (0, 6));
        index(&server).await;
        assert_eq!(count(&server, INDEXED).await, 6);
    }

    async fn whoever_asks_sees_what_is_not_indexed_yet(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let web = |versions: &[(&str, &str)]| Agent::named("web01").software(versions);
        reported(&server, &key, &web(&[("bash", "5.2"), ("curl", "7.88")]).fusion()).await;
        assert_eq!(having(&server, &acme.admin, "curl").await, (1, 1));
        assert_eq!(count(&server, NOTES).await, 0, "who asks brings it up to date");
        // Twice, before anybody has looked at the first.
        reported(&server, &key, &web(&[("bash", "5.3")]).fusion()).await;
        reported(&server, &key, &web(&[("bash", "5.4"), ("vim", "9")]).fusion()).await;
        assert!(count(&server, NOTES).await >= 2);
        assert_eq!(having(&server, &acme.admin, "curl").await, (0, 0));
        assert_eq!(having(&server, &acme.admin, "vim").await, (1, 1));
        assert_eq!(having(&server, &acme.admin, "bash").await, (1, 1));
        for (wanted, found) in [("bash@5.2", 0), ("bash@5.3", 0), ("bash@5.4", 1)] {
            assert_eq!(devices(&server, &acme.admin, &format!("software={wanted}")).await.len(), found, "{wanted}");
        }
    }

    async fn a_reader_of_changes_is_told_by_what_a_device_has_and_not_by_what_is_indexed(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let since = server.now();
        reported(&server, &key, &Agent::named("web01").software(&[("bash", "5.2")]).fusion()).await;
        let follow = |wanted: &str| format!("updated_since={since}&software={wanted}");
        assert_eq!(devices(&server, &acme.admin, &follow("bash")).await.len(), 1);
        assert_eq!(count(&server, NOTES).await, 1, "it looks at the device itself");
        index(&server).await;
        reported(&server, &key, &Agent::named("web01").software(&[("curl", "8")]).fusion()).await;
        assert_eq!(devices(&server, &acme.admin, &follow("bash")).await.len(), 0);
        assert_eq!(devices(&server, &acme.admin, &follow("curl@8")).await.len(), 1);
        assert_ne!(count(&server, NOTES).await, 0);
    }

    async fn reports_that_bring_much_index_what_they_leave(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut most = 0;
        for n in 0..20 {
            let mut agent = Agent::named(&format!("web{n}"));
            agent.software = (0..100).map(|n| (format!("package-{n}"), "1".to_owned())).collect();
            reported(&server, &key, &agent.fusion()).await;
            most = most.max(count(&server, NOTES).await);
        }
        assert!((9..128).contains(&most), "{most}");
        assert_eq!(having(&server, &acme.admin, "package-0").await, (20, 20));
        assert_eq!(count(&server, INDEXED).await, 2_000);
    }

    async fn a_machine_that_replaces_everything_is_indexed_before_anybody_counts(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01");
        for letter in ["a", "b"] {
            agent.software = (0..2_500).map(|n| (format!("{letter}{n}"), "1".to_owned())).collect();
            reported(&server, &key, &agent.fusion()).await;
        }
        assert_eq!(having(&server, &acme.admin, "b2499").await.0, 1);
        assert_eq!((count(&server, NOTES).await, count(&server, INDEXED).await), (0, 2_500));
        assert_eq!(count(&server, COUNTED).await, 2 * 2_500, "of all devices, and of those without an organization");
    }

    async fn one_name_in_more_notes_than_are_taken_together_keeps_its_order(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        for version in 1..=40 {
            reported(&server, &key, &Agent::named("web01").software(&[("bash", &format!("5.{version}"))]).fusion()).await;
        }
        assert_eq!(count(&server, NOTES).await, 40);
        assert_eq!(having(&server, &acme.admin, "bash").await, (1, 1));
        assert_eq!(devices(&server, &acme.admin, "software=bash@5.40").await.len(), 1);
        assert_eq!(devices(&server, &acme.admin, "software=bash@5.16").await.len(), 0);
    }

    async fn what_is_noted_of_long_versions_is_small(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01");
        let version = |n: usize| format!("{n:02}{}", "1".repeat(90));
        agent.software = (0..5_000).map(|n| (format!("package-{}", n % 100), version(n / 100))).collect();
        reported(&server, &key, &agent.fusion()).await;
        assert!((8..80_000).contains(&count(&server, LARGEST_NOTE).await));
        assert_eq!(having(&server, &acme.admin, "package-7").await.0, 1);
        assert_eq!(devices(&server, &acme.admin, &format!("software=package-7@{}", version(49))).await.len(), 1);
    }

    async fn whoever_asks_does_not_wait_for_what_is_reported_meanwhile(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let db = kernel::jobs::lanes::tenant_db(&server.app.store, acme.tenant.id);
        let report = async |name: &str| reported(&server, &key, &Agent::named(name).software(&[("bash", "5.2")]).fusion()).await;
        report("web01").await;
        let until = db.last_tick().await.expect("a tick").sequence;
        report("web02").await;
        software::store::index_until(&db, until).await.expect("the first is indexed");
        assert_eq!((count(&server, NOTES).await, count(&server, INDEXED).await), (1, 1));
        index(&server).await;
        assert_eq!((count(&server, NOTES).await, count(&server, INDEXED).await), (0, 2));
    }

    /// One tenant with much to be done has its part of each round, and no more.
    async fn nobody_waits_until_all_of_another_tenant_is_indexed(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let (key, other) = (server.ingest_key(&acme).await, server.ingest_key(&globex).await);
        for name in ["web01", "web02", "web03"] {
            let mut agent = Agent::named(name);
            agent.software = (0..9_000).map(|n| (format!("package-{n}"), "1".to_owned())).collect();
            reported(&server, &key, &agent.fusion()).await;
        }
        reported(&server, &other, &Agent::named("web01").software(&[("bash", "5.2")]).fusion()).await;
        index(&server).await;
        assert_ne!(count(&server, NOTES).await, 0, "the first has more than one round brings in");
        assert_eq!(count(&server, INDEXED_BASH).await, 1);
    }

    async fn a_deleted_device_has_nothing_installed_any_more(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &Agent::named("web01").software(&[("bash", "5.2")]).fusion()).await;
        let device = devices(&server, &acme.admin, "").await.remove(0);
        server.delete_device(&acme, id(&device)).await;
        assert_eq!(having(&server, &acme.admin, "bash").await, (0, 0));
        index(&server).await;
        assert_eq!((count(&server, NOTES).await, count(&server, INDEXED).await), (0, 0));
    }

    async fn what_changes_nothing_leaves_the_last_inventory_known(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01").software(&[("bash", "5.2")]);
        reported(&server, &key, &agent.glpi()).await;
        assert_eq!(count(&server, DIGESTS).await, 1);
        reported(&server, &key, &agent.partial(&["softwares"])).await;
        assert_eq!(count(&server, DIGESTS).await, 1, "nothing is different");
        let device = devices(&server, &acme.admin, "").await.remove(0);
        server.edit_device(&acme, id(&device), |_| ()).await;
        assert_eq!(count(&server, DIGESTS).await, 1, "nor here");
        reported(&server, &key, &agent.software(&[("bash", "5.3")]).partial(&["softwares"])).await;
        assert_eq!(count(&server, DIGESTS).await, 0, "the last whole inventory is not what the device is");
    }
}
