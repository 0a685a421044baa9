//! The index is like the records: what is written is found, what is gone is not, and whatever becomes of the index is made good.

use std::path::Path;

use kernel::args;
use kernel::auth::delete_user;
use kernel::store::{Purpose, Tx};
use serde_json::json;
use tempfile::TempDir;

use super::{
    called, count_software, device, hits, ids, organization, some, take_in, text, ticket, total, user, workflow,
};
use crate::asset_inventory::{change, remove, software};
use crate::support::search::Indexed;
use crate::support::workflows::{approval, manual};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::changed;

/// Which of the indexes in a folder is in use: another one after it was built anew.
fn current(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join("current")).expect("an index is in use")
}

async fn subtitle(server: &Server, tenancy: &Tenancy, q: &str) -> String {
    let found = server.search(&tenancy.admin, q).await;
    let [hit] = hits(&found) else { panic!("one hit of {q}, not {found}") };
    text(hit, "subtitle").to_owned()
}

/// The field and the snippet of each place that is shown of the only hit.
async fn shown(server: &Server, tenancy: &Tenancy, q: &str) -> Vec<(String, String)> {
    let found = server.search(&tenancy.admin, q).await;
    let [hit] = hits(&found) else { panic!("one hit of {q}, not {found}") };
    let all = hit["highlights"].as_array().expect("highlights");
    all.iter().map(|one| (text(one, "field").to_owned(), text(one, "snippet").to_owned())).collect()
}

/// A file of an index with another content. Whoever has the old one open keeps it, as after a disk was exchanged.
fn put(path: &Path, content: &[u8]) {
    std::fs::remove_file(path).expect("the file was there");
    std::fs::write(path, content).expect("the file is written");
}

