//! SQL of webhook endpoints.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use feature_kit::request_headers::{MASK, merge_headers};
use feature_kit::subscription::check_subscription;
use kernel::args;
use kernel::audit::{self, AuditChanges, NewAuditEntry};
use kernel::auth::Rights;
use kernel::base::seal::{SealedCell, SealedColumn, SealedValue};
use kernel::base::{Code, Error, HOUR_MS, Result, Secrets, StringEnum, Timestamp};
use kernel::http::IfMatch;
use kernel::jobs::lanes;
use kernel::keyring::{RewrapStatements, SealedColumnStatements};
use kernel::outbound::Target;
use kernel::store::{Db, Select, SortDirection, Tx, Value, to_json};
use serde_json::json;

use super::input::WebhookInput;
use super::stored::{StoredWebhook, WebhookColumns};
use super::{NewWebhook, WEBHOOK_LANE, WEBHOOKS_MAX, Webhook, WebhookId, WebhookStatus};

kernel::columns! {
    /// The columns of a new endpoint.
    struct NewWebhookColumns in "webhooks" {
        id, code, name, url, events, status, disabled_reason, header_names, headers, headers_version,
        rate_limit_per_second, ordered, generation, created_by_type, created_by_id, created_by_name, version, created_at,
        updated_at,
    }
}

kernel::columns! {
    /// The columns that a replacement sets.
    struct ReplacedWebhookColumns in "webhooks" by id {
        id, name, url, events, status, disabled_reason, header_names, headers, headers_version, rate_limit_per_second,
        ordered, version, updated_at,
    }
}

kernel::statements! {
    LIST = kernel::sql![
        "SELECT ",
        WebhookColumns::LIST,
        " FROM webhooks w
        LEFT JOIN webhook_states s ON s.tenant_id = w.tenant_id AND s.webhook_id = w.id
        LEFT JOIN webhook_recoveries r ON r.tenant_id = w.tenant_id AND r.webhook_id = w.id
        WHERE w.tenant_id = $1 AND w.deleted_at IS NULL"
    ];
    GET = kernel::sql![LIST, " AND w.id = $2"];
    COUNT = "SELECT COUNT(*) FROM webhooks WHERE tenant_id = $1 AND deleted_at IS NULL";
    LAST_CODE = "SELECT code FROM webhooks WHERE tenant_id = $1 ORDER BY code DESC LIMIT 1";
    INSERT = NewWebhookColumns::INSERT;
    INSERT_STATE = "INSERT INTO webhook_states (tenant_id, webhook_id, consecutive_failures, drained) VALUES ($1, $2, 0, 1)";
    UPDATE = ReplacedWebhookColumns::UPDATE;
    /// Pending deliveries belong to an older generation from now on, and the sender drains them.
    SWITCH_OFF = "UPDATE webhooks SET generation = generation + 1 WHERE tenant_id = $1 AND id = $2";
    END_RECOVERY = "UPDATE webhook_recoveries SET finished_at = $3, cancelled = TRUE
        WHERE tenant_id = $1 AND webhook_id = $2 AND finished_at IS NULL";
    SET_STATUS = "UPDATE webhooks SET status = $3, disabled_reason = $4, version = version + 1, updated_at = $5
        WHERE tenant_id = $1 AND id = $2";
    DELETE = "UPDATE webhooks SET deleted_at = $3, status = 'disabled', headers = $4, header_names = '[]', version = version + 1,
            updated_at = $3 WHERE tenant_id = $1 AND id = $2";
    TOUCH = "UPDATE webhooks SET version = version + 1, updated_at = $3 WHERE tenant_id = $1 AND id = $2";
    SUBSCRIBE = "INSERT INTO webhook_subscriptions (tenant_id, pattern, webhook_id) VALUES ($1, $2, $3)";
    UNSUBSCRIBE = "DELETE FROM webhook_subscriptions WHERE tenant_id = $1 AND webhook_id = $2";
    RESET_FAILURES = "UPDATE webhook_states SET consecutive_failures = 0, failing_since = NULL, paused_until = NULL,
            paused_reason = NULL WHERE tenant_id = $1 AND webhook_id = $2";
    /// Pending deliveries that were created while the endpoint was unordered still need their record id.
    SET_RECORDS_MISSING = "UPDATE webhook_states SET records_missing = $3 WHERE tenant_id = $1 AND webhook_id = $2";
    LAST_SECRET = "SELECT number FROM webhook_secrets WHERE tenant_id = $1 AND webhook_id = $2 ORDER BY number DESC LIMIT 1";
    INSERT_SECRET = "INSERT INTO webhook_secrets (tenant_id, webhook_id, number, secret) VALUES ($1, $2, $3, $4)";
    /// A second rotation ends the first one's overlap.
    END_OVERLAP = "DELETE FROM webhook_secrets WHERE tenant_id = $1 AND webhook_id = $2 AND number < $3";
    START_OVERLAP = "UPDATE webhook_secrets SET valid_until = $3 WHERE tenant_id = $1 AND webhook_id = $2";
    DELETE_SECRETS = "DELETE FROM webhook_secrets WHERE tenant_id = $1 AND webhook_id = $2";
    COUNT_SEALED_SECRETS = "SELECT substr(secret, 1, 5), COUNT(*) FROM webhook_secrets GROUP BY 1";
    WALK_SEALED_SECRETS = "SELECT tenant_id, webhook_id, number, secret FROM webhook_secrets
        WHERE (tenant_id, webhook_id, number) > ($1, $2, $3) ORDER BY tenant_id, webhook_id, number LIMIT $4";
    REWRAP_SECRET = "UPDATE webhook_secrets SET secret = $5
        WHERE tenant_id = $1 AND webhook_id = $2 AND number = $3 AND secret = $4";
    /// Without deleted endpoints, whose headers are erased.
    COUNT_SEALED_HEADERS = "SELECT substr(headers, 1, 5), COUNT(*) FROM webhooks WHERE length(headers) > 0 GROUP BY 1";
    WALK_SEALED_HEADERS = "SELECT tenant_id, id, headers_version, headers FROM webhooks
        WHERE (tenant_id, id, headers_version) > ($1, $2, $3) ORDER BY tenant_id, id, headers_version LIMIT $4";
    REWRAP_HEADERS = "UPDATE webhooks SET headers = $5
        WHERE tenant_id = $1 AND id = $2 AND headers_version = $3 AND headers = $4";
}

