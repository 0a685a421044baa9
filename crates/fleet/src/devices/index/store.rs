//! SQL of the device index: terms and counters, updated with every change of a device.

use std::collections::{BTreeMap, BTreeSet};

use kernel::base::Result;
use kernel::store::{Tx, Value};

use super::super::FullDevice;
use super::super::terms::{ALL_ORGANIZATIONS, DeviceCounter, counters_of, terms_of};

kernel::statements! {
    /// Several rows at once; unused slots are null.
    INSERT_TERMS = "INSERT INTO device_terms (tenant_id, term, number)
        SELECT CAST($1 AS TEXT), slot.column1, CAST($2 AS BIGINT) FROM (VALUES (CAST($3 AS TEXT)), ($4), ($5), ($6), ($7), ($8), ($9), ($10), ($11), ($12), ($13), ($14), ($15), ($16), ($17),
            ($18)) AS slot
        WHERE slot.column1 IS NOT NULL ON CONFLICT (tenant_id, term, number) DO NOTHING";
    // One row each: with a list of terms, PostgreSQL might scan all terms of the tenant.
    DELETE_TERM = "DELETE FROM device_terms WHERE tenant_id = $1 AND term = $2 AND number = $3";
    /// Changes several counters by the same amount; the sizes are those of [`size_class`].
    COUNT = "INSERT INTO device_counts (tenant_id, organization_id, dimension, value, label, devices, size)
        SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), slot.column1, slot.column2, slot.column3, CAST($3 AS BIGINT), CAST($4 AS BIGINT)
        FROM (VALUES (CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT)), ($8, $9, $10), ($11, $12, $13),
            ($14, $15, $16), ($17, $18, $19), ($20, $21, $22), ($23, $24, $25), ($26, $27, $28), ($29, $30, $31),
            ($32, $33, $34), ($35, $36, $37), ($38, $39, $40), ($41, $42, $43), ($44, $45, $46), ($47, $48, $49),
            ($50, $51, $52)) AS slot
        WHERE slot.column1 IS NOT NULL
        ON CONFLICT (tenant_id, organization_id, dimension, value)
            DO UPDATE SET devices = device_counts.devices + excluded.devices, size = CASE
                WHEN device_counts.devices + excluded.devices >= 1048576 THEN 12
                WHEN device_counts.devices + excluded.devices >= 262144 THEN 11
                WHEN device_counts.devices + excluded.devices >= 65536 THEN 10
                WHEN device_counts.devices + excluded.devices >= 16384 THEN 9
                WHEN device_counts.devices + excluded.devices >= 4096 THEN 8
                WHEN device_counts.devices + excluded.devices >= 1024 THEN 7
                WHEN device_counts.devices + excluded.devices >= 256 THEN 6
                WHEN device_counts.devices + excluded.devices >= 64 THEN 5
                WHEN device_counts.devices + excluded.devices >= 16 THEN 4
                WHEN device_counts.devices + excluded.devices >= 4 THEN 3
                WHEN device_counts.devices + excluded.devices >= 3 THEN 2
                WHEN device_counts.devices + excluded.devices >= 2 THEN 1
                WHEN device_counts.devices + excluded.devices >= 1 THEN 0
                ELSE -1 END";
    /// The same, returning the new counts.
    COUNT_RETURNING = kernel::sql![COUNT, " RETURNING organization_id, value, devices"];
    UNCOUNT = "DELETE FROM device_counts /* INDEXED BY device_counts_by_size */
        WHERE tenant_id = $1 AND organization_id = $2 AND dimension = $3 AND size = -1";
}

/// Rows that one statement can write.
const SLOTS: usize = 16;

/// Writes the differences: everything for a new device; a deleted one loses all.
pub async fn update_index(tx: &mut Tx, number: i64, before: Option<&FullDevice>, after: &FullDevice) -> Result<()> {
    let (old, new) = (before.map(|full| terms_of(&full.device)).unwrap_or_default(), terms_of(&after.device));
    let rows = |terms: Vec<&String>| terms.into_iter().map(|term| vec![Value::from(term.as_str())]).collect();
    delete_terms(tx, number, old.difference(&new)).await?;
    insert_rows(tx, INSERT_TERMS, &[number.into()], rows(new.difference(&old).collect())).await?;
    let old = before.map(|full| counters_of(&full.device)).unwrap_or_default();
    let new = counters_of(&after.device);
    let added = new.difference(&old).map(|counted| (counted, 1));
    let removed = old.difference(&new).map(|counted| (counted, -1));
    let changes = added.chain(removed).map(|(counted, by)| (counted.clone(), (counted.value.clone(), by)));
    adjust_counters(tx, &changes.collect()).await
}

