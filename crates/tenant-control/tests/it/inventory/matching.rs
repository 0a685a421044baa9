//! By what a device is known again, in which order, and what happens when it may be one of several.

use kernel::args;
use kernel::base::{Actor, DAY_MS};
use serde_json::{Value, json};

use crate::support::devices::{Agent, Body, FUSION, device, device_events, read_device, reported};
use crate::support::{Server, Tenancy, over_http};

use super::{after, all, each, id, patient, send};

const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";
const OTHER_AGENT_ID: &str = "77e0e5a4-34cb-4a3f-8b0e-30b2f4bb1c11";
const UUID: &str = "4c4c4544-0042-3310-8051-b4c04f4e3132";
const MAC: &str = "ac:1f:6b:00:00:01";
const OTHER_MAC: &str = "ac:1f:6b:00:00:02";

fn made_by(maker: &str, agent: Agent) -> Agent {
    Agent { manufacturer: Some(maker.to_owned()), ..agent }
}

/// Which devices have been heard of just now, in the order in which they were made.
async fn heard_now(server: &Server, tenancy: &Tenancy) -> Vec<usize> {
    let (found, now) = (all(server, tenancy).await, json!(server.now()));
    (0..found.len()).filter(|n| found[*n]["last_seen_at"] == now).collect()
}