/// The JSON pointer of the headers in a body.
const HEADERS: &str = "/headers";

pub async fn get_webhook(db: &Db, id: WebhookId) -> Result<Webhook> {
    Ok(db.get_one::<StoredWebhook>(GET, args![id]).await?.into_webhook(db.env().now()))
}

pub async fn list_webhooks(db: &Db, after: Option<Vec<Value>>, limit: usize) -> Result<Vec<Webhook>> {
    let order = ["w.created_at", "w.id"];
    let mut select = Select::new(LIST);
    if let Some(position) = after {
        select = select.seek_after(&order, SortDirection::Descending, position);
    }
    let rows: Vec<StoredWebhook> = db.select(&select.order_by(&order, SortDirection::Descending).limit(limit)).await?;
    let now = db.env().now();
    Ok(rows.into_iter().map(|webhook| webhook.into_webhook(now)).collect())
}

/// The endpoint inside a transaction.
pub async fn read_webhook(tx: &mut Tx, id: WebhookId) -> Result<StoredWebhook> {
    tx.get_one(GET, args![id]).await
}

pub async fn create_webhook(
    tx: &mut Tx,
    rights: &Rights,
    input: WebhookInput,
    secrets: &Secrets,
) -> Result<NewWebhook> {
    check_subscription(rights, &input.events)?;
    let now = tx.tick().await?.at;
    let count: i64 = tx.get_one(COUNT, args![]).await?;
    if count >= WEBHOOKS_MAX {
        let detail = format!("A tenant has at most {WEBHOOKS_MAX} endpoints. Delete one that is no longer needed.");
        return Err(Error::new(Code::LimitReached, detail));
    }
    let id = WebhookId::new(tx.env());
    let code = next_code(tx.find(LAST_CODE, args![]).await?)?;
    let headers = merge_headers(&BTreeMap::new(), true, input.headers, HEADERS).map_err(Error::invalid_fields)?;
    let sealed = seal_headers(tx, secrets, id, 1, &headers)?;
    let (status, reason) = requested_status(input.enabled);
    let creator = tx.actor().who.clone();
    let (name, names, events) = (input.name.into_string(), names_json(&headers)?, to_json(&input.events)?);
    let row = NewWebhookColumns {
        id: id.into(),
        code: code.into(),
        name: name.into(),
        url: input.url.as_str().into(),
        events: events.into(),
        status: status.as_str().into(),
        disabled_reason: reason.into(),
        header_names: names.into(),
        headers: sealed.into(),
        headers_version: Value::Int(1),
        rate_limit_per_second: input.rate_limit_per_second.into(),
        ordered: input.ordered.into(),
        generation: Value::Int(1),
        created_by_type: creator.kind.as_str().into(),
        created_by_id: creator.id.into(),
        created_by_name: creator.name.into(),
        version: Value::Int(1),
        created_at: now.into(),
        updated_at: now.into(),
    };
    tx.defer_exec(INSERT, row.into_vec()).await?;
    insert_subscriptions(tx, id, &input.events).await?;
    tx.exec(INSERT_STATE, args![id]).await?;
    lanes::create_lane(tx, WEBHOOK_LANE, &id.to_string()).await?;
    let secret = add_secret(tx, secrets, id, 1).await?;
    audit::record_entry(tx, NewAuditEntry::new("webhook.create", "webhook", id)).await?;
    Ok(NewWebhook { record: read_webhook(tx, id).await?.into_webhook(now), secret })
}

