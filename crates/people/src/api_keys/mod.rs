//! API keys of a tenant: request bodies, records and rules.
//!
//! Verifying a presented key is in `kernel::auth`, which every request passes through.

pub mod descendants;
pub mod feature;
/// Reading keys.
pub mod find {
    pub mod store;
}
pub mod jobs;
pub mod networks;
pub mod routes;
pub mod store;

use ipnet::IpNet;
use kernel::auth::{CredentialRef, Rights, Scope, Scopes};
use kernel::base::{ActorRef, ApiKeyId, DAY_MS, Error, Label, MINUTE_MS, Result, Timestamp, parse_network};
use kernel::events::EventKind;
use kernel::http::{BodyField, BodyFields, FromBody, Record};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};

/// How long before its expiry a key is announced; a key with a shorter lifetime is not announced.
pub const ANNOUNCE_MS: i64 = 7 * DAY_MS;
pub const API_KEY_CREATED: EventKind<ApiKey> = EventKind::new("api_key.created", "An API key was created.");
pub const API_KEY_ROTATED: EventKind<ApiKey> =
    EventKind::new("api_key.rotated", "An API key got a new secret; the old one works for the overlap.");
pub const API_KEY_REVOKED: EventKind<ApiKey> =
    EventKind::new("api_key.revoked", "An API key was revoked, by itself or with the key that made it.");
pub const API_KEY_EXPIRING: EventKind<ApiKey> =
    EventKind::new("api_key.expiring", "An API key expires within seven days. Told once for each date of expiry.");

pub const EXPIRES_DAYS_MAX: i64 = 365;
pub const EXPIRES_DAYS_DEFAULT: i64 = 90;
pub const ALLOWED_CIDRS_MAX: usize = 50;
pub const OVERLAP_HOURS_MAX: i64 = 168;
pub const OVERLAP_HOURS_DEFAULT: i64 = 24;
/// How many active keys a tenant may have.
pub const ACTIVE_KEYS_MAX: i64 = 100;
/// A request for the same number of days as the key that made it must not fail for the seconds in between.
const EXPIRY_SLACK_MS: i64 = MINUTE_MS;

kernel::string_enum! {
    /// Whether a key works.
    #[schema(as = ApiKeyStatus)]
    pub enum ApiKeyStatus { Active "active", Expired "expired", Revoked "revoked" }
}

/// An API key, without its secret.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "id": "key_01jd8z6v2mfkpb7h3q9xw5t4ra",
    "name": "Nightly report",
    "scopes": ["tickets:read"],
    "allowed_cidrs": ["198.51.100.0/24"],
    "prefix": "tck_3fG7kQ2m",
    "last_four": "x9Kd",
    "status": "active",
    "expires_at": "2027-02-13T08:00:00.000Z",
    "last_used_at": null,
    "last_used_ip": null,
    "created_by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"},
    "version": 1,
    "created_at": "2026-11-15T08:00:00.000Z",
    "updated_at": "2026-11-15T08:00:00.000Z"
}))]
pub struct ApiKey {
    #[schema(value_type = String)]
    pub id: ApiKeyId,
    pub name: String,
    pub scopes: Vec<String>,
    /// Where the key may be used from; empty means anywhere.
    #[schema(value_type = Vec<String>)]
    pub allowed_cidrs: Vec<IpNet>,
    /// The start of the key, to tell keys apart.
    pub prefix: String,
    /// The end of the key, to tell keys apart.
    pub last_four: String,
    pub status: ApiKeyStatus,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// At most 60 seconds late.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub last_used_at: Option<Timestamp>,
    #[schema(required)]
    pub last_used_ip: Option<String>,
    pub created_by: ActorRef,
    pub version: i64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Record for ApiKey {
    fn version(&self) -> i64 {
        self.version
    }
}

/// An API key with its plain text, which is shown this once.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "key_01jd8z6v2mfkpb7h3q9xw5t4ra",
    "name": "Nightly report",
    "scopes": ["tickets:read"],
    "allowed_cidrs": [],
    "prefix": "tck_3fG7kQ2m",
    "last_four": "0x9K",
    "status": "active",
    "expires_at": "2027-02-13T08:00:00.000Z",
    "last_used_at": null,
    "last_used_ip": null,
    "created_by": {"type": "user", "id": "usr_01jd8z6v2mfkpb7h3q9xw5t4rb", "name": "Admin"},
    "version": 1,
    "created_at": "2026-11-15T08:00:00.000Z",
    "updated_at": "2026-11-15T08:00:00.000Z",
    "key": "tck_3fG7kQ2m_Zr1TnB6sWd0aQp8LmXc4VbN2hJk5Yt7E3uR0x9K"
}))]
pub struct NewKey {
    #[serde(flatten)]
    pub record: ApiKey,
    /// The key itself. It cannot be read again.
    pub key: String,
}

impl Record for NewKey {
    fn version(&self) -> i64 {
        self.record.version
    }
}

