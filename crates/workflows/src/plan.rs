//! Computes what a run does next. Pure: the result does not depend on the order in which steps have ended.

use super::{OnError, RunError, Status, StepError, WorkflowStep};

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
            let readiness = step_readiness(steps, &needs[index], &states);
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

/// A step never becomes ready if a step it needs was skipped, was cancelled, or failed without `on_error: continue`.
fn step_readiness(steps: &[WorkflowStep], needs: &[usize], states: &[Option<Status>]) -> StepReadiness {
    let mut readiness = StepReadiness::Ready;
    for need in needs {
        match states[*need] {
            Some(state) if !state.is_finished() => readiness = StepReadiness::NotYet,
            None => readiness = StepReadiness::NotYet,
            Some(Status::Succeeded) => {}
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

/// The error of a run: that of the first step, in the order of the definition, that gave the run this status.
pub fn run_error(
    steps: &[WorkflowStep],
    ended: &[(Option<Status>, Option<StepError>)],
    status: Status,
) -> Option<RunError> {
    let is_cause = |step: &WorkflowStep, state: Option<Status>| state == Some(status) && step.on_error == OnError::Fail;
    let (step, (_, error)) = steps.iter().zip(ended).find(|(step, (state, _))| is_cause(step, *state))?;
    let StepError { code, detail } = error.clone()?;
    Some(RunError { code, detail, step_id: Some(step.id.clone()) })
}
