//! What figures cost those who write tickets: the fact in the transaction of the ticket, and adding it up behind it. Nothing
//! switches them off, so it is compared in two ways, both by processor time, which other work on the machine changes least:
//!
//! - the store's own transaction with all writes of a ticket, without the fact, and with it while facts are added up every half
//!   second as the product's job does it, until the last one is;
//! - tickets over HTTP, to a server, and to one on a copy of its file where a trigger throws all facts away before they are written,
//!   so that nothing is added up either. What is metered of the requests is thrown away there, too; facts are made and encoded
//!   in both, which the first way has.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel::base::{Actor, Env, Result};
use kernel::store::{Db, FactRetention, Purpose, Store, StoreOptions};
use rusqlite::Connection;
use tenant_control::features::fold::store::fold_batch;

use super::facts::creation_fact;
use crate::cluster::output;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, limit, median};
use crate::server::{Server, cpu_seconds};
use crate::tickets::data::{Makings, PRIORITIES};
use crate::tickets::load::Loaded;
use crate::tickets::new::New;
use crate::tickets::{bare, client};
use crate::workload::{CALLERS, drive};

/// Of the processor time of a ticket with its facts.
const LIMIT_PERCENT: f64 = 5.0;
/// How many times as long a ticket may take then.
const AIM: f64 = 1.05;
/// Of the product's job.
const FOLD_EVERY: Duration = Duration::from_millis(500);
/// What a server has left to add up, and to index, behind the last answer of a round is done by then.
const SETTLED: Duration = Duration::from_secs(3);

const SILENCE: &str = "CREATE TRIGGER bench_no_facts BEFORE INSERT ON facts_queue BEGIN SELECT RAISE(IGNORE); END";

pub fn run() -> Outcome {
    let (rounds, writes) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_WRITES", 20_000)?);
    let size = u32::try_from(setting("BENCH_ROWS", 100_000)?)?;
    println!(
        "analytics-tickets: {writes} tickets a round by {CALLERS} callers, to a tenant that has {size}, with facts and without; \
         {rounds} rounds of each, in turn"
    );
    let (data, other) = (folder()?, folder()?);
    let makings = Arc::new(Makings::new());
    let loaded = Arc::new(Loaded::make(data.path(), size, &makings)?);
    let silent = other.path().join("silent");
    // With the index, so that both have the same to follow.
    output(Command::new("cp").arg("-a").arg(data.path()).arg(&silent))?;
    Connection::open(silent.join("tenant-control.db"))?.execute_batch(SILENCE)?;
    let of_store = other.path().join("store.db");
    std::fs::copy(loaded.database(), &of_store)?;
    let load = Load { makings, loaded, rounds, writes };
    load.compare_transactions(&of_store)?;
    load.compare_servers(data.path(), &silent)
}

struct Load {
    makings: Arc<Makings>,
    loaded: Arc<Loaded>,
    rounds: usize,
    writes: usize,
}

impl Load {
    fn compare_transactions(&self, database: &Path) -> Outcome {
        let runtime = runtime()?;
        let store = runtime.block_on(Store::open(StoreOptions::sqlite(database), Env::default()))?;
        let db = store.tenant_for_test(self.loaded.tenant.parse()?, Actor::for_system());
        let system = store.system(Purpose::Jobs);
        println!("  the transaction of a ticket in the store:");
        let measure = |first: usize, has_facts: bool| -> Outcome<TicketCost> {
            let before = cpu_seconds(std::process::id())?;
            let per_second = runtime.block_on(self.in_the_store(&db, &system, first, has_facts))?;
            Ok(TicketCost { per_second, cpu_us: self.micros_since(std::process::id(), before)? })
        };
        let mut costs = TicketCosts::new("without facts", "with facts added up");
        // The first round warms up.
        for round in 0..=self.rounds {
            costs.take(round, |place, has_facts| measure((2 * round + place) * self.writes, has_facts))?;
        }
        costs.finish("facts of a transaction");
        runtime.block_on(store.close());
        Ok(())
    }

    fn compare_servers(&self, data: &Path, silent: &Path) -> Outcome {
        let runtime = runtime()?;
        let servers = [Server::start(silent)?, Server::start(data)?];
        std::thread::sleep(SETTLED);
        println!("  tickets over HTTP:");
        let measure = |first: usize, has_facts: bool| -> Outcome<TicketCost> {
            let server = &servers[usize::from(has_facts)];
            let before = cpu_seconds(server.id())?;
            let per_second = runtime.block_on(self.over_http(server, first))?;
            std::thread::sleep(SETTLED);
            Ok(TicketCost { per_second, cpu_us: self.micros_since(server.id(), before)? })
        };
        let mut costs = TicketCosts::new("facts thrown away", "facts added up");
        for round in 0..=self.rounds {
            // Each has a file of its own, so that both make the same tickets.
            costs.take(round, |_, has_facts| measure(round * self.writes, has_facts))?;
        }
        costs.finish("facts of a request");
        for server in servers {
            server.stop()?;
        }
        check_facts(&data.join("tenant-control.db"), true)?;
        check_facts(&silent.join("tenant-control.db"), false)
    }

