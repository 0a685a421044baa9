//! What `admin keyring` does, step by step: a command that is killed, meets a full disk or another command loses nothing.

use std::path::PathBuf;
use std::sync::Mutex;

use kernel::base::{Error, SECOND_MS, SecretsSource};
use kernel::keyring::changes::{AddedKey, KeyringChanges, NewPrimary, RemovedKey};
use kernel::keyring::checks::find_problem;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::nodes::save;
use super::*;

/// The secrets file of one node.
struct NodeFile {
    folder: TempDir,
    source: SecretsSource,
}

impl NodeFile {
    fn new(text: &str) -> NodeFile {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("secrets.json");
        std::fs::write(&path, text).unwrap();
        NodeFile { folder, source: SecretsSource::File(path) }
    }

    fn text(&self) -> String {
        self.source.read_text().unwrap().expect("a file")
    }

    /// The ids of its keys, and the primary.
    fn keys(&self) -> (Vec<u32>, u32) {
        let keyring = Secrets::parse(&self.text()).unwrap().keyring();
        (keyring.key_ids(), keyring.primary_id())
    }

    fn changes(&self, server: &Server) -> KeyringChanges<'_> {
        KeyringChanges {
            system: system(server),
            source: &self.source,
            columns: columns(),
            command_line: &str::to_owned,
        }
    }

    async fn add(&self, server: &Server) -> Result<AddedKey, Error> {
        self.changes(server).add_key().await
    }

    async fn rotate(&self, server: &Server, to: Option<u32>) -> Result<NewPrimary, Error> {
        self.changes(server).rotate_to(to).await
    }

    async fn remove(&self, server: &Server, id: u32) -> Result<RemovedKey, Error> {
        self.changes(server).remove_key(id).await
    }

    /// Lets no change of the file succeed, as a full disk does, until the path is removed.
    fn fill_disk(&self) -> PathBuf {
        let draft = self.folder.path().join("secrets.change.draft");
        std::fs::create_dir(&draft).unwrap();
        draft
    }

    /// Whether a node with this file could start.
    async fn is_usable(&self, server: &Server) -> bool {
        let secrets = Secrets::parse(&self.text()).unwrap();
        find_problem(&system(server), &secrets, columns()).await.unwrap().is_none()
    }
}

/// Kills a command at a place, once.
#[derive(Clone, Default)]
struct Killer {
    place: Arc<Mutex<Option<&'static str>>>,
    killed: Arc<Notify>,
}

impl Killer {
    fn faults(&self) -> FaultPoints {
        let killer = self.clone();
        FaultPoints::new(move |point| {
            if killer.place.lock().unwrap().take_if(|place| *place == point).is_none() {
                return InjectedFault::None;
            }
            killer.killed.notify_one();
            InjectedFault::Die
        })
    }

    /// Runs a command until it is killed there.
    async fn kill_at<T>(&self, place: &'static str, command: impl Future<Output = Result<T, Error>>) {
        *self.place.lock().unwrap() = Some(place);
        tokio::select! {
            ended = command => panic!("it was not killed: {:?}", ended.err()),
            () = self.killed.notified() => {}
        }
    }
}

/// A server with a sealed value of each column, and the file of its node, whose commands can be killed.
async fn killable(setup: Setup) -> (Scene, NodeFile, Killer) {
    let killer = Killer::default();
    let file = NodeFile::new(&setup.secrets);
    (Scene::new(setup.with_faults(killer.faults())).await, file, killer)
}

fn refusal<T>(result: Result<T, Error>) -> String {
    result.err().expect("a refusal").cause_chain().expect("a reason")
}

