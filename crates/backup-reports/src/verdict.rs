//! The rules: from the exit code and what was read to a status and its reasons.
//!
//! Exit code 0 is good, restic's 3 and borg's 1 and 100 to 127 are incomplete, every other one is a failure. A backup needs
//! a snapshot besides; problems that were printed make a good run a warning.

use crate::cause::{FailureCause, cause_of_exit_code, cause_of_line, is_signal};
use crate::reading::{RunSummary, ToolReading};
use crate::text::clean_detail;
use crate::{BackupTool, JobKind, JudgedRun, RunReason, RunStatus, ToolOutput, restic};

/// One for the cause, and the lines that `KeptLines` keeps with the one for those left out.
pub const REASONS_MAX: usize = 10;

/// The codes of this module; those of failures are in `cause`.
pub const CODES: [&str; 7] =
    ["error_lines", "incomplete", "no_files", "no_snapshot", "dry_run", "exit_code", "tool_output"];

pub fn judge_reading(output: &ToolOutput<'_>, reading: ToolReading) -> JudgedRun {
    let (status, causes) = judge_status(output, &reading);
    let snapshot_id = reading.made_snapshot().map(str::to_owned);
    let figures = match (output.kind, reading.summary) {
        (JobKind::Backup, Some(summary)) if !summary.is_dry_run => summary,
        _ => RunSummary::default(),
    };
    let mut shown = reading.problems.into_shown();
    if shown.is_empty() && status == RunStatus::Failed {
        shown = reading.hints.into_shown();
    }
    JudgedRun {
        status,
        reasons: if status == RunStatus::Success { Vec::new() } else { list_reasons(causes, shown) },
        snapshot_id: snapshot_id.filter(|_| output.kind == JobKind::Backup),
        size_bytes: figures.size_bytes,
        added_bytes: figures.added_bytes,
        files: figures.files,
    }
}

fn list_reasons(causes: Vec<RunReason>, shown: Vec<String>) -> Vec<RunReason> {
    let lines = shown.into_iter().map(|detail| RunReason { code: "tool_output", detail });
    causes.into_iter().chain(lines).take(REASONS_MAX).collect()
}

fn judge_status(output: &ToolOutput<'_>, reading: &ToolReading) -> (RunStatus, Vec<RunReason>) {
    let is_incomplete = is_incomplete_exit(output, reading);
    if output.exit_code != 0 && !is_incomplete {
        return (RunStatus::Failed, vec![explain_failure(output, reading)]);
    }
    if output.kind == JobKind::Backup {
        if reading.summary.as_ref().is_some_and(|summary| summary.is_dry_run) {
            return (RunStatus::Failed, vec![dry_run_reason()]);
        }
        if reading.made_snapshot().is_none() {
            return (RunStatus::Failed, vec![no_snapshot_reason(output)]);
        }
    }
    if output.kind == JobKind::Verify && has_damage(output, reading) {
        return (RunStatus::Failed, vec![cause_reason(output, FailureCause::ErrorsFound)]);
    }
    if is_incomplete {
        return (RunStatus::Warning, incomplete_reasons(output, reading));
    }
    if reading.problems.is_empty() {
        return (RunStatus::Success, Vec::new());
    }
    (RunStatus::Warning, vec![error_lines_reason(output, reading)])
}

/// Whether the exit code says that the run was done but not all of it.
///
/// 124 to 127 are of `timeout` and shells as well, and borg uses none of them yet. They are borg's only if borg shows that
/// it ran: by its archive, or by a logged problem. Otherwise a check that never began would pass for one that was made.
fn is_incomplete_exit(output: &ToolOutput<'_>, reading: &ToolReading) -> bool {
    match (output.tool, output.exit_code) {
        (BackupTool::Restic, restic::EXIT_INCOMPLETE) | (BackupTool::Borg, 1 | 100..=123) => true,
        (BackupTool::Borg, 124..=127) => reading.made_snapshot().is_some() || reading.has_logged_problem,
        _ => false,
    }
}

