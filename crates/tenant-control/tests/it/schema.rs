//! The two schemas are one, every tenant's table has its second wall, and every statement is understood by both engines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kernel::args;
use kernel::store::Purpose;

use crate::support::postgres::connect;
use crate::support::stores::{TestStore, on_both};

/// Table and column: type and whether it may be null.
type Columns = BTreeMap<(String, String), (String, bool)>;
/// Table, whether it is unique, and its columns in order.
type Indexes = BTreeSet<(String, bool, Vec<String>)>;
/// Table and columns, and the table and columns that they refer to.
type References = BTreeSet<(String, Vec<String>, String, Vec<String>)>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn both_engines_have_migrations_of_the_same_names() {
    let names = |engine: &str| -> Vec<String> {
        let folder = std::fs::read_dir(root().join("migrations").join(engine)).unwrap();
        let mut names: Vec<String> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let sqlite = names("sqlite");
    assert_eq!(sqlite, names("postgres"));
    for (index, name) in sqlite.iter().enumerate() {
        let number = format!("{:04}_", index + 1);
        assert!(
            name.starts_with(&number) && Path::new(name).extension().is_some_and(|end| end == "sql"),
            "{name} should be {number}….sql: no gaps, no doubles"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_engines_have_the_same_tables_columns_and_indexes() {
    let (sqlite, postgres) = (TestStore::sqlite().await, TestStore::postgres().await);
    let (ours, theirs) = (sqlite_columns(&sqlite).await, postgres_columns(&postgres).await);
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "tables and columns");
    for (column, (kind, nullable)) in &ours {
        let (other, other_nullable) = &theirs[column];
        let same: &[&str] = match kind.as_str() {
            "TEXT" => &["text"],
            "INTEGER" => &["bigint", "boolean"],
            "BLOB" => &["bytea"],
            "REAL" => &["double precision"],
            _ => &[],
        };
        assert!(same.contains(&other.as_str()), "{column:?} is {kind} on SQLite and {other} on PostgreSQL");
        assert_eq!(nullable, other_nullable, "{column:?} may be null on one engine alone");
    }
    assert_eq!(sqlite_indexes(&sqlite).await, postgres_indexes(&postgres).await, "indexes");
    assert_eq!(sqlite_references(&sqlite).await, postgres_references(&postgres).await, "foreign keys");
}

async fn sqlite_columns(store: &TestStore) -> Columns {
    let sql = "SELECT t.name, c.name, c.type, CAST(c.\"notnull\" AS TEXT)
        FROM sqlite_schema t JOIN pragma_table_xinfo(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'";
    let rows: Vec<(String, String, String, String)> = store.system(Purpose::Cli).list(sql, args![]).await.unwrap();
    rows.into_iter().map(|(table, column, kind, not_null)| ((table, column), (kind, not_null == "0"))).collect()
}

async fn postgres_columns(store: &TestStore) -> Columns {
    let client = connect(&store.database().url).await;
    let sql = "SELECT table_name::text, column_name::text, data_type::text, is_nullable::text
        FROM information_schema.columns WHERE table_schema = 'public'";
    let rows = client.query(sql, &[]).await.unwrap();
    let column = |row: &tokio_postgres::Row| ((row.get(0), row.get(1)), (row.get(2), row.get::<_, String>(3) == "YES"));
    rows.iter().map(column).collect()
}

async fn sqlite_indexes(store: &TestStore) -> Indexes {
    let sql = "SELECT t.name, i.name, CAST(i.\"unique\" AS TEXT), c.name
        FROM sqlite_schema t JOIN pragma_index_list(t.name) i JOIN pragma_index_info(i.name) c
        WHERE t.type = 'table' ORDER BY t.name, i.name, c.seqno";
    let rows: Vec<(String, String, String, String)> = store.system(Purpose::Cli).list(sql, args![]).await.unwrap();
    let mut indexes: BTreeMap<(String, String), (bool, Vec<String>)> = BTreeMap::new();
    for (table, index, unique, column) in rows {
        let entry = indexes.entry((table, index)).or_insert((unique == "1", Vec::new()));
        entry.1.push(column);
    }
    // The number of a row, if it is a column, has no index of its own.
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT%'";
    let numbered: Vec<String> = store.system(Purpose::Cli).list(sql, args![]).await.unwrap();
    let numbered = numbered.into_iter().map(|table| (table, true, vec!["id".to_owned()]));
    indexes.into_iter().map(|((table, _), (unique, columns))| (table, unique, columns)).chain(numbered).collect()
}

async fn postgres_indexes(store: &TestStore) -> Indexes {
    let client = connect(&store.database().url).await;
    let sql = "SELECT t.relname::text, i.indisunique,
            ARRAY(SELECT pg_get_indexdef(i.indexrelid, n, true) FROM generate_series(1, i.indnkeyatts) n ORDER BY n)
        FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace
        WHERE n.nspname = 'public'";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

async fn sqlite_references(store: &TestStore) -> References {
    let sql = "SELECT t.name || '.' || f.id, f.\"table\", f.\"from\", COALESCE(f.\"to\", '')
        FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) f WHERE t.type = 'table' ORDER BY t.name, f.id, f.seq";
    let rows: Vec<(String, String, String, String)> = store.system(Purpose::Cli).list(sql, args![]).await.unwrap();
    let mut found: BTreeMap<(String, String), (Vec<String>, Vec<String>)> = BTreeMap::new();
    for (key, target, from, to) in rows {
        let entry = found.entry((key, target)).or_default();
        entry.0.push(from);
        entry.1.push(to);
    }
    let table = |key: &str| key.split('.').next().unwrap().to_owned();
    found.into_iter().map(|((key, target), (from, to))| (table(&key), from, target, to)).collect()
}

async fn postgres_references(store: &TestStore) -> References {
    let client = connect(&store.database().url).await;
    let columns = |table: &str, numbers: &str| {
        format!(
            "ARRAY(SELECT a.attname::text FROM unnest({numbers}) WITH ORDINALITY n(number, place)
             JOIN pg_attribute a ON a.attrelid = {table} AND a.attnum = n.number ORDER BY n.place)"
        )
    };
    let (from, to) = (columns("c.conrelid", "c.conkey"), columns("c.confrelid", "c.confkey"));
    let sql = format!(
        "SELECT t.relname::text, {from}, r.relname::text, {to} FROM pg_constraint c
         JOIN pg_class t ON t.oid = c.conrelid JOIN pg_class r ON r.oid = c.confrelid WHERE c.contype = 'f'"
    );
    let rows = client.query(&sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_of_a_tenant_has_its_second_wall() {
    let store = TestStore::postgres().await;
    let client = connect(&store.database().url).await;
    let sql = "SELECT t.relname::text, t.relrowsecurity, t.relforcerowsecurity,
            (SELECT count(*) FROM pg_policies p WHERE p.schemaname = 'public' AND p.tablename = t.relname AND p.cmd = 'ALL')
        FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
        WHERE n.nspname = 'public' AND t.relkind IN ('r', 'p') AND (t.relname = 'tenants' OR EXISTS (
            SELECT 1 FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))";
    let rows = client.query(sql, &[]).await.unwrap();
    assert!(rows.len() > 5, "the tables are found");
    for row in rows {
        let (table, enabled, forced, policies): (String, bool, bool, i64) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        assert!(enabled && forced && policies == 1, "{table}: enabled {enabled}, forced {forced}, policies {policies}");
    }
}

/// SQLite compares bytes; a column that forgot to ask for that on PostgreSQL would sort otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn every_text_of_postgres_is_compared_byte_by_byte() {
    let store = TestStore::postgres().await;
    let client = connect(&store.database().url).await;
    let sql = "SELECT table_name::text, column_name::text FROM information_schema.columns
        WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'";
    let rows = client.query(sql, &[]).await.unwrap();
    let columns: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(columns.is_empty(), "without COLLATE \"C\": {columns:?}");
}

on_both! {
    async fn every_statement_can_be_prepared(store: TestStore) {
        for (name, sql) in tenant_control::all_statements() {
            store.prepare_check(sql).await.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
        }
    }
}

/// SQLite's writer may have to run a statement again, and then it must come to the same.
#[test]
fn no_statement_depends_on_chance_or_on_the_databases_time() {
    let words = ["random", "current_", "'now'", "strftime", "last_insert_rowid", "changes()", "gen_", "uuid("];
    for (name, sql) in tenant_control::all_statements() {
        let sql = sql.to_lowercase();
        assert!(!words.iter().any(|word| sql.contains(word)), "{name}: {sql}");
    }
}

#[test]
fn every_statement_of_the_source_is_in_the_list() {
    let mut written = Vec::new();
    for (path, text) in crate::tidy::sources(crate::tidy::OURS) {
        let code = crate::tidy::code(&text);
        for block in code.split("statements! {").skip(1).filter(|_| !path.ends_with("store/params.rs")) {
            let block = block.split("\n}").next().unwrap_or_default();
            let names = block.lines().filter_map(|line| line.trim().split_once(" = ")).map(|(name, _)| name);
            let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            written.extend(names.filter(is_name).map(str::to_owned));
        }
    }
    let mut listed: Vec<String> = tenant_control::all_statements().iter().map(|(name, _)| (*name).to_owned()).collect();
    let of_the_store: Vec<&str> = kernel::store::STATEMENTS.iter().map(|(name, _)| *name).collect();
    listed.retain(|name| !of_the_store.contains(&name.as_str()));
    written.sort();
    listed.sort();
    assert_eq!(
        written, listed,
        "a module with statements! is missing from its FEATURE, or from statements() of the kernel"
    );
}
