//! What the feed of changes costs those who write tickets. Nothing switches it off, so it is compared in two ways:
//!
//! - the store's own transaction with all writes of a ticket, with the note and without, in turn on one file;
//! - tickets over HTTP, to a server whose index follows, and to one on a copy of its file where a trigger throws the notes away
//!   before they are written, so that nothing follows either.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kernel::base::{Actor, Env, Result};
use kernel::store::{Db, Store, StoreOptions};
use rusqlite::Connection;

use super::client::start;
use super::measured::small;
use super::options::Options;
use super::rebuild::{forget_index, until_answered};
use crate::harness::{Outcome, folder, runtime};
use crate::report::{Comparison, median};
use crate::server::{Server, cpu_seconds};
use crate::tickets::bare;
use crate::tickets::client;
use crate::tickets::data::Makings;
use crate::tickets::load::Loaded;
use crate::tickets::new::New;
use crate::workload::{CALLERS, drive};

/// How many times as long it may take.
const AIM: f64 = 1.05;
/// What the index has not yet read of a round is read by then.
const SETTLED: Duration = Duration::from_secs(1);

const SILENCE: &str = "CREATE TRIGGER bench_no_changes BEFORE INSERT ON changes BEGIN SELECT RAISE(IGNORE); END";

pub fn run(options: &Options) -> Outcome {
    let Options { rounds, writes, rows, .. } = *options;
    println!(
        "writes: {writes} tickets a round by {CALLERS} callers, to a tenant that has {rows}; {rounds} rounds of each, in turn"
    );
    let (data, other) = (folder()?, folder()?);
    let makings = Arc::new(Makings::new());
    let loaded = Arc::new(Loaded::make(data.path(), u32::try_from(rows)?, &makings)?);
    // Both servers build theirs anew.
    forget_index(data.path())?;
    let silent = other.path().join("silent");
    copy(data.path(), &silent)?;
    Connection::open(silent.join("tenant-control.db"))?.execute_batch(SILENCE)?;
    let of_note = other.path().join("note.db");
    std::fs::copy(loaded.database(), &of_note)?;
    let load = Load { makings, loaded, rounds, writes };
    load.compare_notes(&of_note)?;
    load.compare_servers(data.path(), &silent)
}

/// What a data folder has but its index.
fn copy(from: &Path, to: &Path) -> Outcome {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

struct Load {
    makings: Arc<Makings>,
    loaded: Arc<Loaded>,
    rounds: usize,
    writes: usize,
}

impl Load {
    fn compare_notes(&self, database: &Path) -> Outcome {
        let runtime = runtime()?;
        let store = runtime.block_on(Store::open(StoreOptions::sqlite(database), Env::default()))?;
        let db = store.tenant_for_test(self.loaded.tenant.parse()?, Actor::for_system());
        let measure = |first: usize, is_noted: bool| -> Outcome<(f64, f64)> {
            let before = cpu_seconds(std::process::id())?;
            let rate = runtime.block_on(self.in_the_store(&db, first, is_noted))?;
            Ok((rate, self.micros_each(cpu_seconds(std::process::id())? - before)))
        };
        println!("  the transaction of a ticket in the store:");
        let mut turns = Turns::new("without the note", "with it");
        // The first round warms up.
        for round in 0..=self.rounds {
            turns.take(round, |place, is_noted| measure((2 * round + place) * self.writes, is_noted))?;
        }
        turns.finish();
        runtime.block_on(store.close());
        Ok(())
    }

    fn compare_servers(&self, data: &Path, silent: &Path) -> Outcome {
        let runtime = runtime()?;
        let servers = [start(silent)?, start(data)?];
        for server in &servers {
            until_answered(server, &self.loaded.key)?;
        }
        let measure = |first: usize, is_noted: bool| -> Outcome<(f64, f64)> {
            let server = &servers[usize::from(is_noted)];
            let before = cpu_seconds(server.id())?;
            let rate = runtime.block_on(self.over_http(server, first))?;
            // What is indexed behind the last answer counts as well.
            std::thread::sleep(SETTLED);
            Ok((rate, self.micros_each(cpu_seconds(server.id())? - before)))
        };
        println!("  tickets over HTTP:");
        let mut turns = Turns::new("without the feed", "with it and its index");
        for round in 0..=self.rounds {
            // Each has a file of its own, so that both make the same tickets.
            turns.take(round, |_, is_noted| measure(round * self.writes, is_noted))?;
        }
        turns.finish();
        for server in servers {
            server.stop()?;
        }
        Ok(())
    }

    fn micros_each(&self, seconds: f64) -> f64 {
        seconds * 1e6 / small(self.writes)
    }

    async fn in_the_store(&self, db: &Db, first: usize, is_noted: bool) -> Outcome<f64> {
        let (makings, loaded, db) = (self.makings.clone(), self.loaded.clone(), db.clone());
        drive(first, self.writes, move |n| {
            let (db, new) = (db.clone(), New::nth(n, &makings, &loaded.organizations));
            async move { Ok(write(&db, new, is_noted).await?) }
        })
        .await
    }

    async fn over_http(&self, server: &Server, first: usize) -> Outcome<f64> {
        let (makings, loaded) = (self.makings.clone(), self.loaded.clone());
        let request = move |n: usize| client::post(&loaded.key, &New::nth(n, &makings, &loaded.organizations).body());
        client::create_all(server.address, CALLERS, first, self.writes, request).await
    }
}

async fn write(db: &Db, new: New, is_noted: bool) -> Result<()> {
    let body = new.event();
    db.write(async move |tx| {
        let made = bare::create(tx, &new, &body, &bare::KEY).await?;
        if is_noted {
            tx.record_change("ticket", made.id).await?;
        }
        Ok(())
    })
    .await
}

/// Two ways of the same, which take turns at being the first.
struct Turns {
    rates: Comparison,
    without_us: Vec<f64>,
    with_us: Vec<f64>,
}

impl Turns {
    fn new(without: &'static str, with: &'static str) -> Self {
        Turns { rates: Comparison::new("tickets/s", without, with), without_us: Vec::new(), with_us: Vec::new() }
    }

    /// Measures both: which of the two it is, and whether changes are noted. Tells the rate, and the processor time of each.
    fn take(&mut self, round: usize, measure: impl Fn(usize, bool) -> Outcome<(f64, f64)>) -> Outcome {
        let is_first_noted = round % 2 == 1;
        let (first, second) = (measure(0, is_first_noted)?, measure(1, !is_first_noted)?);
        let (with, without) = if is_first_noted { (first, second) } else { (second, first) };
        if round > 0 {
            self.rates.add(without.0, with.0);
            self.without_us.push(without.1);
            self.with_us.push(with.1);
        }
        Ok(())
    }

    /// The ratio of the rates is how many times as long a ticket takes.
    fn finish(self) {
        self.rates.finish_at_most(AIM);
        let (without, with) = (median(self.without_us), median(self.with_us));
        // Other work on the machine changes this far less than the speed.
        println!(
            "processor time per ticket: {} {without:.1} us, {} {with:.1} us: ratio {:.3}, aim at most {AIM}",
            self.rates.ours,
            self.rates.theirs,
            with / without
        );
    }
}
