//! Checks definitions before the transaction that saves them: a check takes a while, and would block other writers.

use std::collections::BTreeMap;

use kernel::base::{Error, Result, run_blocking};
use kernel::http::read_object;

use super::Definition;
use super::check::{self, CompiledDefinition};
use super::definition::{NewWorkflow, WorkflowPatch};
use super::secrets::{self, StepHeaders};

/// A checked workflow that is about to be saved, with its header values.
pub struct WorkflowToSave {
    pub compiled: CompiledDefinition,
    pub enabled: bool,
}

/// The stored workflow that a change is based on.
pub struct CurrentWorkflow {
    pub version: i64,
    pub enabled: bool,
    /// With masked header values.
    pub definition: Definition,
    pub headers: StepHeaders,
}

/// Checks a new workflow.
pub async fn check_new(new: NewWorkflow) -> Result<WorkflowToSave> {
    run_blocking(move || {
        let empty = Definition { steps: Vec::new(), ..new.definition.clone() };
        check_definition(new, &empty, &BTreeMap::new())
    })
    .await
}

/// Applies a patch and checks the resulting workflow.
pub async fn check_changed(current: CurrentWorkflow, patch: WorkflowPatch) -> Result<WorkflowToSave> {
    run_blocking(move || {
        let patched = patch.apply_to(&current.definition, current.enabled)?;
        let (new, _) = read_object::<NewWorkflow>(patched).into_result()?;
        check_definition(new, &current.definition, &current.headers)
    })
    .await
}

fn check_definition(new: NewWorkflow, old: &Definition, stored_headers: &StepHeaders) -> Result<WorkflowToSave> {
    let NewWorkflow { mut definition, enabled } = new;
    let mut errors = secrets::fill_masked_values(&mut definition, old, stored_headers);
    match check::compile_definition(&definition) {
        Ok(compiled) if errors.is_empty() => return Ok(WorkflowToSave { compiled, enabled }),
        Ok(_) => {}
        Err(more) => errors.extend(more),
    }
    Err(Error::invalid_fields(errors))
}
