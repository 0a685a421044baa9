//! A node that comes back after its primary key was removed: it was frozen, or cut off from the database.

use std::sync::Mutex;

use kernel::base::SECOND_MS;
use kernel::keyring::checks::{register_secrets, retire_key};
use kernel::keyring::nodes::{RUNNING_MS, delete_node, list_running_nodes};
use kernel::keyring::retired::leave_retired_primary;

use super::nodes::{name_of, rewraps, save};
use super::*;

/// What a running node does every two seconds.
async fn follow(server: &Server, name: &str) -> bool {
    leave_retired_primary(&system(server), &name_of(name), &server.app.secrets).await.unwrap()
}

fn sealing(server: &Server) -> (u32, bool) {
    let keyring = server.app.secrets.keyring();
    (keyring.primary_id(), keyring.can_seal())
}

/// Two nodes, of which the second had these secrets when it was last heard of. Key 1 was removed meanwhile.
async fn with_lost_node(setup: Setup, secrets: impl Fn(&Rotation) -> &String) -> (Scene, Server) {
    let scene = Scene::new(setup).await;
    let a = &scene.server;
    let b = a.node_with_secrets(secrets(&scene.rotation)).await;
    save(&b, "b").await;
    adopt(a, &scene.rotation.rotated);
    register_secrets(&system(a), &a.app.secrets, columns()).await.unwrap();
    save(a, "a").await;
    assert!(status(a).await.find_removal_obstacle(1).expect("it seals").contains("host-b still seals with key 1"));
    a.advance(RUNNING_MS + 1);
    save(a, "a").await;
    assert!(rewraps(a, "a").await);
    assert_eq!(rewrap(a).await.rewrapped, VALUES);
    a.advance(10 * SECOND_MS);
    assert_eq!((status(a).await.is_settling(), status(a).await.find_removal_obstacle(1)), (false, None));
    assert!(retire_key(&system(a), 1).await.unwrap());
    adopt(a, &scene.rotation.removed);
    (scene, b)
}

over_http! {
    async fn a_node_whose_primary_was_removed_seals_with_that_of_the_others(setup: Setup) {
        let (scene, b) = with_lost_node(setup, |rotation| &rotation.added).await;
        let a = &scene.server;
        save(&b, "b").await;
        assert_eq!(sealing(&b), (1, true), "it knows nothing yet");
        assert!(follow(&b, "b").await && !follow(&b, "b").await);
        assert_eq!(sealing(&b), (2, true));
        assert_eq!(list_running_nodes(&system(a)).await.unwrap()[1].primary_id, 2, "and says so");
        scene.opens_on(&b, "on the node that was away").await;
        endpoint(&b, &scene.acme, "https://hooks.example.com/in", &["ticket.*"]).await;
        assert!(!usage(a).await.contains_key(&1), "nothing is sealed with a key that others do not have");
        assert_eq!(rewrap(a).await, RewrapReport::default());
        assert!(!follow(a, "a").await, "the other one stays as it is");
    }

    async fn a_node_that_has_no_other_key_seals_nothing_until_it_has(setup: Setup) {
        let (scene, b) = with_lost_node(setup, |rotation| &rotation.first).await;
        save(&b, "b").await;
        assert!(follow(&b, "b").await && !follow(&b, "b").await);
        assert_eq!(sealing(&b), (1, false));
        let body = json!({"name": "Hook", "url": "https://hooks.example.com/in", "events": ["ticket.*"]});
        b.post(WEBHOOKS).cookie(&scene.acme.admin).json(&body).await.problem("unavailable");
        let listed = b.get(WEBHOOKS).cookie(&scene.acme.admin).await.ok(200);
        assert_eq!(listed["data"].as_array().unwrap().len(), 1, "it reads, and has written nothing");
        adopt(&b, &scene.rotation.removed);
        assert!(!follow(&b, "b").await);
        b.post(WEBHOOKS).cookie(&scene.acme.admin).json(&body).await.is(201);
        assert!(!usage(&scene.server).await.contains_key(&1));
    }

    async fn a_substitute_seals_nothing_when_a_node_without_it_starts_at_that_moment(setup: Setup) {
        let starts: Arc<Mutex<Option<Server>>> = Arc::default();
        let late = starts.clone();
        let faults = FaultPoints::new(move |point| {
            let starting = late.lock().unwrap().take_if(|_| point == "keyring.primary.announced");
            if let Some(server) = starting {
                let runtime = tokio::runtime::Handle::current();
                tokio::task::block_in_place(|| runtime.block_on(save(&server, "late")));
            }
            InjectedFault::None
        });
        let (scene, b) = with_lost_node(setup.with_faults(faults), |rotation| &rotation.added).await;
        let a = &scene.server;
        save(&b, "b").await;
        *starts.lock().unwrap() = Some(a.node_with_secrets(&scene.rotation.first).await);
        assert!(follow(&b, "b").await && !follow(&b, "b").await);
        assert_eq!(sealing(&b), (1, false), "the one that has just started could not open it");
        assert!(starts.lock().unwrap().is_none());
        let primary_of_b = async || list_running_nodes(&system(a)).await.unwrap()[1].primary_id;
        assert_eq!(primary_of_b().await, 1, "what was announced was taken back");
        delete_node(&system(a), "late").await.unwrap();
        assert!(follow(&b, "b").await && !follow(&b, "b").await);
        assert_eq!((sealing(&b), primary_of_b().await), ((2, true), 2));
    }

    async fn a_value_that_was_sealed_with_a_removed_key_is_rewrapped_by_the_node_that_has_it(setup: Setup) {
        let (scene, b) = with_lost_node(setup, |rotation| &rotation.added).await;
        let a = &scene.server;
        // In the moment before it notices.
        endpoint(&b, &scene.acme, "https://hooks.example.com/in", &["ticket.*"]).await;
        assert_eq!(rewrap(a).await, RewrapReport { rewrapped: 0, outrun: 0, failed: 2 });
        follow(&b, "b").await;
        save(a, "a").await;
        assert!(rewraps(&b, "b").await && !rewraps(a, "a").await, "the first of them could not");
        assert_eq!(rewrap(&b).await, RewrapReport { rewrapped: 2, outrun: 0, failed: 0 });
        assert_eq!(rewrap(a).await, RewrapReport::default());
    }
}
