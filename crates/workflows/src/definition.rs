//! Parses requests about workflows: a whole new definition, or a change of an existing one.

use feature_kit::custom_fields::merge_patch;
use feature_kit::subscription::is_for_one_endpoint;
use feature_kit::subscription::parse_patterns;
use kernel::base::{Error, Label, Result};
use kernel::http::{BodyField, BodyFields, FromBody};
use serde_json::{Map, Value};

use super::json_depth::{JSON_DEPTH_MAX, is_shallow};
use super::runs::control::RunControl;
use super::{
    BACKOFF_SECONDS_DEFAULT, BACKOFF_SECONDS_MAX, Definition, EventTrigger, INPUT_BYTES_MAX, ManualTrigger, OnError,
    OnSkipped, RETRIES_MAX, RetryRule, SECONDS_MAX, STATUSES_MAX, STEPS_MAX, ScheduleTrigger, Trigger, WorkflowId,
    WorkflowStep,
};

/// The longest id of a step.
const STEP_ID_BYTES_MAX: usize = 63;
/// Reserved words of CEL: `steps.<id>` could not be written with them.
const CEL_WORDS: &[&str] = &["in", "true", "false", "null"];
/// The time zone of a schedule that names none.
const ZONE_DEFAULT: &str = "UTC";

kernel::string_enum! {
    /// What POST is asked to do.
    #[schema(as = WorkflowAction)]
    pub enum WorkflowRequestAction { Create "create", Run "run" }
}

/// The body of POST.
pub enum WorkflowRequest {
    Create(Box<NewWorkflow>),
    Run(RunRequest),
}

impl FromBody for WorkflowRequest {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        // The most frequent action is the default.
        match fields
            .read_optional("action", |field| field.read_enum::<WorkflowRequestAction>())?
            .unwrap_or(WorkflowRequestAction::Run)
        {
            WorkflowRequestAction::Create => {
                NewWorkflow::from_fields(fields).map(|new| WorkflowRequest::Create(Box::new(new)))
            }
            WorkflowRequestAction::Run => RunRequest::from_fields(fields).map(WorkflowRequest::Run),
        }
    }
}

/// A request to start a run.
pub struct RunRequest {
    pub workflow_id: WorkflowId,
    /// An object.
    pub input: Value,
    pub dry_run: bool,
}

impl FromBody for RunRequest {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let workflow_id = fields.read_required("workflow_id", |field| field.read_id());
        let input = fields.read_optional("input", |field| {
            let input = field.take_value();
            if !input.is_object() {
                return field.report_error("wrong_type", "must be an object");
            }
            if !is_shallow(&input) {
                return field.report_error("too_deep", format!("must be at most {JSON_DEPTH_MAX} deep"));
            }
            match serde_json::to_string(&input) {
                Ok(text) if text.len() <= INPUT_BYTES_MAX => Some(input),
                _ => field.report_error("too_long", format!("must be at most {INPUT_BYTES_MAX} bytes of JSON")),
            }
        });
        let dry_run = fields.read_optional("dry_run", |field| field.read_boolean());
        let (input, dry_run) = (input?.unwrap_or_else(|| Value::Object(Map::new())), dry_run?.unwrap_or(false));
        Some(RunRequest { workflow_id: workflow_id?, input, dry_run })
    }
}

/// The body of PATCH: a change of a workflow, or an action on a run.
pub enum WorkflowChange {
    Workflow(WorkflowPatch),
    Run(RunControl),
}

kernel::string_enum! {
    /// What is done with a run.
    #[schema(as = WorkflowRunAction)]
    pub enum RunAction { Cancel "cancel", Retry "retry", Approve "approve", Reject "reject" }
}

impl FromBody for WorkflowChange {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        if !fields.has_field("action") {
            return WorkflowPatch::from_fields(fields).map(WorkflowChange::Workflow);
        }
        let action = fields.read_required("action", |field| field.read_enum::<RunAction>());
        let step_id = fields.read_optional("step_id", |field| field.read_or_null(|step| step.read_string()));
        let (action, step_id) = (action?, step_id?.flatten());
        if step_id.is_some() && matches!(action, RunAction::Cancel | RunAction::Retry) {
            fields.report_field("step_id", "not_alone", "is only for approve and reject");
            return None;
        }
        Some(WorkflowChange::Run(match action {
            RunAction::Cancel => RunControl::Cancel,
            RunAction::Retry => RunControl::Retry,
            RunAction::Approve => RunControl::Approve(step_id),
            RunAction::Reject => RunControl::Reject(step_id),
        }))
    }
}

