//! The queue of log lines.
//!
//! The logging thread queues a line and continues; one thread writes. So a stalled reader, a closed pipe or a full disk
//! costs only log lines: those that do not fit or cannot be written are dropped and counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kernel::base::{Error, Result};
use tracing_subscriber::fmt::MakeWriter;

/// The size of the queue: some ten thousand lines, a second of a busy server.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The pause after a failed write, so that a broken log costs no CPU.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause after a write: under load one wake-up writes many lines, and logging threads need not notify the writer.
const LINGER: Duration = Duration::from_millis(1);

/// A handle to the writer thread. Cheap to clone.
#[derive(Clone)]
pub struct LogLines(Arc<LogQueue>);

struct LogQueue {
    state: Mutex<LogQueueState>,
    /// Notified when the queue is no longer empty.
    more: Condvar,
    /// Notified after each write.
    done: Condvar,
    dropped: AtomicU64,
    bytes_max: usize,
}

#[derive(Default)]
struct LogQueueState {
    waiting: Vec<u8>,
    /// Whether the writer thread is writing the lines it has taken.
    writing: bool,
    /// Whether the writer thread waits to be notified.
    idle: bool,
    /// Lines dropped since that was last reported.
    lost: u64,
}

impl LogLines {
    /// Starts the writer thread. It calls `report_lost` when lines were dropped and writing works again.
    pub fn spawn_writer(out: impl Write + Send + 'static, report_lost: impl Fn(u64) + Send + 'static) -> Result<Self> {
        LogLines::spawn_bounded(WAITING_BYTES_MAX, out, report_lost)
    }

    fn spawn_bounded(
        bytes_max: usize,
        out: impl Write + Send + 'static,
        report_lost: impl Fn(u64) + Send + 'static,
    ) -> Result<Self> {
        let (more, done, dropped) = (Condvar::new(), Condvar::new(), AtomicU64::new(0));
        let shared = LogQueue { state: Mutex::default(), more, done, dropped, bytes_max };
        let lines = LogLines(Arc::new(shared));
        let writer = lines.clone();
        let thread = std::thread::Builder::new().name("log-writer".to_owned());
        thread.spawn(move || writer.run_writer(out, report_lost)).map_err(Error::internal)?;
        Ok(lines)
    }

    /// How many lines have been dropped since the start.
    pub fn dropped_lines(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, at most `longest`.
    pub fn flush_within(&self, longest: Duration) {
        let until = Instant::now() + longest;
        let mut state = self.lock_state();
        while state.writing || !state.waiting.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.0.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn push_line(&self, line: &[u8]) {
        let mut state = self.lock_state();
        if state.waiting.len() + line.len() > self.0.bytes_max {
            state.lost += 1;
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.waiting.extend_from_slice(line);
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        if idle {
            self.0.more.notify_one();
        }
    }

    fn run_writer(&self, mut out: impl Write, report_lost: impl Fn(u64)) {
        let (mut batch, mut is_line_cut) = (Vec::new(), false);
        loop {
            let mut state = self.lock_state();
            while state.waiting.is_empty() {
                state.idle = true;
                state = self.0.more.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.idle = false;
            std::mem::swap(&mut batch, &mut state.waiting);
            state.writing = true;
            drop(state);

            let mut rest = batch.as_slice();
            let written = write_rest(&mut out, &mut rest, &mut is_line_cut);
            let lost = rest.split_inclusive(|byte| *byte == b'\n').count() as u64;
            self.0.dropped.fetch_add(lost, Ordering::Relaxed);
            batch.clear();

            let mut state = self.lock_state();
            state.writing = false;
            state.lost += lost;
            let lost_lines = if written { std::mem::take(&mut state.lost) } else { 0 };
            drop(state);
            self.0.done.notify_all();
            if lost_lines > 0 {
                report_lost(lost_lines);
            }
            std::thread::sleep(if written { LINGER } else { PAUSE });
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, LogQueueState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes `rest` and returns whether all of it was written; the unwritten part stays in `rest`. `is_line_cut` says
/// that the last line written has no newline.
fn write_rest(out: &mut impl Write, rest: &mut &[u8], is_line_cut: &mut bool) -> bool {
    if *is_line_cut && out.write_all(b"\n").is_err() {
        return false;
    }
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(count) if count > 0 => {
                *is_line_cut = rest[count - 1] != b'\n';
                *rest = &rest[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
    out.flush().is_ok()
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = &'a LogLines;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// The subscriber writes each line with one call.
impl Write for &LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A log whose every write is decided by the test.
    struct Gate {
        verdicts: Receiver<io::Result<usize>>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once the test has dropped its sender, every write succeeds.
            let count = self.verdicts.recv().unwrap_or(Ok(usize::MAX))?.min(bytes.len());
            self.written.send(bytes[..count].to_vec()).ok();
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log, the sender of verdicts on writes, the written bytes, and the reported numbers of dropped lines.
    type Gated = (LogLines, Sender<io::Result<usize>>, Receiver<Vec<u8>>, Receiver<u64>);

    fn gated(bytes_max: usize) -> Gated {
        let ((decide, verdicts), (written, read), (report, reported)) = (channel(), channel(), channel());
        let lines =
            LogLines::spawn_bounded(bytes_max, Gate { verdicts, written }, move |lost| report.send(lost).unwrap())
                .unwrap();
        (lines, decide, read, reported)
    }

    fn log(lines: &LogLines, line: &str) {
        let mut writer = lines.make_writer();
        writer.write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn a_reader_that_stalls_costs_lines_and_no_time() {
        let (lines, decide, read, reported) = gated(10);
        log(&lines, "first\n");
        // The writer thread has taken the first line and blocks, or is about to: the bound applies to the lines behind it.
        while !lines.lock_state().writing {
            std::thread::yield_now();
        }
        for _ in 0..1_000 {
            log(&lines, "second\n");
        }
        assert_eq!(lines.dropped_lines(), 999);
        lines.flush_within(Duration::from_millis(1));
        drop(decide);
        lines.flush_within(LONG);
        let text: Vec<u8> = read.try_iter().flatten().collect();
        assert_eq!(String::from_utf8(text).unwrap(), "first\nsecond\n");
        assert_eq!(reported.recv_timeout(LONG), Ok(999));
        assert!(reported.try_recv().is_err(), "said once");
    }

    #[test]
    fn a_log_that_fails_loses_what_it_fails_on_and_goes_on() {
        let (lines, decide, read, reported) = gated(1_000);
        decide.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        log(&lines, "lost\n");
        lines.flush_within(LONG);
        assert_eq!(lines.dropped_lines(), 1);
        // A full disk stores only the beginning of a line.
        decide.send(Ok(3)).unwrap();
        decide.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        log(&lines, "torn\n");
        lines.flush_within(LONG);
        assert_eq!((lines.dropped_lines(), reported.try_recv().is_err()), (2, true));
        drop(decide);
        log(&lines, "whole\n");
        lines.flush_within(LONG);
        let text: Vec<u8> = read.try_iter().flatten().collect();
        assert_eq!(String::from_utf8(text).unwrap(), "tor\nwhole\n");
        assert_eq!(reported.recv_timeout(LONG), Ok(2));
    }
}
