//! Kinds of events, each with the type of its data.

use std::borrow::Cow;
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::base::{Error, Result};

/// A kind of event whose `data` is a `T`.
pub struct EventKind<T> {
    name: &'static str,
    description: &'static str,
    data: PhantomData<fn(&T)>,
}

impl<T> EventKind<T> {
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        EventKind { name, description, data: PhantomData }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// The first word of a kind, to which `<family>.*` subscribes.
pub fn family_of(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// A kind without its data type, as the catalogue lists it.
#[derive(Clone, Debug)]
pub struct EventKindDescription {
    pub name: &'static str,
    pub description: &'static str,
    /// The component of the document that describes `data`.
    pub data: Cow<'static, str>,
    /// The self-contained schema of the delivery body.
    pub schema: Value,
    pub example: Value,
}

impl EventKindDescription {
    /// The schema of the delivery body, whose `data` refers to a component of the document.
    pub fn body_schema(&self) -> Value {
        body_schema(self.name, &self.data)
    }

    pub fn family(&self) -> &'static str {
        family_of(self.name)
    }
}

impl<T: Serialize + ToSchema> EventKind<T> {
    /// Describes the kind for the catalogue, with the example of the data's schema.
    pub fn describe(&self) -> Result<EventKindDescription> {
        let mut schemas: Vec<(String, RefOr<Schema>)> = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        let mut definitions = serde_json::Map::new();
        for (name, schema) in schemas {
            definitions.insert(name, serde_json::to_value(schema).map_err(Error::internal)?);
        }
        let find_example = |schema: &Value| schema.get("example").or_else(|| schema.pointer("/examples/0")).cloned();
        let example = definitions.get(T::name().as_ref()).and_then(find_example);
        let data = example.ok_or_else(|| Error::internal(format!("{} has no example", self.name)))?;
        let mut schema = body_schema(self.name, &T::name());
        schema["$defs"] = Value::Object(definitions);
        retarget_references(&mut schema);
        Ok(EventKindDescription {
            name: self.name,
            description: self.description,
            data: T::name(),
            schema,
            example: example_body(self.name, &data),
        })
    }
}

/// The schema of a delivery body of this kind; `data` refers to a component of the document.
fn body_schema(name: &str, data: &str) -> Value {
    json!({
        "type": "object",
        "required": ["id", "type", "timestamp", "tenant_id", "sequence", "data"],
        "properties": {
            "id": {"type": "string", "description": "The same in every retry, resend and endpoint; also the header webhook-id."},
            "type": kind_schema(name),
            "timestamp": {"type": "string", "format": "date-time", "description": "When it happened."},
            "tenant_id": {"type": "string"},
            "sequence": {"type": "integer", "format": "int64", "description": "Rises strictly in the order of commits of the tenant; gaps are normal."},
            "data": {"allOf": [{"$ref": format!("{COMPONENTS}{data}")}, {"type": "object", "properties": {"truncated": {
                "type": "boolean",
                "description": "Present, and true, only when the record was too large: long texts end with … and long lists are cut. Read the record from the API.",
            }}}]},
        },
    })
}

/// A single name, or a pattern for a name that ends with the wildcard.
fn kind_schema(name: &str) -> Value {
    match name.strip_suffix(WILDCARD) {
        None => json!({"type": "string", "enum": [name]}),
        Some(prefix) => json!({"type": "string", "pattern": format!("^{}", prefix.replace('.', "\\."))}),
    }
}

/// The end of a kind's name whose last part tenants choose.
const WILDCARD: &str = "*";

fn example_body(name: &str, data: &Value) -> Value {
    json!({
        "id": "evt_01jd8z6v2mfkpb7h3q9xw5t4rc",
        "type": name.replace(WILDCARD, "something"),
        "timestamp": "2026-11-15T08:00:00.000Z",
        "tenant_id": "ten_01jd8z6v2mfkpb7h3q9xw5t4rd",
        "sequence": 42,
        "data": data,
    })
}

const COMPONENTS: &str = "#/components/schemas/";

/// Points references into the document at the schema's own `$defs`.
fn retarget_references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(target) if name == "$ref" => *target = target.replace(COMPONENTS, "#/$defs/"),
                    field => retarget_references(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(retarget_references),
        _ => {}
    }
}
