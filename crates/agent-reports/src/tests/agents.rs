//! Recorded messages of the three agents.

use kernel::base::Timestamp;

use super::super::{
    Agent, Codec, Cpu, DeviceType, Disk, Language, Message, Network, Nic, Os, Platform, Software, System, Volume,
    encode, facts, parse, read,
};
use super::{FUSION, GLPI, GLPI_CONTACT, GLPI_PROLOG, OCS, json, report};

#[expect(clippy::unnecessary_wraps, reason = "what is compared with is an Option")]
fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_fusioninventory_report_is_read() {
    let mut report = report(FUSION);
    assert_eq!(report.device_id, "db01-2026-11-16-12-37-21");
    assert_eq!(report.tag, some("globex"));
    assert_eq!(report.agent, Some(Agent { name: "FusionInventory-Agent".into(), version: some("2.6-3") }));
    assert!(!report.partial);
    let facts = facts(&mut report);
    assert_eq!((facts.kind, facts.platform), (Some(DeviceType::Server), Some(Platform::Linux)));
    let host = facts.host.unwrap();
    assert_eq!(host.hostname, some("db01"));
    assert_eq!(host.uuid, some("4c4c4544-0042-3310-8051-b4c04f4e3132"));
    assert_eq!(host.memory_bytes, Some(24103 * 1_048_576));
    assert_eq!(host.last_logged_user, None);
    let machine = facts.machine.unwrap();
    assert_eq!(machine.manufacturer, some("Supermicro"));
    assert_eq!(machine.model, some("SYS-1029P & more ©"));
    assert_eq!(machine.serial_number, some("S1234567"));
    assert_eq!(machine.asset_tag, None);
    let os = Os {
        name: some("Debian GNU/Linux 12 (bookworm)"),
        version: some("12.11"),
        build: None,
        kernel: some("6.1.0-44-amd64"),
        arch: some("x86_64"),
    };
    // Thirteen hours in Berlin are twelve in UTC.
    assert_eq!(facts.system, Some(System { os, last_boot_at: Some(Timestamp::from_millis(1_794_747_185_000)) }));
    assert_eq!(facts.cpu, Some(Cpu { model: some("Intel(R) Xeon(R) Silver 4110"), sockets: Some(2), cores: Some(16) }));
}

#[test]
fn a_fusioninventory_report_tells_the_parts() {
    let facts = facts(&mut report(FUSION));
    let disk = Disk {
        name: some("sda"),
        model: some("SSDSC2KB48"),
        serial: some("PHYF0001"),
        size_bytes: Some(480_103_000_000),
        interface: some("SATA"),
    };
    assert_eq!(facts.disks, Some(vec![disk]));
    let volume = Volume {
        mount: some("/"),
        device: some("/dev/sda1"),
        filesystem: some("ext4"),
        total_bytes: Some(258_019 * 1_048_576),
        free_bytes: Some(49_191 * 1_048_576),
        encrypted: None,
    };
    assert_eq!(facts.volumes, Some(vec![volume]));
    let network = facts.network.unwrap();
    assert_eq!((network.primary_ip, network.primary_mac), (some("192.0.2.7"), some("ac:1f:6b:00:00:01")));
    let names: Vec<_> = network.nics.iter().filter_map(|nic| nic.name.as_deref()).collect();
    assert_eq!(names, ["docker0", "eno2", "eno1"]);
    assert_eq!(network.nics[2].ips, ["192.0.2.7", "fe80::ae1f:6bff:fe00:1"]);
    assert_eq!(network.nics[1].mac, some("ac:1f:6b:00:00:02"));
    let software = facts.software.unwrap();
    let names: Vec<_> = software.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["adduser", "zlib1g"]);
}

#[test]
fn an_ocs_report_is_read() {
    let mut report = report(OCS);
    assert_eq!(report.tag, some("acme"));
    assert_eq!(report.agent, None);
    assert!(report.os.is_none());
    let facts = facts(&mut report);
    assert_eq!((facts.kind, facts.platform), (Some(DeviceType::Server), Some(Platform::Linux)));
    let os = facts.system.unwrap().os;
    assert_eq!((os.name, os.version), (some("Debian GNU/Linux 12 (bookworm)"), some("12")));
    assert_eq!((os.kernel, os.arch), (None, some("x86_64")));
    let cpu = facts.cpu.unwrap();
    assert_eq!((cpu.model, cpu.sockets, cpu.cores), (some("Intel(R) Xeon(R) Processor @ 2.50GHz"), Some(1), Some(2)));
    let disks = facts.disks.unwrap();
    assert_eq!(disks.len(), 1);
    assert_eq!(disks[0].size_bytes, Some(274_877_906_944));
    let nic = Nic {
        name: some("eth0"),
        mac: some("02:fc:00:00:00:01"),
        r#type: some("ethernet"),
        status: some("up"),
        ips: vec!["192.0.2.2".into(), "fe80::fc:ff:fe00:1".into()],
    };
    let network = Network { nics: vec![nic], primary_ip: some("192.0.2.2"), primary_mac: some("02:fc:00:00:00:01") };
    assert_eq!(facts.network, Some(network));
    let software = Software {
        name: "zlib1g".into(),
        version: some("1:1.2.13.dfsg-1"),
        publisher: None,
        arch: some("amd64"),
        source: some("deb"),
        installed_at: None,
    };
    assert_eq!(facts.software, Some(vec![software]));
}

