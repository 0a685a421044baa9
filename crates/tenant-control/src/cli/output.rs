//! The only module that prints: for people, or with `--json` for programs. And the exit code.

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use kernel::base::{Error, Result};
use serde::Serialize;

/// The exit code for wrong usage, and for commands that this store does not support.
pub const EXIT_USAGE: u8 = 2;

#[derive(Args, Clone, Copy, Debug)]
pub struct Output {
    /// Answer as JSON, for programs
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints a value as one JSON document, or as the text that `text` returns.
    pub fn print_value<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        let line = if self.json { serde_json::to_string(value).map_err(Error::internal)? } else { text(value) };
        print_line(&line);
        Ok(())
    }

    /// Prints records as one JSON document, or a text for each.
    pub fn print_list<T: Serialize>(self, records: &[T], text: impl Fn(&T) -> String) -> Result<()> {
        self.print_value(&records, |records| records.iter().map(text).collect::<Vec<_>>().join("\n"))
    }
}

/// A closed pipe is ignored: the reader chose to stop reading.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

pub fn print_warning(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// How long the final error message of the process waits for a stalled reader of stderr.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);

pub fn print_error(problem: &str) {
    let (line, (done, finished)) = (format!("error: {problem}"), mpsc::channel());
    std::thread::spawn(move || {
        print_warning(&line);
        let _ = done.send(());
    });
    let _ = finished.recv_timeout(LAST_WORD_MAX);
}
