//! The traps of a store with two engines, each of which a first version fell into.

use std::sync::mpsc;
use std::time::Duration;

use kernel::args;
use kernel::base::{Code, Error, OnDuplicate};
use kernel::store::{Db, Purpose, Tx};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{INSERT, code, count, insert};
use crate::support::postgres::connect;
use crate::support::process::until;
use crate::support::stores::{TestStore, on_both};

const PATIENCE: Duration = Duration::from_secs(30);

/// Occupies SQLite's writer until the sender is dropped, so that what is written meanwhile becomes one group.
pub async fn occupy(db: &Db) -> (mpsc::Sender<()>, JoinHandle<Result<(), Error>>) {
    let (begun, has_begun) = oneshot::channel();
    let (release, wait) = mpsc::channel::<()>();
    let db = db.clone();
    let occupied = tokio::spawn(async move {
        db.write(async move |_| {
            let _ = begun.send(());
            let _ = wait.recv();
            Ok(())
        })
        .await
    });
    has_begun.await.unwrap();
    (release, occupied)
}

/// Starts a write and returns when it is queued: `write` enqueues at its first poll.
pub fn start<R: Send + 'static>(writing: impl Future<Output = R> + Send + 'static) -> JoinHandle<R> {
    let mut writing = Box::pin(writing);
    assert!(futures_poll(&mut writing).is_none(), "the writer is occupied");
    tokio::spawn(writing)
}

fn futures_poll<R>(future: &mut (impl Future<Output = R> + Unpin)) -> Option<R> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

fn inserting(db: &Db, window: i64) -> impl Future<Output = Result<u64, Error>> + Send + use<> {
    let db = db.clone();
    async move { db.write(async move |tx| insert(tx, window, "a").await).await }
}

on_both! {
    async fn a_parameter_is_bound_by_its_number_not_by_its_place(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let sql = "SELECT CAST($3 AS TEXT), CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($1 AS TEXT)";
        let (c, a, b, again): (String, String, String, String) = db.get_one(sql, args!["a", "b", "c"]).await.unwrap();
        assert_eq!([a, b, c, again], ["a", "b", "c", "a"]);
    }

    async fn a_number_in_a_text_is_no_parameter(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let sql = "SELECT '$.tags[0]' || '$2' || CAST($1 AS TEXT) /* $3 */";
        assert_eq!(db.get_one::<String>(sql, args!["!"]).await.unwrap(), "$.tags[0]$2!");
    }

    async fn the_failure_of_what_nobody_waited_for_is_its_own(store: TestStore) {
        let db = store.system(Purpose::Cli);
        inserting(&db, 1).await.unwrap();
        let failed = db.write(async |tx| {
            insert(tx, 2, "a").await?;
            tx.defer_exec(INSERT, vec![1_i64.into(), "a".into(), 0_i64.into()]).await?;
            // What breaks no constraint is not told that it did.
            insert(tx, 3, "a").await.on_duplicate(|| Error::conflict("The third is there already."))
        });
        let error = failed.await.unwrap_err();
        assert_eq!(error.code(), Code::Internal);
        assert!(error.cause_chain().unwrap().contains(INSERT), "{error}");
        assert_eq!(count(&store).await, 1);
    }

    async fn a_statement_dropped_half_way_or_a_foreign_await_keeps_nothing_open(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let foreign = db.write(async |tx| {
            insert(tx, 1, "a").await?;
            tokio::task::yield_now().await;
            Ok(())
        });
        // SQLite's writer waits for nothing; PostgreSQL's connection may.
        assert_eq!(code(foreign.await), store.is_sqlite().then_some(Code::Internal));
        let dropped = db.write(async |tx| {
            let mut statement = Box::pin(insert(tx, 2, "a"));
            futures_poll(&mut statement);
            drop(statement);
            Ok(())
        });
        assert_eq!(code(dropped.await), (!store.is_sqlite()).then_some(Code::Internal));
        assert_eq!(count(&store).await, 1);
        inserting(&db, 3).await.unwrap();
        assert_eq!(count(&store).await, 2);
    }

    async fn a_panicking_job_harms_nobody_else(store: TestStore) {
        let db = store.system(Purpose::Cli);
        for _ in 0..20 {
            let panicking = db.write(async |tx: &mut Tx| {
                insert(tx, 1, "a").await?;
                assert!(tx.tenant_id().is_some(), "as the test wants it");
                Ok(())
            });
            let error = panicking.await.unwrap_err();
            assert!(error.to_string().contains("as the test wants it"), "{error}");
        }
        inserting(&db, 1).await.unwrap();
        assert_eq!(count(&store).await, 1);
    }

    async fn a_failed_statement_dooms_its_transaction_even_if_its_error_is_swallowed(store: TestStore) {
        let db = store.system(Purpose::Cli);
        inserting(&db, 1).await.unwrap();
        let swallowed = db.write(async |tx| {
            insert(tx, 2, "a").await?;
            let _ = insert(tx, 1, "a").await;
            Ok(())
        });
        assert_eq!(code(swallowed.await), Some(Code::Internal));
        assert_eq!(count(&store).await, 1);
    }

    async fn a_write_whose_caller_went_away_comes_to_its_end(store: TestStore) {
        let store = TestStore { store: store.open_again(one_connection).await, place: store.place };
        let db = store.system(Purpose::Cli);
        let (begun, has_begun) = oneshot::channel();
        let (release, wait) = mpsc::channel::<()>();
        let caller = tokio::spawn({
            let db = db.clone();
            async move {
                db.write(async move |tx| {
                    insert(tx, 1, "a").await?;
                    let _ = begun.send(());
                    let _ = wait.recv();
                    insert(tx, 2, "a").await
                })
                .await
            }
        });
        has_begun.await.unwrap();
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        drop(release);
        // On PostgreSQL there is one connection, so this waits for the other to end.
        inserting(&db, 3).await.unwrap();
        assert_eq!(count(&store).await, 3);
    }

    async fn a_transaction_that_ended_by_itself_is_no_success(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let ended = db.write(async |tx| {
            insert(tx, 1, "a").await?;
            tx.exec("ROLLBACK", args![]).await
        });
        let wanted = if store.is_sqlite() { Code::Unavailable } else { Code::Internal };
        assert_eq!(code(ended.await), Some(wanted));
        inserting(&db, 2).await.unwrap();
        assert_eq!(count(&store).await, 1);
    }
}

