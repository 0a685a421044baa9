//! Checks and compiles definitions. A definition is checked when it is saved, and every error has the pointer of its
//! field.

use std::collections::{HashMap, HashSet};

use expressions::{Expression, ExpressionError};
use feature_kit::registry;
use feature_kit::request_headers;
use feature_kit::{Action, ActionEffect};
use kernel::auth::{Scope, Scopes};
use kernel::base::{Error, FieldError, Result};
use kernel::http::ParsedObject;
use kernel::outbound::{BadTarget, Target};
use kernel::store::references::RecordReference;
use serde_json::{Map, Value};

use super::json_depth::{JSON_DEPTH_MAX, is_shallow};
use super::pointer::join_pointer;
use super::schema::InputSchema;
use super::template::Template;
use super::{DEFINITION_BYTES_MAX, Definition, EXPRESSIONS_MAX, Trigger, WorkflowStep, secrets};
use feature_kit::schedule::{CronSchedule, ScheduleField};

/// More errors than this only make the response large.
const ERRORS_MAX: usize = 100;
/// The roots that the filter of an event trigger can read.
const FILTER_ROOTS: &[&str] = &["event", "now"];
/// Roots that only steps with items have.
const ROOTS_OF_ITEMS: &[&str] = &["item", "index"];
/// Errors that do not depend on a field's value, and so are reported for templates too.
const VALUE_INDEPENDENT_CODES: &[&str] = &["unknown_field", "header_not_allowed", "duplicate_header", "not_alone"];

/// A parsed and checked definition. It has no `Debug`: it may hold secrets.
pub struct CompiledDefinition {
    pub definition: Definition,
    pub steps: Vec<CompiledStep>,
    pub filter: Option<Expression>,
    pub schedule: Option<CronSchedule>,
    pub input_schema: Option<InputSchema>,
    /// Records that the definition names literally; they must exist when it is saved.
    pub references: Vec<RecordReference>,
}

/// A compiled step, at the same index as in the definition.
pub struct CompiledStep {
    pub action: &'static Action,
    pub condition: Option<Expression>,
    pub with: Template,
    /// Indexes of the steps it needs.
    pub needs: Vec<usize>,
}

pub fn compile_definition(definition: &Definition) -> Result<CompiledDefinition, Vec<FieldError>> {
    let mut checker = DefinitionChecker::default();
    let bytes = serde_json::to_string(definition).map_or(usize::MAX, |text| text.len());
    if bytes > DEFINITION_BYTES_MAX {
        let detail = format!("a definition is at most {DEFINITION_BYTES_MAX} bytes of JSON, not {bytes}");
        checker.add_error("/steps".to_owned(), "too_long", detail);
        return Err(checker.errors);
    }
    let filter = checker.compile_filter(&definition.on);
    let schedule = checker.compile_schedule(&definition.on);
    let input_schema = definition.input_schema.as_ref().and_then(|schema| checker.compile_input_schema(schema));
    let step_indexes = checker.index_steps(&definition.steps);
    let mut steps = Vec::with_capacity(definition.steps.len());
    for (at, step) in definition.steps.iter().enumerate() {
        steps.extend(checker.compile_step(at, step, &step_indexes));
        if checker.expressions > EXPRESSIONS_MAX {
            let detail = format!("have more than {EXPRESSIONS_MAX} expressions");
            checker.add_error("/steps".to_owned(), "too_many", detail);
            break;
        }
    }
    checker.check_cycles(&definition.steps, &step_indexes);
    let DefinitionChecker { mut errors, references, .. } = checker;
    if !errors.is_empty() {
        errors.truncate(ERRORS_MAX);
        return Err(errors);
    }
    Ok(CompiledDefinition { definition: definition.clone(), steps, filter, schedule, input_schema, references })
}

impl CompiledDefinition {
    /// The scopes its saver must hold, when it is saved and when a run acts: those of its actions, and to read its events.
    pub fn required_scopes(&self) -> Result<Scopes> {
        let of_actions = self.steps.iter().flat_map(|step| step.action.needs);
        let read = match &self.definition.on {
            Trigger::Event(event) => registry().scopes_needed(event.types.iter().map(String::as_str))?,
            Trigger::Schedule(_) | Trigger::Manual(_) => Scopes::default(),
        };
        let words = [Scope::WorkflowsWrite].iter().chain(of_actions).map(|scope| scope.name());
        Scopes::parse(words.chain(read.granted_words().iter().map(String::as_str))).map_err(Error::internal)
    }

    /// The literal origins of its requests, each with the pointer of its `url`.
    pub fn request_targets(&self) -> Vec<(String, Target)> {
        let steps = self.definition.steps.iter().enumerate();
        steps
            .filter_map(|(at, step)| Some((format!("/steps/{at}/with/url"), secrets::request_origin(step)?.ok()?)))
            .collect()
    }
}

/// Collects errors and references while a definition is checked.
#[derive(Default)]
struct DefinitionChecker {
    errors: Vec<FieldError>,
    references: Vec<RecordReference>,
    expressions: usize,
}

