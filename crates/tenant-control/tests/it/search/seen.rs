//! Who finds what: scopes decide which types, and nobody finds what another tenant has.

use std::collections::BTreeSet;

use kernel::auth::Role;
use serde_json::{Value, json};

use super::{called, count_software, device, hits, ids, organization, scene, some, text, total, user, workflow};
use crate::asset_inventory::software;
use crate::support::search::{Indexed, SEARCH, asking, spelt};
use crate::support::workflows::{approval, manual};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{id_of, make};

/// Words that one search may walk over.
const TERMS_MAX: usize = 50_000;
const TYPES: [&str; 6] = ["device", "user", "organization", "ticket", "workflow", "software"];

/// One of each type, all called Apollo.
async fn apollo(server: &Server, slug: &str) -> Tenancy {
    let tenancy = server.tenant(slug).await;
    organization(server, &tenancy, "Apollo Stores", "apollo").await;
    user(server, &tenancy, "Apollo Creed", "creed@hub.test").await;
    device(server, &tenancy, "apollo", |full| full.parts.software = vec![software("Apollo Client", "1")]).await;
    count_software(server).await;
    called(server, &tenancy, "Apollo is down").await;
    workflow(server, &tenancy, "Restart Apollo", manual([approval("ask")])).await;
    tenancy
}

async fn found_by_key(server: &Server, key: &str, query: &str) -> Value {
    server.get(format!("{SEARCH}?{query}")).key(key).await.ok(200)
}

fn types_of(found: &Value) -> BTreeSet<&str> {
    hits(found).iter().map(|hit| text(hit, "type")).collect()
}

/// Asserts that these types are found, one of each, and that nothing is told of any other.
#[track_caller]
fn assert_types(found: &Value, expected: &[&str], about: &str) {
    assert_eq!(types_of(found), expected.iter().copied().collect(), "{about}: {found}");
    assert_eq!(hits(found).len(), expected.len(), "{about}: {found}");
    for kind in TYPES.iter().chain(&["vm"]) {
        assert_eq!(found["counts"][kind], u64::from(expected.contains(kind)), "{kind}, {about}: {found}");
    }
    assert_eq!((&found["has_more"], &found["next_cursor"]), (&Value::Bool(false), &Value::Null), "{about}");
}

