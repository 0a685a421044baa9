//! OpenAPI schemas of the bodies that `definition` parses.

use kernel::base::Word;
use serde_json::{Value, json};
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, SchemaType,
    Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::actions::CustomEvent;
use super::definition::{Action, Change, Request, RunAction, WorkflowPatch};
use super::{BACKOFF_SECONDS_DEFAULT, BACKOFF_SECONDS_MAX, OnError, RETRIES_MAX, SECONDS_MAX, STEPS_MAX};
use feature_kit::registry;
use feature_kit::subscription::patterns_schema;

/// Names of the schemas.
const STEP: &str = "WorkflowStepInput";
const NEW: &str = "WorkflowInput";
const RUN: &str = "WorkflowRunInput";
const CONTROL: &str = "WorkflowRunControl";

fn kind(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(kind)
}

fn nullable(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::from_iter([kind, Type::Null]))
}

fn strict() -> ObjectBuilder {
    kind(Type::Object).additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

fn whole(most: i64) -> ObjectBuilder {
    kind(Type::Integer).format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64))).maximum(Some(most))
}

fn expression(about: &str) -> ObjectBuilder {
    nullable(Type::String).max_length(Some(expressions::SOURCE_BYTES_MAX)).description(Some(about))
}

fn name() -> ObjectBuilder {
    kind(Type::String).min_length(Some(1)).max_length(Some(200)).pattern(Some("\\S"))
}

fn trigger() -> OneOfBuilder {
    let event = strict()
        .property("types", patterns_schema())
        .property("if", expression("A CEL expression over `event`; without one every event counts."))
        .required("types");
    let schedule = strict()
        .property(
            "cron",
            kind(Type::String).description(Some("Minute, hour, day of the month, month, day of the week.")),
        )
        .property("timezone", kind(Type::String).description(Some("Of the IANA database; `UTC` when omitted.")))
        .required("cron");
    let one = |name: &str, of: ObjectBuilder| strict().property(name, of).required(name);
    OneOfBuilder::new().item(one("event", event)).item(one("schedule", schedule)).item(one("manual", strict()))
}

fn input_schema() -> ObjectBuilder {
    nullable(Type::Object)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .description(Some("A JSON Schema (2020-12, without references) that the input of a call must fit."))
}

fn steps() -> ArrayBuilder {
    ArrayBuilder::new().items(Ref::from_schema_name(STEP)).min_items(Some(1)).max_items(Some(STEPS_MAX))
}

fn step() -> ObjectBuilder {
    let about: Vec<String> = registry()
        .actions
        .iter()
        .map(|action| format!("- `{}` {} `{}`", action.name, action.about, (action.example)()))
        .collect();
    let with = kind(Type::Object).additional_properties(Some(AdditionalProperties::FreeForm(true))).description(Some(
        format!("What the action is given. Texts may hold `${{{{ CEL }}}}`.\n\n{}", about.join("\n")),
    ));
    let retry = strict().property("max", whole(RETRIES_MAX).minimum(Some(0)).default(Some(0.into()))).property(
        "backoff_seconds",
        whole(BACKOFF_SECONDS_MAX).minimum(Some(1)).default(Some(BACKOFF_SECONDS_DEFAULT.into())),
    );
    let timeout = nullable(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(1))
        .maximum(Some(SECONDS_MAX))
        .description(Some("From when its turn came, waiting and retries included."));
    let id = kind(Type::String).pattern(Some("^[a-z_][a-z0-9_]{0,62}$"));
    let needs = ArrayBuilder::new().items(kind(Type::String)).max_items(Some(STEPS_MAX)).unique_items(true);
    strict()
        .property("id", id)
        .property("uses", kind(Type::String).enum_values(Some(registry().actions.iter().map(|action| action.name))))
        .property("with", with)
        .property("if", expression("A CEL expression; when it is false the step is skipped, and what needs it too."))
        .property("needs", needs.description(Some("Steps that must be done before.")))
        .property("retry", retry)
        .property("timeout_seconds", timeout)
        .property("on_error", Ref::from_schema_name(OnError::name()))
        .required("id")
        .required("uses")
        .examples([json!({"id": "note", "uses": "ticket.comment", "with": ticket_comment()})])
}

