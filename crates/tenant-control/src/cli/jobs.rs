//! What the features do on their own, beside what the kernel does.

use std::time::Duration;

use kernel::http::Shared;
use kernel::jobs::every;

use crate::features::{api_keys, webhooks};

const ANNOUNCE_EVERY: Duration = Duration::from_secs(20);
const CLEAN_EVERY: Duration = Duration::from_mins(10);
const MEASURE_EVERY: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub async fn run(app: Shared) {
    tokio::join!(
        every(&app, ANNOUNCE_EVERY, "telling of keys that expire", |app| async move {
            api_keys::jobs::announce_expiry(&app).await
        }),
        every(
            &app,
            CLEAN_EVERY,
            "cleaning the log of deliveries",
            |app| async move { webhooks::jobs::clean(&app).await }
        ),
        every(&app, MEASURE_EVERY, "measuring the queue of deliveries", |app| async move {
            webhooks::jobs::measure(&app).await
        }),
    );
}
