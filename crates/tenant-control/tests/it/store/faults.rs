//! Backups under load, and databases that go away and come back.

use kernel::args;
use kernel::base::{Code, Env};
use kernel::store::{PostgresOptions, Purpose, Store, StoreOptions};
use tenant_control::migrations::MIGRATIONS;
use tokio::task::JoinSet;

use super::{COUNT, code, insert};
use crate::support::postgres::connect;
use crate::support::stores::TestStore;

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_has_everything_that_was_acknowledged_before_it() {
    let store = TestStore::sqlite().await;
    let db = store.system(Purpose::Cli);
    for n in 0..200_i64 {
        let db = db.clone();
        db.write(async move |tx| insert(tx, n, "before").await).await.unwrap();
    }
    let mut load = JoinSet::new();
    for n in 0..500_i64 {
        let db = db.clone();
        load.spawn(async move { db.write(async move |tx| insert(tx, n, "during").await).await });
    }
    let target = store.path("backup.db");
    store.backup_to(&target).await.unwrap();
    for written in load.join_all().await {
        written.unwrap();
    }
    let copy = Store::open(StoreOptions::sqlite(&target), Env::default()).await.unwrap();
    assert!(copy.pending_migrations(MIGRATIONS).await.unwrap().is_empty());
    let copy = copy.system(Purpose::Cli);
    let before: i64 = copy.get_one(&format!("{COUNT} WHERE bucket = 'before'"), args![]).await.unwrap();
    assert_eq!(before, 200);
    assert_eq!(copy.get_one::<String>("PRAGMA integrity_check", args![]).await.unwrap(), "ok");
    // Only whole copies stay behind, readable by their owner alone.
    let partial = std::fs::read_dir(store.path(""))
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(".partial"));
    assert!(!partial);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&target).unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

/// A panic that cannot even be let go of.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("nothing catches this");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_it_is_told_that_the_writer_has_ended() {
    let store = TestStore::sqlite().await;
    let db = store.system(Purpose::Cli);
    let written = db.write(async |_| -> kernel::base::Result<()> { std::panic::panic_any(Bomb) }).await;
    assert_eq!(code(written), Some(Code::Unavailable));
    store.wait_until_broken().await;
    assert_eq!(code(db.write(async |tx| insert(tx, 1, "after").await).await), Some(Code::Unavailable));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_into_a_folder_that_is_not_there_leaves_nothing() {
    let store = TestStore::sqlite().await;
    let target = store.path("nowhere/backup.db");
    assert_eq!(code(store.backup_to(&target).await), Some(Code::Unavailable));
    store.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_backed_up_with_its_own_tools() {
    let store = TestStore::postgres().await;
    let refused = store.backup_to(std::path::Path::new("/tmp/unused")).await.unwrap_err();
    assert!(refused.to_string().contains("pg_dump"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_closed_are_replaced_after_a_brief_burst() {
    const POOL: usize = 4;
    let store = TestStore::postgres().await;
    let pool = store.open_again(|options| options.pool_max(POOL)).await;
    let mut filling = JoinSet::new();
    for _ in 0..50 {
        let pool = pool.clone();
        filling.spawn(async move { pool.ping().await.unwrap() });
    }
    filling.join_all().await;
    let admin = connect(&store.database().url_as_superuser()).await;
    let closed = admin
        .query("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()", &[])
        .await
        .unwrap();
    assert!(!closed.is_empty());
    let db = pool.system(Purpose::Cli);
    let mut failed = 0;
    for n in 0..100_i64 {
        match db.write(async move |tx| insert(tx, n, "a").await).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.code(), Code::Unavailable, "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed <= POOL, "{failed} writes failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_unavailable_and_its_password_is_not_shown() {
    // Port 1 of this machine: nothing listens there.
    let postgres = PostgresOptions::new("postgres://someone:hunter2@127.0.0.1:1/nothing");
    assert!(!format!("{:?}", StoreOptions::postgres(postgres.clone())).contains("hunter2"));
    let refused = Store::open(StoreOptions::postgres(postgres), Env::default()).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(!refused.to_string().contains("hunter2"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_too_long_for_a_lock_is_unavailable() {
    let store = TestStore::postgres().await;
    let db = store.system(Purpose::Cli);
    let late = db.write(async |tx| {
        tx.get_one::<String>("SELECT set_config('statement_timeout', '20ms', true)", args![]).await?;
        tx.get_one::<i64>("SELECT count(*) FROM generate_series(1, 1000000000)", args![]).await
    });
    assert_eq!(code(late.await), Some(Code::Unavailable));
    store.ping().await.unwrap();
}
