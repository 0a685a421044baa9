//! A device in responses: all fields or the selected ones, and the requested parts.

use std::sync::Arc;

use kernel::base::{Error, Result};
use kernel::http::Record;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ArrayBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::DevicePart;
use crate::devices::{Device, DeviceChange, Disk, Nic, Port, Software, Supply, Volume};

/// The fields and parts of each device in a response.
#[derive(Clone, Debug, Default)]
pub struct FieldSelection {
    /// `None` selects all fields.
    pub fields: Option<Arc<Vec<&'static str>>>,
    pub include: Vec<DevicePart>,
}

/// A device in a response.
#[derive(Debug)]
pub struct InventoryDevice {
    pub device: Device,
    pub parts: RawDeviceParts,
    /// Only in the response for one device.
    pub history: Option<Vec<DeviceChange>>,
    pub fields: Option<Arc<Vec<&'static str>>>,
}

/// Parts as stored JSON, by name.
#[derive(Debug, Default)]
pub struct RawDeviceParts(pub Vec<(&'static str, Box<RawValue>)>);

impl RawDeviceParts {
    pub fn size_bytes(&self) -> usize {
        self.0.iter().map(|(_, list)| list.get().len()).sum()
    }

    pub fn find_part(&self, part: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == part).map(|(_, list)| list.get())
    }
}

/// Stored JSON that is copied into the response unchanged.
pub fn raw_json(text: String) -> Result<Box<RawValue>> {
    RawValue::from_string(text).map_err(Error::internal)
}

impl Serialize for InventoryDevice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = CompleteDevice { device: &self.device, parts: &self.parts, history: self.history.as_ref() };
        let Some(fields) = &self.fields else { return all.serialize(serializer) };
        let device = serde_json::to_value(&self.device).map_err(serde::ser::Error::custom)?;
        let mut map = serializer.serialize_map(None)?;
        for field in fields.iter() {
            map.serialize_entry(field, device.get(*field).unwrap_or(&Value::Null))?;
        }
        for (name, list) in &self.parts.0 {
            map.serialize_entry(name, list)?;
        }
        map.end()
    }
}

/// All fields as one object.
#[derive(Serialize)]
struct CompleteDevice<'a> {
    #[serde(flatten)]
    device: &'a Device,
    #[serde(flatten)]
    parts: &'a RawDeviceParts,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<&'a Vec<DeviceChange>>,
}

impl Serialize for RawDeviceParts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, list)| (name, list)))
    }
}

impl Record for InventoryDevice {
    fn version(&self) -> i64 {
        self.device.version
    }
}

impl PartialSchema for InventoryDevice {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut object)) = Device::schema() else { return Device::schema() };
        let list = |name: std::borrow::Cow<'static, str>, about: &str| {
            let items = Ref::from_schema_name(name);
            RefOr::T(Schema::Array(ArrayBuilder::new().items(items).description(Some(about.to_owned())).build()))
        };
        let when_included = "Only when `include` names it.";
        object.properties.insert("disks".into(), list(Disk::name(), when_included));
        object.properties.insert("volumes".into(), list(Volume::name(), when_included));
        object.properties.insert("nics".into(), list(Nic::name(), when_included));
        object.properties.insert("software".into(), list(Software::name(), when_included));
        object.properties.insert("ports".into(), list(Port::name(), when_included));
        object.properties.insert("supplies".into(), list(Supply::name(), when_included));
        let history =
            "With `id` alone: what changed, oldest first; the last 1000 and about 4 MB of it. All is `view=history`.";
        object.properties.insert("history".into(), list(DeviceChange::name(), history));
        // With `fields`, only `id` is always present.
        object.required = vec!["id".to_owned()];
        RefOr::T(Schema::Object(object))
    }
}

impl ToSchema for InventoryDevice {
    fn name() -> std::borrow::Cow<'static, str> {
        "InventoryDevice".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Device::schemas(schemas);
        for (name, schema) in [
            (Disk::name(), Disk::schema()),
            (Volume::name(), Volume::schema()),
            (Nic::name(), Nic::schema()),
            (Software::name(), Software::schema()),
            (Port::name(), Port::schema()),
            (Supply::name(), Supply::schema()),
            (DeviceChange::name(), DeviceChange::schema()),
        ] {
            schemas.push((name.into_owned(), schema));
        }
        DeviceChange::schemas(schemas);
    }
}
