//! Every migration, in the order in which they are applied. The SQL is in `migrations/`, one file for each engine.

use kernel::store::{Migration, Migrations};

macro_rules! migrations {
    ($($name:literal)*) => {
        &[$(Migration {
            name: $name,
            sqlite: include_str!(concat!("../../../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../../../migrations/postgres/", $name, ".sql")),
        }),*]
    };
}

/// A test compares this list with the folders.
pub const MIGRATIONS: Migrations = migrations! {
    "0001_ground"
    "0002_events"
    "0003_tickets"
    "0004_webhooks"
    "0005_order_of_changes"
    "0006_lists"
    "0007_service_notes"
    "0008_live_tickets"
    "0009_workflows"
    "0010_followers"
    "0011_inventory"
    "0012_software_index"
    "0013_software_order"
    "0014_changes"
    "0015_people"
    "0016_sign_out"
    "0017_sign_on_scope"
    "0018_sealed_sign_on"
    "0019_lane_wakes"
    "0020_matching"
    "0021_network_devices"
    "0022_keyring"
    "0023_clouds"
    "0024_backup"
    "0025_ended_machines"
    "0026_analytics"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_is_listed_and_has_a_text_for_both_engines() {
        for engine in ["sqlite", "postgres"] {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(engine);
            let mut found: Vec<String> = std::fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().trim_end_matches(".sql").to_owned())
                .collect();
            found.sort();
            let listed: Vec<&str> = MIGRATIONS.iter().map(|migration| migration.name).collect();
            assert_eq!(found, listed, "{engine}");
        }
    }
}
