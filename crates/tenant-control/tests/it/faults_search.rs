//! Search in real processes: on several nodes, after `kill -9`, without a place for its index, and on a store that was put back.
//! The index is a copy: whatever becomes of it, the records go on, and in the end it is like them.

mod kills;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::support::load::{Api, Reply};
use crate::support::nodes::Nodes;
use crate::support::postgres::fresh_database;
use crate::support::process::{Launch, Process, say, until};
use crate::support::search::{FOLDER, asking, current};
use crate::tickets::TICKETS;

/// A second is promised. The bound is what a machine may take that runs other tests beside this one.
const FOUND_MAX: Duration = Duration::from_secs(5);
/// For what has no promise: a start, an index that is built, another try.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// The ids of all that a search finds; none while there is no index to ask.
async fn find(api: &Api, q: &str) -> Option<Vec<String>> {
    let reply = api.get(&asking(q)).await.expect("an answer");
    if reply.status == 503 {
        assert_unavailable(&reply);
        return None;
    }
    assert_eq!(reply.status, 200, "{q}: {}", reply.body);
    let hits = reply.body["data"].as_array().expect("data");
    let counts = reply.body["counts"].as_object().expect("counts");
    let total: u64 = counts.values().filter_map(|count| count.as_u64()).sum();
    assert_eq!(u64::try_from(hits.len()), Ok(total), "{q}: {}", reply.body);
    Some(hits.iter().map(|hit| hit["id"].as_str().expect("an id").to_owned()).collect())
}

/// As the contract says: a problem, and when to come back.
#[track_caller]
fn assert_unavailable(reply: &Reply) {
    assert_eq!((reply.status, reply.code()), (503, "unavailable"), "{}", reply.body);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    let seconds = reply.header("retry-after").and_then(|text| text.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds >= 1), "{:?}", reply.headers);
}

/// Waits until there is an index.
async fn ready(api: &Api) {
    until("there is an index", WAIT_MAX, async || find(api, "nothing").await.map(drop)).await;
}

/// Waits until exactly these are found, within this time.
async fn until_found(api: &Api, q: &str, ids: &[&str], limit: Duration) {
    let what = format!("{q} finds {ids:?}");
    until(&what, limit, async || find(api, q).await.filter(|found| *found == ids)).await;
}

async fn make(api: &Api, subject: &str) -> String {
    let made = api.post(TICKETS, &json!({"subject": subject})).await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.body);
    made.text("id")
}

async fn rename(api: &Api, id: &str, subject: &str) {
    let renamed = api.patch(&format!("{TICKETS}?id={id}"), &json!({"subject": subject})).await.expect("an answer");
    assert_eq!(renamed.status, 200, "{}", renamed.body);
}

/// Waits until everything is in the index that was written before: the feed has this ticket behind all of it.
async fn caught_up(api: &Api, subject: &str) -> String {
    let last = make(api, subject).await;
    until_found(api, subject, &[&last], WAIT_MAX).await;
    last
}

async fn stop(mut server: Process) {
    server.terminate();
    assert_eq!(server.exit(WAIT_MAX).await.code(), Some(0), "{}", server.stderr());
}

/// How long it takes until both nodes find exactly these.
async fn both_find(apis: &[Api; 2], q: &str, ids: &[&str]) -> Duration {
    let began = Instant::now();
    tokio::join!(until_found(&apis[0], q, ids, FOUND_MAX), until_found(&apis[1], q, ids, FOUND_MAX));
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_through_one_node_is_found_through_both() {
    let (nodes, folder) = (Nodes::start(|launch| launch).await, TempDir::new().unwrap());
    let apis = nodes.apis();
    tokio::join!(ready(&apis[0]), ready(&apis[1]));
    let ticket = make(&apis[0], "Quagga in the attic").await;
    let mut slowest = both_find(&apis, "quagga", &[&ticket]).await;
    rename(&apis[1], &ticket, "Zebra in the attic").await;
    slowest = slowest.max(both_find(&apis, "zebra", &[&ticket]).await);
    slowest = slowest.max(both_find(&apis, "quagga", &[]).await);

    // By a third process, which keeps no index.
    let file = folder.path().join("devices.csv");
    std::fs::write(&file, "hostname,type\nokapi,server\n").unwrap();
    let file = file.display().to_string();
    let made = nodes.first.run(&["admin", "device", "import", "--tenant", "default", "--file", &file]);
    assert_eq!(made["created"], 1, "{made}");
    let began = Instant::now();
    let device = until("the device is found", FOUND_MAX, async || find(&apis[0], "okapi").await?.pop()).await;
    both_find(&apis, "okapi", &[&device]).await;
    slowest = slowest.max(began.elapsed());
    nodes.first.run(&["admin", "device", "delete", "--tenant", "default", "--id", &device]);
    slowest = slowest.max(both_find(&apis, "okapi", &[]).await);
    say(&format!("on two nodes the slowest of all was found after {slowest:?}"));
}

/// Two servers of one machine, which were given one data directory.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_in_one_folder_have_an_index_each() {
    let (database, folder) = (fresh_database().await, TempDir::new().unwrap());
    let launch = Launch::on_database(&database.url, folder.path());
    let mut first = launch.start().await;
    let cookie = launch.sign_in();
    ready(&first.api(&cookie)).await;
    let second = launch.start().await;
    ready(&second.api(&cookie)).await;
    let apis = [first.api(&cookie), second.api(&cookie)];
    let ticket = make(&apis[0], "Quagga in the attic").await;
    both_find(&apis, "quagga", &[&ticket]).await;
    let index = |name: &str| current(&folder.path().join(name));
    let names = [index(FOLDER), index("search-2")];
    assert!(names[0].is_some() && names[1].is_some() && names[0] != names[1], "{names:?}");

    // One that comes back has its own again, and leaves that of the other alone.
    first.kill();
    let first = launch.start().await;
    let apis = [first.api(&cookie), second.api(&cookie)];
    ready(&apis[0]).await;
    rename(&apis[1], &ticket, "Zebra in the attic").await;
    both_find(&apis, "zebra", &[&ticket]).await;
    assert_eq!([index(FOLDER), index("search-2")], names);
}

