//! Request bodies of machines.

use std::collections::BTreeMap;

use kernel::base::Label;
use kernel::http::{BodyField, BodyFields, FromBody};
use people::organizations::OrganizationId;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};

use super::VmId;
use crate::providers::ProviderId;
use crate::providers::input::parse_region;

pub const COUNT_MAX: i64 = 20;
/// EC2 allows 50, of which some are ours.
pub const TAGS_MAX: usize = 40;
pub const SSH_KEYS_MAX: usize = 10;
/// The largest limit, DigitalOcean's; the kind of the provider decides.
pub const USER_DATA_BYTES_MAX: usize = 64 << 10;
/// Prefixes of tags that have a meaning of their own.
const RESERVED_PREFIXES: [&str; 2] = ["tenant-control:", "aws:"];

/// An order for machines. `user_data` is stored sealed until the cloud has it, and never shown.
#[derive(ToSchema)]
#[schema(as = VmInput, example = json!({
    "provider_id": "prv_01jd8z6v2mfkpb7h3q9xw5t4ra", "name": "web-1", "region": "eu-central-1", "size": "t3.micro",
    "image": "ami-0abcdef1234567890", "tags": {"env": "prod"}
}))]
#[serde(deny_unknown_fields)]
pub struct VmInput {
    #[schema(value_type = String)]
    pub provider_id: ProviderId,
    /// Becomes the machine's name, and its tag `Name`. Of several, each gets a number.
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = "\\S")]
    pub name: Label,
    /// One of the provider's regions.
    #[schema(min_length = 1, max_length = 32, pattern = "^[a-z0-9-]+$")]
    pub region: String,
    /// As the catalog `sizes` lists it.
    #[schema(min_length = 1, max_length = 200, pattern = "\\S")]
    pub size: String,
    /// As the catalog `images` lists it.
    #[schema(min_length = 1, max_length = 200, pattern = "\\S")]
    pub image: String,
    /// So many machines, an operation each. When it is given, even as 1, the answer is `{"data":[…]}`.
    #[schema(minimum = 1, maximum = 20, nullable = false)]
    pub count: Option<i64>,
    #[schema(schema_with = tags_schema, required = false)]
    pub tags: BTreeMap<String, String>,
    /// What the machine runs at its first start: at most 16 KiB at aws, 32 at hetzner, 64 at digitalocean.
    #[schema(max_length = 65536)]
    pub user_data: Option<String>,
    /// Names or ids of keys that the cloud knows; aws takes one.
    #[schema(schema_with = keys_schema, required = false)]
    pub ssh_keys: Vec<String>,
    #[schema(value_type = Option<String>)]
    pub organization_id: Option<OrganizationId>,
    /// Answers with the machine that would be made, and stores nothing.
    #[schema(value_type = Option<bool>, nullable = false)]
    pub dry_run: bool,
}

impl FromBody for VmInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let provider_id = fields.read_required("provider_id", |field| field.read_reference());
        let name = fields.read_required("name", |field| field.read_parsed("invalid_name", Label::parse));
        let region = fields.read_required("region", |field| field.read_parsed("invalid_region", parse_region));
        let size = fields.read_required("size", read_label);
        let image = fields.read_required("image", read_label);
        let count = fields.read_optional("count", |field| field.read_integer(1..=COUNT_MAX));
        let tags = fields.read_optional("tags", read_tags);
        let user_data = fields.read_optional("user_data", |field| field.read_or_null(read_user_data));
        let ssh_keys = fields.read_optional("ssh_keys", |field| field.read_list(SSH_KEYS_MAX, read_label));
        let organization_id =
            fields.read_optional("organization_id", |field| field.read_or_null(|field| field.read_reference()));
        let dry_run = fields.read_optional("dry_run", |field| field.read_boolean());
        Some(VmInput {
            provider_id: provider_id?,
            name: name?,
            region: region?,
            size: size?,
            image: image?,
            count: count?,
            tags: tags?.unwrap_or_default(),
            user_data: user_data?.flatten(),
            ssh_keys: ssh_keys?.unwrap_or_default(),
            organization_id: organization_id?.flatten(),
            dry_run: dry_run?.unwrap_or(false),
        })
    }
}

fn read_label(field: &mut BodyField<'_>) -> Option<String> {
    field.read_parsed("invalid_text", |text| Label::parse(text).map(Label::into_string))
}

