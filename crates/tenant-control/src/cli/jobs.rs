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
        every(ANNOUNCE_EVERY, "telling of keys that expire", || api_keys::jobs::announce_expiry(&app)),
        every(CLEAN_EVERY, "cleaning the log of deliveries", || webhooks::jobs::clean(&app)),
        every(MEASURE_EVERY, "measuring the queue of deliveries", || webhooks::jobs::measure(&app)),
    );
}
