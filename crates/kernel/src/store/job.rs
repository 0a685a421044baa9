//! Write jobs: closures over a transaction, with their types erased.

use std::any::Any;
use std::pin::Pin;

use crate::base::Result;

use super::Tx;

/// An async closure whose future can be required to be Send, which `AsyncFnOnce` alone cannot say yet.
pub trait WriteJob<A, R>: AsyncFnOnce(A) -> R + FnOnce(A) -> <Self as WriteJob<A, R>>::Fut {
    type Fut: Future<Output = R>;
}

impl<F, A, R, Fut> WriteJob<A, R> for F
where
    F: AsyncFnOnce(A) -> R + FnOnce(A) -> Fut,
    Fut: Future<Output = R>,
{
    type Fut = Fut;
}

/// The output of a job, on its way to the caller.
pub(super) type JobOutput = Box<dyn Any + Send>;

/// A type-erased job, so that the code that runs jobs is compiled once and not for each of them.
pub(super) type BoxedJob =
    Box<dyn for<'t> FnOnce(&'t mut Tx) -> Pin<Box<dyn Future<Output = Result<JobOutput>> + Send + 't>> + Send>;

pub(super) fn box_job<R: Send + 'static>(
    job: impl for<'t> WriteJob<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
) -> BoxedJob {
    Box::new(move |tx| Box::pin(async move { job(tx).await.map(|output| Box::new(output) as JobOutput) }))
}
