//! Structured logs on stderr, as text or JSON. Secrets never reach them: types that hold one do not print.

use std::io::IsTerminal;

use kernel::base::{Clock, Error, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::config::LogFormat;

pub fn start(format: LogFormat, level: &str) -> Result<()> {
    // The driver logs the arguments of statements when asked for more, and hashes of secrets are among them.
    let filter = EnvFilter::try_new(format!("{level},tokio_postgres=info"))
        .map_err(|error| Error::internal(format!("--log-level {level:?}: {error}")))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_timer(Utc);
    let started = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
    started.map_err(|error| Error::internal(error.to_string()))
}

/// The same form of time as in answers.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        write!(line, "{}", Clock::System.now())
    }
}
