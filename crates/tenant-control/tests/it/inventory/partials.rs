//! Parts of an inventory: what they can tell of a device, and what they cannot.

use serde_json::{Value, json};

use crate::support::devices::{Agent, device_event_kinds, only_device, reported};
use crate::support::over_http;

use super::imports::import_csv;

const UUID: &str = "4c4c4544-0042-3310-8051-b4c04f4e3132";

over_http! {
    async fn a_part_without_the_system_does_not_make_a_desktop_of_a_server_in_a_tower(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("files");
        agent.chassis = Some("Tower".to_owned());
        "Microsoft Windows Server 2019".clone_into(&mut agent.os_name);
        reported(&server, &key, &agent.glpi()).await;
        assert_eq!(only_device(&server, &acme.admin).await["type"], "server");
        server.advance(60_000);
        reported(&server, &key, &agent.partial(&["hardware", "bios"])).await;
        let after = only_device(&server, &acme.admin).await;
        assert_eq!((&after["type"], &after["version"]), (&json!("server"), &json!(1)));
        assert_eq!(after["inventory_at"], json!(server.now()), "it was taken");
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created"]);
    }

    async fn a_part_says_what_a_machine_is_where_it_can(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("files");
        reported(&server, &key, &agent.glpi()).await;
        let steps: [(&str, &str, &[&str], &str); 4] = [
            ("Laptop", "Debian GNU/Linux 12 (bookworm)", &["hardware"], "laptop"),
            ("Rack Mount Chassis", "Debian GNU/Linux 12 (bookworm)", &["hardware", "bios"], "server"),
            ("Tower", "Microsoft Windows 11 Pro", &["hardware", "operatingsystem"], "workstation"),
            ("Tower", "Microsoft Windows Server 2019", &["hardware", "operatingsystem"], "server"),
        ];
        for (chassis, system, sections, expected) in steps {
            agent.chassis = Some(chassis.to_owned());
            system.clone_into(&mut agent.os_name);
            reported(&server, &key, &agent.partial(sections)).await;
            assert_eq!(only_device(&server, &acme.admin).await["type"], expected, "{chassis}, {system}");
        }
    }

    async fn parts_of_an_unknown_machine_are_no_inventory_however_many_come(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        for sections in [["drives"], ["softwares"], ["drives"]] {
            server.advance(60_000);
            reported(&server, &key, &agent.partial(&sections)).await;
            let device = only_device(&server, &acme.admin).await;
            assert_eq!((&device["health"], &device["inventory_at"]), (&json!("unknown"), &Value::Null), "{sections:?}");
            assert_eq!((&device["status"], &device["last_seen_at"]), (&json!("online"), &json!(server.now())));
        }
        // With a whole one it is known, and from then on a part is a part of that.
        for body in [agent.glpi(), agent.partial(&["drives"])] {
            server.advance(60_000);
            reported(&server, &key, &body).await;
            let device = only_device(&server, &acme.admin).await;
            assert_eq!((&device["health"], &device["inventory_at"]), (&json!("healthy"), &json!(server.now())));
        }
    }

    async fn a_part_is_no_inventory_of_a_machine_that_was_only_imported(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let imported = import_csv(&server, &acme, &format!("hostname,uuid\nweb01,{UUID}\n")).await;
        assert_eq!(imported.created, 1, "{:?}", imported.errors);
        let agent = Agent::named("web01").uuid(UUID);
        for _ in 0..2 {
            server.advance(60_000);
            reported(&server, &key, &agent.partial(&["hardware", "drives"])).await;
            let device = only_device(&server, &acme.admin).await;
            assert_eq!((&device["health"], &device["inventory_at"]), (&json!("unknown"), &Value::Null));
            assert_eq!(device["last_seen_at"], json!(server.now()));
        }
        reported(&server, &key, &agent.glpi()).await;
        assert_eq!(only_device(&server, &acme.admin).await["health"], "healthy");
    }
}
