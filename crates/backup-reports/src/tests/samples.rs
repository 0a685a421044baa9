use std::fs;
use std::path::Path;

use super::{assert_is_well_formed, codes};
use crate::{BackupTool, JobKind, JudgedRun, RunStatus, ToolOutput, judge_run};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples");

/// Every sample with the first reason it has to have; an empty one stands for success.
const EXPECTED: &[(&str, &str)] = include!("expected.rs");

struct Sample {
    tool: BackupTool,
    kind: JobKind,
    exit_code: i64,
    stdout: String,
    stderr: String,
}

impl Sample {
    fn read(name: &str) -> Self {
        let text = fs::read_to_string(format!("{SAMPLES}/{name}.txt")).unwrap();
        let (code, streams) = text.split_once("\n--- stdout\n").unwrap();
        let (stdout, stderr) = streams.split_once("--- stderr\n").unwrap();
        let job = name.split_once('/').unwrap().1;
        Self {
            tool: if name.starts_with("restic") { BackupTool::Restic } else { BackupTool::Borg },
            kind: match job.split('-').next().unwrap() {
                "check" => JobKind::Verify,
                "restore" => JobKind::RestoreTest,
                "prune" | "forget" => JobKind::Prune,
                _ => JobKind::Backup,
            },
            exit_code: code.strip_prefix("exit ").unwrap().parse().unwrap(),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    fn judge(&self) -> JudgedRun {
        judge_run(&ToolOutput {
            tool: self.tool,
            kind: self.kind,
            exit_code: self.exit_code,
            stdout: &self.stdout,
            stderr: &self.stderr,
        })
    }
}

fn judge_sample(name: &str) -> JudgedRun {
    Sample::read(name).judge()
}

#[test]
fn every_sample_is_judged_as_expected() {
    let mut wrong = Vec::new();
    for (name, expected) in EXPECTED {
        let run = judge_sample(name);
        assert_is_well_formed(&run);
        let first = codes(&run).first().copied().unwrap_or_default();
        let judged = match run.status {
            RunStatus::Success => String::new(),
            RunStatus::Warning => format!("warning {first}"),
            RunStatus::Failed => format!("failed {first}"),
        };
        if judged != *expected {
            wrong.push(format!("(\"{name}\", \"{judged}\"), // not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_sample_is_expected_to_be_something() {
    for folder in fs::read_dir(Path::new(SAMPLES)).unwrap() {
        let folder = folder.unwrap();
        for file in fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap().file_name().into_string().unwrap();
            let name = format!("{}/{}", folder.file_name().into_string().unwrap(), file.strip_suffix(".txt").unwrap());
            assert!(EXPECTED.iter().any(|(expected, _)| *expected == name), "{name} is not in EXPECTED");
        }
    }
}

#[test]
fn figures_of_old_restic_are_read() {
    let run = judge_sample("restic-0.14/good");
    assert_eq!(run.snapshot_id.as_deref(), Some("9135341f"));
    assert_eq!((run.size_bytes, run.added_bytes, run.files), (Some(90_000), Some(91_752), Some(3)));
}

#[test]
fn figures_of_new_restic_have_the_compressed_growth() {
    let run = judge_sample("restic-0.18/good");
    assert_eq!(run.snapshot_id.unwrap().len(), 64);
    assert_eq!((run.size_bytes, run.added_bytes, run.files), (Some(90_000), Some(91_272), Some(3)));
}

#[test]
fn figures_of_borg_are_read() {
    let run = judge_sample("borg-1.2/good");
    assert!(run.snapshot_id.unwrap().starts_with("085ac459"));
    assert_eq!((run.size_bytes, run.added_bytes, run.files), (Some(90_509), Some(90_644), Some(3)));
}

#[test]
fn a_dry_run_has_no_snapshot_and_no_figures() {
    for name in ["restic-0.14/dry-run", "restic-0.19/dry-run", "borg-1.2/dry-run-list"] {
        let run = judge_sample(name);
        assert_eq!((run.snapshot_id, run.size_bytes, run.files), (None, None, None), "{name}");
    }
}

#[test]
fn a_missing_path_is_named() {
    for name in ["restic-0.14/missing-one", "restic-0.19/missing-one", "borg-1.2/missing-one", "borg-1.4/missing-one"] {
        let run = judge_sample(name);
        assert!(run.snapshot_id.is_some(), "{name}");
        assert_eq!(run.reasons.len(), 2, "{run:?}");
        assert!(run.reasons[1].detail.starts_with("/srv/nothere"), "{run:?}");
    }
}

#[test]
fn an_unreadable_file_is_named_in_the_format_of_every_version() {
    let old = judge_sample("restic-0.14/permission-denied");
    assert_eq!(old.reasons[1].detail, "/srv/perm/b: open: permission denied");
    let new = judge_sample("restic-0.18/permission-denied");
    assert_eq!(new.reasons[1].detail, "/srv/perm/b: open perm/b: permission denied");
    assert_eq!((old.reasons.len(), new.reasons.len()), (2, 2));
}

#[test]
fn a_borg_archive_of_nothing_says_so() {
    let run = judge_sample("borg-1.4/missing-alone");
    assert_eq!(codes(&run), ["incomplete", "no_files", "tool_output"]);
}

#[test]
fn the_two_streams_may_come_as_one() {
    for (name, _) in EXPECTED {
        let apart = Sample::read(name);
        let mut joined = Sample::read(name);
        joined.stdout = format!("{}{}", apart.stderr, apart.stdout);
        joined.stderr = String::new();
        let run = joined.judge();
        assert_is_well_formed(&run);
        assert_eq!((run.status, run.snapshot_id), (apart.judge().status, apart.judge().snapshot_id), "{name}");
    }
}
