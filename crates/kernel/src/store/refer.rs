//! Records that others refer to, looked up together: however many a body names, they are one statement.

use std::collections::HashSet;

use crate::base::{Error, FieldError, Result, is_record_id};

use super::{Ahead, Db, Tx, Value};

/// A kind of record that others may refer to. Whoever owns it declares it, and the product lists them.
#[derive(Clone, Copy, Debug)]
pub struct Referable {
    /// What its ids start with.
    pub prefix: &'static str,
    /// Where they are, by `(tenant_id, id)`.
    pub table: &'static str,
    /// Which of them can be referred to, where that is not all.
    pub only: Option<&'static str>,
}

/// Another record that a body names. Whether there is such a record, only the database knows.
#[derive(Clone, Debug)]
pub struct Reference {
    pub pointer: String,
    /// What ids of the wanted kind start with.
    pub prefix: &'static str,
    pub id: String,
}

impl Reference {
    fn unknown(&self) -> FieldError {
        let detail = "there is no such record in this tenant".to_owned();
        FieldError { pointer: self.pointer.clone(), code: "unknown_reference", detail }
    }

    /// Whether the id is one of the wanted kind. An id that is known may have been given for another field.
    fn is_of_kind(&self) -> bool {
        is_record_id(&self.id) && self.id.split_once('_').is_some_and(|(own, _)| own == self.prefix)
    }
}

/// Arms of one statement: SQLite takes 500, and a body that names more is asked for in several.
const ARMS_MAX: usize = 100;

/// Refuses what the tenant does not have, each with its pointer.
pub async fn check(tx: &mut Tx, referable: &[Referable], references: &[Reference]) -> Result<()> {
    ask(tx, referable, references).await?.check(tx).await
}

/// What the tenant does not have of what is named by a body that is refused anyway.
pub async fn unknown(db: &Db, referable: &'static [Referable], references: Vec<Reference>) -> Result<Vec<FieldError>> {
    db.write(async move |tx| ask(tx, referable, &references).await?.unknown(tx).await).await
}

/// What was asked about references, and not waited for.
pub struct Asked<'a> {
    references: &'a [Reference],
    known: Vec<Ahead<String>>,
}

/// The first half of [`check`], where more is asked together. A kind that is not among the referable ones has no records,
/// and the id of another kind names none.
pub async fn ask<'a>(tx: &mut Tx, referable: &[Referable], references: &'a [Reference]) -> Result<Asked<'a>> {
    let kind = |prefix: &str| referable.iter().find(|kind| kind.prefix == prefix);
    let named: Vec<(&Referable, &str)> = references
        .iter()
        .filter(|reference| reference.is_of_kind())
        .filter_map(|reference| Some((kind(reference.prefix)?, reference.id.as_str())))
        .collect();
    let mut known = Vec::new();
    for some in named.chunks(ARMS_MAX) {
        let arm = |(place, (kind, _)): (usize, &(&Referable, &str))| {
            let only = kind.only.map(|condition| format!(" AND {condition}")).unwrap_or_default();
            format!("SELECT id FROM {} WHERE tenant_id = $1 AND id = ${}{only}", kind.table, place + 2)
        };
        let sql = some.iter().enumerate().map(arm).collect::<Vec<_>>().join(" UNION ALL ");
        known.push(tx.ask(sql, some.iter().map(|(_, id)| Value::from(*id)).collect()).await?);
    }
    Ok(Asked { references, known })
}

impl Asked<'_> {
    /// Refuses what the tenant does not have.
    pub async fn check(self, tx: &mut Tx) -> Result<()> {
        let unknown = self.unknown(tx).await?;
        if unknown.is_empty() { Ok(()) } else { Err(Error::invalid_fields(unknown)) }
    }

    async fn unknown(self, tx: &mut Tx) -> Result<Vec<FieldError>> {
        let mut known = HashSet::new();
        for asked in self.known {
            known.extend(tx.answer(asked).await?);
        }
        let is_known = |reference: &&Reference| reference.is_of_kind() && known.contains(&reference.id);
        Ok(self.references.iter().filter(|reference| !is_known(reference)).map(Reference::unknown).collect())
    }
}
