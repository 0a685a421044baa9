//! Every difference between the two engines in SQL. Elsewhere a statement is written once for both.

use super::DatabaseEngine;

/// Opens the transaction that a group of SQLite writes shares. IMMEDIATE takes the write lock at once: a deferred
/// transaction that finds the lock taken at its first write cannot wait for it.
pub(super) const SQLITE_BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const SQLITE_COMMIT: &str = "COMMIT";
pub(super) const SQLITE_ROLLBACK: &str = "ROLLBACK";

/// The savepoint that undoes one write of a group commit.
pub(super) const SQLITE_WRITE_OPEN: &str = "SAVEPOINT one_write";
pub(super) const SQLITE_WRITE_KEEP: &str = "RELEASE one_write";
pub(super) const SQLITE_WRITE_UNDO: &str = "ROLLBACK TO one_write";

/// Connections are read-only by default, as SQLite's readers are, so a write says that it is one.
pub(super) const POSTGRES_BEGIN: &str = "BEGIN READ WRITE";

/// PostgreSQL answers COMMIT of an aborted transaction with ROLLBACK and no error, and the driver does not show which
/// of the two it was. A savepoint costs next to nothing and is refused in an aborted transaction, and outside of one.
/// Sent in one message with COMMIT, its refusal prevents the COMMIT.
pub(super) const POSTGRES_COMMIT: &str = "SAVEPOINT sound; COMMIT";
pub(super) const POSTGRES_ROLLBACK: &str = "ROLLBACK";

/// Sets the tenant that row-level security lets this session see, and returns the backend that it was set on.
pub(super) const POSTGRES_SET_TENANT: &str = "SELECT set_config('tc.tenant', $1, false), pg_backend_pid()";

/// The same for a write, which also needs the database's time: see [`super::Tx::tick`].
pub(super) const POSTGRES_SET_TENANT_TO_WRITE: &str = "SELECT set_config('tc.tenant', $1, false), pg_backend_pid(), \
     CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";

/// The process id of the backend.
pub(super) const POSTGRES_BACKEND: &str = "SELECT pg_backend_pid()";

/// The value of `tc.tenant` for statements over all tenants.
pub(super) const EVERY_TENANT: &str = "*";

/// The settings of every connection to PostgreSQL. The timeouts keep a stuck statement, lock or transaction from
/// holding a pooled connection for ever. JIT compilation only delays small statements. A bitmap scan reads all matches of
/// an index before it returns the first row; without table statistics the planner would choose it for a list that needs
/// fifty rows in the order of the index.
pub(super) const POSTGRES_SETTINGS: &str = "SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
     SET idle_in_transaction_session_timeout = '5s'; SET default_transaction_read_only = on; \
     SET client_min_messages = warning; SET jit = off; SET enable_bitmapscan = off";

/// Whether the role bypasses row-level security.
pub(super) const POSTGRES_ROLE: &str =
    "SELECT rolname::text, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user";

/// The advisory lock that a transaction holds until its end; see [`super::Tx::try_lock`].
pub(super) const POSTGRES_TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock($1)";

/// The lock that keeps two nodes from migrating at once. The number is arbitrary, but must be ours alone. A first start on a busy
/// machine may pause between two migrations.
pub(super) const POSTGRES_MIGRATION_LOCK: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '120s'; \
     SET LOCAL idle_in_transaction_session_timeout = '60s'; SELECT pg_advisory_xact_lock(7309453291847); SELECT set_config('tc.tenant', '*', true)";
pub(super) const SQLITE_MIGRATION_BEGIN: &str = "BEGIN EXCLUSIVE";

