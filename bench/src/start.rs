//! How long the release binary takes from its start to ready, on an embedded store that has seen some life.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::harness::{Outcome, folder, setting};
use crate::report::limit;
use crate::server::Server;

const LIMIT_MS: f64 = 300.0;
const DAY_MS: i64 = 86_400_000;

/// Entries of 50 tenants over the last 30 days, so that none is old enough to be cleaned away.
const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
    INSERT INTO audit_entries (tenant_id, id, at, actor_type, actor_id, actor_name, action, target_type, target_id,
        address, credential_type, credential_id, request_id, changes)
    SELECT printf('ten_%026d', i % 50), printf('aud_%026d', i), ?2 - ?3 + i * (?3 / ?1), 'api_key',
        printf('key_%026d', i % 500), 'Inventory agent', 'ticket.update', 'ticket', printf('tkt_%026d', i / 3),
        '192.0.2.7', 'api_key', printf('key_%026d', i % 500), printf('req_%020d', i), '{\"state\":[\"open\",\"closed\"]}'
    FROM n";

pub fn run() -> Outcome {
    let (rounds, rows) = (setting("BENCH_ROUNDS", 9)?, setting("BENCH_ROWS", 1_000_000)?);
    println!("start: of the release binary on an embedded store with {rows} audit entries, until /readyz answers 200");
    let data = folder()?;
    Server::start(data.path())?.stop()?;
    fill(&data.path().join("tenant-control.db"), rows)?;
    let mut figures = Vec::new();
    for _ in 0..rounds {
        let server = Server::start(data.path())?;
        figures.push(server.ready_after.as_secs_f64() * 1e3);
        server.stop()?;
    }
    println!("  {}", figures.iter().map(|ms| format!("{ms:.0}")).collect::<Vec<_>>().join(" "));
    limit("ready after", figures, "ms", LIMIT_MS);
    Ok(())
}

fn fill(database: &Path, rows: usize) -> Outcome {
    let connection = Connection::open(database)?;
    let now: i64 = connection.query_row("SELECT CAST(strftime('%s') AS INTEGER) * 1000", [], |row| row.get(0))?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000;")?;
    connection.execute(FILL, params![i64::try_from(rows)?, now, 30 * DAY_MS])?;
    let bytes = std::fs::metadata(database)?.len();
    connection.close().map_err(|(_, error)| error)?;
    println!("  the file has {} MB", bytes.max(std::fs::metadata(database)?.len()) / 1_000_000);
    Ok(())
}
