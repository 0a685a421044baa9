//! SQL that lists audit entries.

use kernel::audit::EntryColumns;
use kernel::base::{AuditId, RecordId, Result, Timestamp};
use kernel::http::{json_size, load_records};
use kernel::store::{ARMS_MAX, ArmSql, Db, FromRow, IndexWalk, Row, Select, Value, pair_rows};

use super::{AuditCredential, AuditEntry, AuditTarget};

/// The columns that filters compare.
const ENTRIES: ArmSql = ArmSql::new("at, id, actor_id, action, target_id", "audit_entries", &["at", "id"]);

kernel::statements! {
    BY_TIME = kernel::arm!(ENTRIES.use_index("audit_entries_by_time"));
    BY_ACTOR = kernel::arm!(ENTRIES.use_index("audit_entries_by_actor").where_equal(&["actor_id"]));
    BY_ACTION = kernel::arm!(ENTRIES.use_index("audit_entries_by_action").where_equal(&["action"]));
    BY_TARGET = kernel::arm!(ENTRIES.use_index("audit_entries_by_target").where_equal(&["target_id"]));
    BY_ACTOR_AND_ACTION = kernel::arm!(ENTRIES.use_index("audit_entries_by_actor_and_action").where_equal(&["actor_id", "action"]));
    /// The entries of one part of a page; the list adds their ids.
    READ = EntryColumns::SELECT;
}

/// Entries that are read at once: the largest are some tens of kilobytes.
const READ_ROWS: usize = 50;

impl FromRow for AuditEntry {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: EntryColumns<usize> = EntryColumns::AT;
        let credential_type: Option<String> = row.get(AT.credential_type)?;
        let credential_id: Option<String> = row.get(AT.credential_id)?;
        let changes: Option<String> = row.get(AT.changes)?;
        Ok(AuditEntry {
            id: row.get(AT.id)?,
            at: row.get(AT.at)?,
            actor: row.get_actor([AT.actor_type, AT.actor_id, AT.actor_name])?,
            action: row.get(AT.action)?,
            target: AuditTarget { kind: row.get(AT.target_type)?, id: row.get(AT.target_id)? },
            address: row.get(AT.address)?,
            credential: credential_type.map(|kind| AuditCredential { kind, id: credential_id }),
            request_id: row.get(AT.request_id)?,
            // Changes that can no longer be parsed must not hide the entry.
            changes: changes.and_then(|text| serde_json::from_str(&text).ok()),
        })
    }
}

/// The position of an entry in the trail.
pub type AuditPosition = (Timestamp, AuditId);

/// Which entries to list; `None` means all.
#[derive(Default)]
pub struct Filter {
    pub actor_id: Option<Vec<String>>,
    pub action: Option<Vec<String>>,
    pub target_id: Option<Vec<String>>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// A row of [`ENTRIES`].
struct AuditFilterRow {
    at: Timestamp,
    id: AuditId,
    actor_id: Option<String>,
    action: String,
    target_id: Option<String>,
}

impl FromRow for AuditFilterRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (at, id, actor_id) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(AuditFilterRow { at, id, actor_id, action: row.get(3)?, target_id: row.get(4)? })
    }
}

impl AuditFilterRow {
    fn position(&self) -> AuditPosition {
        (self.at, self.id)
    }
}

impl Filter {
    fn matches_row(&self, entry: &AuditFilterRow) -> bool {
        let any = |accepted: &Option<Vec<String>>, value: Option<&String>| {
            accepted.as_ref().is_none_or(|accepted| value.is_some_and(|value| accepted.contains(value)))
        };
        any(&self.actor_id, entry.actor_id.as_ref())
            && any(&self.action, Some(&entry.action))
            && any(&self.target_id, entry.target_id.as_ref())
    }

    /// Chooses the index by selectivity: a record has few entries, then by actor, then by action. Actor and action together
    /// have an index of their own, because a busy actor and a frequent action may have few entries in common.
    fn plan_walk(&self, after: Option<AuditPosition>) -> IndexWalk<AuditPosition> {
        let below = after.unwrap_or((self.until.unwrap_or(Timestamp::from_millis(i64::MAX)), AuditId::NONE));
        let least = (self.since.unwrap_or(Timestamp::from_millis(0)), AuditId::NONE);
        let given = [&self.actor_id, &self.action, &self.target_id].into_iter().flatten().count();
        let walk = |text, values: Vec<Vec<Value>>, driving: usize| {
            IndexWalk::new(text, values, least..below, given == driving)
        };
        let each = |any: &[String]| any.iter().map(|value| vec![value.as_str().into()]).collect();
        match (&self.actor_id, &self.action, &self.target_id) {
            (_, _, Some(targets)) => walk(BY_TARGET, each(targets), 1),
            (Some(actors), Some(actions), None) if actors.len() * actions.len() <= ARMS_MAX => {
                let pair = |actor: &String| {
                    actions.iter().map(|action| vec![actor.as_str().into(), action.as_str().into()]).collect()
                };
                let pairs: Vec<Vec<Vec<Value>>> = actors.iter().map(pair).collect();
                walk(BY_ACTOR_AND_ACTION, pairs.concat(), 2)
            }
            (Some(actors), _, None) => walk(BY_ACTOR, each(actors), 1),
            (None, Some(actions), None) => walk(BY_ACTION, each(actions), 1),
            (None, None, None) => walk(BY_TIME, vec![Vec::new()], 0),
        }
    }
}

/// A page of entries, newest first, and where the next page starts.
pub async fn list_entries(
    db: &Db,
    filter: &Filter,
    after: Option<AuditPosition>,
    limit: usize,
) -> Result<(Vec<AuditEntry>, Option<AuditPosition>)> {
    let matches = |entry: &AuditFilterRow| filter.matches_row(entry);
    let (rows, next) = filter.plan_walk(after).load_page(db, limit, AuditFilterRow::position, matches).await?;
    load_records(
        &rows,
        next,
        |_| READ_ROWS,
        json_size,
        |part| async move {
            let select = Select::new(READ).where_in("id", part.iter().map(|row| row.id)).limit(part.len());
            let entries: Vec<AuditEntry> = db.select(&select).await?;
            let found = pair_rows(part, |row| row.id, entries, |entry| entry.id);
            Ok(found.map(|(row, entry)| (row.position(), entry)).collect())
        },
    )
    .await
}
