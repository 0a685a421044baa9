//! Structured logs on stderr, as text or JSON. Secrets never reach them: types that hold one do not print.
//!
//! Logging never blocks, fails or delays the code that logs; see `lines.rs`.

mod lines;

use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use kernel::base::{Error, Result, WallClock};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::lines::LogLines;
use crate::config::LogFormat;

/// How long the process waits at its end for the last lines to be written.
const FLUSH_MAX: Duration = Duration::from_secs(1);

static LINES: OnceLock<LogLines> = OnceLock::new();

pub fn start_logging(format: LogFormat, level: &str) -> Result<()> {
    let filter = parse_filter(level).map_err(|error| Error::internal(format!("--log-level {level:?}: {error}")))?;
    let report_lost = |lines| tracing::warn!(lines, "log lines dropped");
    let lines = LogLines::spawn_writer(std::io::stderr(), report_lost)?;
    let writer = LINES.get_or_init(|| lines).clone();
    // The maximum level lets `tracing` skip disabled events with one comparison.
    let most = filter.iter().map(|(_, level)| level).chain(filter.default_level()).max().unwrap_or(LevelFilter::OFF);
    let subscriber = tracing_subscriber::fmt().with_max_level(most).with_writer(writer).with_timer(Utc);
    // The subscriber would report its errors to stderr, which is what has failed, and panic if it cannot.
    let subscriber = subscriber.log_internal_errors(false);
    let started = match format {
        LogFormat::Text => subscriber.with_ansi(std::io::stderr().is_terminal()).finish().with(filter).try_init(),
        LogFormat::Json => {
            let json = subscriber.json().flatten_event(true).with_current_span(false).with_span_list(false);
            json.finish().with(filter).try_init()
        }
    };
    started.map_err(|error| Error::internal(error.to_string()))?;
    // The default hook writes to stderr itself, and would block on a stalled reader.
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string);
        tracing::error!(at, "panic: {}", panic.payload_as_str().unwrap_or("without a message"));
    }));
    Ok(())
}

/// Writes times in the same format as the API.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        write!(line, "{}", WallClock::System.now())
    }
}

/// Parses levels for everything or for parts of the service: `warn,kernel::outbound=debug`.
fn parse_filter(levels: &str) -> Result<Targets, Box<dyn std::error::Error>> {
    let mut filter = Targets::new();
    for word in levels.split(',') {
        let (part, level) = word.split_once('=').map_or((None, word), |(part, level)| (Some(part.trim()), level));
        // `LevelFilter` would parse an empty level as `error`.
        let level =
            Some(level.trim()).filter(|level| !level.is_empty()).ok_or("a level is missing")?.parse::<LevelFilter>()?;
        filter = match part {
            Some("") => return Err("a name is missing before =".into()),
            Some(part) => filter.with_target(part, level),
            None => filter.with_default(level),
        };
    }
    Ok(filter)
}

/// Waits up to [`FLUSH_MAX`] for the last lines to be written.
pub fn flush_log() {
    if let Some(lines) = LINES.get() {
        lines.flush_within(FLUSH_MAX);
    }
}

/// How many lines have been dropped since the start.
pub fn dropped_lines() -> u64 {
    LINES.get().map_or(0, LogLines::dropped_lines)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_value_cannot_forge_a_line_or_reach_the_terminal() {
        let (mut read, write) = std::io::pipe().unwrap();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_timer(Utc).with_writer(Arc::new(write));
        tracing::subscriber::with_default(subscriber.finish(), || {
            for path in
                ["/\u{1b}[31m", "/a\n2026-01-01T00:00:00.000Z  INFO access: forged", "/a\"b\r", "/\u{7f}\u{9b}2J"]
            {
                tracing::info!(target: "access", method = "GET", path, status = 200_u16, ms = 0.25);
            }
        });
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().all(|line| line.contains("Z  INFO access: method=\"GET\" path=\"/")), "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
