//! Reading the audit trail. `kernel::audit` writes it, in the transaction of the audited change.

pub mod feature;
pub mod routes;
pub mod store;

use std::collections::BTreeMap;

use kernel::base::{ActorRef, AuditId, Timestamp};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Who did what to which record, when, from which address, with which credential.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "aud_01jd8z6v2mfkpb7h3q9xw5t4ra",
    "at": "2026-11-15T08:00:00.000Z",
    "actor": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"},
    "action": "api_key.update",
    "target": {"type": "api_key", "id": "key_01jd8z6v2mfkpb7h3q9xw5t4rc"},
    "address": "198.51.100.7",
    "credential": {"type": "session", "id": "ses_01jd8z6v2mfkpb7h3q9xw5t4rd"},
    "request_id": "req_4fK2mXq8Zr1TnB6sWd0a",
    "changes": {"name": {"from": "Report", "to": "Nightly report"}}
}))]
pub struct AuditEntry {
    #[schema(value_type = String)]
    pub id: AuditId,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub actor: ActorRef,
    /// `<record>.<verb>`, such as `api_key.create`.
    pub action: String,
    pub target: AuditTarget,
    /// Null for the service itself and for the operator at the command line.
    #[schema(required)]
    pub address: Option<String>,
    #[schema(required)]
    pub credential: Option<AuditCredential>,
    #[schema(required)]
    pub request_id: Option<String>,
    /// The fields that changed; null where nothing was there before.
    #[schema(required, value_type = Option<BTreeMap<String, AuditChange>>)]
    pub changes: Option<BTreeMap<String, AuditChange>>,
}

#[derive(Serialize, ToSchema)]
pub struct AuditTarget {
    #[serde(rename = "type")]
    pub kind: String,
    #[schema(required)]
    pub id: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct AuditCredential {
    /// `session` or `api_key`.
    #[serde(rename = "type")]
    pub kind: String,
    #[schema(required)]
    pub id: Option<String>,
}

#[derive(Serialize, serde::Deserialize, ToSchema)]
pub struct AuditChange {
    pub from: Value,
    pub to: Value,
}
