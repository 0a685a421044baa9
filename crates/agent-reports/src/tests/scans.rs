//! Devices that agents scanned: switches, printers and others by SNMP, and VMware hosts.

use super::super::DeviceTypeFact::Told;
use super::super::{
    AgentInfo, AgentMessage, AgentReport, DeviceFacts, DeviceType, MachineFacts, Nic, Platform, Port,
    ReportRefusalKind, ScanFacts, Supply, extract_facts, parse_message,
};
use super::{json_inventory, parse_refusal, parse_report, xml_inventory};

macro_rules! scan {
    ($name:literal) => {
        include_bytes!(concat!("../testdata/scans/", $name))
    };
}

fn parse_scan(body: &[u8]) -> Vec<AgentReport> {
    match parse_message(body) {
        Ok((_, AgentMessage::Scan(reports))) => reports,
        other => panic!("not a scan: {other:?}"),
    }
}

/// The only device of a scan.
fn scanned(body: &[u8]) -> (DeviceFacts, ScanFacts) {
    let mut reports = parse_scan(body);
    assert_eq!(reports.len(), 1);
    let report = &mut reports[0];
    assert_eq!(report.device_id, None, "the id of the message is the scanner's");
    let mut facts = extract_facts(report);
    let scan = facts.scan.take().unwrap();
    (facts, scan)
}

/// A message of a scan in XML with this device.
fn xml_scan(query: &str, devices: &str) -> Vec<u8> {
    format!("<REQUEST><CONTENT>{devices}</CONTENT><DEVICEID>foo</DEVICEID><QUERY>{query}</QUERY></REQUEST>")
        .into_bytes()
}

/// The same in JSON with these sections.
fn json_scan(content: &str) -> Vec<u8> {
    format!("{{\"action\":\"netinventory\",\"deviceid\":\"foo\",\"content\":{{{content}}}}}").into_bytes()
}

