//! The feed of changes that an index follows: what is shown of it and when, from where a reader goes on, and what is removed.

use std::time::Duration;

use kernel::args;
use kernel::base::HOUR_MS;
use kernel::store::changes::{self, ChangePosition};
use kernel::store::{Db, Purpose};
use tokio_postgres::Client;

use crate::support::postgres::connect;
use crate::support::process::until;
use crate::support::stores::{TestStore, on_both};

const PATIENCE: Duration = Duration::from_secs(30);
/// Before everything.
const BEGINNING: ChangePosition = ChangePosition { written_by: 0, number: 0 };
/// More than any of these tests notes.
const ALL: i64 = 100;

/// Moves the time at which a reader was last seen.
pub async fn shift_seen(system: &Db, reader: &str, by_ms: i64) {
    let (sql, reader) = ("UPDATE change_readers SET seen_at = seen_at + $2 WHERE id = $1", reader.to_owned());
    let shifted = system.write(async move |tx| tx.exec(sql, args![reader, by_ms]).await).await;
    assert_eq!(shifted.expect("it is moved"), 1);
}

/// Who reads.
pub async fn readers(system: &Db) -> Vec<String> {
    system.list("SELECT id FROM change_readers ORDER BY id", args![]).await.expect("the readers")
}

/// Notes a change in a transaction of its own.
async fn note(db: &Db, id: &'static str) {
    db.write(async move |tx| tx.record_change("ticket", id).await).await.expect("it is noted");
}

