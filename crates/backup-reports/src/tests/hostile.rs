use std::fmt::Write as _;

use super::{assert_is_well_formed, codes, judge};
use crate::{BackupTool, JobKind, RunStatus, ToolOutput, judge_run};

/// Every tool and kind, with the text as each of the streams. Returns nothing: it must not panic, and end soon.
fn judge_everywhere(text: &str) {
    for tool in [BackupTool::Restic, BackupTool::Borg] {
        for kind in [JobKind::Backup, JobKind::Verify, JobKind::RestoreTest, JobKind::Prune] {
            for (stdout, stderr) in [(text, ""), ("", text)] {
                for exit_code in [0, 1, 3] {
                    let output = ToolOutput { tool, kind, exit_code, stdout, stderr };
                    assert_is_well_formed(&judge_run(&output));
                }
            }
        }
    }
}

struct Random(u64);

impl Random {
    /// xorshift64: the same bytes in every run.
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}

#[test]
fn random_bytes_are_judged() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..random.next(400)).map(|_| u8::try_from(random.next(256)).unwrap()).collect();
        judge_everywhere(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn random_pieces_of_real_output_are_judged() {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        "\n",
        "\r",
        " ",
        "://",
        "joe:hunter2@",
        "password=",
        "é",
        "\u{1b}[",
        "\u{0}",
        "\"message_type\":\"summary\"",
        "\"message_type\":\"error\"",
        "\"error\":",
        "\"snapshot_id\":",
        "\"9135341f\"",
        "\"type\":\"log_message\"",
        "\"levelname\":\"WARNING\"",
        "\"archive\":",
        "\"stats\":",
        "null",
        "true",
        "1e999",
        "-1",
        "18446744073709551616",
        "\"start\":\"2026-11-18T20:05:05\"",
        "Fatal: ",
        "snapshot ",
        " saved",
        "- ",
        "E ",
        "Remote: ",
        "Is there a repository at the following location?",
        "\\ud800",
        "\\n",
    ];
    let mut random = Random(42);
    for _ in 0..500 {
        let text: String = (0..random.next(30)).map(|_| PIECES[random.next(PIECES.len())]).collect();
        judge_everywhere(&text);
    }
}

#[test]
fn large_output_is_judged_in_one_pass() {
    const BYTES: usize = 1 << 16;
    for piece in [
        "{",
        "[",
        "{\"a\":",
        "{\n",
        "{\"a\":[\n",
        "{}\n",
        "x\n",
        " {",
        "\n",
        "https://a:",
        "token=x ",
        "\u{1b}[",
        "=",
        "{\"",
        "{\"archive\":{\"stats\":{\n",
        "/srv/a does not exist, skipping\n",
        "é",
    ] {
        let text = piece.repeat(BYTES / piece.len());
        for tool in [BackupTool::Restic, BackupTool::Borg] {
            assert_is_well_formed(&judge(tool, JobKind::Backup, 1, &text, &text));
        }
    }
}

#[test]
fn the_beginning_and_the_end_of_very_many_lines_are_read() {
    let summary = r#"{"message_type":"summary","snapshot_id":"9135341f"}"#;
    let stderr = format!("/srv/first is odd\n{}/srv/last is odd", "\n".repeat(300_000));
    let stdout = format!("{}{summary}\n", "x\n".repeat(300_000));
    let run = judge(BackupTool::Restic, JobKind::Backup, 0, &stdout, &stderr);
    assert_eq!(codes(&run), ["error_lines", "tool_output", "tool_output"]);
    assert_eq!(run.reasons[2].detail, "/srv/last is odd");
}

#[test]
fn numbers_out_of_range_are_left_out() {
    for number in ["-1", "1.5", "18446744073709551615", "\"9\"", "[9]", "{\"n\":9}", "null", "true"] {
        let stdout =
            format!(r#"{{"message_type":"summary","snapshot_id":"9135341f","total_bytes_processed":{number}}}"#);
        let run = judge(BackupTool::Restic, JobKind::Backup, 0, &stdout, "");
        assert_eq!((run.status, run.size_bytes), (RunStatus::Success, None), "{number}");
    }
}

#[test]
fn a_snapshot_id_is_plain() {
    for id in ["", "a b", "<script>", "../x", &"a".repeat(200)] {
        let stdout = format!(r#"{{"message_type":"summary","snapshot_id":"{id}"}}"#);
        let run = judge(BackupTool::Restic, JobKind::Backup, 0, &stdout, "");
        assert_eq!(codes(&run), ["no_snapshot"], "{id}");
    }
}

#[test]
fn a_list_of_a_million_names_takes_no_memory_of_its_own() {
    let mut names = String::new();
    for number in 0..50_000 {
        write!(names, "\"f{number}\",").unwrap();
    }
    let stdout = format!(r#"{{"message_type":"summary","snapshot_id":"9135341f","current_files":[{names}"z"]}}"#);
    assert_eq!(judge(BackupTool::Restic, JobKind::Backup, 0, &stdout, "").status, RunStatus::Success);
}
