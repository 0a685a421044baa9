//! When two reports are one machine, and when they only look alike.

use serde_json::{Value, json};

use crate::support::devices::{Agent, Body, device, reported};
use crate::support::over_http;

use super::imports::import_csv;
use super::{after, all, each, id, send};

const DOCK: &str = "00:50:b6:00:00:01";

/// A machine with a UUID, a serial number and an address of its own.
fn machine(hostname: &str, n: u8) -> Agent {
    Agent::named(hostname)
        .device_id(&format!("{hostname}-{n}"))
        .uuid(&format!("4c4c4544-0042-3310-8051-b4c04f4e31{n:02x}"))
        .serial(&format!("7XK2P{n:02}"))
        .macs(&[&format!("ac:1f:6b:00:00:{n:02x}")])
}

fn with_memory(memory_mib: i64, agent: &Agent) -> Body {
    Agent { memory_mib, ..agent.clone() }.fusion()
}

over_http! {
    async fn clones_of_an_image_are_devices_of_their_own(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        // The agent's own id was in the image.
        let clones: Vec<Agent> = (1..=3).map(|n| machine("pc", n).device_id("image")).collect();
        for memory_mib in 1..=3 {
            for clone in &clones {
                reported(&server, &key, &with_memory(memory_mib, clone)).await;
            }
        }
        let found = all(&server, &acme).await;
        assert_eq!(each(&found, "serial_number"), ["7XK2P01", "7XK2P02", "7XK2P03"]);
        assert_eq!(each(&found, "memory_bytes"), [&json!(3 << 20); 3]);
        let first = &found[0]["id"];
        assert_eq!(each(&found, "possible_duplicate_of"), [&Value::Null, first, first]);
    }

    async fn a_part_that_may_be_of_any_clone_changes_none(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let clones: Vec<Agent> = (1..=2).map(|n| machine("pc", n).device_id("image")).collect();
        send(&server, &key, &[&clones[0].glpi(), &clones[1].glpi()]).await;
        let full = Agent { volumes: vec![("/".to_owned(), 100_000, 1)], ..clones[0].clone() };
        reported(&server, &key, &full.partial(&["drives"])).await;
        assert_eq!(each(&all(&server, &acme).await, "health"), ["healthy", "healthy"]);
        // With its own UUID it is clear.
        reported(&server, &key, &full.partial(&["drives", "hardware"])).await;
        assert_eq!(each(&all(&server, &acme).await, "health"), ["unhealthy", "healthy"]);
    }

    async fn a_new_mainboard_or_card_is_the_same_machine(server: Server) {
        let known = machine("pc", 1);
        let parts = [
            ("a new mainboard", machine("pc", 2).device_id(&known.device_id).serial("7XK2P01")),
            ("a new card", known.clone().macs(&["ac:1f:6b:00:00:77"])),
            ("another hostname", Agent { hostname: "renamed".to_owned(), ..known.clone() }),
            ("a new installation of the agent", known.clone().device_id("new")),
            ("no evidence at all", Agent { uuid: None, serial: None, ..known.clone() }.macs(&[])),
        ];
        for (n, (what, changed)) in parts.iter().enumerate() {
            let found = after(&server, &format!("part-{n}"), &[&known.fusion(), &changed.fusion()]).await;
            assert_eq!(found.len(), 1, "{what}: {found:#?}");
        }
    }

    async fn evidence_that_contradicts_counts_more_than_what_is_alike(server: Server) {
        let one = machine("dc01", 1);
        let alike = [
            ("a dock", one.clone().macs(&["ac:1f:6b:00:00:01", DOCK]), machine("dc01", 2).macs(&["ac:1f:6b:00:00:02", DOCK])),
            ("the uuid", one.clone(), Agent { uuid: one.uuid.clone(), ..machine("dc02", 2) }),
            ("the serial number", one.clone(), Agent { serial: one.serial.clone(), ..machine("dc02", 2) }),
        ];
        for (n, (what, first, second)) in alike.iter().enumerate() {
            let found = after(&server, &format!("alike-{n}"), &[&first.fusion(), &second.fusion()]).await;
            assert_eq!(found.len(), 2, "{what}: {found:#?}");
        }
    }

    async fn nothing_but_an_agents_own_id_matches_across_two_customers(server: Server) {
        let acme = server.tenant("acme").await;
        for slug in ["globex", "initech"] {
            server.bound_ingest_key(&acme, slug).await;
        }
        let key = server.ingest_key(&acme).await;
        let of = |slug: &str, device_id: &str| machine("dc01", 1).tag(slug).device_id(device_id);
        send(&server, &key, &[&of("globex", "one").fusion(), &of("initech", "two").fusion()]).await;
        assert_eq!(all(&server, &acme).await.len(), 2, "the same hostname, serial number, UUID and card");
        // A machine that was given to another customer takes its agent along.
        send(&server, &key, &[&of("initech", "one").fusion()]).await;
        assert_eq!(all(&server, &acme).await.len(), 2);
    }

    async fn what_makers_leave_in_every_machine_tells_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut count = 0;
        for serial in ["12345", "SYS-1234567890", "(null string)", "$(DEFAULT_STRING)", "OEM_Serial"] {
            for n in 1..=2 {
                let machine = Agent { uuid: None, ..machine(&format!("{serial} {n}"), n) }.serial(serial);
                reported(&server, &key, &machine.fusion()).await;
                count += 1;
            }
        }
        for uuid in ["6ab5b300-538d-1014-9fb5-b0684d007b53", "01010101-0101-0101-0101-010101010101"] {
            for n in 1..=2 {
                let machine = Agent { serial: None, ..machine(&format!("{uuid} {n}"), n) }.uuid(uuid);
                reported(&server, &key, &machine.fusion()).await;
                count += 1;
            }
        }
        assert_eq!(all(&server, &acme).await.len(), count);
    }

    async fn an_import_and_the_report_of_the_machine_are_one_device(server: Server) {
        let acme = server.tenant("acme").await;
        let (_, globex) = server.bound_ingest_key(&acme, "globex").await;
        let unbound = server.ingest_key(&acme).await;
        let file = "hostname,serial_number,manufacturer,organization\nWEB01,,,globex\ndb01,7XK2P02,Dell,globex\n\
                    spare,7XK2P03,Dell,\nlone,,,\n";
        let imported = import_csv(&server, &acme, file).await;
        assert_eq!((imported.created, imported.errors.len()), (4, 0));
        send(&server, &globex, &[&machine("web01", 1).fusion(), &machine("renamed", 2).fusion()]).await;
        send(&server, &unbound, &[&machine("new name", 3).fusion()]).await;
        let found = all(&server, &acme).await;
        assert_eq!(each(&found, "hostname"), ["web01", "renamed", "new name", "lone"]);
        assert_eq!(each(&found, "serial_number"), [&json!("7XK2P01"), &json!("7XK2P02"), &json!("7XK2P03"), &Value::Null]);
        // The name of one that has reported is not enough, nor that of one of nobody.
        send(&server, &globex, &[&machine("web01", 9).fusion(), &machine("lone", 8).fusion()]).await;
        let found = all(&server, &acme).await;
        assert_eq!((found.len(), &found[3]["first_seen_at"]), (6, &Value::Null));
    }

    async fn a_row_of_a_file_is_the_machine_whose_maker_is_written_otherwise(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &machine("web01", 1).fusion()).await;
        let imported = import_csv(&server, &acme, "hostname,serial_number,manufacturer,display_name\nweb01,7XK2P01,Dell,Web\n").await;
        assert_eq!((imported.created, imported.updated), (0, 1), "{:?}", imported.errors);
    }

    async fn one_that_stays_ambiguous_goes_where_it_went_before(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let host = |device_id: &str, macs: &[&str]| Agent::named("host").device_id(device_id).macs(macs);
        send(&server, &key, &[&host("first", &["ac:1f:6b:00:00:01"]).fusion(), &host("second", &["ac:1f:6b:00:00:02"]).fusion()]).await;
        // It forgets its own id between two runs.
        for run in 0..4 {
            let torn = host(&format!("run {run}"), &["ac:1f:6b:00:00:01", "ac:1f:6b:00:00:02"]);
            reported(&server, &key, &with_memory(run + 1, &torn)).await;
        }
        let found = all(&server, &acme).await;
        assert_eq!(each(&found, "possible_duplicate_of"), [&Value::Null, &Value::Null, &found[0]["id"]]);
        assert_eq!(found[2]["memory_bytes"], 4 << 20);
    }

    async fn a_tag_is_kept_and_names_its_organization_in_any_case(server: Server) {
        let acme = server.tenant("acme").await;
        let (globex, _) = server.bound_ingest_key(&acme, "globex").await;
        let name = json!({"name": "Übergrößen GmbH", "slug": "uebergroessen"});
        let other = server.post(crate::organizations::ORGANIZATIONS).cookie(&acme.admin).json(&name).await.ok(201);
        let key = server.ingest_key(&acme).await;
        for (n, (tag, organization)) in
            [("GLOBEX", json!(globex)), ("übergrössen gmbh", Value::Null), ("ÜBERGRÖßEN GMBH", other["id"].clone()), ("Nobody", Value::Null)]
                .iter()
                .enumerate()
        {
            reported(&server, &key, &machine(&format!("pc{n}"), u8::try_from(n).unwrap()).tag(tag).fusion()).await;
            let found = all(&server, &acme).await;
            assert_eq!((&found[n]["organization_id"], &found[n]["agent"]["tag"]), (organization, &json!(tag)));
        }
    }

    async fn a_whole_report_of_the_same_agent_replaces_every_section(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = machine("web01", 1);
        reported(&server, &key, &agent.glpi()).await;
        let mut bare = agent.json();
        let content = bare["content"].as_object_mut().unwrap();
        content.retain(|name, _| ["versionclient", "hardware", "bios", "operatingsystem"].contains(&name.as_str()));
        let bare = Body { plain: bare.to_string().into_bytes(), ..agent.glpi() };
        reported(&server, &key, &bare).await;
        let found = all(&server, &acme).await;
        let query = format!("{}?id={}&include=software,disks,volumes,nics", crate::support::devices::DEVICES, id(&found[0]));
        let device = server.get(&query).cookie(&acme.admin).await.ok(200);
        for list in ["software", "disks", "volumes", "nics"] {
            assert_eq!(device[list], json!([]), "{list}");
        }
        assert_eq!((&device["cpu"]["model"], &device["primary_ip"]), (&Value::Null, &Value::Null));
        assert_eq!(device["serial_number"], "7XK2P01");
    }

    async fn a_guess_never_replaces_what_was_told(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        import_csv(&server, &acme, "hostname,type,platform\nweb01,laptop,windows\n").await;
        // A Debian without a word of its chassis would be taken for a server.
        reported(&server, &key, &machine("web01", 1).fusion()).await;
        let found = all(&server, &acme).await;
        assert_eq!((found.len(), &found[0]["type"], &found[0]["platform"]), (1, &json!("laptop"), &json!("linux")));
        let told = Agent { chassis: Some("Desktop".to_owned()), ..machine("web01", 1) };
        reported(&server, &key, &told.fusion()).await;
        assert_eq!(device(&server, &acme.admin, id(&found[0])).await["type"], "workstation");
    }

    async fn volumes_that_nobody_can_fill_are_not_judged(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut report = machine("pc", 1).json();
        report["content"]["operatingsystem"] = json!({"full_name": "Microsoft Windows 11 Pro", "kernel_name": "MSWin32"});
        let volume = |letter: Option<&str>, total: i64, status: &str| {
            let mut volume = json!({"type": "Local Disk", "filesystem": "NTFS", "total": total, "free": 10, "encrypt_name": "BitLocker",
                "encrypt_status": status});
            if let Some(letter) = letter {
                volume["letter"] = json!(letter);
            }
            volume
        };
        report["content"]["drives"] = json!([volume(None, 50_000, "Unknown"), volume(Some("D:"), 1_000, "No")]);
        let body = |report: &Value| Body { plain: report.to_string().into_bytes(), ..machine("pc", 1).glpi() };
        reported(&server, &key, &body(&report)).await;
        let found = all(&server, &acme).await;
        let query = format!("{}?id={}&include=volumes", crate::support::devices::DEVICES, id(&found[0]));
        let device = server.get(&query).cookie(&acme.admin).await.ok(200);
        assert_eq!(device["health"], "healthy");
        assert_eq!((&device["volumes"][0]["mount"], &device["volumes"][0]["encrypted"]), (&Value::Null, &Value::Null));
        assert_eq!(device["volumes"][1]["encrypted"], false);
        report["content"]["drives"] = json!([volume(Some("C:"), 50_000, "Yes")]);
        reported(&server, &key, &body(&report)).await;
        let device = server.get(&query).cookie(&acme.admin).await.ok(200);
        assert_eq!((&device["health"], &device["volumes"][0]["encrypted"]), (&json!("unhealthy"), &json!(true)));
    }

    async fn a_list_that_is_cut_says_so(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let named: Vec<String> = (0..150).map(|n| format!("package {n:03}")).collect();
        let some: Vec<(&str, &str)> = named.iter().map(|name| (name.as_str(), "1")).collect();
        send(&server, &key, &[&machine("pc", 1).software(&[]).fusion(), &machine("pc", 1).software(&some).fusion()]).await;
        let found = all(&server, &acme).await;
        let history = &device(&server, &acme.admin, id(&found[0])).await["history"];
        let software = &history.as_array().unwrap().iter().find(|change| change["changes"]["software"].is_object()).unwrap()["changes"]["software"];
        assert_eq!(software["to"].as_array().unwrap().len(), 100);
        assert_eq!((&software["truncated"], &software["from_total"], &software["to_total"]), (&json!(true), &json!(0), &json!(150)));
    }
}