/// Notes these one after the other, in a feed that has none. Where they are.
async fn noted<const N: usize>(system: &Db, db: &Db, ids: [&'static str; N]) -> [ChangePosition; N] {
    for id in ids {
        note(db, id).await;
    }
    shown(system, BEGINNING, &ids).await.try_into().expect("as many places")
}

/// Where these are, once all of them are shown: on PostgreSQL others may be under way, in whichever database of the server. None
/// is ever shown before one that stands in front of it.
async fn shown(system: &Db, behind: ChangePosition, ids: &[&str]) -> Vec<ChangePosition> {
    let look = async || {
        let found = changes::list_changes_after(system, behind, ALL).await.expect("the feed");
        let names: Vec<&str> = found.iter().map(|changed| changed.id.as_str()).collect();
        assert!(ids.starts_with(&names), "{names:?} are shown of {ids:?}");
        let places: Vec<ChangePosition> = found.iter().map(|changed| changed.position).collect();
        (places.len() == ids.len()).then_some(places)
    };
    until("the changes are shown", PATIENCE, look).await
}

/// What is in the feed, shown or not.
async fn left(system: &Db) -> Vec<String> {
    system.list("SELECT record_id FROM changes ORDER BY written_by, number", args![]).await.expect("the feed")
}

async fn begin(system: &Db, reader: &str, place: ChangePosition) {
    changes::insert_reader(system, reader, place).await.expect("a reader");
}

async fn clean(system: &Db, limit: i64) -> u64 {
    changes::delete_passed_changes(system, HOUR_MS, limit).await.expect("it is cleaned")
}

async fn is_there(system: &Db, place: ChangePosition) -> bool {
    changes::has_change_at(system, place).await.expect("an answer")
}

async fn superuser(store: &TestStore) -> Client {
    connect(&store.database().url_as_superuser()).await
}

/// A note as it is written by hand, in a transaction that a test keeps open.
fn noting(db: &Db, id: &str) -> String {
    let tenant = db.tenant_id().expect("a tenant");
    format!("INSERT INTO changes (tenant_id, kind, record_id) VALUES ('{tenant}', 'ticket', '{id}')")
}

on_both! {
    async fn only_what_every_reader_has_passed_is_removed(store: TestStore) {
        let (system, acme) = (store.system(Purpose::Cli), store.tenant("acme").await);
        let places = noted(&system, &acme, ["1", "2", "3", "4", "5"]).await;
        begin(&system, "slow", places[1]).await;
        begin(&system, "fast", places[3]).await;
        assert_eq!(clean(&system, ALL).await, 1);
        assert_eq!(left(&system).await, ["2", "3", "4", "5"], "the last one that the slower has read stays");
        assert!(is_there(&system, places[1]).await);

        assert!(changes::advance_reader(&system, "slow", places[1], places[4]).await.unwrap());
        assert_eq!(clean(&system, 1).await, 1);
        assert_eq!(left(&system).await, ["3", "4", "5"], "the oldest, and no more than is allowed");
        assert_eq!(clean(&system, ALL).await, 1);
        assert_eq!(clean(&system, ALL).await, 0);
        assert_eq!(left(&system).await, ["4", "5"]);

        changes::delete_reader(&system, "fast").await.unwrap();
        changes::delete_reader(&system, "slow").await.unwrap();
        clean(&system, ALL).await;
        // From the last one the next is counted, where nothing else counts them.
        let kept: &[&str] = if store.is_sqlite() { &["5"] } else { &[] };
        assert_eq!(left(&system).await, kept);
        note(&acme, "6").await;
        shown(&system, places[4], &["6"]).await;
    }

    async fn what_is_behind_a_new_reader_stays(store: TestStore) {
        let (system, acme) = (store.system(Purpose::Cli), store.tenant("acme").await);
        noted(&system, &acme, ["1", "2", "3"]).await;
        let place = changes::get_end_position(&system).await.unwrap();
        begin(&system, "new", place).await;
        note(&acme, "4").await;
        note(&acme, "5").await;
        let places = shown(&system, place, &["4", "5"]).await;
        begin(&system, "fast", places[1]).await;
        clean(&system, ALL).await;
        assert_eq!(shown(&system, place, &["4", "5"]).await, places);
        assert!(is_there(&system, place).await, "nor what it has read last, if it has read any");
        let behind = async |max: i64| changes::count_changes_after(&system, place, max).await.unwrap();
        assert_eq!((behind(ALL).await, behind(1).await), (2, 1));
    }

    async fn readers_that_were_not_seen_for_long_are_forgotten(store: TestStore) {
        let (system, acme) = (store.system(Purpose::Cli), store.tenant("acme").await);
        let places = noted(&system, &acme, ["1", "2", "3", "4"]).await;
        for (reader, place, by_ms) in [
            ("ahead", places[0], 2 * HOUR_MS),
            ("early", places[3], HOUR_MS / 2),
            ("gone", places[0], -2 * HOUR_MS),
            ("late", places[2], -HOUR_MS / 2),
        ] {
            begin(&system, reader, place).await;
            shift_seen(&system, reader, by_ms).await;
        }
        let is_seen = async |reader: &str| changes::find_reader_liveness(&system, reader, HOUR_MS).await.unwrap();
        assert_eq!((is_seen("late").await, is_seen("gone").await), (Some(true), Some(false)));
        assert_eq!(clean(&system, ALL).await, 2, "nothing is kept for them");
        assert_eq!(left(&system).await, ["3", "4"]);
        assert_eq!(readers(&system).await, ["early", "late"]);
        assert_eq!((is_seen("late").await, is_seen("gone").await), (Some(true), None));
    }

    async fn a_reader_goes_on_only_from_where_it_is(store: TestStore) {
        let system = store.system(Purpose::Cli);
        let at = |written_by: i64, number: i64| ChangePosition { written_by, number };
        let pass = async |from: ChangePosition, to: ChangePosition| changes::advance_reader(&system, "reader", from, to).await.unwrap();
        let (first, second, third) = (at(1, 7), at(2, 3), at(3, 5));
        assert!(!pass(first, second).await, "nobody knows it");
        assert_eq!(changes::find_reader_position(&system, "reader").await.unwrap(), None);
        begin(&system, "reader", first).await;
        begin(&system, "other", first).await;
        assert!(pass(first, second).await);
        assert!(pass(first, second).await, "said again");

        shift_seen(&system, "reader", -2 * HOUR_MS).await;
        let is_seen = async || changes::find_reader_liveness(&system, "reader", HOUR_MS).await.unwrap();
        for (from, to) in [(first, third), (at(2, 7), third), (at(1, 3), third), (first, at(2, 7)), (first, at(1, 3))] {
            assert!(!pass(from, to).await, "it is not at {from:?}, nor at {to:?}");
        }
        assert_eq!(changes::find_reader_position(&system, "reader").await.unwrap(), Some(second));
        assert_eq!(is_seen().await, Some(false), "that was somebody else");
        assert!(pass(second, second).await, "it is still there");
        assert_eq!(is_seen().await, Some(true));

        assert!(pass(second, third).await);
        assert_eq!(changes::find_reader_position(&system, "reader").await.unwrap(), Some(third));
        assert_eq!(changes::find_reader_position(&system, "other").await.unwrap(), Some(first));
        changes::delete_reader(&system, "reader").await.unwrap();
        assert!(!pass(third, third).await, "it was forgotten");
        assert_eq!(readers(&system).await, ["other"]);
    }

    async fn what_was_never_noted_is_not_there(store: TestStore) {
        let (system, acme) = (store.system(Purpose::Cli), store.tenant("acme").await);
        let end = async || changes::get_end_position(&system).await.unwrap();
        assert!(is_there(&system, end().await).await, "whoever finds no change has none to show");
        let [place] = noted(&system, &acme, ["1"]).await;
        assert!(is_there(&system, place).await);
        assert!(is_there(&system, end().await).await);
        assert!(!is_there(&system, ChangePosition { number: place.number + 1, ..place }).await);
        assert!(!is_there(&system, ChangePosition { written_by: place.written_by + 1, ..place }).await);
    }
}

/// On SQLite there is one writer: nothing is under way when something is committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_shown_when_nothing_that_began_before_it_is_under_way() {
    let store = TestStore::postgres().await;
    let (system, early, late) = (store.system(Purpose::Cli), store.tenant("early").await, store.tenant("late").await);
    let slow = superuser(&store).await;
    slow.batch_execute(&format!("BEGIN; {}", noting(&early, "first"))).await.unwrap();
    note(&late, "second").await;
    assert_eq!(left(&system).await, ["second"], "it is committed");
    let read = changes::list_changes_after(&system, BEGINNING, ALL).await.unwrap();
    assert!(read.is_empty(), "the first will stand in front of it: {read:?}");
    let end = changes::get_end_position(&system).await.unwrap();
    assert_eq!(clean(&system, ALL).await, 0, "nobody can have read it");
    begin(&system, "new", end).await;

    slow.batch_execute(&format!("{}; COMMIT", noting(&early, "first again"))).await.unwrap();
    // The transaction counts, and not the moment at which it has noted something.
    let order = ["first", "first again", "second"];
    let places = shown(&system, BEGINNING, &order).await;
    assert_eq!(places[0].written_by, places[1].written_by);
    assert_eq!(shown(&system, end, &order).await, places, "all of it is behind whoever began meanwhile");
}

