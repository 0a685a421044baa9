//! Recorded messages of the three agents.

use kernel::base::Timestamp;

use super::super::{
    AgentInfo, AgentMessage, Codec, Cpu, DeviceType, DeviceTypeFact, Disk, MessageFormat, NetworkFacts, Nic, Os,
    Platform, Software, SystemFacts, Volume, encode_answer, extract_facts, parse_message,
};
use super::{FUSION, GLPI, GLPI_CONTACT, GLPI_PROLOG, OCS, json_inventory, parse_report, read_body};

#[expect(clippy::unnecessary_wraps, reason = "what is compared with is an Option")]
fn some_text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_fusioninventory_report_is_read() {
    let mut report = parse_report(FUSION);
    assert_eq!(report.device_id, some_text("db01-2026-11-16-12-37-21"));
    assert_eq!(report.tag, some_text("globex"));
    assert_eq!(report.agent, Some(AgentInfo { name: "FusionInventory-Agent".into(), version: some_text("2.6-3") }));
    assert!(!report.partial);
    let facts = extract_facts(&mut report);
    assert_eq!(
        (facts.device_type, facts.platform),
        (Some(DeviceTypeFact::Told(DeviceType::Server)), Some(Platform::Linux))
    );
    let host = facts.host.unwrap();
    assert_eq!(host.hostname, some_text("db01"));
    assert_eq!(host.uuid, some_text("4c4c4544-0042-3310-8051-b4c04f4e3132"));
    assert_eq!(host.memory_bytes, Some(24103 * 1_048_576));
    assert_eq!(host.last_logged_user, None);
    let machine = facts.machine.unwrap();
    assert_eq!(machine.manufacturer, some_text("Supermicro"));
    assert_eq!(machine.model, some_text("SYS-1029P & more ©"));
    assert_eq!(machine.serial_number, some_text("S1234567"));
    assert_eq!(machine.asset_tag, None);
    let os = Os {
        name: some_text("Debian GNU/Linux 12 (bookworm)"),
        version: some_text("12.11"),
        build: None,
        kernel: some_text("6.1.0-44-amd64"),
        arch: some_text("x86_64"),
    };
    // Thirteen hours in Berlin are twelve in UTC.
    assert_eq!(
        facts.system,
        Some(SystemFacts { os, guessed_build: None, last_boot_at: Some(Timestamp::from_millis(1_794_747_185_000)) })
    );
    assert_eq!(
        facts.cpu,
        Some(Cpu { model: some_text("Intel(R) Xeon(R) Silver 4110"), sockets: Some(2), cores: Some(16) })
    );
}

#[test]
fn a_fusioninventory_report_tells_the_parts() {
    let facts = extract_facts(&mut parse_report(FUSION));
    let disk = Disk {
        name: some_text("sda"),
        model: some_text("SSDSC2KB48"),
        serial: some_text("PHYF0001"),
        size_bytes: Some(480_103_000_000),
        interface: some_text("SATA"),
    };
    assert_eq!(facts.disks, Some(vec![disk]));
    let volume = Volume {
        mount: some_text("/"),
        device: some_text("/dev/sda1"),
        filesystem: some_text("ext4"),
        total_bytes: Some(258_019 * 1_048_576),
        free_bytes: Some(49_191 * 1_048_576),
        encrypted: None,
    };
    assert_eq!(facts.volumes, Some(vec![volume]));
    let network = facts.network.unwrap();
    assert_eq!((network.primary_ip, network.primary_mac), (some_text("192.0.2.7"), some_text("ac:1f:6b:00:00:01")));
    let names: Vec<_> = network.nics.iter().filter_map(|nic| nic.name.as_deref()).collect();
    assert_eq!(names, ["docker0", "eno2", "eno1"]);
    assert_eq!(network.nics[2].ips, ["192.0.2.7", "fe80::ae1f:6bff:fe00:1"]);
    assert_eq!(network.nics[1].mac, some_text("ac:1f:6b:00:00:02"));
    let software = facts.software.unwrap();
    let names: Vec<_> = software.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["adduser", "zlib1g"]);
}

#[test]
fn an_ocs_report_is_read() {
    let mut report = parse_report(OCS);
    assert_eq!(report.tag, some_text("acme"));
    assert_eq!(report.agent, None);
    assert!(report.os.is_none());
    let facts = extract_facts(&mut report);
    assert_eq!(
        (facts.device_type, facts.platform),
        (Some(DeviceTypeFact::Guessed(DeviceType::Server)), Some(Platform::Linux))
    );
    let os = facts.system.unwrap().os;
    assert_eq!((os.name, os.version), (some_text("Debian GNU/Linux 12 (bookworm)"), some_text("12")));
    assert_eq!((os.kernel, os.arch), (None, some_text("x86_64")));
    let cpu = facts.cpu.unwrap();
    assert_eq!(
        (cpu.model, cpu.sockets, cpu.cores),
        (some_text("Intel(R) Xeon(R) Processor @ 2.50GHz"), Some(1), Some(2))
    );
    let disks = facts.disks.unwrap();
    assert_eq!(disks.len(), 1);
    assert_eq!(disks[0].size_bytes, Some(274_877_906_944));
    let nic = Nic {
        name: some_text("eth0"),
        mac: some_text("02:fc:00:00:00:01"),
        r#type: some_text("ethernet"),
        status: some_text("up"),
        ips: vec!["192.0.2.2".into(), "fe80::fc:ff:fe00:1".into()],
    };
    let network = NetworkFacts {
        nics: vec![nic],
        primary_ip: some_text("192.0.2.2"),
        primary_mac: some_text("02:fc:00:00:00:01"),
    };
    assert_eq!(facts.network, Some(network));
    let software = Software {
        name: "zlib1g".into(),
        version: some_text("1:1.2.13.dfsg-1"),
        publisher: None,
        arch: some_text("amd64"),
        source: some_text("deb"),
        installed_at: None,
    };
    assert_eq!(facts.software, Some(vec![software]));
}