/// What creating or replacing a key takes.
#[derive(Debug, ToSchema)]
#[schema(as = ApiKeyInput, example = json!({"name": "Nightly report", "scopes": ["tickets:read"], "expires_days": 90}))]
#[serde(deny_unknown_fields)]
pub struct ApiKeyInput {
    /// A label for people; need not be unique.
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = "\\S")]
    pub name: Label,
    /// What the key may do. Nobody can grant what they do not hold; `*` never includes `platform:read`.
    #[schema(schema_with = scopes_schema)]
    pub scopes: Scopes,
    /// Days until the key expires, from now. POST: 90 when omitted. PUT: the expiry stays when omitted.
    #[schema(minimum = 1, maximum = 365, nullable = false)]
    pub expires_days: Option<i64>,
    /// Networks the key may be used from; `[]` means anywhere. POST: anywhere when omitted. PUT: the list stays when omitted.
    /// A key that has a list makes and changes keys within it alone, and one it makes without a list gets its own.
    #[schema(value_type = Option<Vec<String>>, max_items = 50, nullable = false)]
    pub allowed_cidrs: Option<Vec<IpNet>>,
}

impl FromBody for ApiKeyInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let name = fields.read_required("name", |field| field.read_parsed("invalid_name", Label::parse));
        let scopes = fields.read_required("scopes", parse_scopes);
        let expires_days = fields.read_optional("expires_days", |field| field.read_integer(1..=EXPIRES_DAYS_MAX));
        let allowed_cidrs =
            fields.read_optional("allowed_cidrs", |field| field.read_list(ALLOWED_CIDRS_MAX, parse_cidr));
        Some(ApiKeyInput { name: name?, scopes: scopes?, expires_days: expires_days?, allowed_cidrs: allowed_cidrs? })
    }
}

/// The body of PUT: a replacement, or a rotation alone.
pub enum ApiKeyChange {
    Replace(ApiKeyInput),
    Rotate { overlap_hours: i64 },
}

/// `{"rotate": {}}`, alone in the body.
#[derive(ToSchema)]
#[schema(as = ApiKeyRotation, example = json!({"rotate": {"overlap_hours": 24}}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what ApiKeyChange::from_fields reads")]
pub struct ApiKeyRotation {
    rotate: ApiKeyRotationSettings,
}

#[derive(ToSchema)]
#[schema(as = ApiKeyRotationSettings)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's description of what ApiKeyChange::from_fields reads")]
pub struct ApiKeyRotationSettings {
    /// How long the old key goes on working; 24 when omitted.
    #[schema(minimum = 0, maximum = 168, nullable = false)]
    overlap_hours: Option<i64>,
}

impl FromBody for ApiKeyChange {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        if !fields.has_field("rotate") {
            return ApiKeyInput::from_fields(fields).map(ApiKeyChange::Replace);
        }
        let overlap = fields.read_alone("rotate", |field| {
            field.read_object(|inner| {
                inner.read_optional("overlap_hours", |field| field.read_integer(0..=OVERLAP_HOURS_MAX))
            })
        });
        Some(ApiKeyChange::Rotate { overlap_hours: overlap?.unwrap_or(OVERLAP_HOURS_DEFAULT) })
    }
}

fn scopes_schema() -> Schema {
    let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Scopes::grantable_words()));
    ArrayBuilder::new().items(word).min_items(Some(1)).max_items(Some(Scopes::WORDS_MAX)).build().into()
}

fn parse_scopes(field: &mut BodyField<'_>) -> Option<Scopes> {
    let words = field.read_list(Scopes::WORDS_MAX, |item| {
        item.read_parsed("unknown_scope", |word| {
            if Scopes::is_known(word) { Ok(word.to_owned()) } else { Err(unknown_scope(word)) }
        })
    })?;
    if words.is_empty() {
        return field.report_error("required", "must name at least one scope");
    }
    Scopes::parse(words.iter().map(String::as_str)).ok()
}

fn unknown_scope(word: &str) -> String {
    let word: String = word.chars().take(60).collect();
    format!("{word:?} is not a scope; known are {}", Scopes::grantable_words().join(", "))
}

fn parse_cidr(field: &mut BodyField<'_>) -> Option<IpNet> {
    field.read_parsed("invalid_cidr", |text| {
        parse_network(text).ok_or_else(|| "must be a network such as 198.51.100.0/24 or 2001:db8::/32".to_owned())
    })
}

/// The expiry of a key that is created or changed now, by a key that expires at `maker_end` or by a person.
pub fn resolve_expiry(now: Timestamp, expires_days: Option<i64>, maker_end: Option<Timestamp>) -> Result<Timestamp> {
    let Some(days) = expires_days else {
        let default = now.plus_ms(EXPIRES_DAYS_DEFAULT * DAY_MS);
        return Ok(maker_end.map_or(default, |end| end.min(default)));
    };
    let requested = now.plus_ms(days * DAY_MS);
    maker_end.map_or(Ok(requested), |end| cap_at_maker_expiry(requested, end))
}

/// The requested expiry, cut to the maker's if it exceeds it by no more than the slack.
pub fn cap_at_maker_expiry(requested: Timestamp, maker_end: Timestamp) -> Result<Timestamp> {
    if requested > maker_end.plus_ms(EXPIRY_SLACK_MS) {
        let detail = format!("a key cannot outlive the key that made it, which ends at {maker_end}");
        return Err(Error::invalid("/expires_days", "outlives_maker", detail));
    }
    Ok(requested.min(maker_end))
}

/// A caller can grant only scopes it holds, and only a signed-in platform operator can grant `platform:read`.
pub fn check_grant(rights: &Rights, scopes: &Scopes) -> Result<()> {
    rights.require_all(scopes, "Granting these scopes")?;
    if matches!(rights.credential, Some(CredentialRef::Key { .. })) && scopes.has_scope(Scope::PlatformRead) {
        let name = Scope::PlatformRead.name();
        return Err(Error::insufficient_scope(name, "Only a platform operator, signed in, can grant platform:read."));
    }
    Ok(())
}
