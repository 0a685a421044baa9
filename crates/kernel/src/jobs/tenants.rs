//! Runs the same work for one tenant after the other in small steps, mostly cleaning.

use crate::base::{Error, Result, TenantId};

/// Steps of one tenant in one round; the rest waits for the next round.
const STEPS_MAX: usize = 1_000;
/// After so many failed tenants in a row the cause is not a tenant's, and the round ends.
const FAILURES_MAX: usize = 20;

/// Repeats `step` for each tenant that `next` finds after the one before, until it returns false or `STEPS_MAX` is
/// reached. A tenant whose work fails does not stop the others: its error is logged with `what`, and the first one returned.
pub async fn for_each_tenant<N, S>(
    what: &'static str,
    next: impl Fn(Option<TenantId>) -> N + Send,
    step: impl Fn(TenantId) -> S + Send,
) -> Result<()>
where
    N: Future<Output = Result<Option<TenantId>>> + Send,
    S: Future<Output = Result<bool>> + Send,
{
    let (mut after, mut first, mut failures) = (None, None::<Error>, 0);
    while let Some(tenant) = next(after).await? {
        match run_steps(tenant, &step).await {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, %tenant, "{what} failed for a tenant");
                first.get_or_insert(error);
            }
        }
        if failures >= FAILURES_MAX {
            break;
        }
        after = Some(tenant);
    }
    first.map_or(Ok(()), Err)
}

async fn run_steps<S>(tenant: TenantId, step: &(impl Fn(TenantId) -> S + Send)) -> Result<()>
where
    S: Future<Output = Result<bool>> + Send,
{
    for _ in 0..STEPS_MAX {
        if !step(tenant).await? {
            break;
        }
    }
    Ok(())
}