fn some_text(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn port(name: &str, mac: &str, status: &str, speed_bps: Option<i64>, vlan: Option<i64>) -> Port {
    Port { name: some_text(name), mac: some_text(mac), status: some_text(status), speed_bps, vlan }
}

fn nic(name: &str, mac: &str, kind: &str, status: &str, ips: &[&str]) -> Nic {
    let ips = ips.iter().map(|ip| (*ip).to_owned()).collect();
    Nic { name: some_text(name), mac: some_text(mac), r#type: some_text(kind), status: some_text(status), ips }
}

fn machine(manufacturer: &str, model: &str, serial: &str) -> MachineFacts {
    MachineFacts {
        manufacturer: some_text(manufacturer),
        model: some_text(model),
        serial_number: some_text(serial),
        asset_tag: None,
    }
}

fn supplies(all: &[(&str, Option<i64>)]) -> Vec<Supply> {
    all.iter().map(|(name, level)| Supply { name: (*name).to_owned(), level_percent: *level }).collect()
}

const GIGABIT: i64 = 1_000_000_000;

#[test]
fn a_switch_has_the_ports_that_cables_go_into() {
    let (facts, scan) = scanned(scan!("switch.json"));
    assert_eq!((facts.device_type, facts.platform), (Some(Told(DeviceType::Network)), None));
    let host = facts.host.unwrap();
    assert_eq!((host.hostname, host.memory_bytes), (some_text("sw-floor1.acme.test"), Some(1024 << 20)));
    assert_eq!(facts.machine, Some(machine("Ruckus", "ICX7150-24", "FEK3210Q01A")));
    assert_eq!(
        scan.ports,
        Some(vec![
            port("1/1/1", "d4:c1:9e:00:10:01", "up", Some(GIGABIT), Some(20)),
            port("1/1/2", "d4:c1:9e:00:10:02", "down", None, Some(20)),
            port("1/1/3", "d4:c1:9e:00:10:03", "down", Some(10_000_000), None),
            port("1/3/1", "d4:c1:9e:00:10:41", "up", Some(10 * GIGABIT), None),
        ])
    );
    let network = facts.network.unwrap();
    assert_eq!(
        network.nics,
        [
            nic("ve20", "d4:c1:9e:00:10:00", "vlan", "up", &["192.0.2.11"]),
            nic("lb1", "", "loopback", "up", &["10.10.0.1"])
        ]
    );
    // That of the interface with the device's own address, and not the first.
    assert_eq!((network.primary_ip, network.primary_mac), (some_text("192.0.2.11"), some_text("d4:c1:9e:00:10:00")));
    assert_eq!(scan.firmware, some_text("08.0.95g"));
    assert_eq!((scan.page_count, scan.supplies, facts.software, facts.volumes), (None, None, None, None));
    let report = parse_scan(scan!("switch.json")).remove(0);
    assert!(!report.partial);
    assert_eq!(report.agent, Some(AgentInfo { name: "GLPI-Agent".into(), version: some_text("1.12") }));
}

#[test]
fn a_stack_is_one_device_with_the_serials_of_its_members() {
    let (facts, scan) = scanned(scan!("stack.xml"));
    assert_eq!(facts.device_type, Some(Told(DeviceType::Network)));
    assert_eq!(facts.machine, Some(machine("Cisco", "C9300-48P", "FCW2301A0B1")));
    assert_eq!(scan.chassis_serials, ["FCW2301A0B1", "FCW2301A0B2", "FCW2301A0B3"]);
    assert_eq!(scan.firmware, some_text("17.09.04a"));
    assert_eq!(
        scan.ports,
        Some(vec![
            port("Gi1/0/1", "70:1f:53:00:20:01", "up", Some(GIGABIT), Some(100)),
            port("Gi2/0/1", "70:1f:53:00:30:01", "down", Some(10_000_000), None),
        ])
    );
    let network = facts.network.unwrap();
    assert_eq!(network.nics, [nic("Vl100", "70:1f:53:00:20:64", "", "up", &["192.0.2.12"])]);
    assert_eq!((network.primary_ip, network.primary_mac), (some_text("198.51.100.2"), some_text("70:1f:53:00:20:00")));
    assert_eq!(scan.ips, ["198.51.100.2", "192.0.2.12", "192.0.2.12"]);
    let body = String::from_utf8_lossy(scan!("stack.xml"))
        .replace("<SERIAL>FCW2301A0B1</SERIAL>\n        <TYPE>NET", "<TYPE>NET");
    let (facts, _) = scanned(body.as_bytes());
    assert_eq!(facts.machine.unwrap().serial_number, some_text("FCW2301A0B1"), "of the first member");
}

#[test]
fn access_points_routers_and_firewalls_are_read() {
    let (facts, scan) = scanned(scan!("access-point.json"));
    assert_eq!((facts.device_type, scan.firmware), (Some(Told(DeviceType::Network)), some_text("6.6.65")));
    assert_eq!(
        scan.ports,
        Some(vec![
            port("eth0", "e4:38:83:00:00:40", "up", Some(GIGABIT), None),
            port("wifi0", "e4:38:83:00:00:41", "up", None, None),
            port("wifi1", "e4:38:83:00:00:42", "down", None, None),
        ])
    );
    assert_eq!(parse_scan(scan!("access-point.json"))[0].agent, None, "6.4 is the version of a module");
    let (facts, scan) = scanned(scan!("router.xml"));
    assert_eq!((facts.device_type, scan.firmware), (Some(Told(DeviceType::Network)), some_text("7.4.2")));
    assert_eq!(
        scan.ports,
        Some(vec![
            port("1", "", "down", None, None),
            port("4G - SIM1", "", "up", None, None),
            port("9", "00:27:04:00:31:00", "", Some(100_000_000), None),
        ])
    );
    assert_eq!(facts.network.unwrap().primary_ip, some_text("192.0.2.31"));
    let (facts, scan) = scanned(scan!("firewall.json"));
    assert_eq!(facts.machine, Some(machine("Fortinet", "FortiGate-100F", "FG100FTK20000001")));
    assert_eq!(scan.firmware, some_text("v7.2.8,build1639,240313 (GA)"));
    assert_eq!(
        scan.ports,
        Some(vec![
            port("wan1", "00:09:0f:09:00:02", "up", Some(GIGABIT), None),
            port("dmz", "00:09:0f:09:00:03", "down", None, None),
            port("ha1", "00:09:0f:09:00:04", "down", None, None),
        ])
    );
    let network = facts.network.unwrap();
    assert_eq!(network.primary_ip, some_text("203.0.113.9"));
    assert_eq!(network.nics[1], nic("VLAN40", "", "vlan", "up", &["192.0.2.1"]));
}

#[test]
fn printers_have_supplies_and_count_pages() {
    let (facts, scan) = scanned(scan!("laser-printer.xml"));
    assert_eq!(facts.device_type, Some(Told(DeviceType::Printer)));
    assert_eq!((scan.page_count, scan.firmware), (Some(94_344), some_text("2VC_2000.002.412")));
    let expected = [
        ("drumblack", Some(64)),
        ("fuserkit", None),
        ("tonerblack", Some(9)),
        ("tonercyan", None),
        ("tonermagenta", None),
        ("toneryellow", None),
        ("wastetoner", None),
    ];
    assert_eq!(scan.supplies, Some(supplies(&expected)));
    assert_eq!(scan.ports, Some(vec![port("Ethernet", "00:17:c8:00:41:00", "up", Some(GIGABIT), None)]));
    let (facts, scan) = scanned(scan!("ink-multifunction.json"));
    assert_eq!((facts.device_type, scan.page_count), (Some(Told(DeviceType::Printer)), Some(4_711)));
    let expected = [
        ("cartridgeblack", Some(41)),
        ("cartridgecyan", Some(77)),
        ("cartridgemagenta", Some(55)),
        ("wastetoner", Some(80)),
        ("cartridgeyellow", Some(30)),
        ("cartridgephotoblack", None),
        ("maintenancekit", Some(3)),
    ];
    assert_eq!(scan.supplies, Some(supplies(&expected)));
    assert_eq!(scan.ports.unwrap().len(), 1, "one interface, sent once for each address");
    assert_eq!(facts.network.unwrap().nics[0].ips, ["192.0.2.42", "192.0.2.142"]);
    let (facts, scan) = scanned(scan!("label-printer.json"));
    assert_eq!((facts.device_type, scan.page_count), (Some(Told(DeviceType::Printer)), None));
    assert_eq!((scan.supplies, scan.ports), (Some(vec![]), Some(vec![])));
}

#[test]
fn only_an_honest_level_is_a_percentage() {
    let level = |field: &str| {
        let (_, scan) = scanned(&json_scan(&format!(
            "\"network_device\":{{\"name\":\"p\"}},\"consumables\":[{{\"type\":\"t\",{field}}}]"
        )));
        scan.supplies.unwrap()[0].level_percent
    };
    for (field, expected) in [
        ("\"value\":\"0\"", Some(0)),
        ("\"value\":100", Some(100)),
        ("\"value\":\" 12 % \"", Some(12)),
        ("\"value\":\"12.9\"", Some(12)),
        ("\"value\":\"30\",\"max\":60", Some(50)),
        ("\"value\":\"30\",\"max\":\"0\"", Some(30)),
        ("\"value\":\"30\",\"unit\":\"%\",\"max\":60", Some(30)),
        ("\"value\":\"101\"", None),
        ("\"value\":\"70\",\"max\":60", None),
        ("\"value\":\"-2\"", None),
        ("\"value\":\"-3\"", None),
        ("\"value\":\"OK\"", None),
        ("\"value\":\"BAD\"", None),
        ("\"value\":\"0g\"", None),
        ("\"value\":\"12\",\"unit\":\"sheets\"", None),
        ("\"value\":\"\"", None),
        ("\"value\":null", None),
        ("\"value\":\"9223372036854775807\",\"max\":5", None),
    ] {
        assert_eq!(level(field), expected, "{field}");
    }
}

#[test]
fn untagged_is_what_an_agent_says_or_the_only_vlan_of_a_port() {
    let vlan = |fields: &str| {
        let content =
            format!("\"network_device\":{{\"name\":\"s\"}},\"network_ports\":[{{\"ifname\":\"1\",{fields}}}]");
        scanned(&json_scan(&content)).1.ports.unwrap()[0].vlan
    };
    for (fields, expected) in [
        ("\"vlans\":[{\"number\":5}]", Some(5)),
        ("\"vlans\":{\"id\":\"6\"}", Some(6)),
        ("\"vlans\":[{\"number\":5}],\"trunk\":true", None),
        ("\"vlans\":[{\"number\":5},{\"number\":6}]", None),
        ("\"vlans\":[{\"number\":5,\"tagged\":true}]", None),
        ("\"trunk\":1,\"vlans\":[{\"number\":5,\"tagged\":1},{\"number\":6,\"tagged\":false}]", Some(6)),
        ("\"vlans\":[{\"number\":0}]", None),
        ("\"vlans\":[{\"number\":4095}]", None),
        ("\"vlans\":[{\"name\":\"x\"}]", None),
        ("\"vlans\":[]", None),
        ("\"vlans\":null", None),
    ] {
        assert_eq!(vlan(fields), expected, "{fields}");
    }
}

#[test]
fn what_is_virtual_by_name_is_no_port_whatever_its_type() {
    let names = |entries: &str| -> Vec<String> {
        let content = format!("\"network_device\":{{\"name\":\"s\"}},\"network_ports\":[{entries}]");
        scanned(&json_scan(&content)).1.ports.unwrap().into_iter().filter_map(|port| port.name).collect()
    };
    let entries = "{\"ifname\":\"Vlan-interface1\",\"iftype\":6},{\"ifdescr\":\"Port-channel7\",\"iftype\":6},\
        {\"ifname\":\"lo\"},{\"ifname\":\"Loopback0\"},{\"ifname\":\"eth0\"},{\"ifname\":\"Nu0\",\"iftype\":1},\
        {\"ifname\":\"x\",\"iftype\":1,\"mac\":\"00:25:90:00:00:01\"},{},{\"iftype\":6},{\"ifname\":\"tunnel1\"},\
        {\"ifname\":\"veth1a2b3c4\",\"iftype\":6},{\"ifname\":\"docker0\",\"iftype\":6},{\"ifname\":\"br-77aa\",\"iftype\":6},\
        {\"ifname\":\"tap100i0\",\"iftype\":6},{\"ifname\":\"ifb0\",\"iftype\":6},{\"ifname\":\"vnet3\",\"iftype\":6},\
        {\"ifname\":\"virbr0\",\"iftype\":6}";
    assert_eq!(names(entries), ["eth0", "x"]);
}

#[test]
fn power_and_storage_are_network_devices() {
    let (facts, scan) = scanned(scan!("ups.xml"));
    assert_eq!((facts.device_type, scan.firmware), (Some(Told(DeviceType::Network)), some_text("UPS 09.8 (ID18)")));
    assert_eq!((scan.ports, scan.supplies), (None, None));
    let (facts, scan) = scanned(scan!("nas.xml"));
    assert_eq!((facts.device_type, scan.firmware), (Some(Told(DeviceType::Network)), some_text("DSM 7.2-64570")));
    assert_eq!(facts.network.unwrap().primary_ip, some_text("192.0.2.52"));
    let volumes = facts.volumes.unwrap();
    assert_eq!((volumes.len(), volumes[0].free_bytes), (2, Some(600_000 << 20)));
    assert_eq!(volumes[0].device, some_text("Volume 1"));
    assert_eq!(facts.disks.unwrap()[0].serial, some_text("VGK0000052"));
}

#[test]
fn a_vmware_host_is_a_server_that_no_agent_runs_on() {
    for (body, serial) in [(&scan!("esx-host.json")[..], "7XK2P61"), (scan!("esx-host.xml"), "CZJ9400062")] {
        let mut report = parse_report(body);
        assert_eq!(report.device_id, None, "the id of the message is the scanner's, or a new one at every run");
        let facts = extract_facts(&mut report);
        assert_eq!((facts.device_type, facts.platform), (Some(Told(DeviceType::Server)), Some(Platform::Other)));
        assert_eq!(facts.machine.unwrap().serial_number, some_text(serial));
        assert!(facts.host.unwrap().uuid.is_some() && facts.scan.is_none());
    }
    let guest = br#"{"operatingsystem":{"name":"Debian"},"bios":{"smodel":"VMware Virtual Platform"}}"#;
    let guest = parse_report(&json_inventory(str::from_utf8(guest).unwrap()));
    assert_eq!(guest.device_id.as_deref(), Some("d"));
}

#[test]
fn a_discovery_tells_a_part_of_what_it_can_recognize() {
    let mut reports = parse_scan(scan!("discovery.xml"));
    assert!(reports.iter().all(|report| report.partial && report.device_id.is_none()));
    let facts: Vec<DeviceFacts> = reports.iter_mut().map(extract_facts).collect();
    let names: Vec<_> = facts.iter().filter_map(|facts| facts.host.as_ref()?.hostname.as_deref()).collect();
    // An address that answers, and nothing else, is not among them.
    assert_eq!(names, ["sw-floor1.acme.test", "BRN44", "PC-17"]);
    let types: Vec<_> = facts.iter().map(|facts| facts.device_type).collect();
    assert_eq!(types, [Some(Told(DeviceType::Network)), Some(Told(DeviceType::Printer)), None]);
    let ips: Vec<_> = facts.iter().filter_map(|facts| facts.network.as_ref()?.primary_ip.as_deref()).collect();
    assert_eq!(ips, ["192.0.2.11", "192.0.2.44", "192.0.2.117"]);
    let makers: Vec<_> = facts.iter().filter_map(|facts| facts.machine.as_ref()?.manufacturer.as_deref()).collect();
    assert_eq!(makers, ["Ruckus", "Brother", "Super Micro Computer"]);
    assert_eq!(facts[1].machine.as_ref().unwrap().asset_tag, some_text("P-0044"));
    assert!(facts.iter().all(|facts| facts.scan.as_ref().is_some_and(|scan| scan.ports.is_none())));
    assert!(!format!("{reports:?}{facts:?}").contains("anna.keller"));
    let (facts, _) = scanned(scan!("discovery.json"));
    assert_eq!((facts.device_type, facts.host.unwrap().hostname), (None, None));
    assert_eq!(facts.network.unwrap().primary_mac, some_text("00:25:90:00:11:18"));
}

#[test]
fn messages_about_a_scan_have_no_devices() {
    let about = |agent: &str| {
        format!("<AGENT>{agent}</AGENT><MODULEVERSION>6.4</MODULEVERSION><PROCESSNUMBER>1</PROCESSNUMBER>")
    };
    for query in ["NETDISCOVERY", "SNMPQUERY"] {
        for agent in
            ["<START>1</START><AGENTVERSION>1.12</AGENTVERSION>", "<NBIP>254</NBIP>", "<END>1</END>", "<EXIT>1</EXIT>"]
        {
            assert_eq!(parse_scan(&xml_scan(query, &about(agent))), [], "{query} {agent}");
        }
    }
    let failed = "<DEVICE><ERROR><ID>7</ID><MESSAGE>no response</MESSAGE><TYPE>NETWORKING</TYPE></ERROR></DEVICE>";
    assert_eq!(parse_scan(&xml_scan("SNMPQUERY", failed)), []);
    assert_eq!(parse_scan(&xml_scan("SNMPQUERY", "<DEVICE/><DEVICE><ERROR/></DEVICE><DEVICE></DEVICE>")), []);
    assert_eq!(parse_scan(&json_scan("\"agent\":{\"start\":true}")), []);
    assert_eq!(parse_scan(&json_scan("\"network_device\":{}")), []);
    let discovery = br#"{"action":"netdiscovery","deviceid":"d","jobid":1,"content":{"versionclient":"6.4"}}"#;
    assert_eq!(parse_scan(discovery), []);
}

#[test]
fn a_message_without_devices_that_is_not_about_a_scan_is_refused() {
    let of_ocs = "<SNMP_DEFAULT><IP>192.0.2.61</IP><NAME>sw1</NAME></SNMP_DEFAULT>";
    for (query, content) in
        [("SNMP", of_ocs), ("SNMPQUERY", of_ocs), ("NETDISCOVERY", "<MODULEVERSION>6.4</MODULEVERSION>")]
    {
        let message = parse_message(&xml_scan(query, content)).unwrap().1;
        assert_eq!(message, AgentMessage::Other(query.to_owned()));
    }
}

#[test]
fn a_scan_is_known_by_its_content_too() {
    let device = "\"content\":{\"network_device\":{\"name\":\"s\",\"type\":\"Networking\"}}";
    for head in ["", "\"action\":\"inventory\",", "\"query\":\"SNMP\",", "\"action\":\"netinventory\",\"query\":\"x\","]
    {
        let reports = parse_scan(format!("{{{head}{device},\"deviceid\":\"d\"}}").as_bytes());
        assert_eq!(reports.len(), 1, "{head}");
    }
    // A computer may list its firmwares.
    let computer = json_inventory("{\"hardware\":{\"name\":\"web01\"},\"firmwares\":[{\"version\":\"1\"}]}");
    let computer = parse_report(&computer);
    assert_eq!((computer.device_id.as_deref(), computer.scanned), (Some("d"), None));
    assert!(parse_report(&xml_inventory("<PORTS><NAME>COM1</NAME></PORTS>")).scanned.is_none());
}

#[test]
fn a_scan_without_a_type_is_told_by_what_it_has() {
    let kind = |body: &[u8]| scanned(body).0.device_type;
    let device = |fields: &str, more: &str| json_scan(&format!("\"network_device\":{{\"name\":\"s\"{fields}}}{more}"));
    assert_eq!(kind(&device("", "")), None);
    assert_eq!(kind(&device("", ",\"pagecounters\":{\"total\":1}")), Some(Told(DeviceType::Printer)));
    assert_eq!(kind(&device("", ",\"cartridges\":[{\"tonerblack\":1}]")), Some(Told(DeviceType::Printer)));
    assert_eq!(kind(&device(",\"type\":\"KVM\"", "")), Some(Told(DeviceType::Network)));
    assert_eq!(kind(&device(",\"type\":\"Computer\"", ",\"pagecounters\":{\"total\":1}")), None);
    assert_eq!(kind(&device(",\"type\":\"Phone\"", "")), None);
    let typed = "<REQUEST><ITEMTYPE>NetworkEquipment</ITEMTYPE><QUERY>SNMPQUERY</QUERY><DEVICEID>d</DEVICEID><CONTENT>\
        <DEVICE><INFO><NAME>s</NAME></INFO></DEVICE></CONTENT></REQUEST>";
    assert_eq!(kind(typed.as_bytes()), Some(Told(DeviceType::Network)));
    // No INFO, and a port's address to be recognized by.
    let bare = "<DEVICE><FIRMWARES><VERSION>12.3R3.4</VERSION></FIRMWARES><PORTS><PORT><IFNAME>ae27</IFNAME><IFTYPE>161</IFTYPE>\
        <MAC>88:e0:f3:00:68:1e</MAC></PORT></PORTS></DEVICE>";
    let (facts, scan) = scanned(&xml_scan("SNMPQUERY", bare));
    assert_eq!((facts.device_type, scan.firmware, scan.ports), (None, some_text("12.3R3.4"), Some(vec![])));
    assert_eq!(facts.network.unwrap().primary_mac, some_text("88:e0:f3:00:68:1e"));
}

#[test]
fn wrong_scans_are_refused_with_a_sentence() {
    let unknown = "A scanned device has no serial number, name or hardware address to be recognized by.";
    for (body, detail) in [
        (xml_scan("SNMPQUERY", "<DEVICE><INFO><TYPE>PRINTER</TYPE><SERIAL>N/A</SERIAL></INFO></DEVICE>"), unknown),
        (json_scan("\"network_device\":{\"type\":\"Printer\",\"mac\":\"00:00:00:00:00:00\"}"), unknown),
        (xml_scan("SNMPQUERY", "<DEVICE><INFO><NAME>localhost.localdomain</NAME></INFO></DEVICE>"), unknown),
        (json_scan("\"network_device\":{\"type\":\"Printer\",\"name\":\"(none)\"}"), unknown),
        (
            b"<REQUEST><DEVICEID>d</DEVICEID><QUERY>SNMPQUERY</QUERY></REQUEST>".to_vec(),
            "The inventory has no content.",
        ),
        (br#"{"action":"netdiscovery","deviceid":"d","content":[1,2]}"#.to_vec(), "The inventory has no content."),
        (json_scan("\"network_device\":\"switch\""), "The section network_device is neither an object nor"),
        (json_scan("\"network_ports\":[7]"), "The section network_ports is neither an object nor"),
        (json_scan("\"network_ports\":[{\"vlans\":\"all\"}]"), "The section network_ports is neither an object nor"),
        (xml_scan("SNMPQUERY", "<DEVICE><INFO>"), "The XML is not well formed"),
    ] {
        let refusal = parse_refusal(&body);
        assert_eq!(refusal.kind, ReportRefusalKind::Malformed);
        assert!(refusal.detail.starts_with(detail), "{}", refusal.detail);
    }
    let beside = "<DEVICE><INFO><NAME>s</NAME></INFO></DEVICE><FIRMWARES><VERSION>1</VERSION></FIRMWARES>";
    assert_eq!(parse_scan(&xml_scan("SNMPQUERY", beside)).len(), 1);
    // One device that cannot be recognized is left out, and the others are not.
    let two = "<DEVICE><INFO><NAME>s</NAME></INFO></DEVICE><DEVICE><INFO><TYPE>PRINTER</TYPE></INFO></DEVICE>";
    assert_eq!(parse_scan(&xml_scan("SNMPQUERY", two)).len(), 1);
}

#[test]
fn too_much_of_a_device_is_left_out_and_too_many_devices_are_refused() {
    let ports = |count: usize| {
        let entries: Vec<_> = (0..count).map(|n| format!("{{\"ifnumber\":{n},\"iftype\":6}}")).collect();
        json_scan(&format!("\"network_device\":{{\"name\":\"s\"}},\"network_ports\":[{}]", entries.join(",")))
    };
    assert_eq!(scanned(&ports(5_001)).1.ports.unwrap().len(), 5_000);
    let supplies = |count: usize| {
        let entries: Vec<_> = (0..count).map(|n| format!("\"toner{n}\":1")).collect();
        json_scan(&format!("\"network_device\":{{\"name\":\"s\"}},\"cartridges\":{{{}}}", entries.join(",")))
    };
    assert_eq!(scanned(&supplies(101)).1.supplies.unwrap().len(), 100);
    let addressed = |count: usize| {
        let entries: Vec<_> = (0..count).map(|n| format!("{{\"ifname\":\"{n}\",\"ips\":[\"192.0.2.1\"]}}")).collect();
        json_scan(&format!("\"network_device\":{{\"name\":\"s\"}},\"network_ports\":[{}]", entries.join(",")))
    };
    assert_eq!(scanned(&addressed(1_001)).0.network.unwrap().nics.len(), 1_000);
    let ips: Vec<_> = (0..101).map(|n| format!("\"10.0.0.{n}\"")).collect();
    let ips = json_scan(&format!(
        "\"network_device\":{{\"name\":\"s\"}},\"network_ports\":{{\"ifname\":\"1\",\"ips\":[{}]}}",
        ips.join(",")
    ));
    let devices = |count: usize| {
        let all: Vec<_> = (0..count).map(|n| format!("<DEVICE><SNMPHOSTNAME>s{n}</SNMPHOSTNAME></DEVICE>")).collect();
        xml_scan("NETDISCOVERY", &all.concat())
    };
    assert_eq!(parse_scan(&devices(500)).len(), 500);
    assert_eq!(scanned(&ips).0.network.unwrap().nics[0].ips.len(), 100);
    let refusal = parse_refusal(&devices(501));
    let detail = "The report has more than 500 entries of scanned devices.";
    assert_eq!((refusal.kind, refusal.detail.as_str()), (ReportRefusalKind::TooMany, detail));
    // Virtual interfaces without addresses are not kept, however many there are.
    let virtuals = "{\"iftype\":53,\"ifname\":\"Vl\"},".repeat(20_000);
    let body = json_scan(&format!("\"network_device\":{{\"name\":\"s\"}},\"network_ports\":[{virtuals}{{}}]"));
    assert_eq!(scanned(&body).1.ports, Some(vec![]));
}
