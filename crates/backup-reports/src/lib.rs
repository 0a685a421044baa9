//! Judges what restic and borg print: whether a run of a job succeeded, why not, and its figures.
//!
//! Pure functions over text: no clock, no store, no network. The exit code comes first; the output can only make a run
//! worse, never better. What another tool says of itself is left to its sender: it has no output that could be judged.
//!
//! Output is hostile: every line is parsed at most once into types without nesting, the lines that are kept are few and
//! short, and no text leaves this crate before its credentials are masked.

mod borg;
mod cause;
mod documents;
mod lines;
mod loose;
mod reading;
mod restic;
mod text;
mod verdict;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

/// The code of a verification that found what is stored to be damaged.
pub const ERRORS_FOUND: &str = "errors_found";

pub use text::{DETAIL_CHARS_MAX, clean_line};
pub use verdict::REASONS_MAX;

/// The tools whose output is judged here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupTool {
    Restic,
    Borg,
}

impl BackupTool {
    pub fn name(self) -> &'static str {
        match self {
            Self::Restic => "restic",
            Self::Borg => "borg",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    Backup,
    Verify,
    RestoreTest,
    Prune,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    Success,
    Warning,
    Failed,
}

/// One run of a tool, as it was reported.
#[derive(Debug, Clone, Copy)]
pub struct ToolOutput<'a> {
    pub tool: BackupTool,
    pub kind: JobKind,
    /// As a shell or a runtime reports it: a signal n is 128 + n or -n.
    pub exit_code: i64,
    pub stdout: &'a str,
    pub stderr: &'a str,
}

/// Why a run is not a success. The codes are stable; `reason_codes` lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReason {
    pub code: &'static str,
    /// One line without control characters and credentials, at most `DETAIL_CHARS_MAX` characters.
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedRun {
    pub status: RunStatus,
    /// Empty for a success, else the cause first and then what the tool printed; at most `REASONS_MAX`.
    pub reasons: Vec<RunReason>,
    /// The snapshot of restic or the archive of borg that a backup made; none for a dry run.
    pub snapshot_id: Option<String>,
    /// All that the snapshot protects, before compression and deduplication.
    pub size_bytes: Option<i64>,
    /// What the repository has grown by.
    pub added_bytes: Option<i64>,
    pub files: Option<i64>,
}

/// Judges one run. Blocking: it uses processor time in proportion to the output.
pub fn judge_run(output: &ToolOutput<'_>) -> JudgedRun {
    let reading = match output.tool {
        BackupTool::Restic => restic::read_output(output),
        BackupTool::Borg => borg::read_output(output),
    };
    verdict::judge_reading(output, reading)
}

/// Every code that a reason can have: of the cause of a failure, and of a run that is not a clean success.
pub fn reason_codes() -> impl Iterator<Item = &'static str> {
    cause::FailureCause::ALL.iter().map(|cause| cause.code()).chain(verdict::CODES.iter().copied())
}
