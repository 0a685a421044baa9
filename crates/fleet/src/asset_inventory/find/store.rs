//! SQL of the search: one step along each index, and the members of a set.

use std::collections::{HashMap, HashSet};

use kernel::args;
use kernel::base::{Error, Result};
use kernel::store::delta::{Delta, DeltaStart};
use kernel::store::{ArmSql, Compare, Db, FromRow, IndexWalk, Row, Select, SortDirection, Tick, Value, WalkRow};

use super::{DeviceSet, DeviceSortKey, Filter};
use crate::devices::{DEVICE_LIST, StoredDevice, software};

/// Terms that one prefix may expand to; a prefix with more is too short for an index walk.
const EXPANDED_MAX: usize = 100;
/// A query that may read more rows runs off the request threads.
const INLINE_MAX: usize = 500;

const TERMS: ArmSql = ArmSql::new("number", "device_terms", &["number"]);
const SOFTWARE: ArmSql = ArmSql::new("number, name, versions", "device_software", &["number"]);

/// All columns of devices, deleted ones included.
const FULL: &str = kernel::sql![
    "SELECT ",
    DEVICE_LIST,
    " FROM devices LEFT JOIN device_reports ON device_reports.tenant_id = devices.tenant_id AND device = number
        WHERE devices.tenant_id = $1"
];

kernel::statements! {
    BY_TERM = kernel::arm!(TERMS.where_equal(&["term"]));
    BY_SOFTWARE = kernel::arm!(SOFTWARE.where_equal(&["name"]));
    /// The distinct terms with a prefix, by skipping from one term to the next without reading the devices of each.
    EXPAND = "WITH RECURSIVE found (term) AS (
            SELECT MIN(t.term) FROM device_terms t WHERE t.tenant_id = $1 AND t.term >= $2 AND t.term < $3
            UNION ALL
            SELECT (SELECT MIN(t.term) FROM device_terms t WHERE t.tenant_id = $1 AND t.term > found.term AND t.term < $3)
            FROM found WHERE found.term IS NOT NULL)
        SELECT term FROM found WHERE term IS NOT NULL LIMIT $4";
    /// Keys of changes, along an index in that order.
    CHANGES = "SELECT updated_at, sequence, number FROM devices WHERE tenant_id = $1";
    ONE = kernel::sql![FULL, " AND number = $2"];
    ALL = kernel::sql![FULL, " AND deleted_at IS NULL AND number < $2"];
    VERSIONS_OF = "SELECT number, name, versions FROM device_software WHERE tenant_id = $1";
}

/// A row of a walk along terms.
struct DeviceWalkRow(i64);

impl FromRow for DeviceWalkRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        row.get(0).map(DeviceWalkRow)
    }
}

impl WalkRow for DeviceWalkRow {
    type Key = i64;

    fn sort_key(&self) -> i64 {
        self.0
    }
}

/// A row of a walk along installed software.
pub struct SoftwareWalkRow {
    number: i64,
    name: String,
    versions: String,
}

impl FromRow for SoftwareWalkRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(SoftwareWalkRow { number: row.get(0)?, name: row.get(1)?, versions: row.get(2)? })
    }
}

impl WalkRow for SoftwareWalkRow {
    type Key = i64;

    fn sort_key(&self) -> i64 {
        self.number
    }
}

/// The next devices on a walk along a set, and the number after which there may be more. The software index has the
/// versions, so they are filtered without reading the devices.
pub async fn walk_set(
    db: &Db,
    filter: &Filter,
    set: &DeviceSet,
    below: i64,
    rows: usize,
) -> Result<(Vec<i64>, Option<i64>)> {
    let (text, values) = arms_of(set);
    let (mut numbers, next): (Vec<i64>, _) = if let DeviceSet::Software(_) = set {
        let walk = IndexWalk::new(text, values, 0..below, !filter.has_software_version());
        let (having, next) = walk
            .load_page::<SoftwareWalkRow>(db, rows, |row| filter.matches_software(&row.name, &row.versions))
            .await?;
        (having.iter().map(|row| row.number).collect(), next)
    } else {
        let (found, next) =
            IndexWalk::new(text, values, 0..below, true).load_page::<DeviceWalkRow>(db, rows, |_| true).await?;
        (found.into_iter().map(|DeviceWalkRow(number)| number).collect(), next)
    };
    numbers.dedup();
    Ok((numbers, next))
}

impl FromRow for DeviceSortKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(DeviceSortKey { changed: Some((row.get(0)?, row.get(1)?)), number: row.get(2)? })
    }
}

/// Replaces prefixes by their terms; `None` if a prefix has too many.
pub async fn expand_set(db: &Db, set: DeviceSet) -> Result<Option<DeviceSet>> {
    let DeviceSet::Prefixes { whole: mut all, starts } = set else { return Ok(Some(set)) };
    for start in starts {
        let most = i64::try_from(EXPANDED_MAX + 1).map_err(Error::internal)?;
        let terms: Vec<String> = db.list(EXPAND, args![start, format!("{start}{}", char::MAX), most]).await?;
        if terms.len() > EXPANDED_MAX {
            return Ok(None);
        }
        all.extend(terms);
    }
    all.sort_unstable();
    all.dedup();
    Ok(Some(DeviceSet::Terms(all)))
}

