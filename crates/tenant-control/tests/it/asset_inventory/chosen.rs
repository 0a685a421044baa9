//! `fields` and `include`: what is shown of each device.

use std::collections::BTreeSet;

use kernel::base::Timestamp;
use serde_json::{Value, json};
use tenant_control::features::devices::{Disk, FullDevice, Nic, Port, Software, Supply, Volume};

use super::{INVENTORY, add, add_all, list, named, one, software, text, walk, with};
use crate::support::{Server, Tenancy, over_http};

/// The fields of a device as the contract names them, but for the lists.
pub const FIELDS: &str = "id hostname display_name type platform os status health organization_id manufacturer model \
    serial_number asset_tag uuid cpu memory_bytes firmware page_count primary_ip primary_mac last_logged_user last_boot_at \
    needs_reboot patch warranty agent tags custom_fields possible_duplicate_of first_seen_at last_seen_at inventory_at deleted_at version \
    created_at updated_at";

pub const LISTS: [&str; 6] = ["software", "disks", "volumes", "nics", "ports", "supplies"];

/// With everything a device can have.
pub fn full(hostname: &str) -> FullDevice {
    with(hostname, |full| {
        let some = |text: &str| Some(text.to_owned());
        full.parts.disks = vec![
            Disk {
                name: some("sda"),
                model: some("Samsung"),
                serial: some("S1"),
                size_bytes: Some(1_000_204_886_016),
                interface: some("sata"),
            },
            Disk { name: None, model: None, serial: None, size_bytes: None, interface: None },
        ];
        full.parts.volumes = vec![Volume {
            mount: some("/"),
            device: some("/dev/sda1"),
            filesystem: some("ext4"),
            total_bytes: Some(100),
            free_bytes: Some(60),
            encrypted: Some(true),
        }];
        full.parts.nics = vec![Nic {
            name: some("eth0"),
            mac: some("02:fc:00:00:00:01"),
            r#type: some("ethernet"),
            status: some("up"),
            ips: vec!["192.0.2.10".to_owned(), "2001:db8::1".to_owned()],
        }];
        full.parts.software = vec![Software {
            name: "openssl".to_owned(),
            version: some("3.0.11"),
            publisher: some("Debian, \"the\" team"),
            arch: some("amd64"),
            source: some("deb"),
            installed_at: Timestamp::parse("2026-01-02T03:04:05Z"),
        }];
        full.parts.ports = vec![
            Port {
                name: some("Gi1/0/1"),
                mac: some("02:fc:00:00:00:11"),
                status: some("up"),
                speed_bps: Some(10_000_000_000),
                vlan: Some(20),
            },
            Port { name: None, mac: None, status: None, speed_bps: None, vlan: None },
        ];
        full.parts.supplies = vec![
            Supply { name: "tonerblack".to_owned(), level_percent: Some(71) },
            Supply { name: "wastetoner".to_owned(), level_percent: None },
        ];
    })
}

/// What [`full`] has in its lists, as it is to be shown.
pub fn lists() -> Value {
    json!({
        "disks": [
            {"name": "sda", "model": "Samsung", "serial": "S1", "size_bytes": 1_000_204_886_016_i64, "interface": "sata"},
            {"name": null, "model": null, "serial": null, "size_bytes": null, "interface": null}
        ],
        "volumes": [{"mount": "/", "device": "/dev/sda1", "filesystem": "ext4", "total_bytes": 100, "free_bytes": 60, "encrypted": true}],
        "nics": [{"name": "eth0", "mac": "02:fc:00:00:00:01", "type": "ethernet", "status": "up", "ips": ["192.0.2.10", "2001:db8::1"]}],
        "software": [{
            "name": "openssl", "version": "3.0.11", "publisher": "Debian, \"the\" team", "arch": "amd64", "source": "deb",
            "installed_at": "2026-01-02T03:04:05.000Z"
        }],
        "ports": [
            {"name": "Gi1/0/1", "mac": "02:fc:00:00:00:11", "status": "up", "speed_bps": 10_000_000_000_i64, "vlan": 20},
            {"name": null, "mac": null, "status": null, "speed_bps": null, "vlan": null}
        ],
        "supplies": [{"name": "tonerblack", "level_percent": 71}, {"name": "wastetoner", "level_percent": null}],
    })
}