/// A new workflow. Its expressions are not parsed yet: see `check`.
#[derive(Clone, Debug, PartialEq)]
pub struct NewWorkflow {
    pub definition: Definition,
    pub enabled: bool,
}

impl FromBody for NewWorkflow {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let name = fields.read_required("name", |field| field.read_parsed("invalid_name", Label::parse));
        let enabled = fields.read_optional("enabled", |field| field.read_boolean());
        let on = fields.read_required("on", parse_trigger);
        let input_schema = fields.read_optional("input_schema", |field| field.read_or_null(parse_object));
        let steps = fields.read_required("steps", parse_steps);
        let (name, enabled) = (name.map(Label::into_string), enabled?.unwrap_or(true));
        let definition = Definition {
            name: name?,
            on: on?,
            input_schema: input_schema?.flatten().map(Value::Object),
            steps: steps?,
        };
        Some(NewWorkflow { definition, enabled })
    }
}

/// A change of a workflow: a JSON merge patch, in which `steps` and `input_schema` are one value each.
#[derive(Clone, Debug)]
pub struct WorkflowPatch(Map<String, Value>);

const PATCHED_FIELDS: &[&str] = &["name", "enabled", "on", "input_schema", "steps"];

impl FromBody for WorkflowPatch {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let mut patch = Map::new();
        for name in PATCHED_FIELDS {
            if let Some(value) = fields.read_optional(name, |field| Some(field.take_value())).flatten() {
                patch.insert((*name).to_owned(), value);
            }
        }
        Some(WorkflowPatch(patch))
    }
}

