//! The text format of log lines. Access log lines are formatted here by hand: one is written for each response, and the
//! subscriber's own formatter takes five times as long for the same text.

use std::fmt::{self, Debug};

use kernel::base::WallClock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, format};
use tracing_subscriber::registry::LookupSpan;

/// The target of access log lines. They have no message and no errors, only fields.
const ACCESS: &str = "access";

/// Formats events as lines of text.
pub struct LogTextFormat(Format<Full, Utc>);

impl Default for LogTextFormat {
    fn default() -> Self {
        LogTextFormat(format().with_timer(Utc))
    }
}

impl<S, N> FormatEvent<S, N> for LogTextFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let about = event.metadata();
        let plain = about.target() == ACCESS && *about.level() == Level::INFO && !line.has_ansi_escapes();
        if !plain || context.lookup_current().is_some() {
            return self.0.format_event(context, line, event);
        }
        Utc.format_time(&mut line)?;
        line.write_str("  INFO access:")?;
        let mut fields = AccessFields { line, written: Ok(()) };
        event.record(&mut fields);
        fields.written?;
        fields.line.write_char('\n')
    }
}

/// Writes times in the same format as the API.
pub struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        write!(line, "{}", WallClock::System.now())
    }
}

struct AccessFields<'a> {
    line: Writer<'a>,
    written: fmt::Result,
}

impl AccessFields<'_> {
    /// Writes a field whose value needs no escaping.
    fn write_plain(&mut self, field: &Field, parts: &[&str]) {
        let start = [" ", field.name(), "="];
        let all = start.iter().chain(parts);
        self.written = self.written.and_then(|()| all.copied().try_for_each(|part| self.line.write_str(part)));
    }
}

impl Visit for AccessFields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.write_plain(field, &[]);
        self.written = self.written.and_then(|()| write!(self.line, "{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
        if value.bytes().all(is_plain) {
            self.write_plain(field, &["\"", value, "\""]);
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match Thousandths::from_f64(value) {
            Some(thousandths) => self.write_plain(field, &[thousandths.as_str()]),
            None => self.record_debug(field, &value),
        }
    }
}

/// A number with at most three decimals, formatted as `{:?}` does.
struct Thousandths {
    text: [u8; 16],
    start: usize,
    end: usize,
}

impl Thousandths {
    /// Below this, a number has so few digits that its decimal text is unambiguous.
    const MAX: f64 = 1e9;

    fn from_f64(value: f64) -> Option<Self> {
        let scaled = (value * 1e3).round();
        if value.is_sign_negative()
            || !(0.0..Self::MAX).contains(&scaled)
            || (scaled / 1e3).to_bits() != value.to_bits()
        {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is small and whole")]
        let mut rest = scaled as u64;
        let mut thousandths = Thousandths { text: [b'0'; 16], start: 16, end: 16 };
        // There is at least one digit before the decimal point and one after it.
        for index in 0.. {
            if index > 3 && rest == 0 {
                break;
            }
            if index == 3 {
                thousandths.push_byte(b'.');
            }
            let digit = u8::try_from(rest % 10).unwrap_or_default();
            if digit != 0 || index >= 2 || thousandths.start < thousandths.end {
                thousandths.push_byte(b'0' + digit);
            }
            rest /= 10;
        }
        Some(thousandths)
    }

    fn push_byte(&mut self, byte: u8) {
        self.start -= 1;
        self.text[self.start] = byte;
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[self.start..self.end]).unwrap_or_default()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The logged lines without their times.
    fn logged(by: impl FnOnce(Written) -> Box<dyn Subscriber + Send + Sync>, what: impl Fn()) -> Vec<String> {
        let written = Written::default();
        tracing::subscriber::with_default(by(written.clone()), what);
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let time = WallClock::System.now().to_string().len();
        text.lines().map(|line| line[time..].to_owned()).collect()
    }

    #[test]
    fn a_requests_line_is_as_the_subscriber_would_write_it() {
        let what = || {
            for path in ["/api/auth/session", "/a\"b", "/a\\b", "/ü", "/\u{1b}[31m", ""] {
                let address: std::net::IpAddr = [192, 0, 2, 1].into();
                let (who, none): (Option<&str>, Option<&str>) = (Some("key_1"), None);
                tracing::info!(target: "access", method = "GET", path, status = 200_u16, ms = 0.25, %address, who, none);
            }
            for thousandths in (0..2_000_u32).chain([12_345, 100_000, 999_999_999, u32::MAX]) {
                tracing::info!(target: "access", ms = f64::from(thousandths) / 1e3);
            }
            for ms in [1e300, -1.0, 0.0001, 0.1 + 0.2, f64::NAN, f64::INFINITY] {
                tracing::info!(target: "access", ms);
            }
            tracing::warn!(target: "access", number = 7, "another level");
            tracing::info!("another target");
        };
        let own = |to: Written| -> Box<dyn Subscriber + Send + Sync> {
            let all = tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone());
            Box::new(all.event_format(LogTextFormat::default()).finish())
        };
        let theirs = |to: Written| -> Box<dyn Subscriber + Send + Sync> {
            let all = tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone());
            Box::new(all.with_timer(Utc).finish())
        };
        let lines = logged(own, what);
        assert_eq!(lines.len(), 2_018);
        assert_eq!(lines, logged(theirs, what));
    }
}
