//! Records that others refer to, looked up together: however many a body names, they are one statement.

use std::collections::HashSet;

use crate::base::{Result, is_record_id};

use super::{Ahead, Tx, Value};

/// A kind of record that others may refer to. Whoever owns it declares it, and the product lists them.
#[derive(Clone, Copy, Debug)]
pub struct Referable {
    /// What its ids start with.
    pub prefix: &'static str,
    /// Where they are, by `(tenant_id, id)`.
    pub table: &'static str,
}

/// Arms of one statement: SQLite takes 500, and a body that names more is asked for in several.
const ARMS_MAX: usize = 100;

/// What was asked about ids, and not waited for.
pub struct Asked(Vec<Ahead<String>>);

/// Asks which of these ids the tenant has, each given with what ids of its kind start with. A kind that is not among the
/// referable ones has no records, and the id of another kind names none: what is known begins as it must.
pub async fn ask(tx: &mut Tx, referable: &[Referable], ids: &[(&str, &str)]) -> Result<Asked> {
    let table = |prefix: &str| referable.iter().find(|kind| kind.prefix == prefix).map(|kind| kind.table);
    let named: Vec<(&str, &str)> = ids
        .iter()
        .filter(|(prefix, id)| is_of_kind(prefix, id))
        .filter_map(|(prefix, id)| Some((table(prefix)?, *id)))
        .collect();
    let mut asked = Vec::new();
    for some in named.chunks(ARMS_MAX) {
        let arm = |(place, (table, _)): (usize, &(&str, &str))| {
            format!("SELECT id FROM {table} WHERE tenant_id = $1 AND id = ${}", place + 2)
        };
        let sql = some.iter().enumerate().map(arm).collect::<Vec<_>>().join(" UNION ALL ");
        asked.push(tx.ask(sql, some.iter().map(|(_, id)| Value::from(*id)).collect()).await?);
    }
    Ok(Asked(asked))
}

impl Asked {
    /// Those that the tenant has.
    pub async fn known(self, tx: &mut Tx) -> Result<HashSet<String>> {
        let mut known = HashSet::new();
        for asked in self.0 {
            known.extend(tx.answer(asked).await?);
        }
        Ok(known)
    }
}

/// Whether an id is one of the kind whose ids start so. An id that is known may have been given for another field.
pub fn is_of_kind(prefix: &str, id: &str) -> bool {
    is_record_id(id) && id.split_once('_').is_some_and(|(own, _)| own == prefix)
}
