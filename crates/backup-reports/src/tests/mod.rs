//! What the tools really print (`tests/samples`, recorded with restic 0.14, 0.18 and 0.19 and borg 1.2 and 1.4), the rules
//! one by one, and hostile output.

mod hostile;
mod masking;
mod rules;
mod samples;

use crate::{BackupTool, JobKind, JudgedRun, ToolOutput, judge_run};

fn judge(tool: BackupTool, kind: JobKind, exit_code: i64, stdout: &str, stderr: &str) -> JudgedRun {
    judge_run(&ToolOutput { tool, kind, exit_code, stdout, stderr })
}

fn codes(run: &JudgedRun) -> Vec<&'static str> {
    run.reasons.iter().map(|reason| reason.code).collect()
}

/// What holds for every run, whatever was printed.
fn assert_is_well_formed(run: &JudgedRun) {
    assert_eq!(run.reasons.is_empty(), run.status == crate::RunStatus::Success, "{run:?}");
    assert!(run.reasons.len() <= crate::REASONS_MAX, "{run:?}");
    for reason in &run.reasons {
        assert!(crate::reason_codes().any(|code| code == reason.code), "{reason:?}");
        assert!(!reason.detail.is_empty(), "{run:?}");
        assert!(reason.detail.chars().count() <= crate::DETAIL_CHARS_MAX, "{reason:?}");
        assert!(!reason.detail.chars().any(char::is_control), "{reason:?}");
    }
}
