//! Who waits for whom: no tenant's work keeps another's waiting, however much of it there is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kernel::args;
use kernel::base::{Code, Error, Result};
use kernel::store::{Db, FromRow, Purpose, Row, Select, Store};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::code;
use super::traps::{occupy, start};
use crate::support::postgres::connect;
use crate::support::process::until;
use crate::support::stores::TestStore;

const PATIENCE: Duration = Duration::from_secs(30);
/// A statement of a tenant that needs nothing but its own name.
const OWN: &str = "SELECT CAST($1 AS TEXT)";

/// In which order things were done.
#[derive(Clone, Default)]
struct Order(Arc<Mutex<Vec<&'static str>>>);

impl Order {
    fn note(&self, name: &'static str) {
        self.0.lock().unwrap().push(name);
    }

    fn seen(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

fn noting(db: &Db, order: &Order, name: &'static str) -> impl Future<Output = Result<()>> + Send + use<> {
    let (db, order) = (db.clone(), order.clone());
    async move {
        db.write(async move |_| {
            order.note(name);
            Ok(())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writer_takes_tenants_in_turn() {
    let store = TestStore::sqlite().await;
    let (busy, quiet, order) = (store.tenant("busy").await, store.tenant("quiet").await, Order::default());
    let (release, occupied) = occupy(&store.system(Purpose::Cli)).await;
    let mut queued: Vec<_> = (0..100).map(|_| start(noting(&busy, &order, "busy"))).collect();
    queued.push(start(noting(&quiet, &order, "quiet")));
    queued.push(start(noting(&store.system(Purpose::Cli), &order, "system")));
    drop(release);
    occupied.await.unwrap().unwrap();
    for written in queued {
        written.await.unwrap().unwrap();
    }
    assert_eq!(order.seen()[..4], ["busy", "quiet", "system", "busy"]);
    assert_eq!(order.seen().len(), 102);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_cannot_fill_the_queue_of_the_writer() {
    let store = TestStore::sqlite().await;
    let small = store.open_again(|options| options.queue_max(4)).await;
    let of = |db: &Db| small.tenant_for_test(db.tenant_id().unwrap(), kernel::base::Actor::for_system());
    let (busy, quiet) = (of(&store.tenant("busy").await), of(&store.tenant("quiet").await));
    let order = Order::default();
    let (release, occupied) = occupy(&small.system(Purpose::Cli)).await;
    let queued = [start(noting(&busy, &order, "busy")), start(noting(&busy, &order, "busy"))];
    assert_eq!(code(noting(&busy, &order, "busy").await), Some(Code::Unavailable));
    let neighbour = start(noting(&quiet, &order, "quiet"));
    drop(release);
    occupied.await.unwrap().unwrap();
    for written in queued.into_iter().chain([neighbour]) {
        written.await.unwrap().unwrap();
    }
}

/// A gate at which reads stop while they hold their connection: they read a row by passing it.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    arrived: AtomicUsize,
    inside: AtomicUsize,
    inside_max: AtomicUsize,
}

impl Gate {
    const fn closed() -> Gate {
        Gate {
            open: Mutex::new(false),
            opened: Condvar::new(),
            arrived: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            inside_max: AtomicUsize::new(0),
        }
    }

    fn pass(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.inside_max.fetch_max(inside, Ordering::SeqCst);
        self.arrived.fetch_add(1, Ordering::SeqCst);
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    async fn reached(&self, count: usize) {
        let look = async || (self.arrived.load(Ordering::SeqCst) >= count).then_some(());
        until("the gate is reached", PATIENCE, look).await;
    }
}

static SCANS: Gate = Gate::closed();

struct Scanned;

impl FromRow for Scanned {
    fn from_row(_: &Row<'_>) -> Result<Self> {
        SCANS.pass();
        Ok(Scanned)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_never_scans_on_all_connections() {
    let store = TestStore::sqlite().await;
    let (busy, quiet) = (store.tenant("busy").await, store.tenant("quiet").await);
    let scan = || Select::new(OWN).limit(1);
    let scanning = || {
        let (busy, select) = (busy.clone(), scan());
        async move { busy.scan::<Scanned>(&select).await.map(drop) }
    };
    // All four have asked for their turn before anybody else does.
    let scans: Vec<_> = (0..4).map(|_| start(scanning())).collect();
    SCANS.reached(1).await;
    for _ in 0..3 {
        let found = tokio::time::timeout(PATIENCE, quiet.scan::<String>(&scan())).await.expect("an answer");
        let found = found.expect("a connection is left");
        assert_eq!(found, [quiet.tenant_id().unwrap().to_string()]);
    }
    assert_eq!(SCANS.arrived.load(Ordering::SeqCst), 1, "the others wait for their turn");
    SCANS.open();
    for scanned in scans {
        scanned.await.unwrap().unwrap();
    }
    let (arrived, at_once) = (SCANS.arrived.load(Ordering::SeqCst), SCANS.inside_max.load(Ordering::SeqCst));
    assert_eq!((arrived, at_once), (4, 1), "one after the other");
}

static READS: Gate = Gate::closed();
static READ: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct ReadRow;

impl FromRow for ReadRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        READS.pass();
        READ.lock().unwrap().push(row.get(0)?);
        Ok(ReadRow)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_of_tenants_come_in_turn_when_no_connection_is_free() {
    let store = TestStore::sqlite().await;
    let small = store.open_again(|options| options.reader_count(1)).await;
    let of = |db: &Db| small.tenant_for_test(db.tenant_id().unwrap(), kernel::base::Actor::for_system());
    let (busy, quiet) = (of(&store.tenant("busy").await), of(&store.tenant("quiet").await));
    let reading = |db: &Db| {
        let db = db.clone();
        async move { db.get_one::<ReadRow>(OWN, args![]).await.map(drop) }
    };
    // The first keeps the thread it runs on, as every read does.
    let first = tokio::spawn(reading(&busy));
    READS.reached(1).await;
    let mut waiting: Vec<_> = (0..5).map(|_| start(reading(&busy))).collect();
    waiting.push(start(reading(&quiet)));
    READS.open();
    for read in waiting.into_iter().chain([first]) {
        read.await.unwrap().unwrap();
    }
    let quiet = quiet.tenant_id().unwrap().to_string();
    assert_eq!(READ.lock().unwrap().iter().position(|name| *name == quiet), Some(2), "after one of those that waited");
}

/// A store on the same database with few connections, whose handles give up at some time, and not while a test goes on.
async fn small_pool(store: &TestStore) -> Store {
    store.open_again(|options| options.pool_max(4).wait_max(PATIENCE)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_one_tenant_leave_connections_to_others() {
    let store = TestStore::postgres().await;
    let small = small_pool(&store).await;
    let of = |db: &Db| small.tenant_for_test(db.tenant_id().unwrap(), kernel::base::Actor::for_system());
    let (busy, quiet) = (of(&store.tenant("busy").await), of(&store.tenant("quiet").await));
    let (release, released) = watch::channel(false);
    let begun = Arc::new(AtomicUsize::new(0));
    let writes: Vec<JoinHandle<Result<(), Error>>> = (0..8)
        .map(|_| {
            let (busy, begun, mut released) = (busy.clone(), begun.clone(), released.clone());
            tokio::spawn(async move {
                busy.write(async move |_| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let _ = released.wait_for(|released| *released).await;
                    Ok(())
                })
                .await
            })
        })
        .collect();
    until("two have begun", PATIENCE, async || (begun.load(Ordering::SeqCst) >= 2).then_some(())).await;
    let (wrote, has_written) = oneshot::channel();
    let neighbour = quiet.write(async move |tx| {
        let _ = wrote.send(());
        tx.tick().await
    });
    neighbour.await.expect("a connection is left for another tenant");
    has_written.await.unwrap();
    assert_eq!(quiet.get_one::<String>(OWN, args![]).await.unwrap(), quiet.tenant_id().unwrap().to_string());
    assert_eq!(begun.load(Ordering::SeqCst), 2, "the others wait for their turn, not for a connection");
    release.send_replace(true);
    for written in writes {
        written.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_one_tenant_leave_connections_to_others() {
    let store = TestStore::postgres().await;
    let admin = connect(&store.database().url_as_superuser()).await;
    let small = small_pool(&store).await;
    let of = |db: &Db| small.tenant_for_test(db.tenant_id().unwrap(), kernel::base::Actor::for_system());
    let (busy, quiet) = (of(&store.tenant("busy").await), of(&store.tenant("quiet").await));
    admin.batch_execute("SELECT pg_advisory_lock(42)").await.unwrap();
    let slow = "SELECT CAST($1 AS TEXT) FROM pg_advisory_xact_lock_shared(42)";
    let reads: Vec<_> = (0..8)
        .map(|_| {
            let busy = busy.clone();
            tokio::spawn(async move { busy.get_one::<String>(slow, args![]).await })
        })
        .collect();
    let waiting = async || {
        let sql = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)
    };
    until("two reads wait", PATIENCE, async || (waiting().await >= 2).then_some(())).await;
    for _ in 0..3 {
        quiet.get_one::<String>(OWN, args![]).await.expect("a connection is left for another tenant");
    }
    quiet.write(async |tx| tx.tick().await).await.expect("and for its writes");
    assert_eq!(waiting().await, 2, "the others wait for their turn, not for a connection");
    admin.batch_execute("SELECT pg_advisory_unlock(42)").await.unwrap();
    for read in reads {
        read.await.unwrap().unwrap();
    }
}