/// Changes counters by the given amounts; each comes with the label of its value.
pub async fn adjust_counters(tx: &mut Tx, changes: &BTreeMap<DeviceCounter, (String, i64)>) -> Result<()> {
    for (sql, values) in counter_statements(changes, COUNT) {
        tx.defer_exec(sql, values).await?;
    }
    delete_empty_counters(tx, changes).await
}

/// The same. Returns the values whose counter over all organizations has appeared or dropped to zero.
pub async fn adjust_counters_listing_changes(
    tx: &mut Tx,
    changes: &BTreeMap<DeviceCounter, (String, i64)>,
) -> Result<Vec<String>> {
    let mut pending = Vec::new();
    for (sql, values) in counter_statements(changes, COUNT_RETURNING) {
        pending.push(tx.defer_query::<(String, String, i64)>(sql, values).await?);
    }
    delete_empty_counters(tx, changes).await?;
    let by: BTreeMap<&str, i64> = changes
        .iter()
        .filter(|(counted, _)| counted.organization == ALL_ORGANIZATIONS)
        .map(|(counted, (_, by))| (counted.value.as_str(), *by))
        .collect();
    let mut changed_values = Vec::new();
    for query in pending {
        let counted = tx.await_rows(query).await?;
        let crossed_zero = |organization: &str, value: &str, devices: i64| {
            organization == ALL_ORGANIZATIONS && (devices <= 0 || by.get(value) == Some(&devices))
        };
        changed_values.extend(
            counted
                .into_iter()
                .filter(|(of, value, devices)| crossed_zero(of, value, *devices))
                .map(|(_, value, _)| value),
        );
    }
    Ok(changed_values)
}

/// The statements that change these counters, several counters each.
fn counter_statements(
    changes: &BTreeMap<DeviceCounter, (String, i64)>,
    sql: &'static str,
) -> Vec<(&'static str, Vec<Value>)> {
    let mut changes: Vec<(&DeviceCounter, &str, i64)> = changes
        .iter()
        .map(|(counted, (label, by))| (counted, label.as_str(), *by))
        .filter(|(.., by)| *by != 0)
        .collect();
    let mut all = Vec::new();
    changes.sort_by(|(a, _, one), (b, _, other)| (&a.organization, one, a).cmp(&(&b.organization, other, b)));
    for alike in changes.chunk_by(|(a, _, one), (b, _, other)| a.organization == b.organization && one == other) {
        let Some((first, _, by)) = alike.first() else { continue };
        let lead = [Value::from(first.organization.as_str()), (*by).into(), size_class(*by).into()];
        let row = |(counted, label, _): &(&DeviceCounter, &str, i64)| {
            vec![counted.dimension.into(), counted.value.as_str().into(), (*label).into()]
        };
        let rows: Vec<Vec<Value>> = alike.iter().map(row).collect();
        all.extend(bind_in_slots(&lead, &rows).into_iter().map(|values| (sql, values)));
    }
    all
}

/// Deletes counters that have dropped to zero.
async fn delete_empty_counters(tx: &mut Tx, changes: &BTreeMap<DeviceCounter, (String, i64)>) -> Result<()> {
    let emptied: BTreeSet<(&str, &str)> = changes
        .iter()
        .filter(|(_, (_, by))| *by < 0)
        .map(|(counted, _)| (counted.organization.as_str(), counted.dimension))
        .collect();
    for (organization, dimension) in emptied {
        tx.defer_exec(UNCOUNT, vec![organization.into(), dimension.into()]).await?;
    }
    Ok(())
}

/// A coarse size of a counter: one, two, three, then the logarithm to base four. It rarely changes, so counting rarely
/// writes the index by size.
pub fn size_class(devices: i64) -> i64 {
    match devices {
        ..1 => -1,
        1..4 => devices - 1,
        _ => i64::from(devices.ilog(4)).min(10) + 2,
    }
}

/// Deletes terms that a device no longer has.
async fn delete_terms(tx: &mut Tx, number: i64, terms: impl Iterator<Item = &String>) -> Result<()> {
    let rows: Vec<Vec<Value>> = terms.map(|term| vec![term.as_str().into(), number.into()]).collect();
    tx.exec_each(DELETE_TERM, &rows).await.map(drop)
}

/// Inserts rows, several with each statement; `lead` is bound before them.
pub async fn insert_rows(tx: &mut Tx, sql: &'static str, lead: &[Value], rows: Vec<Vec<Value>>) -> Result<()> {
    for values in bind_in_slots(lead, &rows) {
        tx.defer_exec(sql, values).await?;
    }
    Ok(())
}

/// The values of each statement; unused slots are null.
fn bind_in_slots(lead: &[Value], rows: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let width = rows.first().map_or(0, Vec::len);
    let bound = |some: &[Vec<Value>]| {
        let mut values = lead.to_vec();
        values.extend(some.iter().flatten().cloned());
        values.resize(lead.len() + SLOTS * width, Value::Null);
        values
    };
    rows.chunks(SLOTS).map(bound).collect()
}
