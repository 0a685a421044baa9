//! How SQLite would find the rows of every statement: none may walk a table that grows without end.

use kernel::store::{Param, Purpose, Value};

use crate::support::stores::TestStore;

/// Tables that have a row for each event, delivery, attempt, request or deed.
const GROWING: &[&str] = &[
    "events",
    "deliveries",
    "delivery_attempts",
    "audit_entries",
    "idempotency_records",
    "tickets",
    "ticket_terms",
    "ticket_comments",
    "ticket_changes",
];

/// Statements that look at many rows on purpose, and why that is bounded.
const ALLOWED: &[(&str, &str)] = &[
    ("LIST", "the list of deliveries adds its filters, its order and a limit"),
    ("ATTEMPTS", "adds the deliveries of one page"),
    ("WINDOW", "adds the numbers between which the feed looks"),
    ("FULL", "adds the numbers of one page"),
    ("BRIEF", "adds the numbers of one step"),
    ("BRIEF_CHANGE", "adds the numbers of one step"),
    ("NUMBERS", "adds a place in an order and a limit; see tickets/customers.rs"),
    ("UPDATES", "adds a place in an order and a limit; see tickets/customers.rs"),
    ("PRIORITIES", "adds a place in an order and a limit; see tickets/customers.rs"),
    ("DATES", "adds a place in an order and a limit; see tickets/customers.rs"),
    ("BY_EXTERNAL_ID", "adds the ids that are asked for"),
    ("WAITING", "counts what waits, from an index of that alone, off the threads that serve requests"),
];

/// The places of a statement, counted from `$1`.
fn places(sql: &str) -> usize {
    let numbers = sql.split('$').skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    numbers.max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_walks_a_table_that_grows() {
    let store = TestStore::sqlite().await;
    let db = store.system(Purpose::Cli);
    let mut slow = Vec::new();
    for (name, sql) in tenant_control::statements() {
        if ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
            continue;
        }
        let nothing = Value::Null;
        let args: Vec<&dyn Param> = (0..places(sql)).map(|_| &nothing as &dyn Param).collect();
        let plan: Vec<(i64, i64, i64, String)> = db.list(&format!("EXPLAIN QUERY PLAN {sql}"), &args).await.unwrap();
        for (.., step) in plan {
            let table = |word: &str| GROWING.contains(&word);
            let by_tenant_alone = step.ends_with("(tenant_id=?)");
            // The alias of a table is its first letter, where it has one.
            let words: Vec<&str> = step.split(' ').collect();
            let grows = words.get(1).is_some_and(|word| table(word) || ["d", "e", "t", "c"].contains(word));
            if grows && (step.starts_with("SCAN") || by_tenant_alone) {
                slow.push(format!("{name}: {step}\n    {sql}"));
            }
        }
    }
    assert!(slow.is_empty(), "these walk all rows, or all of a tenant:\n{}", slow.join("\n"));
}
