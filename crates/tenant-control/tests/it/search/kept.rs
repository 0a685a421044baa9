//! The index is like the records: what is written is found, what is gone is not, and whatever becomes of the index is made good.

use std::path::Path;

use kernel::args;
use kernel::store::{Purpose, Tx};
use serde_json::json;

use super::{called, count_software, device, hits, ids, organization, some, text, total, user, workflow};
use crate::asset_inventory::{change, remove};
use crate::support::devices::{Agent, devices, reported};
use crate::support::search::{FOLDER, Indexed, put, spoil};
use crate::support::workflows::{approval, manual};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::changed;

async fn subtitle(server: &Server, tenancy: &Tenancy, q: &str) -> String {
    let found = server.search(&tenancy.admin, q).await;
    let [hit] = hits(&found) else { panic!("one hit of {q}, not {found}") };
    text(hit, "subtitle").to_owned()
}

type Damage = fn(&Path, &Path);

/// What can become of a folder, and of the index in it.
const DAMAGES: [(&str, Damage); 7] = [
    ("the folder is gone", |root, _| std::fs::remove_dir_all(root).expect("it was there")),
    ("the index is gone", |_, index| std::fs::remove_dir_all(index).expect("it was there")),
    ("another index is named", |root, _| put(&root.join("current"), b"nothing")),
    ("it does not say what it has", |_, index| std::fs::remove_file(index.join("meta.json")).expect("it was there")),
    ("it says nonsense", |_, index| put(&index.join("meta.json"), b"{\"segments\": 7}")),
    ("words are cut off", |_, index| spoil(index, "term", |content| content.truncate(content.len() / 2))),
    ("one bit is another", |_, index| {
        spoil(index, "store", |content| {
            let middle = content.len() / 2;
            content[middle] ^= 1;
        });
    }),
];

