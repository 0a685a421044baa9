//! Parses requests about workflows: a whole new definition, or a change of an existing one.

use kernel::base::{Error, Label, Result};
use kernel::http::{Field, Fields, FromBody};
use serde_json::{Map, Value};

use super::depth::{DEPTH_MAX, is_shallow};
use super::runs::control::Control;
use super::{
    BACKOFF_SECONDS_DEFAULT, BACKOFF_SECONDS_MAX, Definition, EventTrigger, INPUT_BYTES_MAX, ManualTrigger, OnError,
    RETRIES_MAX, RetryRule, SECONDS_MAX, STEPS_MAX, ScheduleTrigger, Step, Trigger, WorkflowId,
};
use feature_kit::custom_fields::merge_patch;
use feature_kit::subscription::is_for_one_endpoint;
use feature_kit::subscription::parse_patterns;

/// The longest id of a step.
const STEP_ID_BYTES_MAX: usize = 63;
/// Reserved words of CEL: `steps.<id>` could not be written with them.
const CEL_WORDS: &[&str] = &["in", "true", "false", "null"];
/// The time zone of a schedule that names none.
const ZONE_DEFAULT: &str = "UTC";

kernel::words! {
    /// What POST is asked to do.
    #[schema(as = WorkflowAction)]
    pub enum Action { Create "create", Run "run" }
}

/// The body of POST.
pub enum Request {
    Create(Box<NewWorkflow>),
    Run(NewRun),
}

impl FromBody for Request {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        // The most frequent action is the default.
        match fields.optional("action", |field| field.word::<Action>())?.unwrap_or(Action::Run) {
            Action::Create => NewWorkflow::from_fields(fields).map(|new| Request::Create(Box::new(new))),
            Action::Run => NewRun::from_fields(fields).map(Request::Run),
        }
    }
}

/// A request to start a run.
pub struct NewRun {
    pub workflow_id: WorkflowId,
    /// An object.
    pub input: Value,
    pub dry_run: bool,
}

impl FromBody for NewRun {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let workflow_id = fields.required("workflow_id", |field| field.id());
        let input = fields.optional("input", |field| {
            let input = field.take();
            if !input.is_object() {
                return field.wrong("wrong_type", "must be an object");
            }
            if !is_shallow(&input) {
                return field.wrong("too_deep", format!("must be at most {DEPTH_MAX} deep"));
            }
            match serde_json::to_string(&input) {
                Ok(text) if text.len() <= INPUT_BYTES_MAX => Some(input),
                _ => field.wrong("too_long", format!("must be at most {INPUT_BYTES_MAX} bytes of JSON")),
            }
        });
        let dry_run = fields.optional("dry_run", |field| field.boolean());
        let (input, dry_run) = (input?.unwrap_or_else(|| Value::Object(Map::new())), dry_run?.unwrap_or(false));
        Some(NewRun { workflow_id: workflow_id?, input, dry_run })
    }
}

/// The body of PATCH: a change of a workflow, or an action on a run.
pub enum Change {
    Workflow(WorkflowPatch),
    Run(Control),
}

kernel::words! {
    /// What is done with a run.
    #[schema(as = WorkflowRunAction)]
    pub enum RunAction { Cancel "cancel", Retry "retry", Approve "approve", Reject "reject" }
}

