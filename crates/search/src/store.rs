//! SQL of search: details of a hit that change too often to be in the index.

use std::collections::HashMap;

use kernel::base::Result;
use kernel::store::{Db, Select, Value};

use fleet::devices::{ALL_ORGANIZATIONS, SOFTWARE_DIMENSION};

kernel::statements! {
    INSTALLED_ON = kernel::sql!["SELECT value, devices FROM device_counts WHERE tenant_id = $1 AND organization_id = '",
        ALL_ORGANIZATIONS, "' AND dimension = '", SOFTWARE_DIMENSION, "' AND value = $2"];
}

/// The most lookups in one statement, each by its key.
const LOOKUPS_MAX: usize = 32;

/// On how many devices each software is installed.
pub async fn count_installations(db: &Db, names: &[&str]) -> Result<HashMap<String, i64>> {
    let mut counts = HashMap::with_capacity(names.len());
    for chunk in names.chunks(LOOKUPS_MAX) {
        let arms = chunk.iter().map(|name| vec![Value::from(*name)]).collect();
        let select = Select::union_arms(INSTALLED_ON, arms, vec![Value::from("")]);
        let rows: Vec<(String, i64)> = db.select(&select).await?;
        counts.extend(rows);
    }
    Ok(counts)
}
