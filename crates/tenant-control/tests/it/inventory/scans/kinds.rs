//! Each kind of device, as the samples describe it, and how the agent is answered.

use serde_json::{Value, json};

use super::{
    ACCESS_POINT, ESX_JSON, ESX_XML, FIREWALL, INK_MULTIFUNCTION, LABEL_PRINTER, LASER_PRINTER, NAS, ROUTER, STACK,
    SWITCH, UPS, changed, injected, message, only_after, switch, whole,
};
use crate::inventory::{all, each, id};
use crate::support::devices::{Body, Codec, GLPI, INGEST, device, report, reported};
use crate::support::over_http;

const NOW: &str = "2026-01-15T10:00:00.000Z";
const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";
const OK_XML: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<REPLY></REPLY>\n";

fn port(name: &str, mac: &str, status: &str, speed_bps: Option<i64>, vlan: Option<i64>) -> Value {
    json!({"name": name, "mac": mac, "status": status, "speed_bps": speed_bps, "vlan": vlan})
}

over_http! {
    async fn a_switch_is_a_network_device_with_its_ports(server: Server) {
        let (acme, switch) = only_after(&server, "acme", &[injected(SWITCH)]).await;
        let mut shown = device(&server, &acme.admin, id(&switch)).await;
        let fields = shown.as_object_mut().unwrap();
        fields.remove("id");
        fields.remove("history");
        let lists = json!({
            "disks": [], "volumes": [], "software": [], "supplies": [],
            "nics": [
                {"name": "ve20", "mac": "d4:c1:9e:00:10:00", "type": "vlan", "status": "up", "ips": ["192.0.2.11"]},
                {"name": "lb1", "mac": null, "type": "loopback", "status": "up", "ips": ["10.10.0.1"]},
            ],
            "ports": [
                port("1/1/1", "d4:c1:9e:00:10:01", "up", Some(1_000_000_000), Some(20)),
                port("1/1/2", "d4:c1:9e:00:10:02", "down", None, Some(20)),
                port("1/1/3", "d4:c1:9e:00:10:03", "down", Some(10_000_000), None),
                port("1/3/1", "d4:c1:9e:00:10:41", "up", Some(10_000_000_000), None),
            ],
        });
        for (name, list) in lists.as_object().unwrap() {
            assert_eq!(fields.remove(name).as_ref(), Some(list), "{name}");
        }
        assert_eq!(shown, json!({
            "hostname": "sw-floor1.acme.test", "display_name": null, "type": "network", "platform": "other",
            "os": {"name": null, "version": null, "build": null, "kernel": null, "arch": null},
            "status": "online", "health": "healthy", "organization_id": null, "manufacturer": "Ruckus", "model": "ICX7150-24",
            "serial_number": "FEK3210Q01A", "asset_tag": null, "uuid": null, "cpu": {"model": null, "sockets": null, "cores": null},
            "memory_bytes": 1_024_i64 << 20, "firmware": "08.0.95g", "page_count": null, "primary_ip": "192.0.2.11",
            "primary_mac": "d4:c1:9e:00:10:00", "last_logged_user": null, "last_boot_at": null, "needs_reboot": null,
            "patch": {"pending": null, "failed": null, "last_installed_at": null},
            "warranty": {"start_date": null, "end_date": null, "status": "unknown"},
            "agent": {"name": "GLPI-Agent", "version": "1.12", "device_id": null, "tag": null}, "tags": [], "custom_fields": {},
            "possible_duplicate_of": null, "first_seen_at": NOW, "last_seen_at": NOW, "inventory_at": NOW, "deleted_at": null,
            "version": 1, "created_at": NOW, "updated_at": NOW,
        }));
    }

    async fn every_kind_becomes_a_device_of_its_own(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let samples = [
            SWITCH, STACK, ACCESS_POINT, ROUTER, FIREWALL, LASER_PRINTER, INK_MULTIFUNCTION, LABEL_PRINTER, UPS, NAS, ESX_JSON, ESX_XML,
        ];
        // Twice, by the same agent: the second time nothing is new.
        for _ in 0..2 {
            for sample in samples {
                reported(&server, &key, &injected(sample).agent_id(AGENT_ID)).await;
            }
        }
        let all = whole(&server, &acme).await;
        let line = |device: &Value| {
            let fields = ["hostname", "type", "serial_number", "firmware", "page_count", "primary_ip", "health"];
            let lists = ["ports", "supplies", "volumes", "disks"];
            let mut line: Vec<Value> = fields.iter().map(|field| device[*field].clone()).collect();
            line.extend(lists.iter().map(|list| json!(device[*list].as_array().unwrap().len())));
            assert_eq!(device["version"], 1, "{device:#}");
            json!(line)
        };
        let (needs, healthy, none) = (json!("needs_attention"), json!("healthy"), Value::Null);
        assert_eq!(all.iter().map(line).collect::<Vec<_>>(), [
            json!(["sw-floor1.acme.test", "network", "FEK3210Q01A", "08.0.95g", none, "192.0.2.11", healthy, 4, 0, 0, 0]),
            json!(["stack-main", "network", "FCW2301A0B1", "17.09.04a", none, "198.51.100.2", healthy, 2, 0, 0, 0]),
            json!(["ap-hall", "network", "e43883000040", "6.6.65", none, "192.0.2.21", healthy, 3, 0, 0, 0]),
            json!(["rt-branch", "network", "1100310031", "7.4.2", none, "192.0.2.31", healthy, 3, 0, 0, 0]),
            json!(["fw-edge", "network", "FG100FTK20000001", "v7.2.8,build1639,240313 (GA)", none, "203.0.113.9", healthy, 3, 0, 0, 0]),
            json!(["prn-floor2", "printer", "R7K0X00041", "2VC_2000.002.412", 94_344, "192.0.2.41", needs, 1, 7, 0, 0]),
            json!(["mfp-sales", "printer", "X3BC000042", "LB13N8", 4_711, "192.0.2.42", needs, 1, 7, 0, 0]),
            json!(["ZBR43000043", "printer", "18J200000043", "V92.21.26Z", none, "192.0.2.43", healthy, 0, 0, 0, 0]),
            json!(["ups-rack2", "network", "AS2051000051", "UPS 09.8 (ID18)", none, "192.0.2.51", healthy, 0, 0, 0, 0]),
            json!(["nas1", "network", "21A0SBR000052", "DSM 7.2-64570", none, "192.0.2.52", needs, 0, 0, 2, 1]),
            json!(["esx1", "server", "7XK2P61", none, none, "192.0.2.61", healthy, 0, 0, 1, 1]),
            json!(["esx2", "server", "CZJ9400062", none, none, "192.0.2.62", healthy, 0, 0, 0, 0]),
        ]);
        assert!(each(&all, "agent").iter().all(|agent| agent["device_id"].is_null()));
        assert_eq!(all[5]["supplies"][2], json!({"name": "tonerblack", "level_percent": 9}));
        assert_eq!(all[5]["supplies"][6], json!({"name": "wastetoner", "level_percent": null}));
    }

    async fn agents_are_answered_in_their_format(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        for codec in Codec::ALL {
            assert_eq!(reported(&server, &key, &injected(STACK).packed(codec)).await, OK_XML);
            // One that could speak JSON sends scans in XML, and reads XML.
            assert_eq!(reported(&server, &key, &injected(STACK).packed(codec).agent_id(AGENT_ID)).await, OK_XML);
            let said = reported(&server, &key, &injected(SWITCH).packed(codec)).await;
            assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), json!({"status": "ok", "expiration": 24}));
        }
        // As the tool that sends files writes it.
        let call = server.post(INGEST).header("authorization", key.basic()).header("user-agent", "GLPI-Injector");
        call.header("content-type", "Application/x-compress-zlib").body(Codec::Zlib.pack(UPS)).await.is(200);
        assert_eq!(all(&server, &acme).await.len(), 3);
    }

    async fn messages_about_a_scan_are_taken_and_make_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        for query in ["NETDISCOVERY", "SNMPQUERY"] {
            for agent in ["<START>1</START><AGENTVERSION>1.12</AGENTVERSION>", "<NBIP>254</NBIP>", "<END>1</END>", "<EXIT>1</EXIT>"] {
                assert_eq!(reported(&server, &key, &message(query, &format!("<AGENT>{agent}</AGENT>"))).await, OK_XML);
            }
        }
        let failed = "<DEVICE><ERROR><ID>7</ID><MESSAGE>no response</MESSAGE><TYPE>PRINTER</TYPE></ERROR></DEVICE>";
        reported(&server, &key, &message("SNMPQUERY", failed)).await;
        let ping = "<DEVICE><DNSHOSTNAME>192.0.2.199</DNSHOSTNAME><IP>192.0.2.199</IP></DEVICE>";
        reported(&server, &key, &message("NETDISCOVERY", ping)).await;
        for action in ["netdiscovery", "netinventory"] {
            let about = json!({"action": action, "deviceid": "scanner", "jobid": 7, "content": {"versionclient": "6.4"}});
            let said = reported(&server, &key, &Body::new(GLPI, about.to_string())).await;
            assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["status"], "ok");
        }
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new());
    }

    async fn a_wrong_scan_is_refused_and_changes_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let nobody = "<DEVICE><INFO><TYPE>PRINTER</TYPE></INFO></DEVICE>";
        for body in [
            message("SNMPQUERY", &[nobody, nobody].concat()),
            changed(SWITCH, "\"network_ports\": [", "\"network_ports\": [7, "),
            changed(SWITCH, "\"network_device\": {", "\"network_device\": [[{"),
            injected(&SWITCH[..SWITCH.len() / 2]),
        ] {
            let call = report(&server, &key, &body).await;
            call.problem("malformed_report");
            let told = report(&server, &key, &body.agent_id(AGENT_ID)).await;
            assert_eq!(told.ok(400)["status"], "error");
        }
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new());
        // One that nobody knows does not take the others with it.
        reported(&server, &key, &message("SNMPQUERY", &format!("{nobody}{}", switch(1)))).await;
        assert_eq!(each(&all(&server, &acme).await, "hostname"), [&json!("sw1")]);
    }

    async fn what_a_device_has_beyond_the_limits_is_left_out(server: Server) {
        let ports: Vec<Value> = (0..5_001).map(|n| json!({"ifnumber": n, "iftype": 6})).collect();
        let content = json!({"network_device": {"name": "chassis-1", "serial": "XQ77-50"}, "network_ports": ports});
        let body = json!({"action": "netinventory", "deviceid": "d", "content": content});
        let (_, found) = only_after(&server, "acme", &[injected(body.to_string())]).await;
        assert_eq!(found["ports"].as_array().unwrap().len(), 5_000);
    }
}
