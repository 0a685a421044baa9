//! Units, identities, kinds and answers.

use super::super::text::{clean_label, parse_day_ms, parse_local_time_ms, parse_number, parse_size};
use super::super::{
    AgentInfo, DeviceType, DeviceTypeFact, Platform, compact_mac, extract_facts, json_contact, json_error, json_ok,
    maker_name, parse_message, real_label, real_mac, real_serial, real_uuid, swap_uuid_byte_order, xml_inventory_for,
    xml_prolog,
};
use super::{json_inventory, parse_report, xml_inventory};

#[test]
fn values_are_read_leniently() {
    assert_eq!(clean_label(" a\tb\u{0}\u{85}c \n"), Some("a bc".into()));
    assert_eq!((clean_label(" \u{1} "), clean_label("Â©")), (None, Some("Â©".into())));
    assert_eq!(
        (parse_number("42"), parse_number(" 2500 MHz"), parse_number("-1"), parse_number("x"), parse_number("")),
        (Some(42), Some(2500), None, None, None)
    );
    assert_eq!(parse_number("99999999999999999999"), None);
    assert_eq!(parse_size("1.5", 1_000_000), Some(1_500_000));
    assert_eq!(parse_size("274877.906944", 1_000_000), Some(274_877_906_944));
    assert_eq!(parse_size("9223372036854775807", 1_048_576), None);
    assert_eq!(parse_size("1.99999999999999999999", 1), Some(1));
}

#[test]
fn days_and_times_are_read() {
    let day = Some(1_745_107_200_000);
    for value in
        ["20/04/2025", "2025-04-20", "20250420", "20250420123456", "2025/04/20", "2025-04-20 12:00:00", "20.04.2025"]
    {
        assert_eq!(parse_day_ms(value), day, "{value}");
    }
    for value in [
        "",
        "2025/04/20 00:00:00",
        "1970-00-01",
        "01/01/1970",
        "31/02/2025",
        "tomorrow",
        "2025",
        "é025/04/20",
        "999999999999999999",
    ] {
        assert_eq!(parse_day_ms(value), None, "{value}");
    }
    assert_eq!(parse_local_time_ms("2026-11-14 23:57:31", None), Some(1_794_700_651_000));
    assert_eq!(parse_local_time_ms("2026-11-15 01:57:31", Some("+0200")), Some(1_794_700_651_000));
    assert_eq!(parse_local_time_ms("2026-11-14 18:27:31", Some("-05:30")), Some(1_794_700_651_000));
    assert_eq!(parse_local_time_ms("2026-11-14 18:27:31", Some("Berlin")), None);
    assert_eq!(parse_local_time_ms("yesterday", None), None);
}

#[test]
fn placeholders_count_for_nothing() {
    for value in [
        "",
        " ",
        "0",
        "00000000",
        "...",
        "-",
        "None",
        "N/A",
        "To Be Filled By O.E.M.",
        "to be filled by o.e.m",
        "Default string",
        "Not Specified",
        "System Serial Number",
        "Chassis Serial Number",
        "INVALID",
        "123456789",
        "XXXXXXXX",
        "O.E.M.",
        "Not  Applicable",
        "....0000",
        "Unknown",
        "12345",
        "SYS-1234567890",
        "SYS-9876543210",
        "SN-12345",
        "123456789000",
        "(null string)",
        "$(DEFAULT_STRING)",
        "Default_string",
        "Serial Number xxxxxx",
        "OEM_Serial",
    ] {
        assert_eq!(real_serial(value), None, "{value}");
    }
    for value in ["7XK2P13", "PF0ABCDE", "5CG1234567", "MJ012345", "190100", "2UA9012345", "SGH123X456"] {
        assert_eq!(real_serial(value), Some(value));
    }
    for (one, other) in [
        ("Dell Inc.", "Dell"),
        ("Hewlett-Packard", "HP"),
        ("HP Inc.", "hp"),
        ("ASUSTeK COMPUTER INC.", "Asus"),
        ("Micro-Star International Co., Ltd.", "MSI"),
        ("LENOVO", "Lenovo"),
        ("Microsoft Corporation", "Microsoft"),
    ] {
        assert_eq!(maker_name(one), maker_name(other), "{one}");
    }
    assert_ne!(maker_name("HP"), maker_name("Hewlett Packard Enterprise"));
    assert_eq!((maker_name("To be filled by O.E.M."), maker_name("Co.")), (None, Some("co".to_owned())));
    assert_eq!(real_serial(" CZC1234567 "), Some("CZC1234567"));
    assert_eq!(real_serial("VMware-56 4d 5a"), Some("VMware-56 4d 5a"));
    assert_eq!((real_label("System Product Name"), real_label("X1")), (None, Some("X1")));
    for value in [
        "",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "12345678-1234-5678-90AB-CDDEEFAABBCC",
        "FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE",
        "01234567-89AB-CDEF-0123-456789ABCDEF",
        "6AB5B300-538D-1014-9FB5-B0684D007B53",
        "01010101-0101-0101-0101-010101010101",
        "Not Settable",
        "1234",
    ] {
        assert_eq!(real_uuid(value), None, "{value}");
    }
    for value in [
        "",
        "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff",
        "01:00:5e:00:00:01",
        "02:42:ac:11:00:02",
        "00:50:56:C0:00:08",
        "00:50:56:c0:00:01",
        "00:ff:12:34:56:78",
        "20:41:53:59:4e:ff",
        "33:50:6f:45:30:30",
        "00:00:0c:07:ac:01",
        "00:00:0c:9f:f0:01",
        "00:23:04:ee:be:02",
        "00:09:0f:09:00:02",
        "nonsense",
        "00:11:22",
    ] {
        assert_eq!(real_mac(value), None, "{value}");
    }
    assert_eq!(real_mac("AC1F.6B00.0001").as_deref(), Some("ac:1f:6b:00:00:01"));
    // Assigned by a hypervisor, but unique to the machine.
    assert_eq!(real_mac("02:fc:00:00:00:01").as_deref(), Some("02:fc:00:00:00:01"));
}

