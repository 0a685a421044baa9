//! OpenAPI schemas of the bodies that `definition` parses.

use feature_kit::registry;
use feature_kit::subscription::patterns_schema;
use kernel::base::StringEnum;
use serde_json::{Value, json};
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, SchemaType,
    Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::actions::CustomEvent;
use super::definition::{RunAction, WorkflowChange, WorkflowPatch, WorkflowRequest, WorkflowRequestAction};
use super::{
    BACKOFF_SECONDS_DEFAULT, BACKOFF_SECONDS_MAX, OnError, OnSkipped, RETRIES_MAX, SECONDS_MAX, STATUSES_MAX, STEPS_MAX,
};

/// Names of the schemas.
const STEP: &str = "WorkflowStepInput";
const NEW: &str = "WorkflowInput";
const RUN: &str = "WorkflowRunRequest";
const CONTROL: &str = "WorkflowRunControl";

fn typed_schema(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(kind)
}

fn nullable_schema(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::from_iter([kind, Type::Null]))
}

fn strict_object() -> ObjectBuilder {
    typed_schema(Type::Object).additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

fn integer_schema(maximum: i64) -> ObjectBuilder {
    typed_schema(Type::Integer).format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64))).maximum(Some(maximum))
}

fn expression_schema(about: &str) -> ObjectBuilder {
    nullable_schema(Type::String).max_length(Some(expressions::SOURCE_BYTES_MAX)).description(Some(about))
}

fn name_schema() -> ObjectBuilder {
    typed_schema(Type::String).min_length(Some(1)).max_length(Some(200)).pattern(Some("\\S"))
}

fn event_schema() -> ObjectBuilder {
    strict_object()
        .property("types", patterns_schema())
        .property("if", expression_schema("A CEL expression over `event`; without one every event counts."))
        .required("types")
        .description(Some("Events of these kinds, if they pass the filter."))
}

fn schedule_schema() -> ObjectBuilder {
    strict_object()
        .property(
            "cron",
            typed_schema(Type::String).description(Some("Minute, hour, day of the month, month, day of the week.")),
        )
        .property("timezone", typed_schema(Type::String).description(Some("Of the IANA database; `UTC` when omitted.")))
        .required("cron")
        .description(Some("Starts on a schedule."))
}

/// The forms of `on`: the field that each has, its name, and the name of what the field holds. They are named because
/// generators of clients number what has no name.
const TRIGGER_FORMS: [(&str, &str, &str); 3] = [
    ("event", "WorkflowOnEvent", "WorkflowEventTriggerInput"),
    ("schedule", "WorkflowOnSchedule", "WorkflowScheduleTriggerInput"),
    ("manual", "WorkflowOnManual", "WorkflowManualTriggerInput"),
];

fn trigger_schema() -> OneOfBuilder {
    TRIGGER_FORMS.iter().fold(OneOfBuilder::new(), |one_of, (_, form, _)| one_of.item(Ref::from_schema_name(*form)))
}

fn trigger_schemas() -> Vec<(String, RefOr<Schema>)> {
    let manual = strict_object().description(Some("Starts only when called."));
    let settings: [ObjectBuilder; 3] = [event_schema(), schedule_schema(), manual];
    let parts = TRIGGER_FORMS.iter().zip(settings).flat_map(|((field, form, name), settings)| {
        let form_schema = strict_object().property(*field, Ref::from_schema_name(*name)).required(*field);
        [((*form).to_owned(), form_schema.into()), ((*name).to_owned(), settings.into())]
    });
    parts.collect()
}

fn input_schema() -> ObjectBuilder {
    nullable_schema(Type::Object)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .description(Some("A JSON Schema (2020-12, without references) that the input of a call must fit."))
}

fn steps_schema() -> ArrayBuilder {
    ArrayBuilder::new().items(Ref::from_schema_name(STEP)).min_items(Some(1)).max_items(Some(STEPS_MAX))
}

fn step_schema() -> ObjectBuilder {
    let about: Vec<String> = registry()
        .actions
        .iter()
        .map(|action| format!("- `{}` {} `{}`", action.name, action.about, (action.example)()))
        .collect();
    let with =
        typed_schema(Type::Object).additional_properties(Some(AdditionalProperties::FreeForm(true))).description(Some(
            format!("What the action is given. Texts may hold `${{{{ CEL }}}}`.\n\n{}", about.join("\n")),
        ));
    let retries = integer_schema(RETRIES_MAX).minimum(Some(0)).description(Some("0 when omitted."));
    let backoff = integer_schema(BACKOFF_SECONDS_MAX)
        .minimum(Some(1))
        .description(Some(format!("{BACKOFF_SECONDS_DEFAULT} when omitted; doubled at each retry.")));
    let status = integer_schema(499).minimum(Some(400));
    let on_status = ArrayBuilder::new().items(status).max_items(Some(STATUSES_MAX)).description(Some(
        "Statuses from 400 to 499 that `http.request` is retried after, besides 408, 409, 425 and 429.",
    ));
    let retry =
        strict_object().property("max", retries).property("backoff_seconds", backoff).property("on_status", on_status);
    let timeout = nullable_schema(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(1))
        .maximum(Some(SECONDS_MAX))
        .description(Some("Counted from when the step is ready, waiting and retries included."));
    let id = typed_schema(Type::String).pattern(Some("^[a-z_][a-z0-9_]{0,62}$"));
    let needs = ArrayBuilder::new().items(typed_schema(Type::String)).max_items(Some(STEPS_MAX)).unique_items(true);
    strict_object()
        .property("id", id)
        .property(
            "uses",
            typed_schema(Type::String).enum_values(Some(registry().actions.iter().map(|action| action.name))),
        )
        .property("with", with)
        .property(
            "if",
            expression_schema("A CEL expression; when it is false the step is skipped, and what needs it too."),
        )
        .property("needs", needs.description(Some("Steps that must be done before.")))
        .property("retry", retry)
        .property("timeout_seconds", timeout)
        .property("on_error", Ref::from_schema_name(OnError::name()))
        .property("on_skipped", Ref::from_schema_name(OnSkipped::name()))
        .required("id")
        .required("uses")
        .examples([json!({"id": "note", "uses": "ticket.comment", "with": ticket_comment()})])
}

