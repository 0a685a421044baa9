//! Rows of query results, read the same way from both engines.

use crate::base::{ActorKind, ActorRef, Error, Id, Identified, Result, Timestamp};

/// One row of a query result.
pub struct Row<'a>(EngineRow<'a>);

enum EngineRow<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a tokio_postgres::Row),
}

impl<'a> Row<'a> {
    pub(super) fn from_sqlite(row: &'a rusqlite::Row<'a>) -> Self {
        Row(EngineRow::Sqlite(row))
    }

    pub(super) fn from_postgres(row: &'a tokio_postgres::Row) -> Self {
        Row(EngineRow::Postgres(row))
    }

    /// The actor in three columns: type, id and name.
    pub fn get_actor(&self, [kind, id, name]: [usize; 3]) -> Result<ActorRef> {
        let kind: String = self.get(kind)?;
        let kind = ActorKind::parse(&kind).ok_or_else(|| Error::internal(format!("unknown actor type {kind:?}")))?;
        Ok(ActorRef { kind, id: self.get(id)?, name: self.get(name)? })
    }

    /// The last column.
    pub fn get_last<T: Column>(&self) -> Result<T> {
        let columns = match self.0 {
            EngineRow::Sqlite(row) => row.as_ref().column_count(),
            EngineRow::Postgres(row) => row.len(),
        };
        self.get(columns.saturating_sub(1))
    }

    /// The bytes of a column, without a copy.
    pub fn get_bytes(&self, index: usize) -> Result<&'a [u8]> {
        match self.0 {
            EngineRow::Sqlite(row) => {
                let bytes = row.get_ref(index).map_err(|error| unreadable_column(index, error))?;
                bytes.as_blob().map_err(|error| unreadable_column(index, error))
            }
            EngineRow::Postgres(row) => row.try_get(index).map_err(|error| unreadable_column(index, error)),
        }
    }

    /// The text of a column, without a copy.
    pub fn get_text(&self, index: usize) -> Result<&'a str> {
        match self.0 {
            EngineRow::Sqlite(row) => {
                let text = row.get_ref(index).map_err(|error| unreadable_column(index, error))?;
                text.as_str().map_err(|error| unreadable_column(index, error))
            }
            EngineRow::Postgres(row) => row.try_get(index).map_err(|error| unreadable_column(index, error)),
        }
    }

    /// The column at `index`, counted from 0 in the order of the SELECT.
    ///
    /// A column of another type is a bug in the statement, so it is an internal error.
    pub fn get<T: Column>(&self, index: usize) -> Result<T> {
        match self.0 {
            EngineRow::Sqlite(row) => row.get(index).map_err(|error| unreadable_column(index, error)),
            EngineRow::Postgres(row) => row.try_get(index).map_err(|error| unreadable_column(index, error)),
        }
    }
}

fn unreadable_column(index: usize, error: impl std::error::Error) -> Error {
    Error::internal(format!("column {index} could not be read: {error}"))
}

/// A type that a column can be read as, on both engines.
pub trait Column: rusqlite::types::FromSql + for<'r> tokio_postgres::types::FromSql<'r> + Send {}

impl<T: rusqlite::types::FromSql + for<'r> tokio_postgres::types::FromSql<'r> + Send> Column for T {}

/// A type that a row can be read as: a struct of a feature, a tuple, or a single column.
pub trait FromRow: Sized + Send {
    fn from_row(row: &Row<'_>) -> Result<Self>;
}

/// Called for each row of a result. As a trait object, so that queries are compiled once and not for each row type.
pub(super) type RowCallback<'a> = &'a mut (dyn FnMut(&Row<'_>) -> Result<()> + Send);

/// Stores the only row of a result; a second row is a bug in the statement.
pub(super) fn set_only_row<T: FromRow>(found: &mut Option<T>, row: &Row<'_>, sql: &str) -> Result<()> {
    match found {
        None => *found = Some(T::from_row(row)?),
        Some(_) => return Err(Error::internal(format!("the statement found more than one row: {sql}"))),
    }
    Ok(())
}

macro_rules! single_columns {
    ($($column:ty)*) => {$(
        impl FromRow for $column {
            fn from_row(row: &Row<'_>) -> Result<Self> {
                row.get(0)
            }
        }
    )*};
}

single_columns! { i64 f64 bool String Vec<u8> Timestamp }

impl<R: Identified> FromRow for Id<R> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        row.get(0)
    }
}

impl<T: Send> FromRow for Option<T>
where
    Option<T>: Column,
{
    fn from_row(row: &Row<'_>) -> Result<Self> {
        row.get(0)
    }
}

macro_rules! tuples {
    ($(($($column:ident $index:literal),+))*) => {$(
        impl<$($column: Column),+> FromRow for ($($column,)+) {
            fn from_row(row: &Row<'_>) -> Result<Self> {
                Ok(($(row.get::<$column>($index)?,)+))
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}