over_http! {
    async fn a_key_is_added_rotated_to_and_removed(setup: Setup) {
        let (scene, file, _) = killable(setup).await;
        let server = &scene.server;
        assert_eq!(file.add(server).await.unwrap(), AddedKey { id: 2, primary_id: 1 });
        assert_eq!((file.keys(), file.is_usable(server).await), ((vec![1, 2], 1), true));
        assert_eq!(file.rotate(server, None).await.unwrap(), NewPrimary { id: 2, previous_id: 1 });
        assert_eq!((file.keys(), file.is_usable(server).await), ((vec![1, 2], 2), true));
        assert!(refusal(file.remove(server, 1).await).contains("would be lost"));
        adopt(server, &file.text());
        rewrap(server).await;
        assert_eq!(file.remove(server, 1).await.unwrap(), RemovedKey { id: 1, primary_id: 2 });
        assert_eq!((file.keys(), file.is_usable(server).await), ((vec![2], 2), true));
        adopt(server, &file.text());
        scene.opens_on(server, "with the new key alone").await;
    }

    async fn an_add_that_is_killed_leaves_an_id_that_can_be_given_up(setup: Setup) {
        let (scene, file, killer) = killable(setup).await;
        let (server, before) = (&scene.server, file.text());
        killer.kill_at("keyring.add.registered", file.add(server)).await;
        assert_eq!((file.text(), file.is_usable(server).await), (before, true), "the key was never in the file");
        assert!(status(server).await.find_key(2).is_some_and(|key| !key.in_secrets && key.values.is_empty()));
        let refused = refusal(file.add(server).await);
        assert!(refused.starts_with("key 2 was added on another node or by a command that was killed"), "{refused}");
        assert!(refused.contains("`admin keyring remove --id 2`"), "{refused}");
        assert_eq!(file.remove(server, 2).await.unwrap(), RemovedKey { id: 2, primary_id: 1 });
        assert_eq!(file.add(server).await.unwrap(), AddedKey { id: 3, primary_id: 1 });
        assert_eq!(file.keys(), (vec![1, 3], 1));
    }

    async fn a_removal_that_is_killed_leaves_the_key_in_the_file_and_can_be_repeated(setup: Setup) {
        let (scene, file, killer) = killable(setup).await;
        let server = &scene.server;
        file.add(server).await.unwrap();
        file.rotate(server, None).await.unwrap();
        adopt(server, &file.text());
        rewrap(server).await;
        killer.kill_at("keyring.remove.retired", file.remove(server, 1)).await;
        assert_eq!((file.keys(), file.is_usable(server).await), ((vec![1, 2], 2), true));
        let refused = refusal(file.rotate(server, Some(1)).await);
        assert!(refused.starts_with("key 1 was removed, and no server seals with it again"), "{refused}");
        assert!(refusal(file.rotate(server, None).await).starts_with("key 2 is the primary already"));
        let shown = read_status(&system(server), &Secrets::parse(&file.text()).unwrap().keyring(), columns()).await.unwrap();
        assert!(shown.find_key(1).is_some_and(|key| key.is_retired && key.in_secrets));
        scene.opens_on(server, "after the kill").await;
        assert_eq!(file.remove(server, 1).await.unwrap(), RemovedKey { id: 1, primary_id: 2 });
        assert_eq!(file.keys(), (vec![2], 2));
    }

    async fn a_full_disk_changes_nothing_and_what_failed_can_be_repeated(setup: Setup) {
        let (scene, file, _) = killable(setup).await;
        let (server, first) = (&scene.server, file.text());
        let full = file.fill_disk();
        let refused = refusal(file.add(server).await);
        assert!(refused.starts_with("failed to change ") && refused.contains("secrets.json"), "{refused}");
        assert_eq!((file.text(), file.is_usable(server).await), (first, true));
        assert!(status(server).await.find_key(2).is_none(), "nobody looks for a key that was never made");
        std::fs::remove_dir(&full).unwrap();
        assert_eq!(file.add(server).await.unwrap().id, 3, "no id is used twice");
        let (added, full) = (file.text(), file.fill_disk());
        assert!(refusal(file.rotate(server, None).await).starts_with("failed to change "));
        assert_eq!((file.text(), file.is_usable(server).await), (added, true));
        std::fs::remove_dir(&full).unwrap();
        file.rotate(server, None).await.unwrap();
        adopt(server, &file.text());
        rewrap(server).await;
        let (rotated, full) = (file.text(), file.fill_disk());
        assert!(refusal(file.remove(server, 1).await).starts_with("failed to change "));
        assert_eq!((file.text(), file.is_usable(server).await), (rotated, true));
        std::fs::remove_dir(&full).unwrap();
        assert_eq!(file.remove(server, 1).await.unwrap(), RemovedKey { id: 1, primary_id: 3 });
    }

    async fn a_key_that_a_server_begins_to_seal_with_while_it_is_removed_stays(setup: Setup) {
        let rotation = Rotation::of(&setup.secrets);
        let file = NodeFile::new(&rotation.rotated);
        // At the last moment, another server seals with the key that is about to be removed.
        let begins: Arc<Mutex<Option<Server>>> = Arc::default();
        let other = begins.clone();
        let faults = FaultPoints::new(move |point| {
            if let Some(server) = other.lock().unwrap().take_if(|_| point == "keyring.remove.retired") {
                let runtime = tokio::runtime::Handle::current();
                tokio::task::block_in_place(|| runtime.block_on(save(&server, "other")));
            }
            InjectedFault::None
        });
        let server = setup.with_faults(faults).start().await;
        adopt(&server, &rotation.rotated);
        save(&server, "own").await;
        server.advance(10 * SECOND_MS);
        *begins.lock().unwrap() = Some(server.node_with_secrets(&rotation.added).await);
        let refused = refusal(file.remove(&server, 1).await);
        assert!(refused.starts_with("host-other still seals with key 1"), "{refused}");
        assert_eq!((file.text(), file.is_usable(&server).await), (rotation.rotated.clone(), true));
        assert!(NodeFile::new(&rotation.added).is_usable(&server).await, "the key is not retired");
        assert!(status(&server).await.find_key(1).is_some_and(|key| !key.is_retired));
    }

    async fn copies_of_the_file_that_differ_are_named(setup: Setup) {
        let first = setup.secrets.clone();
        let [a, b] = [&first, &first].map(|text| NodeFile::new(text));
        let server = setup.start().await;
        assert_eq!(a.add(&server).await.unwrap().id, 2);
        let refused = refusal(b.add(&server).await);
        assert!(refused.contains("copy the secrets file from the node that has it"), "{refused}");
        // A running server that has read the key is named.
        let other = server.node_with_secrets(&a.text()).await;
        save(&other, "a").await;
        let refused = refusal(b.add(&server).await);
        assert!(refused.contains("copy the secrets file from host-a, then repeat this"), "{refused}");
        assert_eq!(b.keys(), (vec![1], 1));
        server.advance(10 * SECOND_MS);
        // Given up on one node, the key is still in the file of the other, and must not seal there.
        b.remove(&server, 2).await.unwrap();
        assert!(refusal(a.rotate(&server, None).await).starts_with("key 1 is the primary already"));
        assert!(refusal(a.rotate(&server, Some(2)).await).starts_with("key 2 was removed"));
        assert_eq!((b.add(&server).await.unwrap().id, a.keys()), (3, (vec![1, 2], 1)));
        let refused = refusal(a.add(&server).await);
        assert!(refused.starts_with("key 3 was added on another node"), "{refused}");
    }

    async fn a_file_whose_primary_was_removed_is_mended_by_a_rotation(setup: Setup) {
        let rotation = Rotation::of(&setup.secrets);
        let file = NodeFile::new(&rotation.added);
        let server = setup.start().await;
        adopt(&server, &rotation.rotated);
        kernel::keyring::checks::register_secrets(&system(&server), &server.app.secrets, columns()).await.unwrap();
        NodeFile::new(&rotation.rotated).remove(&server, 1).await.unwrap();
        assert!(!file.is_usable(&server).await);
        let refused = refusal(file.add(&server).await);
        assert!(refused.contains("key 1, which was removed") && refused.contains("`admin keyring rotate`"), "{refused}");
        assert_eq!(file.rotate(&server, None).await.unwrap(), NewPrimary { id: 2, previous_id: 1 });
        assert!(file.is_usable(&server).await);
    }
}