over_http! {
    async fn what_is_written_is_found_and_what_is_changed_is_found_as_it_is_now(server: Server) {
        let acme = server.tenant("acme").await;
        let indexed = Indexed::of(&server).await;
        let made = called(&server, &acme, "Printer is jammed").await;
        let id = device(&server, &acme, "gutenberg", |_| {}).await;
        assert!(server.titles(&acme.admin, "jammed").await.is_empty(), "nobody has told the index");
        indexed.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "jammed").await, ["Printer is jammed"]);
        assert_eq!(server.titles(&acme.admin, "gutenberg").await, ["gutenberg"]);

        changed(&server, &acme, &made, &json!({"subject": "Scanner is broken", "status": "open"})).await;
        change(&server, &acme, &id, |full| full.device.hostname = some("bodoni")).await;
        indexed.catch_up().await;
        for gone in ["jammed", "printer", "gutenberg"] {
            assert!(server.titles(&acme.admin, gone).await.is_empty(), "{gone}");
        }
        assert_eq!(server.titles(&acme.admin, "scanner").await, ["Scanner is broken"]);
        assert_eq!(server.titles(&acme.admin, "host:bodoni").await, ["bodoni"]);
        assert_eq!(subtitle(&server, &acme, "scanner").await, "#1 · open · medium");
    }

    async fn new_customers_people_and_workflows_are_found(server: Server) {
        let acme = server.tenant("acme").await;
        let indexed = Indexed::of(&server).await;
        organization(&server, &acme, "Initech", "initech").await;
        user(&server, &acme, "Milton Waddams", "milton@hub.test").await;
        let made = workflow(&server, &acme, "Stapler hunt", manual([approval("ask")])).await;
        indexed.catch_up().await;
        assert_eq!(subtitle(&server, &acme, "initech").await, "initech");
        assert_eq!(subtitle(&server, &acme, "waddams").await, "milton@hub.test · technician");
        assert_eq!(subtitle(&server, &acme, "stapler").await, "enabled");
        server.change_workflow(&acme, &made, &json!({"enabled": false, "name": "Pencil hunt"})).await;
        indexed.catch_up().await;
        assert!(server.titles(&acme.admin, "stapler").await.is_empty());
        assert_eq!(subtitle(&server, &acme, "pencil").await, "disabled");
    }

    async fn what_is_deleted_is_not_found(server: Server) {
        let acme = server.tenant("acme").await;
        let kept = device(&server, &acme, "apollo01", |_| {}).await;
        let lost = device(&server, &acme, "apollo02", |_| {}).await;
        let again = workflow(&server, &acme, "Apollo again", manual([approval("ask")])).await;
        let indexed = Indexed::of(&server).await;
        assert_eq!(server.titles(&acme.admin, "apollo").await.len(), 3);
        remove(&server, &acme, &lost).await;
        server.delete_workflow(&acme, &again).await;
        indexed.catch_up().await;
        let found = server.search(&acme.admin, "apollo").await;
        assert_eq!(ids(&found), [kept.as_str()]);
        assert_eq!(total(&found), 1, "{found}");
        // Nor by an index that is built now.
        let built = Indexed::of(&server).await;
        assert_eq!(ids(&server.search(&acme.admin, "apollo").await), [kept.as_str()]);
        drop(built);
    }

    async fn software_is_found_as_long_as_a_device_has_it(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let indexed = Indexed::of(&server).await;
        let take = async || {
            count_software(&server).await;
            indexed.catch_up().await;
        };
        let [first, second] = ["web01", "web02"].map(Agent::named);
        reported(&server, &key, &first.clone().software(&[("Apollo Client", "1"), ("Zeppelin", "2")]).fusion()).await;
        reported(&server, &key, &second.software(&[("Apollo Client", "3"), ("Curl", "8")]).fusion()).await;
        take().await;
        assert_eq!(subtitle(&server, &acme, "apollo").await, "on 2 devices");
        assert_eq!(subtitle(&server, &acme, "zepelin").await, "on 1 device");
        let found = server.search(&acme.admin, "zeppelin").await;
        assert_eq!((ids(&found), text(&hits(&found)[0], "title")), (vec!["zeppelin".to_owned()], "Zeppelin"));

        reported(&server, &key, &first.clone().software(&[("Curl", "8")]).fusion()).await;
        take().await;
        assert_eq!(subtitle(&server, &acme, "apollo").await, "on 1 device");
        assert!(server.titles(&acme.admin, "zeppelin").await.is_empty());

        let all = devices(&server, &acme.admin, "").await;
        let second = all.iter().find(|device| device["hostname"] == "web02").expect("the second");
        remove(&server, &acme, text(second, "id")).await;
        take().await;
        assert_eq!(server.titles(&acme.admin, "type:software").await, ["Curl"]);

        reported(&server, &key, &first.software(&[("Curl", "8"), ("Zeppelin", "4")]).fusion()).await;
        take().await;
        assert_eq!(server.titles(&acme.admin, "type:software").await, ["Curl", "Zeppelin"]);
    }

    async fn a_keeper_that_starts_again_goes_on_where_the_last_one_was(server: Server) {
        let acme = server.tenant("acme").await;
        let made = called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        called(&server, &acme, "Printer two").await;
        indexed.catch_up().await;
        let before = indexed.current();
        let data = indexed.stop();
        called(&server, &acme, "Printer three").await;
        changed(&server, &acme, &made, &json!({"subject": "Scanner one"})).await;
        let indexed = Indexed::again(&server, data).await;
        indexed.catch_up().await;
        assert_eq!(indexed.current(), before, "it was not built anew");
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer three", "Printer two"]);
        assert_eq!(server.titles(&acme.admin, "scanner").await, ["Scanner one"]);
    }

    async fn a_folder_that_is_damaged_is_built_anew(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer is jammed").await;
        device(&server, &acme, "gutenberg", |_| {}).await;
        let mut indexed = Indexed::of(&server).await;
        for (what, damage) in DAMAGES {
            let before = indexed.current();
            let data = indexed.stop();
            let root = data.path().join(FOLDER);
            damage(&root, &root.join(&before));
            indexed = Indexed::again(&server, data).await;
            assert_ne!(indexed.current(), before, "{what}");
            assert_eq!(server.titles(&acme.admin, "jammed").await, ["Printer is jammed"], "{what}");
            assert_eq!(server.titles(&acme.admin, "gutenberg").await, ["gutenberg"], "{what}");
            // It goes on like any other.
            called(&server, &acme, what).await;
            indexed.catch_up().await;
            assert_eq!(server.titles(&acme.admin, &format!("\"{what}\"")).await, [what]);
            let indexes = std::fs::read_dir(indexed.root()).expect("the folder");
            let folders = indexes.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count();
            assert_eq!(folders, 1, "{what}: the old one is removed");
        }
    }

    async fn an_index_whose_reader_was_forgotten_is_built_anew(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        let before = indexed.current();
        let data = indexed.stop();
        called(&server, &acme, "Printer two").await;
        let system = server.app.store.system(Purpose::Cli);
        let forget = async |tx: &mut Tx| tx.exec("DELETE FROM change_readers", args![]).await;
        assert_eq!(system.write(forget).await.expect("it is forgotten"), 1);
        let indexed = Indexed::again(&server, data).await;
        assert_ne!(indexed.current(), before);
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer two", "Printer one"]);
    }
}
