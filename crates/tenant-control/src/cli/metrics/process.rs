//! Series about this process, under the names that Prometheus' own clients use. They are read from `/proc`, in few lines: the
//! crate for it, metrics-process, needs procfs and counts only whole seconds of processor time.

use std::fmt::{Display, Write};
use std::fs;

/// The unit of times in `/proc/self/stat`, the same on all Linux architectures that we build for.
const TICKS_PER_SECOND: u64 = 100;

/// The series as Prometheus reads them. What the system does not tell is left out.
pub fn render_process() -> String {
    let mut text = String::new();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(ticks) = parse_cpu_ticks(&stat) {
        let seconds = format_ticks(0, ticks);
        push_series(&mut text, "process_cpu_seconds_total", "counter", "User and system time spent.", seconds);
    }
    if let (Some(boot), Some(ticks)) = (read_value("/proc/stat", "btime"), parse_start_ticks(&stat)) {
        let seconds = format_ticks(boot, ticks);
        push_series(&mut text, "process_start_time_seconds", "gauge", "Start of the process, in Unix time.", seconds);
    }
    if let Some(kib) = read_value("/proc/self/status", "VmRSS:") {
        push_series(&mut text, "process_resident_memory_bytes", "gauge", "Resident memory.", kib * 1024);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // One of them is the folder that is read.
        let open = files.count().saturating_sub(1);
        push_series(&mut text, "process_open_fds", "gauge", "Open file descriptors.", open);
    }
    if let Some(max) = read_value("/proc/self/limits", "Max open files") {
        push_series(&mut text, "process_max_fds", "gauge", "The most file descriptors that may be open.", max);
    }
    text
}

fn push_series(text: &mut String, name: &str, kind: &str, help: &str, value: impl Display) {
    // Writing into a `String` does not fail.
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
}

fn format_ticks(seconds: u64, ticks: u64) -> String {
    let hundredths = ticks % TICKS_PER_SECOND * 100 / TICKS_PER_SECOND;
    format!("{}.{hundredths:02}", seconds + ticks / TICKS_PER_SECOND)
}

fn read_value(file: &str, name: &str) -> Option<u64> {
    parse_value(&fs::read_to_string(file).ok()?, name)
}

/// The number after a name at the start of a line.
fn parse_value(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A field of `/proc/self/stat`, by its number in proc(5). The second is the name of the program, which may hold spaces.
fn parse_field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    Some(parse_field(stat, 14)? + parse_field(stat, 15)?)
}

fn parse_start_ticks(stat: &str) -> Option<u64> {
    parse_field(stat, 22)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_read() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 9 0 1 0 250 33 0 0 20 0 5 0 123456 99 88 18446744073709551615";
        assert_eq!((parse_cpu_ticks(stat), parse_start_ticks(stat)), (Some(283), Some(123_456)));
        assert_eq!((format_ticks(0, 283), format_ticks(1_000, 123_406)), ("2.83".to_owned(), "2234.06".to_owned()));
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288  files\n";
        assert_eq!(parse_value(limits, "Max open files"), Some(1024));
        assert_eq!(parse_value("Name:\tx\nVmRSS:\t   1234 kB\n", "VmRSS:"), Some(1234));
        assert_eq!((parse_value("", "btime"), parse_cpu_ticks("")), (None, None));
    }
}