fn keys(row: &Value) -> BTreeSet<&str> {
    row.as_object().expect("a device").keys().map(String::as_str).collect()
}

async fn only(server: &Server, tenancy: &Tenancy, query: &str) -> Value {
    let mut rows = list(server, tenancy, query).await;
    assert_eq!(rows.len(), 1, "{query}");
    rows.remove(0)
}

over_http! {
    async fn a_device_shows_all_its_fields_and_none_of_its_lists(server: Server) {
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, full("web-1")).await;
        let row = only(&server, &acme, "").await;
        assert_eq!(keys(&row), FIELDS.split_whitespace().collect());
        for (object, inner) in [
            ("os", "name version build kernel arch"), ("cpu", "model sockets cores"), ("patch", "pending failed last_installed_at"),
            ("warranty", "start_date end_date status"), ("agent", "name version device_id tag"),
        ] {
            assert_eq!(keys(&row[object]), inner.split_whitespace().collect(), "{object}");
        }
        let mut one = server.get(one(&id)).cookie(&acme.admin).await.ok(200);
        assert!(one.as_object_mut().unwrap().remove("history").is_some());
        assert_eq!(one, row);
        // Of a device of which nothing is known, every field is there, too.
        let bare = server.tenant("bare").await;
        add(&server, &bare, named("x")).await;
        assert_eq!(keys(&only(&server, &bare, "").await), FIELDS.split_whitespace().collect());
    }

    async fn fields_are_those_that_are_named_and_the_id(server: Server) {
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, full("web-1")).await;
        let whole = only(&server, &acme, "").await;
        for field in FIELDS.split_whitespace() {
            for row in [
                only(&server, &acme, &format!("fields={field}")).await,
                server.get(format!("{}&fields={field}", one(&id))).cookie(&acme.admin).await.ok(200),
            ] {
                assert_eq!(keys(&row), BTreeSet::from(["id", field]), "{field}");
                assert_eq!((&row[field], &row["id"]), (&whole[field], &whole["id"]), "{field}");
            }
        }
        for query in ["fields=hostname,type,tags", "fields=tags,type,hostname,id,tags", "q=web&fields=hostname,type,tags&limit=1",
            "fields=hostname,type,tags&updated_since=2026-01-01T00:00:00Z"] {
            assert_eq!(keys(&only(&server, &acme, query).await), BTreeSet::from(["id", "hostname", "type", "tags"]), "{query}");
        }
        let every = FIELDS.split_whitespace().collect::<Vec<_>>().join(",");
        assert_eq!(only(&server, &acme, &format!("fields={every}")).await, whole);
    }

    async fn lists_come_when_they_are_named_and_hold_what_the_contract_names(server: Server) {
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, full("web-1")).await;
        let (whole, lists) = (only(&server, &acme, "").await, lists());
        for list in LISTS {
            let mut expected = whole.clone();
            expected[list] = lists[list].clone();
            assert_eq!(only(&server, &acme, &format!("include={list}")).await, expected);
            let mut one = server.get(format!("{}&include={list}", one(&id))).cookie(&acme.admin).await.ok(200);
            assert!(one.as_object_mut().unwrap().remove("history").is_some(), "{list}");
            assert_eq!(one, expected);
            let few = only(&server, &acme, &format!("include={list}&fields=hostname")).await;
            assert_eq!(few, json!({"id": id, "hostname": "web-1", list: lists[list]}));
        }
        let mut all = whole.clone();
        all.as_object_mut().unwrap().extend(lists.as_object().unwrap().clone());
        for include in ["software,disks,volumes,nics,ports,supplies", "supplies,ports,nics,volumes,disks,software,nics"] {
            assert_eq!(only(&server, &acme, &format!("include={include}")).await, all);
            assert_eq!(only(&server, &acme, &format!("include={include}&updated_since=2026-01-01T00:00:00Z")).await, all);
        }
        let id_alone = server.get(format!("{}&fields=id&include=nics", one(&id))).cookie(&acme.admin).await.ok(200);
        assert_eq!(id_alone, json!({"id": id, "nics": lists["nics"]}));
    }

    /// More devices than those whose lists are read together.
    async fn each_device_has_its_own_lists(server: Server) {
        let acme = server.tenant("acme").await;
        let devices = (0..20).map(|n| {
            with(&format!("h{n}"), |full| {
                full.parts.software = (0..n % 5).map(|at| software(&format!("app-{n}-{at}"), "1")).collect();
                full.parts.nics = vec![Nic { name: Some(format!("eth{n}")), mac: None, r#type: None, status: None, ips: Vec::new() }];
            })
        });
        add_all(&server, &acme, devices.collect()).await;
        let rows = list(&server, &acme, "include=software,nics,disks").await;
        assert_eq!(rows.len(), 20);
        for (at, row) in rows.iter().enumerate() {
            let n = 19 - at;
            let names: Vec<&str> = row["software"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
            assert_eq!(names, (0..n % 5).map(|at| format!("app-{n}-{at}")).collect::<Vec<_>>());
            assert_eq!((&row["nics"][0]["name"], &row["disks"]), (&json!(format!("eth{n}")), &json!([])));
        }
    }

    /// Few are looked for at first, and then as many as have room.
    async fn a_page_with_short_lists_is_as_long_as_its_limit(server: Server) {
        let acme = server.tenant("acme").await;
        let device = |n: usize| with(&format!("h{n}"), |full| {
            full.device.tags = vec!["t".to_owned()];
            full.parts.software = vec![software(&format!("app-{n}"), "1")];
        });
        add_all(&server, &acme, (0..30).map(device).collect()).await;
        for query in ["", "tag=t&", "software=app-1,app-2,app-3&", "updated_since=2000-01-01T00:00:00Z&"] {
            let all = list(&server, &acme, &format!("{query}include=software&limit=200")).await;
            assert_eq!(all.len(), if query.starts_with("software") { 3 } else { 30 }, "{query}");
            for limit in [1, 7, 8, 9, 17, 29, 30, 31] {
                let (rows, pages) = walk(&server, &acme, &format!("{query}include=software&limit={limit}")).await;
                assert_eq!(rows, all, "{query}limit={limit}");
                assert_eq!(pages.len(), all.len().div_ceil(limit), "{query}limit={limit}: {pages:?}");
            }
        }
    }

    async fn a_page_with_long_lists_ends_before_its_limit(server: Server) {
        let acme = server.tenant("acme").await;
        let devices = (0..12).map(|n| {
            with(&format!("h{n}"), |full| {
                let long = |at: usize| Software { publisher: Some("x".repeat(10_000)), ..software(&format!("package-{at}"), "1") };
                full.parts.software = (0..10).map(long).collect();
            })
        });
        add_all(&server, &acme, devices.collect()).await;
        let first = server.get(format!("{INVENTORY}?include=software&limit=200")).cookie(&acme.admin).await;
        assert!((800_000..1_200_000).contains(&first.body.len()), "{}", first.body.len());
        let (rows, pages) = walk(&server, &acme, "include=software&limit=200&fields=hostname").await;
        let expected: Vec<String> = (0..12).rev().map(|n| format!("h{n}")).collect();
        assert_eq!(rows.iter().map(|row| text(row, "hostname")).collect::<Vec<_>>(), expected);
        assert!(rows.iter().all(|row| row["software"].as_array().unwrap().len() == 10));
        assert!(pages.len() >= 2, "{pages:?}");
    }
}
