//! Search, measured from outside: how long the index of a million records takes to build, how quickly it answers, alone,
//! against SQL on the same store and beside changes, and what its feed costs those who write.
//!
//! Deliberately left out: PostgreSQL, whose nodes have the same index, and how good the answers are, which tests look at.

mod changes;
mod client;
mod data;
mod latency;
mod load;
mod measured;
mod options;
mod queries;
mod rebuild;
mod sql;
mod writes;

use std::sync::Arc;

use crate::harness::{Outcome, folder};

use load::{Loaded, Plan};
use options::{Options, Part};

/// See the usage; with `--keep FOLDER` what is loaded there is used again.
pub fn run(arguments: &[&str]) -> Outcome {
    let options = Options::read(arguments)?;
    if options.only != Some(Part::Writes) {
        ask(&options)?;
    }
    if options.wants(Part::Writes) {
        writes::run(&options)?;
    }
    Ok(())
}

/// Everything that is asked of the index.
fn ask(options: &Options) -> Outcome {
    let plan = Plan::of(options.documents)?;
    println!(
        "search: {} records of {} tenants, the largest with {}, the others with {} each: of a hundred 60 tickets, 30 devices, \
         6 people, 2 organizations, 2 software",
        plan.documents(),
        plan.tenants,
        plan.largest,
        plan.average
    );
    let temporary = folder()?;
    let parent = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let loaded = Arc::new(Loaded::make(&parent.join(format!("search-{}", options.documents)), plan)?);
    let server = rebuild::run(&loaded)?;
    if options.wants(Part::Queries) {
        latency::run(&server, &loaded, options)?;
    }
    if options.wants(Part::Changes) {
        changes::run(&server, &loaded, options)?;
    }
    server.stop()
}