/// Translates a statement for SQLite:
///
/// - `$N` becomes `?N`. SQLite numbers `$N` by first appearance, so `… $2 … $1 …` would swap the two values, and it finds
///   each name by searching a list.
/// - `/* INDEXED BY name */` after a table becomes an index hint. Without table statistics SQLite rates an index with a
///   value before the sort columns no better than one without. PostgreSQL reads the hint as a comment.
/// - The time of `database_time!` becomes NULL, so that the bound time is used: SQLite has no clock that a test could move.
///
/// Quoted texts and other comments stay as they are, because a JSON path starts with a `$`, too.
pub(super) fn sqlite_text(sql: &str) -> String {
    let sql = &sql.replace(POSTGRES_TIME, "NULL");
    let (mut text, mut rest) = (String::with_capacity(sql.len()), sql.as_str());
    while let Some(start) = rest.find(['$', '\'', '"', '/', '-']) {
        let (before, found) = rest.split_at(start);
        text.push_str(before);
        if let Some((index, after)) = found.strip_prefix(INDEX_HINT).and_then(|named| named.split_once(" */")) {
            text.push_str("INDEXED BY ");
            text.push_str(index);
            rest = after;
            continue;
        }
        let length = token_len(found);
        let (token, after) = found.split_at(length);
        let is_number = token == "$" && after.starts_with(|next: char| next.is_ascii_digit());
        text.push_str(if is_number { "?" } else { token });
        rest = after;
    }
    text.push_str(rest);
    text
}

const INDEX_HINT: &str = "/* INDEXED BY ";

/// The length of the quoted text or comment that begins here; else one character. A doubled quote is read as the end of
/// one text and the beginning of the next, which has the same effect.
fn token_len(found: &str) -> usize {
    let ends = [("'", "'"), ("\"", "\""), ("/*", "*/"), ("--", "\n")];
    let Some((begin, end)) = ends.into_iter().find(|(begin, _)| found.starts_with(begin)) else { return 1 };
    found[begin.len()..].find(end).map_or(found.len(), |at| begin.len() + at + end.len())
}

/// The time at which PostgreSQL began the statement, in milliseconds, as [`database_time!`] writes it.
const POSTGRES_TIME: &str = "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)";

/// In a statement, the time by the clock that all nodes share: the database's own, or the bound value where it has none.
/// Bind [`super::Db::clock_override`].
#[macro_export]
macro_rules! database_time {
    ($given:literal) => {
        concat!(
            "COALESCE(CAST(",
            $given,
            " AS BIGINT), CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT))"
        )
    };
}

/// The end of a SELECT that locks its rows and skips locked ones.
pub(super) fn skip_locked(engine: DatabaseEngine) -> &'static str {
    match engine {
        DatabaseEngine::Sqlite => "",
        DatabaseEngine::Postgres => " FOR UPDATE SKIP LOCKED",
    }
}

/// Inserts a change of a tenant's record. PostgreSQL adds the transaction id. SQLite's single writer numbers changes by
/// time, in the order of commits, so that changes after a restore get other numbers than those that were lost by it.
pub(super) fn insert_change(engine: DatabaseEngine) -> &'static str {
    match engine {
        DatabaseEngine::Sqlite => {
            "INSERT INTO changes (written_by, number, tenant_id, kind, record_id)
             SELECT 0, MAX(COALESCE((SELECT MAX(number) FROM changes WHERE written_by = 0), 0) + 1, $4), $1, $2, $3"
        }
        DatabaseEngine::Postgres => "INSERT INTO changes (tenant_id, kind, record_id) VALUES ($1, $2, $3)",
    }
}

pub(super) fn numbers_changes_by_time(engine: DatabaseEngine) -> bool {
    engine == DatabaseEngine::Sqlite
}

/// The changes after a position; on PostgreSQL only those of transactions older than all that are in progress.
pub(super) fn changes_after(engine: DatabaseEngine) -> &'static str {
    match engine {
        DatabaseEngine::Sqlite => {
            "SELECT written_by, number, tenant_id, kind, record_id FROM changes
             WHERE (written_by, number) > ($1, $2) ORDER BY written_by, number LIMIT $3"
        }
        DatabaseEngine::Postgres => {
            "SELECT written_by, number, tenant_id, kind, record_id FROM changes
             WHERE (written_by, number) > ($1, $2)
             AND written_by < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)
             ORDER BY written_by, number LIMIT $3"
        }
    }
}

