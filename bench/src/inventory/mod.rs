//! The inventory: what agents' reports cost, how quickly devices are found among a million, and how a million become a file.

pub mod agent;
mod bare;
mod data;
pub mod export;
mod file;
pub mod ingest;
pub mod lists;
mod load;
mod queries;

use std::path::PathBuf;

use crate::harness::Outcome;

const PATH: &str = "/api/rmm/reports/asset-inventory";

/// The folder of `--keep FOLDER`.
fn keep(arguments: &[&str]) -> Outcome<Option<PathBuf>> {
    match arguments {
        [] => Ok(None),
        ["--keep", folder] => Ok(Some(PathBuf::from(folder))),
        _ => Err("usage: [--keep FOLDER]".into()),
    }
}
