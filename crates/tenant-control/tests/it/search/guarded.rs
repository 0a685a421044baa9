//! What the index is guarded against: that it is forgotten, a store that was put back, another version, another keeper in its
//! folder, and files that nobody knows. And what the doctor tells of it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use kernel::args;
use kernel::auth::open_as_operator;
use kernel::base::{HOUR_MS, MINUTE_MS, Result};
use kernel::store::changes::{self, ChangePosition};
use kernel::store::{Db, Purpose};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenant_control::features::search::health::check_index_health;
use tenant_control::features::search::index::IndexQuery;
use tenant_control::features::search::index::writer::{DocumentWriter, open_index};
use tenant_control::features::search::requested_kinds;
use tenant_control::features::search::service::SearchService;
use tenant_control::features::search::synchronizer::IndexSynchronizer;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::called;
use super::feed::{readers, shift_seen};
use crate::support::process::until;
use crate::support::search::{FOLDER, Indexed, current, put};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{changed, generous, id_of};

const PATIENCE: Duration = Duration::from_secs(30);
const FORGET: &str = "DELETE FROM change_readers";

fn system(server: &Server) -> Db {
    server.app.store.system(Purpose::Cli)
}

/// Does to the store what nobody but a test does. How many rows it was.
async fn tamper(system: &Db, sql: &'static str) -> u64 {
    system.write(async move |tx| tx.exec(sql, args![]).await).await.expect("it is done")
}

/// Forgets all readers in a transaction that ends when the sender is dropped. Until then everybody finds them.
async fn forget_slowly(system: Db) -> (mpsc::Sender<()>, JoinHandle<Result<()>>) {
    let (begun, has_begun) = oneshot::channel();
    let (release, wait) = mpsc::channel::<()>();
    let forgetting = tokio::spawn(async move {
        system
            .write(async move |tx| {
                tx.exec(FORGET, args![]).await?;
                let _ = begun.send(());
                let _ = tokio::task::block_in_place(|| wait.recv());
                Ok(())
            })
            .await
    });
    has_begun.await.expect("it has begun");
    (release, forgetting)
}

/// An index that is newer than the store below it.
struct Newer {
    data: TempDir,
    name: String,
    /// How far it has come in a feed that has gone back.
    place: ChangePosition,
}

async fn last_place(system: &Db) -> ChangePosition {
    let sql = "SELECT written_by, number FROM changes ORDER BY written_by DESC, number DESC LIMIT 1";
    system.get_one(sql, args![]).await.expect("a change")
}

/// Renames a ticket, and puts the store back to before that when the index has it. What it knows is one printer.
async fn put_back(server: &Server, tenancy: &Tenancy) -> Newer {
    let (system, indexed) = (system(server), Indexed::of(server).await);
    let made = called(server, tenancy, "Printer one").await;
    indexed.catch_up().await;
    let kept = last_place(&system).await;
    changed(server, tenancy, &made, &json!({"subject": "Scanner one"})).await;
    indexed.catch_up().await;
    assert_eq!(server.titles(&tenancy.admin, "scanner").await, ["Scanner one"]);
    let (name, place, id) = (indexed.current(), last_place(&system).await, id_of(&made).to_owned());
    let data = indexed.stop();
    let undone = system.write(async move |tx| {
        tx.exec("UPDATE tickets SET subject = 'Printer one' WHERE id = $1", args![id]).await?;
        let forget = "DELETE FROM changes WHERE (written_by, number) > ($1, $2)";
        tx.exec(forget, args![kept.written_by, kept.number]).await
    });
    assert!(undone.await.expect("it is put back") > 0);
    assert!(place > last_place(&system).await);
    Newer { data, name, place }
}

/// Makes of an index what the version before this one has written: the format stands in front of how far it has come.
fn date_back(index: &Path) {
    let path = index.join("meta.json");
    let content = std::fs::read(&path).expect("the index says what it has");
    let mut meta: Value = serde_json::from_slice(&content).expect("JSON");
    let payload = meta["payload"].as_str().expect("how far it has come");
    let (format, rest) = payload.split_once(' ').expect("a format");
    let before = format.parse::<i64>().expect("a number") - 1;
    meta["payload"] = json!(format!("{before} {rest}"));
    put(&path, meta.to_string().as_bytes());
}

/// What an index finds that no server asks.
async fn titles(served: &SearchService, server: &Server, tenancy: &Tenancy, q: &str) -> Vec<String> {
    let query = search_language::parse(q).expect("a query");
    let asked = IndexQuery { tenant: tenancy.tenant.id, kinds: requested_kinds(None), query, limit: 10, after: None };
    let db = open_as_operator(&server.app.store, &tenancy.tenant);
    let found = served.search(&db, asked).await.expect("an answer").expect("it is not too much");
    found.hits.into_iter().map(|hit| hit.title).collect()
}