/// The index statement of a set, and the values to look up.
fn arms_of(set: &DeviceSet) -> (&'static str, Vec<Vec<Value>>) {
    let values = |texts: &[String]| texts.iter().map(|text| vec![Value::from(text.as_str())]).collect();
    match set {
        DeviceSet::Terms(terms) | DeviceSet::Prefixes { whole: terms, .. } => (BY_TERM, values(terms)),
        DeviceSet::Software(names) => (BY_SOFTWARE, values(names)),
    }
}

/// At most so many members of a set, unordered and with duplicates.
pub async fn list_members(db: &Db, set: &DeviceSet, most: usize) -> Result<Vec<i64>> {
    let (text, values) = arms_of(set);
    let Some(first) = values.first().cloned() else { return Ok(Vec::new()) };
    let limit = |rows: usize| Value::Int(i64::try_from(rows).unwrap_or(i64::MAX));
    let arm = |mut values: Vec<Value>, rows: usize| {
        values.extend([Value::Int(i64::MAX), Value::Int(0), limit(rows)]);
        values
    };
    let arm_count = values.len().next_power_of_two();
    let mut arms: Vec<Vec<Value>> = values.into_iter().map(|values| arm(values, most)).collect();
    // Padding with arms that find nothing keeps the number of distinct statements small.
    arms.resize(arm_count, arm(first, 0));
    let inline = arm_count * most <= 2 * INLINE_MAX;
    let select = Select::union_arms(text, arms).limit(most);
    let numbers: Vec<DeviceWalkRow> = if inline { db.select(&select).await? } else { db.scan(&select).await? };
    Ok(numbers.into_iter().map(|DeviceWalkRow(number)| number).collect())
}

/// Keys of changes in their order, and the key after which there may be more.
pub struct DeviceChangeKeys {
    pub keys: Vec<DeviceSortKey>,
    pub next: Option<DeviceSortKey>,
}

/// The key of a change, with the arm of the union that found it.
struct ChangeArmRow {
    key: DeviceSortKey,
    arm: i64,
}

impl FromRow for ChangeArmRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(ChangeArmRow { key: DeviceSortKey::from_row(row)?, arm: row.get_last()? })
    }
}

/// About so many next changes. Filters by organization use their own index. If an arm reached its limit, later changes of
/// other arms are held back, because the arm may have more before them.
pub async fn list_changes(
    db: &Db,
    filter: &Filter,
    from: DeltaStart,
    until: Tick,
    rows: usize,
) -> Result<DeviceChangeKeys> {
    let count = filter.organization_id.as_ref().map_or(1, Vec::len);
    let step = (rows / count).max(ARM_ROWS_MIN);
    let selects = change_arms(filter, &from, until, step);
    let inline = selects.len() * step <= INLINE_MAX;
    let select = Select::union_selects(selects);
    let mut seen: Vec<ChangeArmRow> = if inline { db.select(&select).await? } else { db.scan(&select).await? };
    seen.sort_unstable_by_key(|row| row.key);
    let mut counts: HashMap<i64, usize> = HashMap::new();
    let next = seen.iter().find_map(|row| {
        let count = counts.entry(row.arm).or_default();
        *count += 1;
        (*count == step).then_some(row.key)
    });
    let keys = seen.into_iter().map(|row| row.key);
    Ok(DeviceChangeKeys { keys: keys.take_while(|key| next.is_none_or(|next| *key <= next)).collect(), next })
}

/// Rows of each arm, however many arms there are.
const ARM_ROWS_MIN: usize = 8;

const DELTA: Delta = Delta { key: "number", tombstone: Some("deleted_at") };
const BY_UPDATE: &str = "devices_by_update";
const BY_ORGANIZATION: &str = "devices_by_organization";

fn change_arms(filter: &Filter, from: &DeltaStart, until: Tick, rows: usize) -> Vec<Select> {
    let along = |index| DELTA.select_changes(Select::new(CHANGES).use_index(index), from.clone(), until).limit(rows);
    let Some(organizations) = &filter.organization_id else { return vec![along(BY_UPDATE)] };
    // The redundant condition keeps PostgreSQL from choosing the index of the whole tenant.
    let of = |id: &str| {
        let select = along(BY_ORGANIZATION).where_compare("organization_id", Compare::Equal, id);
        select.where_compare("organization_id", Compare::AtLeast, id)
    };
    let ids: Vec<String> = organizations.iter().filter_map(|one| one.0).map(|id| id.to_string()).collect();
    let mut arms: Vec<Select> = ids.iter().map(|id| of(id)).collect();
    if !arms.is_empty() {
        // Padding with arms that find nothing keeps the number of distinct statements small.
        arms.resize_with(arms.len().next_power_of_two(), || of(""));
    }
    if organizations.iter().any(|one| one.0.is_none()) {
        arms.push(along(BY_ORGANIZATION).where_null("organization_id").lead_order_by("organization_id"));
    }
    arms
}

