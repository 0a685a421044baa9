//! JSON over HTTP with a bearer token, as Hetzner and DigitalOcean speak it.

use std::sync::Arc;

use kernel::base::{SECOND_MS, Timestamp, sha256};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::credentials::ApiToken;
use crate::error::RequestEffect;
use crate::json::{find_value, list_values};
use crate::message::to_hex;
use crate::verification::TOKEN_ACCOUNT;
use crate::{CloudError, CloudErrorKind, CloudIdentity, CloudRequest, CloudResponse, Transport};

/// What differs between the clouds.
pub struct RestDialect {
    /// Its name, for messages.
    pub cloud: &'static str,
    /// The code and the message of an error's body.
    pub read_error: fn(&Value) -> Option<(&str, &str)>,
    /// What a code means, where the status alone does not say it.
    pub classify_code: fn(code: &str, message: &str) -> Option<CloudErrorKind>,
    /// The longest wait that a rate limit's reset is taken for.
    pub retry_after_ms_max: i64,
    /// `None` if the answer does not say whether there is another page.
    pub read_next_page: fn(&Value) -> Option<NextPage>,
}

/// What comes after a page.
pub enum NextPage {
    Number(i64),
    End,
}

pub struct RestClient {
    token: ApiToken,
    base_url: String,
    transport: Arc<dyn Transport>,
    dialect: &'static RestDialect,
}

/// Everything but what RFC 3986 never reserves.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Far more than any catalog has.
const CATALOG_PAGES_MAX: i64 = 40;

impl RestClient {
    pub fn new(
        token: ApiToken,
        base_url: String,
        transport: Arc<dyn Transport>,
        dialect: &'static RestDialect,
    ) -> Self {
        RestClient { token, base_url, transport, dialect }
    }

