//! A history that is imported: what is long over is neither overdue at once nor an alarm.

use super::*;

over_http! {
    async fn failures_that_are_long_over_wake_nobody(setup: Setup) {
        let own = Customer::open(setup).await;
        let now = own.server.now();
        for (age_ms, kind, published) in [
            (300 * DAY_MS, "backup", 0), (7 * DAY_MS + 1, "backup", 0), (7 * DAY_MS + 1, "prune", 0), (7 * DAY_MS, "backup", 1), (0, "verify", 2),
        ] {
            own.report(&job(&own.device, kind, "failed", now.plus_ms(-age_ms))).await;
            let events = own.server.kinds_of(&own.acme, "backup.job.failed").await;
            assert_eq!(events.len(), published, "{kind} {age_ms} ms ago");
        }
        assert_eq!(own.row().await["max_consecutive_failures"], 2, "they count all the same, but for what was forgotten");
    }
}
