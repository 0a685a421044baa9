//! What was read from the output of a run, before it is judged.

use crate::cause::FailureCause;
use crate::lines::{KeptLines, LineMeaning};

#[derive(Debug, Default)]
pub struct ToolReading {
    /// What the last summary says. A run may print several, and only the last one is what it ended with.
    pub summary: Option<RunSummary>,
    pub problems: KeptLines,
    pub hints: KeptLines,
    /// Said by the tool in a field and not in a sentence. The last one is why it gave up.
    pub cause: Option<FailureCause>,
    /// The tool found errors in the repository that it was to check.
    pub found_errors: bool,
    /// A log message in JSON said that something is wrong: it comes from the tool and not from a shell around it.
    pub has_logged_problem: bool,
}

#[derive(Debug, Default)]
pub struct RunSummary {
    pub is_dry_run: bool,
    pub snapshot_id: Option<String>,
    pub size_bytes: Option<i64>,
    pub added_bytes: Option<i64>,
    pub files: Option<i64>,
}

impl ToolReading {
    /// Keeps a line that was cleaned.
    pub fn keep_line(&mut self, meaning: LineMeaning, line: &str) {
        match meaning {
            LineMeaning::Noise => {}
            LineMeaning::Hint => self.hints.push(line),
            LineMeaning::Problem => self.problems.push(line),
        }
    }

    /// The snapshot of a backup that was made: a dry run names one that does not exist.
    pub fn made_snapshot(&self) -> Option<&str> {
        self.summary.as_ref().filter(|summary| !summary.is_dry_run)?.snapshot_id.as_deref()
    }
}

/// Ids of restic and borg are hexadecimal. Anything else of a plain form is taken too, and nothing that is not.
pub fn parse_snapshot_id(text: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    (!text.is_empty() && text.len() <= 128 && text.bytes().all(is_plain)).then(|| text.to_owned())
}
