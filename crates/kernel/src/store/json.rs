//! JSON in columns: text on both engines, written and read by this server.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::{Error, Result};

use super::row::Row;

/// A value as the text of a column.
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(Error::internal)
}

/// The value of a column's text.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(Error::internal)
}

/// The value of a column's text, if there is one.
pub fn from_optional_json<T: DeserializeOwned>(text: Option<&str>) -> Result<Option<T>> {
    text.map(from_json).transpose()
}

impl Row<'_> {
    /// The value of a column with JSON.
    pub fn get_json<T: DeserializeOwned>(&self, index: usize) -> Result<T> {
        from_json(&self.get::<String>(index)?)
    }

    /// The value of a column with JSON or NULL.
    pub fn get_optional_json<T: DeserializeOwned>(&self, index: usize) -> Result<Option<T>> {
        from_optional_json(self.get::<Option<String>>(index)?.as_deref())
    }
}
