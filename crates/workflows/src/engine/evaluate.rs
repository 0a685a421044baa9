//! Evaluates the condition and the `with` of a step.

use expressions::{CostMeter, Expression, ExpressionError, ExpressionScope};
use feature_kit::request_headers::MASK;
use feature_kit::{ActionEffect, STEP_BYTES_MAX};
use kernel::base::Result;
use kernel::events::follow;
use kernel::jobs::steps;
use kernel::store::{Db, from_optional_json};
use serde_json::{Map, Value, json};

use super::super::json_depth::{JSON_DEPTH_MAX, is_shallow};
use super::super::{RUN_BYTES_MAX, STEP_BYTES_SMALL, Status, StepError, WORKFLOW_LANE};
use super::step_results::store::StepJob;

/// The budget of all expressions of one step.
const STEP_COST: u32 = 100_000;
const STEP_COST_BYTES: usize = 1 << 20;

pub enum EvaluatedStep {
    /// The condition is false.
    Skip,
    Run(Map<String, Value>),
    Fault(StepError),
}

/// The owned values of an expression scope.
pub struct ExpressionInputs {
    pub event: Value,
    pub steps: Value,
    pub run: Value,
}

/// Evaluates a step. Reads the event and the outputs of steps only if an expression names them.
pub async fn evaluate_step(db: &Db, job: &StepJob) -> Result<EvaluatedStep> {
    let compiled = &job.revision.compiled.steps[job.step_index];
    let expressions = || compiled.condition.iter().chain(compiled.with.expressions().map(|(_, expression)| expression));
    let names = |root: &str| expressions().any(|expression| expression.referenced_roots().any(|name| name == root));
    let event = match job.run.event_sequence.filter(|_| names("event")) {
        None => Value::Null,
        Some(sequence) => match follow::find_body(db, sequence).await? {
            Some(body) => match serde_json::from_str(&body) {
                Ok(event) => event,
                Err(_) => {
                    return Ok(evaluation_failed("event_unreadable", "The event cannot be read as JSON.".to_owned()));
                }
            },
            None => {
                return Ok(evaluation_failed(
                    "event_expired",
                    "The event that started the run is no longer kept.".to_owned(),
                ));
            }
        },
    };
    let mut outputs = Map::new();
    if names("steps") {
        for step in steps::list_step_results(db, WORKFLOW_LANE, &job.step.owner).await? {
            let value = step_scope_value(step.state, step.output.as_deref(), step.error.as_deref())?;
            outputs.insert(step.name, value);
        }
    }
    let inputs = ExpressionInputs { event, steps: Value::Object(outputs), run: job.run.to_scope_value() };
    let evaluated = evaluate_step_with(job, &inputs, &mut CostMeter::new(STEP_COST, STEP_COST_BYTES));
    let EvaluatedStep::Run(with) = &evaluated else { return Ok(evaluated) };
    let own = json_bytes(with);
    if own > STEP_BYTES_SMALL {
        let total = own + steps::count_other_bytes_now(db, WORKFLOW_LANE, &job.seen_attempt()).await?;
        if total > RUN_BYTES_MAX {
            let detail = format!(
                "With this input the steps of the run would have {total} bytes; at most {RUN_BYTES_MAX} are kept."
            );
            return Ok(evaluation_failed("input_too_large", detail));
        }
    }
    Ok(evaluated)
}

/// What expressions see of a step that has ended.
pub fn step_scope_value(state: Status, output: Option<&str>, error: Option<&str>) -> Result<Value> {
    let (output, error): (Option<Value>, Option<StepError>) = (from_optional_json(output)?, from_optional_json(error)?);
    Ok(json!({ "status": state, "output": output, "error": error }))
}

fn json_bytes(with: &Map<String, Value>) -> usize {
    serde_json::to_string(with).map_or(0, |text| text.len())
}

/// Evaluates a step with inputs that are already loaded.
pub fn evaluate_step_with(job: &StepJob, inputs: &ExpressionInputs, meter: &mut CostMeter) -> EvaluatedStep {
    let compiled = &job.revision.compiled.steps[job.step_index];
    let scope = ExpressionScope {
        input: &job.run.run.input,
        event: &inputs.event,
        steps: &inputs.steps,
        run: &inputs.run,
        now: job.step.ready_at,
        item: None,
    };
    match compiled.condition.as_ref().map(|condition| condition.eval_condition(&scope, meter)) {
        Some(Ok(false)) => return EvaluatedStep::Skip,
        Some(Err(error)) => return expression_failed("/if", &error),
        Some(Ok(true)) | None => {}
    }
    match compiled.with.eval_to_json(&scope, meter) {
        Ok(Value::Object(with)) => {
            if !is_shallow(&Value::Object(with.clone())) {
                let detail = format!("The input is more than {JSON_DEPTH_MAX} levels deep.");
                return evaluation_failed("input_too_deep", detail);
            }
            let bytes = json_bytes(&with);
            if bytes > STEP_BYTES_MAX {
                let detail = format!("The input has {bytes} bytes; at most {STEP_BYTES_MAX} are allowed.");
                return evaluation_failed("input_too_large", detail);
            }
            EvaluatedStep::Run(with)
        }
        Ok(_) => evaluation_failed("expression_failed", "/with is no object".to_owned()),
        Err((pointer, error)) => expression_failed(&format!("/with{pointer}"), &error),
    }
}

/// A `with` as it may be shown, with masked header values.
pub fn mask_input(job: &StepJob, with: &Map<String, Value>) -> Value {
    let mut masked = with.clone();
    if matches!(job.step_action().effect, ActionEffect::Http)
        && let Some(Value::Object(headers)) = masked.get_mut("headers")
    {
        headers.values_mut().for_each(|value| *value = MASK.into());
    }
    Value::Object(masked)
}

/// The budget of a filter.
const FILTER_COST: u32 = 10_000;
const FILTER_COST_BYTES: usize = 256 << 10;

/// Whether an event passes a filter.
pub fn passes_filter(filter: &Expression, event: &Value, now: kernel::base::Timestamp) -> Result<bool, StepError> {
    let nothing = Value::Null;
    let scope = ExpressionScope { input: &nothing, event, steps: &nothing, run: &nothing, now, item: None };
    filter
        .eval_condition(&scope, &mut CostMeter::new(FILTER_COST, FILTER_COST_BYTES))
        .map_err(|error| expression_step_error("/on/event/if", &error))
}

fn expression_failed(pointer: &str, error: &ExpressionError) -> EvaluatedStep {
    EvaluatedStep::Fault(expression_step_error(pointer, error))
}

fn expression_step_error(pointer: &str, error: &ExpressionError) -> StepError {
    let code =
        if matches!(error, ExpressionError::BudgetExceeded) { "expression_too_costly" } else { "expression_failed" };
    StepError::new(code, format!("{pointer}: {error}"))
}

fn evaluation_failed(code: &str, detail: String) -> EvaluatedStep {
    EvaluatedStep::Fault(StepError::new(code, detail))
}
