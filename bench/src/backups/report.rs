//! The report of a backup as the wrapper of the documentation posts it: what restic 0.17 prints with `--json`, some 2 kB.

use std::fmt::Write;

use kernel::base::SECOND_MS;
use serde_json::json;

use super::data::Run;
use crate::inventory::agent::IngestKey;

const PATH: &str = "/internal/ingest/backup";
/// Lines of progress before the summary.
const PROGRESS_LINES: i64 = 4;

/// The whole request.
pub fn request(key: &IngestKey, external_id: &str, device: &str, run: &Run) -> String {
    let body = json!({
        "external_id": external_id, "device": device, "job": "nightly", "kind": "backup", "tool": "restic",
        "started_at": run.started_at.to_string(), "ended_at": run.ended_at.to_string(), "exit_code": 0,
        "stdout": stdout(run), "stderr": "", "target": run.target,
    })
    .to_string();
    let (basic, length) = (&key.basic, body.len());
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: bench\r\nAuthorization: Basic {basic}\r\nUser-Agent: tenant-control-backup/1\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn stdout(run: &Run) -> String {
    let outcome = run.outcome();
    let (size, added) = (outcome.size_bytes.unwrap_or(0), outcome.added_bytes.unwrap_or(0));
    let (files, snapshot) = (outcome.files.unwrap_or(0), outcome.snapshot_id.unwrap_or_default());
    let seconds = (run.ended_at.as_millis() - run.started_at.as_millis()) / SECOND_MS;
    let mut text = String::with_capacity(2_000);
    for n in 1..=PROGRESS_LINES {
        let _ = writeln!(
            text,
            "{{\"message_type\":\"status\",\"seconds_elapsed\":{},\"seconds_remaining\":{},\"percent_done\":0.{n}417730496,\
             \"total_files\":{files},\"files_done\":{},\"total_bytes\":{size},\"bytes_done\":{},\"current_files\":\
             [\"/srv/data/projects/2026/{n:04}/drawings/plan-{n:03}.dwg\"]}}",
            n * seconds / 5,
            (5 - n) * seconds / 5,
            n * files / 5,
            n * size / 5,
        );
    }
    let _ = writeln!(
        text,
        "{{\"message_type\":\"summary\",\"files_new\":12,\"files_changed\":84,\"files_unmodified\":{files},\"dirs_new\":0,\
         \"dirs_changed\":31,\"dirs_unmodified\":2210,\"data_blobs\":312,\"tree_blobs\":32,\"data_added\":{},\
         \"data_added_packed\":{added},\"total_files_processed\":{files},\"total_bytes_processed\":{size},\
         \"total_duration\":{seconds}.131,\"backup_start\":\"{}\",\"backup_end\":\"{}\",\"snapshot_id\":\"{snapshot}\"}}",
        2 * added,
        run.started_at,
        run.ended_at,
    );
    text
}
