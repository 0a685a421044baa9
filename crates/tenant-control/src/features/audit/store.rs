//! The SQL of reading the audit trail.

use kernel::base::{Error, Result, Timestamp};
use kernel::store::{Compare, Db, Direction, FromRow, Row, Select, Value};

use super::{AuditCredential, AuditEntry, AuditTarget};

const COLUMNS: &str = "SELECT id, at, actor_type, actor_id, actor_name, action, target_type, target_id, address,
        credential_type, credential_id, request_id, changes
    FROM audit_entries WHERE tenant_id = $1";

impl FromRow for AuditEntry {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let credential_type: Option<String> = row.get(9)?;
        let credential_id: Option<String> = row.get(10)?;
        let changes: Option<String> = row.get(12)?;
        Ok(AuditEntry {
            id: row.get(0)?,
            at: row.get(1)?,
            actor: row.actor(2)?,
            action: row.get(5)?,
            target: AuditTarget { kind: row.get(6)?, id: row.get(7)? },
            address: row.get(8)?,
            credential: credential_type.map(|kind| AuditCredential { kind, id: credential_id }),
            request_id: row.get(11)?,
            changes: changes.map(|text| serde_json::from_str(&text)).transpose().map_err(Error::internal)?,
        })
    }
}

/// Which entries are wanted; `None` is all.
#[derive(Default)]
pub struct Filter {
    pub actor_id: Option<Vec<String>>,
    pub action: Option<Vec<String>>,
    pub target_id: Option<Vec<String>>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// Newest first.
pub async fn list(db: &Db, filter: &Filter, after: Option<Vec<Value>>, limit: usize) -> Result<Vec<AuditEntry>> {
    let mut select = Select::new(COLUMNS);
    for (field, any) in [("actor_id", &filter.actor_id), ("action", &filter.action), ("target_id", &filter.target_id)] {
        if let Some(any) = any {
            select = select.any(field, any.iter().map(String::as_str));
        }
    }
    if let Some(since) = filter.since {
        select = select.compare("at", Compare::AtLeast, since);
    }
    if let Some(until) = filter.until {
        select = select.compare("at", Compare::Below, until);
    }
    let order = ["at", "id"];
    if let Some(position) = after {
        select = select.after(&order, Direction::Descending, position);
    }
    db.select(&select.order(&order, Direction::Descending).limit(limit)).await
}
