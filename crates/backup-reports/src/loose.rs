//! A field of a tool's JSON, whatever its type: a field that is not as expected costs that field and not its whole line.
//! Lists and objects are skipped without being copied, so that no input takes more memory than its own length.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

#[derive(Debug, Default)]
pub enum LooseField {
    #[default]
    Absent,
    Flag(bool),
    Integer(i64),
    Text(String),
}

impl LooseField {
    /// A count or a size: never negative.
    pub fn as_count(&self) -> Option<i64> {
        match self {
            Self::Integer(number) if *number >= 0 => Some(*number),
            _ => None,
        }
    }

    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_true(&self) -> bool {
        matches!(self, Self::Flag(true))
    }
}

impl<'de> Deserialize<'de> for LooseField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor)
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = LooseField;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<LooseField, E> {
        Ok(LooseField::Flag(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<LooseField, E> {
        Ok(LooseField::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<LooseField, E> {
        Ok(i64::try_from(value).map_or(LooseField::Absent, LooseField::Integer))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<LooseField, E> {
        Ok(LooseField::Absent)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<LooseField, E> {
        Ok(LooseField::Text(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<LooseField, E> {
        Ok(LooseField::Absent)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LooseField, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(LooseField::Absent)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<LooseField, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(LooseField::Absent)
    }
}

/// What a key of an object holds, where the value may also be something else than an object.
#[derive(Debug)]
pub struct LooseObject<T>(pub Option<T>);

impl<T> Default for LooseObject<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LooseObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(std::marker::PhantomData))
    }
}

struct ObjectVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = LooseObject<T>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(LooseObject(None))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(LooseObject(None))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(LooseObject(None))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(LooseObject(None))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(LooseObject(None))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(LooseObject(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(LooseObject(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        T::deserialize(serde::de::value::MapAccessDeserializer::new(object)).map(|found| LooseObject(Some(found)))
    }
}
