//! Jobs that share a transaction of SQLite: one that fails is undone alone, whatever it and the others have written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kernel::args;
use kernel::base::{Actor, Code, Error, Result};
use kernel::store::{Db, Purpose, Tick, Tx, Value};
use tokio::task::JoinHandle;

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
    let number: i64 = tx.get_one(NUMBER, args![]).await?;
    tx.defer_exec(INSERT, row(n, number, tick.at.as_millis())).await?;
    let before = tx.list::<(i64, i64)>(ROWS, args![]).await?.into_iter().filter(|(place, _)| *place <= n).count();
    assert_eq!(usize::try_from(tx.exec(TOUCH, args![n]).await?).unwrap(), before);
    let more = [row(n + 1_000, -number, 0), row(n + 2_000, -number, 0)];
    assert_eq!(tx.exec_each(INSERT, &more).await?, 2);
    match end {
        End::Well => {}
        End::WithAnError => return Err(Error::conflict("as the test wants it")),
        End::WithABrokenConstraint => tx.defer_exec(INSERT, row(n, number, 0)).await?,
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
    // Each of them once with nothing before it, which ends its group, and once behind others.
    for (round, failing) in
        [WithAnError, WithABrokenConstraint, WithASwallowedError, WithAPanic, NotAtAll].into_iter().enumerate()
    {
        let (release, occupied) = occupy(&store.system(Purpose::Cli)).await;
        let ends = [failing, Well, Well, failing, Well, WithAnError, WithAPanic, Well, WithABrokenConstraint, Well];
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
    }
}

/// Writes beside the group again and again, as another process does, and gives up at once where it would have to wait.
fn intrude(db: Db, stop: Arc<AtomicBool>) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            written += usize::from(db.write(async |tx| tx.tick().await).await.is_ok());
        }
        written
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_beside_another_process_fails_no_neighbour() {
    use End::{Well, WithAnError};
    let (store, db) = one_group().await;
    let other = store.open_again(|options| options.wait_max(Duration::ZERO)).await;
    let other = other.tenant_for_test(store.tenant("b").await.tenant_id().unwrap(), Actor::for_system());
    for round in 0_i64..40 {
        let (release, occupied) = occupy(&store.system(Purpose::Cli)).await;
        let stop = Arc::new(AtomicBool::new(false));
        let intruder = intrude(other.clone(), stop.clone());
        let jobs: Vec<_> = (0_i64..)
            .zip([Well, Well, WithAnError, Well, WithAnError, Well])
            .map(|(place, end)| {
                let (db, n) = (db.clone(), round * 10 + place);
                (end, start(async move { db.write(async move |tx| work(tx, n, end).await).await }))
            })
            .collect();
        drop(release);
        occupied.await.unwrap().unwrap();
        for (end, job) in jobs {
            let wanted = (end == WithAnError).then_some(Code::Conflict);
            assert_eq!(code(job.await.unwrap()), wanted, "{round} {end:?}");
        }
        stop.store(true, Ordering::Relaxed);
        intruder.await.unwrap();
    }
}

/// Blocks the writer's thread until the flag is set. A job of the same group would never be answered meanwhile.
fn assert_answered(is_answered: &AtomicBool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_answered.load(Ordering::Relaxed) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(is_answered.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_job_has_a_commit_of_its_own() {
    use End::{Well, WithAnError};
    for end in [Well, WithAnError] {
        // A new store has no maintenance job behind it, and so no pause before this one.
        let (store, db) = one_group().await;
        let permit = db.acquire_maintenance_permit().await.unwrap();
        let (release, occupied) = occupy(&store.system(Purpose::Cli)).await;
        let answered = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let ([first, second], [after_first, after_second]) = (answered.clone(), answered);
        let writer = db.clone();
        let before = start(async move {
            writer.write(async move |tx| work(tx, 0, Well).await).await.unwrap();
            first.store(true, Ordering::Relaxed);
        });
        let writer = db.clone();
        let maintenance = start(async move {
            let job = async move |tx: &mut Tx| {
                assert_answered(&after_first);
                work(tx, 1, end).await
            };
            let done = writer.write_in_own_commit(permit, job).await;
            second.store(true, Ordering::Relaxed);
            done
        });
        let writer = db.clone();
        let after = start(async move {
            let job = async move |tx: &mut Tx| {
                assert_answered(&after_second);
                work(tx, 2, Well).await
            };
            // Lanes are served in turn: the second job of the tenant comes after the maintenance job.
            writer.write(job).await
        });
        drop(release);
        occupied.await.unwrap().unwrap();
        before.await.unwrap();
        assert_eq!(code(maintenance.await.unwrap()), (end == WithAnError).then_some(Code::Conflict));
        after.await.unwrap().unwrap();
        let kept: Vec<i64> = rows(&db).await.into_iter().map(|(n, _)| n).filter(|n| *n < 1_000).collect();
        assert_eq!(kept, if end == Well { vec![0, 1, 2] } else { vec![0, 2] });
    }
}