    fn micros_since(&self, process: u32, before: f64) -> Outcome<f64> {
        Ok((cpu_seconds(process)? - before) * 1e6 / f64::from(u32::try_from(self.writes)?))
    }

    /// Tickets per second. What is left to add up is added up before it returns.
    async fn in_the_store(&self, db: &Db, system: &Db, first: usize, has_facts: bool) -> Outcome<f64> {
        let (makings, loaded, of_tickets) = (self.makings.clone(), self.loaded.clone(), db.clone());
        let is_done = Arc::new(AtomicBool::new(false));
        let folding = has_facts.then(|| tokio::spawn(fold_until(system.clone(), is_done.clone())));
        let driven = drive(first, self.writes, move |n| {
            let (db, new) = (of_tickets.clone(), New::nth(n, &makings, &loaded.organizations));
            async move { Ok(write(&db, new, has_facts).await?) }
        })
        .await;
        is_done.store(true, Ordering::Relaxed);
        if let Some(folding) = folding {
            folding.await.map_err(|_| "adding up panicked")??;
        }
        driven
    }

    async fn over_http(&self, server: &Server, first: usize) -> Outcome<f64> {
        let (makings, loaded) = (self.makings.clone(), self.loaded.clone());
        let request = move |n: usize| client::post(&loaded.key, &New::nth(n, &makings, &loaded.organizations).body());
        client::create_all(server.address, CALLERS, first, self.writes, request).await
    }
}

async fn write(db: &Db, new: New, has_facts: bool) -> Result<()> {
    let body = new.event();
    db.write(async move |tx| {
        bare::create(tx, &new, &body, &bare::KEY).await?;
        if has_facts {
            // The same tick: a transaction has one.
            let at = tx.tick().await?.at.as_millis();
            let fact = creation_fact(at, PRIORITIES[new.priority], new.organization.as_deref());
            tx.record_fact(&fact, FactRetention::Long).await?;
        }
        Ok(())
    })
    .await
}

/// Adds up as the product's job does, until nothing more comes and nothing is left.
async fn fold_until(system: Db, is_done: Arc<AtomicBool>) -> Outcome {
    loop {
        let is_last = is_done.load(Ordering::Relaxed);
        while fold_batch(&system).await? > 0 {}
        if is_last {
            return Ok(());
        }
        tokio::time::sleep(FOLD_EVERY).await;
    }
}

/// Whether tickets have facts, or none has: a trigger that does not work would compare a thing with itself.
fn check_facts(database: &Path, is_expected: bool) -> Outcome {
    let asked = "SELECT EXISTS (SELECT 1 FROM facts WHERE born_at IS NOT NULL)
        OR EXISTS (SELECT 1 FROM facts_queue WHERE born_at IS NOT NULL)";
    let is_there: bool = Connection::open(database)?.query_row(asked, [], |row| row.get(0))?;
    if is_there == is_expected {
        return Ok(());
    }
    Err(format!("facts in {}: {is_there}", database.display()).into())
}

/// Of one round.
struct TicketCost {
    per_second: f64,
    /// Processor time of a ticket.
    cpu_us: f64,
}

/// Both ways of the same, which take turns at being the first.
struct TicketCosts {
    rates: Comparison,
    without_us: Vec<f64>,
    with_us: Vec<f64>,
    share_percent: Vec<f64>,
}

impl TicketCosts {
    fn new(without: &'static str, with: &'static str) -> Self {
        TicketCosts {
            rates: Comparison::new("tickets/s", without, with),
            without_us: Vec::new(),
            with_us: Vec::new(),
            share_percent: Vec::new(),
        }
    }

    /// Measures both: which of the two it is, and whether it has facts.
    fn take(&mut self, round: usize, measure: impl Fn(usize, bool) -> Outcome<TicketCost>) -> Outcome {
        let is_first_with = round % 2 == 1;
        let (first, second) = (measure(0, is_first_with)?, measure(1, !is_first_with)?);
        let (with, without) = if is_first_with { (first, second) } else { (second, first) };
        if round > 0 {
            self.rates.add(without.per_second, with.per_second);
            self.without_us.push(without.cpu_us);
            self.with_us.push(with.cpu_us);
            self.share_percent.push(100.0 * (with.cpu_us - without.cpu_us) / with.cpu_us);
        }
        Ok(())
    }

    /// The ratio of the rates is how many times as long a ticket takes.
    fn finish(self, name: &str) {
        self.rates.finish_at_most(AIM);
        println!(
            "processor time per ticket: {} {:.1} us, {} {:.1} us",
            self.rates.ours,
            median(self.without_us),
            self.rates.theirs,
            median(self.with_us)
        );
        limit(name, self.share_percent, "% of its processor time", LIMIT_PERCENT);
    }
}
