//! What is wrong with the plan of a statement, as either engine tells it.

use kernel::args;
use kernel::store::{Param, Purpose, Store, Value};
use tenant_control::features::webhooks::deliveries;

use super::GROWING;

/// Indexes of deliveries that are not done with; any other has all that an endpoint ever got.
const UNDONE: &[&str] = &["deliveries_due", "deliveries_under_way", "deliveries_in_order"];

/// Indexes of what is not over: as many rows as may wait or be under way, of which a statement takes the first.
const OPEN: &[&str] =
    &["workflow_runs_queued", "workflow_runs_by_deadline", "steps_due", "device_software_changes_pkey"];

/// The places of a statement, counted from `$1`.
pub fn places(sql: &str) -> usize {
    let numbers = sql.split('$').skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    numbers.max().unwrap_or(0)
}

/// What SQLite would do wrong with a statement.
pub async fn wrong_on_sqlite(store: &Store, name: &str, sql: &str) -> Vec<String> {
    let nothing = Value::Null;
    let args: Vec<&dyn Param> = (0..places(sql)).map(|_| &nothing as &dyn Param).collect();
    let explain = format!("EXPLAIN QUERY PLAN {sql}");
    let plan: Vec<(i64, i64, i64, String)> = store.system(Purpose::Cli).list(&explain, &args).await.unwrap();
    let wrong = |step: &String| {
        // The alias of a table is its first letter, where it has one.
        let table = step.split(' ').nth(1).unwrap_or_default();
        let grows = GROWING.contains(&table) || ["d", "e", "t", "c", "i", "r"].contains(&table);
        let of_endpoint = step.ends_with("(tenant_id=? AND webhook_id=?)") && ["deliveries", "d", "e"].contains(&table);
        let all = step.ends_with("(tenant_id=?)") || of_endpoint && !UNDONE.iter().any(|index| step.contains(index));
        let open = OPEN.iter().any(|index| step.contains(index));
        grows && !open && (step.starts_with("SCAN") || all)
    };
    let steps = plan.into_iter().map(|(.., step)| step);
    steps
        .filter(|step| wrong(step) || passes_by(name, sql, step))
        .map(|step| format!("{name}: {step}\n    {sql}"))
        .collect()
}

/// Whether a step of a walk along pieces of one index comes by more than those pieces, or sorts.
fn passes_by(name: &str, sql: &str, step: &str) -> bool {
    let mut values: Vec<&str> = sql.split(" = $").filter_map(|before| before.rsplit([' ', '(', '.']).next()).collect();
    values.pop();
    // What is joined to a row has its own key, which is looked at like any other.
    let leads = step.starts_with("SEARCH") && !step.ends_with("LEFT-JOIN");
    let misses = leads && values.iter().any(|value| !step.contains(&format!("{value}=?")));
    (is_arm(name, sql) || sql.contains(" AS arm")) && (misses || step.contains("TEMP B-TREE"))
}

/// What PostgreSQL would do wrong with a statement whose values it does not know, as it plans one that is asked often.
pub async fn wrong_on_postgres(store: &Store, name: &str, sql: &str, strict: bool) -> Vec<String> {
    let prepare = format!("PREPARE looked_at AS {sql}");
    let nothing = vec!["NULL"; places(sql)].join(", ");
    let execute = format!(
        "EXPLAIN (COSTS OFF) EXECUTE looked_at{}",
        if nothing.is_empty() { nothing } else { format!("({nothing})") }
    );
    let db = store.system(Purpose::Cli);
    let plan: Vec<String> = db
        .write(async move |tx| {
            tx.exec("SET LOCAL plan_cache_mode = force_generic_plan", args![]).await?;
            tx.exec(&prepare, args![]).await?;
            let plan = tx.list(&execute, args![]).await?;
            tx.exec("DEALLOCATE looked_at", args![]).await?;
            Ok(plan)
        })
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    let plan = plan.join("\n");
    let wrong = plan.split("->").filter(|node| is_wrong(node, strict)).map(|node| format!("{name}: {node}\n    {sql}"));
    wrong.collect()
}

/// A step of PostgreSQL's plan that reads a growing table without an index, or all of a tenant; in a strict one also what
/// sorts, or judges rows by anything but whose they are.
fn is_wrong(node: &str, strict: bool) -> bool {
    let node = node.trim();
    let line = |label: &str| node.lines().find_map(|line| line.trim().strip_prefix(label));
    if strict {
        let judged = line("Filter: ").is_some_and(|filter| {
            let row_security = "((tenant_id = current_setting('tc.tenant'::text, true)) OR \
                (current_setting('tc.tenant'::text, true) = '*'::text))";
            filter != row_security
        });
        if judged || node.starts_with("Sort") || node.starts_with("Incremental Sort") {
            return true;
        }
    }
    let first = node.lines().next().unwrap_or_default();
    let Some((scan, table)) = first.split_once(" on ").filter(|(scan, _)| scan.contains("Scan")) else { return false };
    let table = table.split(' ').next().unwrap_or_default();
    // A bitmap's conditions stand with the index that it is made from.
    let grows = GROWING.iter().any(|growing| table == *growing || table.starts_with(&format!("{growing}_")));
    let condition = line("Index Cond: ").unwrap_or_default();
    let undone = UNDONE.iter().any(|index| first.contains(index));
    let whole = |part: &str| part.contains("tenant_id") || part.contains("(webhook_id =") && !undone;
    let by_more = condition.split(" AND ").any(|part| !part.is_empty() && !whole(part));
    let open = OPEN.iter().any(|index| first.contains(index));
    grows && !scan.starts_with("Bitmap Heap Scan") && !by_more && !open
}

/// Statements that must be nothing but a walk along one piece of one index, as `arm!` writes them.
pub fn is_arm(name: &str, sql: &str) -> bool {
    name.starts_with("BY_") && sql.contains(" DESC LIMIT $")
}

#[test]
fn a_plan_that_is_wrong_is_seen() {
    let good = "Index Scan Backward using audit_entries_by_time on audit_entries\n  Index Cond: ((tenant_id = $1) AND (at < $2))";
    assert!(!is_wrong(good, false) && !is_wrong(good, true));
    for bad in [
        "Seq Scan on audit_entries",
        "Index Scan using audit_entries_pkey on audit_entries\n  Index Cond: (tenant_id = $1)",
        "Index Only Scan using events_by_age on events e",
        "Bitmap Index Scan on deliveries_by_webhook\n  Index Cond: (tenant_id = $1)",
    ] {
        assert!(is_wrong(bad, false), "{bad}");
    }
    let log = deliveries::log::store::STATEMENTS.iter().find(|(name, _)| *name == "BY_WEBHOOK").unwrap().1;
    let along = |index: &str| format!("SEARCH deliveries USING INDEX {index} AND id>? AND id<?)");
    assert!(passes_by("BY_WEBHOOK", log, &along("sqlite_autoindex_deliveries_1 (tenant_id=?")));
    assert!(!passes_by("BY_WEBHOOK", log, &along("deliveries_by_webhook (tenant_id=? AND webhook_id=?")));
    for bad in ["Sort\n  Sort Key: at DESC", &format!("{good}\n  Filter: (actor_id = $2)")] {
        assert!(is_wrong(bad, true) && !is_wrong(bad, false), "{bad}");
    }
}