over_http! {
    async fn whatever_names_a_device_for_sure_finds_it_again(server: Server) {
        let (one, two) = (Agent::named("one"), Agent::named("two"));
        let known: Vec<(&str, Body, Body)> = vec![
            ("agent id", one.glpi().agent_id(AGENT_ID), two.glpi().agent_id(&AGENT_ID.to_uppercase())),
            ("device id", one.fusion(), two.clone().device_id(&one.device_id).ocs()),
            ("uuid", one.clone().uuid(UUID).fusion(), two.clone().uuid(&UUID.to_uppercase()).fusion()),
            ("uuid in braces", one.clone().uuid(UUID).fusion(), two.clone().uuid(&format!("{{{UUID}}}")).glpi()),
            (
                "uuid in the other byte order",
                one.clone().uuid(UUID).fusion(),
                two.clone().uuid("44454c4c-4200-1033-8051-b4c04f4e3132").fusion(),
            ),
            ("serial", one.clone().serial("7XK2P13").fusion(), two.clone().serial("7xk2p13 ").fusion()),
            (
                "hostname and one address",
                one.clone().macs(&[MAC, OTHER_MAC]).fusion(),
                Agent { hostname: "ONE".to_owned(), ..two.clone() }.macs(&["AC-1F-6B-00-00-02"]).fusion(),
            ),
        ];
        for (n, (what, first, second)) in known.iter().enumerate() {
            let found = after(&server, &format!("known-{n}"), &[first, second]).await;
            assert_eq!(found.len(), 1, "{what}: {found:#?}");
            assert_ne!(found[0]["agent"]["device_id"], Value::Null);
        }
    }

    async fn what_is_only_alike_is_another_device(server: Server) {
        let (one, two) = (Agent::named("one"), Agent::named("two"));
        let alike: Vec<(&str, Body, Body)> = vec![
            ("nothing", one.fusion(), two.fusion()),
            ("hostname", one.fusion(), one.clone().device_id("other").macs(&[MAC]).fusion()),
            ("hardware address", one.clone().macs(&[MAC]).fusion(), two.clone().macs(&[MAC]).fusion()),
            (
                "serial of another maker",
                one.clone().serial("7XK2P13").fusion(),
                made_by("Lenovo", two.clone()).serial("7XK2P13").fusion(),
            ),
            (
                "serial without a maker",
                Agent { manufacturer: None, ..one.clone() }.serial("7XK2P13").fusion(),
                Agent { manufacturer: None, ..two.clone() }.serial("7XK2P13").fusion(),
            ),
            ("agent id", one.glpi().agent_id(AGENT_ID), two.glpi().agent_id(OTHER_AGENT_ID)),
        ];
        for (n, (what, first, second)) in alike.iter().enumerate() {
            let found = after(&server, &format!("alike-{n}"), &[first, second]).await;
            assert_eq!(found.len(), 2, "{what}: {found:#?}");
            assert_eq!(each(&found, "possible_duplicate_of"), [&Value::Null, &Value::Null], "{what}");
        }
    }

    async fn placeholders_count_for_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut pairs: Vec<(Body, Body)> = Vec::new();
        for uuid in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
            "Not Settable",
            "4c4c4544",
        ] {
            let machine = |name: &str| Agent::named(&format!("{name} {uuid}")).uuid(uuid).fusion();
            pairs.push((machine("one"), machine("two")));
        }
        for serial in [
            "To Be Filled By O.E.M.",
            "to be filled by  o.e.m",
            "Default string",
            "System Serial Number",
            "None",
            "N/A",
            "0",
            "00000000",
            "xxxxxxx",
            "0123456789",
            "123456789",
            "Not Specified",
            ".........",
            "INVALID",
        ] {
            let machine = |name: &str| Agent::named(&format!("{name} {serial}")).serial(serial).fusion();
            pairs.push((machine("one"), machine("two")));
        }
        // Cards that every machine has: the hostname is the same, the installation is not.
        for mac in ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "02:42:ac:11:00:02", "01:00:5e:00:00:fb", "0a:00:27:00:00:00"] {
            let machine = |name: &str| Agent::named(mac).device_id(&format!("{name} {mac}")).macs(&[mac]).fusion();
            pairs.push((machine("one"), machine("two")));
        }
        for agent_id in ["00000000-0000-0000-0000-000000000000", "no uuid at all", ""] {
            let machine = |name: &str| Agent::named(&format!("{name} agent {agent_id}")).glpi().agent_id(agent_id);
            pairs.push((machine("one"), machine("two")));
        }
        for (first, second) in &pairs {
            send(&server, &key, &[first, second]).await;
        }
        let found = all(&server, &acme).await;
        assert_eq!(found.len(), 2 * pairs.len(), "{:#?}", each(&found, "hostname"));
        for device in &found {
            for field in ["uuid", "serial_number", "possible_duplicate_of"] {
                assert_eq!(device[field], Value::Null, "{field} of {device:#}");
            }
        }
    }

    async fn the_surest_of_the_names_decides(server: Server) {
        for level in 0..5 {
            let known = [
                Agent::named("a").glpi().agent_id(AGENT_ID),
                Agent::named("b").device_id("the device").fusion(),
                Agent::named("c").uuid(UUID).fusion(),
                Agent::named("d").serial("7XK2P13").fusion(),
                Agent::named("e").macs(&[MAC]).fusion(),
            ];
            // Known by all of them, but for those that are surer than this one.
            let mut torn = Agent::named("e").macs(&[MAC]).device_id(if level > 1 { "a new one" } else { "the device" });
            torn.uuid = (level <= 2).then(|| UUID.to_owned());
            torn.serial = (level <= 3).then(|| "7XK2P13".to_owned());
            torn.memory_mib = 99;
            let mut report = torn.glpi();
            report.agent_id = (level == 0).then(|| AGENT_ID.to_owned());
            let bodies: Vec<&Body> = known.iter().chain([&report]).collect();
            let found = after(&server, &format!("level-{level}"), &bodies).await;
            assert_eq!(found.len(), 5, "{found:#?}");
            for (n, device) in found.iter().enumerate() {
                assert_eq!(device["memory_bytes"] == 99 << 20, n == level, "at level {level}: {device:#}");
            }
        }
    }

    async fn one_that_may_be_any_of_several_is_new_and_stays_itself(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let host = |device_id: &str, macs: &[&str]| Agent::named("host").device_id(device_id).macs(macs);
        reported(&server, &key, &host("first", &[MAC]).fusion()).await;
        reported(&server, &key, &host("second", &[OTHER_MAC]).fusion()).await;
        let mut torn = host("third", &[MAC, OTHER_MAC]);
        reported(&server, &key, &torn.fusion()).await;
        let found = all(&server, &acme).await;
        let first = &found[0]["id"];
        assert_eq!(each(&found, "possible_duplicate_of"), [&Value::Null, &Value::Null, first]);
        let told = device_events(&server, &acme).await;
        assert_eq!(told.last().unwrap()["data"]["possible_duplicate_of"], *first);

        for memory_mib in [1, 2, 3] {
            torn.memory_mib = memory_mib;
            reported(&server, &key, &torn.fusion()).await;
        }
        let found = all(&server, &acme).await;
        assert_eq!(found.len(), 3, "it is known by its own name now");
        assert_eq!((&found[2]["memory_bytes"], &found[2]["possible_duplicate_of"]), (&json!(3 << 20), first));
        for device in &found[..2] {
            assert_eq!((&device["version"], &device["memory_bytes"]), (&json!(1), &json!(16_384_i64 << 20)));
        }
    }

    async fn a_name_that_two_organizations_have_makes_one_new_device_and_not_many(server: Server) {
        let acme = server.tenant("acme").await;
        let (_, one) = server.bound_ingest_key(&acme, "one").await;
        let (_, two) = server.bound_ingest_key(&acme, "two").await;
        let unbound = server.ingest_key(&acme).await;
        // The image of a machine, with the agent in it, was given to two customers.
        let mut clone = Agent::named("clone");
        reported(&server, &one, &clone.fusion()).await;
        reported(&server, &two, &clone.fusion()).await;
        for memory_mib in 1..=4 {
            clone.memory_mib = memory_mib;
            reported(&server, &unbound, &clone.fusion()).await;
        }
        let found = all(&server, &acme).await;
        assert_eq!(found.len(), 3, "{:?}", each(&found, "possible_duplicate_of"));
        assert_eq!(found[2]["possible_duplicate_of"], found[0]["id"]);
        assert_eq!(found[2]["memory_bytes"], 4 << 20);
    }

    async fn a_question_is_of_the_device_that_the_inventory_would_be_of(server: Server) {
        let acme = server.tenant("acme").await;
        let (_, one) = server.bound_ingest_key(&acme, "one").await;
        let (_, two) = server.bound_ingest_key(&acme, "two").await;
        let (_, three) = server.bound_ingest_key(&acme, "three").await;
        let (_, four) = server.bound_ingest_key(&acme, "four").await;
        let unbound = server.ingest_key(&acme).await;
        let clone = Agent::named("clone");
        let question = clone.prolog(FUSION);
        reported(&server, &one, &clone.fusion()).await;
        reported(&server, &two, &clone.fusion()).await;
        server.advance(60_000);
        reported(&server, &unbound, &question).await;
        assert_eq!(heard_now(&server, &acme).await, Vec::<usize>::new(), "it may be either");
        reported(&server, &unbound, &clone.fusion()).await;
        server.advance(60_000);
        reported(&server, &one, &question).await;
        assert_eq!(heard_now(&server, &acme).await, [0], "its own, and not the newer one that is nobody's");
        // The third is nobody's until a key takes it; the fourth is new.
        reported(&server, &three, &clone.fusion()).await;
        reported(&server, &four, &clone.fusion()).await;
        assert_eq!(all(&server, &acme).await.len(), 4);
        server.advance(60_000);
        reported(&server, &unbound, &question).await;
        assert_eq!(heard_now(&server, &acme).await, [2], "the one that was made for it");
        server.advance(60_000);
        let changed = Agent { memory_mib: 1, ..clone };
        reported(&server, &unbound, &changed.fusion()).await;
        assert_eq!(heard_now(&server, &acme).await, [2]);
        assert_eq!(all(&server, &acme).await.len(), 4);
    }

    async fn a_name_that_more_customers_have_than_are_looked_at_together_finds_the_device_of_each(server: Server) {
        let acme = server.tenant("acme").await;
        let mut clone = Agent::named("clone");
        let mut keys = Vec::new();
        for n in 0..102 {
            let (_, key) = server.bound_ingest_key(&acme, &format!("customer-{n}")).await;
            reported(&server, &key, &clone.fusion()).await;
            keys.push(key);
        }
        let unbound = server.ingest_key(&acme).await;
        clone.memory_mib = 1;
        let tagged = Agent { memory_mib: 2, ..clone.clone().tag("customer-0") };
        for (key, agent) in [(&keys[0], &clone), (&unbound, &tagged)] {
            reported(&server, key, &agent.fusion()).await;
            let found = all(&server, &acme).await;
            assert_eq!((found.len(), &found[0]["memory_bytes"]), (102, &json!(agent.memory_mib << 20)));
        }
        server.advance(60_000);
        reported(&server, &keys[0], &clone.prolog(FUSION)).await;
        assert_eq!(heard_now(&server, &acme).await, [0]);
    }

    async fn a_deleted_device_that_reports_again_is_a_new_one(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01").uuid(UUID).serial("7XK2P13");
        let body = agent.glpi().agent_id(AGENT_ID);
        reported(&server, &key, &body).await;
        let old = all(&server, &acme).await.remove(0);
        server.delete_device(&acme, id(&old)).await;
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new());
        for question in [agent.contact(), agent.prolog("GLPI-Agent_v1.12-dev")] {
            reported(&server, &key, &question.agent_id(AGENT_ID)).await;
        }
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new(), "a question is no inventory");
        reported(&server, &key, &body).await;
        let new = all(&server, &acme).await.remove(0);
        assert_ne!(new["id"], old["id"]);
        assert_eq!((&new["version"], &new["possible_duplicate_of"]), (&json!(1), &Value::Null));
        read_device(&server, &acme.admin, id(&old)).await.problem("not_found");
        let kinds: Vec<Value> = device_events(&server, &acme).await.into_iter().map(|event| event["type"].clone()).collect();
        assert_eq!(kinds, ["device.created", "device.deleted", "device.created"]);
    }

    async fn another_tenants_device_is_never_touched(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let (ours, theirs) = (server.ingest_key(&acme).await, server.ingest_key(&globex).await);
        let agent = Agent::named("web01").uuid(UUID).serial("7XK2P13").macs(&[MAC]);
        let bodies = [agent.contact(), agent.glpi(), agent.glpi(), agent.partial(&["drives"]), agent.fusion()];
        reported(&server, &theirs, &agent.glpi().agent_id(AGENT_ID)).await;
        let one = all(&server, &globex).await.remove(0);
        let before = device(&server, &globex.admin, id(&one)).await;
        server.advance(60_000);
        for body in bodies {
            reported(&server, &ours, &body.agent_id(AGENT_ID)).await;
        }
        // Named by the id that it has with the other tenant, too.
        let named = agent.clone().device_id(id(&one));
        reported(&server, &ours, &named.glpi().agent_id(AGENT_ID)).await;
        assert_eq!(device(&server, &globex.admin, id(&one)).await, before, "not even when it was last seen");
        assert_eq!((all(&server, &globex).await.len(), all(&server, &acme).await.len()), (1, 1));
        assert_eq!(device_events(&server, &globex).await.len(), 1);
        read_device(&server, &acme.admin, id(&one)).await.problem("not_found");
    }

    async fn a_machine_keeps_the_names_of_all_its_agents(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01").uuid(UUID);
        let installations: Vec<Agent> = (0..4).map(|n| agent.clone().device_id(&format!("installation {n}"))).collect();
        for one in &installations {
            reported(&server, &key, &one.fusion()).await;
        }
        // Its board is changed, and nothing but the agents' names is as before.
        let changed = Agent { uuid: None, ..Agent::named("elsewhere") };
        let renamed: Vec<Body> = installations.iter().map(|one| changed.clone().device_id(&one.device_id).fusion()).collect();
        send(&server, &key, &renamed.iter().collect::<Vec<_>>()).await;
        assert_eq!(all(&server, &acme).await.len(), 1);
    }

    async fn an_agent_that_is_installed_again_and_again_leaves_no_heap_of_names(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01").uuid(UUID);
        for n in 0..30 {
            reported(&server, &key, &agent.clone().device_id(&format!("installation {n}")).fusion()).await;
        }
        assert_eq!(all(&server, &acme).await.len(), 1);
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let names: i64 = db.get_one("SELECT COUNT(*) FROM device_identities WHERE tenant_id = $1", args![]).await.unwrap();
        assert!(names < 25, "{names}");
        // The last ones are known by their own names still.
        let changed = Agent::named("elsewhere").device_id("installation 29");
        reported(&server, &key, &changed.fusion()).await;
        assert_eq!(all(&server, &acme).await.len(), 1);
    }

    async fn the_name_of_an_agent_that_reports_is_not_the_one_that_is_forgotten(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        // As many as are remembered, and this one.
        for n in 0..16 {
            server.advance(DAY_MS);
            reported(&server, &key, &agent.fusion()).await;
            reported(&server, &key, &agent.clone().device_id(&format!("installation {n}")).ocs()).await;
        }
        let changed = Agent::named("elsewhere").device_id(&agent.device_id);
        reported(&server, &key, &changed.fusion()).await;
        assert_eq!(each(&all(&server, &acme).await, "hostname"), ["elsewhere"]);
    }

    async fn a_partial_inventory_of_an_unknown_machine_makes_a_device_that_a_whole_one_completes(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        reported(&server, &key, &agent.partial(&["drives"])).await;
        let found = all(&server, &acme).await;
        assert_eq!((each(&found, "hostname"), each(&found, "status")), (vec![&Value::Null], vec![&json!("online")]));
        assert_eq!((each(&found, "inventory_at"), each(&found, "health")), (vec![&Value::Null], vec![&json!("unknown")]));
        reported(&server, &key, &agent.glpi()).await;
        let after = all(&server, &acme).await;
        assert_eq!((each(&after, "hostname"), each(&after, "id")), (vec![&json!("web01")], each(&found, "id")));
        assert_eq!(each(&after, "health"), [&json!("healthy")]);
    }
}