#[test]
fn a_glpi_report_is_read() {
    let mut report = report(GLPI);
    assert_eq!((report.tag.as_deref(), report.item_type.as_deref()), (Some("CUST-42"), Some("Computer")));
    assert_eq!(report.agent, Some(Agent { name: "GLPI-Agent".into(), version: some("1.12-dev") }));
    let facts = facts(&mut report);
    assert_eq!((facts.kind, facts.platform), (Some(DeviceType::Virtual), Some(Platform::Linux)));
    let system = facts.system.unwrap();
    assert_eq!(system.os.kernel, some("6.1.0-44-amd64"));
    assert_eq!(system.last_boot_at, Some(Timestamp::from_millis(1_794_700_651_000)));
    assert_eq!(facts.host.unwrap().memory_bytes, Some(24104 * 1_048_576));
    let network = facts.network.unwrap();
    assert_eq!((network.primary_ip, network.primary_mac), (some("192.0.2.2"), some("02:fc:00:00:00:01")));
    assert_eq!(network.nics.len(), 3);
    assert_eq!(network.nics[2].ips, ["192.0.2.2", "fd00::2", "fe80::fc:ff:fe00:1"]);
    assert_eq!(facts.software.unwrap().len(), 25);
    assert_eq!(facts.disks.unwrap()[0].size_bytes, Some(274_877_000_000));
}

#[test]
fn a_partial_report_tells_only_its_sections() {
    let body = br#"{"action":"inventory","deviceid":"d","itemtype":"Computer","partial":true,
        "content":{"versionclient":"GLPI-Agent_v1.12","drives":{"type":"/","total":"100","free":7},"softwares":[]}}"#;
    let mut report = report(body);
    assert!(report.partial);
    let facts = facts(&mut report);
    assert_eq!(facts.volumes.unwrap()[0].free_bytes, Some(7 * 1_048_576));
    assert_eq!(facts.software, Some(vec![]));
    assert_eq!((facts.kind, facts.platform, facts.host, facts.machine), (None, None, None, None));
    assert_eq!((facts.system, facts.cpu, facts.disks, facts.network), (None, None, None, None));
}

#[test]
fn first_requests_are_told_apart() {
    let device_id = "web01-2026-11-15-00-18-42".to_owned();
    assert_eq!(parse(GLPI_PROLOG), Ok((Language::Xml, Message::Prolog { device_id: device_id.clone() })));
    let contact =
        Message::Contact { device_id, name: some("GLPI-Agent"), version: some("1.12-dev"), tag: some("CUST-42") };
    assert_eq!(parse(GLPI_CONTACT), Ok((Language::Json, contact)));
    let other = format!("<REQUEST><QUERY>{}</QUERY></REQUEST>", "SNMP".repeat(50));
    assert_eq!(parse(other.as_bytes()), Ok((Language::Xml, Message::Other("SNMP".repeat(25)))));
    let other = br#"{"action":"netdiscovery","deviceid":"d","content":[1,2]}"#;
    assert_eq!(parse(other), Ok((Language::Json, Message::Other("netdiscovery".into()))));
}

#[test]
fn a_report_is_the_same_in_every_codec() {
    for codec in [Codec::Zlib, Codec::Gzip, Codec::Plain] {
        let received = read(&encode(codec, FUSION)).unwrap();
        assert_eq!((received.codec, received.language), (codec, Language::Xml));
        assert_eq!(received.message, Message::Inventory(Box::new(report(FUSION))));
    }
}

#[test]
fn json_scalars_come_in_any_type() {
    let content = r#"{"hardware":{"name":42,"memory":"2048","vmsystem":null},"cpus":{"core":"4","name":["a"]},
        "bios":null,"networks":[{"description":"e","ipaddress":["10.0.0.1","10.0.0.2"],"status":"UP","mac":7}],
        "softwares":{"NAME":"one","version":1.5,"arch":{"nested":true}}}"#;
    let report = report(&json(content));
    let hardware = report.hardware.unwrap();
    assert_eq!((hardware.hostname, hardware.memory_bytes), (some("42"), Some(2048 * 1_048_576)));
    assert_eq!(report.cpus.unwrap()[0].cores, Some(4));
    assert!(report.bios.is_none());
    assert_eq!(report.nics.unwrap()[0].ips, ["10.0.0.1", "10.0.0.2"]);
    let software = report.software.unwrap();
    assert_eq!((software[0].name.as_str(), software[0].version.as_deref()), ("one", Some("1.5")));
}

#[test]
fn secrets_of_the_machine_do_not_get_in() {
    let told = format!("{:?}", parse(FUSION));
    assert!(!told.contains("hunter2") && !told.contains("alice"));
}