over_http! {
    async fn an_index_for_which_nothing_was_kept_is_built_anew(server: Server) {
        let (acme, system) = (server.tenant("acme").await, system(&server));
        let made = called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        let before = indexed.current();
        assert_eq!(tamper(&system, FORGET).await, 1);
        changed(&server, &acme, &made, &json!({"subject": "Scanner one"})).await;
        called(&server, &acme, "Printer two").await;
        changes::delete_passed_changes(&system, HOUR_MS, 1_000).await.expect("it is cleaned");
        let indexed = Indexed::again(&server, indexed.stop()).await;
        assert_ne!(indexed.current(), before);
        assert_eq!(readers(&system).await, [indexed.current()]);
        called(&server, &acme, "Printer three").await;
        indexed.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer three", "Printer two"]);
        assert_eq!(server.titles(&acme.admin, "scanner").await, ["Scanner one"]);
    }

    async fn an_index_that_is_forgotten_while_it_follows_says_so_and_is_built_anew(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        let (root, before) = (indexed.root(), indexed.current());
        let _data = indexed.stop();
        // Removed as soon as the store has said that it knows the index.
        let stray = root.join("stray");
        std::fs::create_dir(&stray).expect("a folder");
        let (release, forgetting) = forget_slowly(system(&server)).await;
        let keeper = IndexSynchronizer::new(server.app.clone(), root.clone(), server.app.settings.feature_settings());
        let forgotten = async {
            until("the index is opened", PATIENCE, async || (!stray.exists()).then_some(())).await;
            drop(release);
            forgetting.await.expect("an end").expect("all are forgotten");
        };
        let (followed, ()) = tokio::join!(keeper.catch_up(), forgotten);
        let error = followed.expect_err("it is told").cause_chain().expect("a reason");
        assert!(error.contains("it was forgotten"), "{error}");
        assert_eq!(current(&root), Some(before.clone()));

        called(&server, &acme, "Printer two").await;
        keeper.catch_up().await.expect("it is built");
        assert_ne!(current(&root), Some(before));
        assert_eq!(readers(&system(&server)).await, [current(&root).expect("an index")]);
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer two", "Printer one"]);
    }

    async fn an_index_that_is_newer_than_the_store_is_built_anew(server: Server) {
        let acme = server.tenant("acme").await;
        let newer = put_back(&server, &acme).await;
        let indexed = Indexed::again(&server, newer.data).await;
        assert_ne!(indexed.current(), newer.name);
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer one"]);
        assert!(server.titles(&acme.admin, "scanner").await.is_empty());
    }

    async fn an_index_that_a_store_has_overtaken_since_it_was_put_back_is_built_anew(server: Server) {
        let acme = server.tenant("acme").await;
        let newer = put_back(&server, &acme).await;
        called(&server, &acme, "Printer two").await;
        let system = system(&server);
        assert!(last_place(&system).await > newer.place, "the end of the feed does not tell");
        assert!(!changes::has_change_at(&system, newer.place).await.expect("an answer"));
        let indexed = Indexed::again(&server, newer.data).await;
        assert_ne!(indexed.current(), newer.name);
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer two", "Printer one"]);
        assert!(server.titles(&acme.admin, "scanner").await.is_empty());
    }

    async fn an_index_of_which_the_store_knows_something_else_is_built_anew(server: Server) {
        let (acme, system) = (server.tenant("acme").await, system(&server));
        called(&server, &acme, "Printer one").await;
        let mut indexed = Indexed::of(&server).await;
        for (what, sql) in [
            ("less than it has noted there", "UPDATE change_readers SET written_by = 0, number = 0"),
            ("more than it has read", "UPDATE change_readers SET written_by = written_by + 1000000"),
        ] {
            called(&server, &acme, what).await;
            indexed.catch_up().await;
            let before = indexed.current();
            let data = indexed.stop();
            assert_eq!(tamper(&system, sql).await, 1, "{what}");
            indexed = Indexed::again(&server, data).await;
            assert_ne!(indexed.current(), before, "{what}");
            assert_eq!(readers(&system).await, [indexed.current()], "{what}");
            assert_eq!(server.titles(&acme.admin, &format!("\"{what}\"")).await, [what]);
        }
    }

    async fn an_index_of_another_version_serves_until_the_new_one_is_built(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        let (root, before) = (indexed.root(), indexed.current());
        let data = indexed.stop();
        date_back(&root.join(&before));
        called(&server, &acme, "Printer two").await;
        let is_built = AtomicBool::new(false);
        let building = async {
            let indexed = Indexed::again(&server, data).await;
            is_built.store(true, Ordering::Relaxed);
            indexed
        };
        let asking = async {
            while !is_built.load(Ordering::Relaxed) {
                let found = server.titles(&acme.admin, "printer").await;
                assert!(found.iter().any(|title| title == "Printer one"), "{found:?}");
            }
        };
        let (indexed, ()) = tokio::join!(building, asking);
        assert_ne!(indexed.current(), before);
        assert!(!root.join(&before).exists(), "the old one is removed");
        assert_eq!(readers(&system(&server)).await, [indexed.current()]);
        called(&server, &acme, "Printer three").await;
        indexed.catch_up().await;
        let all = ["Printer three", "Printer two", "Printer one"];
        assert_eq!(server.titles(&acme.admin, "printer").await, all);
    }

    async fn an_index_of_another_version_stays_one_while_it_is_kept_up_to_date(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        let index = indexed.root().join(indexed.current());
        let _data = indexed.stop();
        date_back(&index);
        // As it is while the new one is built, which may end before that is done.
        let (opened, state) = open_index(&index).unwrap_or_else(|error| panic!("{}", error.0));
        assert!(!opened.is_current());
        let mut writer = DocumentWriter::for_updates(&opened).expect("a writer");
        writer.commit_changes(state.position, state.saved_position).expect("a commit");
        writer.close();
        let (opened, _) = open_index(&index).unwrap_or_else(|error| panic!("{}", error.0));
        assert!(!opened.is_current());
    }

    async fn a_second_keeper_in_a_folder_has_an_index_beside_it(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer one").await;
        let (first, served) = (Indexed::of(&server).await, SearchService::default());
        let second = IndexSynchronizer::new(server.app.clone(), first.root(), served.clone());
        second.catch_up().await.expect("an index of its own");
        let (name, beside) = (first.current(), first.root().with_file_name(format!("{FOLDER}-2")));
        let other = current(&beside).expect("an index is beside it");
        assert_ne!(name, other);
        called(&server, &acme, "Printer two").await;
        first.catch_up().await;
        second.catch_up().await.expect("both go on");
        let all = ["Printer two", "Printer one"];
        assert_eq!(server.titles(&acme.admin, "printer").await, all);
        assert_eq!(titles(&served, &server, &acme, "printer").await, all);
        assert_eq!((first.current(), current(&beside)), (name.clone(), Some(other)), "neither was built anew");
        // What it leaves behind is removed by whoever comes next.
        drop(second);
        let first = Indexed::again(&server, first.stop()).await;
        assert!(!beside.exists());
        assert_eq!(first.current(), name);
        assert_eq!(server.titles(&acme.admin, "printer").await, all);
    }

    async fn files_of_an_index_that_nobody_knows_are_removed(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        let before = indexed.current();
        let strays = ["0123.store", "0123.term", "0123.7.del"].map(|name| indexed.root().join(&before).join(name));
        let data = indexed.stop();
        for stray in &strays {
            std::fs::write(stray, "of a merge that was killed").expect("the file is written");
        }
        called(&server, &acme, "Printer two").await;
        let indexed = Indexed::again(&server, data).await;
        for stray in &strays {
            assert!(!stray.exists(), "{}", stray.display());
        }
        assert_eq!(indexed.current(), before, "it was not built anew");
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer two", "Printer one"]);
    }

    async fn the_doctor_tells_how_far_an_index_is(server: Server) {
        let (acme, data) = (server.tenant("acme").await, TempDir::new().expect("a folder"));
        let (system, root) = (system(&server), data.path().join(FOLDER));
        let told = async || check_index_health(&root, &system).await.expect("an answer").expect("nothing is wrong");
        assert_eq!(told().await, "not made yet; `serve` builds it");
        called(&server, &acme, "Printer one").await;
        let indexed = Indexed::again(&server, data).await;
        assert_eq!(told().await, "2 records, up to date", "the ticket and the admin");
        called(&server, &acme, "Printer two").await;
        indexed.catch_up().await;
        // Whether it has said so since depends on how long this took.
        let followed = told().await;
        assert!(followed.starts_with("3 records, "), "{followed}");

        std::fs::write(root.join("building"), "17").expect("the file is written");
        assert_eq!(told().await, "is being built, 17 records so far");
        let data = indexed.stop();
        assert_eq!(told().await, "was not built to its end; `serve` begins anew, 17 records so far");
        let _indexed = Indexed::again(&server, data).await;
        assert_eq!(told().await, "3 records, up to date");
        tamper(&system, FORGET).await;
        assert_eq!(told().await, "is of no use any more; `serve` builds it anew");
    }

    async fn the_doctor_complains_of_a_server_that_does_not_follow(server: Server) {
        let (acme, system) = (server.tenant("acme").await, system(&server));
        called(&server, &acme, "Printer one").await;
        let indexed = Indexed::of(&server).await;
        let (root, name) = (indexed.root(), indexed.current());
        let told = async || check_index_health(&root, &system).await.expect("an answer");
        let well = Ok("2 records, up to date".to_owned());
        shift_seen(&system, &name, -2 * MINUTE_MS).await;
        assert_eq!(told().await, well);
        shift_seen(&system, &name, -2 * MINUTE_MS).await;
        assert_eq!(told().await, Err("the server cannot keep it up to date; its log says why".to_owned()));
        // Where there is no server, none has to.
        let data = indexed.stop();
        assert_eq!(told().await, well);
        let _indexed = Indexed::again(&server, data).await;
        assert_eq!(told().await, well);
    }
}
