//! Software comes into its index after the device: nobody who asks notices, and what is noted does not pile up.

use serde_json::json;
use tenant_control::features::devices::software;

use crate::support::devices::{Agent, DEVICES, devices, reported};
use crate::support::{Server, over_http};

use super::id;

const NOTES: &str = "SELECT COUNT(*) FROM device_software_changes";
const INDEXED: &str = "SELECT COUNT(*) FROM device_software";
const DIGESTS: &str = "SELECT COUNT(*) FROM device_reports WHERE digest IS NOT NULL";

async fn count(server: &Server, sql: &'static str) -> i64 {
    server.app.store.system(kernel::store::Purpose::Cli).one(sql, kernel::args![]).await.expect("a count")
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
            agent.software = (0..5_000).map(|n| (format!("{letter}{n}"), "1".to_owned())).collect();
            reported(&server, &key, &agent.fusion()).await;
            assert!(count(&server, NOTES).await < 128);
        }
        assert_eq!(having(&server, &acme.admin, "b4999").await.0, 1);
        assert_eq!((count(&server, NOTES).await, count(&server, INDEXED).await), (0, 5_000));
        assert_eq!(having(&server, &acme.admin, "a4999").await.0, 0);
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
