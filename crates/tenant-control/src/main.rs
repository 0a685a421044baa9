//! `tenant-control`: serve the API, or work on its store from the command line.

use std::process::ExitCode;

/// A request makes some dozens of small allocations; the system allocator took a seventh of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tenant_control::cli::run(std::env::args_os().collect())
}
