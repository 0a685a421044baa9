use std::cell::Cell;
use std::fmt::Write as _;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use super::{assert_is_well_formed, codes, judge};
use crate::documents::for_each_document;
use crate::lines::split_lines;
use crate::loose::LooseField;
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
fn large_output_of_any_shape_is_judged() {
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

thread_local! {
    static TRIALS: Cell<usize> = const { Cell::new(0) };
}

/// A document of which every trial to read one is counted.
struct CountedDocument;

impl<'de> Deserialize<'de> for CountedDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TRIALS.set(TRIALS.get() + 1);
        IgnoredAny::deserialize(deserializer).map(|_| CountedDocument)
    }
}

/// How often something that begins like a document is read to the end of a stream, in vain.
fn count_trials(stream: &str) -> usize {
    TRIALS.set(0);
    for_each_document(stream, |_: CountedDocument| {});
    TRIALS.get()
}

#[test]
fn documents_that_do_not_end_are_tried_as_often_in_a_long_stream_as_in_a_short_one() {
    for piece in ["{\n", "{\"a\":[\n", "{\"archive\":{\"stats\":{\n"] {
        let trials = count_trials(&piece.repeat(1_000));
        assert!((1..=5).contains(&trials), "{piece:?}: {trials}");
        assert_eq!(count_trials(&piece.repeat(4_000)), trials, "{piece:?}");
    }
}

#[test]
fn of_very_many_lines_as_many_are_read_as_of_four_times_as_many() {
    let count = |lines: usize| split_lines(&"x\n".repeat(lines)).count();
    let read = count(300_000);
    assert!(read < 300_000 && read == count(1_200_000), "{read}");
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
fn of_a_list_of_names_nothing_is_kept() {
    let mut names = String::new();
    for number in 0..50_000 {
        write!(names, "\"f{number}\",").unwrap();
    }
    let list = format!("[{names}\"z\"]");
    assert!(matches!(serde_json::from_str(&list).unwrap(), LooseField::Absent));
    let stdout = format!(r#"{{"message_type":"summary","snapshot_id":"9135341f","current_files":{list}}}"#);
    assert_eq!(judge(BackupTool::Restic, JobKind::Backup, 0, &stdout, "").status, RunStatus::Success);
}