fn read_user_data(field: &mut BodyField<'_>) -> Option<String> {
    field.read_parsed("too_long", |text| {
        if text.len() <= USER_DATA_BYTES_MAX {
            return Ok(text.to_owned());
        }
        Err(format!("must be at most {USER_DATA_BYTES_MAX} bytes"))
    })
}

fn read_tags(field: &mut BodyField<'_>) -> Option<BTreeMap<String, String>> {
    let tags = field.read_map(TAGS_MAX, |name, field| {
        if let Err(detail) = check_tag_name(name) {
            return field.report_error("invalid_tag", detail);
        }
        field.read_parsed("invalid_tag", |text| {
            if text.chars().count() <= 255 && !text.chars().any(char::is_control) {
                return Ok(text.to_owned());
            }
            Err("must be at most 255 characters without control characters".to_owned())
        })
    })?;
    Some(tags.into_iter().collect())
}

fn check_tag_name(name: &str) -> Result<(), String> {
    if name == "Name" {
        return Err("is set from name".to_owned());
    }
    if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| name.starts_with(**prefix)) {
        return Err(format!("must not begin with {prefix}, which is reserved"));
    }
    if (1..=127).contains(&name.chars().count()) && !name.chars().any(char::is_control) && name.trim() == name {
        return Ok(());
    }
    Err("must have a name of 1 to 127 characters without control characters and outer spaces".to_owned())
}

/// The body of POST: an order, or the decision about an operation whose outcome nobody knows.
pub enum VmRequest {
    Provision(Box<VmInput>),
    Settle(VmId, Settlement),
}

/// What people have decided about an operation that needs attention.
pub enum Settlement {
    /// The machine was not made: the same order is sent again.
    Retry,
    /// The machine is not wanted any more.
    Abandon,
    /// This is the machine, by its id in the cloud; none if it is the one that is known already.
    Adopt(Option<String>),
}

kernel::string_enum! {
    /// What people have decided about an operation that needs attention.
    #[schema(as = VmSettlement)]
    pub enum SettlementWord {
        /// The machine was not made: the same order is sent again.
        Retry "retry",
        /// The machine is not wanted any more, or was not made.
        Abandon "abandon",
        /// `external_id` is the machine.
        Adopt "adopt",
    }
}

/// `{"action": "settle", "id": "vm_…", "outcome": "retry"}`
#[derive(ToSchema)]
#[schema(as = VmSettlementInput, example = json!({
    "action": "settle", "id": "vm_01jd8z6v2mfkpb7h3q9xw5t4ra", "outcome": "abandon"
}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what VmRequest::from_fields reads")]
pub struct SettleInput {
    #[schema(schema_with = settle_schema)]
    action: String,
    /// A machine whose operation is `needs_attention`, or `accepted` to abandon it.
    #[schema(value_type = String)]
    id: VmId,
    outcome: SettlementWord,
    /// With `adopt`: the machine's id in the cloud. It may be left out where the service has found the machine itself.
    #[schema(nullable = false, min_length = 1, max_length = 200)]
    external_id: Option<String>,
}

impl FromBody for VmRequest {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        if !fields.has_field("action") {
            return VmInput::from_fields(fields).map(|input| VmRequest::Provision(Box::new(input)));
        }
        let action = fields.read_required("action", |field| {
            field.read_parsed("invalid_value", |text| {
                if text == "settle" { Ok(()) } else { Err("must be settle; an order has no action".to_owned()) }
            })
        });
        let id = fields.read_required("id", |field| field.read_id());
        let outcome = fields.read_required("outcome", |field| field.read_enum());
        let external_id = fields.read_optional("external_id", read_label);
        action?;
        let (id, outcome, external_id) = (id?, outcome?, external_id?);
        if external_id.is_some() && outcome != SettlementWord::Adopt {
            fields.report_field("external_id", "is_unused", "is only used with adopt");
            return None;
        }
        let settlement = match outcome {
            SettlementWord::Retry => Settlement::Retry,
            SettlementWord::Abandon => Settlement::Abandon,
            SettlementWord::Adopt => Settlement::Adopt(external_id),
        };
        Some(VmRequest::Settle(id, settlement))
    }
}

fn settle_schema() -> Schema {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["settle"])).into()
}

fn tags_schema() -> Schema {
    let value = ObjectBuilder::new().schema_type(Type::String).max_length(Some(255));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(Schema::from(value)))
        .max_properties(Some(TAGS_MAX))
        .into()
}

fn keys_schema() -> Schema {
    let key = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(200));
    ArrayBuilder::new().items(key).max_items(Some(SSH_KEYS_MAX)).build().into()
}
