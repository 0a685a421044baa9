//! Migrations: once each, under a lock, never edited.

use kernel::args;
use kernel::base::{Code, World};
use kernel::store::{Purpose, Store};
use tenant_control::migrations::MIGRATIONS;

use super::code;
use crate::support::stores::{Place, on_both};

on_both! {
    async fn migrations_are_applied_once(store: TestStore) {
        assert!(store.migrate(MIGRATIONS).await.unwrap().is_empty());
        assert!(store.pending_migrations(MIGRATIONS).await.unwrap().is_empty());
    }

    async fn an_edited_migration_is_refused(store: TestStore) {
        let edit = "UPDATE schema_migrations SET checksum = 'other' WHERE name = '0001_ground'";
        store.system(Purpose::Cli).write(async move |tx| tx.exec(edit, args![]).await).await.unwrap();
        for refused in [store.migrate(MIGRATIONS).await, store.pending_migrations(MIGRATIONS).await] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), Code::Internal);
            assert!(refused.to_string().contains("0001_ground was edited"), "{refused}");
        }
    }

    async fn a_database_that_is_ahead_of_this_binary_is_fine(store: TestStore) {
        let ahead = "INSERT INTO schema_migrations (name, checksum, applied_at) VALUES ('9999_later', 'x', 0)";
        store.system(Purpose::Cli).write(async move |tx| tx.exec(ahead, args![]).await).await.unwrap();
        assert!(store.migrate(MIGRATIONS).await.unwrap().is_empty());
    }
}

async fn two_nodes_migrate_at_once(place: Place) {
    let open = async || {
        let store = Store::open(place.options(), World::default()).await.unwrap();
        assert_eq!(code(store.system(Purpose::Cli).one::<i64>("SELECT count(*) FROM tenants", args![]).await), None);
        store
    };
    let unmigrated = async || Store::open(place.options(), World::default()).await.unwrap();
    let (a, b) = tokio::join!(unmigrated(), unmigrated());
    assert!(!a.pending_migrations(MIGRATIONS).await.unwrap().is_empty());
    let (by_a, by_b) = tokio::join!(a.migrate(MIGRATIONS), b.migrate(MIGRATIONS));
    let (by_a, by_b) = (by_a.unwrap(), by_b.unwrap());
    assert!(by_a.is_empty() != by_b.is_empty(), "one of them did it all: {by_a:?} {by_b:?}");
    open().await.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_that_migrate_at_once_do_it_once_on_sqlite() {
    two_nodes_migrate_at_once(Place::folder()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_that_migrate_at_once_do_it_once_on_postgres() {
    two_nodes_migrate_at_once(Place::database().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_never_migrated_lists_what_it_lacks() {
    for place in [Place::folder(), Place::database().await] {
        let store = Store::open(place.options(), World::default()).await.unwrap();
        assert_eq!(
            store.pending_migrations(MIGRATIONS).await.unwrap().first().map(String::as_str),
            Some("0001_ground")
        );
        store.ping().await.unwrap();
    }
}
