//! What is told of a change, and how much of it.

use serde_json::json;

use crate::support::devices::{Agent, device_event_kinds, only_device, reported};
use crate::support::over_http;

over_http! {
    async fn containers_that_come_and_go_are_kept_and_not_told(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let plain = Agent::named("host01");
        reported(&server, &key, &plain.fusion()).await;
        let mut agent = plain.clone();
        agent.nics.push(("veth0a1b2c3".to_owned(), "4e:00:00:00:00:01".to_owned(), String::new()));
        agent.volumes.push(("/var/lib/docker/overlay2/0a1b/merged".to_owned(), 100_000, 50_000));
        reported(&server, &key, &agent.fusion()).await;
        let device = only_device(&server, &acme.admin).await;
        let len = |list: &str| device[list].as_array().unwrap().len();
        assert_eq!((len("nics"), len("volumes"), len("history")), (2, 2, 1));
        assert_eq!(device["version"], json!(2), "who keeps a copy has it");
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created"]);
        agent.nics.push(("eno9".to_owned(), "52:54:00:00:00:09".to_owned(), String::new()));
        reported(&server, &key, &agent.fusion()).await;
        let device = only_device(&server, &acme.admin).await;
        let changes = &device["history"][1]["changes"];
        assert_eq!(changes["nics"]["to"].as_array().unwrap().len(), 1, "{changes}");
        assert_eq!(changes["nics"]["to"][0]["name"], "eno9");
        assert_eq!(device_event_kinds(&server, &acme).await, ["device.created", "device.updated"]);
    }

    async fn a_change_of_long_names_tells_the_first_of_them(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let named = |letter: &str| -> Vec<(String, String)> {
            (0..100).map(|n| (format!("{n:03}{}", letter.repeat(180)), "1".repeat(150))).collect()
        };
        let mut agent = Agent::named("web01");
        agent.software = named("a");
        reported(&server, &key, &agent.fusion()).await;
        agent.software = named("b");
        reported(&server, &key, &agent.fusion()).await;
        let device = only_device(&server, &acme.admin).await;
        let change = &device["history"][1]["changes"]["software"];
        for side in ["from", "to"] {
            let listed = change[side].as_array().unwrap().len();
            let bytes = change[side].to_string().len();
            assert!((20..100).contains(&listed) && bytes < 20_000, "{side}: {listed}, {bytes} bytes");
        }
        assert_eq!(device["software"].as_array().unwrap().len(), 100, "all of it is kept");
    }
}