#[test]
fn a_hardware_address_is_the_same_in_every_notation() {
    for text in ["02:FC:00:00:00:01", "02-fc-00-00-00-01", "02fc.0000.0001", "02fc00000001"] {
        assert_eq!(compact_mac(text).as_deref(), Some("02fc00000001"), "{text}");
    }
    assert_eq!(compact_mac("02-FC").as_deref(), Some("02fc"));
    assert_eq!((compact_mac("web01"), compact_mac("a"), compact_mac("02:fc:00:00:00:01:02")), (None, None, None));
}

#[test]
fn a_uuid_has_a_twin() {
    let uuid = real_uuid("{4C4C4544-0042-3310-8051-B4C04F4E3132}").unwrap();
    let twin = swap_uuid_byte_order(&uuid).unwrap();
    assert_eq!(twin, "44454c4c-4200-1033-8051-b4c04f4e3132");
    assert_eq!(swap_uuid_byte_order(&twin), Some(uuid));
    assert_eq!(swap_uuid_byte_order("short"), None);
    // A placeholder in the other byte order is a placeholder too.
    assert_eq!(real_uuid("78563412-3412-7856-90ab-cddeefaabbcc"), None);
}

#[test]
fn devices_are_named_by_what_they_are() {
    let kind = |hardware: &str, rest: &str| {
        let facts =
            extract_facts(&mut parse_report(&json_inventory(&format!("{{\"hardware\":{{{hardware}}}{rest}}}"))));
        (
            facts.device_type.map_or(DeviceType::Other, DeviceTypeFact::device_type),
            facts.platform.unwrap_or(Platform::Other),
        )
    };
    let windows = ",\"operatingsystem\":{\"full_name\":\"Microsoft Windows 11 Pro\",\"kernel_name\":\"MSWin32\"}";
    let windows_server = ",\"operatingsystem\":{\"full_name\":\"Microsoft Windows Server 2022\"}";
    let mac = ",\"operatingsystem\":{\"full_name\":\"macOS 14\",\"kernel_name\":\"darwin\"}";
    let linux = ",\"operatingsystem\":{\"full_name\":\"Ubuntu 24.04\",\"kernel_name\":\"linux\"}";
    let android = ",\"operatingsystem\":{\"full_name\":\"Android 14\"}";
    let tower = "\"chassis_type\":\"Mini Tower\"";
    assert_eq!(kind("\"chassis_type\":\"Notebook\"", windows), (DeviceType::Laptop, Platform::Windows));
    assert_eq!(kind(tower, windows), (DeviceType::Workstation, Platform::Windows));
    assert_eq!(kind(tower, windows_server), (DeviceType::Server, Platform::Windows));
    assert_eq!(kind(tower, linux), (DeviceType::Workstation, Platform::Linux));
    assert_eq!(kind("\"vmsystem\":\"Physical\"", linux), (DeviceType::Server, Platform::Linux));
    assert_eq!(kind("\"vmsystem\":\"VMware\"", windows), (DeviceType::Virtual, Platform::Windows));
    assert_eq!(kind("", mac), (DeviceType::Workstation, Platform::Macos));
    assert_eq!(kind("", android), (DeviceType::Mobile, Platform::Android));
    assert_eq!(kind("", ""), (DeviceType::Other, Platform::Other));
    assert_eq!(kind("", ",\"bios\":{\"smodel\":\"KVM\"}"), (DeviceType::Virtual, Platform::Other));
    let part = |hardware: &str| {
        let body = format!(
            "{{\"action\":\"inventory\",\"deviceid\":\"d\",\"partial\":true,\"content\":{{\"hardware\":{{{hardware}}}}}}}"
        );
        extract_facts(&mut parse_report(body.as_bytes())).device_type.map(DeviceTypeFact::device_type)
    };
    assert_eq!(part(tower), None, "it may be a server");
    assert_eq!(part("\"chassis_type\":\"Notebook\""), Some(DeviceType::Laptop));
    assert_eq!(part("\"chassis_type\":\"Rack Mount Chassis\""), Some(DeviceType::Server));
    assert_eq!(part("\"vmsystem\":\"VMware\""), Some(DeviceType::Virtual));
    let printer = br#"{"action":"inventory","deviceid":"d","itemtype":"Printer","content":{}}"#;
    assert_eq!(extract_facts(&mut parse_report(printer)).device_type, Some(DeviceTypeFact::Told(DeviceType::Printer)));
}