    /// `path` has no characters that would need escaping.
    pub async fn get(&self, path: &str, query: &[(&str, &str)], now: Timestamp) -> Result<Value, CloudError> {
        let query: Vec<String> =
            query.iter().map(|(key, value)| format!("{key}={}", utf8_percent_encode(value, QUERY))).collect();
        let separator = if query.is_empty() { "" } else { "?" };
        let url = format!("{}{path}{separator}{}", self.base_url, query.join("&"));
        self.send("GET", url, Vec::new(), RequestEffect::Read, now).await
    }

    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        effect: RequestEffect,
        now: Timestamp,
    ) -> Result<Value, CloudError> {
        self.send("POST", format!("{}{path}", self.base_url), body.to_string().into_bytes(), effect, now).await
    }

    /// All elements of a list that has a few pages.
    pub async fn get_all(
        &self,
        path: &str,
        query: &[(&str, &str)],
        key: &str,
        now: Timestamp,
    ) -> Result<Vec<Value>, CloudError> {
        let mut elements = Vec::new();
        let mut page = 1;
        while page <= CATALOG_PAGES_MAX {
            let number = page.to_string();
            let query: Vec<(&str, &str)> = query.iter().copied().chain([("page", number.as_str())]).collect();
            let answer = self.get(path, &query, now).await?;
            let next_page = self.find_next_page(&answer, key, page)?;
            elements.extend(list_values(&answer, &[key]).cloned());
            match next_page {
                Some(next_page) => page = next_page,
                None => break,
            }
        }
        Ok(elements)
    }

    /// The page after this one. An answer without a list, or that leads nowhere, is not taken for the last page.
    pub fn find_next_page(&self, answer: &Value, key: &str, page: i64) -> Result<Option<i64>, CloudError> {
        let unreadable = || CloudError::unreadable(self.dialect.cloud, 200, RequestEffect::Read);
        if !find_value(answer, &[key]).is_some_and(Value::is_array) {
            return Err(unreadable());
        }
        match (self.dialect.read_next_page)(answer) {
            Some(NextPage::Number(next_page)) if next_page > page => Ok(Some(next_page)),
            Some(NextPage::End) => Ok(None),
            _ => Err(unreadable()),
        }
    }

    /// The token as an identity, where the cloud does not tell one: a part of its hash is its account, by which requests
    /// are paced.
    pub fn identify_token(&self) -> CloudIdentity {
        let digest = sha256(format!("account of the token {}", self.token.0).as_bytes());
        let account_id = format!("{TOKEN_ACCOUNT}{}", to_hex(&digest[..8]));
        CloudIdentity { account_id, principal: format!("API token {}", self.token.hint()) }
    }

    /// An answer that was read, and lacks what it must have.
    pub fn unreadable(&self, effect: RequestEffect) -> CloudError {
        CloudError::unreadable(self.dialect.cloud, 200, effect)
    }

    async fn send(
        &self,
        method: &'static str,
        url: String,
        body: Vec<u8>,
        effect: RequestEffect,
        now: Timestamp,
    ) -> Result<Value, CloudError> {
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("authorization".to_owned(), format!("Bearer {}", self.token.0)),
        ];
        if !body.is_empty() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        let request = CloudRequest { method, url, headers, body };
        let response = self
            .transport
            .send(request)
            .await
            .map_err(|failure| CloudError::from_transport(self.dialect.cloud, &failure, effect))?;
        self.read_response(&response, effect, now)
    }

    fn read_response(
        &self,
        response: &CloudResponse,
        effect: RequestEffect,
        now: Timestamp,
    ) -> Result<Value, CloudError> {
        let body: Option<Value> = serde_json::from_slice(&response.body).ok().filter(Value::is_object);
        let unreadable = || CloudError::unreadable(self.dialect.cloud, response.status, effect);
        match body {
            Some(body) if response.is_success() => Ok(body),
            Some(body) => Err(match (self.dialect.read_error)(&body) {
                Some((code, message)) => self.read_error(response, code, message, effect, now),
                None => unreadable(),
            }),
            // A proxy between us and the cloud limits rates as well, in its own words.
            None if response.status == 429 => Err(self.read_error(response, "", "", effect, now)),
            None => Err(unreadable()),
        }
    }

    fn read_error(
        &self,
        response: &CloudResponse,
        code: &str,
        message: &str,
        effect: RequestEffect,
        now: Timestamp,
    ) -> CloudError {
        let by_status = match response.status {
            401 => CloudErrorKind::Auth,
            403 => CloudErrorKind::Permission,
            404 | 410 => CloudErrorKind::NotFound,
            409 | 423 => CloudErrorKind::Unavailable,
            408 => effect.kind_when_lost(),
            429 => CloudErrorKind::RateLimited,
            400..=499 => CloudErrorKind::Invalid,
            _ => effect.kind_when_lost(),
        };
        let kind = match (self.dialect.classify_code)(code, message) {
            Some(CloudErrorKind::Unavailable) if response.status >= 500 => effect.kind_when_lost(),
            Some(kind) => kind,
            None => by_status,
        };
        let mut error = CloudError::from_cloud(self.dialect.cloud, kind, (code, message), &[&self.token.0]);
        if kind == CloudErrorKind::RateLimited {
            error.retry_after_ms = find_retry_after_ms(response, now, self.dialect.retry_after_ms_max);
        }
        error
    }
}

/// How long the cloud asks to wait: `retry-after` in seconds, or the moment of `ratelimit-reset`.
pub fn find_retry_after_ms(response: &CloudResponse, now: Timestamp, wait_ms_max: i64) -> Option<i64> {
    let read = |name: &str| response.find_header(name).and_then(|value| value.trim().parse::<i64>().ok());
    let wait_ms = match read("retry-after") {
        Some(seconds) => seconds.saturating_mul(SECOND_MS),
        None => read("ratelimit-reset")?.saturating_mul(SECOND_MS).saturating_sub(now.as_millis()),
    };
    Some(wait_ms.clamp(SECOND_MS, wait_ms_max))
}

/// The number of a page, as a cursor of a list.
pub fn read_page_cursor(cursor: Option<&str>) -> Result<i64, CloudError> {
    let page = cursor.map_or(Some(1), |cursor| cursor.parse().ok()).filter(|page| *page >= 1);
    page.ok_or_else(|| CloudError::invalid("The cursor is not one that this cloud has given."))
}
