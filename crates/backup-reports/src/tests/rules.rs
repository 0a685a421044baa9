use super::{codes, judge};
use crate::BackupTool::{Borg, Restic};
use crate::JobKind::{Backup, Prune, RestoreTest, Verify};
use crate::RunStatus::{Failed, Success, Warning};

const SUMMARY: &str = r#"{"message_type":"summary","total_files_processed":3,"total_bytes_processed":9,"data_added":1,"snapshot_id":"9135341f"}"#;
const ARCHIVE: &str = r#"{"archive": {"id": "085ac459", "start": "2026-11-18T20:05:05.000000",
 "stats": {"original_size": 9, "deduplicated_size": 1, "nfiles": 3}}, "encryption": {"mode": "repokey"}}"#;

#[test]
fn the_exit_code_of_a_backup_decides() {
    for (tool, exit_code, stdout, status, code) in [
        (Restic, 0, SUMMARY, Success, ""),
        (Restic, 0, "", Failed, "no_snapshot"),
        (Restic, 1, SUMMARY, Failed, "exit_code"),
        (Restic, 2, SUMMARY, Failed, "exit_code"),
        (Restic, 3, SUMMARY, Warning, "incomplete"),
        (Restic, 3, "", Failed, "no_snapshot"),
        (Restic, 10, "", Failed, "repository_missing"),
        (Restic, 11, "", Failed, "repository_locked"),
        (Restic, 12, "", Failed, "wrong_password"),
        (Restic, 99, SUMMARY, Failed, "exit_code"),
        (Restic, 100, SUMMARY, Failed, "exit_code"),
        (Restic, 124, SUMMARY, Failed, "interrupted"),
        (Restic, 127, "", Failed, "program_missing"),
        (Restic, 130, SUMMARY, Failed, "interrupted"),
        (Restic, 137, SUMMARY, Failed, "interrupted"),
        (Restic, -9, SUMMARY, Failed, "interrupted"),
        (Restic, 255, SUMMARY, Failed, "exit_code"),
        (Restic, i64::MAX, SUMMARY, Failed, "exit_code"),
        (Restic, i64::MIN, SUMMARY, Failed, "interrupted"),
        (Borg, 0, ARCHIVE, Success, ""),
        (Borg, 0, "", Failed, "no_snapshot"),
        (Borg, 1, ARCHIVE, Warning, "incomplete"),
        (Borg, 1, "", Failed, "no_snapshot"),
        (Borg, 2, ARCHIVE, Failed, "exit_code"),
        (Borg, 3, ARCHIVE, Failed, "exit_code"),
        (Borg, 99, ARCHIVE, Failed, "errors_found"),
        (Borg, 100, ARCHIVE, Warning, "incomplete"),
        (Borg, 127, ARCHIVE, Warning, "incomplete"),
        (Borg, 124, "", Failed, "interrupted"),
        (Borg, 127, "", Failed, "program_missing"),
        (Borg, 128, ARCHIVE, Failed, "exit_code"),
        (Borg, 143, ARCHIVE, Failed, "interrupted"),
    ] {
        let run = judge(tool, Backup, exit_code, stdout, "");
        let first = codes(&run).first().copied().unwrap_or_default();
        assert_eq!((run.status, first), (status, code), "{tool:?} {exit_code} {stdout}");
    }
}

#[test]
fn other_kinds_need_no_snapshot() {
    for kind in [Verify, RestoreTest, Prune] {
        for (tool, exit_code, status) in [
            (Restic, 0, Success),
            (Restic, 1, Failed),
            (Restic, 3, Warning),
            (Restic, 130, Failed),
            (Borg, 0, Success),
            (Borg, 1, Warning),
            (Borg, 2, Failed),
            (Borg, 100, Warning),
            (Borg, 123, Warning),
            (Borg, 128, Failed),
        ] {
            assert_eq!(judge(tool, kind, exit_code, "", "").status, status, "{tool:?} {kind:?} {exit_code}");
        }
    }
}

#[test]
fn a_check_that_a_shell_could_not_start_did_not_succeed() {
    assert_eq!(judge(Borg, Verify, 127, "", "sh: 1: borg: not found").status, Failed);
    assert_eq!(judge(Borg, Verify, 124, "", "").status, Failed);
    let logged = r#"{"type": "log_message", "levelname": "WARNING", "message": "a new warning of borg"}"#;
    assert_eq!(judge(Borg, Verify, 124, "", logged).status, Warning);
}

