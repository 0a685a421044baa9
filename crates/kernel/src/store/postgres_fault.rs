//! Maps failures of PostgreSQL to errors for the client, and decides whether the connection can still be used.

use std::error::Error as StdError;

use tokio_postgres::error::SqlState;

use crate::base::Error;

/// Maps a failure to the error for the client. Every transient failure is "unavailable", and the client retries.
pub(super) fn fault(error: tokio_postgres::Error) -> Error {
    if is_network(&error) {
        return Error::unavailable(error);
    }
    let Some(state) = error.code() else {
        return Error::internal(describe(&error));
    };
    if *state == SqlState::UNIQUE_VIOLATION {
        return Error::duplicate(describe(&error));
    }
    if passes(state) || is_stale(state) {
        Error::unavailable(describe(&error))
    } else {
        Error::internal(describe(&error))
    }
}

/// Whether the connection cannot be used any more.
pub(super) fn spoils(error: &tokio_postgres::Error) -> bool {
    is_network(error) || error.code().is_some_and(|state| is_away(state) || is_stale(state))
}

/// Whether the failure came from the network.
fn is_network(error: &tokio_postgres::Error) -> bool {
    error.is_closed() || error.source().is_some_and(<dyn StdError>::is::<std::io::Error>)
}

/// The server is shutting down, gone or full: connection exceptions, operator intervention, insufficient resources.
fn is_away(state: &SqlState) -> bool {
    let code = state.code();
    code.starts_with("08") || code.starts_with("57P0") || code.starts_with("53")
}

/// Serialization failure, deadlock, lock timeout, statement timeout: another attempt may well succeed.
fn passes(state: &SqlState) -> bool {
    is_away(state) || matches!(state.code(), "40001" | "40P01" | "55P03" | "57014" | "25P03")
}

/// The state of the connection is outdated: another node changed a table under a prepared statement, the server has become a
/// standby, which refuses to begin a write transaction, or a pooler has switched the backend.
fn is_stale(state: &SqlState) -> bool {
    matches!(state.code(), "0A000" | "26000" | "42P05")
}

/// The driver's own text says only "db error". The server's detail is left out: it quotes values of the row.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => format!("{error}: {}", std::error::Error::source(error).map_or_else(String::new, ToString::to_string)),
    }
}
