//! Reads names and ids back from JSON that this server has stored.

use std::str::FromStr;

use kernel::base::StringEnum;
use serde::{Deserialize, Deserializer, de};

/// For `#[serde(deserialize_with)]`: an enum by its name.
pub fn read_name<'de, D: Deserializer<'de>, E: StringEnum>(deserializer: D) -> Result<E, D::Error> {
    let name = String::deserialize(deserializer)?;
    E::parse(&name).ok_or_else(|| de::Error::custom("a name that is not known"))
}

/// For `#[serde(deserialize_with)]`: an id.
pub fn read_id<'de, D: Deserializer<'de>, I: FromStr>(deserializer: D) -> Result<I, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| de::Error::custom("not an id"))
}