/// The position after all visible changes; transactions in progress come after it.
pub(super) fn changes_end(engine: DatabaseEngine) -> &'static str {
    match engine {
        DatabaseEngine::Sqlite => "SELECT 0, COALESCE((SELECT MAX(number) FROM changes WHERE written_by = 0), 0)",
        DatabaseEngine::Postgres => {
            "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT), CAST(0 AS BIGINT)"
        }
    }
}

/// The table of applied migrations and the checksums of their texts.
pub(super) fn migrations_table(engine: DatabaseEngine) -> &'static str {
    match engine {
        DatabaseEngine::Sqlite => {
            "CREATE TABLE IF NOT EXISTS schema_migrations (
                 name TEXT NOT NULL PRIMARY KEY,
                 checksum TEXT NOT NULL,
                 applied_at INTEGER NOT NULL
             ) STRICT"
        }
        DatabaseEngine::Postgres => {
            "CREATE TABLE IF NOT EXISTS schema_migrations (
                 name TEXT COLLATE \"C\" NOT NULL PRIMARY KEY,
                 checksum TEXT COLLATE \"C\" NOT NULL,
                 applied_at BIGINT NOT NULL
             )"
        }
    }
}

/// Counts the tables of that name: a database without one has no migrations yet.
pub(super) fn migrations_table_exists(engine: DatabaseEngine) -> &'static str {
    match engine {
        DatabaseEngine::Sqlite => "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_migrations'",
        DatabaseEngine::Postgres => "SELECT count(to_regclass('schema_migrations'))",
    }
}

/// Checks every page of the file; returns one row "ok", or the problems.
pub(super) const SQLITE_CHECK: &str = "PRAGMA quick_check(10)";

/// Tables of tenants without row-level security.
pub(super) const POSTGRES_OPEN_TABLES: &str = "SELECT c.relname::text FROM pg_class c \
     WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace \
     AND (c.relname = 'tenants' OR EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id')) \
     AND NOT (c.relrowsecurity AND c.relforcerowsecurity) ORDER BY 1";

/// The database's own time, in milliseconds.
pub(super) const POSTGRES_CLOCK: &str = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";

/// The prefix that asks for a statement's query plan.
pub(super) fn explain_prefix(engine: DatabaseEngine) -> &'static str {
    match engine {
        DatabaseEngine::Sqlite => "EXPLAIN QUERY PLAN ",
        DatabaseEngine::Postgres => "EXPLAIN ",
    }
}

#[cfg(test)]
mod tests {
    use super::sqlite_text;

    #[test]
    fn numbers_are_spelt_for_sqlite_and_texts_are_left_alone() {
        for (sql, translated) in [
            ("SELECT $2, $10 FROM t WHERE a = $1", "SELECT ?2, ?10 FROM t WHERE a = ?1"),
            ("SELECT body ->> '$.tags[0]' FROM t WHERE a = $1", "SELECT body ->> '$.tags[0]' FROM t WHERE a = ?1"),
            ("SELECT 'it''s $1', \"a$1\" = $1", "SELECT 'it''s $1', \"a$1\" = ?1"),
            ("SELECT $1 -- of $2\n, $2 - 1 / $3", "SELECT ?1 -- of $2\n, ?2 - 1 / ?3"),
            (
                "SELECT $1 /* not $2 */ FROM t /* INDEXED BY t_by_a */ WHERE a = $2",
                "SELECT ?1 /* not $2 */ FROM t INDEXED BY t_by_a WHERE a = ?2",
            ),
            ("SELECT '$1 is never closed", "SELECT '$1 is never closed"),
            (concat!("SELECT ", database_time!("$2")), "SELECT COALESCE(CAST(?2 AS BIGINT), NULL)"),
            ("SELECT '\u{e4} $1' || $1", "SELECT '\u{e4} $1' || ?1"),
        ] {
            assert_eq!(sqlite_text(sql), translated);
        }
    }
}
