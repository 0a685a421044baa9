//! Following the changes of a small table whose records can be deleted.

use kernel::args;
use kernel::base::Timestamp;
use kernel::store::delta::{Delta, DeltaStart};
use kernel::store::{Db, Purpose, Select, Tick, Tx, Value};

use crate::support::stores::{START, TestStore, on_both};

const NOTES: Delta = Delta { key: "id" };

const TABLE: &str = "CREATE TABLE notes (tenant_id TEXT NOT NULL, id TEXT NOT NULL, updated_at BIGINT NOT NULL,
    sequence BIGINT NOT NULL, deleted_at BIGINT, PRIMARY KEY (tenant_id, id))";
const LIST: &str = "SELECT id, updated_at, sequence, deleted_at FROM notes WHERE tenant_id = $1";
const SAVE: &str = "INSERT INTO notes (tenant_id, id, updated_at, sequence) VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant_id, id) DO UPDATE SET updated_at = $3, sequence = $4";
const DELETE: &str =
    "UPDATE notes SET updated_at = $3, sequence = $4, deleted_at = $3 WHERE tenant_id = $1 AND id = $2";

type Note = (String, Timestamp, i64, Option<Timestamp>);

async fn opened(store: &TestStore) -> Db {
    store.system(Purpose::Cli).write(async |tx| tx.exec(TABLE, args![]).await).await.unwrap();
    store.tenant("acme").await
}

/// Writes these in one transaction.
async fn write(db: &Db, sql: &'static str, ids: &'static [&'static str]) {
    let write = db.write(async move |tx: &mut Tx| {
        let tick = tx.tick().await?;
        for id in ids {
            tx.exec(sql, args![*id, tick.at, tick.sequence]).await?;
        }
        Ok(())
    });
    write.await.unwrap();
}

async fn page(db: &Db, from: DeltaStart, until: Tick, limit: usize) -> Vec<Note> {
    db.select(&NOTES.select_changes(Select::new(LIST), from, until).limit(limit)).await.unwrap()
}

/// Everything from a moment on, so many at a time.
async fn follow(db: &Db, since: Timestamp, limit: usize) -> Vec<String> {
    let (until, mut from, mut seen) = (db.last_tick().await.unwrap(), DeltaStart::Since(since), Vec::new());
    loop {
        let rows = page(db, from, until, limit).await;
        let Some((id, at, sequence, _)) = rows.last().cloned() else { return seen };
        seen.extend(rows.into_iter().map(|(id, _, _, deleted)| if deleted.is_some() { format!("-{id}") } else { id }));
        from = DeltaStart::Behind(vec![at.into(), sequence.into(), Value::from(id)]);
    }
}

on_both! {
    async fn changes_come_in_the_order_in_which_they_were_made(store: TestStore) {
        let db = opened(&store).await;
        write(&db, SAVE, &["c"]).await;
        write(&db, SAVE, &["b", "d"]).await;
        write(&db, SAVE, &["a"]).await;
        // All of one millisecond, and those of one write together.
        for limit in [1, 2, 3, 50] {
            assert_eq!(follow(&db, START, limit).await, ["c", "b", "d", "a"], "{limit} at a time");
        }
        write(&db, SAVE, &["c"]).await;
        assert_eq!(follow(&db, START, 1).await, ["b", "d", "a", "c"]);
        store.env().clock.advance(1);
        write(&db, SAVE, &["b"]).await;
        assert_eq!(follow(&db, START, 2).await, ["d", "a", "c", "b"]);
        assert_eq!(follow(&db, START.plus_ms(1), 2).await, ["b"]);
        assert_eq!(follow(&db, START.plus_ms(2), 2).await, [""; 0]);
    }

    async fn what_is_deleted_stays_in_its_place_for_those_who_follow(store: TestStore) {
        let db = opened(&store).await;
        write(&db, SAVE, &["a", "b", "c"]).await;
        write(&db, DELETE, &["b"]).await;
        write(&db, SAVE, &["a"]).await;
        for limit in [1, 50] {
            assert_eq!(follow(&db, START, limit).await, ["c", "-b", "a"]);
        }
        let shown: Vec<Note> = db.select(&Select::new(LIST).where_null("deleted_at").limit(50)).await.unwrap();
        let mut shown: Vec<&str> = shown.iter().map(|(id, ..)| id.as_str()).collect();
        shown.sort_unstable();
        assert_eq!(shown, ["a", "c"], "no other list has it");
    }

    async fn nothing_is_shown_behind_what_the_first_statement_saw(store: TestStore) {
        let db = opened(&store).await;
        assert_eq!(db.last_tick().await.unwrap(), Tick { at: Timestamp::from_millis(0), sequence: 0 });
        write(&db, SAVE, &["a", "b"]).await;
        let until = db.last_tick().await.unwrap();
        write(&db, SAVE, &["a"]).await;
        let rows = page(&db, DeltaStart::Since(START), until, 50).await;
        assert_eq!(rows.iter().map(|(id, ..)| id.as_str()).collect::<Vec<_>>(), ["b"], "the other has moved on");
        assert_eq!(follow(&db, START, 1).await, ["b", "a"]);
    }
}
