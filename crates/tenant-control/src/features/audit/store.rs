//! The SQL of reading the audit trail.

use std::collections::HashMap;

use kernel::audit::EntryColumns;
use kernel::base::{AuditId, Error, RecordId, Result, Timestamp};
use kernel::http::PageBytes;
use kernel::store::{ARMS_MAX, Arm, Db, FromRow, Passed, Row, Select, Value, Walk};

use super::{AuditCredential, AuditEntry, AuditTarget};

/// A piece of an index in the order of time, which SQLite is told. Each value is asked for twice, in other words: however
/// alike PostgreSQL takes all entries to be, it then finds the index with the value cheaper than the one without.
macro_rules! arm {
    ($index:literal, $where:literal, $bounds:literal, $limit:literal) => {
        concat!(
            "SELECT at, id, actor_id, action, target_id FROM audit_entries /* INDEXED BY audit_entries_",
            $index,
            " */ WHERE tenant_id = $1 AND ",
            $where,
            $bounds,
            " ORDER BY at DESC, id DESC LIMIT ",
            $limit
        )
    };
}

kernel::statements! {
    BY_TIME = arm!("by_time", "", "(at, id) < ($2, $3) AND (at, id) >= ($4, $5)", "$6");
    BY_ACTOR = arm!(
        "by_actor",
        "actor_id = $2 AND actor_id >= $2 AND ",
        "(at, id) < ($3, $4) AND (at, id) >= ($5, $6)",
        "$7"
    );
    BY_ACTION = arm!(
        "by_action",
        "action = $2 AND action >= $2 AND ",
        "(at, id) < ($3, $4) AND (at, id) >= ($5, $6)",
        "$7"
    );
    BY_TARGET = arm!(
        "by_target",
        "target_id = $2 AND target_id >= $2 AND ",
        "(at, id) < ($3, $4) AND (at, id) >= ($5, $6)",
        "$7"
    );
    BY_ACTOR_AND_ACTION = arm!(
        "by_actor_and_action",
        "actor_id = $2 AND action = $3 AND actor_id >= $2 AND action >= $3 AND ",
        "(at, id) < ($4, $5) AND (at, id) >= ($6, $7)",
        "$8"
    );
    /// Those of one part of a page; the list adds their ids.
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
            actor: row.actor([AT.actor_type, AT.actor_id, AT.actor_name])?,
            action: row.get(AT.action)?,
            target: AuditTarget { kind: row.get(AT.target_type)?, id: row.get(AT.target_id)? },
            address: row.get(AT.address)?,
            credential: credential_type.map(|kind| AuditCredential { kind, id: credential_id }),
            request_id: row.get(AT.request_id)?,
            changes: changes.map(|text| serde_json::from_str(&text)).transpose().map_err(Error::internal)?,
        })
    }
}

/// Where an entry stands in the trail.
pub type Place = (Timestamp, AuditId);

/// A place as a cursor holds it.
pub fn position(place: Place) -> Vec<Value> {
    Brief::position(place)
}

/// The place that a cursor holds.
pub fn place(position: &[Value]) -> Option<Place> {
    match position {
        [Value::Int(at), Value::Text(id)] => Some((Timestamp::from_millis(*at), id.parse().ok()?)),
        _ => None,
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

/// As much of an entry as the filters ask about.
struct Brief {
    at: Timestamp,
    id: AuditId,
    actor_id: Option<String>,
    action: String,
    target_id: Option<String>,
}

impl FromRow for Brief {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (at, id, actor_id) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Brief { at, id, actor_id, action: row.get(3)?, target_id: row.get(4)? })
    }
}

impl Passed for Brief {
    type Key = Place;

    fn key(&self) -> Place {
        (self.at, self.id)
    }

    fn position((at, id): Place) -> Vec<Value> {
        vec![at.into(), id.into()]
    }
}

impl Filter {
    fn matches(&self, entry: &Brief) -> bool {
        let any = |wanted: &Option<Vec<String>>, value: Option<&String>| {
            wanted.as_ref().is_none_or(|wanted| value.is_some_and(|value| wanted.contains(value)))
        };
        any(&self.actor_id, entry.actor_id.as_ref())
            && any(&self.action, Some(&entry.action))
            && any(&self.target_id, entry.target_id.as_ref())
    }

    /// Along which index: a record's own entries are few, then who did it, then what was done. Actor and action have one
    /// of their own, because a busy actor and a frequent action may have little in common.
    fn walk(&self, after: Option<Place>) -> Walk<Place> {
        let below = after.unwrap_or((self.until.unwrap_or(Timestamp::from_millis(i64::MAX)), AuditId::NONE));
        let least = (self.since.unwrap_or(Timestamp::from_millis(0)), AuditId::NONE);
        let given = [&self.actor_id, &self.action, &self.target_id].into_iter().flatten().count();
        let walk = |text, values: Vec<Vec<Value>>, driving: usize| {
            let arms = values.into_iter().map(|values| Arm { values, below, least }).collect();
            Walk { text, arms, exact: given == driving }
        };
        let each = |any: &[&str]| any.iter().map(|value| vec![Value::from(*value)]).collect();
        let [actors, actions, targets] =
            [&self.actor_id, &self.action, &self.target_id].map(|any| any.as_ref().map(|any| distinct(any)));
        match (actors, actions, targets) {
            (_, _, Some(targets)) => walk(BY_TARGET, each(&targets), 1),
            (Some(actors), Some(actions), None) if actors.len() * actions.len() <= ARMS_MAX => {
                let pair =
                    |actor: &&str| actions.iter().map(|action| vec![(*actor).into(), (*action).into()]).collect();
                let pairs: Vec<Vec<Vec<Value>>> = actors.iter().map(pair).collect();
                walk(BY_ACTOR_AND_ACTION, pairs.concat(), 2)
            }
            (Some(actors), _, None) => walk(BY_ACTOR, each(&actors), 1),
            (None, Some(actions), None) => walk(BY_ACTION, each(&actions), 1),
            (None, None, None) => walk(BY_TIME, vec![Vec::new()], 0),
        }
    }
}

/// The values of a filter, each once, or its rows would come by twice.
fn distinct(any: &[String]) -> Vec<&str> {
    let mut values: Vec<&str> = any.iter().map(String::as_str).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Newest first, and where the next page starts.
pub async fn list(
    db: &Db,
    filter: &Filter,
    after: Option<Place>,
    limit: usize,
) -> Result<(Vec<AuditEntry>, Option<Place>)> {
    let found = filter.walk(after).newest(db, limit + 1, |entry: &Brief| filter.matches(entry)).await?;
    let keys: Vec<Place> = found.rows.iter().take(limit).map(Passed::key).collect();
    let next = if found.rows.len() > limit { keys.last().copied() } else { found.looked_to };
    let (mut entries, mut bytes, mut shown) = (Vec::new(), PageBytes::default(), after);
    for part in keys.chunks(READ_ROWS) {
        let read = Select::new(READ).any("id", part.iter().map(|(_, id)| *id)).limit(part.len());
        let read: Vec<AuditEntry> = db.select(&read).await?;
        let mut read: HashMap<AuditId, AuditEntry> = read.into_iter().map(|entry| (entry.id, entry)).collect();
        for key in part {
            // What is not there any more has been cleaned away meanwhile.
            let Some(entry) = read.remove(&key.1) else { continue };
            if !bytes.fits_record(&entry)? {
                return Ok((entries, shown));
            }
            entries.push(entry);
            shown = Some(*key);
        }
    }
    Ok((entries, next))
}
