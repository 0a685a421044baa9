//! SQL of how devices are found and counted: the rows that stand for what a device is, kept in line with it.

use std::collections::BTreeMap;

use kernel::base::Result;
use kernel::store::{Tx, Value};

use super::super::FullDevice;
use super::super::terms::{Counted, counts_of, software_of, terms_of, touched};

kernel::statements! {
    /// Several at once; what is left over of the places is null.
    INSERT_TERMS = "INSERT INTO device_terms (tenant_id, term, number)
        SELECT CAST($1 AS TEXT), slot.column1, CAST($2 AS BIGINT) FROM (VALUES (CAST($3 AS TEXT)), ($4), ($5), ($6), ($7), ($8), ($9), ($10), ($11), ($12), ($13), ($14), ($15), ($16), ($17),
            ($18)) AS slot
        WHERE slot.column1 IS NOT NULL ON CONFLICT (tenant_id, term, number) DO NOTHING";
    // One by one: of a list, PostgreSQL might walk all that the tenant has and look for it there.
    DELETE_TERM = "DELETE FROM device_terms WHERE tenant_id = $1 AND term = $2 AND number = $3";
    INSERT_SOFTWARE = "INSERT INTO device_software (tenant_id, name, number, versions)
        SELECT CAST($1 AS TEXT), slot.column1, CAST($2 AS BIGINT), slot.column2 FROM (VALUES (CAST($3 AS TEXT), CAST($4 AS TEXT)), ($5, $6), ($7, $8), ($9, $10), ($11, $12), ($13, $14), ($15, $16), ($17,
            $18), ($19, $20), ($21, $22), ($23, $24), ($25, $26), ($27, $28), ($29, $30), ($31, $32), ($33, $34)) AS slot
        WHERE slot.column1 IS NOT NULL
        ON CONFLICT (tenant_id, name, number) DO UPDATE SET versions = excluded.versions";
    DELETE_SOFTWARE = "DELETE FROM device_software WHERE tenant_id = $1 AND name = $2 AND number = $3";
    /// Each of these by so many.
    COUNT = "INSERT INTO device_counts (tenant_id, organization_id, dimension, value, label, devices, size)
        SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), slot.column1, slot.column2, slot.column3, CAST($3 AS BIGINT),
            CASE WHEN CAST($3 AS BIGINT) > 0 THEN 0 ELSE -1 END
        FROM (VALUES (CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT)), ($7, $8, $9), ($10, $11, $12), ($13, $14, $15), ($16,
            $17, $18), ($19, $20, $21), ($22, $23, $24), ($25, $26, $27), ($28, $29, $30), ($31, $32, $33), ($34, $35, $36),
            ($37, $38, $39), ($40, $41, $42), ($43, $44, $45), ($46, $47, $48), ($49, $50, $51)) AS slot
        WHERE slot.column1 IS NOT NULL
        ON CONFLICT (tenant_id, organization_id, dimension, value)
            DO UPDATE SET devices = device_counts.devices + excluded.devices, size = CASE WHEN device_counts.devices + excluded.devices >= 1048576 THEN 10 WHEN device_counts.devices +
                excluded.devices >= 262144 THEN 9 WHEN device_counts.devices + excluded.devices >= 65536 THEN 8 WHEN
                device_counts.devices + excluded.devices >= 16384 THEN 7 WHEN device_counts.devices + excluded.devices >=
                4096 THEN 6 WHEN device_counts.devices + excluded.devices >= 1024 THEN 5 WHEN device_counts.devices +
                excluded.devices >= 256 THEN 4 WHEN device_counts.devices + excluded.devices >= 64 THEN 3 WHEN
                device_counts.devices + excluded.devices >= 16 THEN 2 WHEN device_counts.devices + excluded.devices >= 4
                THEN 1 WHEN device_counts.devices + excluded.devices >= 1 THEN 0 ELSE -1 END";
    UNCOUNT = "DELETE FROM device_counts /* INDEXED BY device_counts_by_size */
        WHERE tenant_id = $1 AND organization_id = $2 AND dimension = $3 AND size = -1";
}

