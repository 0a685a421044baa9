//! Scans beside agents, imports, organizations and merges.

use kernel::args;
use kernel::base::Actor;
use serde_json::{Value, json};
use tenant_control::features::devices::DeviceSettings;

use super::{
    DISCOVERY, DISCOVERY_JSON, ESX_JSON, ESX_XML, LASER_PRINTER, SWITCH, changed, injected, message, only_after,
    switch, whole,
};
use crate::inventory::imports::import_csv;
use crate::inventory::{all, each, id};
use crate::support::devices::{Agent, DEVICES, device, devices, only_device, report, reported};
use crate::support::over_http;

const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";

over_http! {
    async fn a_scan_of_a_machine_with_an_agent_leaves_it_to_the_agent(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("pc-17").macs(&["00:25:90:00:11:17"]);
        agent.chassis = Some("Notebook".to_owned());
        reported(&server, &key, &agent.glpi().agent_id(AGENT_ID)).await;
        let before = only_device(&server, &acme.admin).await;
        server.advance(60_000);
        let discovery = String::from_utf8(DISCOVERY.to_vec()).unwrap();
        let machine = &discovery[discovery.find("<DEVICE>\n      <DNSHOSTNAME>pc-17").unwrap()..discovery.rfind("<MODULEVERSION>").unwrap()];
        reported(&server, &key, &message("NETDISCOVERY", machine)).await;
        // By its address alone, and under the name that the name server knows.
        for fields in ["<DNSHOSTNAME>192.0.2.117</DNSHOSTNAME>", "<DNSHOSTNAME>pc-17.acme.test</DNSHOSTNAME>"] {
            let seen = format!("<DEVICE>{fields}<IP>192.0.2.117</IP><MAC>00:25:90:00:11:17</MAC></DEVICE>");
            reported(&server, &key, &message("NETDISCOVERY", &seen)).await;
        }
        let mut after = only_device(&server, &acme.admin).await;
        assert_eq!((&after["type"], &after["last_seen_at"]), (&json!("laptop"), &json!(server.now())));
        // Its agent may be dead for all that a scan knows: the inventory is as old as before.
        after["last_seen_at"] = before["last_seen_at"].clone();
        assert_eq!(after, before);
        // What its agent cannot tell is told by the scan. What the agent told is as it was, and known again by its digest.
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let digest = "SELECT digest FROM device_reports WHERE tenant_id = $1";
        let stored: String = db.get_one(digest, args![]).await.unwrap();
        let serving = "<DEVICE><INFO><NAME>pc-17</NAME><MAC>00:25:90:00:11:17</MAC><TYPE>NETWORKING</TYPE><MODEL>SNMP</MODEL></INFO>\
            <PORTS><PORT><IFNAME>eno0</IFNAME><IFTYPE>6</IFTYPE></PORT></PORTS></DEVICE>";
        reported(&server, &key, &message("SNMPQUERY", serving)).await;
        let after = only_device(&server, &acme.admin).await;
        assert_eq!((&after["type"], &after["model"], &after["agent"]), (&json!("laptop"), &before["model"], &before["agent"]));
        assert_eq!((&after["ports"][0]["name"], &after["nics"]), (&json!("eno0"), &before["nics"]));
        assert_eq!(after["inventory_at"], before["inventory_at"]);
        let kept: String = db.get_one(digest, args![]).await.unwrap();
        assert_eq!(kept, stored);
        assert_ne!(before["inventory_at"], json!(server.now()));
        reported(&server, &key, &agent.glpi().agent_id(AGENT_ID)).await;
        assert_eq!(only_device(&server, &acme.admin).await["ports"], after["ports"]);
    }

    async fn an_agent_takes_over_what_a_scan_knew_no_name_of(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &injected(DISCOVERY_JSON)).await;
        let found = only_device(&server, &acme.admin).await;
        let agent = Agent::named("pc-18").macs(&["00:25:90:00:11:18"]);
        reported(&server, &key, &agent.fusion()).await;
        let taken = only_device(&server, &acme.admin).await;
        assert_eq!((&taken["id"], &taken["hostname"], &taken["type"]), (&found["id"], &json!("pc-18"), &json!("server")));
        // From now on its address alone says nothing: an adapter moves from one machine to the next.
        reported(&server, &key, &Agent::named("pc-19").macs(&["00:25:90:00:11:18"]).fusion()).await;
        assert_eq!(each(&all(&server, &acme).await, "hostname"), [&json!("pc-18"), &json!("pc-19")]);
    }

    async fn little_in_common_makes_no_printer_of_a_computer(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let computer = Agent::named("desk-7").macs(&["00:25:90:00:11:20"]).serial("XQ77-20").fusion();
        reported(&server, &key, &computer).await;
        let before = only_device(&server, &acme.admin).await;
        let printer = |fields: &str| message("SNMPQUERY", &format!("<DEVICE><INFO><TYPE>PRINTER</TYPE>{fields}</INFO></DEVICE>"));
        // By an address, a serial number or a name alone, and the same again.
        for fields in ["<MAC>00:25:90:00:11:20</MAC>", "<SERIAL>XQ77-20</SERIAL>", "<NAME>desk-7</NAME>"] {
            for _ in 0..2 {
                reported(&server, &key, &printer(fields)).await;
            }
        }
        let all = all(&server, &acme).await;
        assert_eq!(each(&all, "type"), [&json!("server"), &json!("printer"), &json!("printer"), &json!("printer")]);
        assert_eq!(device(&server, &acme.admin, id(&before)).await, before);
        // Nor the other way round: a printer is there, and an agent comes with its address.
        let (other, found) = only_after(&server, "other", &[printer("<MAC>00:25:90:00:11:20</MAC>")]).await;
        let key = server.ingest_key(&other).await;
        reported(&server, &key, &computer).await;
        let shown = devices(&server, &other.admin, "").await;
        assert_eq!((shown.len(), &shown[1]["id"], &shown[1]["type"]), (2, &found["id"], &json!("printer")));
        // An address that somebody else's serial number comes with is somebody else's.
        let serial = "<MAC>00:25:90:00:11:20</MAC><SERIAL>XQ77-99</SERIAL><NAME>desk-7</NAME>";
        reported(&server, &key, &message("NETDISCOVERY", &format!("<DEVICE>{serial}</DEVICE>"))).await;
        assert_eq!(devices(&server, &other.admin, "serial_number=XQ77-99").await.len(), 1);
        assert_eq!(devices(&server, &other.admin, "serial_number=XQ77-20").await[0]["version"], 1);
    }

    async fn a_bare_name_or_serial_number_joins_no_strangers(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let (globex, bound) = server.bound_ingest_key(&acme, "globex").await;
        let printer = |fields: &str| message("SNMPQUERY", &format!("<DEVICE><INFO><TYPE>PRINTER</TYPE>{fields}</INFO></DEVICE>"));
        for fields in ["<NAME>prn-1</NAME>", "<SERIAL>XQ77-30</SERIAL>"] {
            for key in [&bound, &key, &bound, &key] {
                reported(&server, key, &printer(fields)).await;
            }
        }
        let found = all(&server, &acme).await;
        let (globex, nobody) = (json!(globex), Value::Null);
        assert_eq!(each(&found, "organization_id"), [&globex, &nobody, &globex, &nobody]);
        // Names that many devices have say nothing of one.
        let seen = |name: &str| message("NETDISCOVERY", &format!("<DEVICE><DNSHOSTNAME>{name}</DNSHOSTNAME></DEVICE>"));
        for name in ["localhost", "localhost.localdomain", "(none)", "unknown", "Printer", "_gateway", "UPS"] {
            reported(&server, &key, &seen(name)).await;
            report(&server, &key, &printer(&format!("<NAME>{name}</NAME>"))).await.problem("malformed_report");
        }
        assert_eq!(all(&server, &acme).await.len(), 4);
        // A machine with an agent is not seen by its name, and is no second device.
        let agent = Agent::named("pc-31");
        reported(&server, &key, &agent.fusion()).await;
        let before = all(&server, &acme).await;
        server.advance(60_000);
        reported(&server, &key, &seen("pc-31")).await;
        assert_eq!(all(&server, &acme).await, before);
    }

    async fn an_agent_takes_over_what_the_name_server_told_of(server: Server) {
        let seen = message("NETDISCOVERY", "<DEVICE><DNSHOSTNAME>pc-17.acme.test</DNSHOSTNAME><MAC>00:25:90:00:11:17</MAC></DEVICE>");
        let agent = Agent::named("pc-17").macs(&["00:25:90:00:11:17"]).fusion();
        let (_, taken) = only_after(&server, "acme", &[seen.clone(), agent.clone(), seen, agent]).await;
        assert_eq!((&taken["hostname"], &taken["type"]), (&json!("pc-17"), &json!("server")));
    }

    async fn a_scan_beyond_the_limit_of_devices_still_reports_those_that_are_known(setup: Setup) {
        let mut setup = setup;
        setup.settings.set_feature_settings(DeviceSettings { devices_max: 2, ..DeviceSettings::default() });
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &message("SNMPQUERY", &[switch(1), switch(3)].concat())).await;
        server.advance(60_000);
        let refused = report(&server, &key, &message("SNMPQUERY", &[switch(1), switch(2), switch(3)].concat())).await;
        assert_eq!(refused.status, 409);
        let all = all(&server, &acme).await;
        assert_eq!(each(&all, "hostname"), [&json!("sw1"), &json!("sw3")]);
        assert_eq!(each(&all, "last_seen_at"), [&json!(server.now()); 2]);
    }

    async fn vmware_hosts_are_known_by_themselves_and_not_by_who_asks_them(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let scanner = Agent::named("scanner").device_id("scanner-2026-11-02-07-00-00");
        for run in 1..=3 {
            server.advance(60_000);
            reported(&server, &key, &scanner.glpi().agent_id(AGENT_ID)).await;
            // The id in JSON is another one at every run.
            let host = changed(ESX_JSON, "esx1.acme.test-2026-11-02", &format!("esx1.acme.test-2026-11-0{run}"));
            for body in [host.agent_id(AGENT_ID), injected(ESX_XML).agent_id(AGENT_ID), injected(ESX_XML)] {
                reported(&server, &key, &body).await;
            }
        }
        let all = whole(&server, &acme).await;
        assert_eq!(each(&all, "hostname"), [&json!("scanner"), &json!("esx1"), &json!("esx2")]);
        assert_eq!(each(&all, "version"), [&json!(1); 3]);
        let esx = &all[1];
        assert_eq!((&esx["type"], &esx["platform"], &esx["os"]["name"]), (&json!("server"), &json!("other"), &json!("VMware ESXi 8.0.2 build-22380479")));
        assert_eq!((&esx["cpu"]["sockets"], &esx["cpu"]["cores"], &esx["memory_bytes"]), (&json!(2), &json!(64), &json!(262_041_i64 << 20)));
        assert_eq!(esx["agent"], json!({"name": "GLPI-Agent", "version": "1.12", "device_id": null, "tag": null}));
        // An unchanged host is recognized by the digest, and is seen.
        assert_eq!(each(&all, "last_seen_at"), [&json!(server.now()); 3]);
    }

    async fn a_vmware_host_that_tells_no_more_is_known_by_its_name(server: Server) {
        let mut bare = String::from_utf8(ESX_XML.to_vec()).unwrap();
        for part in
            ["<UUID>30373237-3132-435a-4a39-343030303632</UUID>", "<SSN>CZJ9400062</SSN>", "<MACADDR>48:df:37:00:62:00</MACADDR>"]
        {
            assert!(bare.contains(part), "{part}");
            bare = bare.replace(part, "");
        }
        let larger = bare.replace("<MEMORY>393137<", "<MEMORY>786274<");
        let (acme, host) = only_after(&server, "acme", &[injected(bare.as_str()), injected(larger), injected(bare.as_str())]).await;
        assert_eq!((&host["hostname"], &host["type"], &host["version"]), (&json!("esx2"), &json!("server"), &json!(3)));
        // Another customer may have one of the same name.
        let (_, bound) = server.bound_ingest_key(&acme, "globex").await;
        for _ in 0..2 {
            reported(&server, &bound, &injected(bare.as_str())).await;
        }
        assert_eq!(each(&all(&server, &acme).await, "hostname"), [&json!("esx2"); 2]);
        // The name that every host has at first is no name.
        let nobody = bare.replace(">esx2<", ">localhost<").replace(">esx2.acme.test<", ">localhost.localdomain<");
        report(&server, &bound, &injected(nobody)).await.problem("malformed_report");
        assert_eq!(all(&server, &acme).await.len(), 2);
    }

    async fn what_was_imported_is_found_by_a_scan(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let file = "hostname,display_name,type,serial_number,primary_mac,firmware,page_count,warranty.end_date\n\
            prn-old,Floor 2,printer,R7K0X00041,,1.0,90000,2030-01-31\n,Core switch,network,,D4-C1-9E-00-10-00,,,\n";
        let imported = import_csv(&server, &acme, file).await;
        assert_eq!((imported.created, imported.errors.len()), (2, 0), "{:?}", imported.errors);
        let before = all(&server, &acme).await;
        assert_eq!((&before[0]["firmware"], &before[0]["page_count"]), (&json!("1.0"), &json!(90_000)));
        for body in [injected(LASER_PRINTER), injected(SWITCH)] {
            reported(&server, &key, &body).await;
        }
        let after = all(&server, &acme).await;
        assert_eq!(each(&after, "id"), each(&before, "id"));
        assert_eq!(each(&after, "display_name"), [&json!("Floor 2"), &json!("Core switch")]);
        assert_eq!(each(&after, "hostname"), [&json!("prn-floor2"), &json!("sw-floor1.acme.test")]);
        assert_eq!((&after[0]["page_count"], &after[0]["warranty"]["end_date"]), (&json!(94_344), &json!("2030-01-31")));
        // What was exported can be imported again.
        let exported = server.get(format!("{DEVICES}?format=csv&include=ports,supplies")).cookie(&acme.admin).await;
        let again = import_csv(&server, &acme, str::from_utf8(&exported.is(200).body).unwrap()).await;
        assert_eq!((again.unchanged, again.errors.len()), (2, 0), "{:?}", again.errors);
        assert!(again.ignored_columns.contains(&"ports".to_owned()));
    }

    async fn a_scan_belongs_to_the_organization_of_its_key(server: Server) {
        let acme = server.tenant("acme").await;
        let (globex, bound) = server.bound_ingest_key(&acme, "globex").await;
        let (initech, other) = server.bound_ingest_key(&acme, "initech").await;
        // Two customers with the same printer in their files, and the same address in their network.
        for key in [&bound, &other, &bound, &other] {
            for body in [injected(LASER_PRINTER), injected(DISCOVERY_JSON)] {
                reported(&server, key, &body).await;
            }
        }
        let all = all(&server, &acme).await;
        assert_eq!(all.len(), 4);
        assert_eq!(each(&all, "organization_id"), [&json!(globex), &json!(globex), &json!(initech), &json!(initech)]);
        let tagged = server.tenant("tagged").await;
        let key = server.ingest_key(&tagged).await;
        server.bound_ingest_key(&tagged, "umbrella").await;
        reported(&server, &key, &changed(SWITCH, "\"jobid\": 7,", "\"jobid\": 7, \"tag\": \"umbrella\",")).await;
        assert_ne!(only_device(&server, &tagged.admin).await["organization_id"], Value::Null);
    }

    async fn scanned_devices_are_filtered_and_shown_like_others(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        for body in [injected(SWITCH), injected(LASER_PRINTER), Agent::named("web01").fusion()] {
            reported(&server, &key, &body).await;
        }
        let get = async |query: &str| server.get(format!("{DEVICES}?{query}")).cookie(&acme.admin).await.ok(200)["data"].clone();
        let printers = get("type=printer&fields=firmware,page_count&include=supplies").await;
        let printer = id(&printers[0]);
        assert_eq!(printers[0]["page_count"], 94_344);
        assert_eq!(printers[0].as_object().unwrap().len(), 4);
        assert_eq!(get("q=192.0.2.41&fields=id").await, json!([{"id": printer}]));
        let computers = get("type=server&include=ports,supplies").await;
        assert_eq!((&computers[0]["firmware"], &computers[0]["page_count"]), (&Value::Null, &Value::Null));
        assert_eq!((&computers[0]["ports"], &computers[0]["supplies"]), (&json!([]), &json!([])));
        let one = device(&server, &acme.admin, printer).await;
        assert_eq!(one["ports"][0]["name"], "Ethernet");
        let lines = server.get(format!("{DEVICES}?format=csv&type=network&fields=hostname,firmware,page_count&include=ports")).cookie(&acme.admin).await;
        let lines = String::from_utf8(lines.is(200).body.clone()).unwrap();
        assert!(lines.starts_with("id,hostname,firmware,page_count,ports\r\n"), "{lines}");
        assert!(lines.contains("sw-floor1.acme.test,08.0.95g,,\"[{\"\"name\"\":\"\"1/1/1\"\""), "{lines}");
        server.get(format!("{DEVICES}?include=cartridges")).cookie(&acme.admin).await.problem("invalid_parameter");
    }
}
