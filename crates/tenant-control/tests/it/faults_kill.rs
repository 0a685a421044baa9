//! `kill -9` under load: what was acknowledged is there after the next start, and what was not answered can be asked
//! again without a duplicate.

use std::time::Duration;

use tempfile::TempDir;

use crate::support::load::{Load, Note, Verdict, settle, verify};
use crate::support::postgres::fresh_database;
use crate::support::process::{Launch, say};

/// Enough that commits are under way and answers on their way when the process ends.
const WRITERS: usize = 16;
const PROGRESS_MAX: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_on_the_embedded_store_has_lost_nothing_it_acknowledged() {
    let folder = TempDir::new().unwrap();
    kill_again_and_again("embedded store", &Launch::on_folder(folder.path())).await;
}

/// The database lives on and must give up what the dead server held: transactions, locks, connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_on_postgres_has_lost_nothing_it_acknowledged() {
    let (folder, database) = (TempDir::new().unwrap(), fresh_database().await);
    kill_again_and_again("PostgreSQL", &Launch::on_database(&database.url, folder.path())).await;
}

/// More than the default is for a long run by hand.
fn cycles() -> usize {
    std::env::var("TENANT_CONTROL_TEST_KILL_CYCLES").map_or(4, |text| text.parse().expect("a number of cycles"))
}

async fn kill_again_and_again(store: &str, launch: &Launch) {
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    let mut ledger: Vec<Note> = Vec::new();
    let (mut acknowledged, mut repeated, mut replayed) = (0, 0, 0);
    for cycle in 0..cycles() {
        let label = format!("cycle{cycle}");
        let load = Load::start(&server.api(&cookie), &label, WRITERS);
        // At another moment of the work each time.
        load.progress(WRITERS + cycle * 37 % 150, PROGRESS_MAX).await;
        server.kill();
        acknowledged += load.acknowledged();
        let (mut notes, seen) = load.finish().await;
        assert_eq!(seen.wrong, Vec::<String>::new());

        server = launch.start().await;
        let api = server.api(&cookie);
        let prefix = format!("{label}-");
        assert_eq!(verify(&api, &prefix, &notes).await, Verdict::default(), "after cycle {cycle}");
        repeated += notes.iter().filter(|note| note.id.is_none()).count();
        replayed += settle(&api, &mut notes).await;
        assert_eq!(verify(&api, &prefix, &notes).await, Verdict::default(), "asked again after cycle {cycle}");
        ledger.append(&mut notes);
    }
    assert_eq!(verify(&server.api(&cookie), "cycle", &ledger).await, Verdict::default());
    assert!(repeated > 0, "no request was under way when the server was killed: the test shows nothing");
    say(&format!(
        "{store}: {} kills, {acknowledged} acknowledged writes, none lost; {repeated} unanswered requests repeated, of \
         which {replayed} had been done, none doubled",
        cycles(),
    ));
}

/// The first start makes the secrets, the schema, the first tenant and its admin; none of it may be left half done.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_during_its_first_start_starts_the_next_time() {
    for step in 0..8 {
        let folder = TempDir::new().unwrap();
        let launch = Launch::on_folder(folder.path());
        let mut server = launch.spawn();
        // Not a wait for anything: the moment of the kill is what differs.
        tokio::time::sleep(Duration::from_millis(step * 10)).await;
        server.kill();
        let server = launch.start().await;
        let api = server.api(&launch.sign_in());
        assert_eq!(api.create_key("after").await.unwrap().status, 201, "killed after {} ms", step * 10);
    }
}
