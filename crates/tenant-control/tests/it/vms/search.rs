//! Machines in search.

use super::*;
use crate::support::search::{Indexed, asking};

/// What a search finds of machines: their names.
async fn found(server: &Server, cookie: &str, q: &str) -> Vec<String> {
    let answer = server.search(cookie, q).await;
    let hits = answer["data"].as_array().unwrap().iter().filter(|hit| hit["type"] == "vm");
    hits.map(|hit| hit["title"].as_str().unwrap().to_owned()).collect()
}

over_http! {
    async fn a_machine_is_found_by_its_name_its_address_and_its_tags(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        let id = stub.add("acme", "apollo-web");
        stub.change(id, |machine| {
            machine.tags = json!({"env": "prod"});
            "203.0.113.77".clone_into(&mut machine.ip);
        });
        stub.add("acme", "artemis-db");
        let provider = server.connect(&acme, stub, "acme").await;
        let indexed = Indexed::of(&server).await;
        for q in ["apollo", "apollo-web", "apolloweb", "apolo", "203.0.113.77", "ip:203.0.113.77", "host:apollo-web", "tag:env", "type:vm apollo", &id.to_string()] {
            assert_eq!(found(&server, &acme.admin, q).await, ["apollo-web"], "{q}");
        }
        let answer = server.search(&acme.admin, "apollo").await;
        let vm = server.list_vms(&acme, "q=apollo").await.remove(0);
        let hit = &answer["data"][0];
        assert_eq!(hit["id"], vm["id"], "{hit:#}");
        assert!(hit["url"].as_str().unwrap().ends_with(&one_vm(&vm)), "{hit:#}");
        assert_eq!(answer["counts"]["vm"], 1);
        // What changes is found as it is, and what leaves the list is not found.
        stub.change(id, |machine| "renamed-web".clone_into(&mut machine.name));
        server.sync(&acme, &provider).await;
        indexed.catch_up().await;
        assert_eq!(found(&server, &acme.admin, "apollo").await, Vec::<String>::new());
        assert_eq!(found(&server, &acme.admin, "renamed").await, ["renamed-web"]);
        server.delete(one_provider(&provider)).cookie(&acme.admin).await.is(204);
        indexed.catch_up().await;
        assert_eq!(found(&server, &acme.admin, "renamed").await, Vec::<String>::new());
    }

    async fn only_who_may_read_clouds_finds_machines(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        clouds.hetzner.add("acme", "apollo-web");
        server.connect(&acme, &clouds.hetzner, "acme").await;
        let _indexed = Indexed::of(&server).await;
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        assert_eq!(found(&server, &viewer, "apollo").await, ["apollo-web"]);
        assert_eq!(found(&server, &other.admin, "apollo").await, Vec::<String>::new());
        for (scopes, count) in [(&["search:read", "inventory:read"][..], 0), (&["search:read", "cloud:write"], 0), (&["search:read", "cloud:read"], 1)] {
            let key = server.key(&acme, scopes).await;
            let answer = server.get(asking("apollo")).key(&key.plain).await.ok(200);
            assert_eq!((answer["data"].as_array().unwrap().len(), &answer["counts"]["vm"]), (count, &json!(count)), "{scopes:?}");
        }
    }
}
