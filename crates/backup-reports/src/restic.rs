//! Reads the output of restic, 0.9 to 0.19: lines of JSON on stdout, and on stderr JSON lines (newer ones) among plain
//! ones (all of them, in any version).
//!
//! In a good run restic prints next to nothing on stderr. So a plain line there is a problem unless it is known to be
//! none: restic 0.14 to 0.18 say with nothing but such a line that a source path was missing, and exit with 0.

use serde::Deserialize;

use crate::ToolOutput;
use crate::cause::{cause_of_exit_code, cause_of_line};
use crate::lines::{LineMeaning, split_lines};
use crate::loose::{LooseField, LooseObject};
use crate::reading::{RunSummary, ToolReading, parse_snapshot_id};
use crate::text::clean_line;

/// The code of restic for "some source data could not be read".
pub const EXIT_INCOMPLETE: i64 = 3;

const INCOMPLETE_LINE: &str = "Warning: at least one source file could not be read";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

pub fn read_output(output: &ToolOutput<'_>) -> ToolReading {
    let mut reading = ToolReading::default();
    for (stream, text) in [(Stream::Stdout, output.stdout), (Stream::Stderr, output.stderr)] {
        let mut is_address_next = false;
        for line in split_lines(text) {
            if let Some(message) = parse_message(line) {
                read_message(&mut reading, output, &message);
                continue;
            }
            let line = clean_line(line);
            if !std::mem::take(&mut is_address_next) {
                read_plain_line(&mut reading, output, stream, &line);
            }
            is_address_next = line.ends_with("repository at the following location?");
        }
    }
    reading
}

#[derive(Deserialize)]
struct ResticMessage {
    message_type: LooseField,
    #[serde(default)]
    code: LooseField,
    #[serde(default)]
    message: LooseField,
    #[serde(default)]
    item: LooseField,
    #[serde(default)]
    error: LooseObject<ResticError>,
    #[serde(default)]
    dry_run: LooseField,
    #[serde(default)]
    snapshot_id: LooseField,
    #[serde(default)]
    total_files_processed: LooseField,
    #[serde(default)]
    total_bytes_processed: LooseField,
    #[serde(default)]
    data_added: LooseField,
    #[serde(default)]
    data_added_packed: LooseField,
    #[serde(default)]
    num_errors: LooseField,
}

/// Up to 0.16 an error of the operating system as Go names its fields, later a sentence.
#[derive(Deserialize)]
struct ResticError {
    #[serde(default)]
    message: LooseField,
    #[serde(default, rename = "Op")]
    operation: LooseField,
    #[serde(default, rename = "Err")]
    number: LooseField,
}

fn parse_message(line: &str) -> Option<ResticMessage> {
    if !line.starts_with('{') {
        return None;
    }
    serde_json::from_str(line).ok()
}

fn read_message(reading: &mut ToolReading, output: &ToolOutput<'_>, message: &ResticMessage) {
    match message.message_type.as_text() {
        Some("summary") => {
            reading.found_errors |= message.num_errors.as_integer().is_some_and(|count| count != 0);
            reading.summary = Some(read_summary(message));
        }
        Some("error") => {
            reading.has_logged_problem = true;
            let line = clean_line(&describe_error(message));
            if !line.is_empty() {
                reading.keep_line(LineMeaning::Problem, &line);
            }
        }
        Some("exit_error") => read_exit_error(reading, output, message),
        _ => {}
    }
}

fn read_summary(message: &ResticMessage) -> RunSummary {
    RunSummary {
        is_dry_run: message.dry_run.is_true(),
        snapshot_id: message.snapshot_id.as_text().and_then(parse_snapshot_id),
        size_bytes: message.total_bytes_processed.as_count(),
        added_bytes: message.data_added_packed.as_count().or_else(|| message.data_added.as_count()),
        files: message.total_files_processed.as_count(),
    }
}

/// The last message of a run that fails: its sentence may have several lines.
fn read_exit_error(reading: &mut ToolReading, output: &ToolOutput<'_>, message: &ResticMessage) {
    reading.has_logged_problem = true;
    let line = clean_line(message.message.as_text().unwrap_or_default());
    let code_cause = message.code.as_integer().and_then(|code| cause_of_exit_code(output.tool, code));
    if let Some(cause) = code_cause.or_else(|| cause_of_line(&line)) {
        reading.cause = Some(cause);
    }
    let is_repetition = output.exit_code == EXIT_INCOMPLETE && line == INCOMPLETE_LINE;
    if !line.is_empty() && !is_repetition {
        reading.keep_line(LineMeaning::Problem, &line);
    }
}

