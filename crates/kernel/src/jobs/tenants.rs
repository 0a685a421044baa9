//! The same work for tenant after tenant, a little at a time: cleaning, above all.

use crate::base::{Error, Result, TenantId};

/// Steps of one tenant in one round; what is left waits for the next.
const STEPS_MAX: usize = 1_000;
/// Tenants of one round whose work failed. After so many it is not a matter of theirs, and the round ends.
const FAILURES_MAX: usize = 20;

/// Does `step` for each tenant that `next` finds behind another, until it says that there is no more to do or there have been
/// enough of them. A tenant whose work fails keeps no other from its own; the first error is told to the caller and the rest
/// to the log, as `what` of a tenant.
pub async fn each<N, S>(
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
        if let Err(error) = some(tenant, &step).await {
            failures += 1;
            if first.is_some() {
                tracing::warn!(%error, %tenant, "{what} of a tenant failed");
            }
            first.get_or_insert(error);
        }
        if failures >= FAILURES_MAX {
            break;
        }
        after = Some(tenant);
    }
    first.map_or(Ok(()), Err)
}

async fn some<S>(tenant: TenantId, step: &(impl Fn(TenantId) -> S + Send)) -> Result<()>
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