/// On SQLite there is one writer: nobody begins in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_begins_to_read_during_a_cleaning_misses_nothing() {
    let store = TestStore::postgres().await;
    let (system, acme) = (store.system(Purpose::Cli), store.tenant("acme").await);
    let (slow, other) = (superuser(&store).await, superuser(&store).await);
    begin(&system, "gone", BEGINNING).await;
    shift_seen(&system, "gone", -2 * HOUR_MS).await;
    // Older than the cleaning, which may remove what it has noted.
    slow.batch_execute(&format!("BEGIN; {}", noting(&acme, "1"))).await.unwrap();
    // The cleaning waits for the row of the reader that it forgets.
    other.batch_execute("BEGIN; SELECT id FROM change_readers WHERE id = 'gone' FOR UPDATE").await.unwrap();
    let cleaning = tokio::spawn({
        let system = system.clone();
        async move { changes::delete_passed_changes(&system, HOUR_MS, ALL).await }
    });
    let waiting = async || {
        let sql = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted
            AND transactionid = CAST(pg_current_xact_id() AS xid)";
        let count: i64 = other.query_one(sql, &[]).await.unwrap().get(0);
        (count == 1).then_some(())
    };
    until("the cleaning waits", PATIENCE, waiting).await;
    assert_eq!(clean(&system, ALL).await, 0, "one at a time, and nobody waits for it");

    let place = changes::get_end_position(&system).await.unwrap();
    begin(&system, "new", place).await;
    slow.batch_execute("COMMIT").await.unwrap();
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cleaning.await.unwrap().unwrap(), 0);
    assert_eq!(readers(&system).await, ["new"]);
    shown(&system, place, &["1"]).await;
}
