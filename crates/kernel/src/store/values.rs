//! The types of `base` as both engines store them, and [`Value`] for statements built at run time.
//!
//! Ids are text and times are milliseconds, on both engines, so that a dump of either reads the same.

use std::error::Error as StdError;
use std::fmt::Write as _;

use bytes::BytesMut;
use rusqlite::types::{FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::base::seal::SealedValue;
use crate::base::{Id, Identified, Timestamp};

use super::Param;

type Encoded = Result<IsNull, Box<dyn StdError + Sync + Send>>;

impl<R: Identified> rusqlite::ToSql for Id<R> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(rusqlite::types::Value::Text(self.to_string())))
    }
}

impl<R: Identified> rusqlite::types::FromSql for Id<R> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str()?.parse().map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

impl<R: Identified> ToSql for Id<R> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Encoded {
        write!(out, "{self}")?;
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        <&str as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl<'r, R: Identified> FromSql<'r> for Id<R> {
    fn from_sql(ty: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(<&str as FromSql>::from_sql(ty, raw)?.parse()?)
    }

    fn accepts(ty: &Type) -> bool {
        <&str as FromSql>::accepts(ty)
    }
}

impl<R: Identified> From<Id<R>> for Value {
    fn from(id: Id<R>) -> Self {
        Value::Text(id.to_string())
    }
}

impl rusqlite::ToSql for SealedValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl rusqlite::types::FromSql for SealedValue {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        <Vec<u8> as rusqlite::types::FromSql>::column_result(value).map(SealedValue)
    }
}

impl ToSql for SealedValue {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Encoded {
        <Vec<u8> as ToSql>::to_sql(&self.0, ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        <Vec<u8> as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl<'r> FromSql<'r> for SealedValue {
    fn from_sql(ty: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        <Vec<u8> as FromSql>::from_sql(ty, raw).map(SealedValue)
    }

    fn accepts(ty: &Type) -> bool {
        <Vec<u8> as FromSql>::accepts(ty)
    }
}

impl rusqlite::ToSql for Timestamp {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.as_millis()))
    }
}

impl rusqlite::types::FromSql for Timestamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(Timestamp::from_millis)
    }
}

impl ToSql for Timestamp {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Encoded {
        self.as_millis().to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        <i64 as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl<'r> FromSql<'r> for Timestamp {
    fn from_sql(ty: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        i64::from_sql(ty, raw).map(Timestamp::from_millis)
    }

    fn accepts(ty: &Type) -> bool {
        <i64 as FromSql>::accepts(ty)
    }
}

/// A value whose type is known only at run time: a filter of a list, a sort key in a cursor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Integer(i64::from(*value)),
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Real(value) => ValueRef::Real(*value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Encoded {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Bool(value) => value.to_sql_checked(ty, out),
            Value::Int(value) => value.to_sql_checked(ty, out),
            Value::Real(value) => value.to_sql_checked(ty, out),
            Value::Text(value) => value.to_sql_checked(ty, out),
            Value::Bytes(value) => value.to_sql_checked(ty, out),
        }
    }

    /// Accepts any type: `to_sql` checks it, when the variant is known.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

macro_rules! into_value {
    ($($from:ty, $value:ident => $into:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($value: $from) -> Self {
                $into
            }
        }
    )*};
}

into_value! {
    bool, value => Value::Bool(value);
    i64, value => Value::Int(value);
    f64, value => Value::Real(value);
    String, value => Value::Text(value);
    &str, value => Value::Text(value.to_owned());
    Vec<u8>, value => Value::Bytes(value);
    &[u8], value => Value::Bytes(value.to_vec());
    Timestamp, value => Value::Int(value.as_millis());
    SealedValue, value => Value::Bytes(value.0);
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Values as parameters of a statement.
pub(super) fn to_params(values: &[Value]) -> impl Iterator<Item = &dyn Param> {
    values.iter().map(|value| value as &dyn Param)
}
