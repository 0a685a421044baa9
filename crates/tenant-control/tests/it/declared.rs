//! What a feature owns, the feature declares: the kernel names no record, table or kind of a feature, and a new one
//! changes no file of the kernel.

use std::collections::BTreeMap;

use crate::tidy::{FEATURES, OURS, code, is_feature, sources};

#[test]
fn every_kind_of_id_has_a_beginning_of_its_own_and_is_declared_with_its_record() {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for (path, text) in sources(OURS) {
        let text = code(&text);
        let declared = text.split("const PREFIX: &'static str = \"").skip(1);
        let own = text.split("own! {").nth(1).and_then(|rest| rest.split('}').next());
        let own = own.into_iter().flat_map(str::lines).filter_map(|line| line.split(" \"").nth(1));
        for rest in declared.chain(own) {
            let prefix = rest.split('"').next().unwrap_or_default().to_owned();
            let before = owners.insert(prefix.clone(), path.clone());
            assert_eq!(before, None, "{prefix}_ is declared in {path}, too");
            assert!(
                is_feature(&path, "mod.rs") || path == "crates/kernel/src/base/id.rs",
                "{prefix}_ belongs with its record: {path}"
            );
        }
    }
    for (prefix, file) in [
        ("tkt", "crates/tickets/src/lib.rs"),
        ("dev", "crates/fleet/src/devices/mod.rs"),
        ("dlv", "crates/webhooks/src/deliveries/mod.rs"),
    ] {
        assert_eq!(owners.get(prefix).map(String::as_str), Some(file));
    }
    assert!(owners.contains_key("ten"), "those of the kernel are found, too: {owners:?}");
}

#[test]
fn every_code_is_listed_once() {
    let listed = &tenant_control::features::install().error_codes;
    let mut names: Vec<&str> = listed.iter().map(|code| code.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), listed.len(), "two codes have one name");
    // A feature's code that is not in its list would be explained nowhere.
    for (path, text) in sources(FEATURES) {
        let text = code(&text);
        for rest in text.split("Code::new(").skip(1) {
            let name = rest.split('"').nth(1).unwrap_or_default();
            assert!(names.contains(&name), "{path} declares {name:?}, which its FEATURE does not list");
        }
    }
}

/// What the kernel itself writes and reads. Any other table is a feature's.
const KERNEL_TABLES: &[&str] = &[
    "tenants",
    "tenant_clocks",
    "users",
    "sessions",
    "signin_links",
    "api_keys",
    "api_key_secrets",
    "api_key_uses",
    "audit_entries",
    "change_readers",
    "changes",
    "events",
    "facts_queue",
    "idempotency_records",
    "followers",
    "keyring_nodes",
    "lane_wakes",
    "lanes",
    "rate_usage",
    "secret_checks",
    "service_notes",
    "steps",
];

#[test]
fn the_kernel_names_no_table_of_a_feature() {
    let mut tables: Vec<&str> = Vec::new();
    for migration in tenant_control::migrations::MIGRATIONS {
        let made = migration.sqlite.split("CREATE TABLE ").skip(1);
        tables.extend(made.map(|rest| rest.split([' ', '(']).next().unwrap_or_default()));
    }
    for table in KERNEL_TABLES {
        assert!(tables.contains(table), "no migration makes {table}: remove it from the list");
    }
    tables.retain(|table| !KERNEL_TABLES.contains(table));
    assert!(tables.contains(&"webhooks") && tables.contains(&"tickets"), "{tables:?}");
    for (name, sql) in kernel::statements() {
        let words: Vec<&str> = sql.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
        let named: Vec<_> = tables.iter().filter(|table| words.contains(*table)).collect();
        assert!(named.is_empty(), "{name} of the kernel names {named:?}: let the feature declare what it needs");
    }
}

/// A column that its feature does not declare would be rewrapped by nobody, and its key be removed under it.
#[test]
fn every_sealed_column_is_declared() {
    let declared: Vec<&str> = tenant_control::features::install().sealed_columns.iter().map(|one| one.name).collect();
    let mut found = Vec::new();
    for (path, text) in sources(FEATURES) {
        let text = code(&text);
        assert!(!text.contains(".seal_value("), "{path}: a feature seals the values of a SealedColumn");
        for rest in text.split("SealedColumn::new(\"").skip(1) {
            let name = rest.split('"').next().unwrap_or_default().to_owned();
            assert!(declared.contains(&name.as_str()), "{path} seals {name:?}, which its FEATURE does not declare");
            found.push(name);
        }
    }
    let names = ["webhook_secrets", "webhooks", "workflow_revisions.headers", "sso_providers.client_secret"];
    assert!(names.iter().all(|name| found.iter().any(|found| found == name)), "{found:?}");
    assert_eq!(found.len(), declared.len(), "two columns have one name: {declared:?}");
}

/// The kernel counts those of its own that expire.
#[test]
fn the_kernel_seals_nowhere_else() {
    let seals = |(path, text): &(String, String)| {
        let is_base = path.starts_with("crates/kernel/src/base/");
        (!is_base && code(text).contains(".seal_value(")).then(|| path.clone())
    };
    let found: Vec<String> = sources(&["crates/kernel/src"]).iter().filter_map(seals).collect();
    assert_eq!(found, ["crates/kernel/src/auth/sessions.rs", "crates/kernel/src/http/idempotency.rs"]);
}

#[test]
fn every_feature_that_is_declared_is_in_the_list() {
    let declared = |(_, text): &(String, String)| code(text).matches("const FEATURE: Feature").count();
    let declared: usize = sources(FEATURES).iter().map(declared).sum();
    let names: Vec<&str> = tenant_control::features::install().features.iter().map(|one| one.name).collect();
    assert_eq!(names.len(), declared, "a FEATURE is missing in crates/tenant-control/src/features/mod.rs: {names:?}");
}
