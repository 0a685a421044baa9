//! The store, on both engines: what a feature may rely on.

mod delta;
mod faults;
mod groups;
mod migrations;
mod tenants;
mod tls;
mod together;
mod traps;
mod turns;
mod witness;

use std::collections::HashSet;
use std::time::Duration;

use kernel::args;
use kernel::base::{Code, Error, OnDuplicate, TenantId, Timestamp};
use kernel::store::{Compare, Db, Purpose, Select, SortDirection, Tick, Tx, Value};
use tokio::task::JoinSet;

use crate::support::stores::{START, TestStore, on_both};

/// A table of every type that both engines know, which no feature owns: the limiter's counters serve as one.
const INSERT: &str = "INSERT INTO rate_usage (window_start, bucket, node, used) VALUES ($1, $2, 'test', $3)";
const COUNT: &str = "SELECT count(*) FROM rate_usage";

async fn insert(tx: &mut Tx, window: i64, bucket: &str) -> kernel::base::Result<u64> {
    tx.exec(INSERT, args![window, bucket, 0_i64]).await
}

async fn count(store: &TestStore) -> i64 {
    store.system(Purpose::Cli).get_one(COUNT, args![]).await.unwrap()
}

async fn tick(db: &Db) -> Tick {
    db.write(async |tx| tx.tick().await).await.unwrap()
}

fn code<T>(result: Result<T, Error>) -> Option<Code> {
    result.err().map(|error| error.code())
}

