//! Reads the output of borg 1.x: one JSON document on stdout, and on stderr a log, as JSON lines (`--log-json`) or plain.
//!
//! A plain line does not say how grave it is, and borg prints lists and statistics on stderr too. But borg's exit code is
//! 1 for every warning, unlike restic's. So a plain line is a problem only if it reads like one; the others are kept to
//! explain a failure.

use serde::Deserialize;

use crate::ToolOutput;
use crate::cause::cause_of_message_id;
use crate::documents::for_each_document;
use crate::lines::{LineMeaning, split_lines};
use crate::loose::{LooseField, LooseObject};
use crate::reading::{RunSummary, ToolReading, parse_snapshot_id};
use crate::text::clean_line;

pub fn read_output(output: &ToolOutput<'_>) -> ToolReading {
    let mut reading = ToolReading::default();
    for_each_document(output.stdout, |message: BorgMessage| read_message(&mut reading, &message));
    if reading.made_snapshot().is_none() {
        // Without an archive stdout is empty, or it is the log of a wrapper that joins the streams.
        reading = ToolReading::default();
        read_log(&mut reading, output.stdout);
    }
    read_log(&mut reading, output.stderr);
    reading
}

fn read_log(reading: &mut ToolReading, stream: &str) {
    for line in split_lines(stream) {
        let (plain, message) = split_message(line);
        if !plain.is_empty() {
            read_plain_line(reading, &clean_line(plain));
        }
        if let Some(message) = message {
            read_message(reading, &message);
        }
    }
}

/// A document of stdout or a line of the log: one type, because wrappers join the two streams.
#[derive(Deserialize)]
struct BorgMessage {
    #[serde(default, rename = "type")]
    message_type: LooseField,
    #[serde(default)]
    levelname: LooseField,
    #[serde(default)]
    msgid: LooseField,
    #[serde(default)]
    message: LooseField,
    #[serde(default)]
    status: LooseField,
    #[serde(default)]
    archive: LooseObject<BorgArchive>,
}

#[derive(Deserialize)]
struct BorgArchive {
    #[serde(default)]
    id: LooseField,
    #[serde(default)]
    stats: LooseObject<BorgStats>,
}

#[derive(Deserialize, Default)]
struct BorgStats {
    #[serde(default)]
    original_size: LooseField,
    #[serde(default)]
    deduplicated_size: LooseField,
    #[serde(default)]
    nfiles: LooseField,
}

/// A question without a line break can stand before a message: `Enter passphrase for key …: {"type": …`.
fn split_message(line: &str) -> (&str, Option<BorgMessage>) {
    let Some(start) = line.find("{\"") else { return (line, None) };
    let (plain, json) = line.split_at(start);
    match serde_json::from_str(json) {
        Ok(message) => (plain.trim(), Some(message)),
        Err(_) => (line, None),
    }
}

fn read_message(reading: &mut ToolReading, message: &BorgMessage) {
    if let Some(archive) = &message.archive.0 {
        reading.summary = Some(read_summary(archive));
    }
    match message.message_type.as_text() {
        Some("log_message") => read_log_message(reading, message),
        Some("file_status") if message.status.as_text() == Some("-") => note_dry_run(reading),
        _ => {}
    }
}

fn read_summary(archive: &BorgArchive) -> RunSummary {
    let no_stats = BorgStats::default();
    let stats = archive.stats.0.as_ref().unwrap_or(&no_stats);
    RunSummary {
        is_dry_run: false,
        snapshot_id: archive.id.as_text().and_then(parse_snapshot_id),
        size_bytes: stats.original_size.as_count(),
        added_bytes: stats.deduplicated_size.as_count(),
        files: stats.nfiles.as_count(),
    }
}

/// The list of a dry run marks every file with `-`. A run that made an archive was none.
fn note_dry_run(reading: &mut ToolReading) {
    reading.summary.get_or_insert_with(|| RunSummary { is_dry_run: true, ..RunSummary::default() });
}

fn read_log_message(reading: &mut ToolReading, message: &BorgMessage) {
    let line = clean_line(message.message.as_text().unwrap_or_default());
    let is_error = matches!(message.levelname.as_text(), Some("ERROR" | "CRITICAL"));
    if line.is_empty() || !(is_error || message.levelname.as_text() == Some("WARNING")) {
        return;
    }
    if is_error && let Some(cause) = message.msgid.as_text().and_then(cause_of_message_id) {
        reading.cause = Some(cause);
    }
    let meaning = if is_error { LineMeaning::Problem } else { classify_warning(&line) };
    reading.has_logged_problem |= meaning == LineMeaning::Problem;
    reading.found_errors |= is_error;
    reading.keep_line(meaning, &line);
}

/// borg warns of a lock that it removed because its owner was gone, and of all that ssh prints on stderr.
fn classify_warning(line: &str) -> LineMeaning {
    if line.starts_with("Killed stale lock") || line.starts_with("Removed stale") {
        LineMeaning::Noise
    } else if line.starts_with("Remote: ") {
        LineMeaning::Hint
    } else {
        LineMeaning::Problem
    }
}

fn read_plain_line(reading: &mut ToolReading, line: &str) {
    if line.is_empty() {
        return;
    }
    if line.starts_with("- ") {
        note_dry_run(reading);
    }
    let lower = line.to_lowercase();
    reading.found_errors |= ["data integrity error", "errors found.", "index object count mismatch"]
        .iter()
        .any(|sentence| lower.contains(sentence));
    reading.keep_line(classify_plain_line(line, &lower), line);
}

/// What borg's warnings and errors contain, in lower case.
const PROBLEMS: [&str; 18] = [
    "[errno",
    "error:",
    "data integrity error",
    "errors found.",
    "mismatch",
    "traceback (most recent call last)",
    "failed to",
    "does not exist",
    "is incorrect",
    "never matched",
    "permission denied",
    "already exists",
    "file changed while we backed it up",
    "connection refused",
    "connection closed",
    "got ctrl-c",
    "received sig",
    "can not acquire a passphrase",
];

fn classify_plain_line(line: &str, lower: &str) -> LineMeaning {
    let is_list_entry = line.as_bytes().get(1) == Some(&b' ') && !line.starts_with("E ");
    let is_question = lower.starts_with("warning: attempting to access a previously unknown")
        || lower.starts_with("warning: the repository at location")
        || lower.starts_with("do you want to continue?");
    if is_list_entry || is_question {
        LineMeaning::Noise
    } else if line.starts_with("Remote: ") || lower.contains("stale") {
        LineMeaning::Hint
    } else if lower.starts_with("e ") || PROBLEMS.iter().any(|sentence| lower.contains(sentence)) {
        LineMeaning::Problem
    } else {
        LineMeaning::Hint
    }
}