fn one_connection(options: kernel::store::StoreOptions) -> kernel::store::StoreOptions {
    options.pool_max(1)
}

/// All that is queued while a job runs is in its group.
fn one_group(options: kernel::store::StoreOptions) -> kernel::store::StoreOptions {
    options.group_time(Duration::from_mins(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_job_harms_no_neighbour_of_its_group() {
    let store = TestStore::sqlite().await;
    let db = store.open_again(one_group).await.system(Purpose::Cli);
    let (release, occupied) = occupy(&db).await;
    let (good, failing, last) = (start(inserting(&db, 1)), start(inserting(&db, 1)), start(inserting(&db, 2)));
    drop(release);
    occupied.await.unwrap().unwrap();
    assert_eq!(good.await.unwrap().unwrap(), 1);
    assert!(failing.await.unwrap().unwrap_err().is_duplicate());
    assert_eq!(last.await.unwrap().unwrap(), 1);
    assert_eq!(count(&store).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_sqlite_gives_up_the_transaction_the_whole_group_fails() {
    let store = TestStore::sqlite().await;
    let store = TestStore { store: store.open_again(one_group).await, place: store.place };
    let db = store.system(Purpose::Cli);
    let pages: i64 = db.get_one("PRAGMA page_count", args![]).await.unwrap();
    db.write(async move |tx| tx.get_one::<i64>(&format!("PRAGMA max_page_count = {pages}"), args![]).await)
        .await
        .unwrap();
    let (release, occupied) = occupy(&db).await;
    let before = start(inserting(&db, 1));
    let full = start({
        let db = db.clone();
        let bucket = "x".repeat(1 << 20);
        async move { db.write(async move |tx| tx.exec(INSERT, args![2_i64, bucket, 0_i64]).await).await }
    });
    let after = start(inserting(&db, 3));
    drop(release);
    assert_eq!(code(occupied.await.unwrap()), Some(Code::Unavailable));
    for failed in [before, full] {
        assert_eq!(code(failed.await.unwrap()), Some(Code::Unavailable));
    }
    // It had not begun, and has seen nothing of them.
    assert_eq!(after.await.unwrap().unwrap(), 1);
    assert_eq!(count(&store).await, 1);
    assert_eq!(code(store.ping().await), None, "the probe needs no further page");
    db.write(async |tx| tx.get_one::<i64>("PRAGMA max_page_count = 1000000", args![]).await).await.unwrap();
    inserting(&db, 4).await.unwrap();
    assert_eq!(count(&store).await, 2);
    store.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_that_holds_the_lock_fails_the_group_cleanly() {
    let store = TestStore::sqlite().await;
    let other = store.open_again(|options| options).await.system(Purpose::Cli);
    let hasty = store.open_again(|options| options.wait_max(Duration::from_millis(50))).await.system(Purpose::Cli);
    let (begun, has_begun) = oneshot::channel();
    let (release, wait) = mpsc::channel::<()>();
    let holding = tokio::spawn(async move {
        other
            .write(async move |tx| {
                insert(tx, 1, "a").await?;
                let _ = begun.send(());
                let _ = wait.recv();
                Ok(())
            })
            .await
    });
    has_begun.await.unwrap();
    assert_eq!(code(inserting(&hasty, 2).await), Some(Code::Unavailable));
    assert_eq!(count(&store).await, 0, "reads go on, and see nothing that is not committed");
    drop(release);
    holding.await.unwrap().unwrap();
    inserting(&hasty, 2).await.unwrap();
    assert_eq!(count(&store).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_unavailable_at_once() {
    let store = TestStore::sqlite().await;
    let small = store.open_again(|options| options.queue_max(2)).await;
    let db = small.system(Purpose::Cli);
    let (release, running) = occupy(&db).await;
    let queued = [start(inserting(&db, 1)), start(inserting(&db, 2))];
    let refused = inserting(&db, 3).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.retry_after_seconds().is_some());
    drop(release);
    running.await.unwrap().unwrap();
    for written in queued {
        written.await.unwrap().unwrap();
    }
    assert_eq!(count(&store).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_a_free_connection_is_unavailable_after_a_bounded_wait() {
    let store = TestStore::postgres().await;
    let small = store.open_again(|options| one_connection(options).wait_max(Duration::from_millis(50))).await;
    let db = small.system(Purpose::Cli);
    let (begun, has_begun) = oneshot::channel();
    let (release, wait) = oneshot::channel::<()>();
    let running = tokio::spawn({
        let db = db.clone();
        async move {
            db.write(async move |tx| {
                insert(tx, 1, "a").await?;
                let _ = begun.send(());
                let _ = wait.await;
                Ok(())
            })
            .await
        }
    });
    has_begun.await.unwrap();
    assert_eq!(code(inserting(&db, 2).await), Some(Code::Unavailable));
    assert_eq!(code(small.ping().await), Some(Code::Unavailable));
    drop(release);
    running.await.unwrap().unwrap();
    // On a busy machine its wait can be over before the connection is back.
    until("there is a connection", PATIENCE, async || inserting(&db, 2).await.ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_before_its_commit_is_unavailable_and_not_used_again() {
    let store = TestStore::postgres().await;
    let admin = connect(&store.database().url_as_superuser()).await;
    let small = store.open_again(one_connection).await;
    let db = small.system(Purpose::Cli);
    let lost = db.write(async move |tx| {
        insert(tx, 1, "a").await?;
        let pid: i64 = tx.get_one("SELECT CAST(pg_backend_pid() AS BIGINT)", args![]).await?;
        let gone: bool = admin
            .query_one("SELECT pg_terminate_backend($1::bigint::int, 5000)", &[&pid])
            .await
            .map_err(Error::internal)?
            .get(0);
        assert!(gone);
        Ok(())
    });
    assert_eq!(code(lost.await), Some(Code::Unavailable));
    inserting(&db, 2).await.unwrap();
    assert_eq!(count(&store).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_locked_by_one_transaction_is_refused_to_another() {
    let store = TestStore::postgres().await;
    let db = store.system(Purpose::Cli);
    let other = db.clone();
    let held = db.write(async move |tx| {
        let mine = tx.try_lock("a").await?;
        let theirs = other.write(async |tx| Ok((tx.try_lock("a").await?, tx.try_lock("b").await?))).await?;
        Ok((mine, theirs))
    });
    assert_eq!(held.await.unwrap(), (true, (false, true)));
    assert!(db.write(async |tx| tx.try_lock("a").await).await.unwrap());
}