pub async fn replace_webhook(
    tx: &mut Tx,
    rights: &Rights,
    id: WebhookId,
    if_match: &IfMatch,
    input: WebhookInput,
    secrets: &Secrets,
) -> Result<Webhook> {
    check_subscription(rights, &input.events)?;
    let now = tx.tick().await?.at;
    let stored = read_webhook(tx, id).await?;
    // Pending and resent deliveries are of the old events, so the caller must be allowed to read those too.
    check_subscription(rights, &stored.record.events)?;
    if_match.check_version(stored.record.version)?;
    let stored_headers = open_headers(tx, secrets, id, &stored)?;
    let old = stored.record;
    let same_origin = Target::parse(&old.url).is_ok_and(|url| url.has_same_origin(&input.url));
    let headers = merge_headers(&stored_headers, same_origin, input.headers, HEADERS).map_err(Error::invalid_fields)?;
    let (status, reason) = if old.enabled == input.enabled {
        (old.status, old.disabled_reason.as_deref())
    } else {
        requested_status(input.enabled)
    };
    let name = input.name.into_string();
    let mut changes = AuditChanges::default();
    changes.add_if_changed("name", old.name.as_str(), name.as_str());
    changes.add_if_changed("url", old.url.as_str(), input.url.as_str());
    changes.add_if_changed("events", old.events.clone(), input.events.clone());
    changes.add_if_changed("status", old.status.as_str(), status.as_str());
    changes.add_if_changed(
        "rate_limit_per_second",
        json!(old.rate_limit_per_second),
        json!(input.rate_limit_per_second),
    );
    changes.add_if_changed("ordered", old.ordered, input.ordered);
    if stored_headers != headers {
        // The audit entry says that the headers changed, not their values.
        changes.add_if_changed("headers", json!(old.headers), json!(mask_headers(&headers, &stored_headers)));
    }
    if changes.is_empty() {
        return Ok(read_webhook(tx, id).await?.into_webhook(now));
    }
    let version = old.version + 1;
    let sealed = seal_headers(tx, secrets, id, version, &headers)?;
    let (names, events) = (names_json(&headers)?, to_json(&input.events)?);
    let row = ReplacedWebhookColumns {
        id: id.into(),
        name: name.into(),
        url: input.url.as_str().into(),
        events: events.into(),
        status: status.as_str().into(),
        disabled_reason: reason.into(),
        header_names: names.into(),
        headers: sealed.into(),
        headers_version: version.into(),
        rate_limit_per_second: input.rate_limit_per_second.into(),
        ordered: input.ordered.into(),
        version: version.into(),
        updated_at: now.into(),
    };
    tx.defer_exec(UPDATE, row.into_vec()).await?;
    tx.exec(UNSUBSCRIBE, args![id]).await?;
    insert_subscriptions(tx, id, &input.events).await?;
    audit::record_entry(tx, NewAuditEntry::new("webhook.update", "webhook", id).with_changes(changes)).await?;
    if old.enabled && !input.enabled {
        switch_off(tx, id, now).await?;
    } else {
        // The sender reloads the endpoint, because order or rate limit may have changed.
        lanes::wake_lane(tx, WEBHOOK_LANE, &id.to_string()).await?;
    }
    // Enabling resets the circuit breaker, and failures of the old URL say nothing about the new one. The lane is already
    // locked here, as the lock order requires.
    if (!old.enabled && input.enabled) || old.url != input.url.as_str() {
        tx.exec(RESET_FAILURES, args![id]).await?;
    }
    if old.ordered != input.ordered {
        tx.exec(SET_RECORDS_MISSING, args![id, input.ordered]).await?;
    }
    Ok(read_webhook(tx, id).await?.into_webhook(now))
}

