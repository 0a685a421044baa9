//! Maps failures of PostgreSQL to errors for the client, and decides whether the connection can still be used.

use std::error::Error as StdError;

use tokio_postgres::error::SqlState;

use crate::base::Error;

/// Maps a failure to the error for the client. Every transient failure is "unavailable", and the client retries.
pub(super) fn map_postgres_error(error: tokio_postgres::Error) -> Error {
    if is_network_error(&error) {
        return Error::unavailable(error);
    }
    let Some(state) = error.code() else {
        return Error::internal(describe_error(&error));
    };
    if *state == SqlState::UNIQUE_VIOLATION {
        return Error::duplicate_key(describe_error(&error));
    }
    if is_transient(state) || is_connection_stale(state) {
        Error::unavailable(describe_error(&error))
    } else {
        Error::internal(describe_error(&error))
    }
}

/// Whether the connection cannot be used any more.
pub(super) fn breaks_connection(error: &tokio_postgres::Error) -> bool {
    is_network_error(error) || error.code().is_some_and(|state| is_server_away(state) || is_connection_stale(state))
}

/// Whether the failure came from the network.
fn is_network_error(error: &tokio_postgres::Error) -> bool {
    error.is_closed() || error.source().is_some_and(<dyn StdError>::is::<std::io::Error>)
}

/// The server is shutting down, gone or full: connection exceptions, operator intervention, insufficient resources.
fn is_server_away(state: &SqlState) -> bool {
    let code = state.code();
    code.starts_with("08") || code.starts_with("57P0") || code.starts_with("53")
}

/// Serialization failure, deadlock, lock timeout, statement timeout: another attempt may well succeed.
fn is_transient(state: &SqlState) -> bool {
    is_server_away(state) || matches!(state.code(), "40001" | "40P01" | "55P03" | "57014" | "25P03")
}

/// The state of the connection is outdated: another node changed a table under a prepared statement, the server has become a
/// standby, which refuses to begin a write transaction, or a pooler has switched the backend.
fn is_connection_stale(state: &SqlState) -> bool {
    matches!(state.code(), "0A000" | "26000" | "42P05")
}

/// The driver's own text says only "db error". The server's detail is left out: it quotes values of the row.
fn describe_error(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => format!("{error}: {}", std::error::Error::source(error).map_or_else(String::new, ToString::to_string)),
    }
}
