//! Search, measured from outside: how long the index of a million records takes to build, how quickly it answers, alone,
//! against SQL on the same store and beside changes, and what its feed costs those who write.
//!
//! Deliberately left out: PostgreSQL, whose nodes have the same index, and how good the answers are, which tests look at.

mod changes;
mod data;
mod latency;
mod load;
mod queries;
mod rebuild;
mod sql;
mod writes;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::server::Server;
use crate::{Outcome, folder, setting};

use load::{Loaded, Plan};

const PATH: &str = "/api/search";
/// A budget that no load here can use up; those of the other policies are lifted already.
const NO_LIMIT: [&str; 2] = ["--rate-limit", "search=1000000000000"];
const USAGE: &str = "usage: bench search [--documents N] [--keep FOLDER] [--connections N] [--quick] \
    [--only rebuild | queries | changes | writes]";

/// The parts of a run. Without the index, which every part but the last needs, there is nothing to ask: it is always built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Rebuild,
    Queries,
    Changes,
    Writes,
}

/// What is measured, and for how long.
struct Options {
    documents: usize,
    keep: Option<PathBuf>,
    only: Option<Part>,
    connections: usize,
    rounds: usize,
    /// Of each query to each kind of tenant in a round.
    requests: usize,
    seconds: usize,
    /// Tickets that are made in a round, and that there were before.
    writes: usize,
    rows: usize,
}

impl Options {
    fn read(arguments: &[&str]) -> Outcome<Self> {
        let is_quick = arguments.contains(&"--quick");
        let or = |all: usize, few: usize| if is_quick { few } else { all };
        let mut options = Options {
            documents: or(1_000_000, 20_000),
            keep: None,
            only: None,
            connections: 2,
            rounds: setting("BENCH_ROUNDS", or(5, 1))?,
            requests: setting("BENCH_REQUESTS", or(400, 40))?,
            seconds: setting("BENCH_SECONDS", or(20, 3))?,
            writes: setting("BENCH_WRITES", or(20_000, 2_000))?,
            rows: setting("BENCH_ROWS", or(100_000, 5_000))?,
        };
        let mut rest = arguments;
        while !rest.is_empty() {
            rest = match rest {
                ["--quick", more @ ..] => more,
                ["--documents", count, more @ ..] => {
                    options.documents = number(count)?;
                    more
                }
                ["--connections", count, more @ ..] => {
                    options.connections = number(count)?.max(1);
                    more
                }
                ["--keep", folder, more @ ..] => {
                    options.keep = Some(PathBuf::from(folder));
                    more
                }
                ["--only", part, more @ ..] => {
                    options.only = Some(named(part)?);
                    more
                }
                _ => return Err(USAGE.into()),
            };
        }
        Ok(options)
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

fn number(text: &str) -> Outcome<usize> {
    text.replace('_', "").parse().map_err(|_| USAGE.into())
}

fn named(part: &str) -> Outcome<Part> {
    match part {
        "rebuild" => Ok(Part::Rebuild),
        "queries" => Ok(Part::Queries),
        "changes" => Ok(Part::Changes),
        "writes" => Ok(Part::Writes),
        _ => Err(USAGE.into()),
    }
}

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

/// The release binary, which may be searched without a limit.
fn start(folder: &Path) -> Outcome<Server> {
    Server::start_with(folder, &NO_LIMIT)
}

/// A search as it is sent over a connection that is kept.
fn request(key: &str, q: &str) -> String {
    format!("GET {} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n", path(q))
}

fn path(q: &str) -> String {
    let mut path = format!("{PATH}?q=");
    for byte in q.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

/// Counts here are far below where this ends.
fn small(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}
