//! Several nodes, each with a copy of the secrets file, and a file that changes while its server runs.

use kernel::base::{SECOND_MS, SecretsSource};
use kernel::keyring::checks::register_secrets;
use kernel::keyring::nodes::{NodeName, RUNNING_MS, delete_node, list_running_nodes, may_rewrap, save_node};
use kernel::keyring::reload::SecretsReloader;
use tempfile::TempDir;

use super::*;

pub fn name_of(name: &str) -> NodeName {
    NodeName { node: name.to_owned(), host: format!("host-{name}") }
}

/// What a running node does every few seconds.
pub async fn save(server: &Server, name: &str) {
    save_node(&system(server), &name_of(name), &server.app.secrets).await.unwrap();
}

pub async fn rewraps(server: &Server, name: &str) -> bool {
    may_rewrap(&system(server), name, server.app.secrets.keyring().primary_id()).await.unwrap()
}

over_http! {
    async fn a_node_without_the_new_key_is_named_and_nothing_is_rewrapped(setup: Setup) {
        let scene = Scene::new(setup).await;
        let a = &scene.server;
        let b = a.node_with_secrets(&scene.rotation.first).await;
        for (server, name) in [(a, "a"), (&b, "b")] {
            save(server, name).await;
        }
        assert!(rewraps(a, "a").await && !rewraps(&b, "b").await, "one of them");
        adopt(a, &scene.rotation.added);
        save(a, "a").await;
        let hosts = |nodes: Vec<&kernel::keyring::nodes::KeyringNode>| nodes.iter().map(|node| node.host.clone()).collect::<Vec<_>>();
        assert_eq!(hosts(status(a).await.nodes_without(2)), ["host-b"]);
        adopt(&b, &scene.rotation.added);
        save(&b, "b").await;
        assert!(status(a).await.nodes_without(2).is_empty());
        // The file is changed here, and not copied there yet.
        adopt(a, &scene.rotation.rotated);
        save(a, "a").await;
        assert_eq!(hosts(status(a).await.nodes_behind()), ["host-b"]);
        assert!(!rewraps(a, "a").await && !rewraps(&b, "b").await, "neither takes from the other what it has sealed");
        scene.opens_on(a, "on the first").await;
        scene.opens_on(&b, "on the second").await;
        let obstacle = status(a).await.find_removal_obstacle(1).expect("it seals on the second");
        assert!(obstacle.contains("host-b still seals with key 1"), "{obstacle}");
        adopt(&b, &scene.rotation.rotated);
        save(&b, "b").await;
        assert!(rewraps(a, "a").await);
        assert_eq!(rewrap(a).await.rewrapped, VALUES);
        scene.opens_on(&b, "after rewrapping").await;
        assert!(status(a).await.is_settling(), "a transaction of a moment ago may still commit");
        a.advance(10 * SECOND_MS);
        assert_eq!((status(a).await.is_settling(), status(a).await.find_removal_obstacle(1)), (false, None));
    }

    async fn a_node_that_stops_or_is_killed_is_not_waited_for(setup: Setup) {
        let server = setup.start().await;
        for name in ["a", "b", "c"] {
            save(&server, name).await;
        }
        let names = async || {
            let nodes = list_running_nodes(&system(&server)).await.unwrap();
            nodes.into_iter().map(|node| node.node).collect::<Vec<_>>()
        };
        delete_node(&system(&server), "a").await.unwrap();
        assert_eq!((names().await, rewraps(&server, "b").await), (vec!["b".to_owned(), "c".to_owned()], true));
        server.advance(RUNNING_MS / 2);
        let since = list_running_nodes(&system(&server)).await.unwrap()[1].primary_since;
        save(&server, "c").await;
        server.advance(RUNNING_MS / 2 + 1);
        assert_eq!((names().await, rewraps(&server, "c").await), (vec!["c".to_owned()], true));
        let [c] = <[_; 1]>::try_from(list_running_nodes(&system(&server)).await.unwrap()).unwrap();
        assert_eq!((c.primary_since, c.key_ids), (since, vec![1]), "it seals with the same key as before");
    }

    async fn a_changed_file_is_used_without_a_restart_and_a_bad_one_is_not(setup: Setup) {
        let rotation = Rotation::of(&setup.secrets);
        let server = setup.start().await;
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("secrets.json");
        std::fs::write(&file, &rotation.first).unwrap();
        let reloader = SecretsReloader::new(SecretsSource::File(file.clone()), server.app.secrets.clone(), name_of("a"));
        let reload = async || reloader.reload_changed(&system(&server), columns()).await.unwrap();
        let keys = || { let keyring = server.app.secrets.keyring(); (keyring.key_ids(), keyring.primary_id()) };
        register_secrets(&system(&server), &server.app.secrets, columns()).await.unwrap();
        assert!(!reload().await && !reload().await, "it is the same");
        std::fs::write(&file, &rotation.added).unwrap();
        assert!(reload().await && !reload().await);
        assert_eq!(keys(), (vec![1, 2], 1));
        let foreign = Secrets::generate_text(&RandomSource::System).unwrap();
        for bad in ["", "{", &rotation.added[..60], &foreign] {
            std::fs::write(&file, bad).unwrap();
            assert!(!reload().await, "{bad}");
            assert_eq!(keys(), (vec![1, 2], 1), "{bad}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(!reload().await && !reload().await);
        std::fs::write(&file, &rotation.rotated).unwrap();
        assert!(reload().await);
        assert_eq!(keys(), (vec![1, 2], 2));
        let given = SecretsReloader::new(SecretsSource::Text(rotation.first.clone()), server.app.secrets.clone(), name_of("a"));
        assert!(!given.reload_changed(&system(&server), columns()).await.unwrap(), "a text does not change");
    }

    async fn a_changed_primary_waits_for_a_node_that_has_started_without_the_key(setup: Setup) {
        let rotation = Rotation::of(&setup.secrets);
        let server = setup.start().await;
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("secrets.json");
        adopt(&server, &rotation.added);
        save(&server, "a").await;
        // It began to start when no server had the new key yet.
        let late = server.node_with_secrets(&rotation.first).await;
        save(&late, "b").await;
        std::fs::write(&file, &rotation.rotated).unwrap();
        let reloader = SecretsReloader::new(SecretsSource::File(file), server.app.secrets.clone(), name_of("a"));
        let reload = async || reloader.reload_changed(&system(&server), columns()).await.unwrap();
        let saved = async || list_running_nodes(&system(&server)).await.unwrap()[0].primary_id;
        assert!(!reload().await && !reload().await, "the other one could not open what it seals");
        assert_eq!((server.app.secrets.keyring().primary_id(), saved().await), (1, 1));
        adopt(&late, &rotation.added);
        save(&late, "b").await;
        assert!(reload().await && !reload().await, "without another change of the file");
        assert_eq!((server.app.secrets.keyring().primary_id(), saved().await), (2, 2));
        // From now on a node without the key does not start.
        let refused = register_secrets(&system(&server), &Secrets::parse(&rotation.first).unwrap(), columns()).await;
        assert!(refused.unwrap_err().to_string().contains("copy the secrets file from host-a or host-b"));
    }
}
