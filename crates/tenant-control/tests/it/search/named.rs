//! Whoever types a name looks for what is called so, and not for what mentions it: however many do, and however new they are.

use serde_json::json;
use tenant_control::features::devices::{DeviceStatus, FullDevice, Nic};

use super::{called, count_software, device, hits, organization, some, text, ticket, user, workflow};
use crate::asset_inventory::software;
use crate::organizations::ORGANIZATIONS;
use crate::support::search::{Indexed, asking};
use crate::support::workflows::{approval, manual};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{generous, id_of};

/// More than a page of tickets.
const MENTIONS: usize = 60;

/// What each record is called, in one text.
const MENTION: &str = "WEB-01 web01 WEB-01.northwind.test Front door 7XK2P13 A-1007 192.0.2.10 10.20.30.40 02:fc:00:00:00:01 \
    02:fc:00:00:00:a2 4c4c4544-0058-4b10-8032-b7c04f503133 Anna Keller anna.keller@hub.test Northwind Traders northwind \
    NW/4711 northwind.test JIRA-77 Nightly report 7-Zip 1";

async fn search_first(server: &Server, tenancy: &Tenancy, q: &str) -> String {
    let answer = server.get(format!("{}&limit=1", asking(q))).cookie(&tenancy.admin).await;
    assert_eq!(answer.status, 200, "{q}: {}", answer.json());
    let found = answer.json();
    let first = hits(&found).first().unwrap_or_else(|| panic!("{q} finds nothing"));
    text(first, "id").to_owned()
}

/// Tickets with this text in their subject, if it is short, and in their description.
async fn mention(server: &Server, tenancy: &Tenancy, said: &str) {
    for n in 0..MENTIONS {
        let subject = if said.len() < 100 { format!("{said} again, {n}") } else { format!("Again, {n}") };
        ticket(server, tenancy, &json!({"subject": subject, "description": said}), &[]).await;
    }
}