impl WorkflowPatch {
    /// The patched workflow as a JSON object, to be parsed again as a whole.
    pub fn apply_to(self, definition: &Definition, enabled: bool) -> Result<Map<String, Value>> {
        let mut object = match serde_json::to_value(definition).map_err(Error::internal)? {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        object.insert("enabled".to_owned(), enabled.into());
        let mut patch = self.0;
        // A null inside a schema is part of the schema, and deletes nothing.
        object.extend(patch.remove_entry("input_schema"));
        if let Some(Value::Object(on)) = patch.get_mut("on")
            && let [only] = TRIGGER_KINDS.iter().filter(|kind| on.contains_key(**kind)).collect::<Vec<_>>().as_slice()
            && !on[**only].is_null()
        {
            // A new kind of trigger replaces the old one.
            let others = TRIGGER_KINDS.iter().filter(|kind| kind != only);
            on.extend(others.map(|kind| ((*kind).to_owned(), Value::Null)).collect::<Vec<_>>());
        }
        merge_patch(&mut object, patch);
        Ok(object)
    }

    /// The new value of `enabled`, if the patch changes nothing else.
    pub fn enabled_alone(&self) -> Option<bool> {
        match self.0.get("enabled") {
            Some(Value::Bool(enabled)) if self.0.len() == 1 => Some(*enabled),
            _ => None,
        }
    }
}

/// An object with any content.
fn parse_object(field: &mut BodyField<'_>) -> Option<Map<String, Value>> {
    match field.take_value() {
        Value::Object(object) => Some(object),
        _ => field.report_error("wrong_type", "must be an object"),
    }
}

const TRIGGER_KINDS: [&str; 3] = ["event", "schedule", "manual"];

fn parse_trigger(field: &mut BodyField<'_>) -> Option<Trigger> {
    let trigger = field.read_object(|on| {
        if TRIGGER_KINDS.into_iter().filter(|name| on.has_field(name)).count() != 1 {
            // The values are taken, so that they are not reported as unknown fields.
            for name in TRIGGER_KINDS {
                on.read_optional(name, |field| Some(field.take_value()));
            }
            return Some(None);
        }
        let event = on.read_optional("event", |field| field.read_object(parse_event_trigger));
        let schedule = on.read_optional("schedule", |field| field.read_object(parse_schedule_trigger));
        let manual = on.read_optional("manual", |field| field.read_object(|_| Some(ManualTrigger {})));
        let event = event?.map(Trigger::Event);
        Some(event.or(schedule?.map(Trigger::Schedule)).or(manual?.map(Trigger::Manual)))
    })?;
    match trigger {
        Some(trigger) => Some(trigger),
        None => field.report_error("required", "must have exactly one of event, schedule and manual"),
    }
}

fn parse_event_trigger(fields: &mut BodyFields) -> Option<EventTrigger> {
    let types = fields.read_required("types", |field| {
        let types = parse_patterns(field)?;
        match types.iter().find(|kind| is_for_one_endpoint(kind)) {
            Some(kind) => {
                field.report_error("unknown_event", format!("{kind} is sent to one endpoint and starts nothing"))
            }
            None => Some(types),
        }
    });
    let condition = fields.read_optional("if", |field| field.read_or_null(|text| text.read_string()));
    Some(EventTrigger { types: types?, condition: condition?.flatten() })
}

fn parse_schedule_trigger(fields: &mut BodyFields) -> Option<ScheduleTrigger> {
    let cron = fields.read_required("cron", |field| field.read_string());
    let timezone = fields.read_optional("timezone", |field| field.read_string());
    Some(ScheduleTrigger { cron: cron?, timezone: timezone?.unwrap_or_else(|| ZONE_DEFAULT.to_owned()) })
}

fn parse_steps(field: &mut BodyField<'_>) -> Option<Vec<WorkflowStep>> {
    let steps = field.read_list(STEPS_MAX, |field| field.read_object(parse_step))?;
    if steps.is_empty() { field.report_error("required", "must have at least one step") } else { Some(steps) }
}

fn parse_step(fields: &mut BodyFields) -> Option<WorkflowStep> {
    let id = fields.read_required("id", |field| field.read_parsed("invalid_step_id", parse_step_id));
    let uses = fields.read_required("uses", |field| field.read_string());
    let with = fields.read_optional("with", parse_object);
    let condition = fields.read_optional("if", |field| field.read_or_null(|text| text.read_string()));
    let needs = fields.read_optional("needs", |field| field.read_list(STEPS_MAX, |need| need.read_string()));
    let retry = fields.read_optional("retry", |field| field.read_object(parse_retry));
    let timeout = fields
        .read_optional("timeout_seconds", |field| field.read_or_null(|field| field.read_integer(1..=SECONDS_MAX)));
    let on_error = fields.read_optional("on_error", |field| field.read_enum::<OnError>());
    let on_skipped = fields.read_optional("on_skipped", |field| field.read_enum::<OnSkipped>());
    Some(WorkflowStep {
        id: id?,
        uses: uses?,
        with: with?.unwrap_or_default(),
        condition: condition?.flatten(),
        needs: needs?.unwrap_or_default(),
        retry: retry?.unwrap_or_default(),
        timeout_seconds: timeout?.flatten(),
        on_error: on_error?.unwrap_or(OnError::Fail),
        on_skipped: on_skipped?.unwrap_or_default(),
    })
}

fn parse_retry(fields: &mut BodyFields) -> Option<RetryRule> {
    let max = fields.read_optional("max", |field| field.read_integer(0..=RETRIES_MAX));
    let backoff = fields.read_optional("backoff_seconds", |field| field.read_integer(1..=BACKOFF_SECONDS_MAX));
    let on_status = fields.read_optional("on_status", |field| {
        field.read_list(STATUSES_MAX, |status| {
            status.read_integer(400..=499).and_then(|status| u16::try_from(status).ok())
        })
    });
    Some(RetryRule {
        max: max?.unwrap_or(0),
        backoff_seconds: backoff?.unwrap_or(BACKOFF_SECONDS_DEFAULT),
        on_status: on_status?.unwrap_or_default(),
    })
}

/// An identifier of CEL in lowercase letters.
fn parse_step_id(text: &str) -> Result<String, String> {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let plain = text.bytes().next().is_some_and(first) && text.bytes().all(|byte| first(byte) || byte.is_ascii_digit());
    if !plain || text.len() > STEP_ID_BYTES_MAX {
        return Err(format!("must be 1 to {STEP_ID_BYTES_MAX} of a-z, 0-9 and _, with no digit first"));
    }
    if CEL_WORDS.contains(&text) {
        return Err(format!("{text} is a word of the expression language"));
    }
    Ok(text.to_owned())
}
