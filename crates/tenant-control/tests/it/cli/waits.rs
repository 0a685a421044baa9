//! Commands beside another process that writes to the embedded store for long.

use std::sync::mpsc;

use kernel::base::{Env, Result};
use kernel::store::{Purpose, Store, StoreOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

const CREATE: [&str; 7] = ["admin", "tenant", "create", "--name", "Globex", "--slug", "globex"];

/// Holds the lock of whoever writes, as another process than the command's, until the sender is dropped.
async fn hold(desk: &Desk) -> (mpsc::Sender<()>, JoinHandle<Result<()>>) {
    let options = StoreOptions::sqlite(desk.path("data/tenant-control.db"));
    let db = Store::open(options, Env::default()).await.expect("the store opens").system(Purpose::Cli);
    let (begun, has_begun) = oneshot::channel();
    let (release, released) = mpsc::channel::<()>();
    let holding = tokio::spawn(async move {
        db.write(async move |_| -> Result<()> {
            let _ = begun.send(());
            let _ = released.recv();
            Ok(())
        })
        .await
    });
    has_begun.await.expect("the lock is held");
    (release, holding)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_write_says_why_and_what_to_do() {
    let desk = Desk::new();
    acme(&desk);
    let (release, holding) = hold(&desk).await;
    let list = desk.run(&["admin", "tenant", "list"]);
    assert_eq!((list.code, list.stderr.as_str()), (0, ""), "what only reads waits for nobody");
    let refused = desk.run(&CREATE);
    assert_eq!(
        refused.shown(&desk),
        "exit 1\nstderr:\nwaiting for another process that writes to ./data/tenant-control.db…\n\
         error: another process has been writing to ./data/tenant-control.db for 5s; let it finish, or end the transaction \
         that it has open, in a sqlite3 shell for example, and try again\n"
    );
    drop(release);
    holding.await.expect("a task").expect("a write");
    assert_eq!(desk.json(&CREATE)["slug"], "globex");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_waits_goes_on_when_the_other_process_has_written() {
    let desk = Desk::new();
    acme(&desk);
    let (release, holding) = hold(&desk).await;
    let running = desk.begin(&CREATE);
    let line = running.warns("waiting for ");
    drop(release);
    let ended = running.ends();
    assert_eq!((ended.code, ended.stderr), (0, format!("{line}\n")), "{}", ended.stdout);
    holding.await.expect("a task").expect("a write");
}
