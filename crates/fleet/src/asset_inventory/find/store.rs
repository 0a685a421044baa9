//! SQL of the search: one step along each index, and the members of a set.

use std::collections::{HashMap, HashSet};

use feature_kit::IdOrNone;
use kernel::base::{Result, Timestamp};
use kernel::store::delta::{ChangeWalk, Delta};
use kernel::store::{ArmSql, ChangeKey, Compare, Db, IndexWalk, Postings, Select, SortDirection, Tick, Value};

use people::organizations::OrganizationId;

use super::{DeviceOrder, DeviceSet, DeviceSortBy, Filter, OrderKey, change_key};
use crate::devices::{DEVICE_LIST, StoredDevice, software};

/// A query that may read more rows runs off the request threads.
const INLINE_MAX: usize = 500;

const TERMS: ArmSql = ArmSql::new("number", "device_terms", &["number"]).where_equal(&["term"]);
const SOFTWARE: ArmSql = ArmSql::new("number, name, versions", "device_software", &["number"]).where_equal(&["name"]);

/// All columns of devices, deleted ones included.
const FULL: &str = kernel::sql![
    "SELECT ",
    DEVICE_LIST,
    " FROM devices LEFT JOIN device_reports ON device_reports.tenant_id = devices.tenant_id AND device = number
        WHERE devices.tenant_id = $1"
];

kernel::statements! {
    BY_TERM = kernel::arm!(TERMS);
    BY_TERM_ASCENDING = kernel::arm!(TERMS.ascending());
    BY_SOFTWARE = kernel::arm!(SOFTWARE);
    EXPAND = kernel::expand_terms!("device_terms");
    /// Keys of changes, along an index in that order.
    CHANGES = "SELECT updated_at, sequence, number FROM devices WHERE tenant_id = $1";
    ONE = kernel::sql![FULL, " AND number = $2"];
    ALL = kernel::sql![FULL, " AND deleted_at IS NULL AND number < $2"];
    // Keys of a sorted list: a text, a number, a sequence and the number of the device.
    NUMBERS = "SELECT CAST(NULL AS TEXT), CAST(NULL AS BIGINT), CAST(0 AS BIGINT), number FROM devices WHERE tenant_id = $1 AND deleted_at IS NULL";
    /// Deleted ones too, because the index has them.
    UPDATES = "SELECT CAST(NULL AS TEXT), updated_at, sequence, number FROM devices WHERE tenant_id = $1";
    HOSTNAMES = "SELECT sort_name, CAST(NULL AS BIGINT), CAST(0 AS BIGINT), number FROM devices WHERE tenant_id = $1 AND deleted_at IS NULL";
    SEEN = "SELECT CAST(NULL AS TEXT), last_seen_at, CAST(0 AS BIGINT), device FROM device_reports WHERE tenant_id = $1";
    VERSIONS_OF = "SELECT number, name, versions FROM device_software WHERE tenant_id = $1";
}

const POSTINGS: Postings = Postings { ascending: BY_TERM_ASCENDING, descending: BY_TERM, expand: EXPAND };

/// The number, name and versions of a row of the software index.
type SoftwareRow = (i64, String, String);

/// The next devices on a walk along a set, and the number after which there may be more. The software index has the
/// versions, so they are filtered without reading the devices.
pub async fn walk_set(
    db: &Db,
    filter: &Filter,
    set: &DeviceSet,
    below: i64,
    rows: usize,
) -> Result<(Vec<i64>, Option<i64>)> {
    let values = |texts: &[String]| texts.iter().map(|text| vec![Value::from(text.as_str())]).collect();
    let (mut numbers, next): (Vec<i64>, _) = match set {
        DeviceSet::Software(names) => {
            let walk = IndexWalk::new(BY_SOFTWARE, values(names), 0..below, !filter.has_software_version());
            let matches = |(_, name, versions): &SoftwareRow| filter.matches_software(name, versions);
            let (found, next) = walk.load_page(db, rows, |(number, ..): &SoftwareRow| *number, matches).await?;
            (found.into_iter().map(|(number, ..)| number).collect(), next)
        }
        DeviceSet::Terms(terms) | DeviceSet::Prefixes { whole: terms, .. } => {
            IndexWalk::new(BY_TERM, values(terms), 0..below, true).load_page(db, rows, |n: &i64| *n, |_| true).await?
        }
    };
    numbers.dedup();
    Ok((numbers, next))
}

