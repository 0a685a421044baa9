//! Records that others refer to, looked up together: however many a body names, they are one statement. And who refers to one
//! that is to go.

use std::collections::HashSet;
use std::fmt::Display;

use crate::base::{Error, FieldError, Result, is_record_id};

use super::{Ahead, Db, FromRow, Row, Tx, Value};

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

/// Records that refer to those of another kind, which stay as long as any does. Whoever owns them declares it, and the product
/// lists them.
#[derive(Clone, Copy, Debug)]
pub struct Referrer {
    /// What ids start with that they refer to.
    pub prefix: &'static str,
    /// What people call them, such as `tickets`.
    pub what: &'static str,
    /// Finds one of them, if any refers to the id `$2`.
    pub find: &'static str,
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
        let detail = "there is no such record in this tenant, or it is archived, disabled or deleted".to_owned();
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
    db.write(async move |tx| ask(tx, referable, &references).await?.unknown(tx, &[]).await).await
}

/// What refers to a record of this kind. Whoever wants to remove it holds the tenant's clock, so that nothing more comes to refer
/// to it meanwhile.
pub async fn find_referrers(
    tx: &mut Tx,
    referrers: &[Referrer],
    prefix: &str,
    id: impl Display,
) -> Result<Vec<&'static str>> {
    let id = id.to_string();
    let mut asked = Vec::new();
    for referrer in referrers.iter().filter(|referrer| referrer.prefix == prefix) {
        let found: Ahead<Any> = tx.ask(referrer.find, vec![id.as_str().into()]).await?;
        asked.push((referrer.what, found));
    }
    let mut referring = Vec::new();
    for (what, found) in asked {
        if !tx.answer(found).await?.is_empty() {
            referring.push(what);
        }
    }
    Ok(referring)
}

/// A row of which nothing matters but that it is there.
struct Any;

impl FromRow for Any {
    fn from_row(_: &Row<'_>) -> Result<Self> {
        Ok(Any)
    }
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
        self.check_but(tx, &[]).await
    }

    /// The same for a record that refers to some already, and may go on to: they are no new references.
    pub async fn check_but(self, tx: &mut Tx, kept: &[String]) -> Result<()> {
        let unknown = self.unknown(tx, kept).await?;
        if unknown.is_empty() { Ok(()) } else { Err(Error::invalid_fields(unknown)) }
    }

    async fn unknown(self, tx: &mut Tx, kept: &[String]) -> Result<Vec<FieldError>> {
        let mut known: HashSet<String> = kept.iter().cloned().collect();
        for asked in self.known {
            known.extend(tx.answer(asked).await?);
        }
        let is_known = |reference: &&Reference| reference.is_of_kind() && known.contains(&reference.id);
        Ok(self.references.iter().filter(|reference| !is_known(reference)).map(Reference::unknown).collect())
    }
}
