//! Keys that are missing and values that were moved: reported, and never skipped in silence.

use kernel::base::Error;
use kernel::keyring::checks::{MissingKey, SecretsProblem, find_problem, register_secrets, retire_key};
use kernel::keyring::nodes::{delete_node, save_node};
use kernel::keyring::unopened::{UnopenedValues, find_unopened};

use super::nodes::name_of;
use super::*;

/// What a node with these secrets would be told at its start.
async fn problem(server: &Server, text: &str) -> Option<SecretsProblem> {
    find_problem(&system(server), &Secrets::parse(text).unwrap(), columns()).await.unwrap()
}

async fn register(server: &Server, text: &str) -> Result<(), Error> {
    register_secrets(&system(server), &Secrets::parse(text).unwrap(), columns()).await
}

/// The values that do not open, as `doctor` finds them.
async fn unopened(server: &Server) -> Vec<UnopenedValues> {
    find_unopened(&system(server), &server.app.secrets, columns()).await.unwrap()
}

over_http! {
    async fn every_missing_key_is_named_at_once(setup: Setup) {
        let rotation = Rotation::of(&setup.secrets);
        let server = webhooks::open(setup).await;
        let acme = server.tenant("acme").await;
        for text in [&rotation.first, &rotation.rotated] {
            adopt(&server, text);
            endpoint(&server, &acme, "https://hooks.example.com/in", &["ticket.*"]).await;
        }
        let third = change(&change(&rotation.rotated, KeyringChange::AddKey(3)), KeyringChange::SetPrimary(3));
        let alone = change(&change(&third, KeyringChange::RemoveKey(1)), KeyringChange::RemoveKey(2));
        let told = problem(&server, &alone).await.expect("two keys are needed").to_string();
        for id in [1, 2] {
            let part = format!("sealing key {id} is not in the secrets of this node, and values are sealed with it (webhook_secrets 1, webhooks 1)");
            assert!(told.contains(&part), "{told}");
        }
    }

    async fn a_key_that_values_need_is_missed_at_the_start(setup: Setup) {
        let scene = Scene::new(setup).await;
        let server = &scene.server;
        register(server, &scene.rotation.rotated).await.unwrap();
        let Some(SecretsProblem::MissingKeys(missing)) = problem(server, &scene.rotation.removed).await else {
            panic!("key 1 is needed")
        };
        assert_eq!((missing.len(), missing[0].id), (1, 1));
        let mut used: Vec<&str> = missing[0].usage.split(", ").collect();
        used.sort_unstable();
        let all = ["sso_providers.client_secret 1", "webhook_secrets 1", "webhooks 1", "workflow_revisions.headers 1"];
        assert_eq!(used, all);
        let refused = register(server, &scene.rotation.removed).await.unwrap_err().to_string();
        for part in ["sealing key 1 is not in the secrets of this node", "webhook_secrets 1", "from your backup", "are lost"] {
            assert!(refused.contains(part), "{refused}");
        }
        // A server that runs all the same changes nothing.
        adopt(server, &scene.rotation.removed);
        assert_eq!(rewrap(server).await, RewrapReport { rewrapped: 0, outrun: 0, failed: VALUES });
        assert!(status(server).await.keys.iter().any(|key| key.id == 1 && !key.in_secrets && !key.values.is_empty()));
        let found = unopened(server).await;
        assert_eq!((found.len(), found.iter().map(|one| one.values).sum::<u64>()), (4, VALUES));
        let reason = "a value was sealed with key 1, which is not in the secrets file";
        assert!(found.iter().all(|one| one.first.reason == reason), "{found:?}");
        assert!(status(server).await.find_removal_obstacle(1).is_some());
        adopt(server, &scene.rotation.rotated);
        scene.opens_on(server, "when the key is back").await;
        assert_eq!(unopened(server).await, []);
    }

    async fn a_key_that_was_only_added_is_missed_when_a_node_seals_with_it(setup: Setup) {
        let rotation = Rotation::of(&setup.secrets);
        let server = setup.start().await;
        register(&server, &rotation.added).await.unwrap();
        assert_eq!(problem(&server, &rotation.first).await, None, "the file with it may have been lost before anybody used it");
        let rotated = Secrets::parse(&rotation.rotated).unwrap();
        save_node(&system(&server), &name_of("other"), &rotated).await.unwrap();
        let missing = problem(&server, &rotation.first).await;
        let needed = MissingKey { id: 2, usage: String::new(), hosts: vec!["host-other".to_owned()] };
        assert_eq!(missing, Some(SecretsProblem::MissingKeys(vec![needed])));
        assert!(register(&server, &rotation.first).await.unwrap_err().to_string().contains("copy the secrets file from host-other"));
        delete_node(&system(&server), "other").await.unwrap();
        retire_key(&system(&server), 2).await.unwrap();
        assert_eq!(problem(&server, &rotation.first).await, None, "it was given up");
        assert_eq!(problem(&server, &rotation.added).await, None, "a node that still has it is fine");
        assert_eq!(problem(&server, &rotation.rotated).await, Some(SecretsProblem::RetiredPrimary(2)), "but must not seal with it");
        assert_eq!(status(&server).await.next_id(), 3, "no id is used twice");
        let other = change(&rotation.first, KeyringChange::AddKey(2));
        assert_eq!(problem(&server, &other).await, Some(SecretsProblem::Mismatch("sealing_key_2".to_owned())));
    }

    async fn secrets_of_another_installation_register_nothing(setup: Setup) {
        let rotation = Rotation::of(&setup.secrets);
        let server = setup.start().await;
        register(&server, &rotation.first).await.unwrap();
        let other = change(&Secrets::generate_text(&RandomSource::System).unwrap(), KeyringChange::AddKey(7));
        assert_eq!(problem(&server, &other).await, Some(SecretsProblem::Mismatch("pepper".to_owned())));
        assert!(register(&server, &other).await.is_err());
        assert_eq!(problem(&server, &rotation.first).await, None, "key 7 is not asked for");
    }

    async fn values_swapped_between_tenants_are_not_made_good(setup: Setup) {
        let rotation = Rotation::of(&setup.secrets);
        let server = webhooks::open(setup).await;
        let tenants = [server.tenant("acme").await, server.tenant("globex").await];
        for tenancy in &tenants {
            endpoint(&server, tenancy, "https://hooks.example.com/in", &["ticket.*"]).await;
        }
        let read = "SELECT tenant_id, secret FROM webhook_secrets ORDER BY tenant_id LIMIT 10";
        let stored: Vec<(TenantId, Vec<u8>)> = system(&server).list(read, kernel::args![]).await.unwrap();
        let [(one, its), (other, others)] = <[_; 2]>::try_from(stored).expect("two endpoints");
        let one_id = one.to_string();
        let swap = "UPDATE webhook_secrets SET secret = $2 WHERE tenant_id = $1";
        let db = system(&server);
        let swapped = db.write(async move |tx| {
            tx.exec(swap, kernel::args![one, others]).await?;
            tx.exec(swap, kernel::args![other, its]).await
        });
        assert_eq!(swapped.await.unwrap(), 1);
        adopt(&server, &rotation.rotated);
        assert_eq!(rewrap(&server).await, RewrapReport { rewrapped: 2, outrun: 0, failed: 2 }, "the headers alone");
        let found = unopened(&server).await;
        assert_eq!((found.len(), found[0].column, found[0].values), (1, "webhook_secrets", 2), "{found:?}");
        let first = &found[0].first;
        assert_eq!((first.tenant_id.as_str(), first.version), (one_id.as_str(), 1), "it is named");
        assert!(first.record_id.starts_with("wh_") && first.reason.contains("does not open"), "{first:?}");
        let obstacle = status(&server).await.find_removal_obstacle(1).expect("two values are left");
        assert!(obstacle.contains("webhook_secrets 2"), "{obstacle}");
    }

    async fn a_value_of_another_version_is_not_made_good(setup: Setup) {
        let scene = Scene::new(setup).await;
        let server = &scene.server;
        let older = "UPDATE webhooks SET headers_version = headers_version + 1";
        system(server).write(async move |tx| tx.exec(older, kernel::args![]).await).await.unwrap();
        adopt(server, &scene.rotation.rotated);
        assert_eq!(rewrap(server).await, RewrapReport { rewrapped: VALUES - 1, outrun: 0, failed: 1 });
    }
}
