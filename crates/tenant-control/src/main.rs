//! `tenant-control`: serve the API, or work on its store from the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    tenant_control::cli::run(std::env::args_os())
}