impl FromBody for Change {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        if !fields.has("action") {
            return WorkflowPatch::from_fields(fields).map(Change::Workflow);
        }
        let action = fields.required("action", |field| field.word::<RunAction>());
        let step_id = fields.optional("step_id", |field| field.or_null(|step| step.string()));
        let (action, step_id) = (action?, step_id?.flatten());
        if step_id.is_some() && matches!(action, RunAction::Cancel | RunAction::Retry) {
            fields.report("step_id", "not_alone", "names what is approved or rejected, and nothing else");
            return None;
        }
        Some(Change::Run(match action {
            RunAction::Cancel => Control::Cancel,
            RunAction::Retry => Control::Retry,
            RunAction::Approve => Control::Approve(step_id),
            RunAction::Reject => Control::Reject(step_id),
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
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let name = fields.required("name", |field| field.parsed("invalid_name", Label::parse));
        let enabled = fields.optional("enabled", |field| field.boolean());
        let on = fields.required("on", trigger);
        let input_schema = fields.optional("input_schema", |field| field.or_null(object));
        let steps = fields.required("steps", steps);
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

const PATCHED: &[&str] = &["name", "enabled", "on", "input_schema", "steps"];

impl FromBody for WorkflowPatch {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let mut patch = Map::new();
        for name in PATCHED {
            if let Some(value) = fields.optional(name, |field| Some(field.take())).flatten() {
                patch.insert((*name).to_owned(), value);
            }
        }
        Some(WorkflowPatch(patch))
    }
}

impl WorkflowPatch {
    /// The patched workflow as a JSON object, to be parsed again as a whole.
    pub fn apply(self, definition: &Definition, enabled: bool) -> Result<Map<String, Value>> {
        let mut object = match serde_json::to_value(definition).map_err(Error::internal)? {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        object.insert("enabled".to_owned(), enabled.into());
        let mut patch = self.0;
        // A null inside a schema is part of the schema, and deletes nothing.
        object.extend(patch.remove_entry("input_schema"));
        if let Some(Value::Object(on)) = patch.get_mut("on")
            && let [only] = KINDS.iter().filter(|kind| on.contains_key(**kind)).collect::<Vec<_>>().as_slice()
            && !on[**only].is_null()
        {
            // A new kind of trigger replaces the old one.
            let others = KINDS.iter().filter(|kind| kind != only);
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
fn object(field: &mut Field<'_>) -> Option<Map<String, Value>> {
    match field.take() {
        Value::Object(object) => Some(object),
        _ => field.wrong("wrong_type", "must be an object"),
    }
}

const KINDS: [&str; 3] = ["event", "schedule", "manual"];

fn trigger(field: &mut Field<'_>) -> Option<Trigger> {
    let trigger = field.object(|on| {
        if KINDS.into_iter().filter(|name| on.has(name)).count() != 1 {
            // The values are taken, so that they are not reported as unknown fields.
            for name in KINDS {
                on.optional(name, |field| Some(field.take()));
            }
            return Some(None);
        }
        let event = on.optional("event", |field| field.object(event_trigger));
        let schedule = on.optional("schedule", |field| field.object(schedule_trigger));
        let manual = on.optional("manual", |field| field.object(|_| Some(ManualTrigger {})));
        let event = event?.map(Trigger::Event);
        Some(event.or(schedule?.map(Trigger::Schedule)).or(manual?.map(Trigger::Manual)))
    })?;
    match trigger {
        Some(trigger) => Some(trigger),
        None => field.wrong("required", "must have exactly one of event, schedule and manual"),
    }
}

fn event_trigger(fields: &mut Fields) -> Option<EventTrigger> {
    let types = fields.required("types", |field| {
        let types = parse_patterns(field)?;
        match types.iter().find(|kind| is_for_one_endpoint(kind)) {
            Some(kind) => field.wrong("unknown_event", format!("{kind} is sent to one endpoint and starts nothing")),
            None => Some(types),
        }
    });
    let condition = fields.optional("if", |field| field.or_null(|text| text.string()));
    Some(EventTrigger { types: types?, condition: condition?.flatten() })
}

fn schedule_trigger(fields: &mut Fields) -> Option<ScheduleTrigger> {
    let cron = fields.required("cron", |field| field.string());
    let timezone = fields.optional("timezone", |field| field.string());
    Some(ScheduleTrigger { cron: cron?, timezone: timezone?.unwrap_or_else(|| ZONE_DEFAULT.to_owned()) })
}

fn steps(field: &mut Field<'_>) -> Option<Vec<Step>> {
    let steps = field.list(STEPS_MAX, |field| field.object(step))?;
    if steps.is_empty() { field.wrong("required", "must have at least one step") } else { Some(steps) }
}

fn step(fields: &mut Fields) -> Option<Step> {
    let id = fields.required("id", |field| field.parsed("invalid_step_id", step_id));
    let uses = fields.required("uses", |field| field.string());
    let with = fields.optional("with", object);
    let condition = fields.optional("if", |field| field.or_null(|text| text.string()));
    let needs = fields.optional("needs", |field| field.list(STEPS_MAX, |need| need.string()));
    let retry = fields.optional("retry", |field| field.object(retry));
    let timeout = fields.optional("timeout_seconds", |field| field.or_null(|field| field.integer(1..=SECONDS_MAX)));
    let on_error = fields.optional("on_error", |field| field.word::<OnError>());
    Some(Step {
        id: id?,
        uses: uses?,
        with: with?.unwrap_or_default(),
        condition: condition?.flatten(),
        needs: needs?.unwrap_or_default(),
        retry: retry?.unwrap_or_default(),
        timeout_seconds: timeout?.flatten(),
        on_error: on_error?.unwrap_or(OnError::Fail),
    })
}

fn retry(fields: &mut Fields) -> Option<RetryRule> {
    let max = fields.optional("max", |field| field.integer(0..=RETRIES_MAX));
    let backoff = fields.optional("backoff_seconds", |field| field.integer(1..=BACKOFF_SECONDS_MAX));
    Some(RetryRule { max: max?.unwrap_or(0), backoff_seconds: backoff?.unwrap_or(BACKOFF_SECONDS_DEFAULT) })
}

/// An identifier of CEL in lowercase letters.
fn step_id(text: &str) -> Result<String, String> {
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
