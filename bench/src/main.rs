//! Load and limit benchmarks. Each prints a ratio of two things measured in the same run, or a figure beside its
//! limit, because absolute numbers of a shared machine mean little. How to run them is in README.md.
//!
//! Deliberately left out: failing when an aim is missed. A busy machine is not a fault of the code; people read this.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

mod analytics;
mod backups;
mod bare_server;
mod bare_sqlite;
mod chance;
mod clouds;
mod cluster;
mod fairness;
mod faults;
mod harness;
mod hostile;
mod inventory;
mod lists;
mod memory;
mod read;
mod report;
mod search;
mod server;
mod start;
mod store_postgres;
mod store_sqlite;
mod tickets;
mod webhooks;
mod workflows;
mod workload;

use std::process::ExitCode;

use harness::Outcome;

/// The service's own, so that what is measured in this process is what it would be in that one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: bench store-sqlite | store-postgres | read | start | memory | webhooks-rate |\n\
    webhooks-latency | webhooks-neighbours | webhooks-backlog | webhooks-hanging [postgres] | webhooks-publish |\n\
    tickets-create | tickets-create-postgres |\n\
    tickets-lists [SIZES] [--data FOLDER] | tickets-follow [postgres] | lists [ROWS] | fairness | faults [log | answers] |\n\
    hostile [unread | reports | names | uploads] |\n\
    workflows-steps | workflows-latency | workflows-fairness | inventory-ingest | inventory-export [--keep FOLDER] |\n\
    inventory-lists [--keep FOLDER] | clouds-sync | backups-ingest | backups-aggregate | backups-clock |\n\
    analytics-tenant | analytics-platform | analytics-metering | analytics-tickets |\n\
    search [--documents N] [--keep FOLDER] [--connections N] [--quick] [--only rebuild | queries | changes | writes] | all\n\
    rounds and sizes: see README.md";

const ALL: [&str; 34] = [
    "store-sqlite",
    "store-postgres",
    "read",
    "start",
    "memory",
    "webhooks-rate",
    "webhooks-latency",
    "webhooks-neighbours",
    "webhooks-backlog",
    "webhooks-hanging",
    "webhooks-publish",
    "tickets-create",
    "tickets-create-postgres",
    "tickets-lists",
    "tickets-follow",
    "faults",
    "hostile",
    "lists",
    "fairness",
    "workflows-steps",
    "workflows-latency",
    "workflows-fairness",
    "inventory-ingest",
    "inventory-export",
    "inventory-lists",
    "clouds-sync",
    "backups-ingest",
    "backups-aggregate",
    "backups-clock",
    "analytics-tenant",
    "analytics-platform",
    "analytics-metering",
    "analytics-tickets",
    "search",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Outcome {
    if cfg!(debug_assertions) {
        return Err("an unoptimised build measures nothing: cargo run --release -p bench -- …".into());
    }
    match arguments {
        ["store-sqlite"] => store_sqlite::run(),
        ["store-postgres"] => store_postgres::run(),
        ["read"] => read::run(),
        ["start"] => start::run(),
        ["memory"] => memory::run(),
        ["webhooks-rate"] => webhooks::rate::run(),
        ["webhooks-latency"] => webhooks::latency::run(),
        ["webhooks-neighbours"] => webhooks::neighbours::run(),
        ["webhooks-backlog"] => webhooks::backlog::run(),
        ["webhooks-hanging", more @ ..] => webhooks::hanging::run(more),
        ["webhooks-publish"] => webhooks::publish::run(),
        ["tickets-create"] => tickets::create::run(),
        ["tickets-create-postgres"] => tickets::create_postgres::run(),
        ["tickets-lists", more @ ..] => tickets::lists::run(more),
        ["tickets-follow", more @ ..] => tickets::follow::run(more),
        ["faults", more @ ..] => faults::run(more),
        ["hostile", more @ ..] => hostile::run(more),
        ["lists", more @ ..] => lists::run(more),
        ["fairness"] => fairness::run(),
        ["workflows-steps"] => workflows::steps::run(),
        ["workflows-latency"] => workflows::latency::run(),
        ["workflows-fairness"] => workflows::fairness::run(),
        ["inventory-ingest"] => inventory::ingest::run(),
        ["inventory-export", more @ ..] => inventory::export::run(more),
        ["inventory-lists", more @ ..] => inventory::lists::run(more),
        ["clouds-sync"] => clouds::sync::run(),
        ["backups-ingest"] => backups::ingest::run(),
        ["backups-aggregate"] => backups::aggregate::run(),
        ["backups-clock"] => backups::clock::run(),
        ["analytics-tenant"] => analytics::tenant::run(),
        ["analytics-platform"] => analytics::platform::run(),
        ["analytics-metering"] => analytics::metering::run(),
        ["analytics-tickets"] => analytics::tickets::run(),
        ["search", more @ ..] => search::run(more),
        ["all"] => {
            for part in ALL {
                run(&[part])?;
                println!();
            }
            Ok(())
        }
        // The other side of `read`, which starts it as a process of its own.
        ["bare-server", bytes] => bare_server::run(bytes.parse()?),
        // The receivers of `webhooks-rate`, likewise.
        ["sink", ports] => webhooks::sink::run(ports.parse()?),
        _ => Err(USAGE.into()),
    }
}
