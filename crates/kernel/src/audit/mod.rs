//! The audit trail: who did what to which record, from where, written in the transaction of the change itself.

mod fields;

use std::fmt::Display;

use serde_json::{Map, Value, json};

use crate::base::{ActorRef, AuditId, Result, TenantId, Timestamp};
use crate::store::{Db, Tx, to_json};

pub use fields::{FieldChange, changed_fields};

crate::columns! {
    /// All columns of an entry.
    pub struct EntryColumns in "audit_entries" {
        id, at, actor_type, actor_id, actor_name, action, target_type, target_id, address, credential_type, credential_id,
        request_id, changes,
    }
}

crate::statements! {
    INSERT = EntryColumns::INSERT;
    /// The next tenant with entries older than a time: one index lookup per tenant.
    NEXT_TO_CLEAN = "SELECT t.id FROM tenants t WHERE t.id > $1 AND (SELECT a.at FROM audit_entries a
            WHERE a.tenant_id = t.id AND a.at < $2 ORDER BY a.at, a.id LIMIT 1) IS NOT NULL
        ORDER BY t.id LIMIT 1";
    CLEAN = "DELETE FROM audit_entries WHERE tenant_id = $1 AND id IN
        (SELECT a.id FROM audit_entries a WHERE a.tenant_id = $1 AND a.at < $2 ORDER BY a.at, a.id LIMIT $3)";
}

/// The longest value that an entry repeats; see [`AuditChanges::add_shortened`].
const VALUE_BYTES_MAX: usize = 1_000;

/// One action to record. The actor and the address come from the handle.
pub struct NewAuditEntry {
    action: &'static str,
    target_type: &'static str,
    target_id: String,
    changes: Option<Value>,
    actor: Option<ActorRef>,
}

impl NewAuditEntry {
    pub fn new(action: &'static str, target_type: &'static str, target_id: impl Display) -> Self {
        NewAuditEntry { action, target_type, target_id: target_id.to_string(), changes: None, actor: None }
    }

    #[must_use]
    pub fn with_changes(mut self, changes: AuditChanges) -> Self {
        self.changes = Some(Value::Object(changes.0));
        self
    }

    /// Names another actor than the handle's: a person who is identified only in this transaction, at sign-in.
    #[must_use]
    pub fn with_actor(mut self, who: ActorRef) -> Self {
        self.actor = Some(who);
        self
    }
}

/// `{field: {from, to}}` of the fields that differ.
#[derive(Default)]
pub struct AuditChanges(Map<String, Value>);

impl AuditChanges {
    pub fn add_if_changed<T: Into<Value> + PartialEq>(&mut self, field: &str, from: T, to: T) {
        if from != to {
            self.0.insert(field.to_owned(), json!({ "from": from.into(), "to": to.into() }));
        }
    }

    /// Adds a field that differs, described by other values than its own.
    pub fn add_described(&mut self, field: &str, from: &Value, to: &Value) {
        self.0.insert(field.to_owned(), json!({ "from": from, "to": to }));
    }

    /// Adds a field that differs, without long values: the record's history or its event has them.
    pub fn add_shortened(&mut self, field: &str, from: &Value, to: &Value) -> Result<()> {
        self.add_described(field, &shorten_value(from)?, &shorten_value(to)?);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn shorten_value(value: &Value) -> Result<Value> {
    let is_long = to_json(value)?.len() > VALUE_BYTES_MAX;
    Ok(if is_long { json!({"truncated": true}) } else { value.clone() })
}

pub async fn record_entry(tx: &mut Tx, entry: NewAuditEntry) -> Result<()> {
    let at = tx.tick().await?.at;
    let id = AuditId::new(tx.env());
    let changes = entry.changes.as_ref().map(to_json).transpose()?;
    let actor = tx.actor().clone();
    let credential_type = actor.credential.as_ref().map(|credential| credential.kind.as_str());
    let credential_id = actor.credential.as_ref().map(|credential| credential.id.clone());
    let who = entry.actor.unwrap_or(actor.who);
    let address = actor.address.map(|address| address.to_string());
    let row = EntryColumns {
        id: id.into(),
        at: at.into(),
        actor_type: who.kind.as_str().into(),
        actor_id: who.id.into(),
        actor_name: who.name.into(),
        action: entry.action.into(),
        target_type: entry.target_type.into(),
        target_id: entry.target_id.into(),
        address: address.into(),
        credential_type: credential_type.into(),
        credential_id: credential_id.into(),
        request_id: actor.request_id.as_deref().into(),
        changes: changes.into(),
    };
    tx.defer_exec(INSERT, row.into_vec()).await
}

/// The next tenant, in the order of ids, that has entries older than `before`.
pub async fn find_tenant_after(db: &Db, after: Option<TenantId>, before: Timestamp) -> Result<Option<TenantId>> {
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    db.find(NEXT_TO_CLEAN, crate::args![after, before]).await
}

/// Deletes at most `rows` entries of a tenant that are older than `before`; true if there may be more. It works tenant by
/// tenant, because an index over all tenants' entries by time would tempt PostgreSQL to read one tenant's trail along it.
pub async fn delete_old_entries(db: &Db, tenant: TenantId, before: Timestamp, rows: i64) -> Result<bool> {
    let removed = db.write(async move |tx| tx.exec(CLEAN, crate::args![tenant, before, rows]).await).await?;
    Ok(removed == rows.unsigned_abs())
}
