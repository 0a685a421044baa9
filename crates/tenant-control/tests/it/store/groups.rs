//! Jobs that share a transaction of SQLite: one that fails is undone alone, whatever it and the others have written.

use std::time::Duration;

use kernel::args;
use kernel::base::{Code, Error, Result};
use kernel::store::{Db, Purpose, Tick, Tx, Value};

use super::code;
use super::traps::{occupy, start};
use crate::support::stores::TestStore;

const INSERT: &str =
    "INSERT INTO sla_targets (tenant_id, priority, first_response_minutes, resolution_minutes, updated_at)
    VALUES ($1, $2, $3, $3, $4)";
const TOUCH: &str = "UPDATE sla_targets SET updated_at = updated_at + 1 WHERE tenant_id = $1 AND priority <= $2";
const NUMBER: &str =
    "UPDATE tenant_clocks SET ticket_number = ticket_number + 1 WHERE tenant_id = $1 RETURNING ticket_number";
const ROWS: &str = "SELECT priority, first_response_minutes FROM sla_targets WHERE tenant_id = $1 ORDER BY priority";

/// How a job ends that has written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Well,
    WithAnError,
    WithABrokenConstraint,
    WithASwallowedError,
    WithAPanic,
    NotAtAll,
}

fn row(n: i64, number: i64, at: i64) -> Vec<Value> {
    vec![n.into(), number.into(), at.into()]
}

/// Writes in every way there is, by what it reads: the clock, a number, a row, and the rows of those before it.
async fn work(tx: &mut Tx, n: i64, end: End) -> Result<(Tick, i64)> {
    let tick = tx.tick().await?;
    let number: i64 = tx.one(NUMBER, args![]).await?;
    tx.later(INSERT, row(n, number, tick.at.as_millis())).await?;
    let before = tx.list::<(i64, i64)>(ROWS, args![]).await?.into_iter().filter(|(place, _)| *place <= n).count();
    assert_eq!(usize::try_from(tx.exec(TOUCH, args![n]).await?).unwrap(), before);
    let more = [row(n + 1_000, -number, 0), row(n + 2_000, -number, 0)];
    assert_eq!(tx.exec_each(INSERT, &more).await?, 2);
    match end {
        End::Well => {}
        End::WithAnError => return Err(Error::conflict("as the test wants it")),
        End::WithABrokenConstraint => tx.later(INSERT, row(n, number, 0)).await?,
        End::WithASwallowedError => drop(tx.exec(INSERT, args![n, number, 0_i64]).await),
        End::WithAPanic => panic!("as the test wants it"),
        End::NotAtAll => std::future::pending().await,
    }
    Ok((tick, number))
}

async fn rows(db: &Db) -> Vec<(i64, i64)> {
    db.list(ROWS, args![]).await.unwrap()
}

async fn one_group() -> (TestStore, Db) {
    let store = TestStore::sqlite().await;
    let again = store.open_again(|options| options.group_time(Duration::from_mins(1))).await;
    let store = TestStore { store: again, place: store.place };
    let db = store.tenant("a").await;
    (store, db)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_in_a_group_leaves_nothing_and_no_gap() {
    use End::{NotAtAll, Well, WithABrokenConstraint, WithAPanic, WithASwallowedError, WithAnError};
    let (store, db) = one_group().await;
    let (mut expected, mut kept) = (Vec::new(), 0);
    // Each of them the first to fail of a group whose jobs run without savepoints, and then others in savepoints.
    for (round, first) in
        [WithAnError, WithABrokenConstraint, WithASwallowedError, WithAPanic, NotAtAll].into_iter().enumerate()
    {
        let (release, occupied) = occupy(&store.system(Purpose::Cli)).await;
        let ends = [Well, Well, Well, first, Well, WithAnError, WithAPanic, Well, WithABrokenConstraint, Well];
        let jobs: Vec<_> = (0_i64..)
            .zip(ends)
            .map(|(place, end)| {
                let (db, n) = (db.clone(), i64::try_from(round).unwrap() * 100 + place);
                (n, end, start(async move { db.write(async move |tx| work(tx, n, end).await).await }))
            })
            .collect();
        drop(release);
        occupied.await.unwrap().unwrap();
        for (n, end, job) in jobs {
            let done = job.await.unwrap();
            if end != Well {
                let wanted = if end == WithAnError { Code::Conflict } else { Code::Internal };
                assert_eq!(code(done), Some(wanted), "{n} {end:?}");
                continue;
            }
            kept += 1;
            let (tick, number) = done.unwrap();
            assert_eq!((tick.sequence, number), (kept, kept), "{n}");
            expected.extend([(n, number), (n + 1_000, -number), (n + 2_000, -number)]);
        }
        expected.sort_unstable();
        assert_eq!(rows(&db).await, expected);
        // Until jobs run without savepoints again.
        for _ in 0..100 {
            db.write(async |tx| tx.exec(TOUCH, args![-1_i64]).await).await.unwrap();
        }
    }
}

/// Of this many bytes nothing is noted any more.
const LARGE: usize = 9 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_group_too_large_to_note_is_undone_job_by_job() {
    let insert =
        "INSERT INTO sla_targets (tenant_id, priority, first_response_minutes, resolution_minutes, hours, updated_at)
        VALUES ($1, $2, $2, $2, $3, 0)";
    // One that fails is behind the first that does not fit, or is itself the first.
    for order in
        [[(10, false), (LARGE, false), (10, true), (10, false)], [(10, false), (LARGE, true), (10, true), (10, false)]]
    {
        let (store, db) = one_group().await;
        let (release, occupied) = occupy(&store.system(Purpose::Cli)).await;
        let writing = |(n, (bytes, fails)): (i64, (usize, bool))| {
            let db = db.clone();
            let written = async move |tx: &mut Tx| {
                tx.exec(insert, args![n, "x".repeat(bytes)]).await?;
                tx.exec(TOUCH, args![n]).await?;
                if fails { Err(Error::conflict("as the test wants it")) } else { Ok(()) }
            };
            (n, fails, start(async move { db.write(written).await }))
        };
        let jobs: Vec<_> = (0_i64..).zip(order).map(writing).collect();
        drop(release);
        occupied.await.unwrap().unwrap();
        let mut expected = Vec::new();
        for (n, fails, job) in jobs {
            assert_eq!(code(job.await.unwrap()), fails.then_some(Code::Conflict), "{n}");
            expected.extend((!fails).then_some((n, n)));
        }
        assert_eq!(rows(&db).await, expected);
    }
}
