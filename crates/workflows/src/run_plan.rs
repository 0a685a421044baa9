//! Computes what a run does next. Pure: the result does not depend on the order in which steps have ended.

use kernel::base::{Error, Result};

use super::{OnError, OnSkipped, RunError, Status, StepError, WorkflowStep};

/// What follows from the states of a run's steps.
#[derive(Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// Indexes of the steps that are ready.
    pub begin: Vec<usize>,
    /// Indexes of the steps that can never become ready.
    pub skip: Vec<usize>,
    /// The status of the run after that.
    pub status: Status,
}

/// Examines the steps until nothing changes. `states` are their states, `None` for a step that is not ready yet.
pub fn plan_run(steps: &[WorkflowStep], needs: &[Vec<usize>], states: &[Option<Status>]) -> RunPlan {
    let mut states = states.to_vec();
    let (mut begin, mut skip) = (Vec::new(), Vec::new());
    loop {
        let mut changed = false;
        for index in 0..steps.len() {
            if states[index].is_some() {
                continue;
            }
            let readiness = step_readiness(steps, index, &needs[index], &states);
            match readiness {
                StepReadiness::NotYet => continue,
                StepReadiness::Ready => begin.push(index),
                StepReadiness::Never => skip.push(index),
            }
            states[index] = Some(if readiness == StepReadiness::Ready { Status::Pending } else { Status::Skipped });
            changed = true;
        }
        if !changed {
            break;
        }
    }
    RunPlan { begin, skip, status: run_status(steps, &states) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StepReadiness {
    NotYet,
    Ready,
    Never,
}

/// A step never becomes ready if a step it needs was cancelled, failed without `on_error: continue`, or was skipped and this one
/// is without `on_skipped: continue`.
fn step_readiness(steps: &[WorkflowStep], index: usize, needs: &[usize], states: &[Option<Status>]) -> StepReadiness {
    let mut readiness = StepReadiness::Ready;
    for need in needs {
        match states[*need] {
            Some(state) if !state.is_finished() => readiness = StepReadiness::NotYet,
            None => readiness = StepReadiness::NotYet,
            Some(Status::Succeeded) => {}
            Some(Status::Skipped) if steps[index].on_skipped == OnSkipped::Continue => {}
            Some(Status::Failed | Status::TimedOut) if steps[*need].on_error == OnError::Continue => {}
            Some(_) => return StepReadiness::Never,
        }
    }
    readiness
}

fn run_status(steps: &[WorkflowStep], states: &[Option<Status>]) -> Status {
    let open = || states.iter().flatten().filter(|state| !state.is_finished());
    if open().any(|state| *state != Status::Waiting) {
        return Status::Running;
    }
    if open().next().is_some() {
        return Status::Waiting;
    }
    let ended = |status: Status| {
        let counts =
            |(index, state): (usize, &Option<Status>)| *state == Some(status) && steps[index].on_error == OnError::Fail;
        states.iter().enumerate().any(counts)
    };
    if ended(Status::Failed) {
        Status::Failed
    } else if ended(Status::TimedOut) {
        Status::TimedOut
    } else if states.iter().all(|state| *state == Some(Status::Skipped)) {
        Status::Skipped
    } else {
        Status::Succeeded
    }
}

/// The error of a run: that of the first step, in the order of the definition, that gave the run this status. `find_step`
/// returns the status of a step and the JSON of its error.
pub fn run_error<'a>(
    steps: &[WorkflowStep],
    status: Status,
    find_step: impl Fn(&str) -> Option<(Status, Option<&'a str>)>,
) -> Result<Option<RunError>> {
    let is_cause = |step: &&WorkflowStep| {
        step.on_error == OnError::Fail && find_step(&step.id).is_some_and(|(state, _)| state == status)
    };
    let Some(step) = steps.iter().find(is_cause) else { return Ok(None) };
    let Some((_, Some(error))) = find_step(&step.id) else { return Ok(None) };
    let StepError { code, detail, .. } = serde_json::from_str(error).map_err(Error::internal)?;
    Ok(Some(RunError { code, detail, step_id: Some(step.id.clone()) }))
}

/// The indexes of the steps that each step needs.
pub fn need_indexes(steps: &[WorkflowStep]) -> Vec<Vec<usize>> {
    let index_of = |id: &String| steps.iter().position(|step| step.id == *id);
    steps.iter().map(|step| step.needs.iter().filter_map(index_of).collect()).collect()
}
