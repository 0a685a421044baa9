//! `/api/rate-limits/`: the limiter's own table, and how to stay within it.

use askama::Template;
use axum::extract::State;
use kernel::base::Result;
use kernel::http::{PolicyLimit, RatePolicy, SharedApp, WINDOW_SECONDS};

use super::page::HtmlPage;

#[derive(Template)]
#[template(path = "rate_limits.html")]
struct RateLimits<'a> {
    here: &'static str,
    base_url: &'a str,
    window_seconds: i64,
    rows: Vec<PolicyLimit>,
    /// The examples show the policy for reads.
    read_quota: u64,
    read_remaining: u64,
}

/// The number of requests that the caller of the example has made.
const EXAMPLE_USED: u64 = 13;

pub async fn show_rate_limits(State(app): State<SharedApp>) -> Result<HtmlPage> {
    let rows: Vec<PolicyLimit> = app.limiter.rate_table().policy_limits().collect();
    let read_quota = rows.iter().find(|row| row.policy == RatePolicy::Read).map_or(0, |row| row.per_minute);
    HtmlPage::new(&RateLimits {
        here: "/api/rate-limits/",
        base_url: app.settings.base_url.as_str(),
        window_seconds: WINDOW_SECONDS,
        rows,
        read_quota,
        read_remaining: read_quota.saturating_sub(EXAMPLE_USED),
    })
}