fn ticket_comment() -> Value {
    json!({"ticket_id": "${{ event.data.id }}", "body": "Somebody is on call.", "public": false})
}

fn new() -> ObjectBuilder {
    let example = json!({
        "action": Action::Create.as_str(), "name": "Escalate",
        "on": {"event": {"types": ["ticket.created"], "if": "event.data.priority == 'critical'"}},
        "steps": [{"id": "note", "uses": "ticket.comment", "with": ticket_comment()}],
    });
    strict()
        .property("action", kind(Type::String).enum_values(Some([Action::Create.as_str()])))
        .property("name", name())
        .property("enabled", kind(Type::Boolean).default(Some(true.into())))
        .property("on", trigger())
        .property("input_schema", input_schema())
        .property("steps", steps())
        .required("action")
        .required("name")
        .required("on")
        .required("steps")
        .examples([example])
}

fn run() -> ObjectBuilder {
    let input = kind(Type::Object)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .description(Some("What expressions see as `input`; it must fit `input_schema`. `{}` when omitted."));
    let dry_run = kind(Type::Boolean).default(Some(false.into())).description(Some(
        "Evaluates everything as a run would, touches nothing, sends nothing and tells nobody. Kept as a run.",
    ));
    let action =
        kind(Type::String).enum_values(Some([Action::Run.as_str()])).default(Some(Action::Run.as_str().into()));
    strict()
        .property("action", action)
        .property("workflow_id", kind(Type::String))
        .property("input", input)
        .property("dry_run", dry_run)
        .required("workflow_id")
        .examples([json!({"workflow_id": "wf_01jd8z6v2mfkpb7h3q9xw5t4ra", "input": {"minutes": 5}, "dry_run": true})])
}

fn control() -> ObjectBuilder {
    let step = nullable(Type::String).description(Some("Which approval is meant, where several wait."));
    strict()
        .property("action", Ref::from_schema_name(RunAction::name()))
        .property("step_id", step)
        .required("action")
        .examples([json!({"action": "approve"})])
}

impl PartialSchema for Request {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new().item(Ref::from_schema_name(NEW)).item(Ref::from_schema_name(RUN)).into()
    }
}

impl ToSchema for Request {
    fn name() -> std::borrow::Cow<'static, str> {
        "WorkflowRequest".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let parts = [(NEW.to_owned(), new().into()), (RUN.to_owned(), run().into()), (STEP.to_owned(), step().into())];
        schemas.extend(parts);
        schemas.push((OnError::name().into(), OnError::schema()));
    }
}

impl PartialSchema for WorkflowPatch {
    fn schema() -> RefOr<Schema> {
        let on = kind(Type::Object)
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .description(Some("Merged into what there is; another kind of trigger takes its place."));
        strict()
            .property("name", name())
            .property("enabled", kind(Type::Boolean))
            .property("on", on)
            .property("input_schema", input_schema())
            .property("steps", steps().description(Some("All of them.")))
            .examples([json!({"enabled": false})])
            .into()
    }
}

impl ToSchema for WorkflowPatch {
    fn name() -> std::borrow::Cow<'static, str> {
        "WorkflowPatch".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Request::schemas(schemas);
    }
}

impl PartialSchema for CustomEvent {
    fn schema() -> RefOr<Schema> {
        kind(Type::Object)
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .description(Some("Whatever the step said."))
            .examples([json!({"service": "shop", "version": "1.4.2"})])
            .into()
    }
}

impl ToSchema for CustomEvent {
    fn name() -> std::borrow::Cow<'static, str> {
        "CustomEvent".into()
    }
}

impl PartialSchema for Change {
    fn schema() -> RefOr<Schema> {
        let names = [WorkflowPatch::name(), CONTROL.into()];
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(Ref::from_schema_name(name))).into()
    }
}

impl ToSchema for Change {
    fn name() -> std::borrow::Cow<'static, str> {
        "WorkflowChange".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        WorkflowPatch::schemas(schemas);
        schemas.push((WorkflowPatch::name().into(), WorkflowPatch::schema()));
        schemas.push((CONTROL.to_owned(), control().into()));
        schemas.push((RunAction::name().into(), RunAction::schema()));
    }
}
