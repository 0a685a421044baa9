//! What the three agents are answered, in the codec that they speak, and what parts of an inventory change.

use serde_json::{Value, json};

use crate::support::Answer;
use crate::support::devices::{Agent, Body, Codec, FUSION, GLPI, INGEST, OCS, device, only_device, report, reported};
use crate::support::over_http;

use super::{all, id};

const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";
const SEND: &str = "<RESPONSE>SEND</RESPONSE><PROLOG_FREQ>24</PROLOG_FREQ>";

/// What an answer says, after a look at how it is packed: one agent knows zlib by its first two bytes.
#[track_caller]
fn said(answer: &Answer, body: &Body) -> String {
    answer.is(200);
    assert_eq!(answer.header("content-type"), body.media_type());
    let start: &[u8] = match body.codec {
        Codec::Zlib => b"\x78\x9c",
        Codec::Gzip => b"\x1f\x8b\x08",
        Codec::Plain => b"",
    };
    assert!(answer.body.starts_with(start), "{:x?}", &answer.body[..4]);
    body.codec.unpack(&answer.body)
}

fn xml(content: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<REPLY>{content}</REPLY>\n")
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

over_http! {
    async fn agents_that_speak_xml_are_answered_in_their_codec(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        for codec in Codec::ALL {
            for (user_agent, done) in [(FUSION, ""), (OCS, "<RESPONSE>no_account_update</RESPONSE>")] {
                let agent = Agent::named(&format!("{}-{codec:?}", &user_agent[..3]).to_lowercase());
                let prolog = agent.prolog(user_agent).packed(codec);
                assert_eq!(said(&report(&server, &key, &prolog).await, &prolog), xml(SEND), "{codec:?}");
                let inventory = if user_agent == OCS { agent.ocs() } else { agent.fusion() }.packed(codec);
                for _ in ["new", "unchanged"] {
                    assert_eq!(said(&report(&server, &key, &inventory).await, &inventory), xml(done), "{codec:?}");
                }
            }
        }
        assert_eq!(all(&server, &acme).await.len(), 6);
    }

    async fn an_agent_that_can_speak_json_is_led_to_it(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let ok = json!({"status": "ok", "expiration": 24});
        let tasks = json!({"inventory": {"server": "glpi", "version": "11.0"}});
        for codec in Codec::ALL {
            let agent = Agent::named(&format!("glpi-{codec:?}").to_lowercase());
            let ask = async |body: Body| {
                let body = body.packed(codec).agent_id(AGENT_ID);
                json_of(&said(&report(&server, &key, &body).await, &body))
            };
            assert_eq!(ask(agent.prolog(GLPI)).await, ok, "{codec:?}");
            assert_eq!(ask(agent.contact()).await, json!({"status": "ok", "expiration": 24, "tasks": tasks}));
            assert_eq!(ask(agent.glpi()).await, ok);
            assert_eq!(ask(agent.glpi()).await, ok, "unchanged");
            assert_eq!(ask(agent.partial(&["drives"])).await, ok);
        }
        // Without the header nothing says that it speaks JSON.
        let prolog = Agent::named("old").prolog(FUSION);
        assert_eq!(said(&report(&server, &key, &prolog).await, &prolog), xml(SEND));
        assert_eq!(all(&server, &acme).await.len(), 1, "the agent is the same, whatever its machine is called");
    }

    async fn the_first_bytes_say_how_a_body_is_packed(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let types = [
            "application/x-compress-zlib", "application/x-compress-gzip", "application/x-compress", "application/xml",
            "text/xml; charset=utf-8", "application/json", "application/octet-stream",
        ];
        for (n, media_type) in types.into_iter().enumerate() {
            for codec in Codec::ALL {
                let body = Agent::named(&format!("host-{n}")).fusion();
                let call = server.post(INGEST).header("authorization", key.basic()).header("content-type", media_type);
                let answer = call.body(codec.pack(&body.plain)).await;
                assert_eq!(codec.unpack(&answer.is(200).body), xml(""), "{media_type}");
            }
        }
        assert_eq!(all(&server, &acme).await.len(), types.len());
    }

    async fn an_agent_that_asks_for_other_tasks_is_given_none(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let query = "?action=getConfig&task[Deploy]=2.6&machineid=vm-2026-11-16-12-35-31";
        let answer = server.get(format!("{INGEST}{query}")).header("authorization", key.basic()).await;
        assert_eq!(answer.ok(200), json!({}));
        server.get(format!("{INGEST}{query}")).await.problem("unauthenticated");
    }

    async fn a_partial_inventory_changes_its_sections_and_nothing_else(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01").uuid("4c4c4544-0042-3310-8051-b4c04f4e3132").serial("7XK2P13");
        reported(&server, &key, &agent.glpi().agent_id(AGENT_ID)).await;
        let before = only_device(&server, &acme.admin).await;
        // All of it has changed, and only some of it is told.
        let mut now = Agent::named("web01").software(&[("bash", "5.3")]);
        now.memory_mib = 32_768;
        now.os_version = String::from("13");
        now.disks = vec![("nvme0n1".to_owned(), 1_000_000)];
        now.volumes = vec![("/".to_owned(), 200_000, 100_000), ("/home".to_owned(), 300_000, 200_000)];
        server.advance(1_000);
        reported(&server, &key, &now.partial(&["drives", "softwares"]).agent_id(AGENT_ID)).await;
        let after = only_device(&server, &acme.admin).await;
        let mounts: Vec<&Value> = after["volumes"].as_array().unwrap().iter().map(|volume| &volume["mount"]).collect();
        assert_eq!(mounts, ["/", "/home"]);
        assert_eq!(after["software"].as_array().unwrap().len(), 1);
        for (field, value) in before.as_object().unwrap() {
            let moved = ["volumes", "software", "version", "updated_at", "last_seen_at", "inventory_at", "history"];
            assert!(moved.contains(&field.as_str()) || after[field] == *value, "{field}: {value} is {}", after[field]);
        }
        assert_eq!((&after["version"], &after["inventory_at"]), (&json!(2), &json!("2026-01-15T10:00:01.000Z")));

        reported(&server, &key, &now.partial(&["hardware", "storages", "operatingsystem"]).agent_id(AGENT_ID)).await;
        let last = device(&server, &acme.admin, id(&after)).await;
        assert_eq!(last["memory_bytes"], 32_768_i64 << 20);
        assert_eq!((&last["os"]["version"], &last["disks"][0]["size_bytes"]), (&json!("13"), &json!(1_000_000_000_000_i64)));
        assert_eq!((&last["uuid"], &last["serial_number"]), (&before["uuid"], &before["serial_number"]), "not told is not gone");
        assert_eq!((&last["volumes"], &last["software"]), (&after["volumes"], &after["software"]));
    }

    async fn an_empty_list_of_a_partial_inventory_empties_the_list(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        reported(&server, &key, &agent.glpi()).await;
        reported(&server, &key, &agent.clone().software(&[]).partial(&["softwares"])).await;
        let device = only_device(&server, &acme.admin).await;
        assert_eq!(device["software"], json!([]));
        assert_eq!(device["disks"].as_array().unwrap().len(), 1);
    }

    async fn what_the_same_agent_no_longer_tells_is_gone(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01").serial("7XK2P13").uuid("4c4c4544-0042-3310-8051-b4c04f4e3132");
        reported(&server, &key, &agent.fusion()).await;
        (agent.serial, agent.uuid, agent.user, agent.model) = (None, None, None, None);
        reported(&server, &key, &agent.fusion()).await;
        let device = only_device(&server, &acme.admin).await;
        for field in ["serial_number", "uuid", "last_logged_user", "model"] {
            assert_eq!(device[field], Value::Null, "{field}");
        }
        assert_eq!(device["manufacturer"], "Dell Inc.");
    }
}
