//! Tickets made over HTTP on the embedded store, against the bare store transaction with the same writes.

use std::sync::Arc;

use kernel::base::{Actor, Env};
use kernel::store::{Db, Store, StoreOptions};

use super::data::Makings;
use super::load::Loaded;
use super::new::New;
use super::{PATH, bare, client};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, median};
use crate::server::{Server, cpu_seconds};
use crate::workload::{CALLERS, drive};

const AIM: f64 = 0.5;

pub fn run() -> Outcome {
    let (rounds, writes) = (setting("BENCH_ROUNDS", 7)?, setting("BENCH_WRITES", 20_000)?);
    let size = u32::try_from(setting("BENCH_ROWS", 100_000)?)?;
    println!(
        "tickets-create: POST {PATH} over {CALLERS} connections, {writes} a round, to a tenant that has {size}; the \
         store's transaction with the same writes by {CALLERS} callers"
    );
    let (ours, theirs) = (folder()?, folder()?);
    let makings = Arc::new(Makings::new());
    let loaded = Arc::new(Loaded::make(ours.path(), size, &makings)?);
    let copy = theirs.path().join("bare.db");
    std::fs::copy(loaded.database(), &copy)?;
    let runtime = runtime()?;
    let server = Server::start(ours.path())?;
    let store = runtime.block_on(Store::open(StoreOptions::sqlite(&copy), Env::default()))?;
    let db = store.tenant_for_test(loaded.tenant.parse()?, Actor::for_system());
    let sides = Sides { makings, loaded, server: &server, db };
    // Both warm up first.
    runtime.block_on(sides.over_http(0, writes / 10))?;
    runtime.block_on(sides.in_the_store(0, writes / 10))?;
    let mut comparison = Comparison::new("tickets/s", "server", "store");
    let (mut our_cpu, mut their_cpu) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let each = f64::from(u32::try_from(writes)?) / 1e6;
        let before = cpu_seconds(std::process::id())?;
        let theirs = runtime.block_on(sides.in_the_store(round * writes, writes))?;
        their_cpu.push((cpu_seconds(std::process::id())? - before) / each);
        let before = cpu_seconds(server.id())?;
        let ours = runtime.block_on(sides.over_http(round * writes, writes))?;
        our_cpu.push((cpu_seconds(server.id())? - before) / each);
        comparison.add(ours, theirs);
    }
    comparison.finish(AIM);
    // Other work on the machine changes this far less than the speed.
    println!("processor time per ticket: server {:.1} us, store {:.1} us", median(our_cpu), median(their_cpu));
    runtime.block_on(store.close());
    server.stop()
}

struct Sides<'a> {
    makings: Arc<Makings>,
    loaded: Arc<Loaded>,
    server: &'a Server,
    db: Db,
}

impl Sides<'_> {
    async fn over_http(&self, first: usize, count: usize) -> Outcome<f64> {
        let (makings, loaded) = (self.makings.clone(), self.loaded.clone());
        let request = move |n: usize| client::post(&loaded.key, &New::nth(n, &makings, &loaded.organizations).body());
        client::create_all(self.server.address, CALLERS, first, count, request).await
    }

    async fn in_the_store(&self, first: usize, count: usize) -> Outcome<f64> {
        let (makings, loaded, db) = (self.makings.clone(), self.loaded.clone(), self.db.clone());
        drive(first, count, move |n| {
            let (db, new) = (db.clone(), New::nth(n, &makings, &loaded.organizations));
            async move { Ok(bare::write(&db, new).await?) }
        })
        .await
    }
}
