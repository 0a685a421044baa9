//! Parsing of request bodies of organizations.

use feature_kit::NullInput;
use feature_kit::custom_fields::{CUSTOM_FIELDS_MAX, parse_custom_fields};
use feature_kit::tags::{TAGS_MAX, parse_tags, remove_duplicates};
use kernel::base::{Label, check_slug};
use kernel::http::{BodyField, BodyFields, FromBody};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, Type};

use super::DOMAINS_MAX;
use crate::domain_name::is_domain_name;

/// What creating or replacing an organization takes.
#[derive(Clone, Debug, ToSchema)]
#[schema(as = OrganizationInput, example = json!({
    "name": "Globex Inc.", "slug": "globex", "external_id": "crm-4711", "domains": ["globex.example"], "tags": ["gold"],
    "custom_fields": {"contract": {"ends": "2027-12-31"}}
}))]
#[serde(deny_unknown_fields)]
pub struct OrganizationInput {
    /// A label for people; need not be unique.
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = "\\S")]
    pub name: Label,
    /// Short name for commands and agents; unique in the tenant. POST: made from the name when omitted, with a number if it
    /// is taken. PUT: it stays when omitted.
    #[schema(nullable = false, min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub slug: Option<String>,
    /// Its id in another system; unique in the tenant.
    #[schema(min_length = 1, max_length = 200, pattern = "\\S")]
    pub external_id: Option<String>,
    /// Domain names that are its own. They are kept in small letters, each once.
    #[schema(schema_with = domains_schema, required = false)]
    pub domains: Vec<String>,
    #[schema(schema_with = tags_schema, required = false)]
    pub tags: Vec<String>,
    /// At most 50 fields, 5 deep with itself, 16 KiB of JSON.
    #[schema(schema_with = custom_fields_schema, required = false)]
    pub custom_fields: Map<String, Value>,
    /// Hides it from lists; nothing new can refer to it, and what does stays. False when omitted.
    #[schema(value_type = Option<bool>, nullable = false)]
    pub archived: bool,
}

impl OrganizationInput {
    /// An organization with a name and a slug; everything else is empty.
    pub fn new(name: Label, slug: String) -> Self {
        OrganizationInput {
            name,
            slug: Some(slug),
            external_id: None,
            domains: Vec::new(),
            tags: Vec::new(),
            custom_fields: Map::new(),
            archived: false,
        }
    }
}

impl FromBody for OrganizationInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let name = fields.read_required("name", |field| field.read_parsed("invalid_name", Label::parse));
        let slug = fields.read_optional("slug", |field| field.read_parsed("invalid_slug", parse_slug));
        let external_id = fields.read_optional("external_id", |field| {
            field.read_or_null(|field| field.read_parsed("invalid_text", parse_external_id))
        });
        let domains = fields.read_optional("domains", parse_domains);
        let tags = fields.read_optional("tags", parse_tags);
        let custom_fields =
            fields.read_optional("custom_fields", |field| parse_custom_fields(field, NullInput::Refused));
        let archived = fields.read_optional("archived", |field| field.read_boolean());
        Some(OrganizationInput {
            name: name?,
            slug: slug?,
            external_id: external_id?.flatten(),
            domains: domains?.unwrap_or_default(),
            tags: tags?.unwrap_or_default(),
            custom_fields: custom_fields?.unwrap_or_default(),
            archived: archived?.unwrap_or(false),
        })
    }
}

/// Parses a slug. The error says what is wrong with it.
pub fn parse_slug(text: &str) -> Result<String, String> {
    let first_detail = |error: &kernel::base::Error| error.fields().first().map(|field| field.detail.clone());
    check_slug(text).map(|()| text.to_owned()).map_err(|error| first_detail(&error).unwrap_or_default())
}

/// Parses an id of another system. The error says what is wrong with it.
pub fn parse_external_id(text: &str) -> Result<String, String> {
    Label::parse(text).map(Label::into_string)
}

fn parse_domains(field: &mut BodyField<'_>) -> Option<Vec<String>> {
    Some(remove_duplicates(field.read_list(DOMAINS_MAX, |field| field.read_parsed("invalid_domain", parse_domain))?))
}

/// Parses a domain name of at least two parts into lower case. IP addresses are refused.
fn parse_domain(text: &str) -> Result<String, String> {
    let name = text.trim().to_ascii_lowercase();
    if is_domain_name(&name) {
        return Ok(name);
    }
    Err("must be a domain name such as globex.example; others than of a-z, 0-9 and - are written as xn--…".to_owned())
}

fn domains_schema() -> Schema {
    let domain = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
    ArrayBuilder::new().items(domain).max_items(Some(DOMAINS_MAX)).build().into()
}

fn tags_schema() -> Schema {
    let tag = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(200))
        .pattern(Some("^[^,]*[^,\\s][^,]*$"));
    ArrayBuilder::new().items(tag).max_items(Some(TAGS_MAX)).build().into()
}

fn custom_fields_schema() -> Schema {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .max_properties(Some(CUSTOM_FIELDS_MAX))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_name_of_parts() {
        for (text, name) in
            [(" Globex.Example ", "globex.example"), ("a-1.b.xn--p1ai", "a-1.b.xn--p1ai"), ("1.de", "1.de")]
        {
            assert_eq!(parse_domain(text).as_deref(), Ok(name), "{text}");
        }
        let long = format!("{}.de", "a".repeat(64));
        for text in [
            "",
            ".",
            "globex",
            "globex.",
            ".example",
            "a..b",
            "-a.de",
            "a-.de",
            "a_b.de",
            "a b.de",
            "192.0.2.1",
            "ü.de",
            "a.de/x",
            &long,
        ] {
            assert!(parse_domain(text).is_err(), "{text}");
        }
    }
}