/// Creates the next secret; the previous one keeps signing during the overlap.
pub async fn rotate_secret(
    tx: &mut Tx,
    rights: &Rights,
    id: WebhookId,
    if_match: &IfMatch,
    overlap_hours: i64,
    secrets: &Secrets,
) -> Result<NewWebhook> {
    let now = tx.tick().await?.at;
    let old = read_webhook(tx, id).await?.record;
    check_subscription(rights, &old.events)?;
    if_match.check_version(old.version)?;
    let last: i64 = tx.get_one(LAST_SECRET, args![id]).await?;
    if overlap_hours == 0 {
        tx.exec(DELETE_SECRETS, args![id]).await?;
    } else {
        tx.exec(END_OVERLAP, args![id, last]).await?;
        tx.exec(START_OVERLAP, args![id, now.plus_ms(overlap_hours * HOUR_MS)]).await?;
    }
    let secret = add_secret(tx, secrets, id, last + 1).await?;
    tx.exec(TOUCH, args![id, now]).await?;
    audit::record_entry(tx, NewAuditEntry::new("webhook.rotate_secret", "webhook", id)).await?;
    Ok(NewWebhook { record: read_webhook(tx, id).await?.into_webhook(now), secret })
}

pub async fn delete_webhook(tx: &mut Tx, id: WebhookId, if_match: &IfMatch) -> Result<()> {
    let now = tx.tick().await?.at;
    if_match.check_version(read_webhook(tx, id).await?.record.version)?;
    tx.exec(UNSUBSCRIBE, args![id]).await?;
    tx.exec(DELETE_SECRETS, args![id]).await?;
    tx.exec(DELETE, args![id, now, [0_u8; 0].as_slice()]).await?;
    audit::record_entry(tx, NewAuditEntry::new("webhook.delete", "webhook", id)).await?;
    switch_off(tx, id, now).await
}

/// Disables an endpoint because of the responses of this version of it, and returns the new record. `None` if the endpoint
/// was disabled or changed meanwhile.
pub async fn auto_disable(tx: &mut Tx, id: WebhookId, endpoint_version: i64, reason: &str) -> Result<Option<Webhook>> {
    let now = tx.tick().await?.at;
    let Some(old) = tx.find::<StoredWebhook>(GET, args![id]).await? else { return Ok(None) };
    if !old.record.enabled || old.record.version != endpoint_version {
        return Ok(None);
    }
    tx.exec(SET_STATUS, args![id, WebhookStatus::AutoDisabled.as_str(), reason, now]).await?;
    let mut changes = AuditChanges::default();
    changes.add_if_changed("status", old.record.status.as_str(), WebhookStatus::AutoDisabled.as_str());
    audit::record_entry(tx, NewAuditEntry::new("webhook.auto_disable", "webhook", id).with_changes(changes)).await?;
    switch_off(tx, id, now).await?;
    Ok(Some(read_webhook(tx, id).await?.into_webhook(now)))
}

async fn switch_off(tx: &mut Tx, id: WebhookId, now: Timestamp) -> Result<()> {
    tx.exec(SWITCH_OFF, args![id]).await?;
    lanes::wake_lane(tx, WEBHOOK_LANE, &id.to_string()).await?;
    // Enabling does not resume a recovery, so a running one is cancelled.
    tx.exec(END_RECOVERY, args![id, now]).await.map(drop)
}

async fn insert_subscriptions(tx: &mut Tx, id: WebhookId, events: &[String]) -> Result<()> {
    for pattern in events {
        tx.exec(SUBSCRIBE, args![pattern, id]).await?;
    }
    Ok(())
}

