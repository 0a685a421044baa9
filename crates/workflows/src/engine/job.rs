//! Runs one step when it is due.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use kernel::base::{Code, Error, Result};
use kernel::http::read_object;
use kernel::jobs::dispatch::Ended;
use kernel::jobs::lanes::Lane;
use kernel::jobs::steps::Acted;
use serde_json::{Map, Value};

use super::super::actions::Wait;
use super::super::{Status, StepError};
use super::act::store::{self as act, End, Job, Verdict, attempt};
use super::evaluate::{Evaluated, evaluate, masked};
use super::store::lost;
use super::{Running, http};
use feature_kit::{ActionEffect, Lookup};

/// An outcome that is still to be saved.
pub enum Outcome {
    Attempted(Box<(Job, Verdict)>),
    /// The database was unavailable: nothing was tried, and the step is loaded again a little later.
    Later(Box<Job>),
    /// The lookup is unavailable on this node: nothing was tried, and the step is postponed.
    Away(Box<Job>),
}

/// Runs a step, and turns a panic into a failed attempt.
pub async fn run(engine: Running, lane: Lane, job: Job) -> Ended<Outcome> {
    // A panic would end the work on the whole lane, and happen again when the lane is leased again.
    let done = AssertUnwindSafe(step(&engine, &lane, &job)).catch_unwind().await;
    match done.unwrap_or_else(|_| Err(Error::internal("a step panicked"))) {
        Ok(ended) => ended,
        Err(error) if error.code() == Code::Unavailable => Ended::ToNote(Outcome::Later(Box::new(job))),
        Err(error) => {
            tracing::error!(%error, run = %job.run.run.id, step = job.step.name, "failed to run workflow step");
            let detail = "The fault is on our side and has been logged under the id of the run.".to_owned();
            let now = engine.node.world.now();
            let error = StepError { code: Code::Internal.name().to_owned(), detail };
            let attempt = Some(attempt(&job, now, now, Some(error.clone())));
            Ended::ToNote(Outcome::Attempted(Box::new((
                job,
                Verdict { input: None, attempt, end: End::Failed(error) },
            ))))
        }
    }
}

async fn step(engine: &Running, lane: &Lane, job: &Job) -> Result<Ended<Outcome>> {
    let now = engine.node.world.now();
    if job.step.deadline_at.is_some_and(|deadline| deadline <= now) {
        return Ok(noted(&act::note(lane, job, Verdict { input: None, attempt: None, end: End::TimedOut }).await?));
    }
    if job.step.state == Status::Waiting {
        return match job.action().effect {
            // Only a decision or the deadline ends an approval, whatever made the step due.
            ActionEffect::Approval => Ok(noted(&act::wait_on(lane, job).await?)),
            _ => wake(lane, job).await,
        };
    }
    let with = match evaluate(lane.db(), job).await? {
        Evaluated::Do(with) => with,
        Evaluated::Skip => {
            return Ok(noted(&act::note(lane, job, Verdict { input: None, attempt: None, end: End::Skipped }).await?));
        }
        Evaluated::Fault(error) => return give_up(lane, job, None, error).await,
    };
    if let Err(error) = (job.action().check)(with.clone()).into_result() {
        return give_up(lane, job, Some(masked(job, &with)), lost(error)?).await;
    }
    match &job.action().effect {
        ActionEffect::Transaction(does) => match act::inside(lane, job, with.clone(), *does).await? {
            Acted::Done(Ok(())) | Acted::Stale => Ok(Ended::Noted),
            Acted::Done(Err((error, again))) => {
                let attempt = Some(attempt(job, now, engine.node.world.now(), Some(error.clone())));
                let end = if again { End::Failed(error) } else { End::FailedForGood(error) };
                Ok(noted(&act::note(lane, job, Verdict { input: Some(Value::Object(with)), attempt, end }).await?))
            }
            Acted::Lost => Ok(Ended::Lost),
        },
        ActionEffect::Lookup(looks) => look(engine, lane, job, with, *looks).await,
        ActionEffect::Http => {
            match engine.may(lane, job).await? {
                Acted::Done(Ok(_)) => {}
                Acted::Done(Err(error)) => return give_up(lane, job, Some(masked(job, &with)), error).await,
                Acted::Stale => return Ok(Ended::Noted),
                Acted::Lost => return Ok(Ended::Lost),
            }
            let shown = masked(job, &with);
            let verdict = http::request(engine, job, with, shown).await?;
            Ok(Ended::ToNote(match verdict {
                Some(verdict) => Outcome::Attempted(Box::new((job.clone(), verdict))),
                None => Outcome::Later(Box::new(job.clone())),
            }))
        }
        ActionEffect::Wait => {
            let (wait, _) = read_object::<Wait>(with.clone()).into_result()?;
            Ok(noted(&act::park(lane, job, Value::Object(with), Some(wait.until(job.step.ready_at))).await?))
        }
        ActionEffect::Approval => Ok(noted(&act::park(lane, job, Value::Object(with), None).await?)),
    }
}

/// Does a lookup with the rights of the saver, and saves the result.
async fn look(
    engine: &Running,
    lane: &Lane,
    job: &Job,
    with: Map<String, Value>,
    looks: Lookup,
) -> Result<Ended<Outcome>> {
    let away = || Ok(Ended::ToNote(Outcome::Away(Box::new(job.clone()))));
    // Checked before a transaction is spent on the rights.
    if !(looks.is_available)(engine.node.app()) {
        return away();
    }
    let began_at = engine.node.world.now();
    let rights = match engine.may(lane, job).await? {
        Acted::Done(Ok(rights)) => rights,
        Acted::Done(Err(error)) => return give_up(lane, job, Some(Value::Object(with)), error).await,
        Acted::Stale => return Ok(Ended::Noted),
        Acted::Lost => return Ok(Ended::Lost),
    };
    let (end, error) = match (looks.find)(engine.node.app(), lane.db(), &rights, with.clone()).await {
        Ok(output) => (End::Succeeded(output), None),
        Err(error) if error.code() == Code::Unavailable => return away(),
        Err(error) => {
            let error = lost(error)?;
            (End::Failed(error.clone()), Some(error))
        }
    };
    let attempt = Some(attempt(job, began_at, engine.node.world.now(), error));
    Ok(noted(&act::note(lane, job, Verdict { input: Some(Value::Object(with)), attempt, end }).await?))
}

/// Completes a step whose wait is over.
async fn wake(lane: &Lane, job: &Job) -> Result<Ended<Outcome>> {
    let output: Value = job.step.output.as_deref().map(super::super::runs::parse).transpose()?.unwrap_or(Value::Null);
    let (began, now) = (job.step.started_at.unwrap_or(job.step.ready_at), lane.db().world().now());
    let verdict = Verdict { input: None, attempt: Some(attempt(job, began, now, None)), end: End::Succeeded(output) };
    Ok(noted(&act::note(lane, job, verdict).await?))
}

async fn give_up(lane: &Lane, job: &Job, input: Option<Value>, error: StepError) -> Result<Ended<Outcome>> {
    Ok(noted(&act::note(lane, job, Verdict { input, attempt: None, end: End::FailedForGood(error) }).await?))
}

fn noted(acted: &Acted<()>) -> Ended<Outcome> {
    match acted {
        Acted::Done(()) | Acted::Stale => Ended::Noted,
        Acted::Lost => Ended::Lost,
    }
}