#[test]
fn a_windows_machine_has_letters_and_a_build() {
    let content = "<OPERATINGSYSTEM><FULL_NAME>Microsoft Windows 10 Pro</FULL_NAME><KERNEL_NAME>MSWin32</KERNEL_NAME>\
        <KERNEL_VERSION>10.0.19045</KERNEL_VERSION><VERSION>22H2</VERSION></OPERATINGSYSTEM>\
        <DRIVES><LETTER>C:</LETTER><TYPE>Local Disk</TYPE><VOLUMN>System</VOLUMN><TOTAL>100</TOTAL><FREE>0</FREE>\
        <ENCRYPT_NAME>BitLocker</ENCRYPT_NAME><ENCRYPT_STATUS>Yes</ENCRYPT_STATUS></DRIVES>\
        <DRIVES><LETTER>Z:</LETTER><TYPE>Network Drive</TYPE><TOTAL>100</TOTAL></DRIVES>\
        <DRIVES><LETTER>D:</LETTER><TYPE>Compact Disc</TYPE></DRIVES><SOFTWARES/>";
    let facts = extract_facts(&mut parse_report(&xml_inventory(content)));
    assert_eq!(facts.system.unwrap().guessed_build.as_deref(), Some("19045"));
    let volumes = facts.volumes.unwrap();
    assert_eq!(volumes.len(), 1);
    assert_eq!((volumes[0].mount.as_deref(), volumes[0].device.as_deref()), (Some("C:"), None));
    assert_eq!((volumes[0].free_bytes, volumes[0].encrypted), (Some(0), Some(true)));
    assert_eq!(facts.software, Some(vec![]));
}

#[test]
fn agents_are_answered_in_their_words() {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let reply = |content: &str| format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<REPLY>{content}</REPLY>\n");
    assert_eq!(text(xml_prolog(24)), reply("<RESPONSE>SEND</RESPONSE><PROLOG_FREQ>24</PROLOG_FREQ>"));
    let ocs = AgentInfo::from_label("OCS-NG_unified_unix_agent_v2.10.0").unwrap();
    assert_eq!((ocs.name.as_str(), ocs.version.as_deref()), ("OCS-NG_unified_unix_agent", Some("2.10.0")));
    assert_eq!(text(xml_inventory_for(Some(&ocs))), reply("<RESPONSE>no_account_update</RESPONSE>"));
    assert_eq!(text(xml_inventory_for(None)), reply(""));
    let value = |bytes: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
    assert_eq!(value(json_ok(6)), serde_json::json!({"status": "ok", "expiration": 6}));
    let message = "no \"way\"";
    assert_eq!(value(json_error(message)), serde_json::json!({"status": "error", "message": message}));
    let contact = value(json_contact(24));
    assert_eq!(contact["tasks"]["inventory"]["server"], "glpi");
    assert_eq!(contact["expiration"], 24);
    assert!(parse_message(&xml_prolog(24)).is_err());
}