/// Devices read with one query, each by its own arm: with a list of numbers, PostgreSQL may scan all devices of the tenant.
const READ_ROWS_MAX: usize = 32;

/// The current rows of these devices.
async fn read_devices(db: &Db, numbers: impl ExactSizeIterator<Item = i64>) -> Result<HashMap<i64, StoredDevice>> {
    let numbers: Vec<i64> = numbers.collect();
    let mut found = HashMap::with_capacity(numbers.len());
    for some in numbers.chunks(READ_ROWS_MAX) {
        let mut arms: Vec<Vec<Value>> = some.iter().map(|number| vec![Value::Int(*number)]).collect();
        // Padding with arms that find nothing keeps the number of distinct statements small.
        arms.resize(some.len().next_power_of_two(), vec![Value::Int(-1)]);
        let select = Select::union_arms(ONE, arms);
        let rows: Vec<StoredDevice> =
            if numbers.len() <= INLINE_MAX { db.select(&select).await? } else { db.scan(&select).await? };
        found.extend(rows.into_iter().map(|stored| (stored.number, stored)));
    }
    Ok(found)
}

/// The next live devices below a number, unfiltered.
pub async fn list_all(db: &Db, below: i64, rows: usize) -> Result<Vec<StoredDevice>> {
    let select = Select::new(ALL).bind_value(below).order_by(&["number"], SortDirection::Descending).limit(rows);
    if rows <= INLINE_MAX { db.select(&select).await } else { db.scan(&select).await }
}

/// Those of these devices that match the filter, in the same order.
pub async fn load_matching(db: &Db, filter: &Filter, numbers: &[i64]) -> Result<Vec<StoredDevice>> {
    let matches = |stored: &StoredDevice| stored.device.deleted_at.is_none() && filter.matches_device(&stored.device);
    let mut found = Vec::new();
    // In chunks, so that devices that do not match are not in memory together.
    for some in numbers.chunks(INLINE_MAX) {
        let mut rows = read_devices(db, some.iter().copied()).await?;
        found.extend(some.iter().filter_map(|number| rows.remove(number)).filter(matches));
    }
    retain_with_software(db, filter, found).await
}

/// The same for changes. A device that has changed since appears again later in the list.
pub async fn load_matching_changes(db: &Db, filter: &Filter, keys: &[DeviceSortKey]) -> Result<Vec<StoredDevice>> {
    let mut found = Vec::new();
    for some in keys.chunks(INLINE_MAX) {
        let mut rows = read_devices(db, some.iter().map(|key| key.number)).await?;
        found.extend(some.iter().filter_map(|key| {
            let stored = rows.remove(&key.number)?;
            (DeviceSortKey::for_change(&stored) == *key && filter.matches_device(&stored.device)).then_some(stored)
        }));
    }
    retain_with_software(db, filter, found).await
}

/// Keeps devices with matching software. Tombstones have no software and always stay.
async fn retain_with_software(db: &Db, filter: &Filter, mut found: Vec<StoredDevice>) -> Result<Vec<StoredDevice>> {
    let Some(software_filters) = &filter.software else { return Ok(found) };
    if found.is_empty() {
        return Ok(found);
    }
    let names: HashSet<&str> = software_filters.iter().map(|one| one.name.as_str()).collect();
    let numbers: Vec<i64> = found.iter().map(|one| one.number).collect();
    // Read first: software that is indexed after this query is found in the index.
    let not_indexed = software::store::list_unindexed(db, &numbers).await?;
    let mut rows: Vec<(i64, String, String)> = Vec::new();
    // One query per name: with several names and numbers, PostgreSQL may scan all software of the tenant.
    for name in names {
        let select = Select::new(VERSIONS_OF).where_compare("name", Compare::Equal, name);
        let select = select.where_in("number", numbers.iter().copied()).limit(numbers.len());
        let inline = numbers.len() <= INLINE_MAX;
        let some: Vec<(i64, String, String)> =
            if inline { db.select(&select).await? } else { db.scan(&select).await? };
        rows.extend(some);
    }
    let indexed =
        rows.iter().filter(|(_, name, versions)| filter.matches_software(name, versions)).map(|(number, ..)| *number);
    let mut having: HashSet<i64> = indexed.collect();
    for number in not_indexed {
        having.remove(&number);
        // One at a time: each list may be long.
        let installed = software::store::load_installed(db, number).await?;
        if installed.iter().any(|(name, has)| filter.matches_software(name, &has.versions)) {
            having.insert(number);
        }
    }
    found.retain(|stored| stored.device.deleted_at.is_some() || having.contains(&stored.number));
    Ok(found)
}