/// `borg check` exits with 1 for a damaged repository, as for any warning: only its log tells the two apart.
fn has_damage(output: &ToolOutput<'_>, reading: &ToolReading) -> bool {
    match output.tool {
        BackupTool::Restic => reading.found_errors,
        BackupTool::Borg => reading.found_errors && output.exit_code != 0,
    }
}

fn explain_failure(output: &ToolOutput<'_>, reading: &ToolReading) -> RunReason {
    let is_damaged_check = output.kind == JobKind::Verify && output.tool == BackupTool::Restic && reading.found_errors;
    match find_cause(output.tool, output.exit_code, reading) {
        Some(cause) => cause_reason(output, cause),
        None if is_damaged_check => cause_reason(output, FailureCause::ErrorsFound),
        None => RunReason {
            code: "exit_code",
            detail: format!(
                "{} ended with exit code {}. Run the job by hand on the device to see why.",
                output.tool.name(),
                output.exit_code
            ),
        },
    }
}

/// The cause of a failed run: what the tool said in a field, then its exit code, then its sentences.
fn find_cause(tool: BackupTool, exit_code: i64, reading: &ToolReading) -> Option<FailureCause> {
    if is_signal(exit_code) {
        return Some(FailureCause::Interrupted);
    }
    reading
        .cause
        .or_else(|| cause_of_exit_code(tool, exit_code))
        .or_else(|| reading.problems.newest_first().find_map(cause_of_line))
        .or_else(|| reading.hints.newest_first().find_map(cause_of_line))
}

fn cause_reason(output: &ToolOutput<'_>, cause: FailureCause) -> RunReason {
    RunReason { code: cause.code(), detail: cause.advice(output.tool).to_owned() }
}

fn dry_run_reason() -> RunReason {
    let detail = "This was a dry run: nothing was backed up. Remove --dry-run from the job.";
    RunReason { code: "dry_run", detail: detail.to_owned() }
}

fn no_snapshot_reason(output: &ToolOutput<'_>) -> RunReason {
    let detail = match output.tool {
        BackupTool::Restic => {
            "The output names no new snapshot. Run `restic backup` with --json and without --skip-if-unchanged, and send \
             all of its output."
        }
        BackupTool::Borg => {
            "The output names no new archive. Run `borg create` with --json and without --dry-run, and send all of its \
             output."
        }
    };
    RunReason { code: "no_snapshot", detail: detail.to_owned() }
}

fn incomplete_reasons(output: &ToolOutput<'_>, reading: &ToolReading) -> Vec<RunReason> {
    let advice = match output.kind {
        JobKind::Backup => "Some of the data could not be read. Correct the paths and rights, or exclude the files.",
        JobKind::Verify | JobKind::RestoreTest | JobKind::Prune => "The run ended with warnings. Check what they say.",
    };
    let detail = format!("{} ended with exit code {}. {advice}", output.tool.name(), output.exit_code);
    let mut reasons = vec![RunReason { code: "incomplete", detail }];
    let has_no_files = reading.summary.as_ref().is_some_and(|summary| summary.files == Some(0));
    if output.kind == JobKind::Backup && has_no_files {
        let detail = "The snapshot has no files: it protects nothing. Check the source paths.".to_owned();
        reasons.push(RunReason { code: "no_files", detail });
    }
    reasons
}

fn error_lines_reason(output: &ToolOutput<'_>, reading: &ToolReading) -> RunReason {
    let count = reading.problems.count;
    let lines = if count == 1 { "line says" } else { "lines say" };
    let detail = format!(
        "{} ended with exit code 0, but {count} {lines} that something is wrong. Correct that, or exclude the files.",
        output.tool.name()
    );
    RunReason { code: "error_lines", detail: clean_detail(&detail) }
}
