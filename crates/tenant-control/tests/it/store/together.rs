//! Statements that nobody waits for: sent together, and each as if it were alone.

use kernel::args;
use kernel::base::{Code, Error};
use kernel::store::{Purpose, Tick, Value};

use super::{COUNT, INSERT, code, count, insert};
use crate::support::stores::{START, TestStore, on_both};

const BACKEND: &str = "SELECT CAST(pg_backend_pid() AS BIGINT)";

fn row(window: i64) -> Vec<Value> {
    vec![window.into(), "a".into(), 0_i64.into()]
}

on_both! {
    async fn what_is_asked_is_answered_as_of_its_place(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let counts = db.write(async |tx| {
            let none = tx.defer_query::<i64>(COUNT, Vec::new()).await?;
            tx.defer_exec(INSERT, row(1)).await?;
            let one = tx.defer_query::<i64>(COUNT, Vec::new()).await?;
            insert(tx, 2, "a").await?;
            let two: i64 = tx.get_one(COUNT, args![]).await?;
            tx.defer_exec(INSERT, row(3)).await?;
            let three = tx.defer_query::<i64>(COUNT, Vec::new()).await?;
            // In whichever order they are fetched, and one that has not been sent yet.
            let (three, one, none) = (tx.await_rows(three).await?, tx.await_rows(one).await?, tx.await_rows(none).await?);
            Ok([none, one, vec![two], three])
        });
        assert_eq!(counts.await.unwrap(), [vec![0], vec![1], vec![2], vec![3]]);
        assert_eq!(count(&store).await, 3);
    }

    async fn a_write_that_waited_for_nothing_is_kept(store: TestStore) {
        let db = store.system(Purpose::Cli);
        db.write(async |tx| tx.defer_exec(INSERT, row(1)).await).await.unwrap();
        assert_eq!(count(&store).await, 1);
    }

    async fn nothing_is_kept_when_the_last_statement_fails(store: TestStore) {
        let store = TestStore { store: store.open_again(|options| options.pool_max(1)).await, place: store.place };
        let db = store.system(Purpose::Cli);
        let backend = async || if store.is_sqlite() { 0 } else { db.get_one::<i64>(BACKEND, args![]).await.unwrap() };
        let before = backend().await;
        // One that breaks a constraint in the database, and one that does not even get there: no commit overtakes it.
        for wrong in [row(1), vec!["no number".into(), "a".into(), 0_i64.into()]] {
            assert_eq!(backend().await, before, "the connection is not to blame");
            let failed = db.write(async move |tx| {
                insert(tx, 1, "a").await?;
                tx.defer_exec(INSERT, wrong).await?;
                tx.defer_exec(INSERT, row(2)).await
            });
            let error = failed.await.unwrap_err();
            assert_eq!(error.code(), Code::Internal);
            assert!(error.cause_chain().unwrap().contains(INSERT), "{error}");
            assert_eq!(count(&store).await, 0);
        }
    }

    async fn what_was_asked_and_fails_dooms_the_write(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let swallowed = db.write(async |tx| {
            insert(tx, 1, "a").await?;
            let wrong = tx.defer_query::<i64>("SELECT nonsense FROM nowhere", Vec::new()).await;
            if let Ok(wrong) = wrong {
                let _ = tx.await_rows(wrong).await;
            }
            Ok(())
        });
        assert_eq!(code(swallowed.await), Some(Code::Internal));
        assert_eq!(count(&store).await, 0);
    }

    async fn a_row_is_found_under_the_clock_that_moves_with_it(store: TestStore) {
        let db = store.tenant("a").await;
        let clock = "SELECT sequence FROM tenant_clocks WHERE tenant_id = $1";
        // The first starts the clock, the second moves it, and a clock that has moved stays.
        for sequence in [1, 2] {
            let found = db.write(async move |tx| {
                let before = tx.defer_query::<i64>(clock, Vec::new()).await?;
                tx.defer_tick().await?;
                let found = tx.defer_query::<i64>(clock, Vec::new()).await?;
                // Once, however often it is asked for.
                tx.defer_tick().await?;
                let again = tx.defer_query::<i64>(clock, Vec::new()).await?;
                let tick = tx.tick().await?;
                assert_eq!(tx.tick().await?, tick);
                Ok((tx.await_rows(before).await?.pop(), tx.await_rows(found).await?, tx.await_rows(again).await?, tick))
            });
            let (before, tick) = (Some(sequence - 1).filter(|before| *before > 0), Tick { at: START, sequence });
            assert_eq!(found.await.unwrap(), (before, vec![sequence], vec![sequence], tick));
        }
        let system = store.system(Purpose::Cli);
        let nobody = system.write(async |tx| tx.defer_tick().await);
        assert_eq!(code(nobody.await), Some(Code::Internal));
        let failed = db.write(async |tx| {
            tx.defer_tick().await?;
            assert_eq!(tx.get_one::<i64>(clock, args![]).await?, 3);
            Err::<(), _>(Error::conflict("as the test wants it"))
        });
        assert_eq!(code(failed.await), Some(Code::Conflict));
        assert_eq!(db.get_one::<i64>(clock, args![]).await.unwrap(), 2);
    }
}
