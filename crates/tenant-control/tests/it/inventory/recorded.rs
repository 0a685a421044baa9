//! What the real agents have sent, and the devices that it makes, field by field.

use serde_json::{Value, json};

use crate::support::devices::{Body, FUSION, GLPI, OCS, only_device, reported};
use crate::support::over_http;

const FUSION_PROLOG: &[u8] = include_bytes!("samples/fusion-prolog.xml");
const FUSION_INVENTORY: &[u8] = include_bytes!("samples/fusion-inventory.xml");
const OCS_PROLOG: &[u8] = include_bytes!("samples/ocs-prolog.xml");
const OCS_INVENTORY: &[u8] = include_bytes!("samples/ocs-inventory.xml");
const GLPI_PROLOG: &[u8] = include_bytes!("samples/glpi-prolog.xml");
const GLPI_CONTACT: &[u8] = include_bytes!("samples/glpi-contact.json");
const GLPI_INVENTORY: &[u8] = include_bytes!("samples/glpi-inventory.json");
const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";

const MIB: i64 = 1 << 20;
const NOW: &str = "2026-01-15T10:00:00.000Z";

/// All that is the same for each: they describe machines of one kind.
fn expected(own: Value) -> Value {
    let mut device = json!({
        "display_name": null, "platform": "linux", "status": "online", "health": "healthy", "organization_id": null,
        "manufacturer": null, "model": null, "serial_number": null, "asset_tag": null, "uuid": null,
        "primary_ip": "192.0.2.2", "primary_mac": "02:fc:00:00:00:01", "last_logged_user": null, "last_boot_at": null,
        "needs_reboot": null, "firmware": null, "page_count": null, "ports": [], "supplies": [],
        "patch": {"pending": null, "failed": null, "last_installed_at": null},
        "warranty": {"start_date": null, "end_date": null, "status": "unknown"}, "tags": [], "custom_fields": {},
        "possible_duplicate_of": null, "first_seen_at": NOW, "last_seen_at": NOW, "inventory_at": NOW,
        "deleted_at": null, "version": 1, "created_at": NOW, "updated_at": NOW,
    });
    let Value::Object(own) = own else { panic!("an object") };
    device.as_object_mut().unwrap().extend(own);
    device
}

/// The device without what differs from run to run, and without its software, of which only these are kept.
fn shown(mut device: Value, software: &[&str]) -> Value {
    let fields = device.as_object_mut().unwrap();
    fields.remove("id");
    fields.remove("history");
    let kept = |one: &Value| software.contains(&one["name"].as_str().unwrap());
    fields["software"].as_array_mut().unwrap().retain(kept);
    device
}

fn nic(name: &str, mac: &str, kind: Option<&str>, status: &str, ips: &[&str]) -> Value {
    json!({"name": name, "mac": mac, "type": kind, "status": status, "ips": ips})
}

fn package(name: &str, version: &str, publisher: &str, arch: &str) -> Value {
    json!({
        "name": name, "version": version, "publisher": publisher, "arch": arch, "source": "deb", "installed_at": null,
    })
}

const ZLIB: &str = "1:1.2.13.dfsg-1";