on_both! {
    async fn every_type_reads_back_as_it_was_bound(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let id = TenantId::new(store.env());
        let texts: (String, String, Option<String>, TenantId) = db
            .get_one(
                "SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT)",
                args!["ü", String::from("b\"'"), None::<String>, id],
            )
            .await
            .unwrap();
        assert_eq!(texts, ("ü".to_owned(), "b\"'".to_owned(), None, id));
        let numbers: (i64, Timestamp, f64, Option<i64>) = db
            .get_one(
                "SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT), CAST($3 AS DOUBLE PRECISION), CAST($4 AS BIGINT)",
                args![i64::MIN, START, 0.5_f64, Some(7_i64)],
            )
            .await
            .unwrap();
        assert_eq!(numbers, (i64::MIN, START, 0.5, Some(7)));
        let yes: bool = db.get_one("SELECT CAST($1 AS BOOLEAN)", args![true]).await.unwrap();
        assert!(yes);
        let bytes: Vec<u8> = db
            .write(async |tx| {
                tx.exec("INSERT INTO secret_checks (name, value) VALUES ('x', $1)", args![[0_u8, 255].as_slice()]).await?;
                tx.get_one("SELECT value FROM secret_checks WHERE name = $1", args!["x"]).await
            })
            .await
            .unwrap();
        assert_eq!(bytes, [0, 255]);
    }

    async fn a_row_that_is_not_there_is_not_found(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let sql = "SELECT used FROM rate_usage WHERE node = $1";
        assert_eq!(code(db.get_one::<i64>(sql, args!["none"]).await), Some(Code::NotFound));
        assert_eq!(db.find::<i64>(sql, args!["none"]).await.unwrap(), None);
        // In a transaction as well, and there it spoils nothing.
        let written = db.write(async move |tx| {
            assert_eq!(code(tx.get_one::<i64>(sql, args!["none"]).await), Some(Code::NotFound));
            insert(tx, 1, "a").await
        });
        assert_eq!(written.await.unwrap(), 1);
    }

    async fn more_rows_than_one_are_a_fault(store: TestStore) {
        let db = store.system(Purpose::Cli);
        db.write(async |tx| insert(tx, 1, "a").await.and(insert(tx, 1, "b").await)).await.unwrap();
        assert_eq!(code(db.find::<i64>("SELECT used FROM rate_usage", args![]).await), Some(Code::Internal));
        assert_eq!(db.list::<String>("SELECT bucket FROM rate_usage ORDER BY bucket", args![]).await.unwrap(), ["a", "b"]);
    }

    async fn a_read_cannot_change_anything(store: TestStore) {
        let db = store.system(Purpose::Cli);
        let sneaky = format!("{INSERT} RETURNING used");
        assert_eq!(code(db.get_one::<i64>(&sneaky, args![1_i64, "a", 0_i64]).await), Some(Code::Internal));
        assert_eq!(count(&store).await, 0);
    }

    async fn a_broken_unique_constraint_can_get_its_own_answer(store: TestStore) {
        let db = store.system(Purpose::Cli);
        db.write(async |tx| insert(tx, 1, "a").await).await.unwrap();
        let again = db.write(async |tx| insert(tx, 1, "a").await).await;
        assert!(again.unwrap_err().is_duplicate());
        let answer = db.write(async |tx| insert(tx, 1, "a").await.on_duplicate(|| Error::conflict("taken"))).await;
        assert_eq!(code(answer), Some(Code::Conflict));
    }

    async fn a_list_is_filtered_and_paged(store: TestStore) {
        let db = store.system(Purpose::Cli);
        db.write(async |tx| {
            for n in 0..10_i64 {
                insert(tx, n / 3, &format!("b{n}")).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
        let fields = ["window_start", "bucket"];
        let list = Select::for_system("SELECT window_start, bucket FROM rate_usage WHERE node = 'test'")
            .where_in("window_start", [0_i64, 1, 2])
            .where_compare("bucket", Compare::AtLeast, "b1")
            .append_sql("AND (bucket <> ? OR window_start = ?)", ["b4".into(), Value::Int(-1)])
            .order_by(&fields, SortDirection::Descending)
            .limit(3);
        let first: Vec<(i64, String)> = db.select(&list).await.unwrap();
        assert_eq!(first.iter().map(|row| row.1.as_str()).collect::<Vec<_>>(), ["b8", "b7", "b6"]);
        let place = vec![Value::from(first[2].0), Value::from(first[2].1.as_str())];
        let rest: Vec<(i64, String)> =
            db.scan(&list.clone().seek_after(&fields, SortDirection::Descending, place)).await.unwrap();
        assert_eq!(rest.iter().map(|row| row.1.as_str()).collect::<Vec<_>>(), ["b5", "b3", "b2"]);
        assert!(db.select::<(i64, String)>(&list.where_in("bucket", [""; 0])).await.unwrap().is_empty());
    }

    async fn a_thousand_writes_at_once_are_all_kept(store: TestStore) {
        // The last waits for a connection until all others have had theirs.
        let patient = store.open_again(|options| options.wait_max(Duration::from_mins(1))).await;
        let store = TestStore { store: patient, place: store.place };
        let mut writes = JoinSet::new();
        for n in 0..1_000_i64 {
            let db = store.system(Purpose::Cli);
            writes.spawn(async move { db.write(async move |tx| insert(tx, n, "a").await).await });
        }
        for written in writes.join_all().await {
            assert_eq!(written.unwrap(), 1);
        }
        assert_eq!(count(&store).await, 1_000);
    }

    async fn the_clock_of_a_tenant_never_goes_back(store: TestStore) {
        let db = store.tenant("a").await;
        let first = tick(&db).await;
        assert_eq!(first, Tick { at: START, sequence: 1 });
        store.env().clock.advance(-5_000);
        assert_eq!(tick(&db).await, Tick { at: START, sequence: 2 });
        store.env().clock.advance(6_000);
        assert_eq!(tick(&db).await, Tick { at: START.plus_ms(1_000), sequence: 3 });
        let twice = db.write(async |tx| Ok((tx.tick().await?, tx.tick().await?))).await.unwrap();
        assert_eq!(twice.0, twice.1);
        let other = store.tenant("b").await;
        assert_eq!(tick(&other).await.sequence, 1);
        let of_nobody = store.system(Purpose::Cli).write(async |tx| tx.tick().await).await;
        assert_eq!(code(of_nobody), Some(Code::Internal));
    }

    async fn ticks_at_once_have_no_gaps_and_no_doubles(store: TestStore) {
        let db = store.tenant("a").await;
        let mut ticks = JoinSet::new();
        for _ in 0..100 {
            let db = db.clone();
            ticks.spawn(async move { tick(&db).await.sequence });
        }
        let seen: HashSet<i64> = ticks.join_all().await.into_iter().collect();
        assert_eq!(seen, (1..=100).collect());
    }

    async fn a_name_can_be_locked_until_the_end_of_the_transaction(store: TestStore) {
        let db = store.system(Purpose::Cli);
        for _ in 0..2 {
            assert!(db.write(async |tx| tx.try_lock("a").await).await.unwrap());
        }
    }

    async fn a_closed_store_has_finished_its_writes_and_takes_no_more(store: TestStore) {
        let mut writes = JoinSet::new();
        for n in 0..50_i64 {
            let db = store.system(Purpose::Cli);
            writes.spawn(async move { db.write(async move |tx| insert(tx, n, "a").await).await });
        }
        store.close().await;
        let kept = writes.join_all().await.into_iter().flatten().count();
        let late = store.system(Purpose::Cli).write(async |tx| insert(tx, -1, "a").await).await;
        assert_eq!(code(late), Some(Code::Unavailable));
        assert_eq!(code(store.ping().await), Some(Code::Unavailable));
        let again = store.open_again(|options| options).await;
        let found: i64 = again.system(Purpose::Cli).get_one(COUNT, args![]).await.unwrap();
        assert_eq!(usize::try_from(found), Ok(kept));
    }

    async fn a_healthy_store_answers_its_ping(store: TestStore) {
        store.ping_read().await.unwrap();
        store.ping().await.unwrap();
    }

    async fn the_statements_of_the_store_can_be_prepared(store: TestStore) {
        for (name, sql) in kernel::store::STATEMENTS {
            store.prepare_check(sql).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert_eq!(code(store.prepare_check("SELECT nonsense FROM nowhere").await), Some(Code::Internal));
    }
}