/// The places of a statement that writes several rows.
const SLOTS: usize = 16;

/// Writes what is different: all of it for a new device, and all away for one that is deleted.
pub async fn update(tx: &mut Tx, number: i64, before: Option<&FullDevice>, after: &FullDevice) -> Result<()> {
    let (old, new) = (before.map(|full| terms_of(&full.device)).unwrap_or_default(), terms_of(&after.device));
    let rows = |terms: Vec<&String>| terms.into_iter().map(|term| vec![Value::from(term.as_str())]).collect();
    erase(tx, DELETE_TERM, number, old.difference(&new)).await?;
    write(tx, INSERT_TERMS, &[number.into()], rows(new.difference(&old).collect())).await?;
    let touched = before.and_then(|before| touched(before, after));
    let (old, new) = (before.map(|full| software_of(full, touched.as_ref())), software_of(after, touched.as_ref()));
    let old = old.unwrap_or_default();
    erase(tx, DELETE_SOFTWARE, number, old.keys().filter(|name| !new.contains_key(*name))).await?;
    let came = new.iter().filter(|(name, versions)| old.get(*name) != Some(versions));
    let came = came.map(|(name, versions)| vec![Value::from(name.as_str()), Value::from(versions.as_str())]);
    write(tx, INSERT_SOFTWARE, &[number.into()], came.collect()).await?;
    let old = before.map(|full| counts_of(full, touched.as_ref())).unwrap_or_default();
    count(tx, &old, &counts_of(after, touched.as_ref())).await
}

async fn count(tx: &mut Tx, old: &BTreeMap<Counted, String>, new: &BTreeMap<Counted, String>) -> Result<()> {
    let came: Vec<(&Counted, &String)> = new.iter().filter(|(counted, _)| !old.contains_key(counted)).collect();
    let gone: Vec<(&Counted, &String)> = old.iter().filter(|(counted, _)| !new.contains_key(counted)).collect();
    for (by, some) in [(1_i64, &came), (-1, &gone)] {
        for of_one in some.chunk_by(|(a, _), (b, _)| a.organization == b.organization) {
            let Some((first, _)) = of_one.first() else { continue };
            let lead = [Value::from(first.organization.as_str()), by.into()];
            let row = |(counted, label): &(&Counted, &String)| {
                vec![counted.dimension.into(), counted.value.as_str().into(), label.as_str().into()]
            };
            write(tx, COUNT, &lead, of_one.iter().map(row).collect()).await?;
        }
    }
    let same = |a: &Counted, b: &Counted| a.organization == b.organization && a.dimension == b.dimension;
    for of_one in gone.chunk_by(|(a, _), (b, _)| same(a, b)) {
        let Some((first, _)) = of_one.first() else { continue };
        tx.later(UNCOUNT, vec![first.organization.as_str().into(), first.dimension.into()]).await?;
    }
    Ok(())
}

/// Rows of one device, each by its name.
async fn erase(tx: &mut Tx, sql: &str, number: i64, names: impl Iterator<Item = &String>) -> Result<()> {
    let rows: Vec<Vec<Value>> = names.map(|name| vec![name.as_str().into(), number.into()]).collect();
    if rows.is_empty() {
        return Ok(());
    }
    tx.exec_each(sql, &rows).await.map(drop)
}

/// Several rows with each statement, behind what they have in common.
async fn write(tx: &mut Tx, sql: &'static str, lead: &[Value], rows: Vec<Vec<Value>>) -> Result<()> {
    let Some(width) = rows.first().map(Vec::len) else { return Ok(()) };
    for some in rows.chunks(SLOTS) {
        let mut values = lead.to_vec();
        values.extend(some.iter().flatten().cloned());
        values.resize(lead.len() + SLOTS * width, Value::Null);
        tx.later(sql, values).await?;
    }
    Ok(())
}
