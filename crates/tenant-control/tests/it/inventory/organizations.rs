//! Whose a device is: the key's organization, or the one that the agent's tag names, or nobody's.

use kernel::auth::open_as_operator;
use serde_json::{Value, json};
use tenant_control::features::organizations;

use crate::support::devices::{Agent, FUSION, device, device_events, reported};
use crate::support::{Server, Tenancy, over_http};

use super::{all, each, id};

async fn organization(server: &Server, tenancy: &Tenancy, name: &str, slug: &str) -> Value {
    let made =
        organizations::create_named_organization(&open_as_operator(&server.app.store, &tenancy.tenant), name, slug)
            .await;
    json!(made.expect("an organization").id)
}

over_http! {
    async fn the_tag_names_the_organization_by_slug_or_by_its_whole_name(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let globex = organization(&server, &acme, "Globex Inc.", "globex").await;
        let named = organization(&server, &acme, "Initech", "initech-llc").await;
        organization(&server, &acme, "globex", "by-name-only").await;
        organization(&server, &acme, "Twice", "twice-1").await;
        organization(&server, &acme, "Twice", "twice-2").await;
        organization(&server, &other, "Foreign", "foreign").await;
        let key = server.ingest_key(&acme).await;
        let none = Value::Null;
        for (n, (tag, expected)) in [
            ("globex", &globex), ("Globex Inc.", &globex), (" globex ", &globex), ("Initech", &named),
            ("initech-llc", &named), ("initech", &named), ("Globex", &globex), ("Twice", &none), ("foreign", &none),
            ("Foreign", &none), ("nobody", &none), ("", &none), ("%", &none), ("' OR 1=1 --", &none),
        ]
        .into_iter()
        .enumerate()
        {
            let agent = Agent::named(&format!("host-{n}")).tag(tag);
            let body = if n % 2 == 0 { agent.fusion() } else { agent.glpi() };
            reported(&server, &key, &body).await;
            let newest = all(&server, &acme).await.pop().unwrap();
            assert_eq!((newest["hostname"].as_str(), &newest["organization_id"]), (Some(&*agent.hostname), expected), "{tag}");
        }
        assert_eq!(all(&server, &other).await, Vec::<Value>::new());
    }

    async fn another_tag_moves_a_device_and_none_leaves_it_where_it_is(server: Server) {
        let acme = server.tenant("acme").await;
        let (one, two) = (organization(&server, &acme, "One", "one").await, organization(&server, &acme, "Two", "two").await);
        let key = server.ingest_key(&acme).await;
        let agent = Agent::named("web01");
        for (tag, expected) in [(None, &Value::Null), (Some("one"), &one), (None, &one), (Some("nobody"), &one), (Some("two"), &two)] {
            let agent = Agent { tag: tag.map(str::to_owned), ..agent.clone() };
            reported(&server, &key, &agent.fusion()).await;
            assert_eq!(each(&all(&server, &acme).await, "organization_id"), [expected], "{tag:?}");
        }
        let events = device_events(&server, &acme).await;
        let changes: Vec<&Value> = events[1..].iter().map(|event| &event["data"]["changes"]).collect();
        assert_eq!(changes, [
            &json!({"organization_id": {"from": null, "to": one}}), &json!({"organization_id": {"from": one, "to": two}}),
        ]);
    }

    async fn an_organization_that_is_made_later_gets_its_devices_with_their_next_report(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let body = Agent::named("web01").tag("later").fusion();
        reported(&server, &key, &body).await;
        let later = organization(&server, &acme, "Later", "later").await;
        reported(&server, &key, &body).await;
        assert_eq!(each(&all(&server, &acme).await, "organization_id"), [&later]);
    }

    async fn a_bound_key_wins_over_the_tag(server: Server) {
        let acme = server.tenant("acme").await;
        let (bound_to, bound) = server.bound_ingest_key(&acme, "bound").await;
        organization(&server, &acme, "Globex", "globex").await;
        for (n, tag) in ["globex", "bound", "nobody"].into_iter().enumerate() {
            let agent = Agent::named(&format!("host-{n}")).tag(tag);
            reported(&server, &bound, &agent.fusion()).await;
            reported(&server, &bound, &agent.partial(&["drives"])).await;
        }
        let found = all(&server, &acme).await;
        assert_eq!(each(&found, "organization_id"), [&json!(bound_to); 3]);
    }

    async fn a_bound_key_takes_a_device_of_nobody_and_never_that_of_another(server: Server) {
        let acme = server.tenant("acme").await;
        let (one, key_one) = server.bound_ingest_key(&acme, "one").await;
        let (two, key_two) = server.bound_ingest_key(&acme, "two").await;
        let unbound = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01").uuid("4c4c4544-0042-3310-8051-b4c04f4e3132").serial("7XK2P13");
        reported(&server, &unbound, &agent.fusion()).await;
        reported(&server, &key_one, &agent.fusion()).await;
        let found = all(&server, &acme).await;
        assert_eq!(each(&found, "organization_id"), [&json!(one)], "it was nobody's");
        let before = device(&server, &acme.admin, id(&found[0])).await;

        server.advance(60_000);
        for question in [agent.prolog(FUSION), agent.contact()] {
            reported(&server, &key_two, &question).await;
        }
        assert_eq!(all(&server, &acme).await, found, "not even when it was last seen");
        for memory_mib in [agent.memory_mib, 1, 2] {
            agent.memory_mib = memory_mib;
            reported(&server, &key_two, &agent.fusion()).await;
            reported(&server, &key_two, &agent.partial(&["hardware"])).await;
        }
        assert_eq!(device(&server, &acme.admin, id(&found[0])).await, before);
        let found = all(&server, &acme).await;
        assert_eq!(each(&found, "organization_id"), [&json!(one), &json!(two)]);
        assert_eq!(each(&found, "possible_duplicate_of"), [&Value::Null, &Value::Null]);
    }

    async fn a_bound_key_leaves_a_device_alone_that_was_given_to_another(server: Server) {
        let acme = server.tenant("acme").await;
        let (one, key_one) = server.bound_ingest_key(&acme, "one").await;
        let (two, _) = server.bound_ingest_key(&acme, "two").await;
        let agent = Agent::named("web01");
        reported(&server, &key_one, &agent.fusion()).await;
        let moved = all(&server, &acme).await.remove(0);
        let to = two.parse().unwrap();
        server.edit_device(&acme, id(&moved), move |full| full.device.organization_id = Some(to)).await;
        let before = device(&server, &acme.admin, id(&moved)).await;
        server.advance(60_000);
        for body in [agent.prolog(FUSION), agent.fusion(), agent.fusion()] {
            reported(&server, &key_one, &body).await;
        }
        assert_eq!(device(&server, &acme.admin, id(&moved)).await, before, "the very same inventory, too");
        assert_eq!(each(&all(&server, &acme).await, "organization_id"), [&json!(two), &json!(one)]);
    }
}
