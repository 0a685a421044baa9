//! What a run of the search benchmark measures, as its arguments say.

use std::path::PathBuf;

use crate::harness::{Outcome, setting};

const USAGE: &str = "usage: bench search [--documents N] [--keep FOLDER] [--connections N] [--quick] \
    [--only rebuild | queries | changes | writes]";

/// The parts of a run. Without the index, which every part but the last needs, there is nothing to ask: it is always built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Rebuild,
    Queries,
    Changes,
    Writes,
}

/// What is measured, and for how long.
pub struct Options {
    pub documents: usize,
    pub keep: Option<PathBuf>,
    pub only: Option<Part>,
    pub connections: usize,
    pub rounds: usize,
    /// Of each query to each kind of tenant in a round.
    pub requests: usize,
    pub seconds: usize,
    /// Tickets that are made in a round, and that there were before.
    pub writes: usize,
    pub rows: usize,
}

impl Options {
    pub fn read(arguments: &[&str]) -> Outcome<Self> {
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

    pub fn wants(&self, part: Part) -> bool {
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
