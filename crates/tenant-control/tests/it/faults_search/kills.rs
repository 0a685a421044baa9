//! `kill -9` while the index is written, and while it is built: what was acknowledged is found after the next start, each once.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{WAIT_MAX, caught_up, find, make, ready};
use crate::support::load::Api;
use crate::support::process::{Launch, Process, say, until};
use crate::support::search::{FOLDER, asking, current, spoil};
use crate::tickets::TICKETS;

/// Enough that there is always something to index when the process ends.
const WRITERS: usize = 8;

/// What a client knows of a ticket that it has made and then renamed. A word with one letter among digits is found as it is
/// written or not at all.
struct Note {
    made: String,
    renamed: String,
    /// Known when the making was acknowledged.
    id: Option<String>,
    /// The renaming was acknowledged as well.
    is_renamed: bool,
}

/// Makes tickets and renames them, until the server is gone.
async fn write(api: Api, cycle: usize, writer: usize, acknowledged: Arc<AtomicUsize>) -> Vec<Note> {
    let mut notes = Vec::new();
    for number in 0.. {
        let word = |letter: char| format!("{letter}{cycle}{writer:02}{number:04}");
        let (made, renamed) = (word('a'), word('b'));
        let mut note = Note { made, renamed, id: None, is_renamed: false };
        let answered = make_and_rename(&api, &mut note, &acknowledged).await;
        notes.push(note);
        if answered.is_none() {
            break;
        }
    }
    notes
}

/// None when there was no answer.
async fn make_and_rename(api: &Api, note: &mut Note, acknowledged: &AtomicUsize) -> Option<()> {
    let made = api.post(TICKETS, &json!({"subject": note.made})).await.ok()?;
    assert_eq!(made.status, 201, "{}", made.body);
    acknowledged.fetch_add(1, Ordering::Relaxed);
    let target = format!("{TICKETS}?id={}", note.id.insert(made.text("id")));
    let renamed = api.patch(&target, &json!({"subject": note.renamed})).await.ok()?;
    assert_eq!(renamed.status, 200, "{}", renamed.body);
    acknowledged.fetch_add(1, Ordering::Relaxed);
    note.is_renamed = true;
    Some(())
}

/// How many tickets there are: their numbers have no gaps.
async fn count(api: &Api) -> u64 {
    let newest = api.get(&format!("{TICKETS}?limit=1")).await.expect("an answer").body;
    newest["data"][0]["number"].as_u64().unwrap_or_else(|| panic!("a ticket in {newest}"))
}

/// How many of them the index has.
async fn count_found(api: &Api) -> u64 {
    let found = api.get(&asking("type:ticket")).await.expect("an answer").body;
    found["counts"]["ticket"].as_u64().unwrap_or_else(|| panic!("counts in {found}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_while_it_indexes_finds_all_that_it_has_acknowledged_once() {
    let folder = TempDir::new().unwrap();
    let launch = Launch::on_folder(folder.path());
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    ready(&server.api(&cookie)).await;
    let mut notes: Vec<Note> = Vec::new();
    // At another moment of the work each time.
    for (cycle, progress) in [20, 75, 130].into_iter().enumerate() {
        let (api, acknowledged) = (server.api(&cookie), Arc::new(AtomicUsize::new(0)));
        let begin = |writer| write(api.clone(), cycle, writer, acknowledged.clone());
        let writers: JoinSet<Vec<Note>> = (0..WRITERS).map(begin).collect();
        let enough = async || (acknowledged.load(Ordering::Relaxed) >= progress).then_some(());
        until("writes are acknowledged", WAIT_MAX, enough).await;
        server.kill();
        notes.extend(writers.join_all().await.into_iter().flatten());
        server = launch.start().await;
    }
    let api = server.api(&cookie);
    caught_up(&api, "c0000000").await;
    for note in &notes {
        let made = find(&api, &note.made).await.expect("an index");
        let renamed = find(&api, &note.renamed).await.expect("an index");
        let all = [made.as_slice(), renamed.as_slice()].concat();
        let about = format!("{} {}: {made:?} {renamed:?}", note.made, note.renamed);
        match &note.id {
            // Nobody was told whether it was made.
            None => assert!(all.len() <= 1, "{about}"),
            Some(id) => {
                assert_eq!(all, [id.as_str()], "{about}");
                assert!(made.is_empty() || !note.is_renamed, "{about}");
            }
        }
    }
    assert_eq!(count_found(&api).await, count(&api).await);
    let unanswered = notes.iter().filter(|note| !note.is_renamed).count();
    assert!(unanswered > 0, "nothing was under way when the server was killed: the test shows nothing");
    say(&format!("{} tickets, {unanswered} of them under way at a kill, each found once", notes.len()));
}

/// The indexes in a folder, whole or not.
fn indexes(root: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Kills a server that builds an index when that has so many files. Whether it was not done yet.
async fn kill_in_the_middle(server: &mut Process, root: &Path, before: &BTreeSet<String>, files: usize) -> bool {
    let (served, began) = (current(root), Instant::now());
    let files_of = |index: &String| std::fs::read_dir(root.join(index)).map_or(0, |entries| entries.count());
    let is_far = || indexes(root).difference(before).any(|index| files_of(index) >= files);
    // Not every few milliseconds, as elsewhere: it may take no longer.
    while !is_far() && current(root) == served {
        assert!(began.elapsed() < WAIT_MAX, "no index is built in {}: {}", root.display(), server.stderr());
        tokio::task::yield_now().await;
    }
    server.kill();
    current(root) == served
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_while_it_builds_its_index_builds_it_at_the_next_start() {
    let folder = TempDir::new().unwrap();
    let (root, launch) = (folder.path().join(FOLDER), Launch::on_folder(folder.path()));
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    let api = server.api(&cookie);
    let making = (0..120).map(|number| {
        let (api, word) = (api.clone(), format!("a{number:06}"));
        async move { (make(&api, &word).await, word) }
    });
    let made: Vec<(String, String)> = making.collect::<JoinSet<_>>().join_all().await;
    caught_up(&api, "b000000").await;
    server.kill();
    let damaged = current(&root).expect("an index is in use");
    spoil(&root.join(damaged), "term", |content| {
        let middle = content.len() / 2;
        content[middle] ^= 1;
    });
    let mut in_the_middle = 0;
    // What a new index has at once, while it is written, and about when it is done.
    for files in [0, 3, 8] {
        let before = indexes(&root);
        let mut server = launch.spawn();
        if kill_in_the_middle(&mut server, &root, &before, files).await {
            in_the_middle += 1;
        } else {
            std::fs::remove_dir_all(&root).unwrap();
        }
    }
    assert!(in_the_middle > 0, "each was built before it could be interrupted: the test shows nothing");
    let server = launch.start().await;
    let api = server.api(&cookie);
    ready(&api).await;
    caught_up(&api, "c000000").await;
    for (id, word) in &made {
        assert_eq!(find(&api, word).await.as_deref(), Some(&[id.clone()][..]), "{word}");
    }
    assert_eq!(count_found(&api).await, count(&api).await);
    assert_eq!(indexes(&root), BTreeSet::from([current(&root).expect("an index is in use")]), "none is left behind");
    say(&format!("{in_the_middle} of 3 kills came while the index was built"));
}
