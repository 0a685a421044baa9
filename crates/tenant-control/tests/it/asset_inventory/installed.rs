//! `software` right after a change, of which the index does not know yet, and where a device has very much of it.

use kernel::args;
use serde_json::{Value, json};

use super::{INVENTORY, add, change, database, list, named, names, one, remove, software, text, walk, with};
use crate::support::devices::{Agent, reported};
use crate::support::{Server, Tenancy, over_http};

const LONG_AGO: &str = "updated_since=2000-01-01T00:00:00Z";

/// Changes that the index does not know yet.
async fn waiting(server: &Server, tenancy: &Tenancy) -> i64 {
    let sql = "SELECT COUNT(*) FROM device_software_changes WHERE tenant_id = $1";
    database(server, tenancy).get_one(sql, args![]).await.expect("a count")
}

/// Asserts who has each of these, in the order of changes, which does not wait for the index.
async fn follow(server: &Server, tenancy: &Tenancy, wanted: &[(&str, &[&str])]) {
    let before = waiting(server, tenancy).await;
    assert!(before > 0, "the index knows everything");
    for (software, wanted) in wanted {
        assert_eq!(names(server, tenancy, &format!("{LONG_AGO}&software={software}")).await, *wanted, "{software}");
    }
    assert_eq!(waiting(server, tenancy).await, before, "nobody has asked the index");
}

async fn counted(server: &Server, tenancy: &Tenancy) -> Value {
    server.get(format!("{INVENTORY}?view=summary")).cookie(&tenancy.admin).await.ok(200)["software"].clone()
}

over_http! {
    async fn what_a_report_says_of_software_holds_at_once(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let report = async |name: &str, software: &[(&str, &str)]| {
            reported(&server, &key, &Agent::named(name).software(software).fusion()).await;
        };
        report("web01", &[("bash", "5.1"), ("git", "2")]).await;
        report("db01", &[("bash", "5.1")]).await;
        follow(&server, &acme, &[("bash", &["web01", "db01"]), ("bash@5.1,git", &["web01", "db01"]), ("git", &["web01"]), ("vim", &[])]).await;
        report("web01", &[("bash", "5.2"), ("vim", "9")]).await;
        follow(&server, &acme, &[
            ("bash", &["db01", "web01"]), ("bash@5.1", &["db01"]), ("bash@5.2", &["web01"]), ("git", &[]), ("vim@9,git", &["web01"]),
        ]).await;
        // The first who asks for figures finds them right, and so does who asks for a list.
        assert_eq!(counted(&server, &acme).await, json!([{"value": "bash", "count": 2}, {"value": "vim", "count": 1}]));
        assert_eq!(waiting(&server, &acme).await, 0);
        report("web01", &[("bash", "5.3")]).await;
        report("db01", &[("bash", "5.1"), ("git", "3")]).await;
        follow(&server, &acme, &[("vim", &[]), ("bash@5.3", &["web01"]), ("bash", &["web01", "db01"]), ("git@3", &["db01"])]).await;
        assert_eq!(names(&server, &acme, "software=vim").await, Vec::<String>::new());
        assert_eq!(waiting(&server, &acme).await, 0);
        for (software, wanted) in [("bash", &["db01", "web01"][..]), ("bash@5.3", &["web01"]), ("bash@5.2", &[]), ("git", &["db01"])] {
            assert_eq!(names(&server, &acme, &format!("software={software}")).await, wanted, "{software}");
        }
        // Only one of the two is known again, and the other is gone.
        report("db01", &[("git", "3")]).await;
        let gone = list(&server, &acme, "q=web01").await.remove(0);
        remove(&server, &acme, text(&gone, "id")).await;
        follow(&server, &acme, &[("git", &["db01", "web01"]), ("bash", &["web01"])]).await;
        assert_eq!(counted(&server, &acme).await, json!([{"value": "git", "count": 1}]));
        assert_eq!(names(&server, &acme, "software=bash,git").await, ["db01"]);
    }

    async fn the_last_of_ten_thousand_packages_is_found(server: Server) {
        let acme = server.tenant("acme").await;
        let package = |n: usize| software(&format!("package-{n:05}"), "1");
        let id = add(&server, &acme, with("full", |full| full.parts.software = (0..10_000).map(package).collect())).await;
        add(&server, &acme, named("empty")).await;
        follow(&server, &acme, &[("package-09999", &["full"]), ("package-09999@1,nothing", &["full"]), ("package-09999@2", &[])]).await;
        for (software, wanted) in [("package-09999", &["full"][..]), ("package-09999@1", &["full"]), ("package-00000", &["full"]), ("package-10000", &[])] {
            assert_eq!(names(&server, &acme, &format!("software={software}")).await, wanted, "{software}");
        }
        assert_eq!(waiting(&server, &acme).await, 0);
        change(&server, &acme, &id, |full| {
            full.parts.software.pop();
            full.parts.software[9_998].version = Some("2".to_owned());
        }).await;
        follow(&server, &acme, &[("package-09999", &[]), ("package-09998@1", &[]), ("package-09998@2", &["full"])]).await;
        assert_eq!(names(&server, &acme, "software=package-09999").await, Vec::<String>::new());
        assert_eq!(names(&server, &acme, "software=package-09998@2").await, ["full"]);
        assert_eq!(counted(&server, &acme).await.as_array().unwrap().len(), 50);
        let shown = server.get(format!("{}&include=software", one(&id))).cookie(&acme.admin).await.ok(200);
        assert_eq!((shown["software"].as_array().unwrap().len(), &shown["software"][9_998]["version"]), (9_999, &json!("2")));
        let (rows, _) = walk(&server, &acme, "include=software").await;
        assert_eq!(rows.iter().map(|row| row["software"].as_array().unwrap().len()).collect::<Vec<_>>(), [0, 9_999]);
    }
}
