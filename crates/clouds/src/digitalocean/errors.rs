//! What DigitalOcean's error ids mean, and where its answers have the next page.

use kernel::base::HOUR_MS;
use serde_json::Value;

use super::CLOUD;
use crate::CloudErrorKind;
use crate::json::{find_text, find_value};
use crate::rest::{NextPage, RestDialect};

pub const DIALECT: RestDialect = RestDialect {
    cloud: CLOUD,
    read_error,
    classify_code,
    // Requests count for an hour.
    retry_after_ms_max: HOUR_MS,
    read_next_page,
};

/// What is behind some paths, such as that of tags, has errors of a form of its own: without an id, and with root causes.
fn read_error(body: &Value) -> Option<(&str, &str)> {
    match find_text(body, &["id"]) {
        Some(id) => Some((id, find_text(body, &["message"]).unwrap_or(""))),
        None => find_value(body, &["root_causes"]).and(find_text(body, &["error"])).map(|message| ("", message)),
    }
}

/// Ids are the statuses in words, so a limit of the account is told by the message alone.
fn classify_code(id: &str, message: &str) -> Option<CloudErrorKind> {
    let has = |words: &str| message.to_ascii_lowercase().contains(words);
    Some(match id.to_ascii_lowercase().as_str() {
        _ if has("droplet limit") => CloudErrorKind::Quota,
        "unauthorized" => CloudErrorKind::Auth,
        "forbidden" => CloudErrorKind::Permission,
        "not_found" => CloudErrorKind::NotFound,
        "unprocessable_entity" if is_sold_out(message) => CloudErrorKind::Capacity,
        "unprocessable_entity" | "bad_request" => CloudErrorKind::Invalid,
        "too_many_requests" => CloudErrorKind::RateLimited,
        "server_error" | "service_unavailable" => CloudErrorKind::Unavailable,
        _ => return None,
    })
}

/// `Size is not available in this region.`, `Region is not available`, `The size you selected is temporarily unavailable`. An
/// image that a region does not have is a wrong request.
fn is_sold_out(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let has = |words: &str| message.contains(words);
    (has("unavailable") || has("not available")) && (has("size") || has("region")) && !has("image")
}

/// The next page is an address, of which only the number is used: no answer decides where a request goes. The last page has
/// no address, and a list of one page no `pages`.
fn read_next_page(answer: &Value) -> Option<NextPage> {
    let links = find_value(answer, &["links"])?;
    let Some(next) = find_value(links, &["pages", "next"]) else { return Some(NextPage::End) };
    let (_, query) = next.as_str()?.split_once('?')?;
    let page = query.split('&').find_map(|pair| pair.strip_prefix("page="))?;
    page.parse().ok().map(NextPage::Number)
}
