//! Writes: closures over a transaction, with their types erased.

use std::any::Any;
use std::pin::Pin;

use crate::base::Result;

use super::tx::Tx;

/// An async closure whose future can be required to be Send, which `AsyncFnOnce` alone cannot say yet.
pub trait WriteFn<A, R>: AsyncFnOnce(A) -> R + FnOnce(A) -> <Self as WriteFn<A, R>>::Fut {
    type Fut: Future<Output = R>;
}

impl<F, A, R, Fut> WriteFn<A, R> for F
where
    F: AsyncFnOnce(A) -> R + FnOnce(A) -> Fut,
    Fut: Future<Output = R>,
{
    type Fut = Fut;
}

/// The output of a write, on its way to the caller.
pub(super) type WriteOutput = Box<dyn Any + Send>;

/// A type-erased write, so that the code that runs writes is compiled once and not for each of them.
pub(super) type BoxedWrite =
    Box<dyn for<'t> FnOnce(&'t mut Tx) -> Pin<Box<dyn Future<Output = Result<WriteOutput>> + Send + 't>> + Send>;

pub(super) fn box_write<R: Send + 'static>(
    write: impl for<'t> WriteFn<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
) -> BoxedWrite {
    Box::new(move |tx| Box::pin(async move { write(tx).await.map(|output| Box::new(output) as WriteOutput) }))
}
