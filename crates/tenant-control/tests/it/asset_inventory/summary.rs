//! `view=summary`: figures that are right after every change.

use std::collections::BTreeMap;

use kernel::base::MINUTE_MS;
use serde_json::{Value, json};
use tenant_control::features::devices::{DeviceStatus, FullDevice, Platform, Type};

use super::{INVENTORY, NOWHERE, add, add_all, change, list, named, remove, software, text, walk, with};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::organization;

async fn summary(server: &Server, tenancy: &Tenancy, more: &str) -> Value {
    server.get(format!("{INVENTORY}?view=summary{more}")).cookie(&tenancy.admin).await.ok(200)
}

/// Counts of values, as a summary has them: most first, then by value.
fn counted<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Value {
    let mut counts: BTreeMap<Option<&str>, i64> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(value, count)| (-count, value.map(str::to_lowercase)));
    counts.iter().map(|(value, count)| json!({"value": value, "count": count})).collect()
}

/// The summary of what the list shows.
fn recount(rows: &[Value]) -> Value {
    let of = |pointer: &'static str| counted(rows.iter().map(move |row| row.pointer(pointer).unwrap().as_str()));
    let mut installed = Vec::new();
    for row in rows {
        let names = row["software"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();
        installed.extend(names.into_iter().map(Some));
    }
    let mut installed = counted(installed.into_iter());
    installed.as_array_mut().unwrap().truncate(50);
    json!({
        "total": rows.len(), "platform": of("/platform"), "os": of("/os/name"), "type": of("/type"), "status": of("/status"),
        "health": of("/health"), "organization": of("/organization_id"), "warranty": of("/warranty/status"),
        "software": installed,
    })
}

/// Values that are as frequent may come in any order where one of them is none.
fn sorted(mut summary: Value) -> Value {
    for list in summary.as_object_mut().unwrap().values_mut().filter_map(Value::as_array_mut) {
        let frequency: Vec<i64> = list.iter().map(|one| -one["count"].as_i64().unwrap()).collect();
        assert!(frequency.is_sorted(), "most first: {list:?}");
        list.sort_by_key(|one| (-one["count"].as_i64().unwrap(), one["value"].to_string()));
    }
    summary
}

/// Asserts that the figures are those of the list: of all, of each organization and of none.
async fn check(server: &Server, tenancy: &Tenancy, organizations: &[String], when: &str) {
    let (rows, _) = walk(server, tenancy, "include=software&limit=200").await;
    assert_eq!(sorted(summary(server, tenancy, "").await), sorted(recount(&rows)), "{when}");
    for organization in organizations.iter().map(String::as_str).chain(["none"]) {
        let is_own = |row: &&Value| row["organization_id"].as_str().unwrap_or("none") == organization;
        let own: Vec<Value> = rows.iter().filter(is_own).cloned().collect();
        let found = summary(server, tenancy, &format!("&organization_id={organization}")).await;
        assert_eq!(sorted(found), sorted(recount(&own)), "{when}, of {organization}");
    }
}

fn device(n: usize, organizations: &[String]) -> FullDevice {
    with(&format!("h{n}"), |full| {
        let device = &mut full.device;
        device.organization_id = organizations.get(n % 3).map(|id| id.parse().unwrap());
        device.r#type = [Type::Server, Type::Laptop, Type::Virtual][n % 3];
        device.platform = [Platform::Linux, Platform::Windows][n % 2];
        device.os.name = [Some("Debian GNU/Linux 12".to_owned()), Some("Windows 11".to_owned()), None]
            .into_iter()
            .nth((n / 2) % 3)
            .flatten();
        device.warranty.end_date =
            [None, Some("2020-01-01".to_owned()), Some("2030-01-01".to_owned())].into_iter().nth(n % 3).flatten();
        full.parts.software = (0..n % 4).map(|at| software(&format!("app-{at}"), "1")).collect();
    })
}

over_http! {
    async fn the_figures_are_right_after_every_change(server: Server) {
        let acme = server.tenant("acme").await;
        let organizations = [organization(&server, &acme, "initech").await, organization(&server, &acme, "hooli").await];
        check(&server, &acme, &organizations, "with no device").await;
        let ids = add_all(&server, &acme, (0..10).map(|n| device(n, &organizations)).collect()).await;
        check(&server, &acme, &organizations, "with some").await;
        let other = organizations[1].clone();
        change(&server, &acme, &ids[0], move |full| full.device.organization_id = Some(other.parse().unwrap())).await;
        check(&server, &acme, &organizations, "after one has moved").await;
        change(&server, &acme, &ids[1], |full| {
            full.device.organization_id = None;
            full.device.r#type = Type::Mobile;
            full.device.platform = Platform::Ios;
            full.device.os.name = Some("iOS".to_owned());
            full.device.status = DeviceStatus::Stale;
            full.device.warranty.end_date = Some("2031-01-01".to_owned());
            full.parts.software = vec![software("app-9", "1"), software("app-0", "1")];
        }).await;
        check(&server, &acme, &organizations, "after everything of one is different").await;
        let now = server.now();
        change(&server, &acme, &ids[2], move |full| {
            full.device.inventory_at = Some(now);
            full.device.patch.failed = Some(1);
            full.device.os.name = None;
            full.parts.software.clear();
        }).await;
        check(&server, &acme, &organizations, "after an inventory").await;
        for id in &ids[3..6] {
            remove(&server, &acme, id).await;
        }
        check(&server, &acme, &organizations, "after some are deleted").await;
        server.advance(MINUTE_MS);
        add_all(&server, &acme, (3..6).map(|n| device(n, &organizations)).collect()).await;
        check(&server, &acme, &organizations, "after they have come again").await;
        for id in list(&server, &acme, "limit=200").await.iter().map(|row| text(row, "id")) {
            remove(&server, &acme, id).await;
        }
        check(&server, &acme, &organizations, "after all are deleted").await;
    }

    async fn of_nobody_and_of_others_there_is_nothing(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let foreign = organization(&server, &globex, "initech").await;
        let of_theirs = foreign.clone();
        add(&server, &globex, with("theirs", move |full| full.device.organization_id = Some(of_theirs.parse().unwrap()))).await;
        add(&server, &acme, named("own")).await;
        let nothing = json!({"total": 0, "platform": [], "os": [], "type": [], "status": [], "health": [], "organization": [],
            "warranty": [], "software": []});
        for organization in [NOWHERE, &foreign] {
            assert_eq!(summary(&server, &acme, &format!("&organization_id={organization}")).await, nothing);
        }
        let own = summary(&server, &acme, "").await;
        assert_eq!(own["organization"], json!([{"value": null, "count": 1}]));
        assert_eq!((&own["total"], &own["os"]), (&json!(1), &json!([{"value": null, "count": 1}])));
        assert_eq!(summary(&server, &acme, "&organization_id=none").await, own);
    }

    async fn the_fifty_most_installed_are_told(server: Server) {
        let acme = server.tenant("acme").await;
        let devices = [60, 30, 10].map(|count| {
            with("h", |full| full.parts.software = (0..count).map(|at| software(&format!("app-{at:02}"), "1")).collect())
        });
        add_all(&server, &acme, devices.into_iter().collect()).await;
        let count = |at: usize| [3, 2, 1][usize::from(at >= 10) + usize::from(at >= 30)];
        let expected: Vec<Value> = (0..50).map(|at| json!({"value": format!("app-{at:02}"), "count": count(at)})).collect();
        assert_eq!(summary(&server, &acme, "").await["software"], json!(expected));
    }

    /// More names than are told, on few devices and on many, which all become more or fewer.
    async fn the_most_installed_are_told_whatever_they_were_before(server: Server) {
        let acme = server.tenant("acme").await;
        let app = |n: usize| software(&format!("app-{n:02}"), "1");
        // Each name is on the first so many devices.
        let installed = move |device: usize, counts: [usize; 8]| (0..88).filter(|n| device < counts[n % 8]).map(app).collect::<Vec<_>>();
        let first = [1, 2, 3, 4, 7, 15, 16, 20];
        let devices = (0..20).map(|at| with(&format!("h{at}"), |full| full.parts.software = installed(at, first)));
        let ids = add_all(&server, &acme, devices.collect()).await;
        check(&server, &acme, &[], "at first").await;
        for counts in [[2, 1, 4, 3, 16, 16, 15, 4], [3, 4, 15, 16, 4, 3, 20, 1], [0, 3, 16, 4, 15, 20, 4, 5], first] {
            for (at, id) in ids.iter().enumerate() {
                change(&server, &acme, id, move |full| full.parts.software = installed(at, counts)).await;
            }
            check(&server, &acme, &[], &format!("on {counts:?} devices")).await;
        }
        for (gone, id) in (1..).zip(ids.iter().rev()) {
            remove(&server, &acme, id).await;
            if [4, 5, 16, 17, 18].contains(&gone) {
                check(&server, &acme, &[], &format!("without {gone} of them")).await;
            }
        }
    }

    async fn software_is_counted_once_for_each_device_however_it_is_spelt(server: Server) {
        let acme = server.tenant("acme").await;
        let first = add(&server, &acme, with("a", |full| {
            full.parts.software = vec![software("OpenSSL", "3.0"), software("openssl", "1.1"), software("OPENSSL", "1.1")];
        })).await;
        let second = add(&server, &acme, with("b", |full| full.parts.software = vec![software("openssl", "3.0")])).await;
        let counted = async || {
            let found = summary(&server, &acme, "").await["software"].clone();
            let found = found.as_array().unwrap().iter().map(|one| (one["value"].as_str().unwrap().to_lowercase(), one["count"].as_i64().unwrap()));
            found.collect::<Vec<_>>()
        };
        assert_eq!(counted().await, [("openssl".to_owned(), 2)]);
        change(&server, &acme, &first, |full| full.parts.software = vec![software("openSSL", "3.0")]).await;
        assert_eq!(counted().await, [("openssl".to_owned(), 2)]);
        remove(&server, &acme, &first).await;
        assert_eq!(counted().await, [("openssl".to_owned(), 1)]);
        change(&server, &acme, &second, |full| full.parts.software.clear()).await;
        assert_eq!(counted().await, Vec::<(String, i64)>::new());
    }
}