over_http! {
    async fn scopes_decide_which_types_are_found_and_counted(server: Server) {
        let acme = apollo(&server, "acme").await;
        let _indexed = Indexed::of(&server).await;
        for (scopes, expected) in [
            (&["search:read"][..], &["user", "organization"][..]),
            (&["search:*"], &["user", "organization"]),
            (&["search:read", "users:read", "organizations:read"], &["user", "organization"]),
            (&["search:read", "tickets:read"], &["user", "organization", "ticket"]),
            (&["search:read", "tickets:write"], &["user", "organization"]),
            (&["search:read", "inventory:read"], &["user", "organization", "device", "software"]),
            (&["search:read", "workflows:read"], &["user", "organization", "workflow"]),
            (&["search:read", "workflows:write", "cloud:read"], &["user", "organization"]),
            (&["search:read", "tickets:read", "inventory:read", "workflows:read"], &TYPES),
            (&["*"], &TYPES),
        ] {
            let key = server.key(&acme, scopes).await;
            let about = scopes.join(" ");
            assert_types(&found_by_key(&server, &key.plain, "q=apollo").await, expected, &about);
            // Not by asking for them either.
            for kind in TYPES {
                let only: &[&str] = if expected.contains(&kind) { &[kind] } else { &[] };
                let typed = found_by_key(&server, &key.plain, &format!("q=apollo&types={kind}")).await;
                assert_types(&typed, only, &about);
                let said = spelt(&format!("apollo type:{kind}"));
                assert_types(&found_by_key(&server, &key.plain, &format!("q={said}")).await, only, &about);
            }
        }
    }

    async fn every_role_searches_all_that_it_reads(server: Server) {
        let acme = apollo(&server, "acme").await;
        let _indexed = Indexed::of(&server).await;
        for role in [Role::Admin, Role::Technician, Role::Viewer] {
            let cookie = server.user(&acme.tenant, role).await;
            assert_types(&server.search(&cookie, "apollo").await, &TYPES, role.as_str());
        }
    }

    async fn whoever_may_not_search_is_told_so_before_all_else(server: Server) {
        let acme = apollo(&server, "acme").await;
        let _indexed = Indexed::of(&server).await;
        let key = server.key(&acme, &["tickets:read", "inventory:*", "users:read"]).await;
        for query in ["q=apollo", "q=colour:red", "nonsense=1", ""] {
            let problem = server.get(format!("{SEARCH}?{query}")).key(&key.plain).await.problem("insufficient_scope");
            assert_eq!(problem["required_scope"], "search:read", "{query}");
        }
        server.get(asking("apollo")).await.problem("unauthenticated");
    }

    async fn names_in_a_query_tell_nothing_of_what_is_not_seen(server: Server) {
        let hub = scene(&server, "hub").await;
        let _indexed = Indexed::of(&server).await;
        let key = server.key(&hub, &["search:read"]).await;
        for q in [
            "assignee:\"anna keller\"", "status:open", "#3", "serial:7xk2p13", "02:fc:00:00:00:01", "os:windows",
            "tag:printer", "certificate", "192.0.2.10", "firefox", "escalate",
        ] {
            let found = found_by_key(&server, &key.plain, &format!("q={}", spelt(q))).await;
            assert_eq!((hits(&found).len(), total(&found)), (0, 0), "{q}: {found}");
        }
        // The customer and the person are seen, and what belongs to them is not.
        for (q, expected) in [("org:muller", &["organization"][..]), ("email:bob.stone@muller.test", &["user"])] {
            assert_types(&found_by_key(&server, &key.plain, &format!("q={}", spelt(q))).await, expected, q);
        }
    }

    async fn what_a_search_may_cost_is_counted_of_what_is_seen_alone(server: Server) {
        let hub = server.tenant("hub").await;
        // Of a letter that no name made by chance begins with.
        user(&server, &hub, "Жанна", "anna@hub.test").await;
        // More words that begin alike than a search may walk over.
        let word = |number: usize| format!("ж{number:05} ");
        for from in (0..TERMS_MAX + 2_000).step_by(1_000) {
            let description: String = (from..from + 1_000).map(word).collect();
            make(&server, &hub, &json!({"subject": "Many words", "description": description})).await;
        }
        let pasted = called(&server, &hub, "Вопрос ж о принтере").await;
        let _indexed = Indexed::of(&server).await;
        server.get(asking("ж")).cookie(&hub.admin).await.problem("query_too_broad");
        server.get(asking("ж type:ticket")).cookie(&hub.admin).await.problem("query_too_broad");
        // Beside other words it is a whole word, before the search is refused.
        assert_eq!(ids(&server.search(&hub.admin, "вопрос ж о принтере").await), [id_of(&pasted)]);
        assert_eq!(total(&server.search(&hub.admin, "вопрос ж00000").await), 0);
        for query in [format!("q={}&types=user", spelt("ж")), format!("q={}", spelt("type:user ж"))] {
            let found = server.get(format!("{SEARCH}?{query}")).cookie(&hub.admin).await.ok(200);
            assert_types(&found, &["user"], &query);
        }
        let key = server.key(&hub, &["search:read"]).await;
        assert_types(&found_by_key(&server, &key.plain, &format!("q={}", spelt("ж"))).await, &["user"], "without tickets");
    }

    async fn equal_names_of_two_tenants_are_each_found_by_their_own(server: Server) {
        let (acme, globex) = (apollo(&server, "acme").await, apollo(&server, "globex").await);
        let _indexed = Indexed::of(&server).await;
        let own = server.search(&acme.admin, "apollo").await;
        let foreign = server.search(&globex.admin, "apollo").await;
        assert_types(&own, &TYPES, "acme");
        assert_types(&foreign, &TYPES, "globex");
        // Of software the name is the id.
        let own: BTreeSet<String> = ids(&own).into_iter().collect();
        let both: Vec<String> = ids(&foreign).into_iter().filter(|id| own.contains(id)).collect();
        assert_eq!(both, ["apollo client"]);
        let found = server.search(&acme.admin, "type:software").await;
        assert_eq!(text(&hits(&found)[0], "subtitle"), "on 1 device", "those of the other are not counted");
    }

    async fn nothing_of_another_tenant_is_found_by_whatever_it_is_known(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let customer = organization(&server, &globex, "Initech", "initech").await;
        let milton = user(&server, &globex, "Milton Waddams", "milton@initech.test").await;
        let id = customer.id;
        let machine = device(&server, &globex, "stapler01.initech.test", move |full| {
            full.device.organization_id = Some(id);
            full.device.serial_number = some("SWL1NE9");
            (full.device.primary_ip, full.device.primary_mac) = (some("198.51.100.7"), some("02:fc:aa:bb:cc:dd"));
            full.parts.software = vec![software("Swingline Driver", "1")];
        }).await;
        count_software(&server).await;
        let lost = called(&server, &globex, "The red stapler is gone").await;
        let hunt = workflow(&server, &globex, "Stapler hunt", manual([approval("ask")])).await;
        let _indexed = Indexed::of(&server).await;
        for q in [
            "initech", "milton", "milton@initech.test", "email:milton@initech.test", "stapler", "stapler01.initech.test",
            "swl1ne9", "serial:SWL1NE9", "02:fc:aa:bb:cc:dd", "02fcaabbccdd", "mac:02fc.aabb.ccdd", "198.51.100.7",
            "ip:198.51.100.7", "host:stapler01", "swingline", "#1", "number:1", "org:initech", "type:ticket",
            "type:device", "type:organization", "type:workflow", "type:software", "assignee:milton@initech.test",
        ] {
            let found = server.search(&acme.admin, q).await;
            assert_eq!((hits(&found).len(), total(&found)), (0, 0), "{q}: {found}");
            let owned = server.search(&globex.admin, q).await;
            let nobody_works_on_it = q.starts_with("assignee:");
            assert_eq!(hits(&owned).is_empty(), nobody_works_on_it, "{q}: {owned}");
        }
        let (customer, milton, globex_id) = (customer.id.to_string(), milton.id.to_string(), globex.tenant.id.to_string());
        for id in [customer.as_str(), &milton, &globex_id, &machine, id_of(&lost), id_of(&hunt)] {
            for q in [id.to_owned(), format!("\"{id}\""), format!("org:{id}"), format!("assignee:{id}"), id[4..].to_owned()] {
                let found = server.search(&acme.admin, &q).await;
                assert_eq!((hits(&found).len(), total(&found)), (0, 0), "{q}: {found}");
            }
        }
    }
}