fn ticket_comment() -> Value {
    json!({"ticket_id": "${{ event.data.id }}", "body": "Somebody is on call.", "public": false})
}

fn new_workflow_schema() -> ObjectBuilder {
    let example = json!({
        "action": WorkflowRequestAction::Create.as_str(), "name": "Escalate",
        "on": {"event": {"types": ["ticket.created"], "if": "event.data.priority == 'critical'"}},
        "steps": [{"id": "note", "uses": "ticket.comment", "with": ticket_comment()}],
    });
    strict_object()
        .property("action", typed_schema(Type::String).enum_values(Some([WorkflowRequestAction::Create.as_str()])))
        .property("name", name_schema())
        .property("enabled", typed_schema(Type::Boolean).description(Some("`true` when omitted.")))
        .property("on", trigger_schema())
        .property("input_schema", input_schema())
        .property("steps", steps_schema())
        .required("action")
        .required("name")
        .required("on")
        .required("steps")
        .examples([example])
}

fn new_run_schema() -> ObjectBuilder {
    let input = typed_schema(Type::Object)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .description(Some("What expressions see as `input`; it must fit `input_schema`. `{}` when omitted."));
    let dry_run = typed_schema(Type::Boolean).description(Some(
        "Evaluates everything as a run would, touches nothing, sends nothing and tells nobody. Kept as a run. `false` when \
         omitted.",
    ));
    let action = typed_schema(Type::String)
        .enum_values(Some([WorkflowRequestAction::Run.as_str()]))
        .description(Some("`run` when omitted."));
    strict_object()
        .property("action", action)
        .property("workflow_id", typed_schema(Type::String))
        .property("input", input)
        .property("dry_run", dry_run)
        .required("workflow_id")
        .examples([json!({"workflow_id": "wf_01jd8z6v2mfkpb7h3q9xw5t4ra", "input": {"minutes": 5}, "dry_run": true})])
}

fn run_control_schema() -> ObjectBuilder {
    let step = nullable_schema(Type::String).description(Some("Which approval is meant, where several wait."));
    strict_object()
        .property("action", Ref::from_schema_name(RunAction::name()))
        .property("step_id", step)
        .required("action")
        .examples([json!({"action": "approve"})])
}

impl PartialSchema for WorkflowRequest {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new().item(Ref::from_schema_name(NEW)).item(Ref::from_schema_name(RUN)).into()
    }
}

impl ToSchema for WorkflowRequest {
    fn name() -> std::borrow::Cow<'static, str> {
        "WorkflowRequest".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let parts = [
            (NEW.to_owned(), new_workflow_schema().into()),
            (RUN.to_owned(), new_run_schema().into()),
            (STEP.to_owned(), step_schema().into()),
        ];
        schemas.extend(parts);
        schemas.extend(trigger_schemas());
        schemas.push((OnError::name().into(), OnError::schema()));
        schemas.push((OnSkipped::name().into(), OnSkipped::schema()));
    }
}

impl PartialSchema for WorkflowPatch {
    fn schema() -> RefOr<Schema> {
        let on = typed_schema(Type::Object)
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .description(Some("Merged into the current trigger; another kind of trigger replaces it."));
        strict_object()
            .property("name", name_schema())
            .property("enabled", typed_schema(Type::Boolean))
            .property("on", on)
            .property("input_schema", input_schema())
            .property("steps", steps_schema().description(Some("All of them.")))
            .examples([json!({"enabled": false})])
            .into()
    }
}

impl ToSchema for WorkflowPatch {
    fn name() -> std::borrow::Cow<'static, str> {
        "WorkflowPatch".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        WorkflowRequest::schemas(schemas);
    }
}

impl PartialSchema for CustomEvent {
    fn schema() -> RefOr<Schema> {
        typed_schema(Type::Object)
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .description(Some("The data that the step gave."))
            .examples([json!({"service": "shop", "version": "1.4.2"})])
            .into()
    }
}

impl ToSchema for CustomEvent {
    fn name() -> std::borrow::Cow<'static, str> {
        "CustomEvent".into()
    }
}

impl PartialSchema for WorkflowChange {
    fn schema() -> RefOr<Schema> {
        let names = [WorkflowPatch::name(), CONTROL.into()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

impl ToSchema for WorkflowChange {
    fn name() -> std::borrow::Cow<'static, str> {
        "WorkflowChange".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        WorkflowPatch::schemas(schemas);
        schemas.push((WorkflowPatch::name().into(), WorkflowPatch::schema()));
        schemas.push((CONTROL.to_owned(), run_control_schema().into()));
        schemas.push((RunAction::name().into(), RunAction::schema()));
    }
}
