//! What is done about deliveries without being asked, beside sending them: cleaning and measuring.

use kernel::base::{Result, TenantId};
use kernel::events::WEBHOOK_LANE;
use kernel::http::App;
use kernel::jobs::lanes;
use kernel::store::Purpose;

use super::deliveries::store;

/// Steps of one tenant in one round; what is left waits for the next.
const STEPS_MAX: usize = 200;

/// Removes what is older than the log is kept, tenant by tenant and a few hundred rows at a time.
pub async fn clean(app: &App) -> Result<()> {
    let before = app.world.now().plus(-app.settings.delivery_retention_ms);
    let db = app.store.system(Purpose::Housekeeping);
    let mut after: Option<TenantId> = None;
    while let Some(tenant) = store::tenant_after(&db, after).await? {
        let of_tenant = lanes::tenant_db(&app.store, tenant);
        for _ in 0..STEPS_MAX {
            if !of_tenant.write(async move |tx| store::clean(tx, before).await).await? {
                break;
            }
        }
        after = Some(tenant);
    }
    Ok(())
}

/// Totals for `/metrics`: how much waits, and for how long the first of it has been due.
pub async fn measure(app: &App) -> Result<()> {
    let waiting = store::waiting(&app.store.system(Purpose::Jobs)).await?;
    metrics::gauge!("webhook_queue_depth").set(f64::from(u32::try_from(waiting).unwrap_or(u32::MAX)));
    let now = app.world.now();
    let due = lanes::longest_due(&app.store, WEBHOOK_LANE, now).await?;
    let late_ms = due.map_or(0, |due| now.as_millis() - due.as_millis());
    metrics::gauge!("webhook_queue_lag_seconds").set(f64::from(u32::try_from(late_ms).unwrap_or(u32::MAX)) / 1_000.0);
    Ok(())
}
