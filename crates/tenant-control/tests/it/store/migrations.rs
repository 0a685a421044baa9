//! Migrations: once each, under a lock, never edited.

use kernel::args;
use kernel::base::{Code, Env};
use kernel::store::{Purpose, Store};
use tenant_control::migrations::MIGRATIONS;

use super::code;
use crate::support::stores::{Place, TestStore, on_both};

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
        let store = Store::open(place.options(), Env::default()).await.unwrap();
        assert_eq!(
            code(store.system(Purpose::Cli).get_one::<i64>("SELECT count(*) FROM tenants", args![]).await),
            None
        );
        store
    };
    let unmigrated = async || Store::open(place.options(), Env::default()).await.unwrap();
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
        let store = Store::open(place.options(), Env::default()).await.unwrap();
        assert_eq!(
            store.pending_migrations(MIGRATIONS).await.unwrap().first().map(String::as_str),
            Some("0001_ground")
        );
        store.ping().await.unwrap();
    }
}

/// The indexes of what is not done are made anew there: they have what there was before, and serve the queries of older
/// versions of this service, which ask for the five statuses as a list.
#[tokio::test(flavor = "multi_thread")]
async fn live_tickets_of_before_are_found_by_their_new_indexes() {
    const INSERT: &str =
        "INSERT INTO tickets (tenant_id, id, number, subject, type, status, priority, tags, device_ids, source,
            sla_pauses, comment_count, version, created_at, updated_at, custom_fields)
        VALUES ($1, 'tkt_' || $2, $2, 'A', 'incident', $3, 1, '[]', '[]', 'api', '[]', 0, 1, 0, 0, '{}')";
    let (before, after) =
        MIGRATIONS.split_at(MIGRATIONS.iter().position(|one| one.name == "0008_live_tickets").unwrap());
    let place = Place::folder();
    let store = Store::open(place.options(), Env::default()).await.unwrap();
    store.migrate(before).await.unwrap();
    let store = TestStore { store, place };
    let db = store.tenant("acme").await;
    let insert = async |number: i64, status: &'static str| {
        db.write(async move |tx| tx.exec(INSERT, args![number, status]).await).await.unwrap();
    };
    let statuses = ["new", "open", "in_progress", "pending", "on_hold", "resolved", "closed", "cancelled"];
    for (number, status) in (1..).zip(statuses) {
        insert(number, status).await;
    }
    assert_eq!(store.migrate(MIGRATIONS).await.unwrap().len(), after.len());
    insert(9, "open").await;
    for index in ["tickets_live_by_update", "tickets_live_by_priority", "tickets_live_by_due_date"] {
        // Refused when the index cannot answer it.
        let sql = format!(
            "SELECT number FROM tickets INDEXED BY {index} WHERE tenant_id = $1
             AND status IN ('new', 'open', 'in_progress', 'pending', 'on_hold') ORDER BY number LIMIT 100"
        );
        let found: Vec<i64> = db.list(&sql, args![]).await.unwrap();
        assert_eq!(found, [1, 2, 3, 4, 5, 9], "{index}");
    }
}
