//! What a run does next: pure, and the same whatever the order in which its steps have ended.

use super::{OnError, RunError, Status, Step, StepError};

/// What follows from how the steps of a run stand.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Places of the steps whose turn has come.
    pub begin: Vec<usize>,
    /// Places of the steps that will never have one.
    pub skip: Vec<usize>,
    /// How the run stands then.
    pub status: Status,
}

/// Looks at each step in turn until nothing changes. `states` are those of the steps, none for one whose turn has not come.
pub fn plan(steps: &[Step], needs: &[Vec<usize>], states: &[Option<Status>]) -> Plan {
    let mut states = states.to_vec();
    let (mut begin, mut skip) = (Vec::new(), Vec::new());
    loop {
        let mut changed = false;
        for place in 0..steps.len() {
            if states[place].is_some() {
                continue;
            }
            let verdict = turn(steps, &needs[place], &states);
            match verdict {
                Turn::NotYet => continue,
                Turn::Now => begin.push(place),
                Turn::Never => skip.push(place),
            }
            states[place] = Some(if verdict == Turn::Now { Status::Pending } else { Status::Skipped });
            changed = true;
        }
        if !changed {
            break;
        }
    }
    Plan { begin, skip, status: status(steps, &states) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    NotYet,
    Now,
    Never,
}

/// What needs one that was skipped, cancelled or has failed for good will never have its turn.
fn turn(steps: &[Step], needs: &[usize], states: &[Option<Status>]) -> Turn {
    let mut turn = Turn::Now;
    for need in needs {
        match states[*need] {
            Some(state) if !state.is_over() => turn = Turn::NotYet,
            None => turn = Turn::NotYet,
            Some(Status::Succeeded) => {}
            Some(Status::Failed | Status::TimedOut) if steps[*need].on_error == OnError::Continue => {}
            Some(_) => return Turn::Never,
        }
    }
    turn
}

fn status(steps: &[Step], states: &[Option<Status>]) -> Status {
    let open = || states.iter().flatten().filter(|state| !state.is_over());
    if open().any(|state| *state != Status::Waiting) {
        return Status::Running;
    }
    if open().next().is_some() {
        return Status::Waiting;
    }
    let ended = |wanted: Status| {
        let counts =
            |(place, state): (usize, &Option<Status>)| *state == Some(wanted) && steps[place].on_error == OnError::Fail;
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

/// The error of a run: that of the first step, in the order of the definition, that made it end so.
pub fn error(steps: &[Step], ended: &[(Option<Status>, Option<StepError>)], status: Status) -> Option<RunError> {
    let is_why = |step: &Step, state: Option<Status>| state == Some(status) && step.on_error == OnError::Fail;
    let (step, (_, error)) = steps.iter().zip(ended).find(|(step, (state, _))| is_why(step, *state))?;
    let StepError { code, detail } = error.clone()?;
    Some(RunError { code, detail, step_id: Some(step.id.clone()) })
}
