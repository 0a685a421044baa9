//! Request bodies of providers.

use clouds::{CloudCredentials, CloudEndpoints, CloudKind};
use kernel::base::{Error, Label, StringEnum};
use kernel::http::{BodyField, BodyFields, FromBody};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, Type};

use super::{PROVIDER_UNSUPPORTED, ProviderId, REGIONS_MAX};

/// What creating a provider takes. `credentials` are never shown again.
#[derive(ToSchema)]
#[schema(as = CloudProviderInput, example = json!({
    "name": "Production", "kind": "aws", "regions": ["eu-central-1"],
    "credentials": {"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
}))]
#[serde(deny_unknown_fields)]
pub struct ProviderInput {
    /// A label for people; need not be unique.
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = "\\S")]
    pub name: Label,
    /// It cannot be changed later.
    pub kind: CloudKind,
    /// `aws`: `access_key_id`, `secret_access_key`, and for a role `role_arn` with an `external_id`, which is the tenant's id
    /// when omitted. `hetzner` and `digitalocean`: `token`. `libvirt`: none, as `{}`. Never shown. PUT: they stay when omitted.
    #[schema(schema_with = credentials_schema)]
    pub credentials: Option<CloudCredentials>,
    /// Where machines are listed and made. When omitted: `us-east-1` of aws, all regions of the others. PUT: they stay when
    /// omitted.
    #[schema(schema_with = regions_schema, required = false)]
    pub regions: Option<Vec<String>>,
    /// `false`: it is neither verified nor synced, and makes no machines. True when omitted.
    #[schema(value_type = Option<bool>, nullable = false)]
    pub enabled: bool,
}

/// A body that may name a kind which is not offered: that is told before anything else.
pub enum ProviderBody {
    Offered(Box<ProviderInput>),
    /// With the name of the kind.
    Unsupported(String),
}

impl ProviderBody {
    /// What the body says, if this server offers the kind.
    pub fn into_input(self, endpoints: &CloudEndpoints) -> kernel::base::Result<ProviderInput> {
        let kind = match self {
            ProviderBody::Offered(input) if endpoints.offers(input.kind) => return Ok(*input),
            ProviderBody::Offered(input) => input.kind.as_str().to_owned(),
            ProviderBody::Unsupported(kind) => kind,
        };
        Err(Error::invalid_as(PROVIDER_UNSUPPORTED, "/kind", unsupported_detail(&kind, endpoints)))
    }

    /// The other fields of a kind that is not offered cannot be judged.
    fn refuse_kind(fields: &mut BodyFields, kind: &str, is_alone: bool) -> Self {
        for known in ["credentials", "regions", "enabled"] {
            fields.read_optional(known, |field| Some(field.take_value()));
        }
        if !is_alone {
            // Beside another bad field it is one of several. What the operator offers on top is told when it is the only one.
            let detail = unsupported_detail(kind, &CloudEndpoints::default());
            fields.report_field("kind", PROVIDER_UNSUPPORTED.name(), detail);
        }
        ProviderBody::Unsupported(kind.to_owned())
    }

    fn parse(fields: &mut BodyFields, credentials_required: bool) -> Option<Self> {
        let name = fields.read_required("name", |field| field.read_parsed("invalid_name", Label::parse));
        let mut kind = None;
        if let Some(text) = fields.read_required("kind", |field| field.read_string()) {
            kind = CloudKind::parse(&text).filter(|kind| kind.is_built_in());
            if kind.is_none() {
                return Some(Self::refuse_kind(fields, &text, name.is_some()));
            }
        }
        let parse = |field: &mut BodyField<'_>| match kind {
            Some(kind) => parse_credentials(field, kind),
            None => None,
        };
        let credentials = if credentials_required {
            fields.read_required("credentials", parse).map(Some)
        } else {
            fields.read_optional("credentials", parse)
        };
        let regions = fields.read_optional("regions", parse_regions);
        let enabled = fields.read_optional("enabled", |field| field.read_boolean());
        let kind = kind?;
        Some(ProviderBody::Offered(Box::new(ProviderInput {
            name: name?,
            kind,
            credentials: credentials?,
            regions: regions?,
            enabled: enabled?.unwrap_or(true),
        })))
    }
}

fn unsupported_detail(kind: &str, endpoints: &CloudEndpoints) -> String {
    let kind: String = kind.chars().take(50).collect();
    format!("{kind:?} is not offered; this server offers {}", endpoints.offered_names())
}

fn parse_credentials(field: &mut BodyField<'_>, kind: CloudKind) -> Option<CloudCredentials> {
    match field.take_value() {
        value @ Value::Object(_) => match CloudCredentials::parse(kind, &value) {
            Ok(credentials) => Some(credentials),
            Err(errors) => {
                for error in errors {
                    field.report_member(&error.field, error.code, error.detail);
                }
                None
            }
        },
        _ => field.report_error("wrong_type", "must be an object"),
    }
}

fn parse_regions(field: &mut BodyField<'_>) -> Option<Vec<String>> {
    let mut regions = field.read_list(REGIONS_MAX, |field| field.read_parsed("invalid_region", parse_region))?;
    if regions.is_empty() {
        return field.report_error("too_short", "must name at least one region");
    }
    regions.sort();
    regions.dedup();
    Some(regions)
}

/// A region becomes part of a host name, so it has nothing but letters, digits and, between them, dashes.
pub fn parse_region(text: &str) -> Result<String, String> {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_ends = !text.starts_with('-') && !text.ends_with('-');
    if (1..=32).contains(&text.len()) && text.bytes().all(is_word) && has_ends {
        return Ok(text.to_owned());
    }
    Err("must be the name of a region such as eu-central-1".to_owned())
}

/// The body of POST: a new provider, or something to do with one.
pub enum ProviderAction {
    Create(ProviderBody),
    Verify(ProviderId),
    Sync(ProviderId),
}

/// `{"action": "verify", "id": "prv_…"}`
#[derive(ToSchema)]
#[schema(as = CloudProviderAction, example = json!({"action": "verify", "id": "prv_01jd8z6v2mfkpb7h3q9xw5t4ra"}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what ProviderAction::from_fields reads")]
pub struct ProviderActionInput {
    /// `verify` finds out now what the credentials may do; `sync` reads its machines soon.
    #[schema(schema_with = action_schema)]
    action: String,
    #[schema(value_type = String)]
    id: ProviderId,
}

impl FromBody for ProviderAction {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        if !fields.has_field("action") {
            return ProviderBody::parse(fields, true).map(ProviderAction::Create);
        }
        let action = fields.read_required("action", |field| {
            field.read_parsed("unknown_value", |text| match text {
                "verify" | "sync" => Ok(text.to_owned()),
                _ => Err("must be verify or sync; a new provider has no action".to_owned()),
            })
        });
        let id = fields.read_required("id", |field| field.read_id());
        let (action, id) = (action?, id?);
        Some(if action == "verify" { ProviderAction::Verify(id) } else { ProviderAction::Sync(id) })
    }
}

/// The body of PUT.
pub struct ProviderReplacement(pub ProviderBody);

impl FromBody for ProviderReplacement {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        ProviderBody::parse(fields, false).map(ProviderReplacement)
    }
}

fn action_schema() -> Schema {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["verify", "sync"])).into()
}

fn credentials_schema() -> Schema {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .into()
}

fn regions_schema() -> Schema {
    let region = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(32))
        .pattern(Some("^[a-z0-9-]+$"));
    ArrayBuilder::new().items(region).min_items(Some(1)).max_items(Some(REGIONS_MAX)).build().into()
}
