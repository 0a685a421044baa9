//! Reads an endpoint from its row.

use feature_kit::request_headers::MASK;
use kernel::base::seal::SealedValue;
use kernel::base::{Result, StringEnum, Timestamp};
use kernel::store::{FromRow, Row};

use super::{Webhook, WebhookBacklog, WebhookId, WebhookRecovery, WebhookRecoveryStatus, WebhookStatus};

kernel::columns! {
    /// A record with the state that the sender has saved. The count is bounded, so that a large backlog costs no more.
    pub struct WebhookColumns {
        id = "w.id", name = "w.name", url = "w.url", events = "w.events", status = "w.status",
        disabled_reason = "w.disabled_reason", header_names = "w.header_names", headers = "w.headers",
        headers_version = "w.headers_version", rate_limit_per_second = "w.rate_limit_per_second", ordered = "w.ordered",
        created_by_type = "w.created_by_type", created_by_id = "w.created_by_id", created_by_name = "w.created_by_name",
        version = "w.version", created_at = "w.created_at", updated_at = "w.updated_at",
        last_success_at = "s.last_success_at", last_failure_at = "s.last_failure_at",
        consecutive_failures = "COALESCE(s.consecutive_failures, 0)", paused_until = "s.paused_until",
        paused_reason = "s.paused_reason",
        pending = "(SELECT COUNT(*) FROM (SELECT 1 AS one FROM deliveries d
            WHERE d.tenant_id = w.tenant_id AND d.webhook_id = w.id AND d.status = 'pending' LIMIT 1000) counted)",
        next_attempt_at = "(SELECT MIN(d.next_attempt_at) FROM deliveries d
            WHERE d.tenant_id = w.tenant_id AND d.webhook_id = w.id AND d.status = 'pending')",
        recovery_since = "r.since", recovery_until = "r.until", recovery_examined = "r.examined",
        recovery_queued = "r.queued", recovery_started_at = "r.started_at", recovery_finished_at = "r.finished_at",
        recovery_cancelled = "r.cancelled",
    }
}

/// An endpoint as it is stored: the record, and its headers still sealed.
pub struct StoredWebhook {
    pub record: Webhook,
    pub headers: SealedValue,
    pub headers_version: i64,
}

impl FromRow for StoredWebhook {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: WebhookColumns<usize> = WebhookColumns::AT;
        let id: WebhookId = row.get(AT.id)?;
        let status = WebhookStatus::from_stored(&row.get::<String>(AT.status)?)?;
        let recovery = match row.get::<Option<Timestamp>>(AT.recovery_since)? {
            None => None,
            Some(since) => {
                let finished_at: Option<Timestamp> = row.get(AT.recovery_finished_at)?;
                let status = match (finished_at, row.get::<Option<bool>>(AT.recovery_cancelled)?) {
                    (None, _) => WebhookRecoveryStatus::Running,
                    (Some(_), Some(true)) => WebhookRecoveryStatus::Cancelled,
                    (Some(_), _) => WebhookRecoveryStatus::Done,
                };
                Some(WebhookRecovery {
                    webhook_id: id,
                    since,
                    until: row.get(AT.recovery_until)?,
                    status,
                    examined: row.get(AT.recovery_examined)?,
                    queued: row.get(AT.recovery_queued)?,
                    started_at: row.get(AT.recovery_started_at)?,
                    finished_at,
                })
            }
        };
        let record = kernel::read_record!(row, WebhookColumns => Webhook {
            name, url, rate_limit_per_second, ordered, disabled_reason, last_success_at, last_failure_at,
            consecutive_failures, version, created_at, updated_at;
            id,
            events: row.get_json(AT.events)?,
            enabled: status == WebhookStatus::Enabled,
            headers: row
                .get_json::<Vec<String>>(AT.header_names)?
                .into_iter()
                .map(|name| (name, MASK.to_owned()))
                .collect(),
            status,
            backlog: WebhookBacklog {
                pending: row.get(AT.pending)?,
                next_attempt_at: row.get(AT.next_attempt_at)?,
                paused_until: row.get(AT.paused_until)?,
                paused_reason: row.get(AT.paused_reason)?,
            },
            recovery,
            created_by: row.get_actor([AT.created_by_type, AT.created_by_id, AT.created_by_name])?,
        });
        Ok(StoredWebhook { record, headers: row.get(AT.headers)?, headers_version: row.get(AT.headers_version)? })
    }
}

impl StoredWebhook {
    /// The record as of `now`: a pause that has ended is not shown.
    pub fn into_webhook(mut self, now: Timestamp) -> Webhook {
        let backlog = &mut self.record.backlog;
        if backlog.paused_until.is_some_and(|until| until <= now) {
            (backlog.paused_until, backlog.paused_reason) = (None, None);
        }
        self.record
    }
}