/// Waits until the log says that the index cannot be kept.
async fn until_told(server: &Process) {
    let told = async || server.stderr().contains("failed to update the search index").then_some(());
    until("the log tells it", WAIT_MAX, told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_place_for_the_index_nothing_stops_but_search() {
    let folder = TempDir::new().unwrap();
    let obstacle = folder.path().join(FOLDER);
    std::fs::write(&obstacle, "This is no folder.").unwrap();
    let launch = Launch::on_folder(folder.path());
    let server = launch.start().await;
    let api = server.api(&launch.sign_in());
    until_told(&server).await;
    let ticket = make(&api, "Quagga in the attic").await;
    rename(&api, &ticket, "Zebra in the attic").await;
    assert_unavailable(&api.get(&asking("zebra")).await.unwrap());
    for path in [TICKETS, "/readyz", "/healthz"] {
        assert_eq!(api.status(path).await, Some(200), "{path}");
    }
    // It is tried again by itself.
    std::fs::remove_file(&obstacle).unwrap();
    until_found(&api, "zebra", &[&ticket], WAIT_MAX).await;
    rename(&api, &ticket, "Okapi in the attic").await;
    until_found(&api, "okapi", &[&ticket], FOUND_MAX).await;
    until_found(&api, "zebra", &[], FOUND_MAX).await;
}

/// As when its disk is taken away and an empty one is put in its place.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_lost_while_it_serves_is_built_anew() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join(FOLDER);
    let launch = Launch::on_folder(folder.path());
    let server = launch.start().await;
    let api = server.api(&launch.sign_in());
    let first = caught_up(&api, "Quagga in the attic").await;
    std::fs::rename(&place, folder.path().join("away")).unwrap();
    std::fs::write(&place, "This is no folder.").unwrap();
    let second = make(&api, "Zebra in the attic").await;
    until_told(&server).await;
    rename(&api, &second, "Okapi in the attic").await;
    assert_eq!(api.status("/readyz").await, Some(200));
    std::fs::remove_file(&place).unwrap();
    until_found(&api, "okapi", &[&second], WAIT_MAX).await;
    assert_eq!(find(&api, "quagga").await, Some(vec![first]));
    assert_eq!(find(&api, "zebra").await, Some(vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_removed_while_it_serves_is_built_anew() {
    let folder = TempDir::new().unwrap();
    let launch = Launch::on_folder(folder.path());
    let server = launch.start().await;
    let api = server.api(&launch.sign_in());
    let first = caught_up(&api, "Quagga in the attic").await;
    std::fs::remove_dir_all(folder.path().join(FOLDER)).unwrap();
    let second = make(&api, "Zebra in the attic").await;
    until_found(&api, "zebra", &[&second], WAIT_MAX).await;
    assert_eq!(find(&api, "quagga").await, Some(vec![first]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_restored_is_searched_as_it_is() {
    put_back(|launch, _, backup| {
        launch.run(&["restore", "--from", &backup.display().to_string(), "--force"]);
    })
    .await;
}

/// By somebody who knows nothing of the command.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_copied_back_is_searched_as_it_is() {
    put_back(|_, data, backup| {
        for log in ["tenant-control.db-wal", "tenant-control.db-shm"] {
            // A server that was told to stop leaves none.
            let _ = std::fs::remove_file(data.join(log));
        }
        std::fs::copy(backup, data.join("tenant-control.db")).unwrap();
    })
    .await;
}

/// Makes a backup, goes on, and puts it back below an index that has come further.
async fn put_back(restore: impl FnOnce(&Launch, &Path, &Path)) {
    let (data, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let backup = aside.path().join("backup.db");
    let launch = Launch::on_folder(data.path());
    let server = launch.start().await;
    let cookie = launch.sign_in();
    let api = server.api(&cookie);
    let (kept, renamed) = (make(&api, "Aardvark").await, make(&api, "Buffalo").await);
    let before = caught_up(&api, "Capybara").await;
    launch.run(&["backup", "--to", &backup.display().to_string()]);
    rename(&api, &renamed, "Dromedary").await;
    make(&api, "Elephant").await;
    caught_up(&api, "Flamingo").await;
    stop(server).await;

    restore(&launch, data.path(), &backup);
    let server = launch.start().await;
    let api = server.api(&cookie);
    // The feed counts on from where the backup was: the index has passed these places before.
    let after = caught_up(&api, "Gazelle").await;
    rename(&api, &kept, "Hippopotamus").await;
    until_found(&api, "hippopotamus", &[&kept], FOUND_MAX).await;
    for (word, expected) in [
        ("aardvark", None),
        ("buffalo", Some(&renamed)),
        ("capybara", Some(&before)),
        ("dromedary", None),
        ("elephant", None),
        ("flamingo", None),
        ("gazelle", Some(&after)),
    ] {
        assert_eq!(find(&api, word).await, Some(expected.into_iter().cloned().collect()), "{word}");
    }
    assert_eq!(find(&api, "type:ticket").await.map(|found| found.len()), Some(4));
}