/// Replaces prefixes by their terms; `None` if a prefix has too many.
pub async fn expand_set(db: &Db, set: DeviceSet) -> Result<Option<DeviceSet>> {
    let DeviceSet::Prefixes { whole, starts } = set else { return Ok(Some(set)) };
    let terms = POSTINGS.expand_prefixes(db, &starts).await?;
    Ok(terms.map(|mut terms| {
        terms.extend(whole.into_iter().filter(|one| !terms.contains(one)).collect::<Vec<_>>());
        DeviceSet::Terms(terms)
    }))
}

/// At most so many members of a set, unordered and with duplicates.
pub async fn list_members(db: &Db, set: &DeviceSet, most: usize) -> Result<Vec<i64>> {
    let names = match set {
        DeviceSet::Terms(terms) | DeviceSet::Prefixes { whole: terms, .. } => {
            return POSTINGS.list_numbers(db, terms, -1, most).await;
        }
        DeviceSet::Software(names) => names,
    };
    let arm = |name: &str, rows: usize| {
        vec![name.into(), Value::Int(i64::MAX), Value::Int(0), Value::Int(i64::try_from(rows).unwrap_or(i64::MAX))]
    };
    let select = Select::union_arms(BY_SOFTWARE, names.iter().map(|name| arm(name, most)).collect(), arm("", 0));
    let found: Vec<SoftwareRow> = db.select_or_scan(&select.limit(most), names.len() * most <= 2 * INLINE_MAX).await?;
    Ok(found.into_iter().map(|(number, ..)| number).collect())
}

/// Changes in their order. Filters by organization have an index of their own.
pub fn walk_changes(filter: &Filter, since: Timestamp, until: Tick) -> ChangeWalk {
    let organizations = filter.organization_id.as_ref();
    let index = if organizations.is_some() { "devices_by_organization" } else { "devices_by_update" };
    let to_values = |any: &Vec<IdOrNone<OrganizationId>>| any.iter().map(|id| id.0.map(|id| id.to_string())).collect();
    ChangeWalk {
        delta: Delta { key: "number" },
        select: Select::new(CHANGES).use_index(index),
        since,
        until,
        with_values: organizations.map(|any| ("organization_id", to_values(any))),
    }
}

/// The next keys of a sorted list after a position, unfiltered. Devices without the value come last.
pub async fn walk_order(db: &Db, order: DeviceOrder, after: Option<&OrderKey>, rows: usize) -> Result<Vec<OrderKey>> {
    let can_miss = matches!(order.by, DeviceSortBy::Hostname | DeviceSortBy::LastSeenAt);
    let missing = after.filter(|key| can_miss && key.value.is_none());
    let mut keys: Vec<OrderKey> = Vec::new();
    if missing.is_none() {
        keys = db.select_or_scan(&order_select(order, after).limit(rows), rows <= INLINE_MAX).await?;
    }
    if can_miss && keys.len() < rows {
        let select = missing_select(order, missing).limit(rows - keys.len());
        keys.extend(db.select_or_scan::<OrderKey>(&select, rows <= INLINE_MAX).await?);
    }
    Ok(keys)
}

