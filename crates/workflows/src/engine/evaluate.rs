//! Evaluates the condition and the `with` of a step.

use kernel::base::Result;
use kernel::events::follow;
use kernel::jobs::steps;
use kernel::store::Db;
use serde_json::{Map, Value, json};

use super::super::depth::{DEPTH_MAX, is_shallow};
use super::super::runs::parse_optional;
use super::super::{RUN_BYTES_MAX, STEP_BYTES_SMALL, StepError, WORKFLOW_LANE};
use super::act::store::Job;
use expressions::{Expression, Fault, Meter, Scope};
use feature_kit::request_headers::MASK;
use feature_kit::{ActionEffect, STEP_BYTES_MAX};

/// The budget of all expressions of one step.
const STEP_COST: u32 = 100_000;
const STEP_COST_BYTES: usize = 1 << 20;

pub enum Evaluated {
    /// The condition is false.
    Skip,
    Do(Map<String, Value>),
    Fault(StepError),
}

/// The owned values of an expression scope.
pub struct Seen {
    pub event: Value,
    pub steps: Value,
    pub run: Value,
}

/// Evaluates a step. Reads the event and the outputs of steps only if an expression names them.
pub async fn evaluate(db: &Db, job: &Job) -> Result<Evaluated> {
    let compiled = &job.revision.compiled.steps[job.place];
    let expressions = || compiled.condition.iter().chain(compiled.with.expressions().map(|(_, expression)| expression));
    let names = |root: &str| expressions().any(|expression| expression.roots().any(|name| name == root));
    let event = match job.run.event_sequence.filter(|_| names("event")) {
        None => Value::Null,
        Some(sequence) => match follow::body(db, sequence).await? {
            Some(body) => match serde_json::from_str(&body) {
                Ok(event) => event,
                Err(_) => return Ok(fault("event_unreadable", "The event cannot be read as JSON.".to_owned())),
            },
            None => return Ok(fault("event_expired", "The event that started the run is no longer kept.".to_owned())),
        },
    };
    let mut outputs = Map::new();
    if names("steps") {
        for (name, state, output) in steps::outputs(db, WORKFLOW_LANE, &job.step.owner).await? {
            let output: Option<Value> = parse_optional(output.as_deref())?;
            outputs.insert(name, json!({ "status": state, "output": output }));
        }
    }
    let seen = Seen { event, steps: Value::Object(outputs), run: job.run.scope() };
    let evaluated = evaluate_with(job, &seen, &mut Meter::new(STEP_COST, STEP_COST_BYTES));
    let Evaluated::Do(with) = &evaluated else { return Ok(evaluated) };
    let own = bytes(with);
    if own > STEP_BYTES_SMALL {
        let all = own + steps::bytes_beside_now(db, WORKFLOW_LANE, &job.seen()).await?;
        if all > RUN_BYTES_MAX {
            let detail = format!(
                "With what it is given the steps of the run would have {all} bytes, and {RUN_BYTES_MAX} are kept."
            );
            return Ok(fault("input_too_large", detail));
        }
    }
    Ok(evaluated)
}

fn bytes(with: &Map<String, Value>) -> usize {
    serde_json::to_string(with).map_or(0, |text| text.len())
}

/// Evaluates a step with inputs that are already loaded.
pub fn evaluate_with(job: &Job, seen: &Seen, meter: &mut Meter) -> Evaluated {
    let compiled = &job.revision.compiled.steps[job.place];
    let scope = Scope {
        input: &job.run.run.input,
        event: &seen.event,
        steps: &seen.steps,
        run: &seen.run,
        now: job.step.ready_at,
    };
    match compiled.condition.as_ref().map(|condition| condition.test(&scope, meter)) {
        Some(Ok(false)) => return Evaluated::Skip,
        Some(Err(error)) => return failed("/if", &error),
        Some(Ok(true)) | None => {}
    }
    match compiled.with.eval(&scope, meter) {
        Ok(Value::Object(with)) => {
            if !is_shallow(&Value::Object(with.clone())) {
                let detail = format!("What it is given is more than {DEPTH_MAX} deep.");
                return fault("input_too_deep", detail);
            }
            let bytes = bytes(&with);
            if bytes > STEP_BYTES_MAX {
                let detail = format!("What it is given is {bytes} bytes long; at most {STEP_BYTES_MAX} are taken.");
                return fault("input_too_large", detail);
            }
            Evaluated::Do(with)
        }
        Ok(_) => fault("expression_failed", "/with is no object".to_owned()),
        Err((pointer, error)) => failed(&format!("/with{pointer}"), &error),
    }
}

/// A `with` as it may be shown, with masked header values.
pub fn masked(job: &Job, with: &Map<String, Value>) -> Value {
    let mut shown = with.clone();
    if matches!(job.action().effect, ActionEffect::Http)
        && let Some(Value::Object(headers)) = shown.get_mut("headers")
    {
        headers.values_mut().for_each(|value| *value = MASK.into());
    }
    Value::Object(shown)
}

/// The budget of a filter.
const FILTER_COST: u32 = 10_000;
const FILTER_COST_BYTES: usize = 256 << 10;

/// Whether an event passes a filter.
pub fn passes(filter: &Expression, event: &Value, now: kernel::base::Timestamp) -> Result<bool, StepError> {
    let nothing = Value::Null;
    let scope = Scope { input: &nothing, event, steps: &nothing, run: &nothing, now };
    filter.test(&scope, &mut Meter::new(FILTER_COST, FILTER_COST_BYTES)).map_err(|error| told("/on/event/if", &error))
}

fn failed(pointer: &str, error: &Fault) -> Evaluated {
    Evaluated::Fault(told(pointer, error))
}

fn told(pointer: &str, error: &Fault) -> StepError {
    let code = if matches!(error, Fault::Spent) { "expression_too_costly" } else { "expression_failed" };
    StepError { code: code.to_owned(), detail: format!("{pointer}: {error}") }
}

fn fault(code: &str, detail: String) -> Evaluated {
    Evaluated::Fault(StepError { code: code.to_owned(), detail })
}