impl DefinitionChecker {
    fn add_error(&mut self, pointer: String, code: &'static str, detail: impl Into<String>) {
        self.errors.push(FieldError { pointer, code, detail: detail.into() });
    }

    fn add_expression_error(&mut self, pointer: String, fault: &ExpressionError) {
        self.add_error(pointer, fault.code(), fault.to_string());
    }

    fn parse_expression(&mut self, pointer: String, source: &str) -> Option<Expression> {
        self.expressions += 1;
        Expression::parse(source).map_err(|fault| self.add_expression_error(pointer, &fault)).ok()
    }

    fn compile_filter(&mut self, on: &Trigger) -> Option<Expression> {
        let Trigger::Event(event) = on else { return None };
        let pointer = "/on/event/if".to_owned();
        let filter = self.parse_expression(pointer.clone(), event.condition.as_deref()?)?;
        if let Some(root) = filter.referenced_roots().find(|root| !FILTER_ROOTS.contains(root)) {
            let detail = format!("There is no {root} before a run begins; here are event and now.");
            self.add_error(pointer, "bad_expression", detail);
        }
        Some(filter)
    }

    fn compile_schedule(&mut self, on: &Trigger) -> Option<CronSchedule> {
        let Trigger::Schedule(schedule) = on else { return None };
        let bad = match CronSchedule::parse(&schedule.cron, &schedule.timezone) {
            Ok(schedule) => return Some(schedule),
            Err(bad) => bad,
        };
        // After an error in `cron` the time zone has not been checked yet.
        let zone = match bad.field {
            ScheduleField::Cron => CronSchedule::parse("0 0 * * *", &schedule.timezone).err(),
            ScheduleField::Timezone => None,
        };
        for bad in [Some(bad), zone].into_iter().flatten() {
            self.add_error(format!("/on/schedule/{}", bad.field.name()), bad.code, bad.detail);
        }
        None
    }

    fn compile_input_schema(&mut self, schema: &Value) -> Option<InputSchema> {
        let parsed = InputSchema::parse(schema);
        let report_faults = |faults: Vec<_>| {
            for (pointer, code, detail) in faults {
                self.add_error(format!("/input_schema{pointer}"), code, detail);
            }
        };
        parsed.map_err(report_faults).ok()
    }