#[test]
fn a_line_of_noise_is_no_error_line() {
    for line in [
        "no parent snapshot found, will read all files",
        "using parent snapshot 8bfce0c5",
        "created new cache in /root/.cache/restic",
        "found 2 old cache directories in /root/.cache/restic, run `restic cache --cleanup` to remove them",
        "repository 8887d865 opened (version 2, compression level auto)",
        "unable to open cache: unable to locate cache directory: neither $XDG_CACHE_HOME nor $HOME are defined",
        "Save(<data/3d83f338f0>) returned error, retrying after 720ms: connection reset by peer",
        "Save(<data/3d83f338f0>) operation successful after 2 retries",
        "subprocess ssh: Warning: Permanently added 'host1' to the list of known hosts.",
        "[0:03] 100.00%  3 / 3 packs",
        "\u{1b}[2K",
        "   ",
    ] {
        let run = judge(Restic, Backup, 0, SUMMARY, line);
        assert_eq!(run.status, Success, "{line}: {run:?}");
    }
    for line in [
        r#"{"type": "log_message", "levelname": "INFO", "message": "Creating archive at \"/srv/repo::a\""}"#,
        r#"{"type": "archive_progress", "nfiles": 3, "path": "error: failed to.txt"}"#,
        r#"{"type": "log_message", "levelname": "WARNING", "message": "Killed stale lock host1@1.20893-0."}"#,
        r#"{"type": "log_message", "levelname": "WARNING", "message": "Remote: Welcome to host1"}"#,
        "A data/error: failed to.txt",
        "Creating archive at \"/srv/repo::a\"",
        "Warning: Attempting to access a previously unknown unencrypted repository!",
        "Remote: Warning: Permanently added 'host1' to the list of known hosts.",
    ] {
        let run = judge(Borg, Backup, 0, ARCHIVE, line);
        assert_eq!(run.status, Success, "{line}: {run:?}");
    }
}

#[test]
fn an_error_line_is_a_warning() {
    for line in [
        "/srv/nothere does not exist, skipping",
        "error: incomplete metadata for /srv/a: get named xattr",
        "Warning: at least one source file could not be read",
        r#"{"message_type":"error","error":{"message":"open /a: permission denied"},"during":"archival","item":"/a"}"#,
        r#"{"message_type":"error","error":{},"item":"/a"}"#,
        r#"{"message_type":"error","message":"hint: run prune"}"#,
    ] {
        let run = judge(Restic, Backup, 0, SUMMARY, line);
        assert_eq!((run.status, codes(&run)), (Warning, vec!["error_lines", "tool_output"]), "{line}");
        assert!(run.snapshot_id.is_some() && run.size_bytes == Some(9), "{line}");
    }
    for line in [
        r#"{"type": "log_message", "levelname": "WARNING", "message": "/a: file changed while we backed it up"}"#,
        "/srv/nothere: [Errno 2] No such file or directory: 'nothere'",
    ] {
        assert_eq!(judge(Borg, Backup, 0, ARCHIVE, line).status, Warning, "{line}");
    }
}

#[test]
fn restic_0_9_prints_its_errors_on_stdout() {
    let error = r#"{"message_type":"error","error":{"Op":"open","Path":"/acme.json","Err":13},"during":"archival","item":"/acme.json"}"#;
    let run = judge(Restic, Backup, 0, &format!("{error}\n{SUMMARY}\n"), "");
    assert_eq!(run.status, Warning);
    assert_eq!(run.reasons[1].detail, "/acme.json: open: permission denied");
}

#[test]
fn only_the_last_summary_counts() {
    let dry = SUMMARY.replace("\"snapshot_id\"", "\"dry_run\":true,\"snapshot_id\"");
    assert_eq!(judge(Restic, Backup, 0, &format!("{SUMMARY}\n{dry}"), "").status, Failed);
    let later = SUMMARY.replace("9135341f", "a82ceda2").replace(":9,", ":7,");
    let run = judge(Restic, Backup, 0, &format!("{dry}\n{SUMMARY}\nnoise\n{later}"), "");
    assert_eq!((run.status, run.snapshot_id.as_deref(), run.size_bytes), (Success, Some("a82ceda2"), Some(7)));
    let archives = format!("before\n{ARCHIVE}\n{}\nafter", ARCHIVE.replace("085ac459", "29aa0d6b"));
    assert_eq!(judge(Borg, Backup, 0, &archives, "").snapshot_id.as_deref(), Some("29aa0d6b"));
}

#[test]
fn a_check_that_counts_errors_failed_whatever_its_exit_code() {
    let summary = r#"{"message_type":"summary","num_errors":2,"broken_packs":null}"#;
    for exit_code in [0, 1] {
        let run = judge(Restic, Verify, exit_code, summary, "");
        assert_eq!((run.status, codes(&run)), (Failed, vec!["errors_found"]));
    }
}

#[test]
fn a_failure_shows_what_led_to_it_and_how_it_ended() {
    let lines: Vec<String> = (0..100).map(|number| format!("error {number}")).collect();
    let run = judge(Restic, Backup, 1, "", &format!("{}\nFatal: wrong password or no key found", lines.join("\n")));
    assert_eq!(run.reasons.len(), 10);
    assert_eq!(run.reasons[0].code, "wrong_password");
    assert_eq!(run.reasons[1].detail, "error 0");
    assert_eq!(run.reasons[6].detail, "(93 more lines)");
    assert_eq!(run.reasons[9].detail, "Fatal: wrong password or no key found");
}

#[test]
fn no_reason_holds_a_password() {
    let stderr = "Fatal: unable to open config file: Head \"https://joe:hunter2@host1/x/config\": no such host\n\
                  Is there a repository at the following location?\nrest:https://joe:hunter2@host1/x";
    let run = judge(Restic, Backup, 1, "", stderr);
    assert_eq!(codes(&run), ["repository_unreachable", "tool_output"]);
    assert!(!format!("{run:?}").contains("hunter2"), "{run:?}");
}