over_http! {
    async fn what_is_called_so_comes_before_all_that_mention_it(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let first = ticket(&server, &acme, &json!({"subject": "First", "external_id": "JIRA-77"}), &[]).await;
        let customer = organization(&server, &acme, "Northwind Traders", "northwind").await;
        let fields = json!({
            "name": "Northwind Traders", "slug": "northwind", "external_id": "NW/4711", "domains": ["northwind.test"],
        });
        let target = format!("{ORGANIZATIONS}?id={}", customer.id);
        server.put(target).cookie(&acme.admin).json(&fields).await.ok(200);
        let person = user(&server, &acme, "Anna Keller", "anna.keller@hub.test").await;
        let web = device(&server, &acme, "WEB-01.northwind.test", |full: &mut FullDevice| {
            full.device.display_name = some("Front door");
            (full.device.serial_number, full.device.asset_tag) = (some("7XK2P13"), some("A-1007"));
            full.device.uuid = some("4c4c4544-0058-4b10-8032-b7c04f503133");
            (full.device.primary_ip, full.device.primary_mac) = (some("192.0.2.10"), some("02:fc:00:00:00:01"));
            let (mac, ips) = (some("02:fc:00:00:00:a2"), vec!["10.20.30.40".to_owned()]);
            full.parts.nics = vec![Nic { mac, ips, ..Nic::default() }];
            full.parts.software = vec![software("7-Zip", "24")];
        }).await;
        count_software(&server).await;
        let report = workflow(&server, &acme, "Nightly report", manual([approval("ask")])).await;
        mention(&server, &acme, MENTION).await;
        for name in ["WEB-01", "Anna Keller", "Northwind", "7-Zip", "Nightly report"] {
            called(&server, &acme, name).await;
            called(&server, &acme, &format!("{name} {name}")).await;
        }
        let _indexed = Indexed::of(&server).await;
        let (customer, person) = (customer.id.to_string(), person.id.to_string());
        for (id, names) in [
            (web.as_str(), &[
                "WEB-01", "web-01", "web01", "web 01", "\"web-01\"", "web-01.northwind.test", "web01.northwind.test",
                "front door", "Front-Door", "7xk2p13", "a-1007", "A1007", "192.0.2.10", "10.20.30.40",
                "02:fc:00:00:00:01", "02FC.0000.0001", "02fc000000a2", "4C4C4544-0058-4B10-8032-B7C04F503133",
                "4c4c454400584b108032b7c04f503133", "web-01 -status:closed", "https://web-01.northwind.test/x",
            ][..]),
            (&person, &["Anna Keller", "anna keller", "\"anna keller\"", "ANNA.KELLER@hub.test", "annakeller"]),
            (&customer, &["Northwind Traders", "northwind", "northwind-traders", "nw/4711", "NW4711", "northwind.test"]),
            (id_of(&first), &["1", "#1", "ticket 1", "ticket #1", "jira-77", "JIRA77"]),
            (id_of(&report), &["nightly report", "Nightly-Report"]),
            ("7-zip", &["7-zip", "7zip", "7 Zip"]),
        ] {
            for q in names {
                assert_eq!(search_first(&server, &acme, q).await, id, "{q}");
            }
        }
    }

    async fn what_begins_so_comes_before_what_mentions_it(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let customer = organization(&server, &acme, "Northwind Traders", "nw").await.id.to_string();
        let person = user(&server, &acme, "Anna Keller", "akeller@hub.test").await.id.to_string();
        let web = device(&server, &acme, "WEB-01", |full| {
            (full.device.serial_number, full.device.primary_ip) = (some("7XK2P13"), some("192.0.2.10"));
            full.device.primary_mac = some("02:fc:00:00:00:01");
        }).await;
        mention(&server, &acme, "WEB-0 web north anna kell 7xk2 192.0. 02:fc:00 northwind web-01 keller").await;
        let _indexed = Indexed::of(&server).await;
        for (id, names) in [
            (&web, &["web", "web-", "web-0", "web0", "we", "7xk2", "192.0.", "192.0.2", "02:fc:00", "02fc00"][..]),
            (&person, &["anna", "anna k", "anna kell", "keller", "kelelr", "akel"]),
            (&customer, &["north", "northwind", "northwind tra", "noorthwind"]),
        ] {
            for q in names {
                assert_eq!(search_first(&server, &acme, q).await, *id, "{q}");
            }
        }
        // Within reason: words between are words.
        let first = search_first(&server, &acme, "web north").await;
        assert!(first.starts_with("tkt_"), "{first}");
    }

    async fn the_first_digits_of_what_nobody_types_are_no_names(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let server_dc = device(&server, &acme, "SRV-DC-01", |_| ()).await;
        let first = ticket(&server, &acme, &json!({"subject": "The answer is 42, says AD"}), &[]).await;
        for n in 0..10 {
            device(&server, &acme, &format!("PC-{n}"), |full| {
                let start = ["dc", "42", "ad"][n % 3];
                full.device.uuid = Some(format!("{start}4c4544-0058-4b10-8032-b7c04f50313{n}"));
                full.device.serial_number = Some(format!("{start}Q1200{n}"));
            })
            .await;
        }
        let _indexed = Indexed::of(&server).await;
        for (q, id) in [("dc", server_dc.as_str()), ("42", id_of(&first)), ("ad", id_of(&first))] {
            assert_eq!(search_first(&server, &acme, q).await, id, "{q}");
        }
        let machine = search_first(&server, &acme, "dcq12").await;
        assert!(machine.starts_with("dev_") && machine != server_dc, "half a serial number: {machine}");
    }

    async fn a_machine_that_was_only_imported_comes_before_what_mentions_it(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let imported = device(&server, &acme, "ml-srv-sql01", |full| {
            (full.device.first_seen_at, full.device.status) = (None, DeviceStatus::Stale);
            full.device.display_name = some("Datenbank");
        })
        .await;
        called(&server, &acme, "Backup of sql01 failed").await;
        let _indexed = Indexed::of(&server).await;
        let found = server.search(&acme.admin, "sql01").await;
        let first = &hits(&found)[0];
        assert_eq!((text(first, "id"), text(first, "title")), (imported.as_str(), "Datenbank"));
        assert!(text(first, "subtitle").starts_with("ml-srv-sql01"), "{first}");
    }

    async fn a_name_means_only_what_whoever_asks_may_see(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        device(&server, &acme, "WEB-01", |full| full.device.serial_number = some("7XK2P13")).await;
        let mentioned = called(&server, &acme, "WEB-01 7XK2P13 2P13 is down").await;
        let _indexed = Indexed::of(&server).await;
        let key = server.key(&acme, &["search:read", "tickets:read"]).await;
        for q in ["web-01", "web01", "7xk2p13", "2p13", "web"] {
            let found = server.get(asking(q)).key(&key.plain).await.ok(200);
            let ids: Vec<&str> = hits(&found).iter().map(|hit| text(hit, "id")).collect();
            assert_eq!(ids, [id_of(&mentioned)], "{q}");
            assert!(hits(&server.search(&globex.admin, q).await).is_empty(), "{q}");
        }
    }
}
