//! References between records: all references of a body are checked by one statement, and the referrers of a record are
//! found before it is deleted.

use std::collections::HashSet;
use std::fmt::Display;

use crate::base::{Error, FieldError, Result, is_record_id};

use super::{Db, FromRow, PendingRows, Row, Tx, Value};

/// A kind of record that others may refer to. The feature that owns it declares it, and the product lists them all.
#[derive(Clone, Copy, Debug)]
pub struct Referable {
    /// The prefix of its ids.
    pub prefix: &'static str,
    /// Its table, with the key `(tenant_id, id)`.
    pub table: &'static str,
    /// The condition that a row must meet to be referred to, if there is one.
    pub only: Option<&'static str>,
}

/// Records that refer to another kind of record, which cannot be deleted while any does. The feature that owns them declares
/// it, and the product lists them all.
#[derive(Clone, Copy, Debug)]
pub struct Referrer {
    /// The prefix of the ids they refer to.
    pub prefix: &'static str,
    /// The name that users see, such as `tickets`.
    pub what: &'static str,
    /// The statement that finds one of them that refers to the id `$2`.
    pub find: &'static str,
}

/// Another record that a body names, not yet checked against the database.
#[derive(Clone, Debug)]
pub struct RecordReference {
    pub pointer: String,
    /// The id prefix of the expected kind.
    pub prefix: &'static str,
    pub id: String,
}

impl RecordReference {
    fn to_unknown_error(&self) -> FieldError {
        let detail = "there is no such record in this tenant, or it is archived, disabled or deleted".to_owned();
        FieldError { pointer: self.pointer.clone(), code: "unknown_reference", detail }
    }

    /// Whether the id is of the expected kind. An existing record of another kind does not count.
    fn is_of_kind(&self) -> bool {
        is_record_id(&self.id) && self.id.split_once('_').is_some_and(|(own, _)| own == self.prefix)
    }
}

/// Arms of one UNION ALL: SQLite allows 500. More references take several statements.
const LOOKUP_ARMS_MAX: usize = 100;

/// Fails with one field error for each reference that the tenant does not have.
pub async fn check_references(tx: &mut Tx, referable: &[Referable], references: &[RecordReference]) -> Result<()> {
    send_lookup(tx, referable, references).await?.await_check(tx).await
}

/// The field errors of unknown references, for a body that is refused anyway.
pub async fn list_unknown(
    db: &Db,
    referable: &'static [Referable],
    references: Vec<RecordReference>,
) -> Result<Vec<FieldError>> {
    db.write(async move |tx| send_lookup(tx, referable, &references).await?.await_unknown(tx, &[]).await).await
}

/// The kinds of records that refer to a record. The caller holds the tenant's clock, so that no reference is added before it
/// deletes the record.
pub async fn find_referrers(
    tx: &mut Tx,
    referrers: &[Referrer],
    prefix: &str,
    id: impl Display,
) -> Result<Vec<&'static str>> {
    let id = id.to_string();
    let mut pending = Vec::new();
    for referrer in referrers.iter().filter(|referrer| referrer.prefix == prefix) {
        let found: PendingRows<RowPresence> = tx.defer_query(referrer.find, vec![id.as_str().into()]).await?;
        pending.push((referrer.what, found));
    }
    let mut referring = Vec::new();
    for (what, found) in pending {
        if !tx.await_rows(found).await?.is_empty() {
            referring.push(what);
        }
    }
    Ok(referring)
}

/// A row of which only the existence matters.
struct RowPresence;

impl FromRow for RowPresence {
    fn from_row(_: &Row<'_>) -> Result<Self> {
        Ok(RowPresence)
    }
}

/// A lookup of references that was sent and not awaited yet.
pub struct ReferenceLookup<'a> {
    references: &'a [RecordReference],
    pending: Vec<PendingRows<String>>,
}

/// The first half of [`check_references`], to send more queries before the rows are awaited. Kinds that are not referable,
/// and ids of another kind, are unknown without a query.
pub async fn send_lookup<'a>(
    tx: &mut Tx,
    referable: &[Referable],
    references: &'a [RecordReference],
) -> Result<ReferenceLookup<'a>> {
    let kind = |prefix: &str| referable.iter().find(|kind| kind.prefix == prefix);
    let named: Vec<(&Referable, &str)> = references
        .iter()
        .filter(|reference| reference.is_of_kind())
        .filter_map(|reference| Some((kind(reference.prefix)?, reference.id.as_str())))
        .collect();
    let mut pending = Vec::new();
    for chunk in named.chunks(LOOKUP_ARMS_MAX) {
        let arm = |(index, (kind, _)): (usize, &(&Referable, &str))| {
            let only = kind.only.map(|condition| format!(" AND {condition}")).unwrap_or_default();
            format!("SELECT id FROM {} WHERE tenant_id = $1 AND id = ${}{only}", kind.table, index + 2)
        };
        let sql = chunk.iter().enumerate().map(arm).collect::<Vec<_>>().join(" UNION ALL ");
        pending.push(tx.defer_query(sql, chunk.iter().map(|(_, id)| Value::from(*id)).collect()).await?);
    }
    Ok(ReferenceLookup { references, pending })
}

impl ReferenceLookup<'_> {
    /// Fails with one field error for each unknown reference.
    pub async fn await_check(self, tx: &mut Tx) -> Result<()> {
        self.await_check_except(tx, &[]).await
    }

    /// The same, but references in `existing` are accepted unchecked: the record had them before.
    pub async fn await_check_except(self, tx: &mut Tx, existing: &[String]) -> Result<()> {
        let unknown = self.await_unknown(tx, existing).await?;
        if unknown.is_empty() { Ok(()) } else { Err(Error::invalid_fields(unknown)) }
    }

    async fn await_unknown(self, tx: &mut Tx, existing: &[String]) -> Result<Vec<FieldError>> {
        let mut known: HashSet<String> = existing.iter().cloned().collect();
        for pending in self.pending {
            known.extend(tx.await_rows(pending).await?);
        }
        let is_known = |reference: &&RecordReference| reference.is_of_kind() && known.contains(&reference.id);
        Ok(self
            .references
            .iter()
            .filter(|reference| !is_known(reference))
            .map(RecordReference::to_unknown_error)
            .collect())
    }
}
