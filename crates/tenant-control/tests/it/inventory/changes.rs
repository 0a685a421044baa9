//! What changes of a device, and who is told.

use serde_json::{Value, json};

use crate::support::devices::{
    Agent, Body, DEVICES, GLPI, device_event_kinds, device_events, devices, only_device, reported,
};
use crate::support::over_http;

use super::id;

const MIB: i64 = 1 << 20;

fn package(name: &str, version: &str) -> Value {
    json!({
        "name": name, "version": version, "publisher": null, "arch": "amd64", "source": "deb", "installed_at": null,
    })
}

over_http! {
    async fn a_change_stands_in_the_history_and_is_told_once(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        server.advance(60_000);
        agent.memory_mib = 32_768;
        "12.12".clone_into(&mut agent.os_version);
        reported(&server, &key, &agent.fusion()).await;
        reported(&server, &key, &agent.fusion()).await;
        let device = only_device(&server, &acme.admin).await;
        assert_eq!((&device["version"], &device["updated_at"]), (&json!(2), &json!(server.now())));
        let os = |version: &str| {
            json!({
                "name": "Debian GNU/Linux 12 (bookworm)", "version": version, "build": null, "kernel": "6.1.0-44-amd64",
                "arch": "x86_64",
            })
        };
        let changes = json!({
            "memory_bytes": {"from": 16_384 * MIB, "to": 32_768 * MIB}, "os": {"from": os("12.11"), "to": os("12.12")},
        });
        let actor = json!({"type": "system", "id": key.id, "name": format!("Ingest key {}", key.id)});
        let history = device["history"].as_array().unwrap();
        assert_eq!(history.len(), 2);
        assert_eq!(history[1], json!({"at": "2026-01-15T10:01:00.000Z", "actor": actor, "changes": changes}));
        let newest = server.get(format!("{DEVICES}?id={}&view=history", id(&device))).cookie(&acme.admin).await.ok(200);
        assert_eq!(newest["data"], json!([history[1], history[0]]));

        let events = device_events(&server, &acme).await;
        assert_eq!(events.len(), 2);
        assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("device.created"), &json!("device.updated")));
        assert_eq!(events[1]["data"]["changes"], changes);
        let listed = devices(&server, &acme.admin, "").await.remove(0);
        for (field, value) in listed.as_object().unwrap() {
            let observed = ["last_seen_at", "inventory_at"].contains(&field.as_str());
            assert!(observed || events[1]["data"][field] == *value, "{field} is told as it is shown");
        }
        let created = events[0]["data"].as_object().unwrap();
        assert_eq!(created.len(), listed.as_object().unwrap().len(), "all fields, and no lists");
    }

    async fn what_moves_every_day_is_kept_and_not_told(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        let quiet: Vec<(&str, Agent)> = vec![
            ("free space", Agent { volumes: vec![("/".to_owned(), 100_000, 40_000)], ..agent.clone() }),
            ("boot", Agent { boot_time: "2026-01-15 09:00:00".to_owned(), ..agent.clone() }),
            ("user", Agent { user: Some("alice".to_owned()), ..agent.clone() }),
            ("agent", agent.clone().device_id("another installation")),
        ];
        for (n, (what, agent)) in quiet.iter().enumerate() {
            server.advance(60_000);
            reported(&server, &key, &agent.fusion()).await;
            let device = only_device(&server, &acme.admin).await;
            assert_eq!(device["updated_at"], json!(server.now()), "{what}: whoever keeps a copy gets it");
            assert_eq!(device["version"], json!(n + 2), "{what}");
            assert_eq!(device["history"].as_array().unwrap().len(), 1, "{what}");
        }
        let device = only_device(&server, &acme.admin).await;
        assert_eq!(device["agent"]["device_id"], "another installation");
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created"]);
    }

    async fn software_that_comes_goes_or_changes_is_told(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        let steps: [(&[(&str, &str)], Value); 4] = [
            (&[("bash", "5.2"), ("curl", "8.0"), ("openssl", "3.0")], json!({"from": [], "to": [package("curl", "8.0")]})),
            (&[("bash", "5.2"), ("openssl", "3.0")], json!({"from": [package("curl", "8.0")], "to": []})),
            (&[("bash", "5.3"), ("openssl", "3.0")], json!({"from": [package("bash", "5.2")], "to": [package("bash", "5.3")]})),
            (
                &[("bash", "5.3"), ("bash", "5.2"), ("openssl", "3.0")],
                json!({"from": [], "to": [package("bash", "5.2")]}),
            ),
        ];
        reported(&server, &key, &agent.clone().software(&[("bash", "5.2"), ("openssl", "3.0")]).fusion()).await;
        for (software, changes) in steps {
            reported(&server, &key, &agent.clone().software(software).fusion()).await;
            let device = only_device(&server, &acme.admin).await;
            let expected: Vec<&str> = software.iter().map(|(name, _)| *name).collect();
            let names: Vec<&str> = device["software"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
            assert_eq!(names, expected);
            assert_eq!(device["history"].as_array().unwrap().last().unwrap()["changes"], json!({"software": changes}));
            let told = device_events(&server, &acme).await.pop().unwrap();
            assert_eq!(told["data"]["changes"], json!({"software": changes}));
            for name in ["bash", "curl", "openssl"] {
                let found = devices(&server, &acme.admin, &format!("software={name}")).await.len();
                assert_eq!(found == 1, expected.contains(&name), "{name}");
            }
        }
    }

    async fn of_entries_of_one_program_the_same_stays_in_whichever_order_they_come(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let entry = |publisher: Option<&str>, source: &str| {
            json!({"name": "Runtime", "version": "1.0", "arch": "x86_64", "publisher": publisher, "from": source})
        };
        let entries = [entry(Some("Contoso"), "registry"), entry(None, "registry"), entry(Some("Contoso"), "store")];
        let mut report = Agent::named("web01").json();
        for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]] {
            report["content"]["softwares"] = order.into_iter().map(|n: usize| entries[n].clone()).collect();
            reported(&server, &key, &Body::new(GLPI, report.to_string())).await;
            let device = only_device(&server, &acme.admin).await;
            let software = device["software"].as_array().unwrap();
            assert_eq!((software.len(), &software[0]["publisher"]), (1, &json!("Contoso")), "{order:?}");
            assert_eq!(device["version"], 1, "{order:?}: {software:?}");
        }
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created"]);
    }

    async fn disks_volumes_cards_and_names_are_told(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        agent.disks.push(("sdb".to_owned(), 1_000));
        agent.volumes.push(("/srv".to_owned(), 2_000, 1_000));
        agent.nics[0].2 = String::from("192.0.2.77");
        "web02".clone_into(&mut agent.hostname);
        reported(&server, &key, &agent.fusion()).await;
        let told = device_events(&server, &acme).await.pop().unwrap();
        let changes = &told["data"]["changes"];
        let fields: Vec<&str> = changes.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["disks", "hostname", "nics", "primary_ip", "volumes"]);
        assert_eq!((&changes["disks"]["from"], &changes["disks"]["to"][0]["name"]), (&json!([]), &json!("sdb")));
        assert_eq!(changes["volumes"]["to"][0]["mount"], "/srv");
        assert_eq!(changes["hostname"], json!({"from": "web01", "to": "web02"}));
        assert_eq!(changes["primary_ip"], json!({"from": "192.0.2.10", "to": "192.0.2.77"}));
    }

    async fn a_volume_that_fills_up_is_a_matter_of_health(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01");
        for (free, health, told) in [
            (10_000, "healthy", 0), (9_999, "needs_attention", 1), (5_000, "needs_attention", 1), (4_999, "unhealthy", 2),
            (0, "unhealthy", 2), (50_000, "healthy", 3),
        ] {
            agent.volumes = vec![("/".to_owned(), 100_000, free)];
            reported(&server, &key, &agent.fusion()).await;
            assert_eq!(only_device(&server, &acme.admin).await["health"], health, "{free}");
            let events = device_events(&server, &acme).await;
            assert_eq!(events.len(), told + 1, "{free}");
        }
        let events = device_events(&server, &acme).await;
        assert_eq!(events[1]["data"]["changes"], json!({"health": {"from": "healthy", "to": "needs_attention"}}));
        // What is always full, or no disk at all, is not judged.
        agent.more_xml = String::from("<DRIVES><FILESYSTEM>overlay</FILESYSTEM><FREE>0</FREE><TOTAL>100</TOTAL><TYPE>/docker</TYPE></DRIVES>
            <DRIVES><FILESYSTEM>iso9660</FILESYSTEM><FREE>0</FREE><TOTAL>100</TOTAL><TYPE>/cdrom</TYPE></DRIVES>");
        reported(&server, &key, &agent.fusion()).await;
        assert_eq!(only_device(&server, &acme.admin).await["health"], "healthy");
    }

    async fn of_many_changes_the_first_hundred_are_named(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let long = |letter: &str, n: usize| format!("{n:03}{}", letter.repeat(10));
        let mut agent = Agent::named("web01");
        for letter in ["\u{20000}", "\u{20001}"] {
            agent.software = (0..150).map(|n| (long(letter, n), "1".to_owned())).collect();
            reported(&server, &key, &agent.fusion()).await;
        }
        let device = only_device(&server, &acme.admin).await;
        assert_eq!(device["software"].as_array().unwrap().len(), 150);
        let changes = &device["history"].as_array().unwrap().last().unwrap()["changes"]["software"];
        for (side, letter) in [("from", "\u{20000}"), ("to", "\u{20001}")] {
            let named = changes[side].as_array().unwrap();
            assert_eq!(named.len(), 100, "{side}");
            assert_eq!(named[99]["name"], long(letter, 99));
        }
        let events = device_events(&server, &acme).await;
        assert_eq!(events.len(), 2);
        assert_eq!(events[1]["data"]["changes"]["software"], *changes);
    }
}