/// The statement of an order, its sort columns, and the index along them.
fn order_index(by: DeviceSortBy) -> (&'static str, &'static [&'static str], &'static str) {
    match by {
        DeviceSortBy::CreatedAt => (NUMBERS, &["number"], "devices_live"),
        DeviceSortBy::UpdatedAt => (UPDATES, &["updated_at", "sequence", "number"], "devices_by_update"),
        DeviceSortBy::Hostname => (HOSTNAMES, &["sort_name", "number"], "devices_by_hostname"),
        DeviceSortBy::LastSeenAt => (SEEN, &["last_seen_at", "device"], "device_reports_by_last_seen"),
    }
}

/// Along the index of an order, from its start or after a position.
fn order_select(order: DeviceOrder, after: Option<&OrderKey>) -> Select {
    let (text, fields, index) = order_index(order.by);
    let edge = Value::Int(if order.descending { i64::MAX } else { i64::MIN });
    let first = match (order.by, order.descending) {
        (DeviceSortBy::Hostname, true) => Value::Text(char::MAX.to_string()),
        (DeviceSortBy::Hostname, false) => Value::Text(String::new()),
        _ => edge.clone(),
    };
    let (value, sequence, number) = match after {
        Some(key) => (key.value.clone().unwrap_or(first), key.sequence.into(), key.number.into()),
        None => (first, edge.clone(), edge),
    };
    let position = match fields.len() {
        1 => vec![number],
        2 => vec![value, number],
        _ => vec![value, sequence, number],
    };
    let direction = order.direction();
    Select::new(text).use_index(index).seek_after(fields, direction, position).order_by(fields, direction)
}

/// The devices without the value, by number.
fn missing_select(order: DeviceOrder, after: Option<&OrderKey>) -> Select {
    let (text, fields, index) = order_index(order.by);
    let (first, last) = (fields[0], fields[fields.len() - 1]);
    let edge = if order.descending { i64::MAX } else { i64::MIN };
    let number = Value::Int(after.map_or(edge, |key| key.number));
    let select = Select::new(text).use_index(index).where_null(first);
    let direction = order.direction();
    select.seek_after(&[last], direction, vec![number]).order_by(&[last], direction).lead_order_by(first)
}

/// Devices read with one query, each by its own arm: with a list of numbers, PostgreSQL may scan all devices of the tenant.
const READ_ROWS_MAX: usize = 32;

/// The current rows of these devices.
async fn read_devices(db: &Db, numbers: impl ExactSizeIterator<Item = i64>) -> Result<HashMap<i64, StoredDevice>> {
    let numbers: Vec<i64> = numbers.collect();
    let mut found = HashMap::with_capacity(numbers.len());
    for some in numbers.chunks(READ_ROWS_MAX) {
        let arms = some.iter().map(|number| vec![Value::Int(*number)]).collect();
        let select = Select::union_arms(ONE, arms, vec![Value::Int(-1)]);
        let rows: Vec<StoredDevice> = db.select_or_scan(&select, numbers.len() <= INLINE_MAX).await?;
        found.extend(rows.into_iter().map(|stored| (stored.number, stored)));
    }
    Ok(found)
}

/// The next live devices below a number, unfiltered.
pub async fn list_all(db: &Db, below: i64, rows: usize) -> Result<Vec<StoredDevice>> {
    let select = Select::new(ALL).bind_value(below).order_by(&["number"], SortDirection::Descending).limit(rows);
    db.select_or_scan(&select, rows <= INLINE_MAX).await
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
pub async fn load_matching_changes(db: &Db, filter: &Filter, keys: &[ChangeKey<i64>]) -> Result<Vec<StoredDevice>> {
    let mut found = Vec::new();
    for some in keys.chunks(INLINE_MAX) {
        let mut rows = read_devices(db, some.iter().map(|key| key.key)).await?;
        found.extend(some.iter().filter_map(|key| {
            let stored = rows.remove(&key.key)?;
            (change_key(&stored) == *key && filter.matches_device(&stored.device)).then_some(stored)
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
    let mut rows: Vec<SoftwareRow> = Vec::new();
    // One query per name: with several names and numbers, PostgreSQL may scan all software of the tenant.
    for name in names {
        let select = Select::new(VERSIONS_OF).where_compare("name", Compare::Equal, name);
        let select = select.where_in("number", numbers.iter().copied()).limit(numbers.len());
        rows.extend(db.select_or_scan::<SoftwareRow>(&select, numbers.len() <= INLINE_MAX).await?);
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
