//! The body of a report.

use kernel::base::{DAY_MS, Error, Label, MINUTE_MS, Result, Timestamp};
use kernel::http::{BodyField, BodyFields, FromBody};
use serde_json::Value;

use super::Tool;
use crate::posture::{JobKind, RunStatus};

/// A report before it is judged.
pub struct JobReport {
    pub external_id: String,
    /// An id, or a hostname.
    pub device: String,
    pub job: String,
    pub kind: JobKind,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub target: String,
    pub evidence: Evidence,
}

/// What tells how a run went.
pub enum Evidence {
    /// What the tool printed.
    Printed { tool: Tool, exit_code: i64, stdout: String, stderr: String },
    /// What the sender says of another tool.
    Declared(DeclaredRun),
}

impl Default for Evidence {
    /// Nothing was printed.
    fn default() -> Self {
        Evidence::Printed { tool: Tool::Restic, exit_code: 0, stdout: String::new(), stderr: String::new() }
    }
}

/// What the sender says of a run.
pub struct DeclaredRun {
    pub status: RunStatus,
    pub message: Option<String>,
    pub size_bytes: Option<i64>,
    pub tool_name: Option<String>,
}

const MESSAGE_CHARS_MAX: usize = 1_000;
/// Clocks of machines differ; a report from further ahead would hide everything that comes before it.
pub const AHEAD_MS_MAX: i64 = 10 * MINUTE_MS;
/// A run that is older than this tells nothing of today, and its times are probably wrong.
const AGE_MS_MAX: i64 = 366 * DAY_MS;
/// A run that took longer began before its machine had the time.
const LENGTH_MS_MAX: i64 = 31 * DAY_MS;

impl FromBody for JobReport {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let external_id = fields.read_required("external_id", read_text);
        let device = fields.read_required("device", read_text);
        let job = fields.read_required("job", read_text);
        let kind = fields.read_required("kind", |field| field.read_enum());
        let target = fields.read_required("target", read_text);
        let started_at = fields.read_required("started_at", |field| field.read_time());
        let ended_at = fields.read_required("ended_at", |field| field.read_time());
        if let (Some(started), Some(ended)) = (started_at, ended_at)
            && started > ended
        {
            fields.report_field("ended_at", "out_of_range", "must not be before started_at");
        }
        if let (Some(started), Some(ended)) = (started_at, ended_at)
            && started.plus_ms(LENGTH_MS_MAX) < ended
        {
            let detail = "is more than 31 days before ended_at: check the clock of the device";
            fields.report_field("started_at", "out_of_range", detail);
        }
        let tool = fields.read_required("tool", |field| field.read_enum());
        let evidence = match tool {
            Some(Tool::Other) => read_declared(fields),
            Some(tool) => read_printed(fields, tool),
            None => {
                // What belongs to a tool that is not known cannot be judged.
                for name in PRINTED_FIELDS.iter().chain(&DECLARED_FIELDS) {
                    fields.read_optional(name, |field| Some(field.take_value()));
                }
                None
            }
        };
        Some(JobReport {
            external_id: external_id?,
            device: device?,
            job: job?,
            kind: kind?,
            started_at: started_at?,
            ended_at: ended_at?,
            target: target?,
            evidence: evidence?,
        })
    }
}

const PRINTED_FIELDS: [&str; 3] = ["exit_code", "stdout", "stderr"];
const DECLARED_FIELDS: [&str; 4] = ["status", "message", "size_bytes", "tool_name"];

fn read_printed(fields: &mut BodyFields, tool: Tool) -> Option<Evidence> {
    let exit_code = fields.read_required("exit_code", |field| field.read_integer(-65_536..=4_294_967_295));
    let stdout = fields.read_optional("stdout", |field| field.read_or_null(read_output));
    let stderr = fields.read_optional("stderr", |field| field.read_or_null(read_output));
    Some(Evidence::Printed {
        tool,
        exit_code: exit_code?,
        stdout: stdout?.flatten().unwrap_or_default(),
        stderr: stderr?.flatten().unwrap_or_default(),
    })
}

fn read_declared(fields: &mut BodyFields) -> Option<Evidence> {
    let status = fields.read_required("status", |field| {
        field.read_parsed("invalid_value", |text| match text {
            "success" => Ok(RunStatus::Success),
            "warning" => Ok(RunStatus::Warning),
            "failed" => Ok(RunStatus::Failed),
            _ => Err("must be success, warning or failed".to_owned()),
        })
    });
    let message = fields.read_optional("message", |field| field.read_or_null(read_message));
    let size = |field: &mut BodyField<'_>| field.read_or_null(|field| field.read_integer(0..=9_000_000_000_000_000));
    let size_bytes = fields.read_optional("size_bytes", size);
    let tool_name = fields.read_optional("tool_name", |field| field.read_or_null(read_text));
    Some(Evidence::Declared(DeclaredRun {
        status: status?,
        message: message?.flatten(),
        size_bytes: size_bytes?.flatten(),
        tool_name: tool_name?.flatten(),
    }))
}

/// A line of 1 to 200 characters.
fn read_text(field: &mut BodyField<'_>) -> Option<String> {
    field.read_parsed("invalid_text", |text| Label::parse_line(text).map(Label::into_string))
}

/// A message is cut where it is too long: nobody is helped by losing the report. Passwords of URLs and options are masked, as in
/// what restic and borg print.
fn read_message(field: &mut BodyField<'_>) -> Option<String> {
    let text = field.read_string()?;
    Some(backup_reports::clean_line(&text).chars().take(MESSAGE_CHARS_MAX).collect())
}

/// What a program has printed may hold anything that a string can.
fn read_output(field: &mut BodyField<'_>) -> Option<String> {
    match field.take_value() {
        Value::String(text) => Some(text),
        _ => field.report_error("wrong_type", "must be a string, as the tool has printed it"),
    }
}

impl JobReport {
    /// What is wrong with the times beside the server's clock.
    pub fn check_times(&self, now: Timestamp) -> Result<()> {
        for (pointer, at) in [("/started_at", self.started_at), ("/ended_at", self.ended_at)] {
            if at > now.plus_ms(AHEAD_MS_MAX) {
                let detail = "is more than 10 minutes ahead of the server's clock: check the clock of the device";
                return Err(Error::invalid(pointer, "out_of_range", detail));
            }
        }
        if self.ended_at < now.plus_ms(-AGE_MS_MAX) {
            return Err(Error::invalid("/ended_at", "out_of_range", "is more than a year ago"));
        }
        Ok(())
    }
}
