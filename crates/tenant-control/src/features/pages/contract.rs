//! The parts of the OpenAPI document that the reference shows, in the order of the document.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use kernel::base::{Error, Result};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};

#[derive(Deserialize)]
pub struct Contract {
    pub info: Info,
    pub tags: Vec<Tag>,
    /// Operations by path and method.
    pub paths: Entries<Entries<ApiOperation>>,
    /// Webhook requests by kind of event and method.
    pub webhooks: Entries<Entries<ApiOperation>>,
    components: Components,
}

#[derive(Deserialize)]
pub struct Info {
    pub description: String,
    pub version: String,
}

#[derive(Deserialize)]
pub struct Tag {
    pub name: String,
    pub description: String,
}

#[derive(Deserialize)]
struct Components {
    schemas: BTreeMap<String, ApiSchema>,
    responses: BTreeMap<String, ApiResponse>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiOperation {
    #[serde(rename = "operationId")]
    pub id: String,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub summary: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub parameters: Vec<ApiParameter>,
    pub request_body: Option<ApiRequestBody>,
    /// By status.
    #[serde(default)]
    pub responses: BTreeMap<String, ApiResponse>,
    /// Any one of these is enough: a kind of credential with the scopes it needs.
    #[serde(default)]
    pub security: Vec<BTreeMap<String, Vec<String>>>,
}

#[derive(Deserialize)]
pub struct ApiParameter {
    pub name: String,
    #[serde(rename = "in")]
    pub place: String,
    #[serde(default)]
    pub required: bool,
    #[serde(default)]
    pub description: String,
    pub schema: ApiSchema,
}

#[derive(Deserialize)]
pub struct ApiRequestBody {
    pub content: Entries<ApiMedia>,
}

/// A response, or a reference to one.
#[derive(Deserialize)]
pub struct ApiResponse {
    #[serde(rename = "$ref")]
    pub reference: Option<String>,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub content: Entries<ApiMedia>,
}

#[derive(Deserialize)]
pub struct ApiMedia {
    #[serde(default)]
    pub schema: ApiSchema,
    pub example: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiSchema {
    #[serde(rename = "$ref")]
    pub reference: Option<String>,
    #[serde(rename = "type")]
    pub kinds: Option<SchemaTypes>,
    pub format: Option<String>,
    pub description: Option<String>,
    pub properties: Entries<ApiSchema>,
    pub required: Vec<String>,
    pub items: Option<Box<ApiSchema>>,
    /// The schema of all other fields, if there is one.
    #[serde(deserialize_with = "schema_or_nothing")]
    pub additional_properties: Option<Box<ApiSchema>>,
    pub one_of: Vec<ApiSchema>,
    pub any_of: Vec<ApiSchema>,
    pub all_of: Vec<ApiSchema>,
    #[serde(rename = "enum")]
    pub values: Vec<Value>,
    pub default: Option<Value>,
    pub pattern: Option<String>,
    pub min_length: Option<Number>,
    pub max_length: Option<Number>,
    pub minimum: Option<Number>,
    pub maximum: Option<Number>,
    pub min_items: Option<Number>,
    pub max_items: Option<Number>,
    pub max_properties: Option<Number>,
    pub example: Option<Value>,
    pub examples: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub enum SchemaTypes {
    One(String),
    Any(Vec<String>),
}

/// The most references that are followed, which ends a circular one.
const REFERENCES_MAX: usize = 8;

impl Contract {
    pub fn parse(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(Error::internal)
    }

    /// The schema itself, or the one that it refers to.
    pub fn resolve_schema<'a>(&'a self, schema: &'a ApiSchema) -> &'a ApiSchema {
        let mut found = schema;
        for _ in 0..REFERENCES_MAX {
            match found.reference_name().and_then(|name| self.components.schemas.get(name)) {
                Some(next) => found = next,
                None => break,
            }
        }
        found
    }

    /// The response itself, or the one that it refers to.
    pub fn resolve_response<'a>(&'a self, answer: &'a ApiResponse) -> &'a ApiResponse {
        let name = answer.reference.as_deref().map(last_word);
        name.and_then(|name| self.components.responses.get(name)).unwrap_or(answer)
    }
}

impl ApiSchema {
    /// The name of the schema that this one refers to.
    pub fn reference_name(&self) -> Option<&str> {
        self.reference.as_deref().map(last_word)
    }

    /// The alternatives of `oneOf` and `anyOf`.
    pub fn variants(&self) -> impl Iterator<Item = &ApiSchema> {
        self.one_of.iter().chain(&self.any_of)
    }

    pub fn is_null(&self) -> bool {
        matches!(&self.kinds, Some(SchemaTypes::One(kind)) if kind == "null")
    }
}

fn last_word(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or_default()
}

/// `additionalProperties` is mostly a boolean, and only for few objects a schema.
fn schema_or_nothing<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Box<ApiSchema>>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Object(schema) if !schema.is_empty() => {
            serde_json::from_value(Value::Object(schema)).map(Some).map_err(serde::de::Error::custom)
        }
        _ => Ok(None),
    }
}

/// A JSON object with its members in the order of the document, which is the best order to read them.
pub struct Entries<T>(Vec<(String, T)>);

impl<T> Entries<T> {
    pub fn iter_members(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Entries(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Entries<T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