#[test]
fn a_glpi_report_is_read() {
    let mut report = parse_report(GLPI);
    assert_eq!((report.tag.as_deref(), report.item_type.as_deref()), (Some("CUST-42"), Some("Computer")));
    assert_eq!(report.agent, Some(AgentInfo { name: "GLPI-Agent".into(), version: some_text("1.12-dev") }));
    let facts = extract_facts(&mut report);
    assert_eq!(
        (facts.device_type, facts.platform),
        (Some(DeviceTypeFact::Told(DeviceType::Virtual)), Some(Platform::Linux))
    );
    let system = facts.system.unwrap();
    assert_eq!(system.os.kernel, some_text("6.1.0-44-amd64"));
    assert_eq!(system.last_boot_at, Some(Timestamp::from_millis(1_794_700_651_000)));
    assert_eq!(facts.host.unwrap().memory_bytes, Some(24104 * 1_048_576));
    let network = facts.network.unwrap();
    assert_eq!((network.primary_ip, network.primary_mac), (some_text("192.0.2.2"), some_text("02:fc:00:00:00:01")));
    assert_eq!(network.nics.len(), 3);
    assert_eq!(network.nics[2].ips, ["192.0.2.2", "fd00::2", "fe80::fc:ff:fe00:1"]);
    assert_eq!(facts.software.unwrap().len(), 25);
    assert_eq!(facts.disks.unwrap()[0].size_bytes, Some(274_877_000_000));
}

#[test]
fn a_partial_report_tells_only_its_sections() {
    let body = br#"{"action":"inventory","deviceid":"d","itemtype":"Computer","partial":true,
        "content":{"versionclient":"GLPI-Agent_v1.12","drives":{"type":"/","total":"100","free":7},"softwares":[]}}"#;
    let mut report = parse_report(body);
    assert!(report.partial);
    let facts = extract_facts(&mut report);
    assert_eq!(facts.volumes.unwrap()[0].free_bytes, Some(7 * 1_048_576));
    assert_eq!(facts.software, Some(vec![]));
    assert_eq!((facts.device_type, facts.platform, facts.host, facts.machine), (None, None, None, None));
    assert_eq!((facts.system, facts.cpu, facts.disks, facts.network), (None, None, None, None));
}

#[test]
fn first_requests_are_told_apart() {
    let device_id = "web01-2026-11-15-00-18-42".to_owned();
    let contact = || AgentMessage::Contact { device_id: device_id.clone() };
    assert_eq!(parse_message(GLPI_PROLOG), Ok((MessageFormat::Xml, contact())));
    assert_eq!(parse_message(GLPI_CONTACT), Ok((MessageFormat::Json, contact())));
    let other = format!("<REQUEST><QUERY>{}</QUERY></REQUEST>", "SNMP".repeat(50));
    assert_eq!(parse_message(other.as_bytes()), Ok((MessageFormat::Xml, AgentMessage::Other("SNMP".repeat(25)))));
    let other = br#"{"action":"deploy","deviceid":"d","content":[1,2]}"#;
    assert_eq!(parse_message(other), Ok((MessageFormat::Json, AgentMessage::Other("deploy".into()))));
}

#[test]
fn a_report_is_the_same_in_every_codec() {
    for codec in [Codec::Zlib, Codec::Gzip, Codec::Plain] {
        let expected = (codec, MessageFormat::Xml, AgentMessage::Inventory(Box::new(parse_report(FUSION))));
        assert_eq!(read_body(&encode_answer(codec, FUSION)), Ok(expected));
    }
}

#[test]
fn json_scalars_come_in_any_type() {
    let content = r#"{"hardware":{"name":42,"memory":"2048","vmsystem":null},"cpus":{"core":"4","name":["a"]},
        "bios":null,"networks":[{"description":"e","ipaddress":["10.0.0.1","10.0.0.2"],"status":"UP","mac":7}],
        "softwares":{"NAME":"one","version":1.5,"arch":{"nested":true}}}"#;
    let report = parse_report(&json_inventory(content));
    let hardware = report.hardware.unwrap();
    assert_eq!((hardware.hostname, hardware.memory_bytes), (some_text("42"), Some(2048 * 1_048_576)));
    assert_eq!(report.cpus.unwrap()[0].cores, Some(4));
    assert!(report.bios.is_none());
    assert_eq!(report.nics.unwrap()[0].ips, ["10.0.0.1", "10.0.0.2"]);
    let software = report.software.unwrap();
    assert_eq!((software[0].name.as_str(), software[0].version.as_deref()), ("one", Some("1.5")));
}

#[test]
fn secrets_of_the_machine_do_not_get_in() {
    let printed = format!("{:?}", parse_message(FUSION));
    assert!(!printed.contains("hunter2") && !printed.contains("alice"));
}