fn requested_status(enabled: bool) -> (WebhookStatus, Option<&'static str>) {
    if enabled { (WebhookStatus::Enabled, None) } else { (WebhookStatus::Disabled, Some("manual")) }
}

/// The digits of an endpoint's code, with which its delivery ids end. They sort like numbers, so the highest code is the
/// last.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const CODE_LEN: usize = 4;

fn next_code(last: Option<String>) -> Result<String> {
    let Some(last) = last else { return Ok("0".repeat(CODE_LEN)) };
    let value = last.bytes().try_fold(0, |value, byte| Some(value * 32 + DIGITS.iter().position(|d| *d == byte)?));
    let next = value.ok_or_else(|| Error::internal("the code of an endpoint is malformed"))? + 1;
    if next >= 32_usize.pow(4) {
        return Err(Error::new(Code::LimitReached, "This tenant has made more than a million endpoints."));
    }
    Ok((0..CODE_LEN)
        .rev()
        .map(|digit| char::from(DIGITS[next / 32_usize.pow(u32::try_from(digit).unwrap_or(0)) % 32]))
        .collect())
}

/// Creates a secret: `whsec_` and 32 random bytes in base64, the format of Standard Webhooks.
async fn add_secret(tx: &mut Tx, secrets: &Secrets, id: WebhookId, number: i64) -> Result<String> {
    let secret = format!("whsec_{}", BASE64.encode(tx.env().random.secret_bytes::<32>()));
    let sealed = sealed_cell(tx, &SEALED_SECRETS, id, number)?.seal(secrets, &tx.env().random, secret.as_bytes())?;
    tx.exec(INSERT_SECRET, args![id, number, sealed]).await?;
    Ok(secret)
}

/// The signing secrets, sealed; the version is the secret's number.
pub const SEALED_SECRETS: SealedColumn<Webhook> = SealedColumn::new("webhook_secrets");
/// The tenant's headers, sealed; the version is the endpoint's when they were last written.
pub const SEALED_HEADERS: SealedColumn<Webhook> = SealedColumn::new("webhooks");

pub const SEALED_COLUMNS: &[SealedColumnStatements] = &[
    SealedColumnStatements {
        name: SEALED_SECRETS.name(),
        count: COUNT_SEALED_SECRETS,
        rewrap: Some(RewrapStatements { walk: WALK_SEALED_SECRETS, replace: REWRAP_SECRET }),
    },
    SealedColumnStatements {
        name: SEALED_HEADERS.name(),
        count: COUNT_SEALED_HEADERS,
        rewrap: Some(RewrapStatements { walk: WALK_SEALED_HEADERS, replace: REWRAP_HEADERS }),
    },
];

fn sealed_cell(tx: &Tx, column: &SealedColumn<Webhook>, id: WebhookId, version: i64) -> Result<SealedCell> {
    let tenant = tx.tenant_id().ok_or_else(|| Error::internal("an endpoint belongs to a tenant"))?;
    Ok(column.cell_for(tenant, id, version))
}

fn seal_headers(
    tx: &Tx,
    secrets: &Secrets,
    id: WebhookId,
    version: i64,
    headers: &BTreeMap<String, String>,
) -> Result<SealedValue> {
    sealed_cell(tx, &SEALED_HEADERS, id, version)?.seal(secrets, &tx.env().random, to_json(headers)?.as_bytes())
}

fn open_headers(tx: &Tx, secrets: &Secrets, id: WebhookId, stored: &StoredWebhook) -> Result<BTreeMap<String, String>> {
    let plain = sealed_cell(tx, &SEALED_HEADERS, id, stored.headers_version)?.open(secrets, &stored.headers)?;
    serde_json::from_slice(&plain).map_err(Error::internal)
}

/// The header names for the audit entry, each with a mask that says whether its value is new.
fn mask_headers(headers: &BTreeMap<String, String>, stored: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mask = |(name, value): (&String, &String)| {
        let same = stored.get(name) == Some(value);
        (name.clone(), if same { MASK.to_owned() } else { format!("{MASK} (new)") })
    };
    headers.iter().map(mask).collect()
}

fn names_json(headers: &BTreeMap<String, String>) -> Result<String> {
    to_json(&headers.keys().collect::<Vec<_>>())
}