fn describe_error(message: &ResticMessage) -> String {
    let item = message.item.as_text().unwrap_or_default();
    let sentence = match &message.error.0 {
        Some(error) => error.message.as_text().map_or_else(|| describe_system_error(error), str::to_owned),
        None => message.message.as_text().unwrap_or_default().to_owned(),
    };
    match (item, sentence.as_str()) {
        ("", "") => "restic reported an error without a message".to_owned(),
        ("", _) => sentence,
        (_, "") => item.to_owned(),
        _ if sentence.contains(item) => sentence,
        _ => format!("{item}: {sentence}"),
    }
}

fn describe_system_error(error: &ResticError) -> String {
    let operation = error.operation.as_text().unwrap_or("access");
    match error.number.as_integer() {
        Some(1 | 13) => format!("{operation}: permission denied"),
        Some(2) => format!("{operation}: no such file or directory"),
        Some(5) => format!("{operation}: input/output error"),
        Some(16) => format!("{operation}: device or resource busy"),
        Some(number) => format!("{operation}: error {number} of the operating system"),
        None => format!("{operation} failed"),
    }
}

/// Lines that restic and the programs it starts print in runs without a fault, in lower case.
const NOISE: [&str; 26] = [
    "[",
    "no parent snapshot found",
    "using parent snapshot",
    "created new cache in",
    "created restic repository",
    "found ",
    "open repository",
    "lock repository",
    "create exclusive lock",
    "load index",
    "loading indexes",
    "loading all snapshots",
    "start scan on",
    "start backup on",
    "scan finished in",
    "using temporary cache in",
    "repo already locked, waiting up to",
    "reading repository password from",
    "enter password for repository",
    "creating vss snapshot for",
    "successfully ",
    "restoring ",
    "summary: restored",
    "no errors were found",
    "check all packs",
    "check snapshots",
];

/// What explains a failure and is none by itself. Programs that restic starts greet on stderr.
const HINTS: [&str; 8] = [
    "unable to open cache:",
    "subprocess ",
    "rclone: ",
    "lock was created at",
    "storage id ",
    "the `unlock` command",
    "is there a repository at",
    "signal ",
];

fn read_plain_line(reading: &mut ToolReading, output: &ToolOutput<'_>, stream: Stream, line: &str) {
    if stream == Stream::Stdout {
        read_plain_stdout(reading, line);
    } else if !line.is_empty() {
        reading.keep_line(classify_line(output, line), line);
    }
}

/// What a wrapper that joins the two streams brings to stdout, where any other plain line is progress.
const PROBLEM_STARTS: [&str; 4] = ["Fatal: ", "error: ", "Warning: ", "unable to create lock"];

const MISSING_PATH_END: &str = " does not exist, skipping";

/// stdout without `--json` is progress and statistics, and at its end the snapshot. It has no figures that are exact.
fn read_plain_stdout(reading: &mut ToolReading, line: &str) {
    let id = line.strip_prefix("snapshot ").and_then(|rest| rest.strip_suffix(" saved")).and_then(parse_snapshot_id);
    if id.is_some() {
        reading.summary = Some(RunSummary { snapshot_id: id, ..RunSummary::default() });
    } else if line.starts_with("Would add to the repo") {
        reading.summary = Some(RunSummary { is_dry_run: true, ..RunSummary::default() });
    } else if PROBLEM_STARTS.iter().any(|start| line.starts_with(start)) || line.ends_with(MISSING_PATH_END) {
        reading.keep_line(LineMeaning::Problem, line);
    }
}

fn classify_line(output: &ToolOutput<'_>, line: &str) -> LineMeaning {
    if line.starts_with('{') && line.contains("\"message_type\":\"status\"") {
        return LineMeaning::Noise;
    }
    if output.exit_code == EXIT_INCOMPLETE && line == INCOMPLETE_LINE {
        return LineMeaning::Noise;
    }
    let lower = line.to_lowercase();
    if lower.contains("returned error, retrying after") || HINTS.iter().any(|start| lower.starts_with(start)) {
        return LineMeaning::Hint;
    }
    let is_bad = ["fail", "error", "unable", "damaged", "missing"].iter().any(|word| lower.contains(word))
        && !lower.starts_with("no errors");
    let is_opened = lower.starts_with("repository ") && lower.contains(" opened");
    if is_opened
        || lower.contains("operation successful after")
        || (!is_bad && NOISE.iter().any(|start| lower.starts_with(start)))
    {
        return LineMeaning::Noise;
    }
    LineMeaning::Problem
}