    /// The index of each step by its id.
    fn index_steps<'a>(&mut self, steps: &'a [WorkflowStep]) -> HashMap<&'a str, usize> {
        let mut step_indexes = HashMap::new();
        for (at, step) in steps.iter().enumerate() {
            if step_indexes.contains_key(step.id.as_str()) {
                self.add_error(format!("/steps/{at}/id"), "duplicate_step", format!("there are two steps {}", step.id));
            } else {
                step_indexes.insert(step.id.as_str(), at);
            }
        }
        step_indexes
    }

    fn compile_step(
        &mut self,
        at: usize,
        step: &WorkflowStep,
        step_indexes: &HashMap<&str, usize>,
    ) -> Option<CompiledStep> {
        let action = registry().find_action(&step.uses);
        if action.is_none() {
            let uses: String = step.uses.chars().take(60).collect();
            let names = registry().actions.iter().map(|action| action.name).collect::<Vec<_>>().join(", ");
            let detail = format!("{uses:?} is not an action; known are {names}");
            self.add_error(format!("/steps/{at}/uses"), "unknown_action", detail);
        }
        let needs = self.resolve_needs(at, step, step_indexes);
        let pointer = format!("/steps/{at}/if");
        let condition = step.condition.as_ref().map(|source| self.parse_expression(pointer.clone(), source));
        if let Some(Some(condition)) = &condition {
            self.check_step_references(&pointer, condition, step, step_indexes);
        }
        let with = self.compile_template(at, step, step_indexes)?;
        if let Some(action) = action {
            self.check_input(at, step, action, &with);
        }
        let condition = match condition {
            Some(condition) => Some(condition?),
            None => None,
        };
        Some(CompiledStep { action: action?, condition, with, needs })
    }

    fn resolve_needs(&mut self, at: usize, step: &WorkflowStep, step_indexes: &HashMap<&str, usize>) -> Vec<usize> {
        let mut needs = Vec::with_capacity(step.needs.len());
        for (need_index, need) in step.needs.iter().enumerate() {
            let pointer = format!("/steps/{at}/needs/{need_index}");
            match step_indexes.get(need.as_str()) {
                None => self.add_error(pointer, "unknown_step", "there is no such step"),
                Some(index) if needs.contains(index) => self.add_error(pointer, "duplicate_step", "is named twice"),
                Some(index) => needs.push(*index),
            }
        }
        needs
    }

    fn compile_template(
        &mut self,
        at: usize,
        step: &WorkflowStep,
        step_indexes: &HashMap<&str, usize>,
    ) -> Option<Template> {
        let prefix = format!("/steps/{at}/with");
        let with = Value::Object(step.with.clone());
        if !is_shallow(&with) {
            self.add_error(prefix, "too_deep", format!("must be at most {JSON_DEPTH_MAX} deep"));
            return None;
        }
        match Template::parse(&with) {
            Ok(with) => {
                for (pointer, expression) in with.expressions() {
                    self.expressions += 1;
                    self.check_step_references(&format!("{prefix}{pointer}"), expression, step, step_indexes);
                }
                Some(with)
            }
            Err(faults) => {
                for (pointer, fault) in faults {
                    self.add_expression_error(format!("{prefix}{pointer}"), &fault);
                }
                None
            }
        }
    }

    /// Checks that a step needs every step that its expression reads, and that it reads nothing else that is not there.
    fn check_step_references(
        &mut self,
        pointer: &str,
        expression: &Expression,
        step: &WorkflowStep,
        step_indexes: &HashMap<&str, usize>,
    ) {
        for root in expression.referenced_roots().filter(|root| ROOTS_OF_ITEMS.contains(root)) {
            self.add_error(pointer.to_owned(), "bad_expression", format!("There is no {root} here."));
        }
        for id in expression.referenced_steps() {
            if !step_indexes.contains_key(id) {
                self.add_error(pointer.to_owned(), "unknown_step", format!("there is no step {id}"));
            } else if !step.needs.iter().any(|need| need == id) {
                self.add_error(
                    pointer.to_owned(),
                    "missing_need",
                    format!("steps.{id} needs {id} in the step's needs"),
                );
            }
        }
    }

    /// Checks the input of the action. Values of templates are not known yet, so errors about them are left out.
    fn check_input(&mut self, at: usize, step: &WorkflowStep, action: &Action, with: &Template) {
        let templated: HashSet<&str> = with.templated_pointers().collect();
        let ParsedObject { errors, references, .. } = (action.check)(step.with.clone());
        let prefix = format!("/steps/{at}/with");
        for error in errors {
            if !templated.contains(error.pointer.as_str()) || VALUE_INDEPENDENT_CODES.contains(&error.code) {
                self.add_error(format!("{prefix}{}", error.pointer), error.code, error.detail);
            }
        }
        let literal = references.into_iter().filter(|reference| !templated.contains(reference.pointer.as_str()));
        self.references.extend(literal.map(|reference| {
            let pointer = format!("{prefix}{}", reference.pointer);
            RecordReference { pointer, ..reference }
        }));
        if matches!(action.effect, ActionEffect::Http) {
            self.check_http_input(&prefix, step, &templated);
        }
    }

    /// Checks the fields of a request that must be literal because its headers are secrets.
    fn check_http_input(&mut self, prefix: &str, step: &WorkflowStep, templated: &HashSet<&str>) {
        if templated.contains("/headers") {
            self.add_error(format!("{prefix}/headers"), "wrong_type", "must be an object");
        }
        let names = step.with.get("headers").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        for name in names.clone().filter(|name| !request_headers::is_header_name(name)) {
            let pointer = join_pointer("/headers", name);
            // For a literal value the action's own check has reported it.
            if templated.contains(pointer.as_str()) {
                self.add_error(format!("{prefix}{pointer}"), "invalid_header", request_headers::NOT_A_NAME);
            }
        }
        if !templated.contains("/url") {
            return;
        }
        let url = format!("{prefix}/url");
        match secrets::request_origin(step) {
            Some(Err(BadTarget::NotAllowed(refusal))) => self.add_error(url, "target_not_allowed", refusal.detail),
            Some(Err(BadTarget::NotAUrl(detail))) => self.add_error(url, "invalid_url", detail),
            None if names.count() > 0 => {
                let detail = "must have a fixed scheme, host and port when there are headers, whose values are for one \
                              server only";
                self.add_error(url, "templated_host", detail);
            }
            Some(Ok(_)) | None => {}
        }
    }

    /// Reports steps that need each other in a cycle.
    fn check_cycles(&mut self, steps: &[WorkflowStep], step_indexes: &HashMap<&str, usize>) {
        let needs = |step: &WorkflowStep| {
            step.needs.iter().filter_map(|need| step_indexes.get(need.as_str()).copied()).collect()
        };
        let needs: Vec<Vec<usize>> = steps.iter().map(needs).collect();
        let mut left: HashSet<usize> = (0..steps.len()).collect();
        loop {
            // A step that needs none of the remaining steps, or that none of them needs, is in no cycle.
            let free = left.iter().copied().find(|at| {
                let waits = needs[*at].iter().any(|need| left.contains(need));
                let awaited = left.iter().any(|other| needs[*other].contains(at));
                !waits || !awaited
            });
            match free {
                Some(at) => drop(left.remove(&at)),
                None => break,
            }
        }
        for at in (0..steps.len()).filter(|at| left.contains(at)) {
            self.add_error(format!("/steps/{at}/needs"), "cycle", "waits for itself, directly or by other steps");
        }
    }
}
