//! The next scan of the same network: the same devices, and what has changed of them.

use kernel::base::DAY_MS;
use serde_json::{Value, json};

use super::{
    DISCOVERY, DISCOVERY_JSON, LASER_PRINTER, STACK, SWITCH, changed, injected, message, only_after, switch, whole,
};
use crate::inventory::imports::import_csv;
use crate::inventory::{all, each, id, patient};
use crate::support::devices::{Agent, Body, device, device_event_kinds, device_events, reported};
use crate::support::over_http;

const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";

over_http! {
    async fn one_agent_scans_two_hundred_switches_and_none_is_its_own_machine(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let scanner = Agent::named("scanner").device_id("scanner-2026-11-02-07-00-00");
        for round in 0..2 {
            server.advance(60_000);
            reported(&server, &key, &scanner.glpi().agent_id(AGENT_ID)).await;
            for first in [0, 50, 100, 150] {
                let many: String = (first..first + 50).map(switch).collect();
                let body = message("SNMPQUERY", &many).agent_id(AGENT_ID);
                reported(&server, &key, &body).await;
            }
            let all = all(&server, &acme).await;
            assert_eq!(all.len(), 201, "round {round}");
            assert_eq!((&all[0]["hostname"], &all[0]["type"]), (&json!("scanner"), &json!("server")));
            for device in &all {
                assert_eq!((&device["version"], &device["possible_duplicate_of"]), (&json!(1), &Value::Null));
                assert_eq!(device["last_seen_at"], json!(server.now()), "{}", device["hostname"]);
            }
        }
        // One each, and without a serial number.
        for n in [3, 77] {
            let one = switch(n).replace(&format!("<SERIAL>SW00{n:04}</SERIAL>"), "");
            reported(&server, &key, &message("SNMPQUERY", &one).agent_id(AGENT_ID)).await;
        }
        assert_eq!(all(&server, &acme).await.len(), 201);
    }

    async fn a_discovery_erases_nothing_that_an_inventory_told(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &injected(DISCOVERY)).await;
        let found = whole(&server, &acme).await;
        assert_eq!(each(&found, "hostname"), [&json!("sw-floor1.acme.test"), &json!("BRN44"), &json!("PC-17")]);
        assert_eq!(each(&found, "type"), [&json!("network"), &json!("printer"), &json!("other")]);
        assert_eq!(each(&found, "health"), [&json!("unknown"), &json!("unknown"), &json!("unknown")]);
        assert_eq!(each(&found, "inventory_at"), [&Value::Null; 3]);
        assert_eq!((&found[0]["model"], &found[1]["asset_tag"]), (&json!("ICX7150"), &json!("P-0044")));
        reported(&server, &key, &injected(SWITCH)).await;
        let told = whole(&server, &acme).await;
        assert_eq!((told.len(), &told[0]["id"]), (3, &found[0]["id"]));
        assert_eq!((&told[0]["model"], &told[0]["health"]), (&json!("ICX7150-24"), &json!("healthy")));
        server.advance(60_000);
        for body in [injected(DISCOVERY), changed(DISCOVERY, "d4:c1:9e:00:10:00", "d4:c1:9e:00:10:41")] {
            reported(&server, &key, &body).await;
        }
        let mut again = whole(&server, &acme).await;
        assert_eq!(again.len(), 3);
        assert_eq!(again[0]["last_seen_at"], json!(server.now()));
        // It was seen, and its inventory is as old as before.
        again[0]["last_seen_at"] = told[0]["last_seen_at"].clone();
        assert_eq!(again[0], told[0]);
        assert_ne!(again[0]["inventory_at"], json!(server.now()));
        // It has moved, and a discovery is enough to know that.
        let moved = String::from_utf8(DISCOVERY.to_vec()).unwrap().replace("192.0.2.44", "192.0.2.45");
        reported(&server, &key, &injected(moved)).await;
        assert_eq!(all(&server, &acme).await[1]["primary_ip"], "192.0.2.45");
        // So has a device with an inventory, unless it is found at another of its addresses.
        let found_at = |ip: &str| changed(DISCOVERY, "192.0.2.11<", &format!("{ip}<"));
        for (body, primary_ip) in
            [(found_at("10.10.0.1"), "192.0.2.11"), (found_at("192.0.2.12"), "192.0.2.12"), (injected(SWITCH), "192.0.2.11")]
        {
            reported(&server, &key, &body).await;
            assert_eq!(all(&server, &acme).await[0]["primary_ip"], primary_ip);
        }
    }

    async fn a_random_address_alone_is_no_new_device(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let seen = |fields: &str| message("NETDISCOVERY", &format!("<DEVICE>{fields}<IP>192.0.2.150</IP></DEVICE>"));
        // A phone of every day, with the name that the address has in the name server.
        for day in 1..4 {
            let mac = format!("<MAC>da:a1:19:00:11:0{day}</MAC>");
            reported(&server, &key, &seen(&mac)).await;
            reported(&server, &key, &seen(&format!("<DNSHOSTNAME>dhcp-150.acme.test</DNSHOSTNAME>{mac}"))).await;
        }
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new());
        // One with a name of its own is a device, and its address is enough to see it again.
        reported(&server, &key, &seen("<NETBIOSNAME>TABLET-3</NETBIOSNAME><MAC>da:a1:19:00:11:03</MAC>")).await;
        server.advance(60_000);
        reported(&server, &key, &seen("<MAC>da:a1:19:00:11:03</MAC>")).await;
        // Virtual machines have addresses of software for good.
        reported(&server, &key, &seen("<MAC>52:54:00:00:11:04</MAC>")).await;
        let all = all(&server, &acme).await;
        assert_eq!(each(&all, "primary_mac"), [&json!("da:a1:19:00:11:03"), &json!("52:54:00:00:11:04")]);
        assert_eq!((&all[0]["hostname"], &all[0]["last_seen_at"]), (&json!("TABLET-3"), &json!(server.now())));
    }

    async fn a_name_of_the_name_server_neither_divides_nor_renames(server: Server) {
        let seen = |fields: &str| message("NETDISCOVERY", &format!("<DEVICE>{fields}<MAC>00:25:90:00:11:21</MAC></DEVICE>"));
        let leased = |name: &str| seen(&format!("<DNSHOSTNAME>{name}</DNSHOSTNAME>"));
        let named = seen("<NETBIOSNAME>PC-21</NETBIOSNAME>");
        let bodies = [named.clone(), leased("dhcp-23.acme.test"), leased("_gateway"), leased("pc-21.acme.test"), named.clone()];
        let (acme, found) = only_after(&server, "acme", &bodies).await;
        assert_eq!((&found["hostname"], &found["version"]), (&json!("PC-21"), &json!(1)));
        // The same name in another form is no news; another one is.
        let key = server.ingest_key(&acme).await;
        for (name, stored) in [("pc-21.acme.test", "PC-21"), ("pc-22.acme.test", "pc-22.acme.test"), ("PC-21", "PC-21")] {
            let told = seen(&format!("<SNMPHOSTNAME>{name}</SNMPHOSTNAME><SERIAL>XQ77-21</SERIAL>"));
            reported(&server, &key, &told).await;
            assert_eq!(device(&server, &acme.admin, id(&found)).await["hostname"], stored, "{name}");
        }
        // It fills a gap until the device says its own.
        let bodies = [seen(""), leased("dhcp-23.acme.test"), leased("dhcp-24.acme.test")];
        let (empty, found) = only_after(&server, "empty", &bodies).await;
        assert_eq!(found["hostname"], "dhcp-23.acme.test");
        let key = server.ingest_key(&empty).await;
        for body in [named, leased("dhcp-25.acme.test")] {
            reported(&server, &key, &body).await;
        }
        assert_eq!(each(&all(&server, &empty).await, "hostname"), [&json!("PC-21")]);
        // An agent comes to what had the name of its address.
        let agent = Agent::named("pc-21").macs(&["00:25:90:00:11:21"]).fusion();
        let bodies = [leased("dhcp-23.acme.test"), agent, leased("dhcp-24.acme.test")];
        let (_, taken) = only_after(&server, "agent", &bodies).await;
        assert_eq!((&taken["hostname"], &taken["type"]), (&json!("pc-21"), &json!("server")));
    }

    async fn a_stack_is_the_same_whichever_member_leads_it(server: Server) {
        let failover = String::from_utf8(STACK.to_vec()).unwrap();
        let failover = failover.replace("<SERIAL>FCW2301A0B1</SERIAL>\n        <TYPE>NET", "<SERIAL>FCW2301A0B2</SERIAL>\n        <TYPE>NET");
        let failover = failover.replace("<MAC>70:1f:53:00:20:00</MAC>", "<MAC>70:1f:53:00:30:00</MAC>");
        let failover = failover.replace("<NAME>stack-main</NAME>", "<NAME>stack-renamed</NAME>");
        let (_, stack) = only_after(&server, "acme", &[injected(STACK), injected(failover), injected(STACK)]).await;
        assert_eq!((&stack["serial_number"], &stack["version"]), (&json!("FCW2301A0B1"), &json!(3)));
        // The leading member is broken, and another takes its name, is replaced, and leads again.
        let part = |serials: [&str; 2]| {
            let member = |serial: &str| format!("<COMPONENT><TYPE>chassis</TYPE><SERIAL>{serial}</SERIAL></COMPONENT>");
            message("SNMPQUERY", &format!(
                "<DEVICE><INFO><NAME>stack-main</NAME><SERIAL>{}</SERIAL><MANUFACTURER>Cisco</MANUFACTURER><TYPE>NETWORKING</TYPE></INFO>\
                 <COMPONENTS>{}</COMPONENTS></DEVICE>",
                serials[0], serials.map(member).concat()
            ))
        };
        let parts = [["FCW2301A0B2", "FCW2301A0B3"], ["FCW2301A0B2", "FCW2301A0B9"], ["FCW2301A0B9", "FCW2301A0B2"]].map(part);
        let bodies: Vec<Body> = [injected(STACK)].into_iter().chain(parts).collect();
        let (tenancy, stack) = only_after(&server, "broken", &bodies).await;
        assert_eq!(stack["serial_number"], "FCW2301A0B9");
        // A member in another stack, or alone under another name, does not take the first one's device with it.
        let key = server.ingest_key(&tenancy).await;
        let alone = String::from_utf8(part(["FCW2301A0B2", "FCW2301A0B2"]).plain).unwrap().replace("stack-main", "switch");
        for body in [part(["FOC9999A0B1", "FCW2301A0B2"]), injected(alone)] {
            reported(&server, &key, &body).await;
        }
        let serials = [&json!("FCW2301A0B9"), &json!("FOC9999A0B1"), &json!("FCW2301A0B2")];
        assert_eq!(each(&all(&server, &tenancy).await, "serial_number"), serials);
        // Another one may have the same name.
        let other = str::from_utf8(STACK).unwrap().replace("FCW2301A0B", "FOC9999A0B").replace("70:1f:53", "70:1f:54");
        let tenancy = server.tenant("two").await;
        let key = server.ingest_key(&tenancy).await;
        for body in [injected(STACK), injected(other)] {
            reported(&server, &key, &body).await;
        }
        assert_eq!(each(&all(&server, &tenancy).await, "serial_number"), [&json!("FCW2301A0B1"), &json!("FOC9999A0B1")]);
    }

    async fn a_stack_keeps_its_members_when_they_are_not_told(server: Server) {
        let fields = |name: &str, serial: &str, mac: &str| format!(
            "<{name}>stack-main</{name}><SERIAL>{serial}</SERIAL><MANUFACTURER>Cisco</MANUFACTURER><TYPE>NETWORKING</TYPE><MAC>{mac}</MAC>"
        );
        let found = |serial: &str, mac: &str| {
            message("NETDISCOVERY", &format!("<DEVICE>{}</DEVICE>", fields("SNMPHOSTNAME", serial, mac)))
        };
        let brief = fields("NAME", "FCW2301A0B1", "70:1f:53:00:20:00");
        let brief = message("SNMPQUERY", &format!("<DEVICE><INFO>{brief}</INFO></DEVICE>"));
        let first = found("FCW2301A0B1", "70:1f:53:00:20:00");
        // Another member leads, and only a discovery says so.
        let second = found("FCW2301A0B2", "70:1f:53:00:30:00");
        let (acme, stack) = only_after(&server, "acme", &[injected(STACK), first, brief, second]).await;
        assert_eq!(stack["serial_number"], "FCW2301A0B1");
        let file = "manufacturer,serial_number,asset_tag\nCisco,FCW2301A0B1,A-17\n";
        assert_eq!(import_csv(&server, &acme, file).await.updated, 1);
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &found("FCW2301A0B3", "70:1f:53:00:40:00")).await;
        let all = all(&server, &acme).await;
        assert_eq!((each(&all, "id"), &all[0]["asset_tag"]), (vec![&stack["id"]], &json!("A-17")));
    }

    async fn links_go_up_and_down_in_silence(server: Server) {
        let up = changed(SWITCH, "\"ifstatus\": \"2\", \"ifinternalstatus\": 1, \"ifspeed\": \"0\"", "\"ifstatus\": 1, \"ifspeed\": 100000000");
        let down = changed(&up.plain, "\"iftype\": 136, \"ifstatus\": 1", "\"iftype\": 136, \"ifstatus\": 2");
        let (acme, switch) = only_after(&server, "acme", &[injected(SWITCH), down]).await;
        assert_eq!((&switch["nics"][0]["name"], &switch["nics"][0]["status"]), (&json!("ve20"), &json!("down")));
        assert_eq!((&switch["version"], &switch["ports"][1]["status"], &switch["ports"][1]["speed_bps"]), (&json!(2), &json!("up"), &json!(100_000_000)));
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created"]);
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &changed(SWITCH, "\"number\": \"20\"", "\"number\": \"21\"")).await;
        let changes = device_events(&server, &acme).await[1]["data"]["changes"].clone();
        assert_eq!((&changes["ports"]["from"][0]["vlan"], &changes["ports"]["to"][0]["vlan"]), (&json!(20), &json!(21)), "{changes}");
        assert_eq!(changes.as_object().unwrap().len(), 1);
    }

    async fn levels_and_pages_change_in_silence_and_health_is_told(server: Server) {
        let full = changed(LASER_PRINTER, "<TONERBLACK>9<", "<TONERBLACK>80<");
        let (acme, printer) = only_after(&server, "acme", std::slice::from_ref(&full)).await;
        assert_eq!(printer["health"], "healthy");
        let key = server.ingest_key(&acme).await;
        let later = changed(&full.plain, "<TONERBLACK>80<", "<TONERBLACK>11<");
        let later = changed(&later.plain, "<TOTAL>94344<", "<TOTAL>94800<");
        reported(&server, &key, &later).await;
        let shown = device(&server, &acme.admin, id(&printer)).await;
        assert_eq!((&shown["version"], &shown["page_count"]), (&json!(2), &json!(94_800)));
        assert_eq!(shown["supplies"][2]["level_percent"], 11);
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created"]);
        reported(&server, &key, &changed(&later.plain, "<TONERBLACK>11<", "<TONERBLACK>10<")).await;
        let events = device_events(&server, &acme).await;
        assert_eq!(events[1]["data"]["changes"], json!({"health": {"from": "healthy", "to": "needs_attention"}}));
        // A waste container that is full or empty, nobody knows which, says nothing.
        let waste = changed(&full.plain, "<WASTETONER>OK<", "<WASTETONER>0<");
        let waste = changed(&waste.plain, "<VERSION>2VC_2000.002.412<", "<VERSION>2VC_2000.002.500<");
        let waste = changed(&waste.plain, "<IFNAME>Ethernet</IFNAME>", "<IFNAME>LAN</IFNAME>");
        let waste = changed(&waste.plain, "<FUSERKIT>WARNING</FUSERKIT>", "");
        reported(&server, &key, &waste).await;
        let events = device_events(&server, &acme).await;
        let changes = &events[2]["data"]["changes"];
        assert_eq!(changes["health"], json!({"from": "needs_attention", "to": "healthy"}));
        assert_eq!(changes["firmware"], json!({"from": "2VC_2000.002.412", "to": "2VC_2000.002.500"}));
        assert_eq!(changes["supplies"], json!({"from": [{"name": "fuserkit", "level_percent": null}], "to": []}));
        assert_eq!((&changes["ports"]["from"][0]["name"], &changes["ports"]["to"][0]["name"]), (&json!("Ethernet"), &json!("LAN")));
        assert_eq!(changes.as_object().unwrap().keys().collect::<Vec<_>>(), ["firmware", "health", "nics", "ports", "supplies"]);
    }

    async fn an_inventory_without_a_section_leaves_what_is_stored_of_it(server: Server) {
        let told = |lists: &str| message("SNMPQUERY", &format!("<DEVICE><INFO><NAME>prn-floor2</NAME><SERIAL>R7K0X00041</SERIAL>\
            <MANUFACTURER>Kyocera</MANUFACTURER><TYPE>PRINTER</TYPE></INFO>{lists}</DEVICE>"));
        // A printer that answers slowly, read by the same agent and by another one.
        let other = Body { user_agent: "FusionInventory-Agent_v2.6", ..told("") };
        let bodies = [injected(LASER_PRINTER), other, told(""), told("")];
        let (acme, printer) = only_after(&server, "acme", &bodies).await;
        assert_eq!((&printer["firmware"], &printer["page_count"]), (&json!("2VC_2000.002.412"), &json!(94_344)));
        let length = |device: &Value, list: &str| device[list].as_array().unwrap().len();
        assert_eq!(["supplies", "ports", "nics"].map(|list| length(&printer, list)), [7, 1, 1]);
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created"]);
        // Empty lists are told.
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &told("<CARTRIDGES/><PORTS></PORTS>")).await;
        let printer = device(&server, &acme.admin, id(&printer)).await;
        assert_eq!((&printer["firmware"], &printer["page_count"]), (&json!("2VC_2000.002.412"), &json!(94_344)));
        assert_eq!((&printer["model"], &printer["primary_mac"]), (&json!("ECOSYS P6235cdn"), &json!("00:17:c8:00:41:00")));
        assert_eq!((&printer["supplies"], &printer["ports"], &printer["nics"]), (&json!([]), &json!([]), &json!([])));
        assert_eq!((&printer["hostname"], &printer["primary_ip"]), (&json!("prn-floor2"), &json!("192.0.2.41")));
    }

    async fn the_same_message_again_counts_for_every_device_in_it(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let many: String = (0..5).map(switch).collect();
        let body = message("SNMPQUERY", &many);
        assert!(body.plain.len() > 1_024);
        reported(&server, &key, &body).await;
        server.advance(2 * DAY_MS);
        server.look_at_devices().await;
        assert!(each(&all(&server, &acme).await, "status").iter().all(|status| **status == "offline"));
        reported(&server, &key, &body).await;
        for device in all(&server, &acme).await {
            assert_eq!((&device["status"], &device["last_seen_at"]), (&json!("online"), &json!(server.now())));
        }
    }

    async fn what_has_no_more_than_an_address_or_a_name_is_found_by_it(server: Server) {
        let bare = |fields: &str| message("NETDISCOVERY", &format!("<DEVICE>{fields}</DEVICE>"));
        let (_, found) = only_after(&server, "mac", &[injected(DISCOVERY_JSON), injected(DISCOVERY_JSON)]).await;
        assert_eq!((&found["hostname"], &found["primary_mac"]), (&Value::Null, &json!("00:25:90:00:11:18")));
        // Then it answers to more, and is the same.
        let named = bare("<SNMPHOSTNAME>cam1</SNMPHOSTNAME><MAC>00:25:90:00:11:18</MAC><SERIAL>CAM0001</SERIAL><TYPE>VIDEO</TYPE>");
        let (_, found) = only_after(&server, "more", &[injected(DISCOVERY_JSON), named.clone(), named]).await;
        assert_eq!((&found["hostname"], &found["type"]), (&json!("cam1"), &json!("network")));
        // Two that share an address have names of their own.
        let peer = |name: &str| bare(&format!("<SNMPHOSTNAME>{name}</SNMPHOSTNAME><MAC>00:25:90:00:11:1a</MAC><TYPE>NETWORKING</TYPE>"));
        let tenancy = server.tenant("peers").await;
        let key = server.ingest_key(&tenancy).await;
        for body in [peer("core1"), peer("core2"), peer("core1"), peer("core2")] {
            reported(&server, &key, &body).await;
        }
        assert_eq!(each(&all(&server, &tenancy).await, "hostname"), [&json!("core1"), &json!("core2")]);
        // The address is shared by many, or wrong.
        let odd = bare("<DNSHOSTNAME>homeassistant</DNSHOSTNAME><IP>192.0.2.133</IP><MAC>f3:6c:00:33:85:f2</MAC>");
        only_after(&server, "name", &[odd.clone(), odd.clone(), odd]).await;
        // A serial number of another maker's, or none, is no contradiction; another serial number is.
        let serial = |serial: &str| bare(&format!("<SERIAL>{serial}</SERIAL><MAC>00:25:90:00:11:19</MAC>"));
        only_after(&server, "serial", &[serial("XQ77-1"), bare("<SERIAL>XQ77-1</SERIAL>"), serial("XQ77-1")]).await;
        let tenancy = server.tenant("two").await;
        let key = server.ingest_key(&tenancy).await;
        for body in [serial("XQ77-1"), serial("XQ77-2"), serial("XQ77-1"), serial("XQ77-2")] {
            reported(&server, &key, &body).await;
        }
        assert_eq!(each(&all(&server, &tenancy).await, "serial_number"), [&json!("XQ77-1"), &json!("XQ77-2")]);
    }
}
