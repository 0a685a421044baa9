//! What Hetzner's error codes mean, and where its answers have the next page.

use kernel::base::MINUTE_MS;
use serde_json::Value;

use super::CLOUD;
use crate::CloudErrorKind;
use crate::json::{find_text, find_value};
use crate::rest::{NextPage, RestDialect};

/// The reset is when the whole hour's budget is there again. One request a second is, long before.
pub const RETRY_AFTER_MS_MAX: i64 = 5 * MINUTE_MS;

pub const DIALECT: RestDialect = RestDialect {
    cloud: CLOUD,
    read_error: |body| {
        find_text(body, &["error", "code"]).zip(Some(find_text(body, &["error", "message"]).unwrap_or("")))
    },
    classify_code,
    retry_after_ms_max: RETRY_AFTER_MS_MAX,
    read_next_page,
};

fn classify_code(code: &str, _message: &str) -> Option<CloudErrorKind> {
    Some(match code {
        "unauthorized" => CloudErrorKind::Auth,
        "forbidden" | "token_readonly" | "protected" => CloudErrorKind::Permission,
        "not_found" => CloudErrorKind::NotFound,
        "uniqueness_error" => CloudErrorKind::Conflict,
        "resource_limit_exceeded" => CloudErrorKind::Quota,
        "resource_unavailable" | "placement_error" => CloudErrorKind::Capacity,
        "rate_limit_exceeded" => CloudErrorKind::RateLimited,
        // A part of the API that was removed comes with a status that would say that the server is gone.
        "invalid_input" | "json_error" | "unsupported_error" | "deprecated_api_endpoint" => CloudErrorKind::Invalid,
        "conflict" | "locked" | "maintenance" | "unavailable" | "service_error" => CloudErrorKind::Unavailable,
        _ => return None,
    })
}

fn read_next_page(answer: &Value) -> Option<NextPage> {
    let pagination = find_value(answer, &["meta", "pagination"])?;
    match pagination.get("next_page")? {
        Value::Null => Some(NextPage::End),
        page => page.as_i64().map(NextPage::Number),
    }
}