over_http! {
    async fn a_recorded_fusioninventory_report_becomes_a_device(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &Body::new(FUSION, FUSION_PROLOG)).await;
        reported(&server, &key, &Body::new(FUSION, FUSION_INVENTORY)).await;
        let device = only_device(&server, &acme.admin).await;
        let actor = json!({"type": "system", "id": key.id, "name": format!("Ingest key {}", key.id)});
        let begun = json!({"at": NOW, "actor": actor, "changes": {"status": {"from": null, "to": "online"}}});
        assert_eq!(device["history"], json!([begun]));
        assert_eq!(device["software"].as_array().unwrap().len(), 7);
        assert_eq!(shown(device, &["adduser", "zlib1g"]), expected(json!({
            "hostname": "vm", "type": "virtual",
            "os": {
                "name": "Debian GNU/Linux 12 (bookworm)", "version": "12.11", "build": null,
                "kernel": "6.1.0-44-amd64", "arch": "x86_64",
            },
            "cpu": {"model": "Intel(R) Xeon(R) Processor @ 2.50GHz", "sockets": 1, "cores": 2},
            "memory_bytes": 24_103 * MIB, "last_boot_at": "2026-11-15T13:53:06.000Z",
            "agent": {"name": "FusionInventory-Agent", "version": "2.6-3", "device_id": "vm-2026-11-16-12-35-31", "tag": "acme"},
            "disks": [{
                "name": "vda", "model": null, "serial": "overlayblk", "size_bytes": 274_877_000_000_i64, "interface": null,
            }],
            "volumes": [{
                "mount": "/", "device": "/dev/vda", "filesystem": "ext4", "total_bytes": 258_019 * MIB,
                "free_bytes": 49_213 * MIB, "encrypted": null,
            }],
            "nics": [
                nic("ifb0", "82:f8:13:ee:c9:7b", None, "down", &[]),
                nic("ifb1", "02:20:c9:37:7d:85", None, "down", &[]),
                nic("eth0", "02:fc:00:00:00:01", Some("ethernet"), "up", &["192.0.2.2", "fd00::2", "fe80::fc:ff:fe00:1"]),
            ],
            "software": [package("adduser", "3.134", "Debian", "all"), package("zlib1g", ZLIB, "Debian", "amd64")],
        })));
    }

    async fn a_recorded_ocs_report_becomes_a_device(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &Body::new(OCS, OCS_PROLOG)).await;
        reported(&server, &key, &Body::new(OCS, OCS_INVENTORY)).await;
        let device = only_device(&server, &acme.admin).await;
        assert_eq!(device["software"].as_array().unwrap().len(), 7);
        assert_eq!(shown(device, &["zlib1g"]), expected(json!({
            "hostname": "vm", "type": "server",
            "os": {
                "name": "Debian GNU/Linux 12 (bookworm)", "version": "12", "build": null, "kernel": null,
                "arch": "x86_64",
            },
            "cpu": {"model": "Intel(R) Xeon(R) Processor @ 2.50GHz", "sockets": 1, "cores": 2},
            "memory_bytes": 24_103 * MIB,
            "agent": {"name": "OCS-NG_unified_unix_agent", "version": "2.10.0", "device_id": "vm-2026-11-16-12-35-32", "tag": "acme"},
            "disks": [{
                "name": "vda", "model": null, "serial": null, "size_bytes": 274_877_906_944_i64, "interface": null,
            }],
            "volumes": [{
                "mount": "/", "device": "/dev/vda", "filesystem": "ext4", "total_bytes": 258_019 * MIB,
                "free_bytes": 49_213 * MIB, "encrypted": null,
            }],
            "nics": [
                nic("ifb0", "82:f8:13:ee:c9:7b", Some("ethernet"), "down", &[]),
                nic("ifb1", "02:20:c9:37:7d:85", Some("ethernet"), "down", &[]),
                nic("eth0", "02:fc:00:00:00:01", Some("ethernet"), "up", &["192.0.2.2", "fe80::fc:ff:fe00:1"]),
            ],
            "software": [package("zlib1g", ZLIB, "http://zlib.net/", "amd64")],
        })));
    }

    async fn a_recorded_glpi_exchange_becomes_a_device(server: Server) {
        let acme = server.tenant("acme").await;
        let (customer, _) = server.bound_ingest_key(&acme, "cust-42").await;
        let key = server.ingest_key(&acme).await;
        for body in [GLPI_PROLOG, GLPI_CONTACT, GLPI_INVENTORY] {
            reported(&server, &key, &Body::new(GLPI, body).agent_id(AGENT_ID)).await;
        }
        let device = only_device(&server, &acme.admin).await;
        assert_eq!(device["software"].as_array().unwrap().len(), 25);
        assert_eq!(shown(device, &["adduser"]), expected(json!({
            "hostname": "web01", "type": "virtual", "organization_id": customer,
            "os": {
                "name": "Debian GNU/Linux 12 (bookworm)", "version": "12.11", "build": null,
                "kernel": "6.1.0-44-amd64", "arch": "x86_64",
            },
            "cpu": {"model": "Intel(R) Xeon(R) Processor", "sockets": 1, "cores": 2},
            "memory_bytes": 24_104 * MIB, "last_boot_at": "2026-11-14T23:57:31.000Z",
            "agent": {"name": "GLPI-Agent", "version": "1.12-dev", "device_id": "web01-2026-11-15-00-18-42", "tag": "CUST-42"},
            "disks": [{
                "name": "vda", "model": null, "serial": "overlayblk", "size_bytes": 274_877_000_000_i64, "interface": null,
            }],
            "volumes": [{
                "mount": "/", "device": "/dev/vda", "filesystem": "ext4", "total_bytes": 258_019 * MIB,
                "free_bytes": 67_825 * MIB, "encrypted": null,
            }],
            "nics": [
                nic("ifb0", "0a:d3:70:b8:00:9f", None, "down", &[]),
                nic("ifb1", "a2:43:3c:7b:76:86", None, "down", &[]),
                nic("eth0", "02:fc:00:00:00:01", Some("ethernet"), "up", &["192.0.2.2", "fd00::2", "fe80::fc:ff:fe00:1"]),
            ],
            "software": [package("adduser", "3.134", "Debian", "all")],
        })));
    }

    async fn two_agents_of_one_machine_make_one_device_and_take_nothing_from_each_other(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &Body::new(FUSION, FUSION_INVENTORY)).await;
        reported(&server, &key, &Body::new(OCS, OCS_INVENTORY)).await;
        let device = only_device(&server, &acme.admin).await;
        assert_eq!((&device["os"]["kernel"], &device["os"]["version"]), (&json!("6.1.0-44-amd64"), &json!("12")));
        assert_eq!(device["last_boot_at"], "2026-11-15T13:53:06.000Z");
        assert_eq!(device["agent"]["name"], "OCS-NG_unified_unix_agent");
        reported(&server, &key, &Body::new(FUSION, FUSION_INVENTORY)).await;
        let again = only_device(&server, &acme.admin).await;
        assert_eq!(again["os"]["version"], "12.11");
        assert_eq!(again["software"].as_array().unwrap().len(), 7);
    }
}