/// Does something to the content of all files of an index that end so.
fn spoil(index: &Path, extension: &str, how: impl Fn(&mut Vec<u8>)) {
    let mut spoilt = 0;
    for entry in std::fs::read_dir(index).expect("the index") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|found| found == extension) {
            let mut content = std::fs::read(&path).expect("the content");
            how(&mut content);
            put(&path, &content);
            spoilt += 1;
        }
    }
    assert!(spoilt > 0, "no file of {} ends in {extension}", index.display());
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
        take_in(&server, &indexed).await;
        assert_eq!(server.titles(&acme.admin, "jammed").await, ["Printer is jammed"]);
        assert_eq!(server.titles(&acme.admin, "gutenberg").await, ["gutenberg"]);

        changed(&server, &acme, &made, &json!({"subject": "Scanner is broken", "status": "open"})).await;
        change(&server, &acme, &id, |full| full.device.hostname = some("bodoni")).await;
        take_in(&server, &indexed).await;
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
        take_in(&server, &indexed).await;
        assert_eq!(subtitle(&server, &acme, "initech").await, "initech");
        assert_eq!(subtitle(&server, &acme, "waddams").await, "milton@hub.test · technician");
        assert_eq!(subtitle(&server, &acme, "stapler").await, "enabled");
        server.change_workflow(&acme, &made, &json!({"enabled": false, "name": "Pencil hunt"})).await;
        take_in(&server, &indexed).await;
        assert!(server.titles(&acme.admin, "stapler").await.is_empty());
        assert_eq!(subtitle(&server, &acme, "pencil").await, "disabled");
    }

    async fn what_is_deleted_is_not_found(server: Server) {
        let acme = server.tenant("acme").await;
        let kept = device(&server, &acme, "apollo01", |_| {}).await;
        let lost = device(&server, &acme, "apollo02", |_| {}).await;
        let creed = user(&server, &acme, "Apollo Creed", "creed@hub.test").await;
        let again = workflow(&server, &acme, "Apollo again", manual([approval("ask")])).await;
        let indexed = Indexed::of(&server).await;
        assert_eq!(server.titles(&acme.admin, "apollo").await.len(), 4);
        remove(&server, &acme, &lost).await;
        delete_user(&server.app.store, &acme.tenant, &creed).await.expect("the user is deleted");
        server.delete_workflow(&acme, &again).await;
        take_in(&server, &indexed).await;
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
        let indexed = Indexed::of(&server).await;
        let take = async || {
            count_software(&server).await;
            take_in(&server, &indexed).await;
        };
        let both = || vec![software("Apollo Client", "1"), software("Zeppelin", "2")];
        let first = device(&server, &acme, "web01", |full| full.parts.software = both()).await;
        let second = device(&server, &acme, "web02", |full| full.parts.software = vec![software("Apollo Client", "3")]).await;
        take().await;
        assert_eq!(subtitle(&server, &acme, "apollo").await, "on 2 devices");
        assert_eq!(subtitle(&server, &acme, "zeppelin").await, "on 1 device");

        change(&server, &acme, &first, |full| full.parts.software.clear()).await;
        take().await;
        assert_eq!(subtitle(&server, &acme, "apollo").await, "on 1 device");
        assert!(server.titles(&acme.admin, "zeppelin").await.is_empty());

        remove(&server, &acme, &second).await;
        take().await;
        assert!(server.titles(&acme.admin, "type:software").await.is_empty());

        change(&server, &acme, &first, |full| full.parts.software = vec![software("Zeppelin", "4")]).await;
        take().await;
        assert_eq!(server.titles(&acme.admin, "type:software").await, ["Zeppelin"]);
    }

    async fn a_keeper_that_starts_again_goes_on_where_the_last_one_was(server: Server) {
        let acme = server.tenant("acme").await;
        let made = called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        called(&server, &acme, "Printer two").await;
        take_in(&server, &indexed).await;
        let before = current(&indexed.folder);
        let folder = indexed.stop();
        called(&server, &acme, "Printer three").await;
        changed(&server, &acme, &made, &json!({"subject": "Scanner one"})).await;
        let indexed = Indexed::again(&server, folder).await;
        take_in(&server, &indexed).await;
        assert_eq!(current(&indexed.folder), before, "it was not built anew");
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer three", "Printer two"]);
        assert_eq!(server.titles(&acme.admin, "scanner").await, ["Scanner one"]);
    }

    async fn a_folder_that_is_damaged_is_built_anew(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer is jammed").await;
        device(&server, &acme, "gutenberg", |_| {}).await;
        let mut indexed = Indexed::of(&server).await;
        for (what, damage) in DAMAGES {
            let before = current(&indexed.folder);
            let folder = indexed.stop();
            damage(folder.path(), &folder.path().join(&before));
            indexed = Indexed::again(&server, folder).await;
            assert_ne!(current(&indexed.folder), before, "{what}");
            assert_eq!(server.titles(&acme.admin, "jammed").await, ["Printer is jammed"], "{what}");
            assert_eq!(server.titles(&acme.admin, "gutenberg").await, ["gutenberg"], "{what}");
            // It goes on like any other.
            called(&server, &acme, what).await;
            take_in(&server, &indexed).await;
            assert_eq!(server.titles(&acme.admin, &format!("\"{what}\"")).await, [what]);
            let indexes = std::fs::read_dir(indexed.folder.path()).expect("the folder");
            let folders = indexes.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count();
            assert_eq!(folders, 1, "{what}: the old one is removed");
        }
    }

    async fn an_index_whose_reader_was_forgotten_is_built_anew(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        let before = current(&indexed.folder);
        let folder = indexed.stop();
        called(&server, &acme, "Printer two").await;
        let system = server.app.store.system(Purpose::Cli);
        let forget = async |tx: &mut Tx| tx.exec("DELETE FROM change_readers", args![]).await;
        assert_eq!(system.write(forget).await.expect("it is forgotten"), 1);
        let indexed = Indexed::again(&server, folder).await;
        assert_ne!(current(&indexed.folder), before);
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer two", "Printer one"]);
    }

    async fn a_highlight_says_where_and_can_be_put_into_html(server: Server) {
        let acme = server.tenant("acme").await;
        let fields = json!({
            "subject": "<script>alert(\"printer\")</script> & 'more'", "description": "The toner of it\nis low.",
            "requester": {"name": "Sam <em>Toner</em>", "email": "sam@hub.test"}, "tags": ["toner", "toner 2"],
            "external_id": "JIRA-77",
        });
        ticket(&server, &acme, &fields, &[]).await;
        device(&server, &acme, "gutenberg", |full| full.device.model = some("Press 1450")).await;
        let _indexed = Indexed::of(&server).await;
        let title = server.titles(&acme.admin, "printer").await;
        assert_eq!(title, ["<script>alert(\"printer\")</script> & 'more'"], "a title is text");
        let html = "&lt;script&gt;alert(&quot;<em>printer</em>&quot;)&lt;/script&gt; &amp; &#39;more&#39;";
        for q in ["printer", "print", "pirnter", "\"printer\"", "PRINTER type:ticket"] {
            assert_eq!(shown(&server, &acme, q).await, [("subject".to_owned(), html.to_owned())], "{q}");
        }
        let toner = [
            ("requester.name", "Sam &lt;em&gt;<em>Toner</em>&lt;/em&gt;"),
            ("description", "The <em>toner</em> of it is low."),
            ("tags", "<em>toner</em>"),
        ];
        let toner = toner.map(|(field, snippet)| (field.to_owned(), snippet.to_owned()));
        assert_eq!(shown(&server, &acme, "toner").await, toner, "three at most");
        for (q, field, snippet) in [
            ("jira-77", "external_id", "<em>JIRA</em>-<em>77</em>"),
            ("gutenburg", "hostname", "<em>gutenberg</em>"),
            ("press", "model", "<em>Press</em> 1450"),
        ] {
            assert_eq!(shown(&server, &acme, q).await, [(field.to_owned(), snippet.to_owned())], "{q}");
        }
        for q in ["#1", "type:ticket", "host:gutenberg"] {
            assert!(shown(&server, &acme, q).await.is_empty(), "{q}: nothing is looked for by its words");
        }
    }

    async fn of_a_long_text_the_part_around_the_word_is_shown(server: Server) {
        let acme = server.tenant("acme").await;
        let filler = "lorem ipsum ".repeat(100);
        let fields = json!({"subject": "Long", "description": format!("{filler}needle {filler}")});
        ticket(&server, &acme, &fields, &[]).await;
        let _indexed = Indexed::of(&server).await;
        let shown = shown(&server, &acme, "needle").await;
        let [(field, snippet)] = shown.as_slice() else { panic!("{shown:?}") };
        assert_eq!(field, "description");
        assert!(snippet.starts_with('…') && snippet.ends_with('…') && snippet.contains("<em>needle</em>"), "{snippet}");
        assert!(snippet.chars().count() < 200, "{snippet}");
    }
}
